"""One party in real time: what it handles, what it sends, and what it needs to survive its own death.

A station knows nothing of sockets. A carrier (Unix sockets, gRPC, Ray) tells it who is connected and hands it bytes;
the station gives back the bytes to send. Each turn: take events, write them to the journal, let the party handle them,
and only then let their effects out. Killed at any moment, it is rebuilt from its last whole checkpoint and the journal
to the state it had, with the same outgoing frames under the same numbers; peers drop what they had already.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import torch

from colonnade.errors import ProtocolError, RunError
from colonnade.messages import Message
from colonnade.party import Event, Party, PeerLost, PeerReturned, Received, Started, TimerFired
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.checkpoint import numbers_of, read_checkpoint, write_checkpoint
from colonnade.runtimes.delivery import Delivery, ForgottenError
from colonnade.runtimes.driver import Driver
from colonnade.runtimes.journal import Journal, begin_life, events_after, first_number, last_number
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.replay import event_of
from colonnade.state import State
from colonnade.trace import TraceWriter
from colonnade.wire.codec import DEFAULT_LIMITS, Limits, decode
from colonnade.wire.packets import ACKNOWLEDGE, DONE, FRAME, RESUME, START, Packet, PacketReader, header

JOURNAL_BYTES = 256 << 20
"""A longer journal is cut short by a checkpoint, unless the checkpoint itself is larger: everybody waits for one, so a
busy party writes one in ten seconds rather than in two, and handles at most that much again after a crash."""
_UNANSWERED_LIMITS = 4
"""A peer that sends on while this many times the limit of what may wait is kept for it does not take its answers."""
_ACKNOWLEDGE_SECONDS = 0.05
_ACKNOWLEDGE_FRAMES = 16
FAREWELL_SECONDS = 3.0
"""How long a party that died after its end looks for those who may not have heard of it: who waits for it is there."""


@dataclass(frozen=True)
class Endurance:
    """How a party of a real runtime waits, keeps and survives."""

    notice_seconds: float = 1.0  # a peer that is away for longer is reported to the algorithm
    arrival_seconds: float = 30.0  # the same, for a peer that has not been there since this process began
    linger_seconds: float = 30.0  # after the end, how long to stay for peers that have not heard of it
    checkpoint_seconds: float = 30.0
    sync: bool = False  # whether the journal also survives a loss of power
    waiting_frames: int = 1024  # of one peer, before reading from it pauses
    waiting_bytes: int = 256 << 20


@dataclass(frozen=True)
class Link:
    """One peer, seen from here at one moment."""

    connected: bool
    reconnects: int = 0
    kept_frames: int = 0  # sent, and not acknowledged
    kept_bytes: int = 0


class _Peer:
    """What a station knows of one peer."""

    def __init__(self) -> None:
        self.delivery = Delivery()
        self.reader = PacketReader()
        self.connected = False
        self.resumed = False  # whether it has said what it holds, on this connection
        self.lost = False  # whether the algorithm was told so
        self.done = False
        self.left = False  # for good
        self.seen = False  # since this process began
        self.away_since = 0.0
        self.arrived = 0  # the number of the last frame that waits or was taken
        self.waiting = 0
        self.waiting_bytes = 0
        self.waiting_in_turn = 0  # of those, in the queue that is not answered at once
        self.words: list[bytes] = []  # packets about the link itself
        self.reconnects = 0


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A frame of a peer that is to be handled."""

    peer: str
    frame: bytearray
    message: Message
    at_once: bool


