"""Table I of G. Wang et al., "Cascaded Hybrid Optimization", 2023: direct label inference on MNIST.

Two feature parties, linear bottoms and a label party that only sums, batches of 64, one epoch, one direction.
The curious party uploads vectors drawn at random; the eavesdropper sees the wire between honest parties and, where
losses come back, draws a direction at random. The paper has one column for each kind of reply; here are its algorithms.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from colonnade.algorithms.training import Training
from colonnade.data import dataset
from colonnade.data.federated import FederatedData
from colonnade.models.bottom import BottomSettings
from colonnade.reproductions.cascaded import as_published
from colonnade.reproductions.cells import run_cells
from colonnade.reproductions.published import published
from colonnade.reproductions.reproduction import Reproduction, Row, Scope, Shown
from colonnade.trials.attack import CURIOUS, DIFFERENCES, EAVESDROPPER, Trials, label_inference
from colonnade.trials.attacked import Federated

FIRST_ORDER, ZEROTH_ORDER = "FOO frameworks", "ZOO frameworks"
COLUMNS = {
    "split": FIRST_ORDER,
    "vafl": FIRST_ORDER,
    "zoo-sync": ZEROTH_ORDER,
    "zoo": ZEROTH_ORDER,
    "cascaded": ZEROTH_ORDER,
}
ROWS = {CURIOUS: "Curious Client", EAVESDROPPER: "Eavesdropper"}
"""What the paper calls the adversaries."""
QUICK_ROWS = 10_000


@dataclass(frozen=True)
class Attacked:
    """One attack, as a worker process is told it."""

    algorithm: str
    seed: int
    max_rows: int = 0  # 0: all

    def __str__(self) -> str:
        return f"{self.algorithm}, seed {self.seed}"


@dataclass(frozen=True)
class Labels:
    """Labels that each adversary found, in per cent of all rows."""

    found: dict[str, float]

    def __str__(self) -> str:
        return ", ".join(f"{adversary} {share:.2f} %" for adversary, share in self.found.items())


@cache
def _data(max_rows: int) -> FederatedData:
    return dataset("mnist", parties=2, max_rows=max_rows)


def attack(one: Attacked) -> Labels:
    training = Training(
        epochs=1.0, batch_size=64, learning_rate=0.01, optimiser="sgd", evaluate_every_epochs=0, end_when_diverged=False
    )
    federated = Federated(as_published(one.algorithm), training, BottomSettings(kind="linear"))
    measured = label_inference(_data(one.max_rows), federated, Trials(1, one.seed))
    return Labels({line.adversary: 100 * line.mean for line in measured})


def table_1(scope: Scope) -> Shown:
    """The share of labels found, by adversary and algorithm."""
    cells = [Attacked(name, seed, QUICK_ROWS if scope.quick else 0) for name in COLUMNS for seed in scope.seeds]
    found = dict(zip(cells, run_cells(attack, cells, Labels, scope), strict=True))
    rows = []
    for name in COLUMNS:
        own = [labels.found for cell, labels in found.items() if cell.algorithm == name]
        rows += [_row(name, adversary, [found[adversary] for found in own]) for adversary in own[0]]
    return Shown(
        rows,
        (),
        "An eavesdropper of the paper draws a direction at random. One that takes the difference of the two embeddings "
        "which it sees knows all that an estimate needs: it finds more labels than a party that draws its uploads.",
    )


def _row(name: str, adversary: str, shares: Sequence[float]) -> Row:
    label = f"{name}, {adversary}, labels found %"
    if adversary == DIFFERENCES:
        return Row.beside(None, label, shares, "not in the paper")
    there = published("cascaded", "Table I", ROWS[adversary], COLUMNS[name])
    return Row.beside(there, label, shares, "", "within half a point of the published", _holds)


def _holds(ours: float, printed: float | None) -> bool:
    return printed is not None and abs(ours - printed) <= 0.5


REPRODUCTIONS = (
    Reproduction(
        "cascaded-table-1",
        "cascaded",
        "Table I",
        "direct label inference from gradients and from losses",
        ("mnist",),
        table_1,
        seeds=5,
    ),
)
