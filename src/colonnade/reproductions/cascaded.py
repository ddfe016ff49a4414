"""Table II of G. Wang et al., "Cascaded Hybrid Optimization", 2023, on MNIST: test accuracy of the five algorithms, and
what widening the top model does to `cascaded` and `zoo`.

The paper's MLP (bottoms Linear(784/M, 128) + ReLU, top 128M → width → 10), four parties, batches of 64, μ = 0.001,
plain SGD. Each algorithm is shown at the best of the paper's rates for its feature parties. The paper gives the label
party another rate, since they update at different times, and does not say which. We read it so: where the label party
makes an update with every upload, M for one of a feature party, its rate is an Mth of theirs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import mean, stdev
from time import perf_counter
from typing import Any

from colonnade import algorithms
from colonnade.algorithms.parts.asynchrony import Asynchronous
from colonnade.algorithms.parts.training import Training
from colonnade.data import dataset
from colonnade.data.federated import FederatedData
from colonnade.errors import RunError
from colonnade.experiment import train
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.reproductions import Reproduction, Row, Watch
from colonnade.reproductions.pool import run_each

GRID = (0.020, 0.015, 0.010, 0.005, 0.001)
PARTIES = 4
BOTTOM = BottomSettings(embedding=128, hidden=())
LOST = 100.0
"""A mean training loss above this has diverged: guessing among ten classes costs 2.3."""


@dataclass(frozen=True)
class Trial:
    """One training, as a worker process is told it."""

    algorithm: str
    rate: float  # of the feature parties
    epochs: float
    seed: int
    width: int = 128  # of the top model's hidden layer
    max_rows: int = 0  # 0: all
    watched: bool = False  # whether the training accuracy is taken every half epoch

    @property
    def top_rate(self) -> float:
        asynchronous = issubclass(algorithms.find(self.algorithm).settings, Asynchronous)
        return self.rate / PARTIES if asynchronous else self.rate

    def __str__(self) -> str:
        return f"{self.algorithm}, rate {self.rate}, width {self.width}, seed {self.seed}"


@dataclass(frozen=True)
class Run:
    """What a trial gave; accuracies in per cent."""

    trial: Trial
    accuracy: float  # on the test rows after the last epoch; 0 if it diverged
    seconds: float
    curve: tuple[tuple[int, float], ...] = ()  # exchanges so far, training accuracy

    def exchanges_to(self, accuracy: float) -> int | None:
        return next((exchanges for exchanges, reached in self.curve if reached >= accuracy), None)


@cache
def _mnist(max_rows: int) -> FederatedData:
    return dataset("mnist", parties=PARTIES, max_rows=max_rows)


def run(trial: Trial) -> Run:
    """Train; a rate at which the loss runs away is given up, and not the algorithm's best one."""
    data = _mnist(trial.max_rows)
    curve: list[tuple[int, float]] = []
    runs_away = False

    def look(line: dict[str, Any]) -> None:
        nonlocal runs_away
        runs_away = runs_away or (line["loss"] is not None and line["loss"] > LOST)
        if line["metric"]:
            curve.append((line["exchange"], 100 * line["metric"]["accuracy"]))

    settings = algorithms.find(trial.algorithm).settings()
    began = perf_counter()
    try:
        outcome = train(
            _scored_on_training_rows(data) if trial.watched else data,
            settings,
            training=Training(
                epochs=trial.epochs,
                batch_size=64,
                learning_rate=trial.rate,
                top_learning_rate=trial.top_rate,
                evaluate_every_epochs=0.5 if trial.watched else trial.epochs / PARTIES,
            ),
            bottom=BOTTOM,
            top=TopSettings(hidden=(trial.width,)),
            seed=trial.seed,
            watch=look,
            stop_requested=lambda: runs_away,
        )
    except RunError:  # the loss was not finite any more
        runs_away = True
    accuracy = 0.0
    if not runs_away:
        outputs = outcome.outputs({name: own.test for name, own in data.columns.items()})
        accuracy = 100 * float((outputs.argmax(1) == data.labels.test).double().mean())
    return Run(trial, accuracy, perf_counter() - began, tuple(curve))


