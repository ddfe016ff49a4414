"""Towns of small parties: what tests of stations do with them again and again."""

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

from colonnade.runtimes.endurance import Endurance
from colonnade.testing import PATIENT, FakeCarrier, Scripted, says
from colonnade.wire.packets import Packet, PacketReader

Build = Callable[[], Scripted]


def party(town: FakeCarrier, name: str) -> Scripted:
    own = town.stations[name].party.party  # type: ignore[attr-defined]
    assert isinstance(own, Scripted)
    return own


def names(town: FakeCarrier, name: str) -> list[str]:
    return party(town, name).names()


def quiet() -> Scripted:
    return says({})


def packets(parts: Sequence[bytes | bytearray]) -> list[Packet]:
    return [*PacketReader().feed(b"".join(parts))]


def greeted(here: FakeCarrier) -> FakeCarrier:
    """Everybody is connected and has said what it holds; nobody has had a turn."""
    here.join_all()
    for name, peer in permutations(here.names, 2):
        here.write(name)
        here.carry(name, peer)
    return here


def step(here: FakeCarrier, name: str, *to: str) -> None:
    """A turn, whose bytes reach these peers alone so far."""
    here.turn(name)
    here.write(name)
    for peer in to:
        here.carry(name, peer)


def started(town: Any, endurance: Endurance = PATIENT, **parties: Build) -> FakeCarrier:
    here: FakeCarrier = town({"bank": quiet, "shop": quiet, **parties}, endurance)
    here.join_all()
    here.settle()
    return here
