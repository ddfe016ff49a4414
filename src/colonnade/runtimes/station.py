"""One party in real time, turn by turn: what it handles, and that it can be rebuilt after its own death.

A station knows nothing of sockets. A carrier (Unix sockets, TLS, gRPC, Ray) tells it who is connected and hands it
bytes; it gives back the bytes to send. Each turn: take events, let the party handle them, write them to the journal,
and only then let their effects out. Killed at any moment, it is rebuilt from its last whole checkpoint and the journal
to the state it had, with the same outgoing frames under the same numbers; peers drop what they had already.

A message is judged before it is written down. One that breaks the protocol, or that the party cannot handle, costs its
sender the place in the run and nobody anything else: the party is set back to the state before, its sender expelled.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

from colonnade.errors import ColonnadeError, ProtocolError, RunError, TrainingError
from colonnade.messages import Message
from colonnade.party import Event, Extended, Party, PeerLost, PeerReturned, Received, Started, TimerFired
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.checkpoint import CheckpointError, joined_frames, split_frames
from colonnade.runtimes.delivery import ForgottenError
from colonnade.runtimes.driver import Answer, Driver, encoded
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.journal import Expelled
from colonnade.runtimes.keeper import Keeper
from colonnade.runtimes.links import Links, Peers
from colonnade.runtimes.pace import FULL_SPEED, Pace
from colonnade.runtimes.peer import Link, Waiting
from colonnade.runtimes.quarantine import Quarantine, is_our_own, kind_and_place
from colonnade.runtimes.recorder import Recorder
from colonnade.state import State
from colonnade.trace import TraceWriter
from colonnade.wire.codec import DEFAULT_LIMITS, Limits

log = logging.getLogger("colonnade.station")

_UNHANDLED = "What it sent could not be handled."
FAREWELL_SECONDS = 3.0
"""How long a party that died after its end looks for those who may not have heard of it: who waits for it is there."""


@dataclass(frozen=True)
class Recording:
    """What is recorded of a party besides its journal."""

    recorder: Recorder
    ledger: Callable[[int], Ledger]  # opens it at the position of a checkpoint; 0: anew
    trace: bool = False


@dataclass(frozen=True)
class Guard:
    """How a party treats peers that break the protocol, or send what it cannot handle.

    `build` makes the party as it was before its first event: with it, such peers are expelled and the party is built
    again. Without, all parties are one user's: an error is a defect, and ends the run where it can be seen.
    """

    build: Callable[[], Party] | None = None
    passes_over: bool = False  # what cannot be handled again, in a journal of before; its sender is expelled


TRUSTING = Guard()


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
        guard: Guard = TRUSTING,
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
        self.expelled: dict[str, str] = {}  # who is put out of this run, and why
        self._leads = name == peers.label_party
        self._guard = guard
        self.extension = 0  # how often the plan was extended after the end
        self._directory = directory
        self._recorder = recording.recorder
        self._pace = None if pace.is_full_speed else pace
        self.is_paused = pace.paused
        self.clock = clock
        self._timers: dict[str, float] = {}
        self._replaying_at: float | None = None  # the time of the event that is handled again, while there are such
        endurance = endurance or Endurance()
        self._silent_seconds = endurance.silent_seconds
        self._services_a_turn = endurance.services_a_turn
        self.gathers = self._services_a_turn > 1  # then a turn is better taken when more has come
        self._keeper = Keeper(name, directory, endurance)
        saved = self._keeper.load()
        values = saved.values["station"] if saved else {}
        self.restarts = self._keeper.begin_life()
        self._links = Links(name, peers, endurance, limits, clock, self.restarts, guard.build is not None)
        self._began: float = clock() - values.get("now", 0.0)
        self._ledger = recording.ledger(saved.part("ledger").values["position"] if saved else 0)
        self._trace: TraceWriter | None = None
        if recording.trace:
            self._trace = TraceWriter(directory / "trace" / f"{name}.trace", values.get("trace"))
        self._driver = Driver(name, party, self, self._ledger, self._recorder, self._trace)
        self._take_up(saved, endurance)

    def _take_up(self, saved: State | None, endurance: Endurance) -> None:
        """Become what the lives before this one were at their end."""
        if saved:
            self._restore(saved)
        else:
            self._recorder.forget()
        try:
            passed_over = self._replay()
            self._check_not_over(self.clock())  # what ended a life before this one ends it again
        except BaseException:
            self._ledger.abandon()
            if self._trace is not None:
                self._trace.close()
            raise
        self._ledger.settle(journal_is_synced=endurance.sync)
        self._keeper.open(self.clock())
        self._keeper.attend(self.party.state())
        self._links.begin()
        for peer, why in passed_over.items():
            self._expel(peer, why)
        if passed_over:
            self.save()  # the journal, which still has the events, begins anew
        # A life that begins after the end may follow one that was killed before it could say so.
        self._farewell_until = self.clock() + FAREWELL_SECONDS if self.finished else 0.0

    def extend(self, extension: int) -> None:
        """The plan was extended after the end, so many times by now: begin again, with the party as it was then."""
        if not self.finished:
            raise RunError(f"{self.name} has not finished, so it cannot go on to more epochs.")
        self.started, self.finished, self.extension, self._farewell_until = False, False, extension, 0.0
        self._timers.clear()
        self._links.extend()
        if self._replaying_at is None:
            self.save()

    # --- what the carrier tells ---

    def connected(self, peer: str) -> None:
        """A connection to a peer stands; both sides begin by saying what they hold."""
        if self._links.is_gone(peer):
            self.breaches.append((peer, self._links.farewell(peer)))
            return
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
        try:
            self._links.received(peer, data)
        except ForgottenError:
            raise
        except ProtocolError as error:
            if self._guard.build is not None and self._links.is_beyond_bearing(peer):
                self._expel(peer, str(error))
            raise

    # --- what the carrier asks ---

    def now(self) -> float:
        """Wall seconds of the run, those before a restart included."""
        return self.clock() - self._began

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

    def to_tell(self) -> list[str]:
        """The connected peers to whom `outgoing` would give anything."""
        return self._links.to_tell(frames=self._keeper.journal.is_safe)

    def idle_until(self) -> float:
        """Clock time at which a turn is due though nothing arrives; now, if something waits."""
        links = self._links
        if self.is_paused():
            return inf
        if self.finished:
            return links.acknowledge_at
        if (links.busy if self.started else links.may_start) or not self._keeper.journal.is_safe:
            return self.clock()
        return min(links.acknowledge_at, *((links.notice_due(), *self._timers.values()) if self.started else (inf,)))

    def has_work(self) -> bool:
        """Whether a turn would handle something that has arrived."""
        return self.started and not self.finished and bool(self._links.busy)

    def absent(self) -> list[str]:
        """Peers that are not connected and have not finished."""
        return self._links.absent()

    def settled(self) -> bool:
        """Whether this party has finished and everybody has what it sent; and, if it had died, has heard of the end."""
        hurries = self.clock() >= self._farewell_until
        return self.finished and self._links.settled(hurries, parts=self._farewell_until > 0)

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
        """Handle what is due: a question of each peer, and one piece of other work. False if nothing was.

        Where the journal goes to the disk, which takes long, several times that: the disk is waited for once.
        """
        if self.is_paused():
            return False
        began = self.clock()
        handled = not self.finished and self._notice(began)
        links = self._links
        if not self.started:  # a peer that was told to start sooner may have written already; its frames wait
            self._keeper.journal.flush()  # perhaps that somebody was expelled
            self._check_not_over(began)
            return handled
        for _ in range(self._services_a_turn):
            if not links.busy or self.finished or self.breaches:
                break
            self._serve()
            handled = True
        self._keeper.journal.flush()
        if handled:
            if self._pace is not None:
                time.sleep(self._pace.rest_seconds(self.clock() - began))
            ended = self.clock()
            self.busy_seconds += ended - began
            self._recorder.interval(self.name, began - self._began, ended - self._began)
            if self._keeper.is_due(ended):
                self._try_to_save(ended)
        if links.gone_at < inf:
            self._check_not_over(began)
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
        for name in sorted(self._timers, key=self._timers.__getitem__) if self._timers else ():
            if self._timers[name] > clock or self.finished:
                continue  # also one that was set anew a moment ago
            del self._timers[name]
            self._handle_event(TimerFired(self.now(), name))
            noticed = True
        for name in self._links.to_notice(clock):
            if not self.finished and self._links.notice(name, clock):
                is_lost = self._links.peers[name].told_lost
                self._handle_event(PeerLost(self.now(), name) if is_lost else PeerReturned(self.now(), name))
                noticed = True
        return noticed

    def _serve(self) -> None:
        """Questions first, but one of each peer at most; then one piece of work, of the peer whose turn it is.

        So who asks or sends more than the others waits longer, and takes no more of this party's time than its share.
        """
        links = self._links
        for peer in tuple(links.busy):
            if peer.queue and peer.queue[0].message.answered_on_arrival:  # never before what it had sent earlier
                self._handle(links.next_of(peer))
                if self.finished:
                    return
        if links.busy:
            self._handle(links.next_piece())

    def _start(self) -> None:
        self.started = True
        self._handle_event(Extended(self.now()) if self.extension else Started(self.now()))
        if self._leads:
            self._links.say_start(*self._links.peers)

    def _handle_event(self, event: Event) -> None:
        answer = encoded(self.party.handle(event))
        self._keeper.journal.append(event)
        self._driver.perform(event, answer)
        if self._links.overfull:
            self._part_with_overfull()

    def _handle(self, item: Waiting) -> None:
        """Let the party handle a message; what it cannot is its sender's fault, and is not written down as handled."""
        event = Received(self.now(), item.peer, item.message)
        refused: ProtocolError | None = None
        answer: Answer = []
        try:
            try:
                effects = self.party.handle(event)
            except ProtocolError as error:  # by contract it has changed nothing
                refused = error
            else:
                answer = encoded(effects)
        except Exception as error:
            if self._guard.build is None or is_our_own(error) or self._is_the_runs_own(error):
                raise
            self._set_back(item, event, error)
            return
        if refused is not None:
            self._refuse(item.peer, str(refused))
            return
        self._keeper.journal.append(event, item.frame)
        self._links.handled(item.peer)
        self._perform(event, answer, item.frame)
        if self._links.overfull:
            self._part_with_overfull()

    def _perform(self, event: Received, answer: Answer, frame: bytearray) -> None:
        self.frames_taken += 1
        if self._leads:
            self._recorder.traffic_of(event.sender).count(type(event.message), len(frame))
        self._driver.perform(event, answer, frame)

    # --- peers that mean harm ---

    def _refuse(self, peer: str, why: str) -> None:
        """A message broke the protocol. No honest peer sends one, so the first is enough to part with its sender."""
        self.breaches.append((peer, why))
        if self._guard.build is not None:
            self._expel(peer, why, by_frame=True)

    def _set_back(self, item: Waiting, event: Received, error: Exception) -> None:
        """A message led to an error: the party's state cannot be trusted, so it becomes the one before again."""
        self._put_aside(event, item.frame, error)
        self._keeper.journal.flush()
        self._rebuild(self._keeper.recall(), (one for one, _ in self._keeper.events() if not isinstance(one, Expelled)))
        # Neither the error nor its words are the peer's to know.
        self._refuse(item.peer, _UNHANDLED)

    def _is_the_runs_own(self, error: Exception) -> bool:
        """Whether the training failed; or an error that we have words for has met a second peer.

        A training is judged by many messages, and large numbers were judged before: who sent the last is not to blame.
        Anything else one peer can bring about by a lie, and pays for it; what the next one brings about too is ours.
        """
        if isinstance(error, TrainingError):
            return True
        return isinstance(error, ColonnadeError) and _UNHANDLED in self.expelled.values()

    def _put_aside(self, event: Received, frame: bytearray, error: Exception) -> None:
        said = f": {error}" if isinstance(error, ColonnadeError) else ""
        try:
            kept = Quarantine(self._directory, self.name).put(event, frame, error)
        except OSError:
            kept = None
        log.error(
            "%s of %s could not be handled, %s in %s%s; %s",
            *(type(event.message).__name__, event.sender, *kind_and_place(error), said),
            f"it is kept in {kept}" if kept is not None else "there was no room to keep it",
        )

    def _rebuild(self, saved: State | None, events: Iterable[Event]) -> None:
        """The party alone is built again, and becomes what it was after these events; what they send was sent."""
        assert self._guard.build is not None, "who expels nobody is not set back either"
        party = self._guard.build()
        if saved is not None:
            party.restore(saved.part("party"))
        for event in events:
            party.handle(event)
        self.party = self._driver.party = party
        self._keeper.attend(party.state())

    def _expel(self, peer: str, why: str, by_frame: bool = False) -> None:
        """Put a peer out of the run, for good: nobody waits for it, and no later life lets it in again."""
        if peer in self.expelled:
            return
        log.error("%s is expelled from this run: %s", peer, why)
        self._put_out(peer, why, by_frame)
        self._keeper.journal.expel(Expelled(self.now(), peer, why, by_frame))

    def _put_out(self, peer: str, why: str, by_frame: bool = False) -> None:
        """Now, or again after a restart; `by_frame`: for a frame, which then counts as taken."""
        self.expelled[peer] = why
        self._links.expel(peer, why)
        if by_frame:
            self._links.handled(peer)

    def _part_with_overfull(self) -> None:
        """Who is away while more is kept for it than may be is away for good."""
        while self._links.overfull and self._guard.build is not None:
            peer = self._links.overfull.pop()
            self._expel(peer, "It was away while more was sent to it than can be kept.")

    def _check_not_over(self, clock: float) -> None:
        """Nobody waits for ever: who has lost everybody that it could hear from says so and ends.

        A label party that has timers may still end by itself, and a party that has expelled nobody may have been told
        of an end that it has not come to yet.
        """
        links = self._links
        if links.gone_at == inf or self.finished or self.breaches:  # of which the carrier is told first
            return
        if (links.busy and self.started) or not links.is_over_for(self._leads):
            return
        if (self._timers and self._leads) or (clock - links.gone_at < self._silent_seconds and not self.expelled):
            return
        whom = "the label party" if not self._leads else "every other party"
        names = ", ".join(f"{name} ({why})" for name, why in self.expelled.items())
        raise RunError(
            f"{self.name} cannot go on: {whom} is gone for good before the training's end. "
            + (f"Expelled were: {names}" if names else "Nobody was expelled: ask them why they ended.")
        )

    # --- the port of this party's driver ---

    def transmit(self, to: str, frame: bytearray, message: type[Message]) -> None:
        self._links.send(to, frame, message)

    def set_timer(self, name: str, seconds: float) -> None:
        now = self.clock() if self._replaying_at is None else self._began + self._replaying_at
        self._timers[name] = now + seconds

    def checkpoint(self) -> None:
        """The algorithm finds this a good moment; every moment between two turns is as good here."""

    def finish(self) -> None:
        self.finished = True
        self._links.finish()

    # --- lives ---

    def save(self, beside: bool = False) -> None:
        """Write the whole state; the journal begins anew after it. `beside`: a large one while the party goes on."""
        self._keeper.journal.flush()
        frames: list[bytes | bytearray] = []
        links, clock = self._links.state(frames), self.clock()
        values = {
            "now": self.now(),
            "started": self.started,
            "finished": self.finished,
            "restarts": self.restarts,
            "busy_seconds": self.busy_seconds,
            "frames_taken": self.frames_taken,
            "lost": self._links.lost(),
            "done": self._links.done(),
            "expelled": self.expelled,
            "timers": {name: due - clock for name, due in self._timers.items()},
            "links": links,
            "frame_sizes": [len(frame) for frame in frames],
            "trace": None if self._trace is None else self._trace.position(),
            "recorder": self._recorder.state(),
            **({"extension": self.extension} if self.extension else {}),
        }
        state = State({"frames": joined_frames(frames)}, {"station": values})
        state.add("party", self.party.state())
        state.add("ledger", self._ledger.state())
        self._keeper.save(state, clock, beside)

    def _try_to_save(self, clock: float) -> None:
        """A disk that takes no checkpoint is this party's own trouble, and not yet its end: the journal has it all."""
        try:
            self.save(beside=True)
        except (CheckpointError, OSError) as error:
            self._keeper.put_off(error, clock)

    def _restore(self, saved: State) -> None:
        values: dict[str, Any] = saved.values["station"]
        frames = split_frames(saved.tensors["frames"], values["frame_sizes"])
        self._links.restore(values["links"], frames, values["lost"], values["done"])
        for peer, why in values.get("expelled", {}).items():
            self._put_out(peer, why)
        clock = self.clock()
        self._timers = {name: clock + left for name, left in values["timers"].items()}
        self.started, self.finished, self.extension = values["started"], values["finished"], values.get("extension", 0)
        self.busy_seconds, self.frames_taken = values["busy_seconds"], values["frames_taken"]
        self._recorder.restore(values["recorder"])
        self._ledger.restore(saved.part("ledger"))
        self.party.restore(saved.part("party"))

    def _replay(self) -> dict[str, str]:
        """Handle the events of the journal again; what they send is what was sent.

        Gives whom to expel for what was passed over.
        """
        last = 0.0
        passed_over: dict[int, Received] = {}  # by place in the journal
        for place, (event, frame) in enumerate(self._keeper.events()):
            last = self._replaying_at = event.now
            match event:
                case Expelled(_, peer, why, by_frame):
                    self._put_out(peer, why, by_frame)
                    continue
                case Received() if frame is not None:
                    if (answer := self._handled_again(event, frame, place, passed_over)) is not None:
                        self._perform(event, answer, frame)
                    continue
                case Started() | Extended():
                    if self.started:  # the checkpoint that began the extension is torn
                        self.extend(self.extension + 1)
                    self.started = True
                case TimerFired(_, timer):
                    self._timers.pop(timer, None)
                case PeerLost(_, peer):
                    self._links.peers[peer].told_lost = True
                case PeerReturned(_, peer):
                    self._links.peers[peer].told_lost = False
            self._driver.deliver(event)
        # The run's time goes on after the last event; timers run out in it, however often the party has died.
        shift = min(0.0, self.clock() - last - self._began)
        self._began += shift
        self._timers = {name: due + shift for name, due in self._timers.items()}
        self._replaying_at = None
        if self.finished:
            self._links.finish()
        return {event.sender: _UNHANDLED for event in passed_over.values()}

    def _handled_again(
        self, event: Received, frame: bytearray, place: int, passed_over: dict[int, Received]
    ) -> Answer | None:
        """What the party answers to a message of the journal; None if it cannot, and that is to be passed over."""
        self._links.handled_again(event.sender)
        try:
            return encoded(self.party.handle(event))
        except Exception as error:
            if self._guard.build is None or is_our_own(error):
                raise
            if not self._guard.passes_over:
                raise RunError(
                    f"{self.name} cannot handle again what {event.sender} sent: the message "
                    f"{type(event.message).__name__}, event {place + 1} of the journal of {self.name} in "
                    f"{self._directory / 'journal'}, ends in {type(error).__name__}. To put the message into "
                    f"quarantine, expel {event.sender} and go on without both, start this party once with --quarantine."
                ) from error
            self._put_aside(event, frame, error)
            passed_over[place] = event
            before = enumerate(islice(self._keeper.events(), place))
            good = (one for at, (one, _) in before if at not in passed_over and not isinstance(one, Expelled))
            self._rebuild(self._keeper.recall(), good)
            return None

    def close(self) -> None:
        self._keeper.close()
        if self._trace is not None:
            self._trace.close()
        self._ledger.close()
