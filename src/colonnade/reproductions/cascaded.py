"""Table II of G. Wang et al., "Cascaded Hybrid Optimization", 2023, on MNIST: test accuracy of the five algorithms, and
what widening the top model does to `cascaded` and `zoo`.

The paper's MLP (bottoms Linear(784/M, 128) + ReLU, top 128M → width → 10), batches of 64, μ = 0.001, plain SGD. Each
algorithm is shown at the best rate of the paper's grid, the same for feature parties and label party (the paper gives
them different ones and does not say which), and after its best epoch: zeroth order on both sides comes near the
published accuracy and then, trained on, collapses. Rate and epoch are chosen on a tenth of the training rows, kept
apart for it; test rows are scored once, at the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from math import nan
from statistics import mean
from time import perf_counter
from typing import Any

from colonnade import algorithms
from colonnade.algorithms.training import Training
from colonnade.data import dataset
from colonnade.data.federated import FederatedData
from colonnade.errors import RunError
from colonnade.launch.experiment import train
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.reproductions.cells import run_cells
from colonnade.reproductions.published import published
from colonnade.reproductions.reproduction import Reproduction, Row, Scope, Shown

GRID = (0.020, 0.015, 0.010, 0.005, 0.001)
PARTIES = 4
BOTTOM = BottomSettings(embedding=128, hidden=())
VALIDATION = 0.1
"""Share of the training rows by which rates and epochs are chosen."""
LOST = 100.0
"""A mean training loss above this has diverged: guessing among ten classes costs 2.3."""


@dataclass(frozen=True)
class Trial:
    """One training, as a worker process is told it."""

    algorithm: str
    rate: float
    epochs: float
    seed: int
    width: int = 128  # of the top model's hidden layer
    parties: int = PARTIES
    max_rows: int = 0  # 0: all
    on_training_rows: bool = False  # whether accuracy is that on training rows, as in the paper's curves
    top_rate: float = 0.0  # of the label party; 0: that of the feature parties

    def __str__(self) -> str:
        top = f", top rate {self.top_rate}" if self.top_rate else ""
        return f"{self.algorithm}, rate {self.rate}{top}, {self.parties} parties, width {self.width}, seed {self.seed}"


@dataclass(frozen=True)
class Run:
    """What a trial gave."""

    trial: Trial
    curve: tuple[tuple[int, float], ...]  # exchanges so far, accuracy on validation or training rows in per cent
    diverged: bool
    seconds: float
    test: float | None = None  # accuracy on test rows of the model that was best on validation rows; None: not scored

    @property
    def best(self) -> float:
        return max((accuracy for _, accuracy in self.curve), default=0.0)

    def exchanges_to(self, accuracy: float) -> int | None:
        return next((exchanges for exchanges, reached in self.curve if reached >= accuracy), None)

    def __str__(self) -> str:
        reached = [f"{self.best:.1f} %"] if self.curve else []
        ending = ", then ".join([*reached, *(["diverged"] if self.diverged else [])])
        return f"{ending} ({self.seconds:.0f} s)"


@cache
def _mnist(max_rows: int, parties: int = PARTIES, validation: float = 0.0) -> FederatedData:
    return dataset("mnist", parties=parties, max_rows=max_rows, validation=validation)


def run(trial: Trial) -> Run:
    """Train until the epochs are over or the loss runs away."""
    data = _data(trial)
    curve: list[tuple[int, float]] = []
    diverged, test = False, None

    def look(line: dict[str, Any]) -> None:
        nonlocal diverged
        diverged = diverged or (line["loss"] is not None and line["loss"] > LOST)
        scored = line["metric"] if trial.on_training_rows else line.get("validation")
        if scored:
            curve.append((line["exchange"], 100 * scored["accuracy"]))

    began = perf_counter()
    try:
        outcome = train(
            data,
            as_published(trial.algorithm),
            training=Training(
                heal=False,  # the paper's form: a rate that is too large fails
                epochs=trial.epochs,
                batch_size=64,
                learning_rate=trial.rate,
                top_learning_rate=trial.top_rate or "auto",
                optimiser="sgd",
                evaluate_every_epochs=0.5 if trial.on_training_rows else 1.0,
            ),
            bottom=BOTTOM,
            top=TopSettings(hidden=(trial.width,)),
            seed=trial.seed,
            watch=look,
            stop_requested=lambda: diverged,
        )
        tested = outcome.summary["test"].get("accuracy")  # none, where outputs were not finite
        if not trial.on_training_rows and tested is not None:
            test = 100 * float(tested)
    except RunError:  # the loss was not finite any more
        diverged = True
    best_epoch = 1.0 + max(range(len(curve)), key=lambda place: curve[place][1], default=0)
    if diverged and curve and not trial.on_training_rows and best_epoch < trial.epochs:
        # Nothing is scored of a run that did not end: the same one, up to the epoch that was best, does.
        test = run(replace(trial, epochs=best_epoch)).test
    return Run(trial, tuple(curve), diverged, perf_counter() - began, test)


def _data(trial: Trial) -> FederatedData:
    if trial.on_training_rows:
        return _scored_on_training_rows(_mnist(trial.max_rows, trial.parties))
    return _mnist(trial.max_rows, trial.parties, VALIDATION)


def as_published(algorithm: str) -> Any:
    """Its settings, with the papers' plain step along one direction where there are directions."""
    kind = algorithms.find(algorithm).settings
    looks = any(setting.name == "step" for setting in fields(kind))
    return kind(step="plain", directions=1) if looks else kind()


