"""`colonnade plan`: time, bytes and utilisation of a training and of its variants, foretold before anybody runs it.

Each variant is rehearsed (forecast.py) and foretold for where it will run: every party on a machine of its own and over
the links that `[simulate]` declares, as processes that share this machine's cores, or in one process. What carrying a
frame costs is measured in short real runs of the smallest and of the largest batch, in turns, whose medians count; how
much cores of this machine slow one another down is measured before (contention.py).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

from colonnade.data.federated import FederatedData
from colonnade.errors import ColonnadeError, SettingsError
from colonnade.federation.file import Federation, changed_values, read_federation
from colonnade.federation.plan import Plan
from colonnade.launch.experiment import train_plan
from colonnade.launch.run_options import RunOptions
from colonnade.prediction.starting import load_with_start
from colonnade.runtimes.delays import MEASURED
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.simulate.settings import Simulate
from colonnade.threads import computing_with
from colonnade.trials.contention import contention_of
from colonnade.trials.forecast import SECONDS, Carriage, Forecast, Rehearsal, World, fitted
from colonnade.trials.sweep import as_toml

NETWORK = "network"
PLACES = (NETWORK, Processes.name, Simulate.name)
"""Where a training can be planned for."""
_CHANGES_DATA = ("data", "parties", "federation", "start")
_CHANGES_PLACE = ("simulate", "processes", "ray", "network", "alignment", "track")
_REAL_SECONDS = 2.0
_REAL_EXCHANGES = 400, 6000
_REAL_RUNS = 3
"""Of each size of the batch. An even number would take the mean of two, and one run that was disturbed would count."""
_GUESSES, _NEAR = 5, 0.01
"""How often the cost of a frame is guessed, unless what it explains is that near to what was seen."""
_SAME_SPEED = 1.05  # forecasts that are nearer to one another than this are equally fast


@dataclass(frozen=True)
class Variant:
    """A federation with some settings changed, and what is foretold of it; or why it cannot be."""

    changes: Mapping[str, str]
    forecast: Forecast | None = None
    refused: str = ""


@dataclass(frozen=True)
class Planned:
    """Every variant's forecast, and which are recommended."""

    place: str
    cores: int | None
    carriage: Carriage
    variants: tuple[Variant, ...]
    as_it_is: int | None  # the place of the file's own settings among them
    best: int | None  # the fastest; of those equally fast the one that sends least
    best_alike: int | None  # the same among those that train with the file's algorithm and batch

    def as_values(self) -> dict[str, Any]:
        """For JSON; a seat in `variants` is null where there is none."""
        return {
            "runtime": self.place,
            "cores": self.cores,
            "seconds_per_frame": self.carriage.seconds_per_frame,
            "seconds_per_byte": self.carriage.seconds_per_byte,
            "variants": [_values_of(one) for one in self.variants],
            "as_it_is": self.as_it_is,
            "best": self.best,
            "best_alike": self.best_alike,
        }


def _values_of(one: Variant) -> dict[str, Any]:
    found = one.forecast
    if found is None:
        return {"changes": dict(one.changes), "why": one.refused}
    return {
        "changes": dict(one.changes),
        "why": "",
        "seconds": found.seconds,
        "evaluation_seconds": found.evaluation_seconds,
        "exchanges": found.exchanges,
        "exchanges_per_second": found.exchanges_per_second,
        "bytes_up": found.bytes_up,
        "bytes_down": found.bytes_down,
        "utilisation": dict(found.busy),
    }


def plan_training(
    federation: str | Path,
    each: Mapping[str, Sequence[str]] | None = None,
    *,
    changes: Sequence[str] = (),
    place: str = NETWORK,
    seconds: float = SECONDS,
    watch: Callable[[str], None] = lambda line: None,
) -> Planned:
    """Foretell the training of a federation.toml with every combination of the values in `each`.

    `each` has values by setting, as `--set` takes them; None: uploads in flight and sizes of the batch. `place`: where
    the training will run, one of `PLACES`. `seconds`: how long each variant is rehearsed, at most about.
    """
    file = Path(federation)
    if place not in PLACES:
        raise SettingsError(f"A training is planned for {', '.join(PLACES[:-1])} or {PLACES[-1]}, not for {place!r}.")
    settings = read_federation(file, changes)
    data, _ = load_with_start(settings, file.resolve().parent)
    own = settings.plan(data)
    each = default_grid(settings, own, data.rows) if each is None else each
    for name in each:
        if name.partition(".")[0] in _CHANGES_DATA:
            raise SettingsError(f"{name} changes what is trained on, or by whom: plan each such federation by itself.")
        if name.partition(".")[0] in _CHANGES_PLACE:
            raise SettingsError(
                f"{name} says where a training runs, the same for all variants: change it with --set, each by itself."
            )
    plans = _plans(file, settings, data, each, changes)
    with computing_with(1):  # as every party's process has by default
        declared = declared_times(changed_values(file, changes), settings, data) if place == NETWORK else {}
        return _foretold(settings, data, own, plans, place, declared, seconds, watch)


