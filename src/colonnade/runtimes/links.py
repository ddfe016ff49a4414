"""A station's links: who is there, what goes out to each peer, and what has come from it and waits to be handled.

Bytes that a carrier brings become packets and their frames messages, decoded and checked here, before anything waits.
What leaves is numbered and kept until the peer has it (`delivery.py`). What a peer is, says `peer.py`.

Whatever is kept for a peer, or because of it, is bounded; peers are served in turn; and who is connected but silent
counts as away.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from colonnade.errors import ProtocolError, RunError
from colonnade.messages import Message
from colonnade.runtimes.delivery import Delivery, ForgottenError
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.peer import GREETING, LINKED, Change, Link, Peer, Phase, Waiting
from colonnade.wire.codec import Limits, decode, held_bytes
from colonnade.wire.packets import ACKNOWLEDGE, DONE, FRAME, RESUME, START, Packet, PacketReader, header

_UNANSWERED_LIMITS = 4
"""A peer that sends on while this many times the limit of what may wait is kept for it does not take its answers."""
_ACKNOWLEDGE_SECONDS = 0.05
_ACKNOWLEDGE_FRAMES = 16
_SHARE_FRAMES = 32
"""Of one peer that may wait while others wait too, before reading from it pauses."""
_FAULTS = 20
"""How often a connection may end by a breach of the link's rules, where a new connection mends it. A frame that is not
a message is no such thing: links lose bytes or connections, they do not alter them. So its sender meant it."""
_MOMENT_SECONDS = 1.0
"""Who counts as silent is given so long to be heard, for it may have been we who did not listen."""
_SLOW_LINK_BYTES = 100_000.0
"""A second: how slow a link may be before those at its other end count as silent."""
_SLOWEST_BYTES = 1000.0
"""A second: who sends at least this is not silent, though no message of it is complete."""


@dataclass(frozen=True)
class Peers:
    """Whom a party works with."""

    names: Sequence[str]
    label_party: str  # itself or one of them
    without: Sequence[str] = ()  # peers that the label party need not wait for before it starts


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
        strangers: bool = False,
    ) -> None:
        """`strangers`: whether peers may be such, whose every word need not be meant."""
        self._name = name
        self._label_party = peers.label_party
        self._leads = name == peers.label_party
        self._without = frozenset(peers.without)
        self._endurance = endurance
        # Frames and bytes that may wait for a peer to acknowledge them.
        self._most_kept = _UNANSWERED_LIMITS * endurance.waiting_frames, _UNANSWERED_LIMITS * endurance.waiting_bytes
        self._limits = limits
        self._clock = clock
        self._restarts = restarts
        self._strangers = strangers
        self.peers = {peer: Peer() for peer in peers.names}
        self._unseen = {*self.peers}  # since this process began
        self.may_start = self._leads and self._without >= self._unseen  # nobody is waited for
        self.busy: deque[Peer] = deque()  # those of whom something waits, the one to be served next first
        self.overfull: set[str] = set()  # who is away while more is kept for it than may be
        self.acknowledge_at: float = inf
        self.gone_at: float = inf  # when somebody last went for good
        self._finished = False
        # Looked at in every turn, so that neither costs more with more peers.
        self._stirred: dict[str, None] = {}  # to whom there may be something to say
        self._notice_due = 0.0  # no later than the first of `notice_at`
        self._has_moved = True  # whether that must be looked up again

    # --- presence ---

    def connect(self, name: str) -> None:
        peer = self.peers[name]
        peer.reconnects += peer.phase is not Phase.EXPECTED
        peer.change(Change.CONNECTED)
        peer.reader = PacketReader(self._limits.frame_bytes)
        peer.arrived = peer.delivery.taken + len(peer.queue)  # what waits here need not come again
        peer.useless = -len(peer.queue)  # but will
        peer.words = [peer.delivery.resume()]
        peer.acknowledges = False
        self._stirred[name] = None
        self._has_moved = True
        self._unseen.discard(name)
        if self._leads and self._without >= self._unseen:
            self.may_start = True

    def disconnect(self, name: str) -> None:
        peer = self.peers[name]
        if peer.phase is LINKED:  # who only greets, again and again, has not been here
            peer.away_since = self._clock()
        peer.words.clear()
        peer.change(Change.DISCONNECTED)
        self._has_moved = True

    def leave(self, name: str) -> None:
        """A peer is gone for good: nothing is kept for it any more. What came from it is handled."""
        self.disconnect(name)
        peer = self.peers[name]
        peer.change(Change.LEFT)
        self._has_moved = True
        peer.delivery.acknowledged(peer.delivery.sent)
        self.gone_at = self._clock()

    def expel(self, name: str, why: str) -> None:
        """A peer is put out: it is gone for good, and what came from it is thrown away."""
        self.leave(name)
        peer = self.peers[name]
        peer.expelled = why
        peer.queue.clear()
        peer.waiting_bytes = 0
        if peer in self.busy:
            self.busy.remove(peer)
        self.overfull.discard(name)

    def begin(self) -> None:
        """Nobody has been here so far: from now on peers are waited for."""
        self.acknowledge_at = inf
        self._has_moved = True
        for peer in self.peers.values():
            peer.away_since = self._clock()
        self.overfull.clear()

    def notice_due(self) -> float:
        """When to look for somebody's absence or return: no later than at the first of `notice_at`."""
        if self._has_moved:
            self._has_moved = False
            self._notice_due = min(map(self.notice_at, self.peers), default=inf)
        return self._notice_due

    def to_notice(self, clock: float) -> list[str]:
        """Whose time has come, by `notice_at`."""
        if clock < self.notice_due():
            return []
        self._has_moved = True
        return [name for name in self.peers if self.notice_at(name) <= clock]

    def notice_at(self, name: str) -> float:
        """When the algorithm is to be told of a peer's absence or return; never, if it knows."""
        peer = self.peers[name]
        if peer.phase is LINKED:
            if not peer.told_lost:
                return peer.silent_at
            return inf if peer.is_silent else 0.0
        if peer.told_lost or peer.is_done:
            return inf
        if peer.phase is Phase.LEFT:
            return inf if peer.queue else 0.0
        if peer.phase is GREETING:
            return peer.away_since + max(self._endurance.silent_seconds, self._endurance.arrival_seconds)
        if peer.has_been_here:
            return peer.away_since + self._endurance.notice_seconds
        return 0.0 if name in self._without else peer.away_since + self._endurance.arrival_seconds

    def notice(self, name: str, clock: float) -> bool:
        """Its time has come: True if the algorithm is to be told now, which `told_lost` says what of."""
        peer = self.peers[name]
        if peer.phase is LINKED and not peer.told_lost:
            arrives = peer.owes_since + peer.delivery.kept_bytes / _SLOW_LINK_BYTES
            if peer.heard_bytes >= _SLOWEST_BYTES * (clock - peer.owes_since):
                self._notice_due = min(self._notice_due, peer.begin_to_owe(clock, self._endurance.silent_seconds))
                return False
            if clock < arrives + self._endurance.silent_seconds:
                peer.silent_at = arrives + self._endurance.silent_seconds
                return False
            if not peer.is_suspected:
                peer.is_suspected, peer.silent_at = True, clock + _MOMENT_SECONDS
                return False
            peer.is_silent = True
        peer.told_lost = not peer.told_lost
        return True

    def absent(self) -> list[str]:
        """Peers that are not connected and have not finished."""
        gone = (Phase.EXPECTED, Phase.AWAY)
        return [name for name, peer in self.peers.items() if peer.phase in gone and not peer.is_done]

    def settled(self, hurries: bool, parts: bool = False) -> bool:
        """Whether everybody has what was sent; and, unless in a hurry, was told of the end.

        `parts`: this life began after the end. Among strangers that end is the label party's word, by which it needs
        nothing more; it may be gone, and would never take what it had not taken by then.
        """
        needless = parts and self._strangers and not self._leads
        return all(
            peer.is_done
            or peer.phase is Phase.LEFT
            or ((needless or not peer.delivery.kept) and (hurries or peer.delivery.parted))
            for peer in self.peers.values()
        )

    def now(self) -> dict[str, Link]:
        """Every peer, as it is now."""
        return {
            name: Link(
                peer.is_connected,
                peer.reconnects,
                len(peer.delivery.kept),
                peer.delivery.kept_bytes,
                len(peer.queue),
                peer.phase is Phase.LEFT or peer.is_done,
                0.0 if peer.is_connected else self._clock() - peer.away_since,
            )
            for name, peer in self.peers.items()
        }

    # --- what comes in ---

    def received(self, name: str, data: bytes | bytearray | memoryview) -> None:
        """Bytes from a peer. ProtocolError: the carrier must close that connection."""
        peer = self.peers[name]
        try:
            self._receive(name, peer, data)
        except ForgottenError:
            raise
        except ProtocolError:
            peer.faults += 1
            raise

    def is_beyond_bearing(self, name: str) -> bool:
        """Whether a peer has broken the link's rules so often, or in such a way, that no new connection mends it."""
        return self.peers[name].faults > _FAULTS

    def _receive(self, name: str, peer: Peer, data: bytes | bytearray | memoryview) -> None:
        peer.heard_bytes += len(data)
        if peer.phase is Phase.LEFT:
            raise ProtocolError(self.farewell(name))
        for packet in peer.reader.feed(data):
            if packet.kind == FRAME:
                if peer.phase is not LINKED:
                    raise ProtocolError("A frame came before the connection was resumed.")
                self._take(name, peer, packet.number, packet.body)
                peer.delivery.acknowledged(packet.acknowledged)
                if peer.delivery.keeps_more_than(*self._most_kept):
                    self._refuse_unanswered(peer)
            elif packet.kind == RESUME:
                if peer.phase is not GREETING:
                    raise ProtocolError("The connection was resumed twice.")
                self._check_memories(name, peer, packet)
                peer.change(Change.RESUMED)
                self._stirred[name] = None
                self._has_moved = True
                peer.has_been_here = True
                peer.delivery.resumed(packet.acknowledged)
                if peer.owes_since < inf:
                    self._notice_due = min(
                        self._notice_due, peer.begin_to_owe(self._clock(), self._endurance.silent_seconds)
                    )
            elif packet.kind == ACKNOWLEDGE:
                before = len(peer.delivery.kept)
                peer.delivery.acknowledged(packet.acknowledged)
                if len(peer.delivery.kept) == before and not peer.is_done:
                    peer.count_useless()
            elif packet.kind == START:
                if name != self._label_party:
                    raise ProtocolError(f"{name} gave the word to start, which is the label party's.")
                if self.may_start:
                    peer.count_useless()
                self.may_start = True
            elif self._strangers and self._leads and not self._finished:
                # It ends when the label party says so, who has not: whatever it means by it, nobody need wait for it.
                self.leave(name)
                return
            else:
                if peer.is_done:
                    peer.count_useless()
                else:
                    self.gone_at = self._clock()
                peer.is_done = True
                peer.delivery.acknowledged(peer.delivery.sent)  # it needs nothing more

    def farewell(self, name: str) -> str:
        """Why a peer that is gone for good is not let in again."""
        if self.peers[name].expelled:
            return f"{name} was expelled from this run: {self.peers[name].expelled}"
        return f"{name} has left this run, or said that its part was over. It cannot come back into it."

    def _take(self, name: str, peer: Peer, number: int, frame: bytearray) -> None:
        if number <= peer.arrived:
            peer.count_useless()  # sent again after a reconnect
            return
        if number != peer.arrived + 1:
            raise ProtocolError(f"The frame {number} came after {peer.arrived}: frames between them are missing.")
        try:
            message = decode(frame, self._limits)
        except ProtocolError:
            peer.faults = _FAULTS
            raise
        peer.arrived = number
        peer.owes_since = peer.silent_at = inf
        if peer.is_silent:
            peer.is_silent, self._has_moved = False, True
        if self._finished:
            return  # it will hear that nothing is needed any more
        if not peer.queue:
            self.busy.append(peer)
        peer.queue.append(Waiting(name, frame, message, held_bytes(frame, message)))
        peer.waiting_bytes += peer.queue[-1].size_bytes

    def _refuse_unanswered(self, peer: Peer) -> None:
        # Not a reason to stop reading, since what it has taken is told in what it sends.
        # An honest one comes again until it has taken all, and what is kept for it grows no further because of it.
        most_frames, most_bytes = self._most_kept
        kept, kept_bytes = len(peer.delivery.kept), peer.delivery.kept_bytes
        before, bytes_before = peer.refused_with or (kept, kept_bytes)
        peer.refused_with = min(before, kept), min(bytes_before, kept_bytes)
        grows = kept > before + most_frames or kept_bytes > bytes_before + most_bytes
        peer.faults = _FAULTS if grows else peer.faults - 1
        raise ProtocolError(f"{len(peer.delivery.kept)} frames wait to be acknowledged by a peer that sends others.")

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
        """Whether to read from a peer: not while too much of it waits, or its share while others wait too."""
        peer, limit = self.peers[name], self._endurance
        waiting = len(peer.queue)
        if self._finished or not waiting:
            return True
        if waiting >= limit.waiting_frames or peer.waiting_bytes >= limit.waiting_bytes:
            return False
        return waiting < _SHARE_FRAMES or len(self.busy) < 2

    def queue_depth(self) -> int:
        return sum(len(peer.queue) for peer in self.busy)

    def next_of(self, peer: Peer) -> Waiting:
        """What a peer sent first, of what waits, out of its turn."""
        item = peer.queue.popleft()
        peer.waiting_bytes -= item.size_bytes
        if not peer.queue:
            self.busy.remove(peer)
            self._has_moved |= peer.phase is Phase.LEFT
        return item

    def next_piece(self) -> Waiting:
        """The next piece of work, of the peer whose turn it is."""
        peer = self.busy.popleft()
        item = peer.queue.popleft()
        peer.waiting_bytes -= item.size_bytes
        if peer.queue:
            self.busy.append(peer)
        else:
            self._has_moved |= peer.phase is Phase.LEFT
        return item

    def handled(self, name: str) -> None:
        """The next frame of a peer is taken for good; the peer is told within a moment."""
        peer = self.peers[name]
        peer.delivery.taken += 1
        if peer.delivery.taken - peer.delivery.told >= _ACKNOWLEDGE_FRAMES:
            self._stirred[name] = None
        if self.acknowledge_at == inf:
            self.acknowledge_at = self._clock() + _ACKNOWLEDGE_SECONDS  # unless an answer tells it sooner

    def handled_again(self, name: str) -> None:
        """The same, while a party is rebuilt: nothing arrives, and what it owes follows from what it was sent since."""
        self.handled(name)
        self.peers[name].owes_since = self.peers[name].silent_at = inf

    def is_gone(self, name: str) -> bool:
        """Whether a peer is gone for good."""
        return self.peers[name].phase is Phase.LEFT

    def is_over_for(self, leader: bool) -> bool:
        """Whether those without whom nothing can happen any more are gone for good."""
        if leader:
            gone = (peer.phase is Phase.LEFT and peer.told_lost for peer in self.peers.values())
            return bool(self.peers) and all(gone)
        label_party = self.peers.get(self._label_party)
        return label_party is not None and (label_party.is_done or label_party.phase is Phase.LEFT)

    def extend(self) -> None:
        """Everybody has finished, and goes on: nothing is under way, and the numbers of both sides begin anew."""
        self._finished = False
        self._has_moved = True
        self.busy.clear()
        for peer in self.peers.values():
            peer.delivery, peer.arrived, peer.is_done = Delivery(), 0, False
            peer.queue.clear()
            peer.waiting_bytes, peer.owes_since = 0, inf

    # --- what goes out ---

    def send(self, to: str, frame: bytearray, message: type[Message]) -> None:
        """Keep a frame until the peer has it."""
        peer = self.peers.get(to)
        if peer is None:
            raise RunError(f"{self._name} sent {message.__name__} to {to!r}, who is not in the federation.")
        peer.delivery.send(frame)
        self._stirred[to] = None
        if peer.is_done or peer.phase is Phase.LEFT:
            peer.delivery.acknowledged(peer.delivery.sent)
        elif peer.owes_since == inf:
            self._notice_due = min(self._notice_due, peer.begin_to_owe(self._clock(), self._endurance.silent_seconds))
        if peer.told_lost and not peer.is_connected and peer.delivery.keeps_more_than(*self._most_kept):
            self.overfull.add(to)

    def outgoing(self, name: str, frames: bool) -> list[bytes | bytearray]:
        """What to send to a connected peer now, as buffers in order; `frames`: whether frames may leave."""
        peer = self.peers[name]
        parts: list[bytes | bytearray] = []
        if frames:
            self._stirred.pop(name, None)
        if peer.words:
            parts.extend(peer.words)
            peer.words.clear()
        if frames and peer.phase is LINKED:
            delivery = peer.delivery
            parts.extend(delivery.outgoing())
            untold = delivery.taken - delivery.told
            if untold >= _ACKNOWLEDGE_FRAMES or (untold and peer.acknowledges):
                delivery.told = delivery.taken
                parts.append(header(ACKNOWLEDGE, 0, delivery.taken))
            peer.acknowledges = False
        return parts

    def has_outgoing(self, name: str, frames: bool) -> bool:
        """Whether `outgoing` would give anything."""
        peer = self.peers[name]
        if peer.words:
            return True
        delivery = peer.delivery
        return (
            frames
            and peer.phase is LINKED
            and (delivery.has_outgoing() or peer.acknowledges or delivery.taken - delivery.told >= _ACKNOWLEDGE_FRAMES)
        )

    def to_tell(self, frames: bool) -> list[str]:
        """To whom there is something to say now: those for whom `has_outgoing` holds."""
        told = [name for name in self._stirred if self.has_outgoing(name, frames)]
        if frames:  # who is not connected is stirred again once it is
            self._stirred = dict.fromkeys(told)
        return told

    def acknowledge(self) -> None:
        """Tell everybody how much of theirs is taken, who has not heard of it with an answer."""
        self.acknowledge_at = inf
        for name, peer in self.peers.items():
            if peer.phase is LINKED and peer.delivery.taken > peer.delivery.told:
                self._stirred[name] = None
                peer.acknowledges = True  # with what is taken then: one word, however long it does not read

    def say_start(self, *names: str) -> None:
        """Give the word to start to those of them who are connected."""
        for name in names:
            if self.peers[name].is_connected:
                self.peers[name].words.append(header(START, 0, 0))
                self._stirred[name] = None

    def finish(self) -> None:
        """Take nothing more, and tell everybody: after the frames that there still are for them."""
        self._finished = True
        for name, peer in self.peers.items():
            peer.delivery.last_word = header(DONE, 0, 0)
            self._stirred[name] = None

    # --- checkpoints ---

    def lost(self) -> list[str]:
        """Of whom the algorithm was told that they are away."""
        return [name for name, peer in self.peers.items() if peer.told_lost]

    def done(self) -> list[str]:
        """Who has finished."""
        return [name for name, peer in self.peers.items() if peer.is_done]

    def state(self, frames: list[bytes | bytearray]) -> dict[str, Any]:
        """What a checkpoint keeps of each link; the frames themselves are added to `frames`."""
        return {
            name: {**peer.delivery.state(frames), "owes": peer.owes_since < inf, "gone": peer.phase is Phase.LEFT}
            for name, peer in self.peers.items()
        }

    def restore(
        self, links: dict[str, dict[str, Any]], frames: list[bytearray], lost: Sequence[str], done: Sequence[str]
    ) -> None:
        for name, link in links.items():
            peer = self.peers[name]
            peer.delivery.restore(link, frames)
            peer.owes_since = 0.0 if link.get("owes") else inf
            if link.get("gone"):
                self.leave(name)
        for name in lost:
            self.peers[name].told_lost = True
        for name in done:
            self.peers[name].is_done = True
