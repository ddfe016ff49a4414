"""Private set intersection agrees with a plain one, under any schedule, and shows nothing else."""

import hashlib
import itertools

import numpy as np
import pytest
from aligning import DOMAIN, AnySchedule, seats, small_pieces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colonnade.alignment.building import build_aligning_party
from colonnade.alignment.messages import BlindedIds, EvaluatedIds, MatchingTable, SharedIds
from colonnade.alignment.order import TEST, blocks_of
from colonnade.alignment.points import hashed_to_curve
from colonnade.alignment.tables import keyed
from colonnade.errors import ProtocolError
from colonnade.messages import Stop
from colonnade.party import Received, Started
from colonnade.wire.codec import decode

METHODS = ("ecdh", "hashed")
IDS = st.lists(st.integers(0, 30).map(str), max_size=24, unique=True)


def names(count: int) -> list[str]:
    return ["bank", "shop", "clinic", "telco", "insurer"][:count]


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_agrees_with_a_plain_intersection(
    count: int, method: str, data: st.DataObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch, 5)
    sets = {name: data.draw(IDS) for name in names(count)}
    pad_to = data.draw(st.sampled_from([0, 24]))
    schedule = AnySchedule(seats(sets, method, pad_to), data.draw(st.integers(0, 999)), deaths=0.1)
    schedule.run()
    rows = {name: party.aligned()[0] for name, party in schedule.parties.items()}
    aligned = {name: [sets[name][row] for row in found] for name, found in rows.items()}
    orders = list(aligned.values())
    assert all(order == orders[0] for order in orders)
    assert set(orders[0]) == set.intersection(*map(set, sets.values()))
    assert len({party.digest for party in schedule.parties.values()}) == 1
    parts = [party.aligned()[1].tolist() for party in schedule.parties.values()]
    assert all(part == parts[0] for part in parts)


def test_order_and_parts_do_not_follow_from_anybodys_own_order() -> None:
    ids = [str(number) for number in range(200)]
    first = AnySchedule(seats({"bank": ids, "shop": ids[::-1]}), 0)
    first.run()
    bank, shop = (first.parties[name] for name in ("bank", "shop"))
    order = [ids[row] for row in bank.aligned()[0]]
    assert order == [ids[::-1][row] for row in shop.aligned()[0]]
    assert order not in (ids, ids[::-1], sorted(ids))
    assert int((bank.aligned()[1] == TEST).sum()) == 50
    assert sorted(order[:50]) != sorted(order[row] for row in np.flatnonzero(bank.aligned()[1] == TEST))


# --- what is on the wire -----------------------------------------------------------------------------------------


def public_forms(one: str, keys: list[bytes]) -> list[bytes]:
    """An id as anybody could write or hash it who knows what all know, at least 8 bytes of it."""
    point = hashed_to_curve([one.encode()], DOMAIN)
    hashes = [hashlib.new(name, one.encode()).digest() for name in ("md5", "sha1", "sha256", "sha512")]
    salted = [hashlib.sha256(key + one.encode()).digest() for key in keys]
    named = [keyed(key, blocks_of(point)).tobytes() for key in keys]
    return [form[:8] for form in (point.tobytes(), *hashes, *salted, *named)]


def test_no_id_outside_the_intersection_is_on_the_wire() -> None:
    shared = [f"customer-{number:04}" for number in range(20)]
    own = {name: [f"{name}-only-{number:04}" for number in range(20)] for name in names(3)}
    pair = [f"pair-only-{number:04}" for number in range(20)]  # which bank and shop hold, and clinic does not
    sets = {name: shared + own[name] + (pair if name != "clinic" else []) for name in own}

    def found(method: str) -> set[str]:
        schedule = AnySchedule(seats(sets, method), 1)
        schedule.run()
        wire = b"".join(frame for _, _, frame in schedule.frames)
        keys = [schedule.parties["bank"].common_key(), DOMAIN.ljust(32, b"\0"), bytes(32)]
        every = [*shared, *pair, *itertools.chain(*own.values())]
        return {one for one in every if one.encode() in wire or any(form in wire for form in public_forms(one, keys))}

    assert found("ecdh") == set()
    # The other method does show them, to whoever has the common key: so the search finds what it looks for.
    assert found("hashed") == {*shared, *pair, *own["shop"], *own["clinic"]}


