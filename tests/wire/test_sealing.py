"""Sealed envelopes: whoever passes them on can neither read, alter, repeat nor exchange them, nor pose as a party."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import ProtocolError, SettingsError
from colonnade.wire import sealing
from colonnade.wire.authority import issue, make_authority
from colonnade.wire.certificates import Credentials, read_credentials
from colonnade.wire.sealing import OVERHEAD_BYTES, Envelope, SealingKey, check_introduction, sign_introduction

DIGEST = "d" * 64
SHOP, CLINIC, BANK = (SealingKey.from_bytes(bytes([number]) * 32) for number in (1, 2, 3))
KEYS = {"shop": SHOP, "clinic": CLINIC, "bank": BANK}


def envelope(own: str, peer: str, digest: str = DIGEST) -> Envelope:
    return Envelope(KEYS[own], own, KEYS[peer].public_bytes(), peer, digest)


def refused(receiver: Envelope, sealed: bytes) -> str:
    before = receiver.state()
    with pytest.raises(ProtocolError) as error:
        receiver.open(sealed)
    assert receiver.state() == before
    return str(error.value)


# --- keys -------------------------------------------------------------------------------------------------------


def test_a_key_is_saved_and_not_shown() -> None:
    key = SealingKey.generate()
    again = SealingKey.from_bytes(key.to_bytes())
    assert again.public_bytes() == key.public_bytes() != SealingKey.generate().public_bytes()
    assert len(key.to_bytes()) == len(key.public_bytes()) == 32
    assert repr(key) == "SealingKey()"


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_of_a_wrong_length(size: int) -> None:
    with pytest.raises(SettingsError, match=f"{size} were given"):
        SealingKey.from_bytes(bytes(size))
    with pytest.raises(ProtocolError, match="sealing key of 'clinic'"):
        Envelope(SHOP, "shop", bytes(size), "clinic", DIGEST)


def test_a_key_with_which_the_secret_would_be_known_to_all() -> None:
    with pytest.raises(ProtocolError, match="not a usable X25519 key"):
        Envelope(SHOP, "shop", bytes(32), "clinic", DIGEST)  # a point of low order


def test_nobody_seals_to_itself() -> None:
    with pytest.raises(SettingsError, match="to itself"):
        Envelope(SHOP, "shop", CLINIC.public_bytes(), "shop", DIGEST)


# --- envelopes --------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=100), max_size=5), st.sampled_from([bytes, bytearray, memoryview]))
def test_what_is_sealed_is_opened(plains: list[bytes], kind: type[bytes]) -> None:
    shop, clinic = envelope("shop", "clinic"), envelope("clinic", "shop")
    for plain in plains:
        sealed = shop.seal(kind(plain))
        assert len(sealed) == len(plain) + OVERHEAD_BYTES
        assert clinic.open(kind(sealed)) == plain
        assert shop.open(clinic.seal(plain)) == plain


@given(st.binary(max_size=40), st.data())
def test_any_flipped_bit_is_refused(plain: bytes, data: st.DataObject) -> None:
    shop, clinic = envelope("shop", "clinic"), envelope("clinic", "shop")
    shop.seal(b"")  # so that a flipped counter may be less as well as more
    sealed = shop.seal(plain)
    bit = data.draw(st.integers(0, len(sealed) * 8 - 1))
    altered = bytearray(sealed)
    altered[bit // 8] ^= 1 << bit % 8
    refused(clinic, bytes(altered))
    assert clinic.open(sealed) == plain


@given(st.binary(max_size=60), st.integers(0, 99))
def test_what_is_cut_short_or_made_longer_is_refused(plain: bytes, size: int) -> None:
    shop, clinic = envelope("shop", "clinic"), envelope("clinic", "shop")
    sealed = shop.seal(plain)
    short = sealed[: min(size, len(sealed) - 1)]
    assert ("is truncated" in refused(clinic, short)) == (len(short) < OVERHEAD_BYTES)
    refused(clinic, sealed + b"\0")
    refused(clinic, b"\0" + sealed)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(content: bytes) -> None:
    refused(envelope("clinic", "shop"), content)


def test_an_envelope_is_for_one_pair_one_direction_and_one_federation() -> None:
    sealed = envelope("shop", "clinic").seal(b"secret")
    for other in (
        envelope("shop", "clinic"),  # sent back
        envelope("bank", "shop"),  # another receiver
        envelope("clinic", "bank"),  # another sender
        envelope("clinic", "shop", "e" * 64),  # another federation
        Envelope(SealingKey.generate(), "clinic", SHOP.public_bytes(), "shop", DIGEST),  # another run: a new key
        Envelope(CLINIC, "clinic", SHOP.public_bytes(), "bank", DIGEST),  # the same keys under another name
        Envelope(CLINIC, "bank", SHOP.public_bytes(), "shop", DIGEST),
    ):
        assert "was not sealed by it" in refused(other, sealed)
    assert envelope("clinic", "shop").open(sealed) == b"secret"


def test_names_cannot_be_shifted_into_one_another() -> None:
    sealed = Envelope(SHOP, "ab", CLINIC.public_bytes(), "c", DIGEST).seal(b"")
    refused(Envelope(CLINIC, "bc", SHOP.public_bytes(), "a", DIGEST), sealed)


def test_a_repeated_envelope_is_refused() -> None:
    shop, clinic = envelope("shop", "clinic"), envelope("clinic", "shop")
    first, second, third = (shop.seal(b"same") for _ in range(3))
    assert len({first, second, third}) == 3
    assert clinic.open(first) == clinic.open(third) == b"same"  # one that was lost is no matter
    for old in (first, second, third):
        assert "repeated it" in refused(clinic, old)
    assert clinic.open(shop.seal(b"next")) == b"next"


def test_a_new_life_of_the_sender_has_a_new_salt() -> None:
    clinic = envelope("clinic", "shop")
    lives = [envelope("shop", "clinic") for _ in range(100)]  # more than the receiver keeps ciphers for
    sealed = [[life.seal(b"one"), life.seal(b"two")] for life in lives]
    assert len({one[:16] for one, _ in sealed}) == 100
    assert all(clinic.open(one) == b"one" for one, _ in sealed)
    assert all("repeated" in refused(clinic, one) for one, _ in sealed)  # none is forgotten
    assert all(clinic.open(two) == b"two" for _, two in sealed)


def test_only_so_many_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "MOST_SALTS", 3)
    clinic = envelope("clinic", "shop")
    for _ in range(50):
        refused(clinic, envelope("bank", "clinic").seal(b""))  # strangers do not count
    lives = [envelope("shop", "clinic") for _ in range(4)]
    for life in lives[:3]:
        clinic.open(life.seal(b""))
    assert "started anew more than 3 times" in refused(clinic, lives[3].seal(b""))
    assert clinic.open(lives[2].seal(b"still")) == b"still"


def test_a_receiver_that_starts_again_remembers_what_it_opened() -> None:
    shop, clinic = envelope("shop", "clinic"), envelope("clinic", "shop")
    old = shop.seal(b"old")
    clinic.open(old)
    again = envelope("clinic", "shop")
    again.restore(clinic.state())
    assert "repeated" in refused(again, old)
    assert again.open(shop.seal(b"new")) == b"new"
    assert shop.open(again.seal(b"back")) == b"back"


def test_the_bytes_are_what_the_first_lines_of_the_module_say() -> None:
    """Opened by hand, with nothing of ours."""
    sealed = envelope("shop", "clinic").seal(b"by hand")
    salt, counter, rest = sealed[:16], sealed[16:24], sealed[24:]
    secret = X25519PrivateKey.from_private_bytes(bytes([2]) * 32).exchange(
        X25519PublicKey.from_public_bytes(SHOP.public_bytes())
    )
    words = [
        *(b"colonnade envelope 1", DIGEST.encode()),
        *(b"shop", SHOP.public_bytes(), b"clinic", CLINIC.public_bytes()),
    ]
    info = b"".join(len(word).to_bytes(4, "big") + word for word in words)
    key = HKDF(SHA256(), 32, salt, info).derive(secret)
    assert counter == bytes(8)
    assert ChaCha20Poly1305(key).decrypt(bytes(12), rest, None) == b"by hand"


# --- introductions ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Credentials]:
    folder = tmp_path_factory.mktemp("introductions")
    make_authority(folder, "f", 10)
    return {name: credentials(folder, name) for name in ("shop", "bank")}


def credentials(folder: Path, name: str) -> Credentials:
    made = issue(folder, name, folder, [], 5)
    return read_credentials(made.key, made.certificate, made.authority, None)


def check(own: Credentials, digest: str, public: bytes, signature: bytes, revoked: frozenset[int] = frozenset()) -> str:
    return check_introduction(own.certificate_pem, own.authority_pem, revoked, digest, public, signature)


def test_an_introduction(parties: dict[str, Credentials]) -> None:
    signature = sign_introduction(parties["shop"], DIGEST, SHOP.public_bytes())
    assert check(parties["shop"], DIGEST, SHOP.public_bytes(), signature) == "shop"


def test_an_introduction_holds_for_one_party_one_key_and_one_federation(parties: dict[str, Credentials]) -> None:
    shop, bank = parties["shop"], parties["bank"]
    signature = sign_introduction(shop, DIGEST, SHOP.public_bytes())
    for owner, digest, public, signed in (
        (bank, DIGEST, SHOP.public_bytes(), signature),  # the bank with the shop's introduction
        (shop, DIGEST, BANK.public_bytes(), signature),  # the bank's key under the shop's introduction
        (shop, "e" * 64, SHOP.public_bytes(), signature),
        (shop, DIGEST, SHOP.public_bytes(), sign_introduction(bank, DIGEST, SHOP.public_bytes())),
        (shop, DIGEST, SHOP.public_bytes(), signature[:-1]),
        (shop, DIGEST, SHOP.public_bytes(), b""),
    ):
        with pytest.raises(ProtocolError, match=f"not signed by '{owner.name}'"):
            check(owner, digest, public, signed)


@given(st.binary(max_size=80))
def test_no_other_bytes_are_a_signature(parties: dict[str, Credentials], signature: bytes) -> None:
    with pytest.raises(ProtocolError, match="not signed by 'shop'"):
        check(parties["shop"], DIGEST, SHOP.public_bytes(), signature)


def test_an_introduction_needs_a_certificate_to_be_believed(parties: dict[str, Credentials], tmp_path: Path) -> None:
    make_authority(tmp_path / "other", "f", 10)
    stranger = credentials(tmp_path / "other", "shop")
    signature = sign_introduction(stranger, DIGEST, SHOP.public_bytes())
    with pytest.raises(ProtocolError, match="not issued by the authority"):
        trusted = parties["shop"].authority_pem
        check_introduction(stranger.certificate_pem, trusted, frozenset(), DIGEST, SHOP.public_bytes(), signature)
    revoked = frozenset([serial_of(stranger)])
    with pytest.raises(ProtocolError, match="was revoked"):
        check(stranger, DIGEST, SHOP.public_bytes(), signature, revoked)


def serial_of(own: Credentials) -> int:
    return x509.load_pem_x509_certificate(own.certificate_pem).serial_number