def default_grid(settings: Federation, plan: Plan, rows: int) -> dict[str, list[str]]:
    """What changes time and bytes, and is left to whoever writes the file: first what the file has."""
    grid: dict[str, list[str]] = {}
    if hasattr(settings.algorithm, "in_flight"):
        grid["algorithm.in_flight"] = [str(one) for one in dict.fromkeys([settings.algorithm.in_flight, 1, 2, 4])]
    batch = plan.training.batch_size
    sizes = dict.fromkeys([batch, *(min(rows, batch * factor) for factor in (2, 4))])
    grid["training.batch_size"] = [str(one) for one in sizes]
    return grid


def _plans(
    file: Path, settings: Federation, data: FederatedData, each: Mapping[str, Sequence[str]], changes: Sequence[str]
) -> list[tuple[dict[str, str], Plan | str]]:
    """Every variant's plan, the file as it is first; a sentence where it can have none."""
    chosen = [dict(zip(each, (as_toml(value) for value in values), strict=True)) for values in product(*each.values())]
    found: list[tuple[dict[str, str], Plan | str]] = [({}, settings.plan(data))]
    for one in chosen:
        asked = [*changes, *(f"{name}={value}" for name, value in one.items())]
        # The algorithm's name first: changing it drops the settings of the one before.
        asked.sort(key=lambda change: change.partition("=")[0].strip() != "algorithm.name")
        plan: Plan | str
        try:
            plan = read_federation(file, asked).plan(data)
        except SettingsError as error:
            plan = str(error)
        if plan == found[0][1]:
            found[0] = one, plan  # it is what the file says already
        else:
            found.append((one, plan))
    return found


def _foretold(
    settings: Federation,
    data: FederatedData,
    own: Plan,
    plans: Sequence[tuple[dict[str, str], Plan | str]],
    place: str,
    declared: Mapping[str, float],
    seconds: float,
    watch: Callable[[str], None],
) -> Planned:
    cores = {NETWORK: None, Processes.name: os.cpu_count() or 1, Simulate.name: 1}[place]
    carriage, contention = Carriage(), 1.0
    if place != Simulate.name:
        able = [plan for _, plan in plans if isinstance(plan, Plan)]
        contention = contention_of(os.cpu_count() or 1)
        carriage = carriage_here(data, able, watch, seconds, contention)
    simulate = settings.simulate if place == NETWORK else Simulate(latency_seconds=0.0)
    world = World(simulate, cores, carriage, contention, declared)
    variants: list[Variant] = []
    for changes, plan in plans:
        shown = ", ".join(f"{name}={value}" for name, value in changes.items()) or "the file as it is"
        watch(f"rehearsing {len(variants) + 1} of {len(plans)}: {shown}")
        if isinstance(plan, str):
            variants.append(Variant(changes, refused=plan))
            continue
        try:
            variants.append(Variant(changes, Rehearsal(data, plan, world, seconds).foretold(world)))
        except ColonnadeError as error:
            variants.append(Variant(changes, refused=str(error)))
    if all(one.forecast is None for one in variants):
        raise SettingsError(variants[0].refused)
    alike = [
        number
        for number, (_, plan) in enumerate(plans)
        if isinstance(plan, Plan)
        and plan.chosen.name == own.chosen.name
        and plan.training.batch_size == own.training.batch_size
    ]
    return Planned(
        place,
        cores,
        carriage,
        tuple(variants),
        None if variants[0].forecast is None else 0,
        recommended(variants, range(len(variants))),
        recommended(variants, alike),
    )


def recommended(variants: Sequence[Variant], among: Sequence[int]) -> int | None:
    """The fastest of these; of those that are within a few percent of it the one that sends least, then the first."""
    known = [(place, one) for place in among if (one := variants[place].forecast) is not None]
    if not known:
        return None
    fastest = min(one.seconds for _, one in known)
    quick = [(place, one) for place, one in known if one.seconds <= _SAME_SPEED * fastest]
    return min(quick, key=lambda found: (found[1].bytes_up + found[1].bytes_down, found[0]))[0]


