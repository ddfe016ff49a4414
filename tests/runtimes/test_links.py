"""A peer is in one phase at a time, and goes from one to the next only in the ways that are stated."""

import pytest

from colonnade.errors import RunError
from colonnade.runtimes.peer import TRANSITIONS, Change, Peer, Phase

CONNECTED, RESUMED, DISCONNECTED, LEFT = Change


@pytest.mark.parametrize(
    ("changes", "phase"),
    [
        ([], Phase.EXPECTED),
        ([DISCONNECTED], Phase.EXPECTED),  # a connection that never stood leaves no trace
        ([CONNECTED], Phase.GREETING),
        ([CONNECTED, RESUMED], Phase.LINKED),
        ([CONNECTED, RESUMED, CONNECTED], Phase.GREETING),  # a new connection begins with what each holds
        ([CONNECTED, DISCONNECTED], Phase.AWAY),
        ([CONNECTED, RESUMED, DISCONNECTED, CONNECTED], Phase.GREETING),
        ([CONNECTED, RESUMED, LEFT], Phase.LEFT),
        ([LEFT, DISCONNECTED], Phase.LEFT),
    ],
)
def test_the_ways_of_a_peer(changes: list[Change], phase: Phase) -> None:
    peer = Peer()
    for change in changes:
        peer.change(change)
    assert peer.phase is phase
    assert peer.is_connected == (phase in (Phase.GREETING, Phase.LINKED))


@pytest.mark.parametrize(
    ("changes", "impossible"),
    [([], RESUMED), ([CONNECTED, RESUMED], RESUMED), ([CONNECTED, DISCONNECTED], RESUMED), ([LEFT], CONNECTED)],
)
def test_no_other_way_is_gone(changes: list[Change], impossible: Change) -> None:
    peer = Peer()
    for change in changes:
        peer.change(change)
    before = peer.phase
    with pytest.raises(RunError, match=impossible.value):
        peer.change(impossible)
    assert peer.phase is before


def test_every_phase_can_be_reached_and_left_for_good() -> None:
    assert {after for ways in TRANSITIONS.values() for after in ways.values()} == {*Phase}
    assert set(TRANSITIONS) == {*Change}
    assert set(TRANSITIONS[LEFT]) == {*Phase}
