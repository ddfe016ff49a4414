"""How long a training will take: a few of its exchanges are made here and timed, and the simulator foretells the rest.

The parties are real, so everything about who waits for whom is as it will be; only time is not. An event costs its
party the processor time that such events took on this machine, and what carrying its frames costs; parties of one
machine share its cores. What the planned epochs will send is known without a run (costs/traffic.py).
"""

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from colonnade.costs.estimate import price
from colonnade.costs.noise import calibrated
from colonnade.data.federated import FederatedData
from colonnade.errors import SettingsError
from colonnade.federation.building import build_federation, facts_of
from colonnade.federation.plan import Plan, check_plan
from colonnade.party import Effect, Event, Party, Received
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.simulate.agenda import Item, Letter, Lost, Returned, WorkEnd
from colonnade.runtimes.simulate.places import Place, measured_as
from colonnade.runtimes.simulate.settings import Simulate
from colonnade.runtimes.simulate.simulation import Simulation

SETTLING = 8
"""Exchanges of each feature party that come before memory is warm and everybody's uploads are under way."""
LEAST, MOST = 12, 150
"""Exchanges of each feature party that are timed: as many in between as `SECONDS` allow."""
SECONDS = 2.0
EVALUATED = 40
"""After so many exchanges of each feature party everything is evaluated: within the shortest rehearsal."""


@dataclass(frozen=True)
class Carriage:
    """What it costs each end to carry one frame, beside encoding and decoding it: system calls, copies, the journal."""

    seconds_per_frame: float = 0.0
    seconds_per_byte: float = 0.0

    def seconds(self, frames: float, size_bytes: float) -> float:
        return max(0.0, frames * self.seconds_per_frame + size_bytes * self.seconds_per_byte)


@dataclass(frozen=True)
class World:
    """Where a training will run: its links, its cores, and what else an event costs there."""

    simulate: Simulate  # its links; compute times and slowdowns of parties
    cores: int | None = None  # that all parties share; None: each has a machine of its own
    carriage: Carriage = field(default_factory=Carriage)
    contention: float = 1.0  # what an event takes while all other cores are busy, over what it takes alone
    declared: Mapping[str, float] = field(default_factory=dict)  # party → seconds an event, where the file says so

    def slowdown(self, party: str) -> float:
        own = self.simulate.parties.get(party)
        return 1.0 if own is None else own.slowdown

    def crowded(self, free_cores: int | None) -> float:
        """How much slower an event is that begins while so many of the other cores are idle."""
        if self.cores is None or free_cores is None or self.cores < 2:
            return 1.0
        return 1 + (self.contention - 1) * (1 - free_cores / (self.cores - 1))


@dataclass(frozen=True)
class Forecast:
    """What is foretold of one training."""

    seconds: float  # to the end of the planned epochs, evaluations included
    evaluation_seconds: float  # of these
    exchanges: int
    exchanges_per_second: float  # while nothing is evaluated
    bytes_up: int
    bytes_down: int
    busy: Mapping[str, float]  # party → share of the time between evaluations
    frames_per_exchange: float
    bytes_per_exchange: float

    def bottleneck(self) -> str:
        """Who is busy the longest."""
        return max(self.busy, key=lambda name: self.busy[name])


@dataclass
class _Spent:
    """Of one party's events of one kind: how many, how long, and what travelled for them."""

    events: int = 0
    seconds: float = 0.0
    frames: int = 0
    size_bytes: int = 0

    def cost(self, world: World, party: str) -> float:
        """Seconds of one of them."""
        own = self.seconds / self.events * world.slowdown(party)
        own = world.declared.get(party, own)
        return own + world.carriage.seconds(self.frames / self.events, self.size_bytes / self.events)


class _Scoring:
    """A party, and how long it took over what the clock of a simulation leaves out: evaluation."""

    def __init__(self, party: Party) -> None:
        self._party = party
        self.by_kind: dict[type, list[float]] = {}

    def handle(self, event: Event) -> Sequence[Effect]:
        if not (isinstance(event, Received) and type(event.message).off_clock):
            return self._party.handle(event)
        began = time.thread_time()
        effects = self._party.handle(event)
        self.by_kind.setdefault(type(event.message), []).append(time.thread_time() - began)
        return effects

    def __getattr__(self, name: str) -> Any:
        return getattr(self._party, name)


