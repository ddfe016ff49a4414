"""Figure 5 b, c and the last columns of Table II of G. Wang et al., "Cascaded Hybrid Optimization", 2023: large tops.

CIFAR-10: two parties hold half of each image and the first convolution of a ResNet-18, the label party the rest.
IMDb: one party holds the embedding layer of a pre-trained transformer, the label party the rest: all-MiniLM-L6-v2 in
place of DistilBERT. Batches of 64 and 16, plain SGD, μ = 0.001. Rates are chosen on validation rows, test rows scored
once; what the paper shows by epoch is accuracy on training rows, so ours is, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import nan
from time import perf_counter
from typing import Any

import torch
from torch import nn

from colonnade.algorithms.training import Training
from colonnade.data import dataset
from colonnade.data.federated import FederatedData
from colonnade.errors import RunError
from colonnade.launch.experiment import train
from colonnade.models.papers import split_resnet18
from colonnade.reproductions.cascaded import LOST, NAMES, as_published
from colonnade.reproductions.cells import run_cells
from colonnade.reproductions.published import published
from colonnade.reproductions.reproduction import Curve, Panel, Reproduction, Row, Scope, Shown


@dataclass(frozen=True)
class Task:
    """A data set, the split model that learns it, and how long."""

    column: str  # of Table II
    load: Callable[[int, float], FederatedData]  # by the number of rows (0: all) and the share of validation rows
    models: Callable[[], tuple[nn.Module, nn.Module]]
    batch: int
    epochs: tuple[float, float]  # quick and full
    rows: tuple[int, int]  # quick and full; 0: all
    rates: tuple[float, ...]  # where the top learns by gradients
    zoo_rates: tuple[float, ...]  # where it does not
    rate_epochs: tuple[float, float]
    told: tuple[str, float]  # of which algorithm the text tells its training accuracy, after how many epochs
    remark: str


@dataclass(frozen=True)
class Trial:
    """One training, as a worker process is told it."""

    task: str
    algorithm: str
    rate: float
    epochs: float
    max_rows: int
    seed: int
    validation: float = 0.0  # share of rows kept apart, where rates are compared

    def __str__(self) -> str:
        kind = "trial, " if self.validation else ""
        return f"{kind}{self.task}, {self.algorithm}, rate {self.rate:g}, seed {self.seed}"


@dataclass(frozen=True)
class Learnt:
    """Accuracy by epoch on training rows, and on test rows at the end, in per cent; or on validation rows alone."""

    curve: tuple[tuple[float, float], ...] = ()  # epochs
    test: float | None = None
    validation: float | None = None
    diverged: bool = False
    seconds: float = 0.0

    def __str__(self) -> str:
        if self.diverged:
            return f"diverged ({self.seconds:.0f} s)"
        if self.validation is not None:
            return f"validation accuracy {self.validation:.1f} % ({self.seconds:.0f} s)"
        ends = f"{self.curve[-1][1]:.1f} % in training, " if self.curve else ""
        return f"{ends}{self.test or nan:.1f} % of test rows ({self.seconds:.0f} s)"


def run(trial: Trial) -> Learnt:
    """Train; training rows stand in place of validation rows, unless rates are compared."""
    task = TASKS[trial.task]
    data = task.load(trial.max_rows, trial.validation)
    torch.manual_seed(trial.seed)  # of the initial weights
    bottom, top = task.models()
    diverged = False
    curve: list[tuple[float, float]] = []

    def look(line: dict[str, Any]) -> None:
        nonlocal diverged
        diverged = diverged or (line["loss"] is not None and line["loss"] > LOST)
        if scored := line.get("validation"):
            curve.append((float(line["epoch"]), 100 * scored["accuracy"]))

    shown = data if trial.validation else scored_on_training_rows(data)
    began = perf_counter()
    try:
        outcome = train(
            shown,
            as_published(trial.algorithm),
            training=Training(
                heal=False,  # the paper's form
                epochs=trial.epochs,
                batch_size=task.batch,
                learning_rate=trial.rate,
                optimiser="sgd",
                keep="last",
            ),
            bottom=bottom,
            top=top,
            seed=trial.seed,
            watch=look,
            stop_requested=lambda: diverged,
        )
    except RunError:  # the loss was not finite any more
        return Learnt(diverged=True, seconds=perf_counter() - began)
    scored, seconds = outcome.summary, perf_counter() - began
    if trial.validation:
        reached = scored["validation"].get("accuracy", 0.0)
        return Learnt(validation=100 * float(reached), diverged=diverged, seconds=seconds)
    tested = scored["test"].get("accuracy")  # none, where outputs were not finite
    return Learnt(tuple(curve), None if tested is None else 100 * float(tested), None, diverged, seconds)


def scored_on_training_rows(data: FederatedData, rows: int = 500) -> FederatedData:
    """The same data; evaluations during the training score its first training rows."""
    columns = {name: replace(own, validation=own.train[:rows]) for name, own in data.columns.items()}
    return replace(data, columns=columns, labels=replace(data.labels, validation=data.labels.train[:rows]))


def _run_all(trials: Sequence[Trial], scope: Scope) -> list[Learnt]:
    return run_cells(run, trials, Learnt, scope)


ALGORITHMS = ("split", "vafl", "cascaded", "zoo")


def figure(name: str, scope: Scope) -> Shown:
    """Each algorithm at its best rate by validation rows: training accuracy by epoch, test accuracy at the end."""
    task, kind = TASKS[name], 0 if scope.quick else 1
    base = Trial(name, "", 0.0, task.epochs[kind], task.rows[kind], scope.seeds[0])
    rates = _best_rates(task, base, task.rate_epochs[kind], scope)
    trials = [
        replace(base, algorithm=algorithm, rate=rates[algorithm], seed=seed)
        for algorithm in ALGORITHMS
        for seed in scope.seeds
    ]
    found = dict(zip(trials, _run_all(trials, scope), strict=True))
    by_name = {name: [learnt for trial, learnt in found.items() if trial.algorithm == name] for name in ALGORITHMS}
    tests = {name: [_tested(learnt) for learnt in own] for name, own in by_name.items()}
    rows = [_row(task, name, tests[name], rates[name], scope.quick) for name in ALGORITHMS]
    gaps = [ahead - own for ahead, own in zip(tests["vafl"], tests["cascaded"], strict=True)]
    rows.append(Row.beside(None, "vafl less cascaded, points", gaps, "", "at most 3", lambda ours, _: ours <= 3))
    gains = [own - behind for own, behind in zip(tests["cascaded"], tests["zoo"], strict=True)]
    rows.append(Row.beside(None, "cascaded less zoo, points", gains, "", "above 0", lambda ours, _: ours > 0))
    curves = [Curve(name, *_points(own[0])) for name, own in by_name.items()]
    told, epoch = task.told
    there = published("cascaded", "Figure 5", NAMES[told], f"{task.column}, epoch {epoch:g}")
    if there is not None and epoch <= base.epochs:
        reached = [_at(learnt, epoch) for learnt in by_name[told]]
        label = f"{told}, training accuracy % in epoch {epoch:g}"
        claimed = ("", None) if scope.quick else ("at most half a point below the published", _as_good)
        rows.append(Row.beside(there, label, reached, "", *claimed))
        curves.append(Curve(f"published, {told}", (epoch,), (there.value,), published=True))
    panel = Panel(task.column, "epoch", "training accuracy, %", tuple(curves))
    return Shown(rows, (panel,), f"{task.remark} Rates were compared after {task.rate_epochs[kind]:g} epochs.")


def _best_rates(task: Task, base: Trial, epochs: float, scope: Scope) -> dict[str, float]:
    grids = {name: task.zoo_rates if name == "zoo" else task.rates for name in ALGORITHMS}
    tries = [
        replace(base, algorithm=name, rate=rate, epochs=epochs, validation=0.2)
        for name, grid in grids.items()
        for rate in grid
    ]
    found = dict(zip(tries, _run_all(tries, scope), strict=True))
    best = {}
    for name, grid in grids.items():
        scores = {trial.rate: learnt for trial, learnt in found.items() if trial.algorithm == name}
        best[name] = max(grid, key=lambda rate: -1.0 if scores[rate].diverged else scores[rate].validation or 0.0)
    return best


def _row(task: Task, name: str, tests: Sequence[float], rate: float, quick: bool) -> Row:
    """Nothing is claimed of a quick run's accuracy, which has a hundredth of the rows: of the order alone."""
    there = published("cascaded", "Table II", NAMES[name], task.column)
    label, note = f"{name}, {task.column}, test accuracy %", f"learning rate {rate:g}"
    if there is None or quick:
        return Row.beside(there, label, tests, note)
    return Row.beside(there, label, tests, note, "at most half a point below the published", _as_good)