def declared_times(values: Mapping[str, Any], settings: Federation, data: FederatedData) -> dict[str, float]:
    """Seconds of one event of the parties whose compute times the file declares; the others are measured here."""
    given = values.get("simulate", {})
    parties = dict.fromkeys(data.feature_parties, "compute_seconds")
    parties[data.label_party] = "label_compute_seconds"
    found = {}
    for name, key in parties.items():
        seconds = given.get("parties", {}).get(name, {}).get("compute_seconds", given.get(key, MEASURED))
        mean = seconds.get("mean") if isinstance(seconds, Mapping) else seconds
        own = settings.simulate.parties.get(name)
        if mean != MEASURED and mean is not None:
            found[name] = float(mean) * (1.0 if own is None else own.slowdown)
    return found


# --- what carrying a frame costs ----------------------------------------------------------------------------------


def carriage_here(
    data: FederatedData,
    plans: Sequence[Plan],
    watch: Callable[[str], None],
    seconds: float = SECONDS,
    contention: float = 1.0,
) -> Carriage:
    """What the programs of this machine need to carry a frame: what explains the pace of real runs, as processes."""
    able = sorted((plan for plan in plans if not plan.is_alone), key=lambda plan: plan.training.batch_size)
    sizes: dict[int, _Calibration] = {}  # by size of the batch
    for order in (able, able[::-1]):
        for plan in order:
            size = plan.training.batch_size
            if size in sizes:
                break
            with suppress(ColonnadeError):  # which the rehearsal of that variant says again
                sizes[size] = _Calibration(data, plan, seconds, contention)
                break
    for turn in range(_REAL_RUNS):
        for size, one in sizes.items():
            watch(f"short real runs, {turn + 1} of {_REAL_RUNS}: batches of {size}")
            with suppress(ColonnadeError):
                one.run()
    return fitted(one.seen() for one in sizes.values())


class _Calibration:
    """A plan that is rehearsed, and run for a short time, again and again."""

    def __init__(self, data: FederatedData, plan: Plan, seconds: float, contention: float) -> None:
        self._data, self._plan = data, plan
        self._bare = World(Simulate(latency_seconds=0.0), os.cpu_count() or 1, contention=contention)
        self._rehearsal = Rehearsal(data, plan, self._bare, seconds)
        self._alone = self._rehearsal.foretold(self._bare)
        self._real: list[float] = []

    def run(self) -> None:
        """What else a machine does for a while meets all sizes alike, as they come in turns."""
        self._real.append(_real_seconds_per_exchange(self._data, self._plan, self._alone.exchanges_per_second))

    def seen(self) -> tuple[float, float, float]:
        """Frames and bytes of an exchange, and what carrying its frames costs at each end."""
        frames, size = self._alone.frames_per_exchange, self._alone.bytes_per_exchange
        real = median(self._real) if self._real else 0.0
        bare = 1 / self._alone.exchanges_per_second
        if real <= bare or not isfinite(real):
            return frames, size, 0.0
        # What a frame costs delays its exchange in part: where others are waited for, or cores. Guessed until it fits.
        missing = real - bare
        guess = missing / (2 * frames)
        for _ in range(_GUESSES):
            carried = replace(self._bare, carriage=Carriage(guess))
            explained = 1 / self._rehearsal.foretold(carried).exchanges_per_second - bare
            if abs(explained - missing) <= _NEAR * real or explained <= 0:
                break
            guess *= min(4.0, missing / explained)
        return frames, size, frames * guess


def _real_seconds_per_exchange(data: FederatedData, plan: Plan, pace: float) -> float:
    """Of a short run as processes, its first fifth left out; 0 if it was too short to tell."""
    least, most = _REAL_EXCHANGES
    exchanges = max(least, min(most, _REAL_SECONDS * pace))
    epochs = exchanges * plan.training.batch_size / (len(data.feature_parties) * data.rows)
    training = replace(
        plan.training,
        epochs=epochs,
        evaluate_every_epochs=0,
        early_stopping=0,
        end_when_diverged=False,
        observe_every_epochs=epochs / 50,
    )
    outcome = train_plan(data, replace(plan, training=training), Processes(), RunOptions())
    lines = [line for line in outcome.metrics if line["loss"] is not None]
    first, last = lines[len(lines) // 5], lines[-1]
    made = last["exchange"] - first["exchange"]
    return float((last["wall_seconds"] - first["wall_seconds"]) / made) if made else 0.0
