"""One peer, seen from a station: its phase, and what outlives connections and is part of a checkpoint.

A peer is in one phase at a time, and `TRANSITIONS` states every way from one to the next.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from math import inf

from colonnade.errors import ProtocolError, RunError
from colonnade.messages import Message
from colonnade.runtimes.delivery import Delivery
from colonnade.wire.packets import PacketReader


class Phase(Enum):
    """Where a peer is, seen from here."""

    EXPECTED = "has not been here since this process began"
    GREETING = "is connected, and has not said what it holds"
    LINKED = "is connected: frames go both ways"
    AWAY = "was here; its connection is gone"
    LEFT = "is gone for good"  # it said so, finished before the end, or was expelled


class Change(Enum):
    """What moves a peer from one phase to the next."""

    CONNECTED = "a connection stands"
    RESUMED = "it has said what it holds"
    DISCONNECTED = "the connection is gone"
    LEFT = "it has left"


TRANSITIONS: dict[Change, dict[Phase, Phase]] = {
    Change.CONNECTED: {  # also when nobody has told of the end of the connection before
        Phase.EXPECTED: Phase.GREETING,
        Phase.GREETING: Phase.GREETING,
        Phase.LINKED: Phase.GREETING,
        Phase.AWAY: Phase.GREETING,
    },
    Change.RESUMED: {Phase.GREETING: Phase.LINKED},
    Change.DISCONNECTED: {
        Phase.EXPECTED: Phase.EXPECTED,
        Phase.GREETING: Phase.AWAY,
        Phase.LINKED: Phase.AWAY,
        Phase.AWAY: Phase.AWAY,
        Phase.LEFT: Phase.LEFT,
    },
    Change.LEFT: dict.fromkeys(Phase, Phase.LEFT),
}
"""What is not here cannot happen: nobody who has left connects again."""
USELESS_PACKETS = 64
"""Of one connection: an acknowledgement of what was acknowledged, a frame that is here, a word that was said. An honest
peer sends none, but for frames that wait here while it connects anew, which are allowed on top. So reconnecting costs
an honest peer nothing, however often it does."""
GREETING, LINKED = Phase.GREETING, Phase.LINKED  # read for every frame; a member of an Enum is slow to look up


@dataclass(frozen=True)
class Link:
    """One peer, seen from here at one moment."""

    connected: bool
    reconnects: int = 0
    kept_frames: int = 0  # sent, and not acknowledged
    kept_bytes: int = 0
    waiting: int = 0  # frames of it that wait to be handled
    is_gone: bool = False  # for good
    away_seconds: float = 0.0  # since it was last connected, or since this process began


@dataclass(frozen=True, slots=True)
class Waiting:
    """A frame of a peer that is to be handled."""

    peer: str
    frame: bytearray
    message: Message
    size_bytes: int  # of both


class Peer:
    """What a station knows of one peer: its phase, and what outlives connections and is part of a checkpoint."""

    def __init__(self) -> None:
        self.phase = Phase.EXPECTED
        self.delivery = Delivery()
        self.is_done = False  # it has said that it has finished
        self.told_lost = False  # whether the algorithm was told that it is away
        self.reader = PacketReader()
        self.away_since = 0.0
        self.has_been_here = False  # since this process began
        self.arrived = 0  # the number of the last frame that waits or was taken
        self.queue: deque[Waiting] = deque()  # frames that wait to be handled
        self.waiting_bytes = 0
        self.words: list[bytes] = []  # packets about the link itself
        self.acknowledges = False  # whether to tell it how much of its is taken
        self.reconnects = 0
        self.owes_since = inf  # since when frames have gone to it and none has come
        self.heard_bytes = 0  # since then
        self.silent_at = inf  # when to look whether it is
        self.is_suspected = False  # of being silent, when it was last looked at
        self.is_silent = False  # and the algorithm was told so
        self.useless = 0  # packets of this connection that said nothing new
        self.faults = 0  # connections that ended by a breach
        self.refused_with: tuple[int, int] | None = (
            None  # frames and bytes kept when it was refused for not taking them
        )
        self.expelled = ""  # why

    @property
    def is_connected(self) -> bool:
        return self.phase is LINKED or self.phase is GREETING

    def begin_to_owe(self, clock: float, silent_seconds: float) -> float:
        """From now on something is awaited from it; when to look whether it is silent."""
        self.owes_since, self.heard_bytes = clock, 0
        self.silent_at, self.is_suspected = clock + silent_seconds, False
        return self.silent_at

    def count_useless(self) -> None:
        """A packet has said nothing new."""
        self.useless += 1
        if self.useless > USELESS_PACKETS:
            raise ProtocolError(
                f"{self.useless} packets of one connection said nothing new; the limit is {USELESS_PACKETS}."
            )

    def change(self, change: Change) -> None:
        after = TRANSITIONS[change].get(self.phase)
        if after is None:
            raise RunError(f"It was said of a peer that {change.value}, but it {self.phase.value}.")
        self.phase = after