class Station:
    """A party, its links, its journal and its checkpoints."""

    def __init__(
        self,
        name: str,
        party: Party,
        peers: Sequence[str],
        label_party: str,
        directory: Path,
        recorder: Recorder,
        ledger: Callable[[int], Ledger],
        *,
        trace: bool = False,
        endurance: Endurance | None = None,
        limits: Limits = DEFAULT_LIMITS,
        without: Sequence[str] = (),
        slowdown: float = 1.0,
        compute_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.peers = frozenset(peers)
        self.party = party
        self.finished = False
        self.started = False
        self.breaches: deque[tuple[str, str]] = deque()  # who broke the protocol, and how; the carrier drops them
        self.busy_seconds = 0.0
        self.frames_taken = 0
        self._leads = name == label_party
        self._label_party = label_party
        self._directory = directory
        self._recorder = recorder
        self._endurance = endurance or Endurance()
        self._limits = limits
        self._without = frozenset(without)
        self._slowdown = slowdown
        self._compute_seconds = compute_seconds
        self._clock = clock
        self._peers = {peer: _Peer() for peer in peers}
        self._timers: dict[str, float] = {}
        self._at_once: deque[_Waiting] = deque()
        self._in_turn: deque[_Waiting] = deque()
        self._acknowledge_at: float = inf
        self._may_start = self._leads and self._without >= self._peers.keys()  # nobody is waited for
        self._replaying = False
        self._replayed_now = 0.0  # the time of the event that is handled again
        self._number = 0  # of the last checkpoint
        saved = self._saved()
        values = saved.values["station"] if saved else {}
        self.restarts = begin_life(directory / "journal", name)
        self._began: float = clock() - values.get("now", 0.0)
        self._ledger = ledger(saved.part("ledger").values["position"] if saved else 0)
        self._trace: TraceWriter | None = None
        if trace:
            self._trace = TraceWriter(directory / "trace" / f"{name}.trace", values.get("trace"))
        self._driver = Driver(name, party, self, self._ledger, recorder, self._trace)
        if saved:
            self._restore(saved)
        else:
            recorder.forget()
        self._replay()
        journals = directory / "journal"
        self._number = max(self._number, last_number(journals, name))
        self._journal = Journal(journals, name, self._number, self._endurance.sync)
        self._saved_at = clock()
        self._checkpoint_bytes = 0
        for peer in self._peers.values():
            peer.away_since = clock()
        # A life that begins after the end may follow one that was killed before it could say so.
        self._farewell_until = clock() + FAREWELL_SECONDS if self.finished else 0.0

    # --- what the carrier tells ---

    def connected(self, peer: str) -> None:
        """A connection to a peer stands; both sides begin by saying what they hold."""
        one = self._peers[peer]
        one.reconnects += one.seen
        one.connected = one.seen = True
        one.resumed = False
        one.reader = PacketReader(self._limits.frame_bytes)
        one.arrived = one.delivery.taken + one.waiting  # what waits here need not come again
        one.words = [one.delivery.resume()]
        if self._leads and self.started:
            one.words.append(header(START, 0, 0))
        there = {name for name, other in self._peers.items() if other.seen} | self._without
        if self._leads and there >= self._peers.keys():
            self._may_start = True

    def disconnected(self, peer: str) -> None:
        """The connection to a peer is gone. It counts as lost only if it stays away."""
        one = self._peers[peer]
        if one.connected:
            one.connected = False
            one.away_since = self._clock()
            one.words.clear()

    def received(self, peer: str, data: bytes | bytearray | memoryview) -> None:
        """Bytes from a peer. ProtocolError: the carrier must close that connection."""
        one = self._peers[peer]
        for packet in one.reader.feed(data):
            if packet.kind == FRAME:
                if not one.resumed:
                    raise ProtocolError("A frame came before the connection was resumed.")
                self._take(peer, one, packet.number, packet.body)
                one.delivery.acknowledged(packet.acknowledged)
                self._check_answers_taken(one)
            elif packet.kind == RESUME:
                if one.resumed:
                    raise ProtocolError("The connection was resumed twice.")
                self._check_memories(peer, one, packet)
                one.resumed = True
                one.delivery.resumed(packet.acknowledged)
            elif packet.kind == ACKNOWLEDGE:
                one.delivery.acknowledged(packet.acknowledged)
            elif packet.kind == START:
                if peer != self._label_party:
                    raise ProtocolError(f"{peer} gave the word to start, which is the label party's.")
                self._may_start = True
            else:
                one.done = True
                one.delivery.acknowledged(one.delivery.sent)  # it needs nothing more

    def _check_memories(self, peer: str, one: _Peer, resume: Packet) -> None:
        """Refuse to go on with a link of which one side has forgotten a part."""
        link, held, sent = one.delivery, resume.acknowledged, resume.number
        acknowledged = link.sent - len(link.kept)
        if self.restarts and held > link.sent:  # in its first life a party has nothing to forget: who says so is wrong
            forgetful, other, now, before = self.name, peer, link.sent, held
        elif sent < one.arrived and not one.done:
            forgetful, other, now, before = peer, self.name, sent, one.arrived
        elif held < acknowledged and not one.done:  # what is acknowledged for being done was not taken
            forgetful, other, now, before = peer, self.name, held, acknowledged
        else:
            return
        claim = f"By the word of {peer}: " if forgetful == self.name and peer != self._label_party else ""
        raise ForgottenError(
            f"{claim}What {forgetful} remembers is older than what {other} has heard from it (only {now} messages of "
            f"{before}): the directory of {forgetful} lost the end of its journal, perhaps with the power, or is an "
            "older copy. The two cannot go on. Begin a new run, every party in a new directory (--out)."
        )

    def _take(self, peer: str, one: _Peer, number: int, frame: bytearray) -> None:
        if number <= one.arrived:
            return  # sent again after a reconnect
        if number != one.arrived + 1:
            raise ProtocolError(f"The frame {number} came after {one.arrived}: frames between them are missing.")
        message = decode(frame, self._limits)
        one.arrived = number
        if self.finished:
            return  # it will hear that nothing is needed any more
        one.waiting += 1
        one.waiting_bytes += len(frame)
        # A question is answered before other work, but never before what its sender had sent earlier.
        at_once = message.answered_on_arrival and not one.waiting_in_turn
        (self._at_once if at_once else self._in_turn).append(_Waiting(peer, frame, message, at_once))
        one.waiting_in_turn += not at_once

    def _check_answers_taken(self, one: _Peer) -> None:
        # Not a reason to stop reading, since what it has taken is told in what it sends.
        limit, kept = self._endurance, one.delivery
        frames, size_bytes = _UNANSWERED_LIMITS * limit.waiting_frames, _UNANSWERED_LIMITS * limit.waiting_bytes
        if len(kept.kept) > frames or kept.kept_bytes > size_bytes:
            raise ProtocolError(f"{len(kept.kept)} frames wait to be acknowledged by a peer that sends others.")

    # --- what the carrier asks ---

    def now(self) -> float:
        """Wall seconds of the run, those before a restart included."""
        return self._clock() - self._began

    def wants_more(self, peer: str) -> bool:
        """Whether to read from a peer: not while too much of it waits."""
        one, limit = self._peers[peer], self._endurance
        return self.finished or (one.waiting < limit.waiting_frames and one.waiting_bytes < limit.waiting_bytes)

    def outgoing(self, peer: str) -> list[bytes | bytearray]:
        """What to send to a connected peer now, as buffers in order."""
        one = self._peers[peer]
        parts: list[bytes | bytearray] = []
        if one.words:
            parts.extend(one.words)
            one.words.clear()
        if one.resumed and self._journal.is_safe:  # not of a turn whose events could not be written down
            parts.extend(one.delivery.outgoing())
            if one.delivery.taken - one.delivery.told >= _ACKNOWLEDGE_FRAMES:
                one.delivery.told = one.delivery.taken
                parts.append(header(ACKNOWLEDGE, 0, one.delivery.taken))
        return parts

    def has_outgoing(self, peer: str) -> bool:
        """Whether `outgoing` would give anything."""
        one = self._peers[peer]
        return bool(one.words) or (
            one.resumed
            and self._journal.is_safe
            and (one.delivery.has_outgoing() or one.delivery.taken - one.delivery.told >= _ACKNOWLEDGE_FRAMES)
        )

    def leave(self, peer: str) -> None:
        """A peer is gone for good: the algorithm is told at once, and nobody waits for it any more."""
        self.disconnected(peer)
        self._peers[peer].left = True

    def idle_until(self) -> float:
        """Clock time at which a turn is due though nothing arrives; now, if something waits."""
        if self.finished:
            return self._acknowledge_at
        if (self._at_once or self._in_turn) if self.started else self._may_start:
            return self._clock()
        due: list[float] = [self._acknowledge_at]
        if self.started:
            due += self._timers.values()
            due += [self._notice_at(name, one) for name, one in self._peers.items()]
        return min(due)

    def absent(self) -> list[str]:
        """Peers that are not connected and have not finished."""
        return [name for name, one in self._peers.items() if not (one.connected or one.done or one.left)]

    def settled(self) -> bool:
        """Whether this party has finished and everybody has what it sent; and, if it had died, has heard of the end."""
        if not self.finished:
            return False
        hurries = self._clock() >= self._farewell_until
        return all(
            one.done or one.left or (not one.delivery.kept and (hurries or one.delivery.parted))
            for one in self._peers.values()
        )

    def privacy_events(self) -> list[dict[str, Any]]:
        """What this party has released with noise, by kind."""
        return self._ledger.summary()

    def released(self) -> list[dict[str, Any]]:
        """The same, with how often each row was."""
        return self._ledger.by_row()

    def has_work(self) -> bool:
        """Whether a turn would handle something that has arrived."""
        return self.started and not self.finished and bool(self._in_turn or self._at_once)

    @property
    def links(self) -> dict[str, Link]:
        """Every peer, as it is now."""
        return {
            name: Link(one.connected, one.reconnects, len(one.delivery.kept), one.delivery.kept_bytes)
            for name, one in self._peers.items()
        }

    @property
    def checkpoints(self) -> int:
        """How many this party has written in this run, in all its lives."""
        return self._number

    def queue_depth(self) -> int:
        return len(self._at_once) + len(self._in_turn)

    def reconnects(self) -> int:
        return sum(one.reconnects for one in self._peers.values())

    # --- turns ---

    def turn(self) -> bool:
        """Handle what is due: all questions, and one piece of other work. False if nothing was."""
        began = self._clock()
        handled = not self.finished and self._notice(began)
        if not self.started:
            return handled  # a peer that was told to start sooner may have written already; its frames wait
        while self._at_once and not self.finished:
            self._handle(self._at_once.popleft())
            handled = True
        if self._in_turn and not self.finished:
            self._handle(self._in_turn.popleft())
            handled = True
        if handled:
            self._journal.flush()
            if self._slowdown > 1 or self._compute_seconds:
                taken = self._clock() - began
                time.sleep(self._slowdown * max(taken, self._compute_seconds) - taken)
            ended = self._clock()
            self.busy_seconds += ended - began
            self._recorder.interval(self.name, began - self._began, ended - self._began)
            self._save_if_due(ended)
        if began >= self._acknowledge_at:
            self._acknowledge_at = inf
            for one in self._peers.values():
                if one.resumed and one.delivery.taken > one.delivery.told:
                    one.delivery.told = one.delivery.taken
                    one.words.append(header(ACKNOWLEDGE, 0, one.delivery.taken))
        return handled

    def _notice(self, clock: float) -> bool:
        """The start, timers that ran out, and peers that stayed away or came back."""
        if not self.started:
            if not self._may_start:
                return False
            self._start()
            return True
        noticed = False
        for name in sorted(self._timers, key=self._timers.__getitem__):
            if self._timers[name] > clock or self.finished:
                continue  # also one that was set anew a moment ago
            del self._timers[name]
            self._handle_event(TimerFired(self.now(), name))
            noticed = True
        for name, one in self._peers.items():
            if self._notice_at(name, one) <= clock and not self.finished:
                one.lost = not one.lost
                self._handle_event(PeerLost(self.now(), name) if one.lost else PeerReturned(self.now(), name))
                noticed = True
        return noticed

    def _start(self) -> None:
        self.started = True
        self._handle_event(Started(self.now()))
        if self._leads:
            for one in self._peers.values():
                if one.connected:
                    one.words.append(header(START, 0, 0))

    def _notice_at(self, name: str, one: _Peer) -> float:
        """When the algorithm is to be told of a peer's absence or return; never, if it knows."""
        if one.lost:
            return 0.0 if one.connected else inf
        if one.connected or one.done:
            return inf
        if one.left:
            return 0.0
        if one.seen:
            return one.away_since + self._endurance.notice_seconds
        return 0.0 if name in self._without else one.away_since + self._endurance.arrival_seconds

    def _handle_event(self, event: Event) -> None:
        self._journal.append(event)
        self._driver.deliver(event)

    def _handle(self, item: _Waiting) -> None:
        event = Received(self.now(), item.peer, item.message)
        self._journal.append(event, item.frame)
        one = self._peers[item.peer]
        one.waiting -= 1
        one.waiting_bytes -= len(item.frame)
        one.waiting_in_turn -= not item.at_once
        self._deliver(event, item.frame)

    def _deliver(self, event: Received, frame: bytearray) -> None:
        """Let the party handle a message. One that breaks the protocol changes nothing, now and when replayed."""
        one = self._peers[event.sender]
        one.delivery.taken += 1
        self.frames_taken += 1
        if self._acknowledge_at == inf and not self._replaying:
            self._acknowledge_at = self._clock() + _ACKNOWLEDGE_SECONDS  # unless an answer tells it sooner
        if self._leads:
            self._recorder.traffic_of(event.sender).count(type(event.message), len(frame))
        try:
            self._driver.deliver(event, frame)
        except ProtocolError as error:
            self.breaches.append((event.sender, str(error)))

    # --- the port of this party's driver ---

    def transmit(self, to: str, frame: bytearray, message: type[Message]) -> None:
        one = self._peers.get(to)
        if one is None:
            raise RunError(f"{self.name} sent {message.__name__} to {to!r}, who is not in the federation.")
        one.delivery.send(frame)
        if one.done:
            one.delivery.acknowledged(one.delivery.sent)

    def set_timer(self, name: str, seconds: float) -> None:
        now = self._began + self._replayed_now if self._replaying else self._clock()
        self._timers[name] = now + seconds

    def checkpoint(self) -> None:
        """The algorithm finds this a good moment; every moment between two turns is as good here."""

    def finish(self) -> None:
        self.finished = True
        if not self._replaying:
            self.say_done()

    def say_done(self) -> None:
        """Tell everybody that this party has finished: after the frames that it still has for them."""
        for one in self._peers.values():
            one.delivery.last_word = header(DONE, 0, 0)

    # --- checkpoints ---

    def _save_if_due(self, clock: float) -> None:
        since = clock - self._saved_at
        long = self._journal.size_bytes > max(JOURNAL_BYTES, 2 * self._checkpoint_bytes)
        if long or since >= self._endurance.checkpoint_seconds:
            self.save()

    def save(self) -> None:
        """Write the whole state; the journal begins anew after it."""
        self._journal.flush()
        frames: list[bytes | bytearray] = []
        links = {name: one.delivery.state(frames) for name, one in self._peers.items()}
        clock = self._clock()
        values = {
            "now": self.now(),
            "started": self.started,
            "finished": self.finished,
            "restarts": self.restarts,
            "busy_seconds": self.busy_seconds,
            "frames_taken": self.frames_taken,
            "lost": [name for name, one in self._peers.items() if one.lost],
            "done": [name for name, one in self._peers.items() if one.done],
            "timers": {name: due - clock for name, due in self._timers.items()},
            "links": links,
            "frame_sizes": [len(frame) for frame in frames],
            "trace": None if self._trace is None else self._trace.position(),
            "recorder": self._recorder.state(),
        }
        joined = torch.frombuffer(bytearray(b"".join(frames) or b"\0"), dtype=torch.uint8)
        state = State({"frames": joined}, {"station": values})
        state.add("party", self.party.state())
        state.add("ledger", self._ledger.state())
        self._number += 1
        write_checkpoint(self._directory / "checkpoints", self.name, self._number, state)
        self._journal.begin(self._number)
        self._saved_at = clock
        self._checkpoint_bytes = sum(tensor.nbytes for tensor in state.tensors.values())

    def _saved(self) -> State | None:
        """The newest whole checkpoint, its number noted; None if the party is to begin anew."""
        folder = self._directory / "checkpoints"
        numbers = numbers_of(folder, self.name)
        for number in reversed(numbers):
            saved = read_checkpoint(folder, self.name, number)
            if saved is not None:
                self._number = number
                return saved
        first = first_number(self._directory / "journal", self.name)
        if first or (numbers and first is None):
            raise RunError(
                f"None of the checkpoints of {self.name} in {folder} is whole, and the journal does not reach back to "
                "the beginning: what this party has learnt in this run is lost, and an older copy of its directory "
                "would contradict what the others have heard since. Begin a new run, every party in a new directory "
                "(--out)."
            )
        return None

    def _restore(self, saved: State) -> None:
        values: dict[str, Any] = saved.values["station"]
        blob = saved.tensors["frames"].numpy().tobytes()
        frames: list[bytearray] = []
        place = 0
        for size in values["frame_sizes"]:
            frames.append(bytearray(blob[place : place + size]))
            place += size
        for name, link in values["links"].items():
            self._peers[name].delivery.restore(link, frames)
        for name in values["lost"]:
            self._peers[name].lost = True
        for name in values["done"]:
            self._peers[name].done = True
        clock = self._clock()
        self._timers = {name: clock + left for name, left in values["timers"].items()}
        self.started = values["started"]
        self.finished = values["finished"]
        self.busy_seconds = values["busy_seconds"]
        self.frames_taken = values["frames_taken"]
        self._recorder.restore(values["recorder"])
        self._ledger.restore(saved.part("ledger"))
        self.party.restore(saved.part("party"))

    def _replay(self) -> None:
        """Handle the events of the journal again; what they send is what was sent."""
        self._replaying = True
        last = 0.0
        for record in events_after(self._directory / "journal", self.name, self._number):
            event = event_of(record)
            last = self._replayed_now = event.now
            match event:
                case Received():
                    self._deliver(event, bytearray(record.fields[2]))
                    continue
                case Started():
                    self.started = True
                case TimerFired(_, timer):
                    self._timers.pop(timer, None)
                case PeerLost(_, peer):
                    self._peers[peer].lost = True
                case PeerReturned(_, peer):
                    self._peers[peer].lost = False
            self._driver.deliver(event)
        # The run's time goes on after the last event; timers run out in it, however often the party has died.
        shift = min(0.0, self._clock() - last - self._began)
        self._began += shift
        self._timers = {name: due + shift for name, due in self._timers.items()}
        self.breaches.clear()
        self._ledger.settle(journal_is_synced=self._endurance.sync)
        self._replaying = False
        if self.finished:
            self.say_done()

    def close(self) -> None:
        self._journal.flush()
        self._journal.close()
        if self._trace is not None:
            self._trace.close()
        self._ledger.close()