def _scored_on_training_rows(data: FederatedData, rows: int = 5_000) -> FederatedData:
    """The same data, with training rows in place of the test rows."""
    columns = {name: replace(own, test=own.train[:rows]) for name, own in data.columns.items()}
    return replace(data, columns=columns, labels=replace(data.labels, test=data.labels.train[:rows]))


def run_all(trials: Sequence[Trial], scope: Scope) -> list[Run]:
    """The first data set is loaded here: should it be missing, that is said once and fetched once."""
    return run_cells(run, trials, Run, scope, follows_from=lambda one: _data(one).row_digest)


def best_rates(
    shown: Sequence[Trial], rates: Mapping[str, Sequence[float]], epochs: float, seeds: Sequence[int], scope: Scope
) -> tuple[list[float], dict[Trial, Run]]:
    """For each of the trials the best of its algorithm's rates, and the runs that tell.

    Rates are compared after `epochs`: first by how many seeds have not diverged, then by their mean accuracy.
    """

    def tries(one: Trial, rate: float) -> list[Trial]:
        return [replace(one, rate=rate, epochs=epochs, seed=seed) for seed in seeds]

    def score(one: Trial, rate: float) -> tuple[int, float]:
        runs = [known[trial] for trial in tries(one, rate)]
        return -sum(run.diverged for run in runs), mean(run.best for run in runs)

    tried = [trial for one in shown for rate in rates[one.algorithm] for trial in tries(one, rate)]
    known = {run.trial: run for run in run_all(tried, scope)}
    return [max(rates[one.algorithm], key=partial(score, one)) for one in shown], known


def at_best_rate(
    shown: Sequence[Trial],
    rates: Mapping[str, Sequence[float]],
    rate_epochs: float,
    scope: Scope,
    rate_seeds: Sequence[int] | None = None,
) -> list[list[Run]]:
    """For each of the trials its runs with all seeds, at the best of its algorithm's rates.

    Rates are compared after `rate_epochs`, with the same seeds unless told otherwise.
    """
    best, known = best_rates(shown, rates, rate_epochs, scope.seeds if rate_seeds is None else rate_seeds, scope)
    wanted = [
        [replace(one, rate=rate, seed=seed) for seed in scope.seeds] for one, rate in zip(shown, best, strict=True)
    ]
    rest = [trial for trials in wanted for trial in trials if trial not in known]
    known |= {run.trial: run for run in run_all(rest, scope)}
    return [[known[trial] for trial in trials] for trials in wanted]


