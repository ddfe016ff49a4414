"""Certificates: what is issued is believed by TLS and by us, what is wrong is refused in a sentence, keys stay secret.

Real X.509 throughout, and one real gRPC connection over loopback; wrong certificates are made by turning the clock.
"""

import os
import stat
import threading
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given
from hypothesis import strategies as st

from colonnade import files
from colonnade.errors import ProtocolError, RunError, SettingsError
from colonnade.wire import authority as authorities
from colonnade.wire import certificate_files, certificates
from colonnade.wire.authority import Issued, issue, make_authority, revoke
from colonnade.wire.certificates import Credentials, check_peer, read_credentials, read_facts

NONE: frozenset[int] = frozenset()


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    make_authority(tmp_path / "authority", "small federation", 100)
    return tmp_path / "authority"


@pytest.fixture
def shop(authority: Path) -> Issued:
    return issue(authority, "shop", authority.parent / "shop", [], 30)


def read(issued: Issued, **changed: Any) -> Credentials:
    """A party's credentials from the files that were issued, but for some."""
    files: dict[str, Any] = {
        "key": issued.key,
        "certificate": issued.certificate,
        "authority": issued.authority,
        "revoked": issued.authority.with_name("revoked.txt"),
    }
    return read_credentials(**{**files, **changed})


def refused(issued: Issued, **changed: Any) -> str:
    with pytest.raises(SettingsError) as error:
        read(issued, **changed)
    return str(error.value)


def peer_refused(pem: bytes, authority: Path, revoked: frozenset[int] = NONE, now: datetime | None = None) -> str:
    with pytest.raises(ProtocolError) as error:
        check_peer(pem, (authority / "authority.pem").read_bytes(), revoked, now)
    return str(error.value)


def loaded(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def turn_clock(monkeypatch: pytest.MonkeyPatch, **by: float) -> None:
    for module in (authorities, certificates):
        monkeypatch.setattr(module, "utc_now", lambda: datetime.now(UTC) + timedelta(**by))


# --- what is made -----------------------------------------------------------------------------------------------


def test_a_party_has_its_name_twice_and_may_be_either_end(authority: Path) -> None:
    label = issue(authority, "label", authority.parent / "l", ["label.example.org", "10.0.0.5", "::1"], 30)
    certificate = loaded(label.certificate)
    assert [part.value for part in certificate.subject] == ["label"]
    extensions = certificate.extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one.value) for one in names] == ["label", "label.example.org", "10.0.0.5", "::1"]
    assert len(names.get_values_for_type(x509.IPAddress)) == 2
    usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    own = extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    issuer = extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    root = loaded(label.authority)
    assert issuer == root.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest != own
    constraints = root.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)
    assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)
    days = (certificate.not_valid_after_utc - datetime.now(UTC)) / timedelta(days=1)
    assert 29.9 < days <= 30 and label.expires == certificate.not_valid_after_utc


