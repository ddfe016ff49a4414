"""Table I of DPZV: bytes until a target accuracy, of DPZV, noised VAFL, noised CZOFO and noised ZOO, on MNIST.

J. Zhang et al., "Communication-Efficient and Differentially Private Vertical Federated Learning with Zeroth-Order
Optimization". Seven parties, δ = 1e-3, noise by the paper's own formula: what is claimed; docs/privacy.md says what it
is worth. The table does not say its ε; ours is 1, as in its Figure 2. Every algorithm takes the learning rate with the
best accuracy on validation rows. Bytes are those of messages, both ways, evaluation left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, nan
from statistics import mean
from typing import Any

from colonnade.algorithms.split_models.czofo import Czofo
from colonnade.algorithms.split_models.dpzv import Dpzv
from colonnade.algorithms.split_models.vafl import Vafl
from colonnade.algorithms.split_models.zoo import Zoo
from colonnade.algorithms.training import Training
from colonnade.data import dataset
from colonnade.errors import RunError
from colonnade.launch.experiment import train
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.privacy.noise import PerturbationSettings
from colonnade.reproductions.cells import run_cells
from colonnade.reproductions.published import published
from colonnade.reproductions.reproduction import Curve, Panel, Reproduction, Row, Scope, Shown

PARTIES, DELTA, EPSILON = 7, 1e-3, 1.0
NAMES = {"dpzv": "DPZV", "vafl": "VAFL", "czofo": "CZOFO", "zoo": "ZOO-VFL"}
"""What the paper calls the algorithms."""
RATES = {"dpzv": (0.005, 0.02), "vafl": (0.02, 0.1), "czofo": (0.02, 0.1), "zoo": (0.001, 0.005)}


@dataclass(frozen=True)
class Trial:
    """One training, as a worker process is told it."""

    algorithm: str
    rate: float
    epochs: float
    max_rows: int
    seed: int = 0
    validation: float = 0.0  # share of rows kept apart, where rates are compared

    def __str__(self) -> str:
        return f"{'trial, ' if self.validation else ''}{self.algorithm}, rate {self.rate:g}, seed {self.seed}"


@dataclass(frozen=True)
class Sent:
    """Megabytes so far and test accuracy in per cent at every look; the best accuracy of validation rows, if any."""

    points: tuple[tuple[float, float], ...] = ()
    validation: float | None = None

    def megabytes_to(self, accuracy: float) -> float:
        return next((sent for sent, reached in self.points if reached >= accuracy), inf)

    def __str__(self) -> str:
        if self.validation is not None:
            return f"{self.validation:.1f} % of validation rows"
        return f"{max(reached for _, reached in self.points):.1f} % at best" if self.points else "diverged"


def _settings(algorithm: str) -> tuple[Any, PerturbationSettings]:
    """Labels are protected in DPZV; columns in the others, whose embeddings are clipped and noised."""
    if algorithm == "dpzv":
        privacy = PerturbationSettings(labels_epsilon=EPSILON, delta=DELTA, formula="paper")
        return Dpzv(step="plain", clip=1.0, server_update="zeroth-order"), privacy
    privacy = PerturbationSettings(columns_epsilon=EPSILON, delta=DELTA, formula="paper", clip=1.0)
    return {"vafl": Vafl(), "czofo": Czofo(), "zoo": Zoo(step="plain", directions=1)}[algorithm], privacy


def run(trial: Trial) -> Sent:
    data = dataset("mnist", parties=PARTIES, max_rows=trial.max_rows, validation=trial.validation)
    points: list[tuple[float, float]] = []

    def look(line: dict[str, Any]) -> None:
        if line["metric"] and not trial.validation:
            points.append(((line["bytes_up"] + line["bytes_down"]) / 1e6, 100 * line["metric"]["accuracy"]))

    algorithm, privacy = _settings(trial.algorithm)
    training = Training(
        epochs=trial.epochs, batch_size=64, learning_rate=trial.rate, evaluate_every_epochs=0.5, heal=False
    )
    bottom, top = BottomSettings(hidden=(), embedding=16), TopSettings(hidden=(64,))
    try:
        summary = train(
            data, algorithm, training=training, bottom=bottom, top=top, privacy=privacy, seed=trial.seed, watch=look
        ).summary
    except RunError:  # the loss was not finite any more
        return Sent()
    scored = summary.get("validation")
    return Sent(tuple(points), 100 * float(scored["accuracy"]) if scored else None)


def _run_all(trials: Sequence[Trial], scope: Scope) -> list[Sent]:
    return run_cells(run, trials, Sent, scope)


def table_1(scope: Scope) -> Shown:
    """Megabytes until the target accuracy; quick: fewer rows, and an accuracy that these can reach."""
    rows_used, epochs, target = (3_000, 10.0, 40.0) if scope.quick else (0, 100.0, 90.0)
    rates = _rates(Trial("", 0.0, epochs, rows_used), scope)
    trials = {
        name: [Trial(name, rate, epochs, rows_used, seed) for seed in scope.seeds] for name, rate in rates.items()
    }
    every = [trial for own in trials.values() for trial in own]
    found = dict(zip(every, _run_all(every, scope), strict=True))
    needed = {name: [found[one].megabytes_to(target) for one in own] for name, own in trials.items()}
    rows = []
    for name, megabytes in needed.items():
        there = None if scope.quick else published("dpzv", "Table I", "MNIST (MB)", NAMES[name])
        reached = max(accuracy for one in trials[name] for _, accuracy in found[one].points or ((0, nan),))
        note = f"to {target:.0f} %; {reached:.1f} % at best; learning rate {rates[name]:g}, chosen on validation rows"
        label = f"{name}, megabytes to {target:.0f} %"
        note += "; in the paper never" if there is not None and there.value == inf else ""
        row = Row.beside(there, label, [min(sent, 1e9) for sent in megabytes], note)
        row = row if inf not in megabytes else replace(row, ours=nan, deviation=None, note=f"never {note}")
        if name != "dpzv":
            fewer = mean(needed["dpzv"]) < mean(megabytes)
            row = replace(row, claim="more than dpzv", holds=fewer)
        rows.append(row)
    curves = [
        Curve(name, *(tuple(part) for part in zip(*found[own[0]].points, strict=True)))  # type: ignore[arg-type]
        for name, own in trials.items()
        if found[own[0]].points
    ]
    panel = Panel("MNIST, ε = 1 as claimed", "megabytes", "test accuracy, %", tuple(curves))
    remark = (
        "The table does not say its ε, nor the width of its embeddings, to which bytes are proportional: ours is 16."
    )
    if scope.quick:
        remark += (
            " Quick: 3,000 rows and 40 % in place of 60,000 and 90 %. 50 % was tried first, and none of the four came "
            "there: 40 % is what dpzv can reach with so few rows, not a target of the paper."
        )
    return Shown(rows, (panel,), remark)


def _rates(pattern: Trial, scope: Scope) -> dict[str, float]:
    """For each algorithm the rate with the best accuracy on validation rows, which are a fifth of those to train on."""
    tries = [
        replace(pattern, algorithm=name, rate=rate, validation=0.2) for name, rates in RATES.items() for rate in rates
    ]
    found = {(one.algorithm, one.rate): sent for one, sent in zip(tries, _run_all(tries, scope), strict=True)}

    def score(name: str, rate: float) -> float:
        return found[name, rate].validation or 0.0

    return {name: max(rates, key=partial(score, name)) for name, rates in RATES.items()}


REPRODUCTIONS = (
    Reproduction("dpzv-table-1", "dpzv", "Table I", "bytes until a target accuracy, under noise", ("mnist",), table_1),
)