def _diverged(runs: Sequence[Run]) -> str:
    count = sum(run.diverged for run in runs)
    return f"; {count} of {len(runs)} diverged later" if count else ""


# --- Table II, four parties -------------------------------------------------------------------------------------

NAMES = {
    "split": "Split learning",
    "vafl": "VAFL",
    "cascaded": "VFL-Cascaded",
    "zoo": "ZOO-VFL",
    "zoo-sync": "Syn-ZOO-VFL",
}
"""What the paper calls the algorithms."""
QUICK_ROWS = 10_000
QUICK_EPOCHS, FULL_EPOCHS = 30.0, 100.0
QUICK_RATE_EPOCHS, FULL_RATE_EPOCHS = 3.0, 10.0
FIRST = "MNIST, 4 clients"
# By the paper's columns: parties and the width of the top model.
COLUMNS = {
    FIRST: (4, 128),
    "MNIST, 6 clients": (6, 128),
    "MNIST, 8 clients": (8, 128),
    "MNIST, width 256": (4, 256),
    "MNIST, width 512": (4, 512),
}


def table_2(columns: Sequence[str], scope: Scope) -> Shown:
    """Test accuracy after equally many epochs, each algorithm at its best rate and epoch by validation rows."""
    quick = scope.quick
    epochs = QUICK_EPOCHS if quick else FULL_EPOCHS
    columns = columns[:1] if quick else columns
    # The slowest first, so that no core is left with a long one at the end.
    shown = {
        (column, name): Trial(name, 0.0, epochs, 0, width, parties, QUICK_ROWS if quick else 0)
        for column in columns
        for parties, width in [COLUMNS[column]]
        for name in ("cascaded", "vafl", "zoo", "zoo-sync", "split")
    }
    rates = dict.fromkeys(NAMES, GRID)
    rate_epochs = QUICK_RATE_EPOCHS if quick else FULL_RATE_EPOCHS
    found = at_best_rate([*shown.values()], rates, rate_epochs, scope, scope.seeds[:1])
    runs = dict(zip(shown, found, strict=True))
    rows = [_accuracy_row(column, name, runs[column, name], quick) for column in columns for name in NAMES]
    for column in columns:
        pairs = zip(runs[column, "vafl"], runs[column, "cascaded"], strict=True)
        gaps = [_tested(ahead) - _tested(own) for ahead, own in pairs]
        label = f"vafl less cascaded, {column}, points"
        rows.append(Row.beside(None, label, gaps, "", "at most 3", lambda ours, _: ours <= 3))
        pairs = zip(runs[column, "cascaded"], runs[column, "zoo"], strict=True)
        gains = [_tested(own) - _tested(behind) for own, behind in pairs]
        label = f"cascaded less zoo, {column}, points"
        rows.append(Row.beside(None, label, gains, "", "above 0", lambda ours, _: ours > 0))
    remark = f"Rates are compared after {rate_epochs:.0f} epochs with the first seed."
    if quick:
        remark += (
            f" Quick: {QUICK_ROWS:,} rows and {epochs:.0f} epochs in place of the paper's 60,000 and 100, so only the "
            "order of the algorithms can be held against the paper's; the full run has its rows and epochs."
        )
    return Shown(rows, (), remark)


def _accuracy_row(column: str, name: str, runs: Sequence[Run], quick: bool) -> Row:
    epochs = QUICK_EPOCHS if quick else FULL_EPOCHS
    note = f"learning rate {runs[0].trial.rate}, best of {epochs:.0f} epochs{_diverged(runs)}"
    there = published("cascaded", "Table II", NAMES[name], column)

    def holds(ours: float, printed: float | None) -> bool:
        return printed is not None and ours >= printed - 0.5

    scores, label = [_tested(run) for run in runs], f"{name}, {column}, test accuracy %"
    if quick:
        return Row.beside(there, label, scores, note)
    return Row.beside(there, label, scores, note, "at most half a point below the published", holds)


