"""Whether every algorithm learns on data that nobody tuned for: the defaults, 20 epochs, twelve data sets, or tables
drawn from seeds.

Split models are compared with `centralised`, in points: percent of the test rows, or of R² in a regression. Linear
models are compared with the optimum of the same objective by scikit-learn, (f − f*)/f*. All in the simulator.
"""

import warnings
from typing import NamedTuple

from colonnade import algorithms
from colonnade.algorithms.row import Family
from colonnade.algorithms.training import Training
from colonnade.benchmarks.benchmark import Benchmark, Part, Watch
from colonnade.benchmarks.kept_cells import KeptCells
from colonnade.benchmarks.twelve_sets import TWELVE
from colonnade.benchmarks.unseen_sets import unseen
from colonnade.data.federated import FederatedData
from colonnade.errors import ColonnadeError
from colonnade.launch.experiment import train
from colonnade.reproductions.objective import gaps, optimum
from colonnade.trials.pool import run_each

YARDSTICK = "centralised"
FIRST_ORDER = ("vafl", "split")
HYBRID = ("cascaded", "czofo")  # of one order below and another above, or compressed
ZEROTH_ORDER = ("zoo", "zoo-sync", "dpzv")
WITHOUT_TOP = ("fdml",)  # a sum of the parties' own linear models
UNSEEN = "unseen "
TRAINING = Training(epochs=20, evaluate_every_epochs=0)


class Cell(NamedTuple):
    """One algorithm on one data set."""

    data: str
    algorithm: str


def run(watch: Watch) -> dict[str, float]:
    return run_part(watch, Part())


def run_part(watch: Watch, part: Part) -> dict[str, float]:
    """Figures of all that is kept, and of what was missing there."""
    names = [algorithms.find(name).name for name in part.only] or [*algorithms.ALGORITHMS]
    sets = [f"{UNSEEN}{seed}" for seed in part.unseen] or [*TWELVE]
    return figures(measured([Cell(data, name) for data in sets for name in names], watch, KeptCells(part.kept)))


def measured(cells: list[Cell], watch: Watch, kept: KeptCells) -> dict[Cell, float | None]:
    """Of split models the test metric in percent, of linear ones the gap; None if the run failed."""

    def tell(cell: Cell, found: float | None) -> None:
        kept.add(*cell, found)
        watch(f"{cell.data}, {cell.algorithm}: " + ("diverged" if found is None else f"{found:.3g}"))

    run_each(measure_cell, [cell for cell in cells if cell not in kept.figures], tell)
    return {Cell(*names): figure for names, figure in kept.figures.items()}


def measure_cell(cell: Cell) -> float | None:
    row = algorithms.ALGORITHMS[cell.algorithm]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = unseen(int(cell.data.removeprefix(UNSEEN))) if cell.data.startswith(UNSEEN) else TWELVE[cell.data]()
        try:
            if row.family is Family.LINEAR:
                return gaps(data, row.settings(), optimum(data, 1 / data.rows), training=TRAINING)[0][-1].gap
            return _percent(data, train(data, row.settings(), training=TRAINING).summary["test"])
        except ColonnadeError:
            return None


def _percent(data: FederatedData, test: dict[str, float]) -> float:
    if data.labels.task != "regression":
        return 100 * test["accuracy"]
    variance = float(data.labels.test.double().var(correction=0)) * data.labels.deviation**2
    return 100 * (1 - test["rmse"] ** 2 / variance)


def figures(found: dict[Cell, float | None]) -> dict[str, float]:
    """The worst of each kind of algorithm; one that diverged counts apart."""
    linear = [name for name, row in algorithms.ALGORITHMS.items() if row.family is Family.LINEAR]
    noisy = [name for name in linear if name.endswith("sgd")]

    def points(names: tuple[str, ...]) -> float:
        """By how much one of these is below the yardstick at most."""
        below = [0.0]
        for cell, value in found.items():
            best = found.get(Cell(cell.data, YARDSTICK))
            if cell.algorithm in names and value is not None and best is not None:
                below.append(best - value)
        return max(below)

    def gap(names: list[str]) -> float:
        return max([0.0, *(value for cell, value in found.items() if cell.algorithm in names and value is not None)])

    return {
        "diverged": float(sum(value is None for value in found.values())),
        "worst_first_order_points": points(FIRST_ORDER),
        "worst_hybrid_points": points(HYBRID),
        "worst_zeroth_order_points": points(ZEROTH_ORDER),
        "worst_fdml_points": points(WITHOUT_TOP),
        "worst_linear_gap": gap([name for name in linear if name not in noisy]),
        "worst_linear_sgd_gap": gap(noisy),
    }


BENCHMARK = Benchmark(
    name="defaults",
    summary="every algorithm with its defaults on twelve data sets that nobody tuned for",
    run=run,
    run_part=run_part,
    targets={
        "diverged": "<= 0",
        "worst_first_order_points": "<= 1",
        "worst_hybrid_points": "<= 2",
        "worst_zeroth_order_points": "<= 5",
        "worst_linear_gap": "<= 1e-4",
        "worst_linear_sgd_gap": "<= 1e-3",
    },
)
