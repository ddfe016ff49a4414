"""Accuracy against ε on MNIST and UCI credit, seven parties: with the noise that the papers claim to be enough, and
with noise that is.

Labels are protected in DPZV, columns in noised VAFL. Each is trained by a plain recipe (batches of 64, several passes)
and, soundly, by the best recipe that was found by trying; docs/privacy.md says why it is better. A cell that has been
run is kept and is not run again; the figure is drawn beside it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import mean, stdev
from time import perf_counter
from typing import Any

from colonnade.algorithms.split_models.dpzv import Dpzv
from colonnade.algorithms.split_models.vafl import Vafl
from colonnade.algorithms.training import Training
from colonnade.data import dataset
from colonnade.data.batches import batches_per_epoch
from colonnade.data.federated import FederatedData
from colonnade.errors import RunError
from colonnade.launch.experiment import train
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.privacy.noise import PerturbationSettings
from colonnade.reproductions.cells import run_cells
from colonnade.reproductions.reproduction import Curve, Panel, Reproduction, Row, Scope, Shown

EPSILONS = (0.5, 1.0, 3.0, 10.0, 30.0, 100.0)
QUICK_EPSILONS = (1.0, 10.0, 100.0)
DELTA = 1e-5
PARTIES = 7
SETS = ("mnist", "credit_default_uci")
PROTECTED = {"dpzv": "labels", "vafl": "columns"}
PLAIN_EPOCHS = {"mnist": 3.0, "credit_default_uci": 6.0}
"""The papers train for up to 100. More passes need more noise, so the few here flatter the plain recipe."""
QUICK_ROWS = 6_000


@dataclass(frozen=True)
class Cell:
    """One training, as a worker process is told it."""

    data: str
    algorithm: str  # dpzv: labels are protected | vafl: columns are
    recipe: str  # plain | best
    formula: str  # paper | sound | none: without any privacy
    epsilon: float  # 0 without privacy
    seed: int = 0
    max_rows: int = 0  # 0: all

    @property
    def case(self) -> str:
        """The same for all seeds."""
        how = {"paper": "claimed", "sound": "sound", "none": "without privacy"}[self.formula]
        target = f", ε = {self.epsilon:g}" if self.epsilon else ""
        return f"{self.data}, {self.algorithm}, {self.recipe}, {how}{target}"

    def __str__(self) -> str:
        return f"{self.case}, seed {self.seed}"


@dataclass(frozen=True)
class Found:
    """What a cell gave. Shares of test rows, not per cent; None where the training diverged."""

    accuracy: float | None
    accuracy_without_noise: float | None  # the same model, if test rows' embeddings were sent as they are
    auc: float | None
    claimed: float | None = None  # by the paper's formula
    sound: float | None = None  # None with noise: ε = ∞
    conditional: float | None = None  # where sound is ∞: if models that learn without noise were no way out
    exchanges: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        reached = "diverged" if self.accuracy is None else f"{100 * self.accuracy:.1f} %"
        return f"{reached} ({self.seconds:.0f} s)"


@dataclass(frozen=True)
class Asked:
    """What `train` is asked for."""

    algorithm: Any
    training: Training
    bottom: BottomSettings
    top: TopSettings
    privacy: PerturbationSettings


# --- recipes ----------------------------------------------------------------------------------------------------


def asked(cell: Cell, rows: int, parties: int) -> Asked:
    """A cell's settings; its noise follows from its target."""
    if cell.recipe == "plain":
        return _plain(cell)
    return _best_for_labels(cell, rows) if cell.algorithm == "dpzv" else _best_for_columns(cell, rows, parties)


def _plain(cell: Cell) -> Asked:
    """As the papers train: small batches, every party on its own. Sound noise needs private updates besides."""
    sound, private = cell.formula == "sound", cell.formula != "none"
    privacy = PerturbationSettings(delta=DELTA, formula=cell.formula if private else "sound")
    training = Training(epochs=PLAIN_EPOCHS.get(cell.data, 3.0), batch_size=64, evaluate_every_epochs=0)
    algorithm: Any
    if cell.algorithm == "dpzv":
        update = "private-zo" if sound else "zeroth-order"
        algorithm = Dpzv(
            step="plain", clip=1.0, server_update=update
        )  # without noise too: the clip steadies the training
        training = replace(training, learning_rate=0.005)
        privacy = replace(privacy, labels_epsilon=cell.epsilon)
    else:
        algorithm = Vafl()
        if private:
            privacy = replace(
                privacy, clip=1.0, columns_epsilon=cell.epsilon, bottom_update="dp-sgd" if sound else "plain"
            )
    return Asked(algorithm, training, BottomSettings(hidden=(), embedding=16), TopSettings(hidden=(64,)), privacy)


