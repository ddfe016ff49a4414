"""Virtual time on a heap: every party in one process, the real codec on every message, same seed same trace.

A party handles one event at a time. Handling takes compute seconds and happens at their end: what arrives meanwhile
waits in the party's inbox, except messages declared to be answered on arrival (the papers' listener thread), which
see the state before the work under way. Evaluation is off the clock: it takes no virtual time at all.

A party that crashes loses its inbox and the work under way; its state survives (it was journalled). Frames to it are
kept by their senders and sent again when it is back. Where frames can be lost, each is numbered, repeated until
acknowledged, acknowledged only once handled, and handled once.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf, isfinite
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from colonnade.errors import RunError, SettingsError, unknown_name
from colonnade.messages import KINDS, Message
from colonnade.party import Party, PeerLost, PeerReturned, Started, TimerFired
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.checkpoint import write_checkpoint
from colonnade.runtimes.delays import MEASURED, Draw, parse_delay
from colonnade.runtimes.driver import Driver
from colonnade.runtimes.recorder import Recorder
from colonnade.state import State
from colonnade.trace import TraceWriter

# --- settings ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SimulatedParty:
    """How one party behaves; None means as `Simulate` says for all."""

    compute_seconds: Any = None
    slowdown: float = 1.0  # a straggler three times slower has 3
    straggle_probability: float = 0.0  # how often an event takes `straggle_factor` times as long
    straggle_factor: float = 10.0
    crashes: tuple[tuple[float, float], ...] = ()  # (away from, back at) in virtual seconds; back at inf: never


@dataclass(frozen=True)
class SimulatedLink:
    """How one direction between two parties behaves; None means as `Simulate` says for all."""

    latency_seconds: Any = None
    bandwidth_bytes_per_second: float | None = None


@dataclass(frozen=True)
class Simulate:
    """The world of a simulation. Delays are seconds or {distribution, mean, spread}; see runtimes/delays.py."""

    name: ClassVar[str] = "simulate"
    compute_seconds: Any = 0.01  # of handling one event; "measured" takes the real time × slowdown
    label_compute_seconds: Any = 0.001
    latency_seconds: Any = 0.001
    bandwidth_bytes_per_second: float = 0.0  # 0: unlimited
    loss: float = 0.0  # probability that a frame is lost on its way
    reorder: bool = False  # whether a later frame may overtake an earlier one
    retransmit_seconds: float = 0.1  # an unacknowledged frame is sent again after this
    notice_seconds: float = 0.05  # until peers notice that a party is away
    parties: Mapping[str, SimulatedParty] = field(default_factory=dict)
    links: Mapping[str, SimulatedLink] = field(default_factory=dict)  # "from -> to"

    def __post_init__(self) -> None:
        if not 0 <= self.loss < 1:
            raise SettingsError(f"simulate.loss is {self.loss}; it is a probability below 1.")
        for name in ("retransmit_seconds", "notice_seconds", "bandwidth_bytes_per_second"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0):
                raise SettingsError(f"simulate.{name} is {value}; it must be finite and not negative.")
        if self.retransmit_seconds == 0:
            raise SettingsError("simulate.retransmit_seconds must be above 0: a lost frame is repeated after it.")
        for name, party in self.parties.items():
            where = f"simulate.parties.{name}"
            if not (isfinite(party.slowdown) and party.slowdown > 0):
                raise SettingsError(f"{where}.slowdown is {party.slowdown}; it must be above 0.")
            if not 0 <= party.straggle_probability <= 1:
                raise SettingsError(f"{where}.straggle_probability is {party.straggle_probability}; 0 to 1.")
            if not (isfinite(party.straggle_factor) and party.straggle_factor > 0):
                raise SettingsError(f"{where}.straggle_factor is {party.straggle_factor}; it must be above 0.")
            last = 0.0
            for away, back in party.crashes:
                if not last <= away < back:
                    raise SettingsError(
                        f"{where}.crashes has ({away}, {back}): each is [away from, back at], in order and apart."
                    )
                last = back
        for name, link in self.links.items():
            bandwidth = link.bandwidth_bytes_per_second or 0.0
            if not (isfinite(bandwidth) and bandwidth >= 0):
                where = f'simulate.links."{name}".bandwidth_bytes_per_second'
                raise SettingsError(f"{where} is {bandwidth}; it must be finite and not negative.")
        self._check_delays()

    def _check_delays(self) -> None:
        """Refuse a wrong delay here, not when the first frame is sent."""
        computes = {f"parties.{name}.compute_seconds": own.compute_seconds for name, own in self.parties.items()}
        computes |= {"compute_seconds": self.compute_seconds, "label_compute_seconds": self.label_compute_seconds}
        latencies = {f'links."{name}".latency_seconds': own.latency_seconds for name, own in self.links.items()}
        latencies["latency_seconds"] = self.latency_seconds
        for name, delay in {**latencies, **{at: delay for at, delay in computes.items() if delay != MEASURED}}.items():
            if delay is not None:
                parse_delay(delay, f"simulate.{name}")

    def check_parties(self, parties: Iterable[str]) -> None:
        """Refuse settings for a party that is not in the federation."""
        names = sorted(parties)
        for name in self.parties:
            if name not in names:
                raise unknown_name("party for simulate.parties", name, names)
        for link in self.links:
            sender, arrow, receiver = (part.strip() for part in link.partition("->"))
            for name in (sender, receiver):
                if not arrow or name not in names:
                    raise SettingsError(
                        f'simulate.links has "{link}"; write it as "from -> to" with two of: {", ".join(names)}.'
                    )


# --- the simulation ---------------------------------------------------------------------------------------------

_ARRIVE, _DONE, _TIMER, _NOTICE, _CRASH, _RETURN, _RETRY, _ACKNOWLEDGED = range(8)

# What waits in an inbox: ("message", sender, frame, kind, number) | ("timer", name) | ("lost"|"returned", peer) |
# ("started",)
_Item = tuple[Any, ...]


class _Link:
    """One direction between two parties."""

    __slots__ = (
        "bandwidth",
        "free_at",
        "generator",
        "handled",
        "handled_below",
        "last_arrival",
        "latency",
        "next_number",
        "unacknowledged",
    )

    def __init__(self, latency: Draw, bandwidth: float, generator: np.random.Generator) -> None:
        self.latency = latency
        self.bandwidth = bandwidth
        self.generator = generator
        self.free_at = 0.0
        self.last_arrival = 0.0
        self.next_number = 0
        self.unacknowledged: dict[int, tuple[bytearray, type[Message]]] = {}
        # Numbers the receiver has handled: all below `handled_below`, and those in `handled`.
        self.handled_below = 0
        self.handled: set[int] = set()

    def arrival(self, now: float, size_bytes: int, reorder: bool) -> float:
        """When a frame sent now is there: it waits for the link, is transferred, and travels."""
        departed = max(now, self.free_at)
        if self.bandwidth:
            departed += size_bytes / self.bandwidth
            self.free_at = departed
        arrival = departed + self.latency(self.generator)
        if not reorder:
            arrival = self.last_arrival = max(arrival, self.last_arrival)
        return arrival

    def was_handled(self, number: int) -> bool:
        return number < self.handled_below or number in self.handled

    def mark_handled(self, number: int) -> None:
        self.handled.add(number)
        while self.handled_below in self.handled:
            self.handled.remove(self.handled_below)
            self.handled_below += 1


class _Place:
    """One party in the simulation: what it does now, what waits for it, and its port."""

    def __init__(self, simulation: "Simulation", index: int, name: str) -> None:
        self.simulation = simulation
        self.index = index
        self.name = name
        self.driver: Driver
        self.inbox: deque[_Item] = deque()
        self.current: _Item | None = None
        self.work_number = 0  # tells the end of the work under way from that of work a crash undid
        self.work_started = 0.0
        self.away = False
        self.away_since = 0.0
        self.finished = False
        self.busy_seconds = 0.0
        self.away_seconds = 0.0
        self.timers: dict[str, int] = {}
        self.missed_timers: list[tuple[str, int]] = []
        self.compute: Draw
        self.generator: np.random.Generator
        self.measured: dict[str, float] | None = None
        self.slowdown = 1.0
        self.straggle_probability = 0.0
        self.straggle_factor = 1.0

    def cost(self, item: _Item) -> float:
        """Compute seconds that handling takes."""
        if item[0] == "message":
            if item[3].free:
                return 0.0
        elif item[0] in ("lost", "returned"):
            return 0.0
        if self.measured is not None:
            seconds = self.measured.get(_what(item), 0.0)
        else:
            seconds = self.compute(self.generator)
        if self.straggle_probability and self.generator.random() < self.straggle_probability:
            seconds *= self.straggle_factor
        return seconds * self.slowdown

    # The port of this party's driver.

    def transmit(self, to: str, frame: bytearray, message: type[Message]) -> None:
        self.simulation.transmit(self, to, frame, message)

    def set_timer(self, name: str, seconds: float) -> None:
        self.simulation.set_timer(self, name, seconds)

    def checkpoint(self) -> None:
        self.simulation.checkpoint_due = True

    def finish(self) -> None:
        self.finished = True
        self.current = None  # it may finish by a question answered while it works; that work is not given to it
        self.inbox.clear()
        self.simulation.presence_changed = True


def _what(item: _Item) -> str:
    """What is measured apart: messages by kind, timers by name."""
    return item[3].__name__ if item[0] == "message" else " ".join(map(str, item))


class Simulation:
    """A federation in virtual time."""

    def __init__(
        self,
        parties: Mapping[str, Party],
        label_party: str,
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
        self._settings = settings
        self._seed = seed
        self._recorder = recorder
        self._ledger = ledger
        self._directory = directory
        self._stop_requested = stop_requested
        self.now = 0.0
        self.checkpoint_due = False
        self.presence_changed = False
        self.retransmitted_bytes = 0
        self._checkpoints = 0
        self._checkpoint_seconds = checkpoint_seconds
        self._saved_at = time.perf_counter()
        self._counter = 0
        self._heap: list[tuple[float, int, int, int, tuple[Any, ...]]] = []
        self._off_clock: deque[tuple[int, _Item]] = deque()
        self._links: dict[tuple[str, str], _Link] = {}
        settings.check_parties(parties)
        self._numbered = settings.loss > 0 or any(party.crashes for party in settings.parties.values())
        self._seats: list[_Place] = []
        self._seat_of: dict[str, _Place] = {}
        for index, name in enumerate(parties):
            seat = _Place(self, index, name)
            self._seats.append(seat)
            self._seat_of[name] = seat
            self._equip(seat, is_label=name == label_party)
        saved = resume["simulate"].values if resume else None
        self._traces: dict[str, TraceWriter] = {}
        if trace and directory is not None:
            for name in parties:
                at = saved["traces"].get(name) if saved else None
                self._traces[name] = TraceWriter(directory / "trace" / f"{name}.trace", at)
        for name, party in parties.items():
            seat = self._seat_of[name]
            seat.driver = Driver(name, party, seat, ledger, recorder, self._traces.get(name))
        if resume:
            self._restore(resume)
        else:
            self._begin()

    def _equip(self, seat: _Place, is_label: bool) -> None:
        settings = self._settings
        own = settings.parties.get(seat.name, SimulatedParty())
        shared = settings.label_compute_seconds if is_label else settings.compute_seconds
        compute = shared if own.compute_seconds is None else own.compute_seconds
        if compute == MEASURED:
            seat.measured = {}
            compute = 0.0
        seat.compute = parse_delay(compute, f"compute_seconds of {seat.name}").draw()
        seat.generator = np.random.default_rng([self._seed, 1, seat.index])
        seat.slowdown = own.slowdown
        seat.straggle_probability = own.straggle_probability
        seat.straggle_factor = own.straggle_factor

    def _begin(self) -> None:
        for seat in self._seats:
            self._offer(seat, ("started",))
            own = self._settings.parties.get(seat.name, SimulatedParty())
            for away, back in own.crashes:
                self._push(away, _CRASH, seat.index, ())
                if back < inf:
                    self._push(back, _RETURN, seat.index, ())

    # --- the loop ---

    def run(self) -> bool:
        """Go on until every party has finished that is there or will return. False if it was asked to stop before."""
        heap, seats = self._heap, self._seats
        while True:
            if self._off_clock:
                self._settle_off_clock()
            if self.presence_changed:
                self.presence_changed = False
                if all(seat.finished or seat.away for seat in seats) and not self._a_return_is_due():
                    break
            if self.checkpoint_due:
                self._save_if_due()
            if self._stop_requested():
                self.save()
                return False
            if not heap:
                break
            self.now, _, kind, index, payload = heappop(heap)
            seat = seats[index]
            if kind == _ARRIVE:
                self._arrive(seat, payload)
            elif kind == _DONE:
                if payload[0] == seat.work_number and seat.current is not None:
                    self._done(seat)
            elif kind == _TIMER:
                self._timer(seat, payload)
            elif kind == _RETRY:
                self._retry(payload)
            elif kind == _ACKNOWLEDGED:
                self._links[payload[0], payload[1]].unacknowledged.pop(payload[2], None)
            elif kind == _NOTICE:
                if not seat.away:
                    self._offer(seat, payload)
            elif kind == _CRASH:
                self._crash(seat)
            elif kind == _RETURN:
                self._return(seat)
        unfinished = [seat.name for seat in seats if not (seat.finished or seat.away)]
        if not unfinished and not any(seat.finished for seat in seats):
            unfinished = [seat.name for seat in seats]
        if unfinished:
            away = [seat.name for seat in seats if seat.away]
            waits = f" They wait for {', '.join(away)}, which is away for good." if away else ""
            raise RunError(
                f"Nothing is left to do at {self.now:.6g} virtual seconds, but {', '.join(unfinished)} "
                f"did not finish.{waits} A synchronous schedule without masks goes on without a party after "
                "algorithm.party_timeout_seconds; masked sums, and steps of all parties together, need everybody."
            )
        return True

    def _a_return_is_due(self) -> bool:
        return any(kind == _RETURN and self._seats[index].away for _, _, kind, index, _ in self._heap)

    def _push(self, when: float, kind: int, seat: int, payload: tuple[Any, ...]) -> None:
        self._counter += 1
        heappush(self._heap, (when, self._counter, kind, seat, payload))

    def _offer(self, seat: _Place, item: _Item) -> None:
        """Start on an item, or queue it while the party is busy."""
        if seat.finished:
            return
        if seat.current is None:
            self._start(seat, item)
        else:
            seat.inbox.append(item)

    def _start(self, seat: _Place, item: _Item) -> None:
        seat.current = item
        seat.work_number += 1
        seat.work_started = self.now
        self._push(self.now + seat.cost(item), _DONE, seat.index, (seat.work_number,))

    def _done(self, seat: _Place) -> None:
        item = seat.current
        assert item is not None
        if self.now > seat.work_started:
            seat.busy_seconds += self.now - seat.work_started
            self._recorder.interval(seat.name, seat.work_started, self.now)
        self._handle(seat, item)
        seat.current = None
        if seat.inbox and not seat.finished:
            self._start(seat, seat.inbox.popleft())

    def _handle(self, seat: _Place, item: _Item) -> None:
        """The party handles the item now; only this makes a message count as delivered."""
        what = item[0]
        began = time.perf_counter() if seat.measured is not None else 0.0
        if what == "message":
            _, sender, frame, _, number = item
            if number is not None:
                self._acknowledge(sender, seat.name, number)
            seat.driver.receive(self.now, sender, frame)
        elif what == "timer":
            seat.driver.deliver(TimerFired(self.now, item[1]))
        elif what == "started":
            seat.driver.deliver(Started(self.now))
        elif what == "lost":
            seat.driver.deliver(PeerLost(self.now, item[1]))
        else:
            seat.driver.deliver(PeerReturned(self.now, item[1]))
        if seat.measured is not None:
            # The next event of this kind is charged what this one took: a cost must be known before the work.
            seat.measured[_what(item)] = time.perf_counter() - began

    # --- messages ---

    def transmit(self, seat: _Place, to: str, frame: bytearray, message: type[Message]) -> None:
        receiver = self._seat_of.get(to)
        if receiver is None:
            raise RunError(f"{seat.name} sent {message.__name__} to {to!r}, who is not in the federation.")
        if not self._numbered:
            item = ("message", seat.name, frame, message, None)
            if message.off_clock:
                self._off_clock.append((receiver.index, item))
            else:
                link = self._link(seat.name, to)
                arrival = link.arrival(self.now, len(frame), self._settings.reorder)
                self._push(arrival, _ARRIVE, receiver.index, item)
            return
        link = self._link(seat.name, to)
        number = link.next_number
        link.next_number += 1
        link.unacknowledged[number] = (frame, message)
        self._attempt(seat.name, receiver, link, number)

    def _link(self, sender: str, to: str) -> _Link:
        link = self._links.get((sender, to))
        if link is None:
            own = SimulatedLink()
            for name, settings in self._settings.links.items():
                if tuple(part.strip() for part in name.split("->")) == (sender, to):
                    own = settings
            latency = self._settings.latency_seconds if own.latency_seconds is None else own.latency_seconds
            bandwidth = own.bandwidth_bytes_per_second
            ends = [self._seed, 2, self._seat_of[sender].index, self._seat_of[to].index]
            link = self._links[sender, to] = _Link(
                parse_delay(latency, f"latency_seconds of {sender} -> {to}").draw(),
                self._settings.bandwidth_bytes_per_second if bandwidth is None else bandwidth,
                np.random.default_rng(ends),
            )
        return link

    def _attempt(self, sender: str, receiver: _Place, link: _Link, number: int) -> None:
        """Send a numbered frame, which may be lost, and look again later whether it was acknowledged."""
        if receiver.away:
            return  # its sender is told when it returns, and sends then
        frame, message = link.unacknowledged[number]
        item = ("message", sender, frame, message, number)
        if message.off_clock:
            self._off_clock.append((receiver.index, item))
            return
        arrival = link.arrival(self.now, len(frame), self._settings.reorder)
        if link.generator.random() >= self._settings.loss:
            self._push(arrival, _ARRIVE, receiver.index, item)
        again = arrival + self._settings.retransmit_seconds
        self._push(again, _RETRY, receiver.index, (sender, receiver.name, number))

    def _retry(self, payload: tuple[Any, ...]) -> None:
        sender, to, number = payload
        link = self._links[sender, to]
        if number in link.unacknowledged and not self._seat_of[sender].away:
            if self._seat_of[to].finished:
                del link.unacknowledged[number]
                return
            if not self._seat_of[to].away:
                self.retransmitted_bytes += len(link.unacknowledged[number][0])
            self._attempt(sender, self._seat_of[to], link, number)

    def _arrive(self, seat: _Place, item: _Item) -> None:
        if seat.away or seat.finished:
            return
        _, sender, _, message, number = item
        if number is not None:
            if self._links[sender, seat.name].was_handled(number):
                self._acknowledge(sender, seat.name, number)  # its acknowledgement was lost
                return
            if any(other[0] == "message" and other[1] == sender and other[4] == number for other in self._held(seat)):
                return  # a repetition of what already waits here
        if message.answered_on_arrival:
            self._handle(seat, item)
        else:
            self._offer(seat, item)

    def _held(self, seat: _Place) -> Iterable[_Item]:
        return [*seat.inbox, seat.current] if seat.current is not None else seat.inbox

    def _acknowledge(self, sender: str, receiver: str, number: int) -> None:
        link = self._links[sender, receiver]
        link.mark_handled(number)
        if link.generator.random() >= self._settings.loss:
            back = self.now + link.latency(link.generator)
            self._push(back, _ACKNOWLEDGED, self._seat_of[sender].index, (sender, receiver, number))

    def _settle_off_clock(self) -> None:
        """Deliver everything of evaluation, and its answers, before virtual time goes on."""
        while self._off_clock:
            index, item = self._off_clock.popleft()
            seat = self._seats[index]
            if seat.away or seat.finished:
                continue
            if item[4] is not None:
                link = self._links[item[1], seat.name]
                if link.was_handled(item[4]):
                    continue
                link.mark_handled(item[4])
                link.unacknowledged.pop(item[4], None)
            seat.driver.receive(self.now, item[1], item[2])

    # --- timers ---

    def set_timer(self, seat: _Place, name: str, seconds: float) -> None:
        self._counter += 1
        seat.timers[name] = self._counter
        heappush(self._heap, (self.now + seconds, self._counter, _TIMER, seat.index, (name, self._counter)))

    def _timer(self, seat: _Place, payload: tuple[Any, ...]) -> None:
        name, token = payload
        if seat.timers.get(name) != token:
            return  # set again since, or undone
        if seat.away:
            seat.missed_timers.append((name, token))
            return
        del seat.timers[name]
        self._offer(seat, ("timer", name))

    # --- crash and return ---

    def _crash(self, seat: _Place) -> None:
        if seat.finished:
            return
        seat.away = True
        seat.away_since = self.now
        self.presence_changed = True
        if seat.current is not None:
            self._recorder.interval(seat.name, seat.work_started, self.now)
            seat.busy_seconds += self.now - seat.work_started
        # Messages are lost with the memory: their senders still hold them. Timers and the start are remembered.
        lost = [item for item in self._held(seat) if item[0] in ("timer", "started")]
        seat.current = None
        seat.inbox = deque(lost)
        for other in self._seats:
            if other is not seat:
                self._push(self.now + self._settings.notice_seconds, _NOTICE, other.index, ("lost", seat.name))

    def _return(self, seat: _Place) -> None:
        if not seat.away:
            return
        seat.away = False
        seat.away_seconds += self.now - seat.away_since
        self._recorder.interval(seat.name, seat.away_since, self.now, "away")
        for name, token in seat.missed_timers:
            if seat.timers.get(name) == token:
                del seat.timers[name]
                seat.inbox.append(("timer", name))
        seat.missed_timers = []
        for other in self._seats:
            if other is seat:
                continue
            self._push(self.now + self._settings.notice_seconds, _NOTICE, other.index, ("returned", seat.name))
            seat.inbox.append(("lost" if other.away else "returned", other.name))
            for sender, receiver in ((seat, other), (other, seat)):
                link = self._links.get((sender.name, receiver.name))
                if link is not None and not sender.away:
                    for number in sorted(link.unacknowledged):
                        self._attempt(sender.name, receiver, link, number)
        if seat.inbox and seat.current is None:
            self._start(seat, seat.inbox.popleft())

    # --- books ---

    def party_books(self) -> dict[str, dict[str, float]]:
        """Busy, idle and away virtual seconds of each party."""
        books = {}
        for seat in self._seats:
            away = seat.away_seconds + (self.now - seat.away_since if seat.away else 0.0)
            idle = max(0.0, self.now - seat.busy_seconds - away)
            books[seat.name] = {"busy_seconds": seat.busy_seconds, "idle_seconds": idle, "away_seconds": away}
        return books

    def close(self) -> None:
        for trace in self._traces.values():
            trace.close()

    # --- checkpoints: the whole world between two events ---

    def _save_if_due(self) -> None:
        """A party found this moment good; wall time decides whether it is worth a disk sync."""
        self.checkpoint_due = False
        if time.perf_counter() - self._saved_at >= self._checkpoint_seconds:
            self.save()

    def save(self) -> None:
        """Write every party's state and the simulation's own, so that the run can go on to the same bits."""
        if self._directory is None:
            return
        self._settle_off_clock()
        self._checkpoints += 1
        folder = self._directory / "checkpoints"
        for seat in self._seats:
            write_checkpoint(folder, seat.name, self._checkpoints, seat.driver.party.state())
        write_checkpoint(folder, "simulate", self._checkpoints, self._state())
        self._saved_at = time.perf_counter()

    def _state(self) -> State:
        frames: list[bytes] = []

        def packed(value: Any) -> Any:
            if isinstance(value, bytes | bytearray):
                frames.append(bytes(value))
                return {"frame": len(frames) - 1}
            if isinstance(value, type):
                return {"kind": value.__name__}
            if isinstance(value, tuple | list | deque):
                return [packed(part) for part in value]
            return value

        seats = {}
        for seat in self._seats:
            remembered = {name: packed(getattr(seat, name)) for name in _SEAT_FIELDS}
            seats[seat.name] = {**remembered, "generator": seat.generator.bit_generator.state}
        links = []
        for (sender, receiver), link in self._links.items():
            unacknowledged = [[number, packed(frame)] for number, frame in link.unacknowledged.items()]
            remembered = {name: getattr(link, name) for name in _LINK_FIELDS}
            generator = link.generator.bit_generator.state
            handled = sorted(link.handled)
            links.append([sender, receiver, remembered, unacknowledged, handled, generator])
        values = {
            "now": self.now,
            "counter": self._counter,
            "checkpoints": self._checkpoints,
            "retransmitted_bytes": self.retransmitted_bytes,
            "heap": [packed(entry) for entry in self._heap],
            "seats": seats,
            "links": links,
            "traces": {name: trace.position() for name, trace in self._traces.items()},
            "recorder": self._recorder.state(),
            "frame_sizes": [len(frame) for frame in frames],
        }
        joined = torch.frombuffer(bytearray(b"".join(frames) or b"\0"), dtype=torch.uint8)
        state = State({"frames": joined}, values)
        state.add("ledger", self._ledger.state())
        return state

    def _restore(self, saved: Mapping[str, State]) -> None:
        own = saved["simulate"]
        blob = own.tensors["frames"].numpy().tobytes()
        frames: list[bytearray] = []
        place = 0
        for size in own.values["frame_sizes"]:
            frames.append(bytearray(blob[place : place + size]))
            place += size

        def unpacked(value: Any) -> Any:
            if isinstance(value, dict) and "frame" in value:
                return frames[value["frame"]]
            if isinstance(value, dict) and "kind" in value:
                return KINDS[value["kind"]].message
            if isinstance(value, list):
                return tuple(unpacked(part) for part in value)
            return value

        values = own.values
        self.now = values["now"]
        self._counter = values["counter"]
        self._checkpoints = values["checkpoints"]
        self.retransmitted_bytes = values["retransmitted_bytes"]
        self._heap = [unpacked(entry) for entry in values["heap"]]
        heapify(self._heap)
        for seat in self._seats:
            remembered = values["seats"][seat.name]
            for name in _SEAT_FIELDS:
                setattr(seat, name, unpacked(remembered[name]))
            seat.inbox = deque(seat.inbox)
            seat.missed_timers = list(seat.missed_timers)
            seat.generator.bit_generator.state = remembered["generator"]
            seat.driver.party.restore(saved[seat.name])
        for sender, receiver, remembered, unacknowledged, handled, generator in values["links"]:
            link = self._link(sender, receiver)
            for name in _LINK_FIELDS:
                setattr(link, name, remembered[name])
            link.unacknowledged = {number: unpacked(frame) for number, frame in unacknowledged}
            link.handled = set(handled)
            link.generator.bit_generator.state = generator
        self.presence_changed = True  # perhaps everybody had finished
        self._recorder.restore(values["recorder"])
        self._ledger.restore(own.part("ledger"))


_SEAT_FIELDS = (
    "inbox",
    "current",
    "work_number",
    "work_started",
    "away",
    "away_since",
    "finished",
    "busy_seconds",
    "away_seconds",
    "timers",
    "missed_timers",
    "measured",
)
_LINK_FIELDS = ("free_at", "last_arrival", "next_number", "handled_below")