class MeasuredSimulation(Simulation):
    """A simulation in which events cost what they were seen to cost, on cores that parties may have to wait for.

    It is run in stretches of so many exchanges. Nothing of it is kept, and nobody crashes in it.
    """

    def __init__(self, parties: Mapping[str, Party], world: World, seed: int, label_party: str) -> None:
        self.world = world
        self._spent: dict[tuple[str, str], _Spent] = {}
        self._free_cores = world.cores
        self._waiting: deque[Place] = deque()
        self._label = parties[label_party]
        self._until = 0
        self._turns = 0
        self.scoring = {name: _Scoring(party) for name, party in parties.items()}
        whole = replace(world.simulate, loss=0.0, reorder=False, parties={})
        super().__init__(self.scoring, whole, seed, Recorder(label_party), Ledger(), stop_requested=self._reached)

    def exchanges(self) -> int:
        return int(self._label.counts()["exchanges"])

    def go_on(self, exchanges: int) -> bool:
        """So many exchanges more; False if the training has come to its end."""
        self._until = self.exchanges() + exchanges
        return not self.run()

    def _reached(self) -> bool:
        self._turns += 1
        return self._turns % 24 == 0 and self.exchanges() >= self._until

    def forget_times(self) -> None:
        """What was seen so far was not warm."""
        self._spent.clear()

    def processor_seconds(self) -> float:
        """Of everything that was timed."""
        return sum(one.seconds for one in self._spent.values())

    def travelled(self) -> tuple[int, int]:
        """Frames and bytes at both their ends, of everything that was timed."""
        return sum(one.frames for one in self._spent.values()), sum(one.size_bytes for one in self._spent.values())

    # --- instead of the draws of `[simulate]`: times as they were seen, and cores ---

    def _arrive(self, place: Place, letter: Letter) -> None:
        if not place.finished:
            self._offer(place, letter)  # a real party handles one thing at a time, whatever it is

    def _start_work(self, place: Place, item: Item) -> None:
        place.current = item
        if self._free_cores == 0:
            self._waiting.append(place)
        else:
            self._compute(place, item)

    def _compute(self, place: Place, item: Item) -> None:
        if self._free_cores is not None:
            self._free_cores -= 1
        place.work_number += 1
        place.work_started = self.now
        spent = self._spent.get((place.name, measured_as(item)))
        seconds = 0.0 if spent is None or isinstance(item, Lost | Returned) else spent.cost(self.world, place.name)
        seconds *= self.world.crowded(self._free_cores)
        self._agenda.enter(self.now + seconds, place.index, WorkEnd(place.work_number))

    def _end_work(self, place: Place, item: Item) -> None:
        if self._free_cores is not None:
            self._free_cores += 1
        while self._waiting:
            waiting = self._waiting.popleft()
            if waiting.current is not None:  # it may have finished while it waited
                self._compute(waiting, waiting.current)
                break
        super()._end_work(place, item)

    def _handle(self, place: Place, item: Item) -> None:
        kind = measured_as(item)
        spent = self._spent.setdefault((place.name, kind), _Spent())
        before, began = self._sent_by(place.name), time.thread_time()
        super()._handle(place, item)
        spent.seconds += time.thread_time() - began
        after = self._sent_by(place.name)
        spent.events += 1
        spent.frames += after[0] - before[0]
        spent.size_bytes += after[1] - before[1]
        if isinstance(item, Letter):
            spent.frames += 1
            spent.size_bytes += len(item.frame)

    def _sent_by(self, party: str) -> tuple[int, int]:
        sent = self._recorder.traffic_of(party)
        frames = sum(number for kind, number in sent.frames.items() if not kind.off_clock)
        return frames, sum(number for kind, number in sent.bytes.items() if not kind.off_clock)