def test_keys_are_secret_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_authority(tmp_path / "a", "f", 10)
        made = issue(tmp_path / "a", "shop", tmp_path / "s", [], 5)
    finally:
        os.umask(before)
    for key in (tmp_path / "a" / "authority.key", made.key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(made.certificate.stat().st_mode) == 0o644
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == [
        "authority.pem",
        "revoked.txt",
        "shop.key",
        "shop.pem",
    ]


def test_a_key_is_never_in_a_file_that_others_may_read(authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []
    fill = files._fill

    def looking(handle: int, content: bytes) -> None:
        if b"PRIVATE KEY" in content:
            modes.append(stat.S_IMODE(os.fstat(handle).st_mode))  # before the first byte
        fill(handle, content)

    monkeypatch.setattr(files, "_fill", looking)
    make_authority(authority.parent / "other", "f", 10)
    issue(authority, "shop", authority.parent / "s", [], 5)
    assert modes == [0o600, 0o600]


def test_an_authority_is_never_overwritten(authority: Path) -> None:
    before = {path.name: path.read_bytes() for path in authority.iterdir()}
    with pytest.raises(SettingsError, match="never overwritten"):
        make_authority(authority, "another", 10)
    assert {path.name: path.read_bytes() for path in authority.iterdir()} == before


def test_of_two_who_make_an_authority_at_once_one_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate = ec.generate_private_key

    def meanwhile(curve: ec.EllipticCurve) -> ec.EllipticCurvePrivateKey:
        """Somebody else is quicker, after the look whether there is an authority."""
        monkeypatch.setattr(authorities.ec, "generate_private_key", generate)
        make_authority(tmp_path / "a", "quicker", 10)
        return generate(curve)

    monkeypatch.setattr(authorities.ec, "generate_private_key", meanwhile)
    with pytest.raises(SettingsError, match=r"authority\.key exists already"):
        make_authority(tmp_path / "a", "slower", 10)
    assert read(issue(tmp_path / "a", "shop", tmp_path / "s", [], 5)).name == "shop"
    assert read_facts(tmp_path / "a" / "authority.pem")[0].name == "quicker"


def test_half_an_authority_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes, mode: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(authorities, "write_atomically", full)
        with pytest.raises(RunError, match="No space left"):
            make_authority(tmp_path / "a", "f", 10)
    make_authority(tmp_path / "a", "f", 10)


def test_the_authority_of_another_stays_where_it_is(authority: Path, shop: Issued, tmp_path: Path) -> None:
    make_authority(tmp_path / "other", "other", 100)
    with pytest.raises(SettingsError, match="another authority's"):
        issue(tmp_path / "other", "shop", shop.key.parent, [], 5)
    assert read(shop).name == "shop"


def test_a_file_of_two_authorities_is_the_way_from_one_to_the_next(authority: Path, shop: Issued) -> None:
    make_authority(authority.parent / "next", "next", 100)
    both = (authority / "authority.pem").read_bytes() + (authority.parent / "next" / "authority.pem").read_bytes()
    shop.authority.write_bytes(both)
    assert read(shop).name == "shop"
    renewed = issue(authority.parent / "next", "shop", shop.key.parent, [], 5)
    assert renewed.authority.read_bytes() == both
    assert read(renewed).name == "shop"


# --- names and hosts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a/b", "../a", "a b", "ä", "a" * 65, "authority", "Authority", "10.0.0.5", "a."])
def test_names_that_will_not_do(authority: Path, name: str) -> None:
    with pytest.raises(SettingsError, match=r"will not do|cannot be named"):
        issue(authority, name, authority.parent / "out", [], 5)
    assert not (authority.parent / "out").exists()


@pytest.mark.parametrize("host", ["*.example.org", "a b", "", "label..org", "-a", "x" * 64])
def test_hosts_that_will_not_do(authority: Path, host: str) -> None:
    with pytest.raises(SettingsError, match="without wildcards"):
        issue(authority, "shop", authority.parent / "out", [host], 5)


def test_no_party_gets_a_certificate_that_passes_for_another(authority: Path) -> None:
    out = authority.parent / "out"
    issue(authority, "label", out, ["bank.example.org"], 5)
    for name, hosts in (("Label", []), ("shop", ["LABEL"]), ("bank.example.org", [])):
        with pytest.raises(SettingsError, match="is taken: the party 'label'"):
            issue(authority, name, out, hosts, 5)
    issue(authority, "label", out, ["label"], 5)  # its own name is no clash
    revoke(authority, "label")
    issue(authority, "shop", out, ["label"], 5)  # nobody believes the other any more


@pytest.mark.parametrize("days", [0, -1, 36_501])
def test_days_that_will_not_do(authority: Path, days: int) -> None:
    with pytest.raises(SettingsError, match=f"{days} days"):
        issue(authority, "shop", authority.parent / "out", [], days)
    with pytest.raises(SettingsError, match=f"{days} days"):
        make_authority(authority.parent / "other", "f", days)


def test_no_certificate_outlives_its_authority(authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="ask for at most 99"):
        issue(authority, "shop", authority.parent / "out", [], 101)
    turn_clock(monkeypatch, days=101)
    with pytest.raises(SettingsError, match="make a new authority"):
        issue(authority, "shop", authority.parent / "out", [], 1)


# --- a party's own files ----------------------------------------------------------------------------------------


def test_what_was_issued_is_read(shop: Issued) -> None:
    own = read(shop, expected_name="shop")
    assert (own.name, own.revoked, own.expires) == ("shop", NONE, shop.expires)
    assert own.key_pem == shop.key.read_bytes() and own.certificate_pem == shop.certificate.read_bytes()
    assert check_peer(own.certificate_pem, own.authority_pem, own.revoked) == "shop"
    assert read(shop, revoked=None).revoked == NONE


def test_no_key_is_shown(shop: Issued) -> None:
    secret = shop.key.read_text().splitlines()[1]
    assert secret not in repr(read(shop)) and "PRIVATE" not in repr(read(shop))
    shop.key.chmod(0o644)
    assert secret not in refused(shop)


@pytest.mark.parametrize("part", ["key", "certificate", "authority", "revoked"])
def test_a_missing_file(shop: Issued, part: str) -> None:
    absent = shop.key.with_name("absent")
    assert f"{absent}" in refused(shop, **{part: absent}) and "There is no" in refused(shop, **{part: absent})


@pytest.mark.parametrize("part", ["key", "certificate", "authority"])
def test_a_file_that_is_no_pem(shop: Issued, part: str) -> None:
    path: Path = getattr(shop, part)
    path.write_bytes(b"\0garbage")
    assert f"{path} is not a PEM" in refused(shop)


def test_a_key_in_the_place_of_a_certificate(shop: Issued) -> None:
    assert "not a PEM certificate but a private key" in refused(shop, certificate=shop.key)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_key_that_others_may_touch(shop: Issued, mode: int) -> None:
    shop.key.chmod(mode)
    assert f"chmod 600 {shop.key}" in refused(shop)


def test_a_locked_key_and_one_of_another_kind(shop: Issued) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    shop.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")))
    assert "locked with a password" in refused(shop)
    other = rsa.generate_private_key(65537, 2048)
    shop.key.write_bytes(certificate_files.private_pem(other))  # type: ignore[arg-type]
    assert "not an elliptic-curve key" in refused(shop)


def test_a_key_that_is_not_this_certificates(authority: Path, shop: Issued, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_SECONDS_BETWEEN_LOOKS", 0.0)
    bank = issue(authority, "bank", authority.parent / "bank", [], 5)
    assert f"{bank.key} does not belong to the certificate {shop.certificate}" in refused(shop, key=bank.key)


def test_the_certificate_of_another_party(shop: Issued) -> None:
    assert "is that of 'shop', but this party is 'bank'" in refused(shop, expected_name="bank")


def test_an_expired_and_a_future_certificate(shop: Issued, monkeypatch: pytest.MonkeyPatch) -> None:
    turn_clock(monkeypatch, days=31)
    assert f"of 'shop' expired on {shop.expires:%Y-%m-%d %H:%M} UTC" in refused(shop)
    turn_clock(monkeypatch, days=-1)
    assert "of 'shop' is not valid before" in refused(shop) and "set the clock right" in refused(shop)


def test_a_certificate_of_another_authority(shop: Issued, tmp_path: Path) -> None:
    make_authority(tmp_path / "other", "small federation", 100)  # the same name does not help
    assert "was not issued by the authority" in refused(shop, authority=tmp_path / "other" / "authority.pem")
    # A party's own certificate is no authority.
    assert "was not issued by the authority" in refused(shop, authority=shop.certificate)


# --- renewal ----------------------------------------------------------------------------------------------------


def test_renewal_gives_a_new_serial_and_a_new_key(authority: Path, shop: Issued) -> None:
    before = read(shop)
    again = issue(authority, "shop", shop.key.parent, [], 40)
    after = read(again)
    assert again.serial != shop.serial and after.key_pem != before.key_pem and after.expires > before.expires
    assert check_peer(before.certificate_pem, after.authority_pem, after.revoked) == "shop"  # until it is revoked


def test_a_reader_never_has_a_torn_pair(authority: Path, shop: Issued) -> None:
    done = threading.Event()

    def renew() -> None:
        for _ in range(25):
            issue(authority, "shop", shop.key.parent, [], 30)
        done.set()

    thread = threading.Thread(target=renew)
    thread.start()
    seen = set()
    while not done.is_set():
        own = read(shop)  # raises if the key is not the certificate's
        seen.add(own.certificate_pem)
    thread.join()
    assert len(seen) > 1


def test_a_reader_between_the_two_renames_looks_again(
    authority: Path, shop: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = shop.certificate.read_bytes()
    issue(authority, "shop", shop.key.parent, [], 30)
    new = shop.certificate.read_bytes()
    shop.certificate.write_bytes(old)
    monkeypatch.setattr(certificates.time, "sleep", lambda seconds: shop.certificate.write_bytes(new))
    assert read(shop).certificate_pem == new


def test_several_who_issue_at_once(authority: Path) -> None:
    out = authority.parent / "out"
    with ThreadPoolExecutor(4) as pool:
        made = [*pool.map(lambda name: issue(authority, name, out, [], 5), ["a", "b", "a", "b"])]
    recorded = {line.split()[0] for line in (authority / "issued.txt").read_text().splitlines()[1:]}
    assert recorded == {f"{one.serial:040x}" for one in made}
    assert {read(one).name for one in made} == {"a", "b"}


# --- revocation -------------------------------------------------------------------------------------------------


def test_a_party_is_revoked_with_all_its_certificates(authority: Path, shop: Issued) -> None:
    again = issue(authority, "shop", shop.key.parent, [], 30)
    bank = issue(authority, "bank", authority.parent / "bank", [], 30)
    assert set(revoke(authority, "shop")) == {shop.serial, again.serial}
    assert revoke(authority, "shop") == ()
    lines = (authority / "revoked.txt").read_text().splitlines()[1:]
    assert [line.split()[:3] for line in lines] == [
        [f"{serial:040x}", "#", "shop,"] for serial in (shop.serial, again.serial)
    ]
    assert "was revoked" in refused(again, revoked=authority / "revoked.txt")
    own = read(bank, revoked=authority / "revoked.txt")
    said = peer_refused(again.certificate.read_bytes(), authority, own.revoked)
    assert f"of 'shop', serial {again.serial:040x}, was revoked" in said


@pytest.mark.parametrize("form", ["{:x}", "{:040X}", "0{:x}"])
def test_one_certificate_is_revoked_by_its_serial(authority: Path, shop: Issued, form: str) -> None:
    again = issue(authority, "shop", shop.key.parent, [], 30)
    assert revoke(authority, form.format(shop.serial)) == (shop.serial,)
    assert read(again, revoked=authority / "revoked.txt").revoked == {shop.serial}


def test_what_was_never_issued_cannot_be_revoked(authority: Path, shop: Issued, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="Did you mean 'shop'"):
        revoke(authority, "shpo")
    with pytest.raises(SettingsError, match="has not issued a certificate with the serial"):
        revoke(authority, f"{shop.serial + 1:040x}")
    make_authority(tmp_path / "new", "new", 5)
    with pytest.raises(SettingsError, match="not issued any"):
        revoke(tmp_path / "new", "shop")
    with pytest.raises(SettingsError, match="There is no file"):
        revoke(tmp_path / "nowhere", "shop")


def test_expired_certificates_need_no_revocation(
    authority: Path, shop: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_clock(monkeypatch, days=31)
    assert revoke(authority, "shop") == ()


@given(st.sets(st.integers(1, 2**159), max_size=5))
def test_a_list_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, serials: set[int]) -> None:
    path = tmp_path_factory.getbasetemp() / "revoked.txt"
    colons = [":".join(f"{one:040x}"[i : i + 2] for i in range(0, 40, 2)).upper() for one in serials]
    path.write_text("# serials\n\n" + "".join(f"  {one} # shop, 2030-01-01\n" for one in colons))
    assert certificate_files.read_revoked(path) == serials


def test_a_list_that_cannot_be_read_is_refused(shop: Issued) -> None:
    listed = shop.authority.with_name("revoked.txt")
    listed.write_text("# fine\nshop\n")
    assert f"{listed}, line 2, is not a serial number" in refused(shop)


# --- a peer's certificate ---------------------------------------------------------------------------------------


def test_a_peer_out_of_its_time(authority: Path, shop: Issued) -> None:
    pem = shop.certificate.read_bytes()
    assert "of 'shop' expired on" in peer_refused(pem, authority, now=datetime.now(UTC) + timedelta(days=31))
    assert "is not valid before" in peer_refused(pem, authority, now=datetime.now(UTC) - timedelta(days=1))


def test_an_authority_out_of_its_time(authority: Path, shop: Issued, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorities, "_BACKDATED", timedelta(days=2))
    make_authority(authority.parent / "short", "short", 1)
    key, root = authorities._read_authority(authority.parent / "short")
    pem = signed_by(key, root, expires=datetime.now(UTC) + timedelta(days=9))
    later = datetime.now(UTC) + timedelta(days=3)
    assert "that of its authority expired on" in peer_refused(pem, authority.parent / "short", now=later)


def signed_by(
    key: ec.EllipticCurvePrivateKey,
    root: x509.Certificate,
    *,
    common_names: tuple[str, ...] = ("shop",),
    alternative: str | None = "shop",
    is_authority: bool = False,
    usages: tuple[x509.ObjectIdentifier, ...] = (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH),
    own_key: ec.EllipticCurvePrivateKey | None = None,
    expires: datetime | None = None,
) -> bytes:
    """A certificate as `issue` would never make one."""
    expires = expires or datetime.now(UTC) + timedelta(days=1)
    own_key = own_key or ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common_names]))
        .issuer_name(root.subject)
        .public_key(own_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(expires - timedelta(days=20))
        .not_valid_after(expires)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if alternative:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(alternative)]), critical=False)
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"alternative": "bank"}, "does not name one party"),
        ({"alternative": None}, "does not name one party"),
        ({"alternative": "SHOP"}, "does not name one party"),
        ({"common_names": ("shop", "bank")}, "does not name one party"),
        ({"common_names": ("shop\n",), "alternative": "shop\n"}, "does not name one party"),
        ({"is_authority": True}, "not made for both ends"),
        ({"usages": ()}, "not made for both ends"),
        ({"usages": (ExtendedKeyUsageOID.SERVER_AUTH,)}, "not made for both ends"),
    ],
)
def test_a_peer_whose_certificate_is_of_another_make(authority: Path, made: dict[str, Any], said: str) -> None:
    key, root = authorities._read_authority(authority)
    assert check_peer(signed_by(key, root), (authority / "authority.pem").read_bytes(), NONE) == "shop"
    assert said in peer_refused(signed_by(key, root, **made), authority)


