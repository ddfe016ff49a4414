"""Virtual time on a heap: every party in one process, the real codec on every message, same seed same trace.

A party handles one event at a time. Handling takes compute seconds and happens at their end: what arrives meanwhile
waits in the party's inbox, except messages declared to be answered on arrival (the papers' listener thread), which
see the state before the work under way.

A party that crashes loses its inbox and the work under way; its state survives (it was journalled). Frames to it are
kept by their senders and sent again when it is back.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop
from math import inf
from pathlib import Path

from colonnade.errors import RunError
from colonnade.party import Extended, Party, PeerLost, PeerReturned, Started, TimerFired
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.checkpoint import write_checkpoint
from colonnade.runtimes.driver import Driver
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.simulate.agenda import (
    Acknowledged,
    Agenda,
    Begin,
    Crash,
    Item,
    Letter,
    Lost,
    Retry,
    Return,
    Returned,
    Ring,
    TimerDue,
    WorkEnd,
    named,
)
from colonnade.runtimes.simulate.links import Links
from colonnade.runtimes.simulate.places import LastFrame, Place, measured_as
from colonnade.runtimes.simulate.settings import Simulate, SimulatedParty
from colonnade.runtimes.simulate.snapshot import restore, snapshot
from colonnade.state import State
from colonnade.trace import TraceWriter


class Simulation:
    """A federation in virtual time."""

    def __init__(
        self,
        parties: Mapping[str, Party],
        settings: Simulate,
        seed: int,
        recorder: Recorder,
        ledger: Ledger,
        *,
        directory: Path | None = None,
        trace: bool = False,
        resume: Mapping[str, State] | None = None,
        checkpoint_seconds: float = 30.0,
        stop_requested: Callable[[], bool] = lambda: False,
    ) -> None:
        settings.check_parties(parties)
        self._settings = settings
        self._recorder = recorder
        self._ledger = ledger
        self._directory = directory
        self._stop_requested = stop_requested
        self._checkpoints = 0
        self.extension = 0  # how often the plan was extended after the end
        self._checkpoint_seconds = checkpoint_seconds
        self._saved_at = time.perf_counter()
        self._agenda = Agenda()
        by_name: dict[str, Place] = {}
        frames = LastFrame()
        self._links = Links(settings, seed, self._agenda, by_name)
        for index, name in enumerate(parties):
            leads = name == recorder.label_party
            by_name[name] = Place(index, name, self._agenda, frames, self._links.transmit, settings, seed, leads)
        self._places = [*by_name.values()]
        saved = resume["simulate"].values if resume else None
        self._traces: dict[str, TraceWriter] = {}
        if trace and directory is not None:
            for name in parties:
                at = saved["traces"].get(name) if saved else None
                self._traces[name] = TraceWriter(directory / "trace" / f"{name}.trace", at)
        for name, party in parties.items():
            place = by_name[name]
            place.driver = Driver(name, party, place, ledger, recorder, self._traces.get(name))
        if resume:
            self._restore(resume)
        else:
            self._begin()

    def _begin(self) -> None:
        for place in self._places:
            self._offer(place, Begin())
            own = self._settings.parties.get(place.name, SimulatedParty())
            for away, back in own.crashes:
                self._agenda.enter(away, place.index, Crash())
                if back < inf:
                    self._agenda.enter(back, place.index, Return())

    def extend(self, extension: int) -> None:
        """Everybody has finished, and goes on: of what was under way then, absences and returns alone are left.

        `extension`: how often the plan was extended, this time included.
        """
        self.extension = extension
        agenda = self._agenda
        agenda.restore(
            agenda.now, agenda.number, [due for due in agenda.entries if isinstance(due.what, Crash | Return)]
        )
        self._links.forget()
        for place in self._places:
            place.finished = False
            place.timers.clear()
            place.missed_timers = []
        for place in self._places:
            place.driver.deliver(Extended(self.now))

    @property
    def now(self) -> float:
        """Virtual seconds since the run began."""
        return self._agenda.now

    @property
    def places(self) -> Sequence[Place]:
        """Every party's, for whoever looks on."""
        return self._places

    @property
    def retransmitted_bytes(self) -> int:
        """Of frames that were sent again because no acknowledgement had come."""
        return self._links.retransmitted_bytes

    # --- the loop ---

    def run(self) -> bool:
        """Go on until every party has finished that is there or will return. False if it was asked to stop before."""
        agenda, links, places = self._agenda, self._links, self._places
        entries = agenda.entries
        while True:
            if links.off_clock:
                links.settle_off_clock()
            if agenda.presence_changed:
                agenda.presence_changed = False
                if all(place.finished or place.away for place in places) and not self._a_return_is_due():
                    break
            if agenda.checkpoint_due:
                self._save_if_due()
            if self._stop_requested():
                self.save()
                return False
            if not entries:
                break
            due = heappop(entries)
            agenda.now = due.when
            place, what = places[due.place], due.what
            if isinstance(what, Letter):
                self._arrive(place, what)
            elif isinstance(what, WorkEnd):
                if what.number == place.work_number and place.current is not None:
                    self._end_work(place, place.current)
            elif isinstance(what, TimerDue):
                self._ring(place, what)
            elif isinstance(what, Retry):
                links.retry(what)
            elif isinstance(what, Acknowledged):
                links.acknowledged(what)
            elif isinstance(what, Crash):
                self._crash(place)
            elif isinstance(what, Return):
                self._return(place)
            elif not place.away:  # it is told of a peer
                self._offer(place, what)
        self._check_finished()
        return True

    def _a_return_is_due(self) -> bool:
        return any(isinstance(due.what, Return) and self._places[due.place].away for due in self._agenda.entries)

    def _check_finished(self) -> None:
        unfinished = [place.name for place in self._places if not (place.finished or place.away)]
        if not unfinished and not any(place.finished for place in self._places):
            unfinished = [place.name for place in self._places]
        if unfinished:
            away = [place.name for place in self._places if place.away]
            waits = f" They wait for {', '.join(away)}, which is away for good." if away else ""
            raise RunError(
                f"Nothing is left to do at {self.now:.6g} virtual seconds, but {', '.join(unfinished)} "
                f"did not finish.{waits} A synchronous schedule without masks goes on without a party after "
                "algorithm.party_timeout_seconds; masked sums, and steps of all parties together, need everybody."
            )

    # --- a party's work ---

    def _arrive(self, place: Place, letter: Letter) -> None:
        if place.away or place.finished:
            return
        if letter.number is not None and self._links.is_repetition(place, letter, letter.number):
            return
        if letter.kind.answered_on_arrival:
            self._handle(place, letter)
        else:
            self._offer(place, letter)

    def _offer(self, place: Place, item: Item) -> None:
        """Start on an item, or queue it while the party is busy."""
        if place.finished:
            return
        if place.current is None:
            self._start_work(place, item)
        else:
            place.inbox.append(item)

    def _start_work(self, place: Place, item: Item) -> None:
        place.current = item
        place.work_number += 1
        place.work_started = self._agenda.now
        self._agenda.enter(self._agenda.now + place.cost(item), place.index, named(WorkEnd, (place.work_number,)))

    def _end_work(self, place: Place, item: Item) -> None:
        now = self._agenda.now
        if now > place.work_started:
            place.busy_seconds += now - place.work_started
            self._recorder.interval(place.name, place.work_started, now)
        self._handle(place, item)
        place.current = None
        if place.inbox and not place.finished:
            self._start_work(place, place.inbox.popleft())

    def _handle(self, place: Place, item: Item) -> None:
        """The party handles the item now; only this makes a message count as delivered."""
        began = time.perf_counter() if place.measured is not None else 0.0
        if isinstance(item, Letter):
            if item.number is not None:
                self._links.acknowledge(item.sender, place.name, item.number)
            place.receive(item.sender, item.frame)
        else:
            now = self._agenda.now
            match item:
                case Ring(name):
                    place.driver.deliver(TimerFired(now, name))
                case Begin():
                    place.driver.deliver(Started(now))
                case Lost(peer):
                    place.driver.deliver(PeerLost(now, peer))
                case Returned(peer):
                    place.driver.deliver(PeerReturned(now, peer))
        if place.measured is not None:
            # The next event of this kind is charged what this one took: a cost must be known before the work.
            place.measured[measured_as(item)] = time.perf_counter() - began

    def _ring(self, place: Place, due: TimerDue) -> None:
        if place.timers.get(due.name) != due.token:
            return  # set again since, or undone
        if place.away:
            place.missed_timers.append((due.name, due.token))
            return
        del place.timers[due.name]
        self._offer(place, Ring(due.name))

    # --- crash and return ---

    def _crash(self, place: Place) -> None:
        if place.finished:
            return
        now = self._agenda.now
        place.away = True
        place.away_since = now
        self._agenda.presence_changed = True
        if place.current is not None:
            self._recorder.interval(place.name, place.work_started, now)
            place.busy_seconds += now - place.work_started
        # Messages are lost with the memory: their senders still hold them. Timers and the start are remembered.
        remembered = [item for item in place.held() if isinstance(item, Ring | Begin)]
        place.current = None
        place.inbox = deque(remembered)
        for other in self._places:
            if other is not place:
                self._agenda.enter(now + self._settings.notice_seconds, other.index, Lost(place.name))

    def _return(self, place: Place) -> None:
        if not place.away:
            return
        now = self._agenda.now
        place.away = False
        place.away_seconds += now - place.away_since
        self._recorder.interval(place.name, place.away_since, now, "away")
        for name, token in place.missed_timers:
            if place.timers.get(name) == token:
                del place.timers[name]
                place.inbox.append(Ring(name))
        place.missed_timers = []
        for other in self._places:
            if other is place:
                continue
            self._agenda.enter(now + self._settings.notice_seconds, other.index, Returned(place.name))
            place.inbox.append(Lost(other.name) if other.away else Returned(other.name))
            self._links.resend(place, other)
        if place.inbox and place.current is None:
            self._start_work(place, place.inbox.popleft())

    # --- times ---

    def party_times(self) -> dict[str, dict[str, float]]:
        """Busy, idle and away virtual seconds of each party."""
        times = {}
        for place in self._places:
            away = place.away_seconds + (self.now - place.away_since if place.away else 0.0)
            idle = max(0.0, self.now - place.busy_seconds - away)
            times[place.name] = {"busy_seconds": place.busy_seconds, "idle_seconds": idle, "away_seconds": away}
        return times

    def close(self) -> None:
        for trace in self._traces.values():
            trace.close()

    # --- checkpoints: the whole world between two events ---

    def _save_if_due(self) -> None:
        """A party found this moment good; wall time decides whether it is worth a disk sync."""
        self._agenda.checkpoint_due = False
        if time.perf_counter() - self._saved_at >= self._checkpoint_seconds:
            self.save()

    def save(self) -> None:
        """Write every party's state and the simulation's own, so that the run can go on to the same bits."""
        if self._directory is None:
            return
        self._links.settle_off_clock()
        self._checkpoints += 1
        folder = self._directory / "checkpoints"
        for place in self._places:
            write_checkpoint(folder, place.name, self._checkpoints, place.driver.party.state())
        own = snapshot(
            self._agenda,
            self._places,
            self._links,
            checkpoints=self._checkpoints,
            traces={name: trace.position() for name, trace in self._traces.items()},
            recorder=self._recorder.state(),
        )
        if self.extension:
            own.values["extension"] = self.extension
        own.add("ledger", self._ledger.state())
        write_checkpoint(folder, "simulate", self._checkpoints, own)
        self._saved_at = time.perf_counter()

    def _restore(self, saved: Mapping[str, State]) -> None:
        own = saved["simulate"]
        restore(own, self._agenda, self._places, self._links)
        for place in self._places:
            place.driver.party.restore(saved[place.name])
        self._checkpoints = own.values["checkpoints"]
        self.extension = own.values.get("extension", 0)
        self._recorder.restore(own.values["recorder"])
        self._ledger.restore(own.part("ledger"))
