"""Runs of DPZV and of the three that its paper compares it with: VAFL, CZOFO and ZOO, noised.

J. Zhang et al., "Communication-Efficient and Differentially Private Vertical Federated Learning with Zeroth-Order
Optimization". Noise follows from the paper's own formula at δ = 1e-3: what is claimed; the sound ε stands beside it,
and docs/privacy.md says why it is another. A fifth of the rows to train on is kept apart: they choose the learning
rate, and curves are those of these rows; test rows are scored once, at the end. Bottom models have one layer, where the
paper has two or four of convolutions, or larger ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import Any

from colonnade.algorithms.split_models.czofo import Czofo
from colonnade.algorithms.split_models.dpzv import Dpzv
from colonnade.algorithms.split_models.vafl import Vafl
from colonnade.algorithms.split_models.zoo import Zoo
from colonnade.algorithms.training import Training
from colonnade.data import dataset
from colonnade.data.federated import FederatedData
from colonnade.errors import RunError
from colonnade.launch.experiment import train
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.privacy.noise import PerturbationSettings
from colonnade.reproductions.cells import run_cells
from colonnade.reproductions.reproduction import Scope

DELTA = 1e-3
VALIDATION = 0.2
"""Share of the rows to train on by which learning rates are chosen."""
PARTIES = {"mnist": 7, "cifar10": 4, "modelnet10_voxel": 12}
"""Strips of pixels, 2 × 2 patches, and views of shapes: ModelNet10 in place of the paper's ModelNet40."""
SPLITS = {"cifar10": "patches", "modelnet10_voxel": "channels"}
METHODS = ("dpzv", "vafl", "czofo", "zoo")
ALONE = "dpzv, the label party alone"
"""As dpzv, but feature parties keep their first weights: what the label party learns from labels, without any noise."""
RATES = {"dpzv": (0.005, 0.02), ALONE: (0.005, 0.02), "vafl": (0.02, 0.1), "czofo": (0.02, 0.1), "zoo": (0.001, 0.005)}
NO_CLIP = 1e9
STILL = 1e-12
"""A learning rate with which nothing moves."""
LOST = 100.0
"""A mean training loss above this has diverged: guessing among ten classes costs 2.3."""


@dataclass(frozen=True)
class Trial:
    """One training, as a worker process is told it."""

    algorithm: str
    data: str = "mnist"
    rate: float = 0.0
    epochs: float = 10.0
    max_rows: int = 0  # 0: all
    epsilon: float = 1.0  # as claimed; inf: nothing is noised
    clip: float = 1.0  # of a row's slope in dpzv, of its embedding in the others
    seed: int = 0
    until: float = inf  # the accuracy of validation rows, in per cent, at which it stops
    patience: float = 0.0  # epochs without a better accuracy after which it stops; 0: goes on
    top_rate: float = 0.0  # of the label party; 0: that of the feature parties

    def __str__(self) -> str:
        noise = "no noise" if self.epsilon == inf else f"ε = {self.epsilon:g}"
        return f"{self.data}, {self.algorithm}, {noise}, clip {self.clip:g}, rate {self.rate:g}, seed {self.seed}"


@dataclass(frozen=True)
class Look:
    """What there was at one evaluation; accuracy, in per cent, and loss are those of validation rows."""

    exchanges: int
    megabytes: float
    accuracy: float
    loss: float


@dataclass(frozen=True)
class Learnt:
    """What a trial gave."""

    looks: tuple[Look, ...] = ()
    test: float | None = None  # per cent of the test rows; None: the training diverged, or was stopped
    sound: float | None = None  # ε; None: infinite
    conditional: float | None = None  # what it would be if models that learn without noise were no way out
    diverged: bool = False

    @property
    def best(self) -> float:
        """The best accuracy of validation rows, by which a rate is chosen."""
        return max((look.accuracy for look in self.looks), default=0.0) if not self.diverged else 0.0

    @property
    def least_loss(self) -> float:
        return min((look.loss for look in self.looks), default=inf) if not self.diverged else inf

    def megabytes_to(self, accuracy: float) -> float:
        return next((look.megabytes for look in self.looks if look.accuracy >= accuracy), inf)

    def accuracy_within(self, megabytes: float) -> float:
        """The best accuracy of validation rows before so much was sent."""
        return max((look.accuracy for look in self.looks if look.megabytes <= megabytes), default=0.0)

    def __str__(self) -> str:
        test = "" if self.test is None else f", test {self.test:.1f} %"
        return f"{'diverged after ' if self.diverged else ''}{self.best:.1f} % of validation rows{test}"