def test_the_authority_is_no_party_and_a_party_no_authority(authority: Path, shop: Issued) -> None:
    assert "does not name one party" in peer_refused((authority / "authority.pem").read_bytes(), authority)
    shops = certificate_files.private_key_of(shop.key.read_bytes(), shop.key)
    assert "was not issued by" in peer_refused(signed_by(shops, loaded(shop.certificate)), authority)
    with pytest.raises(ProtocolError, match="was not issued by"):
        check_peer(signed_by(shops, loaded(shop.certificate)), shop.certificate.read_bytes(), NONE)
    # Signed by the shop, but said to be the authority's work.
    assert "was not issued by" in peer_refused(signed_by(shops, loaded(shop.authority)), authority)


@pytest.mark.filterwarnings("ignore:Parsed a serial number")  # one of the bits makes it negative
@given(st.data())
def test_an_altered_certificate_is_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    directory = tmp_path_factory.getbasetemp() / "altered"
    if not directory.exists():
        make_authority(directory, "f", 10)
        issue(directory, "shop", directory, [], 5)
    certificate = loaded(directory / "shop.pem")
    der, signed = bytearray(certificate.public_bytes(Encoding.DER)), certificate.tbs_certificate_bytes
    bit = data.draw(st.integers(0, len(signed) * 8 - 1)) + bytes(der).index(signed) * 8
    der[bit // 8] ^= 1 << bit % 8
    pem = f"-----BEGIN CERTIFICATE-----\n{b64encode(der).decode()}\n-----END CERTIFICATE-----\n".encode()
    said = peer_refused(pem, directory)
    assert "was not issued by" in said or "not a PEM certificate" in said


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_as_a_certificate(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    directory = tmp_path_factory.getbasetemp() / "any"
    if not directory.exists():
        make_authority(directory, "f", 10)
    assert "not a PEM certificate" in peer_refused(content, directory)


def test_facts(authority: Path) -> None:
    label = issue(authority, "label", authority.parent / "l", ["label.example.org"], 30)
    (facts,) = read_facts(label.certificate)
    assert (facts.name, facts.issuer, facts.is_authority) == ("label", "small federation", False)
    assert (facts.serial, facts.expires) == (f"{label.serial:040x}", label.expires)
    assert facts.hosts == ["label.example.org"]
    (root,) = read_facts(label.authority)
    assert (root.name, root.is_authority, root.hosts) == ("small federation", True, [])


# --- TLS --------------------------------------------------------------------------------------------------------


class WhoCalls(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers every call with the caller's name, from its certificate."""

    def __init__(self, own: Credentials) -> None:
        self._own = own

    def service(self, details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, request: bytes, context: Any) -> bytes:
        shown = context.auth_context()
        (pem,) = shown["x509_pem_cert"]
        name = check_peer(pem, self._own.authority_pem, self._own.revoked)
        assert [name.encode()] == shown["x509_common_name"] and name.encode() in shown["x509_subject_alternative_name"]
        return name.encode()


@pytest.fixture
def port(authority: Path) -> Iterator[int]:
    """A label party's server on loopback."""
    own = read(issue(authority, "label", authority.parent / "label", [], 30))
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((WhoCalls(own),))
    secured = grpc.ssl_server_credentials([(own.key_pem, own.certificate_pem)], own.authority_pem, True)
    number = server.add_secure_port("127.0.0.1:0", secured)
    server.start()
    yield number
    server.stop(None).wait()


def call(port: int, own: tuple[bytes | None, bytes | None], authority_pem: bytes, expected: str = "label") -> str:
    secured = grpc.ssl_channel_credentials(authority_pem, *own)
    override = [("grpc.ssl_target_name_override", expected)]
    with grpc.secure_channel(f"127.0.0.1:{port}", secured, override) as channel:
        answer: bytes = channel.unary_unary("/who/calls")(b"", timeout=20)
        return answer.decode()


def pair(issued: Issued) -> tuple[bytes, bytes]:
    return issued.key.read_bytes(), issued.certificate.read_bytes()


def test_grpc_tells_the_name(port: int, shop: Issued, authority: Path) -> None:
    root = shop.authority.read_bytes()
    assert call(port, pair(shop), root) == "shop"
    for odd in ("a_b", "x.y..z", "z" * 64):
        assert call(port, pair(issue(authority, odd, authority.parent / "odd", [], 5)), root) == odd


def test_grpc_refuses_everybody_else(port: int, shop: Issued, authority: Path, tmp_path: Path) -> None:
    root = shop.authority.read_bytes()
    make_authority(tmp_path / "other", "small federation", 100)
    foreign = issue(tmp_path / "other", "shop", tmp_path / "foreign", [], 5)
    key = ec.generate_private_key(ec.SECP256R1())
    dated = [
        signed_by(*authorities._read_authority(authority), own_key=key, expires=datetime.now(UTC) + timedelta(days=day))
        for day in (1, -1)
    ]
    valid, expired = ((certificate_files.private_pem(key), pem) for pem in dated)
    assert call(port, valid, root) == call(port, pair(shop), root) == "shop"
    for own, trusted, expected in (
        (expired, root, "label"),  # the server does not trust these three
        (pair(foreign), root, "label"),
        ((None, None), root, "label"),
        (pair(shop), foreign.authority.read_bytes(), "label"),  # it does not trust the server
        (pair(shop), root, "bank"),  # the server is another party
    ):
        with pytest.raises(grpc.RpcError) as error:
            call(port, own, trusted, expected)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
