"""Accuracy where every party lacks some rows: of a training on all of them, on those that all hold, of a party alone.

Each feature party lacks each row with the same chance, in training and in test rows alike. All are scored on all test
rows. What was trained on the rows that all hold gets the mean of its training rows where a party lacks a row; a party
alone says the most frequent class there.
"""

import warnings
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from colonnade.algorithms.training import Training
from colonnade.benchmarks.benchmark import Benchmark, Watch
from colonnade.data.absence import NOWHERE
from colonnade.data.datasets import read_dataset
from colonnade.data.loading import from_frames
from colonnade.data.sources import read_table
from colonnade.errors import DataError
from colonnade.launch.experiment import train
from colonnade.prediction.joint_model import JointModel
from colonnade.trials.pool import run_each

SETS = {"breast_cancer": 3, "digits": 4, "synthetic": 4}  # with how many feature parties
SHARES = (0.0, 0.3, 0.6)
ALGORITHMS = ("vafl", "fcg")
SEEDS = range(1)
TEST_FRACTION = 0.25
LABEL = "label"


class Cell(NamedTuple):
    """One training of each kind."""

    data: str
    algorithm: str
    share: float
    seed: int


class Found(NamedTuple):
    """Test accuracies, in percent."""

    any: float
    intersection: float  # nan: there were too few rows that all hold
    best_party: float


class Tables:
    """A data set's columns shared out, each party's rows as chance leaves them, and the rows to test on."""

    def __init__(self, cell: Cell) -> None:
        joined = read_dataset(cell.data)
        draws = np.random.default_rng([cell.seed, round(100 * cell.share)])
        self.labels = np.asarray(joined.y)
        rows = len(self.labels)
        order = np.random.default_rng(cell.seed).permutation(rows)
        self.train, self.test = np.split(order, [rows - round(TEST_FRACTION * rows)])
        values = np.asarray(joined.X).reshape(rows, -1)
        blocks = np.array_split(np.arange(values.shape[1]), SETS[cell.data])
        self.columns = {f"party{1 + place}": values[:, block] for place, block in enumerate(blocks)}
        self.held = {name: draws.random(rows) >= cell.share for name in self.columns}

    def frames(self, *parties: str) -> dict[str, pa.Table]:
        """The training rows of these feature parties, and the labels of all."""
        labels = pa.table({"id": self.train.astype(str), "y": self.labels[self.train]})
        return {LABEL: labels, **{name: self._frame(name, self.train[self.held[name][self.train]]) for name in parties}}

    def _frame(self, name: str, rows: NDArray[np.int64]) -> pa.Table:
        own = self.columns[name][rows]
        return pa.table({"id": rows.astype(str), **{f"{name} {j}": own[:, j] for j in range(own.shape[1])}})

    def prepared(self, model: JointModel) -> dict[str, NDArray[np.float32]]:
        """The test rows as a model takes them; a party that lacks one is absent, or 0 where it may not be."""
        found: dict[str, NDArray[np.float32]] = {}
        for name in model.order:
            held = self.held[name][self.test]
            table = read_table(self._frame(name, self.test[held]), party=name, id="id")
            preparation = model.parties[name].preparation
            assert preparation is not None
            at = np.full(len(self.test), NOWHERE)
            at[held] = np.arange(held.sum())
            rows = np.zeros((len(at), len(preparation.names)), np.float32)
            kept = slice(None) if model.expects_absence else held
            rows[kept] = preparation.apply(table, at[kept], party=name).numpy()
            found[name] = rows
        return found

    def accuracy(self, predicted: NDArray[np.int64]) -> float:
        return 100 * float((predicted == self.labels[self.test]).mean())


def measure_cell(cell: Cell) -> Found:
    tables = Tables(cell)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that few rows match is the point
        alone = [_alone(tables, cell, name) for name in tables.columns]
        return Found(_together(tables, cell, "any"), _together(tables, cell, "intersection"), max(alone))


def _together(tables: Tables, cell: Cell, rows: str) -> float:
    try:
        model = _trained(tables, cell, rows, *tables.columns)
    except DataError:  # hardly any row is held by all
        return float("nan")
    return tables.accuracy(model.predict(tables.prepared(model)))


def _alone(tables: Tables, cell: Cell, party: str) -> float:
    model = _trained(tables, cell, "intersection", party)
    classes, counts = np.unique(tables.labels[tables.train], return_counts=True)
    known = tables.held[party][tables.test]
    said = model.predict(tables.prepared(model))
    return tables.accuracy(np.where(known, said, classes[counts.argmax()]))


def _trained(tables: Tables, cell: Cell, rows: str, *parties: str) -> JointModel:
    data = from_frames(tables.frames(*parties), label_party=LABEL, label="y", rows=rows, test_fraction=0)
    return train(data, cell.algorithm, training=Training(epochs=20, evaluate_every_epochs=0), seed=cell.seed).model


def run(watch: Watch) -> dict[str, float]:
    found: dict[Cell, Found] = {}

    def tell(cell: Cell, one: Found) -> None:
        found[cell] = one
        if len([other for other in found if other[:3] == cell[:3]]) == len(SEEDS):
            means = np.mean([found[cell._replace(seed=seed)] for seed in SEEDS], axis=0)
            watch(
                f"{cell.data}, {cell.algorithm}, {cell.share:.0%} of rows missing: any {means[0]:.1f} %, "
                f"intersection {means[1]:.1f} %, best party alone {means[2]:.1f} %"
            )

    run_each(measure_cell, [Cell(*which, seed) for which in _choices() for seed in SEEDS], tell)
    return figures(found)


def _choices() -> list[tuple[str, str, float]]:
    return [(data, algorithm, share) for data in SETS for algorithm in ALGORITHMS for share in SHARES]


def figures(found: dict[Cell, Found]) -> dict[str, float]:
    """The least that training on all rows gains, where three rows in ten or more are missing; what it costs where none
    is."""
    least: dict[str, list[float]] = {"intersection": [], "best_party": []}
    costs = []
    for data, algorithm, share in _choices():
        any_rows, intersection, best = np.nanmean([found[Cell(data, algorithm, share, seed)] for seed in SEEDS], axis=0)
        if share == 0:
            costs.append(intersection - any_rows)
        if share >= 0.3:
            least["intersection"].append(any_rows - intersection)
            least["best_party"].append(any_rows - best)
    return {
        "least_points_over_intersection": min(least["intersection"]),
        "least_points_over_best_party": min(least["best_party"]),
        "most_points_lost_where_none_is_missing": max(costs),
    }


BENCHMARK = Benchmark(
    name="missing-rows",
    summary="accuracy with rows that some parties lack, against the rows that all hold and each party alone",
    run=run,
    targets={
        "least_points_over_intersection": ">= 0",
        "least_points_over_best_party": ">= 0",
        "most_points_lost_where_none_is_missing": "<= 2",
    },
)