def test_a_party_that_sees_all_messages_to_it_learns_sizes_and_the_intersection() -> None:
    """The label party's whole view is as long for one federation as for another with other pairwise intersections."""
    shared, more = [f"s{n}" for n in range(10)], [f"m{n}" for n in range(10)]
    apart = {"bank": [*shared, *more], "shop": [*shared, *(f"x{n}" for n in range(10))]}
    lonely = {**apart, "clinic": [*shared, *(f"y{n}" for n in range(10))]}
    paired = {**apart, "shop": [*shared, *more], "clinic": [*shared, *(f"y{n}" for n in range(10))]}
    for sets in (lonely, paired):
        schedule = AnySchedule(seats(sets), 3)
        schedule.run()
        bank = schedule.parties["bank"]
        assert len(bank.aligned()[0]) == 10
        # What is left of an id that shop holds and clinic does not is as random as of one that nobody holds: what bank
        # can compute per id is 0 for shared ones and differs from one id to the next for all others.
        left = bank.leftovers()  # type: ignore[attr-defined]
        assert len({tuple(value) for value in left.tolist()}) == 11
        single = bank.leftovers("shop")  # type: ignore[attr-defined]
        assert len({tuple(value) for value in single.tolist()}) == 20, "a table alone tells nothing of who is in it"


def test_blinded_ids_come_in_an_order_of_their_own_and_differ_between_alignments() -> None:
    ids = [f"id{n}" for n in range(50)]
    sent = []
    for secret in (b"1" * 32, b"2" * 32):
        seat = seats({"bank": ids, "shop": ids})["bank"]
        party = build_aligning_party(type(seat)(**{**vars(seat), "secret": secret}))
        party.handle(Started(0.0))
        effects = party._go_on()
        sent.append(next(one.message.points for one in effects if isinstance(one.message, BlindedIds)))  # type: ignore
    assert not {row.tobytes() for row in sent[0]} & {row.tobytes() for row in sent[1]}


# --- messages that lie --------------------------------------------------------------------------------------------


def words(*shape: int) -> np.ndarray:
    return np.ones(shape, np.uint64)


@pytest.mark.parametrize(
    ("receiver", "sender", "message", "complaint"),
    [
        ("shop", "bank", BlindedIds(0, 5, words(4, 4)), "does not fit"),
        ("shop", "bank", BlindedIds(0, 5, words(5, 3)), "does not fit"),
        ("shop", "bank", BlindedIds(0, 1 << 60, words(5, 4)), "said otherwise"),
        ("shop", "bank", BlindedIds(0, 1, np.zeros((1, 4), np.uint64)), "small order"),
        ("shop", "bank", SharedIds(0, 1, words(1, 2)), "cannot know yet"),
        ("shop", "bank", Stop("now"), "before it was done"),
        ("shop", "bank", EvaluatedIds(0, words(1, 4)), "no part of an alignment"),
        ("bank", "shop", EvaluatedIds(0, words(3, 4)), "not asked"),
        ("bank", "shop", MatchingTable(0, 1 << 40, 0, words(1, 2)), "agreed on"),
        ("bank", "shop", MatchingTable(0, 3, 0, words(1, 2)), "does not fit"),
        ("bank", "shop", Stop("now"), "no part of an alignment"),
    ],
)
def test_a_lie_is_refused_and_changes_nothing(receiver: str, sender: str, message: object, complaint: str) -> None:
    party = build_aligning_party(seats({"bank": ["1", "2", "3"], "shop": ["2", "3"]})[receiver])
    party.handle(Started(0.0))
    before = party.state()
    with pytest.raises(ProtocolError, match=complaint):
        party.handle(Received(0.0, sender, message))  # type: ignore[arg-type]
    after = party.state()
    assert after.values == before.values
    assert all((after.tensors[key] == tensor).all() for key, tensor in before.tensors.items())


def test_another_digest_is_refused() -> None:
    given = seats({"bank": ["1", "2", "3"], "shop": ["2", "3"]})
    schedule = AnySchedule(given, 0)
    schedule.run()
    told = [decode(frame) for _, to, frame in schedule.frames if to == "bank"]
    bank = build_aligning_party(given["bank"])
    bank.handle(Started(0.0))
    bank._go_on()
    digest = told.pop()
    for message in told:
        bank.handle(Received(0.0, "shop", message))
    wrong = type(digest)(digest.digest + np.uint64(1))  # type: ignore[call-arg, attr-defined]
    with pytest.raises(ProtocolError, match="other rows"):
        bank.handle(Received(0.0, "shop", wrong))