def _as_good(ours: float, printed: float | None) -> bool:
    return printed is not None and ours >= printed - 0.5


def _at(learnt: Learnt, epoch: float) -> float:
    return next((accuracy for at, accuracy in learnt.curve if at >= epoch - 1e-6), nan)


def _tested(learnt: Learnt) -> float:
    return nan if learnt.test is None else learnt.test


def _points(learnt: Learnt) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(epoch for epoch, _ in learnt.curve), tuple(accuracy for _, accuracy in learnt.curve)


# --- the two tasks ----------------------------------------------------------------------------------------------


@cache
def _images(max_rows: int, validation: float) -> FederatedData:
    return dataset("cifar10", split="row-strips", parties=2, max_rows=max_rows, validation=validation)


@cache
def _reviews(max_rows: int, validation: float) -> FederatedData:
    return dataset("imdb", parties=1, max_rows=max_rows, validation=validation)


def _resnet18() -> tuple[nn.Module, nn.Module]:
    return split_resnet18(2, (3, 16, 32), 10)


def _transformer() -> tuple[nn.Module, nn.Module]:
    from colonnade.models.pretrained import split_transformer

    return split_transformer(1)


TASKS = {
    "images": Task(
        "CIFAR-10, ResNet-18",
        _images,
        _resnet18,
        batch=64,
        epochs=(5.0, 40.0),
        rows=(500, 0),
        rates=(0.03, 0.01),
        zoo_rates=(1e-4, 1e-5),
        rate_epochs=(1.0, 5.0),
        told=("zoo", 40.0),
        remark=(
            "Of CIFAR-10 the first training batch is here, 10,000 images in place of 50,000, and no image is turned or "
            "shifted: accuracies lie below the paper's for that alone. Quick: 500 images and 5 epochs."
        ),
    ),
    "texts": Task(
        "IMDb, Distil-BERT",
        _reviews,
        _transformer,
        batch=16,
        epochs=(2.0, 2.0),
        rows=(200, 5_000),
        rates=(0.03, 0.01),
        zoo_rates=(1e-5, 1e-6),
        rate_epochs=(0.25, 0.5),
        told=("cascaded", 2.0),
        remark=(
            "Six layers 384 wide (all-MiniLM-L6-v2) in place of DistilBERT's 768, and 64 tokens of each review; test "
            "accuracy after two epochs, as in the paper. The label party's table holds 25,000 numbers for each review, "
            "so that the full run has 5,000 of the 25,000 reviews. Quick: 200."
        ),
    ),
}
REPRODUCTIONS = (
    Reproduction(
        "cascaded-figure-5b",
        "cascaded",
        "Figure 5b",
        "a split ResNet-18: training accuracy by epoch, and test accuracy as in Table II",
        ("cifar10",),
        partial(figure, "images"),
        seeds=3,
        quick_seeds=1,
    ),
    Reproduction(
        "cascaded-figure-5c",
        "cascaded",
        "Figure 5c",
        "a split pre-trained transformer: training accuracy by epoch, and test accuracy as in Table II",
        ("imdb",),
        partial(figure, "texts"),
        seeds=3,
        quick_seeds=1,
    ),
)
