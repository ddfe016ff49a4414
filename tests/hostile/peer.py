"""A certified peer that lies: it speaks packets to one station, at any point and in any order.

It has no station of its own and no memory that binds it: what it sends, numbers and acknowledges is the test's choice.
The others of its town are honest, and joined by the fake carrier.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from colonnade.errors import ProtocolError
from colonnade.messages import Message
from colonnade.party import Party
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.station import Station
from colonnade.testing import PATIENT, FakeCarrier, Scripted
from colonnade.wire.codec import encode
from colonnade.wire.packets import ACKNOWLEDGE, DONE, FRAME, RESUME, START, Packet, PacketReader, header


class Mole:
    """One name of a town, behind which nobody honest is. `to`: whose station it speaks to."""

    def __init__(self, town: FakeCarrier, name: str = "mole", to: str = "") -> None:
        self.town = town
        self.name = name
        self.to = to or town.label
        self.sent = 0
        self.refused: list[str] = []  # what it was told
        town.stations.pop(name).close()
        town.recorders.pop(name).close()
        town.names.remove(name)

    @property
    def victim(self) -> Station:
        return self.town.stations[self.to]

    def connect(self, resumes: bool = True, held: int | None = None) -> None:
        self.victim.connected(self.name)
        if resumes:
            self.hear()
            holds = self.acknowledged() if held is None else held
            self.raw(header(RESUME, 1 << 40, holds))

    def acknowledged(self) -> int:
        """The most that an honest peer could have taken: so it is believed to have taken all."""
        return self.victim._links.peers[self.name].delivery.sent

    def part(self) -> None:
        self.victim.disconnected(self.name)

    def raw(self, data: bytes) -> bool:
        """Bytes for the victim; False if it refused them, and the connection is over."""
        try:
            self.victim.received(self.name, data)
        except ProtocolError as error:
            self.refused.append(str(error))
            self.part()
            return False
        return True

    def send(self, message: Message, number: int | None = None, acknowledged: int = 0) -> bool:
        """A frame, the next one unless the test says otherwise."""
        self.sent = self.sent + 1 if number is None else self.sent
        frame = encode(message)
        return self.raw(header(FRAME, number or self.sent, acknowledged, len(frame)) + frame)

    def frame(self, frame: bytes) -> bool:
        """The same, of bytes that need not be a message."""
        self.sent += 1
        return self.raw(header(FRAME, self.sent, 0, len(frame)) + frame)

    def acknowledge(self, number: int) -> bool:
        return self.raw(header(ACKNOWLEDGE, 0, number))

    def done(self) -> bool:
        return self.raw(header(DONE, 0, 0))

    def start(self) -> bool:
        return self.raw(header(START, 0, 0))

    def hear(self) -> list[Packet]:
        """What the victim has to say."""
        return [*PacketReader().feed(b"".join(self.victim.outgoing(self.name)))]


def besieged(
    directory: Path,
    parties: dict[str, Callable[[], Party]],
    endurance: Endurance = PATIENT,
    links: Sequence[tuple[str, str]] | None = None,
    **more: Any,
) -> tuple[FakeCarrier, Mole]:
    """A town of these parties, the label party first, and a mole; everybody is connected and started."""
    built = {**parties, "mole": lambda: Scripted(lambda *_: [])}
    town = FakeCarrier(directory, [*built], lambda name: built[name](), links, endurance, **more)
    mole = Mole(town)
    mole.connect()
    town.join_all()
    town.settle()
    return town, mole


def seen(town: FakeCarrier, name: str) -> list[str]:
    """What a scripted party has handled."""
    own = town.stations[name].party.party  # type: ignore[attr-defined]
    assert isinstance(own, Scripted)
    return own.names()


def born_again(town: FakeCarrier, name: str) -> None:
    """Another life of a party; the honest ones come back to it."""
    town.kill(name)
    town.revive(name)
    town.join_all()
    town.settle()