class Rehearsal:
    """The first exchanges of one plan, timed; then what it will take, in one world or another."""

    def __init__(self, data: FederatedData, plan: Plan, world: World, seconds: float = SECONDS) -> None:
        names = (data.label_party, *data.feature_parties)
        if plan.is_alone:
            raise SettingsError(
                f"{plan.chosen.name} trains one party alone: nothing travels, and nobody waits. Its time is that of "
                "any training on one machine."
            )
        check_plan(plan, data.rows, names, data.columns, data.validation_rows)
        self._facts = facts_of(data, plan)
        self._price = price(plan, self._facts)
        self._parties = len(data.feature_parties)
        asked = getattr(plan.algorithm, "in_flight", 1)
        together = self._parties * (asked if isinstance(asked, int) else 1)  # uploads that are under way at a time
        settling, most = SETTLING * self._parties, MOST * together
        training = plan.training
        rehearsed = replace(
            training,
            # Long enough for every stretch.
            epochs=max(training.epochs, _epochs(8 * most + settling, plan, data)),
            evaluate_every_epochs=_epochs(EVALUATED * self._parties, plan, data),
            early_stopping=0,
            end_when_diverged=False,
        )
        noised = calibrated(plan, self._facts)
        federation = build_federation(data, replace(noised, training=rehearsed), self._facts)
        self.simulation = MeasuredSimulation(federation.parties, world, plan.seed, data.label_party)
        self._ended = not self.simulation.go_on(settling)
        began, exchanges = time.perf_counter(), self.simulation.exchanges()
        self._short = LEAST * together
        if not self._ended:
            self.simulation.forget_times()
            self._ended = not self.simulation.go_on(self._short)
        pace = (time.perf_counter() - began) / max(1, self.simulation.exchanges() - exchanges)
        self._stretch = int(min(most, max(self._short, seconds / 2 / max(pace, 1e-9))))
        if not self._ended:
            self._ended = not self.simulation.go_on(self._stretch)

    def foretold(self, world: World) -> Forecast:
        """The whole training, in this world."""
        simulation, places = self.simulation, self.simulation.places
        simulation.world = world
        # What is under way at a change of worlds was priced in the one before.
        simulation.go_on(self._short)
        frames = simulation.travelled()
        now, exchanges = simulation.now, simulation.exchanges()
        busy = {place.name: place.busy_seconds for place in places}
        simulation.go_on(self._stretch)
        made, took = simulation.exchanges() - exchanges, simulation.now - now
        if made < self._parties or took <= 0:
            raise SettingsError(
                "The training ends before it can be timed: its row budgets are spent within a few exchanges. "
                "`colonnade account` says what they allow."
            )
        travelled = [(after - before) / 2 / made for after, before in zip(simulation.travelled(), frames, strict=True)]
        evaluation = self._evaluation_seconds(world)
        planned = self._price.exchanges
        return Forecast(
            seconds=planned * took / made + evaluation,
            evaluation_seconds=evaluation,
            exchanges=planned,
            exchanges_per_second=made / took,
            bytes_up=self._price.bytes_up,
            bytes_down=self._price.bytes_down,
            busy={place.name: min(1.0, (place.busy_seconds - busy[place.name]) / took) for place in places},
            frames_per_exchange=travelled[0],
            bytes_per_exchange=travelled[1],
        )

    def _evaluation_seconds(self, world: World) -> float:
        """Everybody's work and bytes of all evaluations: feature parties side by side, then the label party."""
        label = self._facts.label_party
        simulate = world.simulate
        work: dict[str, float] = {}
        travelling = 0.0
        for one in self._price.traffic:
            if not one.kind.off_clock:
                continue
            seen = self.simulation.scoring[one.receiver].by_kind.get(one.kind, [])
            seconds = sum(seen) / len(seen) * world.slowdown(one.receiver) if seen else 0.0
            seconds += world.carriage.seconds(1, one.size_bytes / one.frames)
            work[one.receiver] = work.get(one.receiver, 0.0) + seconds * one.frames
            if world.cores is None and simulate.bandwidth_bytes_per_second:
                travelling = max(travelling, one.size_bytes / simulate.bandwidth_bytes_per_second)
        others = [seconds for name, seconds in work.items() if name != label]
        in_turn = work.get(label, 0.0) + max(others, default=0.0)
        shared = 0.0 if world.cores is None else sum(work.values()) / world.cores
        return max(in_turn, shared) + travelling


def _epochs(exchanges: float, plan: Plan, data: FederatedData) -> float:
    """The epochs in which all feature parties together make so many exchanges."""
    return exchanges * plan.training.batch_size / (len(data.feature_parties) * max(1, data.rows))


def fitted(seen: Iterable[tuple[float, float, float]]) -> Carriage:
    """The carriage that explains calibrations: (frames an exchange, bytes an exchange, seconds at each of their ends).

    >>> fitted([(2, 1000, 0.004)])
    Carriage(seconds_per_frame=0.002, seconds_per_byte=0.0)
    >>> two = fitted([(2, 1000, 0.0021), (2, 5000, 0.0025)])
    >>> round(two.seconds_per_frame, 6), round(two.seconds_per_byte, 12)
    (0.001, 1e-07)
    """
    points = [(size / frames, seconds / frames) for frames, size, seconds in seen if frames]
    if not points:
        return Carriage()
    (small, first), (large, last) = min(points), max(points)
    slope = (last - first) / (large - small) if large > small else 0.0
    if slope <= 0:  # noise: no frame costs less because it is larger
        return Carriage(sum(seconds for _, seconds in points) / len(points))
    if slope * small > first:  # nor less than nothing, however small
        return Carriage(0.0, (first + last) / (small + large))
    return Carriage(first - slope * small, slope)