@cache
def data_of(name: str, max_rows: int) -> FederatedData:
    split = SPLITS.get(name, "equal-columns")
    return dataset(name, split=split, parties=PARTIES[name], max_rows=max_rows, validation=VALIDATION)


def settings_of(trial: Trial) -> tuple[Any, PerturbationSettings]:
    """Labels are protected in DPZV; columns in the others, whose embeddings are clipped and noised."""
    noised = trial.epsilon < inf
    target = trial.epsilon if noised else 0.0
    privacy = PerturbationSettings(delta=DELTA, formula="paper") if noised else PerturbationSettings()
    if trial.algorithm in ("dpzv", ALONE):
        privacy = replace(privacy, labels_epsilon=target)
        return Dpzv(step="plain", clip=trial.clip, server_update="zeroth-order"), privacy
    algorithm = {"vafl": Vafl(), "czofo": Czofo(), "zoo": Zoo(step="plain", directions=1)}[trial.algorithm]
    return algorithm, replace(privacy, columns_epsilon=target, clip=trial.clip if noised else 0.0)


def run(trial: Trial) -> Learnt:
    looks: list[Look] = []
    lost = False

    def look(line: dict[str, Any]) -> None:
        nonlocal lost
        lost = lost or (line["loss"] is not None and not line["loss"] < LOST)
        if scored := line.get("validation"):
            sent = (line["bytes_up"] + line["bytes_down"]) / 1e6
            looks.append(Look(line["exchange"], sent, 100 * scored["accuracy"], scored["log_loss"]))

    algorithm, privacy = settings_of(trial)
    training = Training(
        epochs=trial.epochs,
        batch_size=64,
        learning_rate=STILL if trial.algorithm == ALONE else trial.rate,
        top_learning_rate=trial.top_rate or trial.rate,
        evaluate_every_epochs=EVERY,
        heal=False,  # the papers' form: a rate that is too large fails
    )
    try:
        summary = train(
            data_of(trial.data, trial.max_rows),
            algorithm,
            training=training,
            bottom=BottomSettings(hidden=(), embedding=16),
            top=TopSettings(hidden=(64,)),
            privacy=privacy,
            seed=trial.seed,
            watch=look,
            stop_requested=lambda: lost or _has_ended(trial, looks),
        ).summary
    except RunError:  # the loss was not finite any more
        return Learnt(tuple(looks), diverged=True)
    figures = summary["privacy"] if trial.epsilon < inf else {"sound": None, "conditional": None}
    reached = None if lost else summary["test"].get("accuracy")  # a run that was stopped has not been tested
    return Learnt(
        tuple(looks), None if reached is None else 100 * float(reached), figures["sound"], figures["conditional"], lost
    )


EVERY = 0.5
"""Epochs between two looks."""


def _has_ended(trial: Trial, looks: Sequence[Look]) -> bool:
    if not looks:
        return False
    accuracies = [one.accuracy for one in looks]
    waited = (len(looks) - 1 - accuracies.index(max(accuracies))) * EVERY
    return accuracies[-1] >= trial.until or 0 < trial.patience <= waited


def run_all(trials: Sequence[Trial], scope: Scope) -> dict[Trial, Learnt]:
    """Every trial once, kept where all items of this paper have their cells: many have trials in common."""
    together = replace(scope, folder=scope.folder.parent / ("dpzv-quick" if scope.quick else "dpzv"))
    trials = list(dict.fromkeys(trials))
    return dict(zip(trials, run_cells(run, trials, Learnt, together), strict=True))


def rate_by_rate(trials: Sequence[Trial], rates: Sequence[float] = ()) -> list[Trial]:
    """Each trial with each rate of its algorithm."""
    return [replace(one, rate=rate) for one in trials for rate in rates or RATES[one.algorithm]]


def at_best_rate(trial: Trial, found: dict[Trial, Learnt], by_loss: bool = False) -> tuple[float, Learnt]:
    """The rate that is best on validation rows, and what came of it."""
    own = {one.rate: learnt for one, learnt in found.items() if replace(one, rate=0.0) == replace(trial, rate=0.0)}
    rate = min(own, key=lambda one: own[one].least_loss) if by_loss else max(own, key=lambda one: own[one].best)
    return rate, own[rate]