@dataclass(frozen=True)
class TopPlan:
    """How DPZV's private top model is trained. Larger batches need less noise, smaller ones make more steps."""

    batches: int  # an epoch
    epochs: float
    rate: float  # of the top model
    embedding: int  # random features of each party
    bottom: str = "mlp"  # one layer with ReLU; or linear


LOW, HIGH = "low", "high"
"""Below ε = 10, where noise is what hinders; and from there on, where the number of steps is."""
TOP_PLANS = {
    ("mnist", LOW): TopPlan(5, 4, 8.0, 64, "linear"),
    ("mnist", HIGH): TopPlan(15, 6, 15.0, 128),
    ("credit_default_uci", LOW): TopPlan(5, 4, 4.0, 32),
    ("credit_default_uci", HIGH): TopPlan(15, 4, 4.0, 32),
}


def _best_for_labels(cell: Cell, rows: int) -> Asked:
    """Random features below, a linear top model by DP-SGD on a few huge batches."""
    plan = TOP_PLANS.get((cell.data, LOW if cell.epsilon < 10 else HIGH), TopPlan(5, 4, 4.0, 32))
    batch_size = math.ceil(rows / plan.batches)  # a last batch of few rows would cost each of them much more
    # Embeddings tell nothing of labels: the table is filled at no cost.
    algorithm = Dpzv(step="plain", warm_up=True, clip=1.0, server_update="dp-sgd", server_clip=1.0)
    training = Training(
        epochs=plan.epochs,
        batch_size=batch_size,
        learning_rate=0.02,
        optimiser="sgd",
        top_learning_rate=plan.rate,
        evaluate_every_epochs=0,
    )
    bottom = BottomSettings(plan.bottom, hidden=(), embedding=plan.embedding)
    privacy = PerturbationSettings(labels_epsilon=cell.epsilon, delta=DELTA)
    return Asked(algorithm, training, bottom, TopSettings("concat-linear"), privacy)


BATCHES = 75


def _best_for_columns(cell: Cell, rows: int, parties: int) -> Asked:
    """Each row's embedding leaves once, all parties' together; what comes back still trains the bottom models."""
    batch_size = math.ceil(rows / BATCHES)
    batches = batches_per_epoch(rows, batch_size)
    epochs = (batches - 1) / batches  # the last upload, which gets no answer, is the epoch's last batch
    privacy = PerturbationSettings(
        columns_epsilon=cell.epsilon, delta=DELTA, clip=0.3, bottom_update="dp-sgd", update_clip=0.1
    )
    training = Training(
        epochs=epochs, batch_size=batch_size, learning_rate=0.02, optimiser="adam", evaluate_every_epochs=0
    )
    bottom = BottomSettings(hidden=(64,), embedding=16, output_activation=False)
    algorithm = Vafl(wait_for=parties, shared_rows=True)
    return Asked(algorithm, training, bottom, TopSettings("concat-linear"), privacy)


# --- cells ------------------------------------------------------------------------------------------------------


@cache
def _data(name: str, max_rows: int) -> FederatedData:
    return dataset(name, parties=PARTIES, max_rows=max_rows)


def run(cell: Cell) -> Found:
    """Train, and measure on the test rows."""
    data = _data(cell.data, cell.max_rows)
    wanted = asked(cell, data.rows, len(data.feature_parties))
    began = perf_counter()
    try:
        outcome = train(
            data,
            wanted.algorithm,
            training=wanted.training,
            bottom=wanted.bottom,
            top=wanted.top,
            privacy=wanted.privacy,
            seed=cell.seed,
        )
    except RunError:  # the loss was not finite any more, or a weight ran away
        return Found(None, None, None, seconds=perf_counter() - began)
    summary, privacy = outcome.summary, outcome.summary["privacy"]
    outputs = outcome.outputs({name: own.test for name, own in data.columns.items()})
    guesses = outputs.argmax(1) if outputs.shape[1] > 1 else outputs[:, 0] > 0
    return Found(
        accuracy=summary["test"]["accuracy"],
        accuracy_without_noise=float((guesses == data.labels.test).double().mean()),
        auc=summary["test"]["auc"],
        claimed=privacy["claimed"],
        sound=privacy["sound"],
        conditional=privacy["conditional"],
        exchanges=summary["exchanges"],
        seconds=perf_counter() - began,
    )


def cells_of(quick: bool, seeds: Sequence[int]) -> list[Cell]:
    """Every cell: for each set and direction without privacy, then plain claimed, plain sound and best sound."""
    kinds = [("plain", "none", 0.0)]
    for recipe, formula in (("plain", "paper"), ("plain", "sound"), ("best", "sound")):
        kinds += [(recipe, formula, epsilon) for epsilon in (QUICK_EPSILONS if quick else EPSILONS)]
    return [
        Cell(data, algorithm, *kind, seed, QUICK_ROWS if quick else 0)
        for data in SETS
        for algorithm in PROTECTED
        for kind in kinds
        for seed in seeds
    ]


