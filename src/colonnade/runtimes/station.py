"""One party in real time, turn by turn: what it handles, and that it can be rebuilt after its own death.

A station knows nothing of sockets. A carrier (Unix sockets, gRPC, Ray) tells it who is connected and hands it bytes;
the station gives back the bytes to send. Each turn: take events, write them to the journal, let the party handle them,
and only then let their effects out. Killed at any moment, it is rebuilt from its last whole checkpoint and the journal
to the state it had, with the same outgoing frames under the same numbers; peers drop what they had already.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.errors import ProtocolError
from colonnade.messages import Message
from colonnade.party import Event, Party, PeerLost, PeerReturned, Received, Started, TimerFired
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.checkpoint import joined_frames, split_frames
from colonnade.runtimes.driver import Driver
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.keeper import Keeper
from colonnade.runtimes.links import Link, Links, Peers, Waiting
from colonnade.runtimes.recorder import Recorder
from colonnade.state import State
from colonnade.trace import TraceWriter
from colonnade.wire.codec import DEFAULT_LIMITS, Limits

FAREWELL_SECONDS = 3.0
"""How long a party that died after its end looks for those who may not have heard of it: who waits for it is there."""


@dataclass(frozen=True)
class Recording:
    """What is recorded of a party besides its journal."""

    recorder: Recorder
    ledger: Callable[[int], Ledger]  # opens it at the position of a checkpoint; 0: anew
    trace: bool = False


@dataclass(frozen=True)
class Pace:
    """For trials: how slow a party is."""

    slowdown: float = 1.0
    compute_seconds: float = 0.0  # handling takes at least so long

    def rest_seconds(self, taken: float) -> float:
        """How much longer a turn is to last that has taken so long."""
        return self.slowdown * max(taken, self.compute_seconds) - taken


FULL_SPEED = Pace()


class Station:
    """A party that is given its turns; its links and its keeper do the rest."""

    def __init__(
        self,
        name: str,
        party: Party,
        peers: Peers,
        directory: Path,
        recording: Recording,
        *,
        endurance: Endurance | None = None,
        limits: Limits = DEFAULT_LIMITS,
        pace: Pace = FULL_SPEED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.peers = frozenset(peers.names)
        self.party = party
        self.finished = False
        self.started = False
        self.breaches: deque[tuple[str, str]] = deque()  # who broke the protocol, and how; the carrier drops them
        self.busy_seconds = 0.0
        self.frames_taken = 0
        self._leads = name == peers.label_party
        self._recorder = recording.recorder
        self._pace = pace if pace != FULL_SPEED else None
        self._clock = clock
        self._timers: dict[str, float] = {}
        self._replaying_at: float | None = None  # the time of the event that is handled again, while there are such
        endurance = endurance or Endurance()
        self._keeper = Keeper(name, directory, endurance)
        saved = self._keeper.load()
        values = saved.values["station"] if saved else {}
        self.restarts = self._keeper.begin_life()
        self._links = Links(name, peers, endurance, limits, clock, self.restarts)
        self._began: float = clock() - values.get("now", 0.0)
        self._ledger = recording.ledger(saved.part("ledger").values["position"] if saved else 0)
        self._trace: TraceWriter | None = None
        if recording.trace:
            self._trace = TraceWriter(directory / "trace" / f"{name}.trace", values.get("trace"))
        self._driver = Driver(name, party, self, self._ledger, self._recorder, self._trace)
        if saved:
            self._restore(saved)
        else:
            self._recorder.forget()
        self._replay()
        self._ledger.settle(journal_is_synced=endurance.sync)
        self._keeper.open(clock())
        self._links.begin()
        # A life that begins after the end may follow one that was killed before it could say so.
        self._farewell_until = clock() + FAREWELL_SECONDS if self.finished else 0.0

    # --- what the carrier tells ---

    def connected(self, peer: str) -> None:
        """A connection to a peer stands; both sides begin by saying what they hold."""
        self._links.connect(peer)
        if self._leads and self.started:
            self._links.say_start(peer)

    def disconnected(self, peer: str) -> None:
        """The connection to a peer is gone. It counts as lost only if it stays away."""
        self._links.disconnect(peer)

    def leave(self, peer: str) -> None:
        """A peer is gone for good: the algorithm is told at once, and nobody waits for it any more."""
        self._links.leave(peer)

    def received(self, peer: str, data: bytes | bytearray | memoryview) -> None:
        """Bytes from a peer. ProtocolError: the carrier must close that connection."""
        self._links.received(peer, data)

    # --- what the carrier asks ---

    def now(self) -> float:
        """Wall seconds of the run, those before a restart included."""
        return self._clock() - self._began

    def wants_more(self, peer: str) -> bool:
        """Whether to read from a peer: not while too much of it waits."""
        return self._links.wants_more(peer)

    def outgoing(self, peer: str) -> list[bytes | bytearray]:
        """What to send to a connected peer now, as buffers in order."""
        # No frames of a turn whose events could not be written down.
        return self._links.outgoing(peer, frames=self._keeper.journal.is_safe)

    def has_outgoing(self, peer: str) -> bool:
        """Whether `outgoing` would give anything."""
        return self._links.has_outgoing(peer, frames=self._keeper.journal.is_safe)

    def idle_until(self) -> float:
        """Clock time at which a turn is due though nothing arrives; now, if something waits."""
        links = self._links
        if self.finished:
            return links.acknowledge_at
        if (links.at_once or links.in_turn) if self.started else links.may_start:
            return self._clock()
        due: list[float] = [links.acknowledge_at]
        if self.started:
            due += self._timers.values()
            due += [links.notice_at(peer) for peer in links.peers]
        return min(due)

    def has_work(self) -> bool:
        """Whether a turn would handle something that has arrived."""
        return self.started and not self.finished and bool(self._links.in_turn or self._links.at_once)

    def absent(self) -> list[str]:
        """Peers that are not connected and have not finished."""
        return self._links.absent()

    def settled(self) -> bool:
        """Whether this party has finished and everybody has what it sent; and, if it had died, has heard of the end."""
        return self.finished and self._links.settled(hurries=self._clock() >= self._farewell_until)

    # --- what its operator asks ---

    @property
    def links(self) -> dict[str, Link]:
        """Every peer, as it is now."""
        return self._links.now()

    @property
    def checkpoints(self) -> int:
        """How many this party has written in this run, in all its lives."""
        return self._keeper.number

    def queue_depth(self) -> int:
        return self._links.queue_depth()

    def reconnects(self) -> int:
        return sum(peer.reconnects for peer in self._links.peers.values())

    def privacy_events(self) -> list[dict[str, Any]]:
        """What this party has released with noise, by kind."""
        return self._ledger.summary()

    def released(self) -> list[dict[str, Any]]:
        """The same, with how often each row was."""
        return self._ledger.by_row()

    # --- turns ---

    def turn(self) -> bool:
        """Handle what is due: all questions, and one piece of other work. False if nothing was."""
        began = self._clock()
        handled = not self.finished and self._notice(began)
        if not self.started:
            return handled  # a peer that was told to start sooner may have written already; its frames wait
        links = self._links
        while links.at_once and not self.finished:
            self._handle(links.at_once.popleft())
            handled = True
        if links.in_turn and not self.finished:
            self._handle(links.in_turn.popleft())
            handled = True
        if handled:
            self._keeper.journal.flush()
            if self._pace is not None:
                time.sleep(self._pace.rest_seconds(self._clock() - began))
            ended = self._clock()
            self.busy_seconds += ended - began
            self._recorder.interval(self.name, began - self._began, ended - self._began)
            if self._keeper.is_due(ended):
                self.save()
        if began >= links.acknowledge_at:
            links.acknowledge()
        return handled

    def _notice(self, clock: float) -> bool:
        """The start, timers that ran out, and peers that stayed away or came back."""
        if not self.started:
            if not self._links.may_start:
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
        for name, peer in self._links.peers.items():
            if self._links.notice_at(name) <= clock and not self.finished:
                peer.told_lost = not peer.told_lost
                self._handle_event(PeerLost(self.now(), name) if peer.told_lost else PeerReturned(self.now(), name))
                noticed = True
        return noticed

    def _start(self) -> None:
        self.started = True
        self._handle_event(Started(self.now()))
        if self._leads:
            self._links.say_start(*self._links.peers)

    def _handle_event(self, event: Event) -> None:
        self._keeper.journal.append(event)
        self._driver.deliver(event)

    def _handle(self, item: Waiting) -> None:
        event = Received(self.now(), item.peer, item.message)
        self._keeper.journal.append(event, item.frame)
        self._links.take_up(item)
        self._deliver(event, item.frame)

    def _deliver(self, event: Received, frame: bytearray) -> None:
        """Let the party handle a message. One that breaks the protocol changes nothing, now and when replayed."""
        self._links.handled(event.sender)
        self.frames_taken += 1
        if self._leads:
            self._recorder.traffic_of(event.sender).count(type(event.message), len(frame))
        try:
            self._driver.deliver(event, frame)
        except ProtocolError as error:
            self.breaches.append((event.sender, str(error)))

    # --- the port of this party's driver ---

    def transmit(self, to: str, frame: bytearray, message: type[Message]) -> None:
        self._links.send(to, frame, message)

    def set_timer(self, name: str, seconds: float) -> None:
        now = self._clock() if self._replaying_at is None else self._began + self._replaying_at
        self._timers[name] = now + seconds

    def checkpoint(self) -> None:
        """The algorithm finds this a good moment; every moment between two turns is as good here."""

    def finish(self) -> None:
        self.finished = True
        self._links.finish()

    # --- lives ---

    def save(self) -> None:
        """Write the whole state; the journal begins anew after it."""
        self._keeper.journal.flush()
        frames: list[bytes | bytearray] = []
        links = self._links.state(frames)
        clock = self._clock()
        values = {
            "now": self.now(),
            "started": self.started,
            "finished": self.finished,
            "restarts": self.restarts,
            "busy_seconds": self.busy_seconds,
            "frames_taken": self.frames_taken,
            "lost": self._links.lost(),
            "done": self._links.done(),
            "timers": {name: due - clock for name, due in self._timers.items()},
            "links": links,
            "frame_sizes": [len(frame) for frame in frames],
            "trace": None if self._trace is None else self._trace.position(),
            "recorder": self._recorder.state(),
        }
        state = State({"frames": joined_frames(frames)}, {"station": values})
        state.add("party", self.party.state())
        state.add("ledger", self._ledger.state())
        self._keeper.save(state, clock)

    def _restore(self, saved: State) -> None:
        values: dict[str, Any] = saved.values["station"]
        frames = split_frames(saved.tensors["frames"], values["frame_sizes"])
        self._links.restore(values["links"], frames, values["lost"], values["done"])
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
        last = 0.0
        for event, frame in self._keeper.events():
            last = self._replaying_at = event.now
            match event:
                case Received() if frame is not None:
                    self._deliver(event, frame)
                    continue
                case Started():
                    self.started = True
                case TimerFired(_, timer):
                    self._timers.pop(timer, None)
                case PeerLost(_, peer):
                    self._links.peers[peer].told_lost = True
                case PeerReturned(_, peer):
                    self._links.peers[peer].told_lost = False
            self._driver.deliver(event)
        # The run's time goes on after the last event; timers run out in it, however often the party has died.
        shift = min(0.0, self._clock() - last - self._began)
        self._began += shift
        self._timers = {name: due + shift for name, due in self._timers.items()}
        self.breaches.clear()
        self._replaying_at = None
        if self.finished:
            self._links.finish()

    def close(self) -> None:
        self._keeper.close()
        if self._trace is not None:
            self._trace.close()
        self._ledger.close()
