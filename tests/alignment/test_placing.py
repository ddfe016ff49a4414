"""With any_rows, each party learns which of the label party's rows it holds, under any schedule, and nothing else."""

import itertools

import numpy as np
import pytest
from aligning import DOMAIN, AnySchedule, seats, small_pieces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_intersection import IDS, METHODS, names, public_forms, words

from colonnade.alignment.building import build_aligning_party
from colonnade.alignment.conversation import AligningLabelParty
from colonnade.alignment.messages import PlacedIds, SharedIds
from colonnade.alignment.order import TEST, in_order
from colonnade.data.absence import NOWHERE
from colonnade.errors import ProtocolError
from colonnade.party import Received, Started
from colonnade.wire.codec import decode


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_agrees_with_a_plain_outer_join(
    count: int, method: str, data: st.DataObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch, 5)
    sets = {name: data.draw(IDS) for name in names(count)}
    pad_to = data.draw(st.sampled_from([0, 24]))
    schedule = AnySchedule(seats(sets, method, pad_to, any_rows=True), data.draw(st.integers(0, 999)), deaths=0.1)
    schedule.run()
    bank = schedule.parties["bank"]
    assert isinstance(bank, AligningLabelParty)
    order = [sets["bank"][row] for row in bank.aligned()[0]]
    assert sorted(order) == sorted(sets["bank"])
    for name, party in schedule.parties.items():
        rows, parts = party.aligned()
        found = [None if row == NOWHERE else sets[name][row] for row in rows]
        assert found == [one if one in sets[name] else None for one in order]
        assert parts.tolist() == bank.aligned()[1].tolist()
        assert party.digest == bank.digest
        if name != "bank":
            assert bank.held_by[name] == len({*sets[name]} & {*order})


def test_the_first_rows_have_their_share_of_every_part() -> None:
    """Parts are drawn, and do not follow from the order: a training may take the first rows alone."""
    ids = [str(number) for number in range(400)]
    schedule = AnySchedule(seats({"bank": ids, "shop": ids[:3]}, any_rows=True), 0)
    schedule.run()
    parts = schedule.parties["shop"].aligned()[1]
    assert (parts == TEST).sum() == 100
    assert 10 < (parts[:100] == TEST).sum() < 45


def test_no_id_of_which_the_receiver_did_not_know_is_told() -> None:
    """A feature party that can guess an id does not find it in what it was sent, unless it holds it itself."""
    shared = [f"customer-{number:04}" for number in range(20)]
    own = {name: [f"{name}-only-{number:04}" for number in range(20)] for name in names(3)}
    sets = {name: shared + own[name] for name in own}
    schedule = AnySchedule(seats(sets, any_rows=True), 1)
    schedule.run()
    every = [*shared, *itertools.chain(*own.values())]
    wire = b"".join(frame for _, _, frame in schedule.frames)
    keys = [schedule.parties["bank"].common_key(), DOMAIN.ljust(32, b"\0"), bytes(32)]
    assert not [one for one in every if any(form in wire for form in public_forms(one, keys))]
    # Nor does one that uses its own secret on its guesses: it computes the names that the label party would use.
    guessing = build_aligning_party(seats({"bank": [], "shop": every}, any_rows=True)["shop"])
    guessing.handle(Started(0.0))
    guessing._go_on()
    guessing._told = True  # type: ignore[attr-defined]
    guessed = {row.tobytes(): one for row, one in zip(guessing._names(), every, strict=True)}  # type: ignore
    told = [decode(frame) for _, to, frame in schedule.frames if to == "shop"]
    placed = np.concatenate([message.names for message in told if isinstance(message, PlacedIds)])
    assert {guessed[row.tobytes()] for row in placed if row.tobytes() in guessed} == set(shared)


def test_places_do_not_follow_from_a_key_that_the_receiver_knows() -> None:
    """Else it could tell where an id that it guesses would lie, and that no row lies there."""
    ids = [f"customer-{number:04}" for number in range(40)]
    schedule = AnySchedule(seats({"bank": ids, "shop": ids[::2]}, any_rows=True), 2)
    schedule.run()
    shop = schedule.parties["shop"]
    here = shop.aligned()[0]
    here = here[here != NOWHERE]
    by_the_common_key = in_order(shop.seat.points, np.sort(here), shop.common_key())
    assert here.tolist() != by_the_common_key.tolist()


def asked(any_rows: bool = True):  # type: ignore[no-untyped-def]
    """A feature party that waits to be told which rows it holds, and what its names are."""
    given = seats({"bank": ["1", "2", "3"], "shop": ["2", "3", "9"]}, any_rows=any_rows)
    schedule = AnySchedule(given, 0)
    schedule.run()
    shop = build_aligning_party(given["shop"])
    shop.handle(Started(0.0))
    shop._go_on()
    told = [decode(frame) for sender, to, frame in schedule.frames if to == "shop"]
    for message in told:
        if not isinstance(message, PlacedIds | SharedIds) and type(message).__name__ != "Stop":
            shop.handle(Received(0.0, "bank", message))
    return shop, shop._names()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (lambda own: PlacedIds(0, 3, own[[0, 0, 1]]), "twice"),
        (lambda own: PlacedIds(0, 4, words(4, 2)), "more rows than it said"),
        (lambda own: PlacedIds(0, 3, words(2, 2)), "does not fit"),
        (lambda own: SharedIds(0, 1, own[:1]), "cannot know yet"),
    ],
)
def test_a_lie_about_places_is_refused_and_changes_nothing(message, complaint: str) -> None:  # type: ignore
    shop, own = asked()
    before = shop.state()
    with pytest.raises(ProtocolError, match=complaint):
        shop.handle(Received(0.0, "bank", message(own)))
    after = shop.state()
    assert after.values == before.values
    assert all((after.tensors[key] == tensor).all() for key, tensor in before.tensors.items())


def test_places_are_no_part_of_an_alignment_of_all() -> None:
    shop, own = asked(any_rows=False)
    with pytest.raises(ProtocolError, match="cannot know yet"):
        shop.handle(Received(0.0, "bank", PlacedIds(0, 3, own)))