def _follows_from(cell: Cell) -> Any:
    """With another recipe it is another cell."""
    data = _data(cell.data, cell.max_rows)
    return PARTIES, data.row_digest, asked(cell, data.rows, len(data.feature_parties))


# --- the table and the figure -----------------------------------------------------------------------------------


def accuracy_against_epsilon(scope: Scope) -> Shown:
    """A row for every cell, over all seeds; a panel for each set and direction."""
    cells = cells_of(scope.quick, scope.seeds)
    results = run_cells(run, cells, Found, scope, follows_from=_follows_from)
    found = by_case(dict(zip(cells, results, strict=True)))
    words = (
        "The paper's figure is at δ = 1e-3 and has what is claimed alone; this one, at δ = 1e-5, has sound noise "
        "beside it, for the papers' way of training and for the best that was found by trying."
    )
    return Shown([_row(cell, runs) for cell, runs in found.items()], panels_of(found), words)


def by_case(results: Mapping[Cell, Found]) -> dict[Cell, list[Found]]:
    """The results of all seeds together, by the cell of seed 0."""
    cases: dict[Cell, list[Found]] = {}
    for cell, found in results.items():
        cases.setdefault(replace(cell, seed=0), []).append(found)
    return cases


def _row(cell: Cell, runs: Sequence[Found]) -> Row:
    reached = [100 * one.accuracy for one in runs if one.accuracy is not None]
    words = [f"AUC {_mean(one.auc for one in runs):.3f}"] if reached else []
    if len(reached) < len(runs):
        words.append(f"{len(runs) - len(reached)} of {len(runs)} diverged")
    if reached and cell.algorithm == "vafl" and cell.formula != "none":
        exact = 100 * _mean(one.accuracy_without_noise for one in runs)
        words.append(f"{exact:.1f} if test rows are sent without noise")
    if reached and cell.formula == "paper":
        words.append(f"sound ε = ∞, {_mean(one.conditional for one in runs):,.0f} conditionally")
    if reached and cell.formula == "sound":
        words.append(f"sound ε = {max(one.sound or math.inf for one in runs if one.accuracy is not None):.4g}")
    if cell.recipe == "best":
        words.append("settings found by trying")
    deviation = stdev(reached) if len(reached) > 1 else None
    label = f"{cell.case}: test accuracy %"
    return Row(label, None, mean(reached) if reached else math.nan, deviation, "; ".join(words))


def _mean(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return mean(known) if known else math.nan


def panels_of(found: Mapping[Cell, Sequence[Found]]) -> tuple[Panel, ...]:
    """A panel for each set and direction: accuracy over ε, and without privacy as a line."""
    panels = []
    for data in dict.fromkeys(cell.data for cell in found):
        for algorithm, protects in PROTECTED.items():
            own = {cell: runs for cell, runs in found.items() if (cell.data, cell.algorithm) == (data, algorithm)}
            curves = [
                Curve(name, tuple(x for x, _ in points), tuple(y for _, y in points), dashed=name in DASHED)
                for name, points in _curves(own).items()
            ]
            epsilons = sorted({cell.epsilon for cell in own if cell.epsilon})
            for cell, runs in own.items():
                if cell.formula == "none":
                    level = (100 * _mean(one.accuracy for one in runs),) * 2
                    curves.append(Curve("without privacy", (epsilons[0], epsilons[-1]), level, level=True))
            title = f"{data}: {protects} ({algorithm})"
            panels.append(Panel(title, "ε, claimed or sound", "test accuracy, %", tuple(curves), log_x=True))
    return tuple(panels)


def _curves(own: Mapping[Cell, Sequence[Found]]) -> dict[str, list[tuple[float, float]]]:
    """Points of ε and per cent by what they are called; cells that diverged are left out."""
    curves: dict[str, list[tuple[float, float]]] = {"plain, sound": [], "plain, claimed": []}  # a colour for a recipe
    for cell, runs in own.items():
        if cell.formula == "none" or all(one.accuracy is None for one in runs):
            continue
        name = f"{cell.recipe}, {'claimed' if cell.formula == 'paper' else 'sound'}"
        curves.setdefault(name, []).append((cell.epsilon, 100 * _mean(one.accuracy for one in runs)))
        if cell.recipe == "best" and cell.algorithm == "vafl":
            exact = 100 * _mean(one.accuracy_without_noise for one in runs)
            curves.setdefault(f"{name}, test rows exact", []).append((cell.epsilon, exact))
    return {name: points for name, points in curves.items() if points}


DASHED = ("plain, claimed", "best, sound, test rows exact")


REPRODUCTIONS = (
    Reproduction(
        "privacy-accuracy",
        "dpzv",
        "Figure 3",
        "accuracy against ε, claimed and sound, of DPZV and noised VAFL",
        SETS,
        accuracy_against_epsilon,
    ),
)
