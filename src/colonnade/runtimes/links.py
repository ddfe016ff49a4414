"""A station's links: who is there, what goes out to each peer, and what has come from it and waits to be handled.

A peer is in one phase at a time, and `TRANSITIONS` states every way from one to the next. Bytes that a carrier brings
become packets and their frames messages, decoded and checked here, before anything waits. What leaves is numbered and
kept until the peer has it (`delivery.py`).
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any

from colonnade.errors import ProtocolError, RunError
from colonnade.messages import Message
from colonnade.runtimes.delivery import Delivery, ForgottenError
from colonnade.runtimes.endurance import Endurance
from colonnade.wire.codec import Limits, decode
from colonnade.wire.packets import ACKNOWLEDGE, DONE, FRAME, RESUME, START, Packet, PacketReader, header

_UNANSWERED_LIMITS = 4
"""A peer that sends on while this many times the limit of what may wait is kept for it does not take its answers."""
_ACKNOWLEDGE_SECONDS = 0.05
_ACKNOWLEDGE_FRAMES = 16


class Phase(Enum):
    """Where a peer is, seen from here."""

    EXPECTED = "has not been here since this process began"
    GREETING = "is connected, and has not said what it holds"
    LINKED = "is connected: frames go both ways"
    AWAY = "was here; its connection is gone"
    LEFT = "is gone for good"


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
_GREETING, _LINKED = Phase.GREETING, Phase.LINKED  # read for every frame; a member of an Enum is slow to look up


@dataclass(frozen=True)
class Peers:
    """Whom a party works with."""

    names: Sequence[str]
    label_party: str  # itself or one of them
    without: Sequence[str] = ()  # peers that the label party need not wait for before it starts


@dataclass(frozen=True)
class Link:
    """One peer, seen from here at one moment."""

    connected: bool
    reconnects: int = 0
    kept_frames: int = 0  # sent, and not acknowledged
    kept_bytes: int = 0


class Peer:
    """What a station knows of one peer: its phase, and what outlives connections and is part of a checkpoint."""

    def __init__(self) -> None:
        self.phase = Phase.EXPECTED
        self.delivery = Delivery()
        self.is_done = False  # it has said that it has finished
        self.told_lost = False  # whether the algorithm was told that it is away
        self.reader = PacketReader()
        self.away_since = 0.0
        self.arrived = 0  # the number of the last frame that waits or was taken
        self.waiting = 0
        self.waiting_bytes = 0
        self.waiting_in_turn = 0  # of those, in the queue that is not answered at once
        self.words: list[bytes] = []  # packets about the link itself
        self.reconnects = 0

    @property
    def is_connected(self) -> bool:
        return self.phase is _LINKED or self.phase is _GREETING

    def change(self, change: Change) -> None:
        after = TRANSITIONS[change].get(self.phase)
        if after is None:
            raise RunError(f"It was said of a peer that {change.value}, but it {self.phase.value}.")
        self.phase = after


@dataclass(frozen=True, slots=True)
class Waiting:
    """A frame of a peer that is to be handled."""

    peer: str
    frame: bytearray
    message: Message
    at_once: bool


class Links:
    """All peers of one party, and the frames of theirs that wait to be handled."""

    def __init__(
        self,
        name: str,
        peers: Peers,
        endurance: Endurance,
        limits: Limits,
        clock: Callable[[], float],
        restarts: int,
    ) -> None:
        self._name = name
        self._label_party = peers.label_party
        self._leads = name == peers.label_party
        self._without = frozenset(peers.without)
        self._endurance = endurance
        self._limits = limits
        self._clock = clock
        self._restarts = restarts
        self.peers = {peer: Peer() for peer in peers.names}
        self._unseen = {*self.peers}  # since this process began
        self.may_start = self._leads and self._without >= self._unseen  # nobody is waited for
        self.at_once: deque[Waiting] = deque()  # questions
        self.in_turn: deque[Waiting] = deque()  # other work
        self.acknowledge_at: float = inf
        self._finished = False

    # --- presence ---

    def connect(self, name: str) -> None:
        peer = self.peers[name]
        peer.reconnects += peer.phase is not Phase.EXPECTED
        peer.change(Change.CONNECTED)
        peer.reader = PacketReader(self._limits.frame_bytes)
        peer.arrived = peer.delivery.taken + peer.waiting  # what waits here need not come again
        peer.words = [peer.delivery.resume()]
        self._unseen.discard(name)
        if self._leads and self._without >= self._unseen:
            self.may_start = True

    def disconnect(self, name: str) -> None:
        peer = self.peers[name]
        if peer.is_connected:
            peer.away_since = self._clock()
            peer.words.clear()
        peer.change(Change.DISCONNECTED)

    def leave(self, name: str) -> None:
        self.disconnect(name)
        self.peers[name].change(Change.LEFT)

    def begin(self) -> None:
        """Nobody has been here so far: from now on peers are waited for."""
        self.acknowledge_at = inf
        for peer in self.peers.values():
            peer.away_since = self._clock()

    def notice_at(self, name: str) -> float:
        """When the algorithm is to be told of a peer's absence or return; never, if it knows."""
        peer = self.peers[name]
        if peer.phase is _LINKED and not peer.told_lost:
            return inf  # as nearly always
        if peer.told_lost:
            return 0.0 if peer.is_connected else inf
        if peer.is_connected or peer.is_done:
            return inf
        if peer.phase is Phase.LEFT:
            return 0.0
        if peer.phase is Phase.AWAY:
            return peer.away_since + self._endurance.notice_seconds
        return 0.0 if name in self._without else peer.away_since + self._endurance.arrival_seconds

    def absent(self) -> list[str]:
        """Peers that are not connected and have not finished."""
        gone = (Phase.EXPECTED, Phase.AWAY)
        return [name for name, peer in self.peers.items() if peer.phase in gone and not peer.is_done]

    def settled(self, hurries: bool) -> bool:
        """Whether everybody has what was sent; and, unless in a hurry, was told of the end."""
        return all(
            peer.is_done or peer.phase is Phase.LEFT or (not peer.delivery.kept and (hurries or peer.delivery.parted))
            for peer in self.peers.values()
        )

    def now(self) -> dict[str, Link]:
        """Every peer, as it is now."""
        return {
            name: Link(peer.is_connected, peer.reconnects, len(peer.delivery.kept), peer.delivery.kept_bytes)
            for name, peer in self.peers.items()
        }

    # --- what comes in ---

    def received(self, name: str, data: bytes | bytearray | memoryview) -> None:
        """Bytes from a peer. ProtocolError: the carrier must close that connection."""
        peer = self.peers[name]
        for packet in peer.reader.feed(data):
            if packet.kind == FRAME:
                if peer.phase is not _LINKED:
                    raise ProtocolError("A frame came before the connection was resumed.")
                self._take(name, peer, packet.number, packet.body)
                peer.delivery.acknowledged(packet.acknowledged)
                self._check_answers_taken(peer.delivery)
            elif packet.kind == RESUME:
                if peer.phase is not _GREETING:
                    raise ProtocolError("The connection was resumed twice.")
                self._check_memories(name, peer, packet)
                peer.change(Change.RESUMED)
                peer.delivery.resumed(packet.acknowledged)
            elif packet.kind == ACKNOWLEDGE:
                peer.delivery.acknowledged(packet.acknowledged)
            elif packet.kind == START:
                if name != self._label_party:
                    raise ProtocolError(f"{name} gave the word to start, which is the label party's.")
                self.may_start = True
            else:
                peer.is_done = True
                peer.delivery.acknowledged(peer.delivery.sent)  # it needs nothing more

    def _take(self, name: str, peer: Peer, number: int, frame: bytearray) -> None:
        if number <= peer.arrived:
            return  # sent again after a reconnect
        if number != peer.arrived + 1:
            raise ProtocolError(f"The frame {number} came after {peer.arrived}: frames between them are missing.")
        message = decode(frame, self._limits)
        peer.arrived = number
        if self._finished:
            return  # it will hear that nothing is needed any more
        peer.waiting += 1
        peer.waiting_bytes += len(frame)
        # A question is answered before other work, but never before what its sender had sent earlier.
        at_once = message.answered_on_arrival and not peer.waiting_in_turn
        (self.at_once if at_once else self.in_turn).append(Waiting(name, frame, message, at_once))
        peer.waiting_in_turn += not at_once

    def _check_answers_taken(self, delivery: Delivery) -> None:
        # Not a reason to stop reading, since what it has taken is told in what it sends.
        limit = self._endurance
        frames, size_bytes = _UNANSWERED_LIMITS * limit.waiting_frames, _UNANSWERED_LIMITS * limit.waiting_bytes
        if len(delivery.kept) > frames or delivery.kept_bytes > size_bytes:
            raise ProtocolError(f"{len(delivery.kept)} frames wait to be acknowledged by a peer that sends others.")

    def _check_memories(self, name: str, peer: Peer, resume: Packet) -> None:
        """Refuse to go on with a link of which one side has forgotten a part."""
        link, held, sent = peer.delivery, resume.acknowledged, resume.number
        acknowledged = link.sent - len(link.kept)
        if self._restarts and held > link.sent:  # in its first life a party has nothing to forget: who says so is wrong
            forgetful, other, now, before = self._name, name, link.sent, held
        elif sent < peer.arrived and not peer.is_done:
            forgetful, other, now, before = name, self._name, sent, peer.arrived
        elif held < acknowledged and not peer.is_done:  # what is acknowledged for being done was not taken
            forgetful, other, now, before = name, self._name, held, acknowledged
        else:
            return
        claim = f"By the word of {name}: " if forgetful == self._name and name != self._label_party else ""
        raise ForgottenError(
            f"{claim}What {forgetful} remembers is older than what {other} has heard from it (only {now} messages of "
            f"{before}): the directory of {forgetful} lost the end of its journal, perhaps with the power, or is an "
            "older copy. The two cannot go on. Begin a new run, every party in a new directory (--out)."
        )

    def wants_more(self, name: str) -> bool:
        """Whether to read from a peer: not while too much of it waits."""
        peer, limit = self.peers[name], self._endurance
        return self._finished or (peer.waiting < limit.waiting_frames and peer.waiting_bytes < limit.waiting_bytes)

    def queue_depth(self) -> int:
        return len(self.at_once) + len(self.in_turn)

    def take_up(self, item: Waiting) -> None:
        """A frame waits no more: it is being handled."""
        peer = self.peers[item.peer]
        peer.waiting -= 1
        peer.waiting_bytes -= len(item.frame)
        peer.waiting_in_turn -= not item.at_once

    def handled(self, name: str) -> None:
        """The next frame of a peer is taken for good; the peer is told within a moment."""
        self.peers[name].delivery.taken += 1
        if self.acknowledge_at == inf:
            self.acknowledge_at = self._clock() + _ACKNOWLEDGE_SECONDS  # unless an answer tells it sooner

    # --- what goes out ---

    def send(self, to: str, frame: bytearray, message: type[Message]) -> None:
        """Keep a frame until the peer has it."""
        peer = self.peers.get(to)
        if peer is None:
            raise RunError(f"{self._name} sent {message.__name__} to {to!r}, who is not in the federation.")
        peer.delivery.send(frame)
        if peer.is_done:
            peer.delivery.acknowledged(peer.delivery.sent)

    def outgoing(self, name: str, frames: bool) -> list[bytes | bytearray]:
        """What to send to a connected peer now, as buffers in order; `frames`: whether frames may leave."""
        peer = self.peers[name]
        parts: list[bytes | bytearray] = []
        if peer.words:
            parts.extend(peer.words)
            peer.words.clear()
        if frames and peer.phase is _LINKED:
            delivery = peer.delivery
            parts.extend(delivery.outgoing())
            if delivery.taken - delivery.told >= _ACKNOWLEDGE_FRAMES:
                delivery.told = delivery.taken
                parts.append(header(ACKNOWLEDGE, 0, delivery.taken))
        return parts

    def has_outgoing(self, name: str, frames: bool) -> bool:
        """Whether `outgoing` would give anything."""
        peer = self.peers[name]
        if peer.words:
            return True
        delivery = peer.delivery
        return (
            frames
            and peer.phase is _LINKED
            and (delivery.has_outgoing() or delivery.taken - delivery.told >= _ACKNOWLEDGE_FRAMES)
        )

    def acknowledge(self) -> None:
        """Tell everybody how much of theirs is taken, who has not heard of it with an answer."""
        self.acknowledge_at = inf
        for peer in self.peers.values():
            if peer.phase is _LINKED and peer.delivery.taken > peer.delivery.told:
                peer.delivery.told = peer.delivery.taken
                peer.words.append(header(ACKNOWLEDGE, 0, peer.delivery.taken))

    def say_start(self, *names: str) -> None:
        """Give the word to start to those of them who are connected."""
        for name in names:
            if self.peers[name].is_connected:
                self.peers[name].words.append(header(START, 0, 0))

    def finish(self) -> None:
        """Take nothing more, and tell everybody: after the frames that there still are for them."""
        self._finished = True
        for peer in self.peers.values():
            peer.delivery.last_word = header(DONE, 0, 0)

    # --- checkpoints ---

    def lost(self) -> list[str]:
        """Of whom the algorithm was told that they are away."""
        return [name for name, peer in self.peers.items() if peer.told_lost]

    def done(self) -> list[str]:
        """Who has finished."""
        return [name for name, peer in self.peers.items() if peer.is_done]

    def state(self, frames: list[bytes | bytearray]) -> dict[str, Any]:
        """What a checkpoint keeps of each link; the frames themselves are added to `frames`."""
        return {name: peer.delivery.state(frames) for name, peer in self.peers.items()}

    def restore(
        self, links: dict[str, dict[str, Any]], frames: list[bytearray], lost: Sequence[str], done: Sequence[str]
    ) -> None:
        for name, link in links.items():
            self.peers[name].delivery.restore(link, frames)
        for name in lost:
            self.peers[name].told_lost = True
        for name in done:
            self.peers[name].is_done = True
