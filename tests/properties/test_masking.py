"""Masked sums: exact, order-free, cancelling, never twice; and nothing to be seen of one party's numbers."""

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2

from colonnade.errors import ProtocolError, RunError, SettingsError
from colonnade.privacy.masking import LATEST, SHORT, OwnMasks, PairwiseMasks, generate_key
from colonnade.privacy.ring import FixedPoint
from colonnade.state import State

Elements = NDArray[np.uint64]


def keys_of(names: Sequence[str]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    pairs = {name: generate_key(b"test " + name.encode()) for name in names}
    return {name: pair[0] for name, pair in pairs.items()}, {name: pair[1] for name, pair in pairs.items()}


def masks_of(names: Sequence[str]) -> dict[str, PairwiseMasks]:
    private, public = keys_of(names)
    return {name: PairwiseMasks(name, private[name], public) for name in names}


def pair_stream(one: str, other: str, everybody: Sequence[str], root: str, number: int, count: int) -> Elements:
    """What these two agree on, written out once more as the module's comments describe it."""
    private, public = keys_of([one, other])
    secret = X25519PrivateKey.from_private_bytes(private[one]).exchange(
        X25519PublicKey.from_public_bytes(public[other])
    )
    words = sorted([one.encode(), other.encode()])
    info = b"colonnade pairwise masks" + b"".join(len(word).to_bytes(2, "big") + word for word in words)
    key = HKDF(SHA256(), 32, None, info).derive(secret)
    block = b"\0" + sorted(everybody).index(root).to_bytes(3, "big") + number.to_bytes(8, "big") + bytes(4)
    stream = Cipher(algorithms.AES(key), modes.CTR(block)).encryptor().update(bytes(8 * count))
    return np.frombuffer(stream, "<u8")


# --- fixed point ------------------------------------------------------------------------------------------------


def test_a_number_is_written_in_twos_complement() -> None:
    point = FixedPoint(fraction_bits=8, parties=2)
    assert point.resolution == 1 / 256
    encoded = point.encode(np.array([1.0, -1.0, 0.5 / 256, 1.5 / 256, 0.6 / 256, -0.6 / 256]))
    assert encoded.tolist() == [256, 2**64 - 256, 0, 2, 1, 2**64 - 1]  # ties go to the even integer
    assert point.decode(encoded).tolist() == [1.0, -1.0, 0.0, 2 / 256, 1 / 256, -1 / 256]


@pytest.mark.parametrize("parties", [1, 2, 3, 7, 1000, 1024])
@pytest.mark.parametrize("fraction_bits", [8, 31, 52])
def test_at_the_limit_a_sum_still_fits_and_beyond_it_is_refused(fraction_bits: int, parties: int) -> None:
    point = FixedPoint(fraction_bits, parties)
    largest = np.nextafter(point.limit, 0.0)
    for sign in (1.0, -1.0):
        element = point.encode(np.array([sign * largest]))
        assert abs(int(element.view(np.int64)[0])) * parties < 2**63  # in Python's integers, which do not wrap
        total = np.zeros(1, np.uint64)
        for _ in range(parties):
            total += element
        assert point.decode(total)[0] == pytest.approx(sign * parties * largest, rel=1e-12)
        with pytest.raises(RunError, match="fraction_bits"):
            point.encode(np.array([0.0, sign * point.limit]))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_without_being_named(value: float) -> None:
    with pytest.raises(RunError) as refused:
        FixedPoint(32, 4).encode(np.array([1.0, value]))
    assert "nan" not in str(refused.value) and "inf" not in str(refused.value)


@pytest.mark.parametrize(("fraction_bits", "parties"), [(7, 3), (53, 3), (32, 0), (32, 1025)])
def test_settings_that_cannot_hold_a_sum_are_refused(fraction_bits: int, parties: int) -> None:
    with pytest.raises(SettingsError):
        FixedPoint(fraction_bits, parties)


def test_nothing_encodes_to_nothing() -> None:
    assert FixedPoint(32, 3).encode(np.empty(0)).shape == (0,)


@given(st.integers(8, 52), st.lists(st.floats(-1, 1), min_size=1, max_size=12))
def test_rounding_stays_within_half_a_unit_for_each_party(fraction_bits: int, values: list[float]) -> None:
    point = FixedPoint(fraction_bits, len(values))
    total = sum((point.encode(np.array([value])) for value in values), np.zeros(1, np.uint64))
    error = abs(point.decode(total)[0] - math.fsum(values))
    assert error <= len(values) * point.resolution / 2 + 1e-14  # the last: a float64 of this size rounds too


# --- masks ------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(2, 12), st.integers(1, 70), st.integers(0, 2**64 - 1), st.data())
def test_masks_cancel_and_the_masked_sum_is_exact_in_any_order(
    parties: int, count: int, number: int, data: st.DataObject
) -> None:
    names = [f"party-{place}" for place in range(parties)]
    root = data.draw(st.sampled_from(names))
    kind = data.draw(st.sampled_from(["training", "evaluation"]))
    masks = {name: masks.mask(root, number, count, kind) for name, masks in masks_of(names).items()}
    assert not sum(masks.values(), np.zeros(count, np.uint64)).any()

    point = FixedPoint(32, parties)
    values = np.random.default_rng(number).uniform(-point.limit, point.limit, (parties, count)) * 0.999
    encoded = {name: point.encode(row) for name, row in zip(names, values, strict=True)}
    total = np.zeros(count, np.uint64)
    for name in data.draw(st.permutations(names)):
        total += encoded[name] + masks[name]
    exact = [sum(int(row.view(np.int64)[place]) for row in encoded.values()) for place in range(count)]
    assert total.view(np.int64).tolist() == exact
    assert point.decode(total).tolist() == [float(value) / 2**32 for value in exact]


def test_a_mask_is_the_signed_sum_of_what_each_pair_agreed_on() -> None:
    names = ["c", "a", "d", "b"]
    parties = masks_of(names)
    for number, count in enumerate([5, 1, 64, 2]):  # odd counts end within a block of the cipher; 64 grows the buffers
        mask = parties["b"].mask("c", number, count)
        streams = {peer: pair_stream("b", peer, names, "c", number, count) for peer in "acd"}
        assert np.array_equal(mask, streams["c"] + streams["d"] - streams["a"])


def test_a_mask_is_the_same_whenever_its_number_comes() -> None:
    """Masks are made for several sums at a time; late numbers, leaps, longer and shorter sums between them."""
    names = ["a", "b", "c"]
    party = masks_of(names)["b"]
    for number, count in [(3, 4), (40, 2), (2, 7), (17, SHORT), (4, 3), (41, SHORT + 1), (1000, 5), (16, 1), (42, 9)]:
        mask = party.mask("c", number, count)
        added, subtracted = (pair_stream("b", peer, names, "c", number, count) for peer in "ca")
        assert np.array_equal(mask, added - subtracted)
        mask += 1  # a mask is its owner's: what is done with it changes no other
    with pytest.raises(ProtocolError, match="used up"):
        party.mask("c", 2, 7)


def test_every_root_number_and_kind_has_a_mask_of_its_own() -> None:
    names = ["a", "b", "c"]
    for party in (masks_of(names)["b"], OwnMasks(b"secret", names)):
        asked = [(root, n, kind) for root in names for n in (0, 1, 2**32, 2**40) for kind in ("training", "evaluation")]
        seen = np.concatenate([party.mask(root, number, 32, kind) for root, number, kind in asked])
        assert len(np.unique(seen)) == len(seen) == 24 * 32  # 768 random words of 64 bits do not meet


def test_another_seed_makes_other_masks_and_the_same_seed_the_same() -> None:
    first, again, other = (OwnMasks(seed, ["a", "b"]).mask("a", 0, 8) for seed in (b"one", b"one", b"two"))
    assert np.array_equal(first, again) and not np.intersect1d(first, other).size


def test_a_returned_mask_stays_as_it_was() -> None:
    """Buffers are used again; what was handed out is not among them."""
    for party in (masks_of(["a", "b", "c"])["c"], OwnMasks(b"secret", ["a", "b"])):
        mask = party.mask("a", 0, 8)
        kept = mask.copy()
        party.mask("a", 1, 8)
        assert np.array_equal(mask, kept)


# --- never twice ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["training", "evaluation"])
def test_a_number_serves_once_for_each_root_and_kind(kind: str) -> None:
    for party in (masks_of(["a", "b", "c"])["b"], OwnMasks(b"secret", ["a", "b", "c"])):
        party.mask("a", 3, 2, kind)
        party.mask("a", 1, 2, kind)  # overtaken on the way
        for number in (3, 1, -1, 2**64):
            with pytest.raises(ProtocolError, match=f"'a' asked for the masked sum of {kind} number {number},"):
                party.mask("a", number, 2, kind)
        party.mask("a", 4, 2, kind)
        party.mask("c", 3, 2, kind)
        party.mask("a", 3, 2, "evaluation" if kind == "training" else "training")


def test_a_number_may_come_late_but_not_too_late() -> None:
    party = OwnMasks(b"secret", ["a", "b"])
    party.mask("a", LATEST + 10, 1)
    with pytest.raises(ProtocolError, match="number 9,"):
        party.mask("a", 9, 1)
    party.mask("a", 10, 1)
    party.mask("b", 9, 1)  # another root counts for itself


@settings(max_examples=60)
@given(st.lists(st.integers(0, 3 * LATEST), max_size=60), st.integers(0, 60))
def test_whatever_the_order_nothing_serves_twice_and_the_record_stays_small(numbers: list[int], stop: int) -> None:
    """Against a plain set of all numbers ever used; with a checkpoint in between."""
    party = OwnMasks(b"secret", ["a", "b"])
    used: set[int] = set()
    for place, number in enumerate(numbers):
        if place == stop:
            state = State(values=json.loads(json.dumps(party.state().values)))
            party = OwnMasks(b"secret", ["a", "b"])
            party.restore(state)
        if number in used or number < max(used, default=0) - LATEST:
            with pytest.raises(ProtocolError):
                party.mask("a", number, 1)
        else:
            party.mask("a", number, 1)
            used.add(number)
        assert len(party.state().values["training"].get("a", [])) <= LATEST + 2


def test_numbers_in_order_leave_no_record_but_the_next_one() -> None:
    party = OwnMasks(b"secret", ["a", "b"])
    for number in range(100):
        party.mask("a", number, 1)
    assert party.state() == State(values={"training": {"a": [100]}, "evaluation": {}})


def test_what_was_used_survives_a_checkpoint_as_json_without_keys() -> None:
    party = masks_of(["a", "b"])["a"]
    party.mask("b", 7, 1)
    party.mask("b", 2, 1, "evaluation")
    state = party.state()
    assert state == State(values={"training": {"b": [0, 7]}, "evaluation": {"b": [0, 2]}})  # all below 0, and 7
    party.mask("b", 8, 1)
    assert state.values["training"]["b"] == [0, 7]  # a copy
    resumed = masks_of(["a", "b"])["a"]
    resumed.restore(State(values=json.loads(json.dumps(state.values))))
    assert resumed.state() == state
    with pytest.raises(ProtocolError):
        resumed.mask("b", 7, 1)
    resumed.mask("b", 8, 1)
    with pytest.raises(RunError, match="masked sums for b,"):
        OwnMasks(b"secret", ["a", "c"]).restore(state)


def test_a_refused_request_uses_nothing_up() -> None:
    party = masks_of(["a", "b"])["a"]
    for count in (0, -1, 2**32 + 1):
        with pytest.raises(ProtocolError, match=f"sum of {count} numbers"):
            party.mask("b", 0, count)
    with pytest.raises(ProtocolError, match="'z', which is not among its parties: a, b"):
        party.mask("z", 0, 1)
    with pytest.raises(SettingsError, match="Did you mean 'training'"):
        party.mask("b", 0, 1, "trainin")
    party.mask("b", 0, 1)


# --- keys -------------------------------------------------------------------------------------------------------


def test_keys_repeat_only_with_the_same_entropy() -> None:
    assert generate_key(b"x") == generate_key(b"x") != generate_key(b"y")
    assert generate_key() != generate_key()
    assert [len(key) for key in generate_key()] == [32, 32]


def test_wrong_keys_are_refused_and_never_shown() -> None:
    private, public = keys_of(["a", "b"])
    with pytest.raises(SettingsError, match="no X25519 private key"):
        PairwiseMasks("a", private["a"][:31], public)
    with pytest.raises(SettingsError, match="does not belong"):
        PairwiseMasks("a", private["b"], public)
    with pytest.raises(SettingsError, match="no peer"):
        PairwiseMasks("a", private["a"], {"a": public["a"]})
    for hostile in (b"short", bytes(32)):  # all zeros: a point of low order, the secret would be zero too
        with pytest.raises(ProtocolError, match="public mask key of 'b'"):
            PairwiseMasks("a", private["a"], {"b": hostile})
    with pytest.raises(SettingsError, match="empty"):
        OwnMasks(b"", ["a", "b"])


# --- what others see --------------------------------------------------------------------------------------------


def looks_uniform(elements: Elements) -> bool:
    """Chi-square over byte values: uniform bytes fail once in a million."""
    counts = np.bincount(elements.view(np.uint8), minlength=256)
    expected = counts.sum() / 256
    return bool(((counts - expected) ** 2 / expected).sum() < chi2.ppf(1 - 1e-6, df=255))


def test_one_masked_number_looks_uniform() -> None:
    names = ["a", "b", "c"]
    values = FixedPoint(32, 3).encode(np.linspace(-1, 1, 8192))
    assert not looks_uniform(values)  # the test can tell
    for party in (masks_of(names)["b"], masks_of(names)["c"], OwnMasks(b"secret", names)):
        assert looks_uniform(values + party.mask("a", 0, len(values)))


def test_two_honest_parties_stay_hidden_when_all_others_collude() -> None:
    names = ["a", "b", "c", "d", "e"]
    honest, colluding = ["b", "d"], ["a", "c", "e"]
    point = FixedPoint(32, 5)
    values = {"b": point.encode(np.full(8192, 3.0)), "d": point.encode(np.full(8192, -1.25))}
    parties = masks_of(names)
    seen = {name: values[name] + parties[name].mask("a", 0, 8192) for name in honest}
    for name in honest:
        for peer in colluding:  # they know every pair mask in which one of them takes part, and remove it
            stream = pair_stream(name, peer, names, "a", 0, 8192)
            seen[name] = seen[name] - stream if name < peer else seen[name] + stream
        assert looks_uniform(seen[name])
    # what remains is the mask of the honest pair, once added and once subtracted: only the sum comes out
    assert np.array_equal(seen["b"] - values["b"], pair_stream("b", "d", names, "a", 0, 8192))
    assert point.decode(seen["b"] + seen["d"]).tolist() == [1.75] * 8192