def _tested(run: Run) -> float:
    return nan if run.test is None else run.test


# --- the width of the top model ---------------------------------------------------------------------------------

WIDTHS = (128, 256, 512)
TARGETS = {"cascaded": 90.0, "zoo": 80.0}
"""Training accuracy in per cent; zoo does not get to 90."""
CLAIMS = {"cascaded": "claim: at most 1.10", "zoo": "claim: above 1, the wider is slower"}
RATES = {"cascaded": (0.02,), "zoo": (0.0014, 0.001)}
"""Of the grid's rates zoo survives the least alone; a narrow top stands a little more."""
WIDTH_EPOCHS = 25.0


def top_width(scope: Scope) -> Shown:
    """Exchanges to a training accuracy, and the best one in equally many, for each width of the top model."""
    shown = [
        Trial(name, 0.0, WIDTH_EPOCHS, 0, width, max_rows=QUICK_ROWS if scope.quick else 0, on_training_rows=True)
        for width in ((512, 128) if scope.quick else (512, 256, 128))
        for name in ("zoo", "cascaded")
    ]
    found = at_best_rate(shown, RATES, WIDTH_EPOCHS, scope)
    runs = {(one.algorithm, one.width): own for one, own in zip(shown, found, strict=True)}
    last = max(run.curve[-1][0] for own in found for run in own if run.curve)
    rows = []
    for name, target in TARGETS.items():
        exchanges: dict[int, list[int]] = {}
        for width in WIDTHS:
            if (name, width) not in runs:
                continue
            own = runs[name, width]
            reached = [run.exchanges_to(target) for run in own]
            exchanges[width] = [last if count is None else count for count in reached]
            label = f"{name}, top {width} wide"
            note = f"learning rate {own[0].trial.rate}"
            short = reached.count(None)
            late = f"; {short} of {len(own)} did not reach it and count as {last:,}" if short else ""
            reach = f"{label}: exchanges to {target:.0f} % in training"
            rows.append(Row.beside(None, reach, exchanges[width], note + late))
            note += f", best in {last:,} exchanges{_diverged(own)}"
            rows.append(Row.beside(None, f"{label}: training accuracy %", [run.best for run in own], note))
        ratios = [wide / narrow for wide, narrow in zip(exchanges[512], exchanges[128], strict=True)]
        rows.append(Row.beside(None, f"{name}: exchanges at 512 over 128", ratios, CLAIMS[name]))
    return Shown(rows)


REPRODUCTIONS = (
    Reproduction(
        "cascaded-table-2",
        "cascaded",
        "Table II",
        "MNIST with four parties: test accuracy of split, VAFL, cascaded, ZOO and ZOO-sync",
        ("mnist",),
        partial(table_2, (FIRST,)),
        seeds=3,
        quick_seeds=1,
    ),
    Reproduction(
        "cascaded-table-2-parties",
        "cascaded",
        "Table II",
        "MNIST with six and eight parties: test accuracy of the five",
        ("mnist",),
        partial(table_2, ("MNIST, 6 clients", "MNIST, 8 clients")),
        seeds=3,
        quick_seeds=1,
    ),
    Reproduction(
        "cascaded-table-2-widths",
        "cascaded",
        "Table II",
        "MNIST with top models 256 and 512 wide: test accuracy of the five",
        ("mnist",),
        partial(table_2, ("MNIST, width 256", "MNIST, width 512")),
        seeds=3,
        quick_seeds=1,
    ),
    Reproduction(
        "cascaded-top-width",
        "cascaded",
        "Figure 5a",
        "how fast cascaded and ZOO learn under a wider top model",
        ("mnist",),
        top_width,
        seeds=3,
    ),
)