def _scored_on_training_rows(data: FederatedData, rows: int = 5_000) -> FederatedData:
    """The "test" rows are training rows here: the paper's curves show training accuracy."""
    columns = {name: replace(own, test=own.train[:rows]) for name, own in data.columns.items()}
    return replace(data, columns=columns, labels=replace(data.labels, test=data.labels.train[:rows]))


def _run_all(trials: Sequence[Trial], watch: Watch) -> list[Run]:
    if trials:
        _mnist(trials[0].max_rows)  # here first: should it be missing, that is said once and fetched once
    done = 0

    def finished(trial: Trial, result: Run) -> None:
        nonlocal done
        done += 1
        ending = f"{result.accuracy:.1f} %" if result.accuracy else "diverged"
        watch(f"{done}/{len(trials)}  {trial}: {ending} ({result.seconds:.0f} s)")

    return run_each(run, trials, finished)


def _at_best_rate(
    shown: Sequence[Trial], rates: Mapping[str, Sequence[float]], rate_epochs: float, seeds: Sequence[int], watch: Watch
) -> list[list[Run]]:
    """For each of the trials its runs with all seeds, at the best of its algorithm's rates.

    Rates are compared by the mean test accuracy after `rate_epochs`, with the same seeds. One that has collapsed by the
    end, that is, does worse than after `rate_epochs`, gives way to the next.
    """

    def seeded(one: Trial, rate: float, epochs: float) -> list[Trial]:
        return [replace(one, rate=rate, epochs=epochs, seed=seed) for seed in seeds]

    def score(one: Trial, epochs: float, rate: float) -> float:
        return mean(known[trial].accuracy for trial in seeded(one, rate, epochs))

    def run_missing(trials: Sequence[Trial]) -> None:
        known.update((run.trial, run) for run in _run_all([one for one in trials if one not in known], watch))

    known: dict[Trial, Run] = {}
    run_missing([trial for one in shown for rate in rates[one.algorithm] for trial in seeded(one, rate, rate_epochs)])
    ranked = {one: sorted(rates[one.algorithm], key=partial(score, one, rate_epochs)) for one in shown}
    best: dict[Trial, float] = {}
    while unsettled := [one for one in shown if one not in best]:
        run_missing([trial for one in unsettled for trial in seeded(one, ranked[one][-1], one.epochs)])
        for one in unsettled:
            rate = ranked[one].pop()
            if not ranked[one] or score(one, one.epochs, rate) >= score(one, rate_epochs, rate):
                best[one] = rate
    return [[known[trial] for trial in seeded(one, best[one], one.epochs)] for one in shown]


# --- Table II, four parties -------------------------------------------------------------------------------------

PUBLISHED = {"split": 97.7, "vafl": 97.7, "cascaded": 96.4, "zoo": 89.0, "zoo-sync": 87.4}
QUICK_EPOCHS, FULL_EPOCHS = 30.0, 100.0
QUICK_RATE_EPOCHS = 4.0


def table_2(quick: bool, seeds: Sequence[int], watch: Watch) -> list[Row]:
    """Four parties: test accuracy in per cent after the same number of epochs, each algorithm at its best rate."""
    epochs = QUICK_EPOCHS if quick else FULL_EPOCHS
    # The slowest first, so that no core is left with a long one at the end.
    shown = [Trial(name, 0.0, epochs, 0) for name in ("zoo", "cascaded", "zoo-sync", "vafl", "split")]
    rates = dict.fromkeys(PUBLISHED, GRID)
    found = _at_best_rate(shown, rates, QUICK_RATE_EPOCHS if quick else epochs, seeds, watch)
    runs = {one.algorithm: own for one, own in zip(shown, found, strict=True)}
    rows = []
    for name, published in PUBLISHED.items():
        trial = runs[name][0].trial
        note = f"rates {trial.rate:g} and {trial.top_rate:g}, {epochs:.0f} epochs"
        note += "; the paper trains 100" if quick else ""
        rows.append(_row(f"{name}, test accuracy %", published, [run.accuracy for run in runs[name]], note))
    gaps = [ahead.accuracy - own.accuracy for ahead, own in zip(runs["vafl"], runs["cascaded"], strict=True)]
    rows.append(_row("vafl less cascaded, points", 1.3, gaps, "claim: at most 3"))
    early = [run.curve[0][1] for run in runs["vafl"]]
    updates = f"as many updates of the top model as split in {epochs:.0f}"
    rows.append(_row(f"vafl after {epochs / PARTIES:.0f} epochs, test accuracy %", None, early, updates))
    return rows


def _row(label: str, published: float | None, values: Sequence[float], note: str) -> Row:
    return Row(label, published, mean(values), stdev(values) if len(values) > 1 else None, note)


# --- the width of the top model ---------------------------------------------------------------------------------

PUBLISHED_WIDTHS = {"cascaded": {128: 96.4, 256: 96.5, 512: 96.2}, "zoo": {128: 89.0, 256: 85.3, 512: 86.0}}
TARGETS = {"cascaded": 90.0, "zoo": 75.0}
"""Training accuracy in per cent; zoo does not get to 90."""
CLAIMS = {"cascaded": "claim: at most 1.10", "zoo": "claim: above 1, the wider is slower"}
QUICK_ROWS, QUICK_WIDTH_EPOCHS = 10_000, 25.0
QUICK_WIDTH_RATES = {"cascaded": (0.02,), "zoo": (0.007, 0.005, 0.0035)}
WIDTH_RATES = {"cascaded": (0.02,), "zoo": (0.002, 0.0014, 0.001)}
"""Which rates zoo survives depends on the width and on how long it trains: so finer steps than the grid's."""


def top_width(quick: bool, seeds: Sequence[int], watch: Watch) -> list[Row]:
    """Exchanges to a training accuracy, and test accuracy after equally many, for each width of the top model."""
    epochs = QUICK_WIDTH_EPOCHS if quick else FULL_EPOCHS
    shown = [
        Trial(name, 0.0, epochs, 0, width, QUICK_ROWS if quick else 0, watched=True)
        for width in ((512, 128) if quick else (512, 256, 128))
        for name in ("zoo", "cascaded")
    ]
    found = _at_best_rate(shown, QUICK_WIDTH_RATES if quick else WIDTH_RATES, epochs, seeds, watch)
    runs = {(one.algorithm, one.width): own for one, own in zip(shown, found, strict=True)}
    last = max(run.curve[-1][0] for own in found for run in own if run.curve)
    rows = []
    for name, target in TARGETS.items():
        exchanges: dict[int, list[int]] = {}
        for width, published in PUBLISHED_WIDTHS[name].items():
            if (name, width) not in runs:
                continue
            own = runs[name, width]
            reached = [run.exchanges_to(target) for run in own]
            exchanges[width] = [last if count is None else count for count in reached]
            trial = own[0].trial
            note = f"rates {trial.rate:g} and {trial.top_rate:g}"
            short = reached.count(None)
            late = f"; {short} of {len(own)} did not reach it and count as {last:,}" if short else ""
            label = f"{name}, top {width} wide"
            rows.append(_row(f"{label}: exchanges to {target:.0f} % in training", None, exchanges[width], note + late))
            note += f"; after {last:,} exchanges"
            note += f", {QUICK_ROWS:,} rows; the paper takes all and 100 epochs" if quick else ""
            rows.append(_row(f"{label}: test accuracy %", published, [run.accuracy for run in own], note))
        ratios = [wide / narrow for wide, narrow in zip(exchanges[512], exchanges[128], strict=True)]
        rows.append(_row(f"{name}: exchanges at 512 over 128", None, ratios, CLAIMS[name]))
    return rows


REPRODUCTIONS = (
    Reproduction("cascaded-table-2", "MNIST test accuracy of split, VAFL, cascaded, ZOO and ZOO-sync", table_2),
    Reproduction("cascaded-top-width", "how fast cascaded and ZOO learn under a wider top model", top_width, seeds=3),
)
