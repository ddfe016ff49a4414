"""The settings that all algorithms share: how long, how fast, how often to look.

What a user leaves at "auto" is decided by the algorithm's own row, from facts that every party knows alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import ceil, isfinite, log2, sqrt
from types import MappingProxyType
from typing import Literal

from colonnade.algorithms.parts.losses import METRICS
from colonnade.algorithms.parts.optimiser import OPTIMISERS, OptimiserSettings
from colonnade.array_fields import PRECISIONS
from colonnade.data.batches import batches_per_epoch
from colonnade.data.weights import check_class_weight
from colonnade.errors import SettingsError, unknown_name
from colonnade.mapped import check_share

AUTO: Literal["auto"] = "auto"
Auto = Literal["auto"]


KEEP = (AUTO, "best", "last")
DECAYS = (AUTO, "none", "linear")
TABLES = ("float32", "float16")
_WAYS = (AUTO, *PRECISIONS)
METRICS_BY_NAME = (AUTO, *dict.fromkeys(name for names in METRICS.values() for name in names))


@dataclass(frozen=True)
class Training:
    """`[training]` of a federation. One epoch is n / batch_size exchanges of one party.

    >>> Training(epochs=5, batch_size=32, learning_rate=0.1).optimiser
    'auto'
    """

    epochs: float = 20.0
    """(epochs) how long; one is n / batch_size exchanges of one party"""
    batch_size: int | Auto = AUTO
    """(rows) of an upload. `auto`: the power of two that makes about 64 batches of an epoch, 16 to 128 where the
    algorithm's page does not say otherwise"""
    learning_rate: float | Auto = AUTO
    """of the feature parties; `auto`: the algorithm's own (Adam: 0.001; SGD: 0.1); in linear algorithms with `step =
    "fixed"` only"""
    decay: str = AUTO
    """`linear`: the feature parties' rate falls to zero over the planned epochs; `none`: it stays. `auto`: linear in
    `czofo`, and in `vafl` with several feature parties, where Adam's rate is left open, from twice the usual.
    Scale-free steps fall always"""
    top_learning_rate: float | Auto = AUTO
    """of the label party. `auto`: the same as a `learning_rate` that is given; else the algorithm's own, divided by how
    often the label party's model is updated while each feature party's is once (it sees every row that often, and would
    overfit), for Adam by the root of that"""
    top_decay: str = AUTO
    """`linear`: the label party's rate falls to zero over the planned epochs; `none`: it stays. `auto`: linear where
    Adam's rate is left to an asynchronous algorithm. Scale-free steps fall always"""
    optimiser: str = AUTO
    """`sgd`, `momentum` or `adam`, on both sides; `auto`: the algorithm's own (mostly `adam`), and `sgd` with a
    learning rate above 0.02, which is one of SGD; `dpzv` and the linear algorithms take `sgd` only"""
    momentum: float = 0.9
    """of the optimiser `momentum`: the share of the last step that goes into the next"""
    l2: float | Auto = AUTO
    """adds l2/2 ‖θ_m‖² to the loss of feature parties; in linear algorithms, λ of all weights but the intercept.
    `auto`: 0; in linear algorithms without `l1`, 1/(training rows), as in scikit-learn"""
    l1: float = 0.0
    """adds l1 ‖θ_m‖₁, by a proximal step; feature parties; in linear algorithms, of all weights but the intercept, and
    not in `fcg` and the quasi-Newton ones"""
    top_l2: float = 0.0
    """adds top_l2/2 ‖θ_0‖² to the loss of the label party's model, which `l2` leaves alone; not in linear algorithms"""
    evaluate_every_epochs: float = 1.0
    """(epochs) between two evaluations; 0: only at the end"""
    observe_every_epochs: float = 0.1
    """(epochs) how often the training loss is recorded"""
    metric: str = AUTO
    """the headline: what reports, comparisons, sweeps and `tune` rank by, and what `early_stopping` and `keep` go by.
    `accuracy`, `auc`, `log_loss`, `f1` (of more than two classes their mean), of a regression `rmse`; `auto`: accuracy
    or rmse"""
    early_stopping: int = 0
    """(evaluations) the training ends when so many in a row brought no better `metric` of the validation rows;
    0: never"""
    keep: str = AUTO
    """which model is used at the end: the `best` by the validation rows, or the `last`. `auto`: the best, where there
    are validation rows; the last in `dpzv`, and where noise protects labels"""
    end_when_diverged: bool = True
    """a run whose loss is more than ten times that of one prediction for all rows for an epoch, and does not fall, ends
    as failed (exit code 1), in words; so does a split model whose last epoch, of ten or more, is at more than 1.2 times
    that loss, equal odds for all classes being no worse; not looked at where labels are protected by a target
    or noise"""
    heal: bool | Auto = AUTO
    """a run that does not descend first goes [back to a good
    model](how-to/validation.md#trainings-that-do-not-descend) and on with shorter steps, up to four times. `auto`:
    true; false in `dpzv`, which holds no second copy of its model. Never where noise protects labels or columns;
    without effect in `fcg`"""
    precision: str = "float32"
    """how embeddings, products, gradients and residuals are sent: as they are (`float32`), or as `bfloat16`, `float16`
    or `int8`. [Explained](how-to/precision.md)"""
    precision_up: str = AUTO
    """how embeddings and products are sent; `auto`: as `precision` says"""
    precision_down: str = AUTO
    """how gradients and residuals are sent; `auto`: as `precision` says"""
    embedding_bound: float = 100_000.0
    """split models: the label party refuses a training embedding with a larger number, and names who sent it; 0: no
    bound"""
    table: Literal["float32", "float16"] = "float32"
    """split models: as what the label party keeps everybody's last embeddings. `float16` takes half of the memory, and
    rounds them ([many rows](how-to/many-rows.md))"""
    mapped_share: float = 0.5
    """split models: a share of the label party's memory; a table that takes more lies in a file without a name,
    memory-mapped"""
    compile: bool = False
    """split models: models of other layers than fully connected ones are compiled by PyTorch (`torch.compile`), each
    party's on its machine, which needs a C++ compiler. [When it pays](how-to/own-model.md#compiled)"""
    class_weight: Literal["none", "balanced"] | Mapping[str, float] = "none"
    """what a row of each class weighs in the loss: `balanced` (n / (classes · rows of the class)), or a table of
    classes and weights, 1 for one that is left out. [Explained](how-to/weigh-rows.md)"""
    threshold: float | Auto = 0.5
    """(probability) of two classes, the second is predicted above it; `auto`: the one with which most training rows are
    right, as the label party last knew them. Accuracy follows it, AUC and log loss do not"""

    def __post_init__(self) -> None:
        if not (isfinite(self.epochs) and self.epochs > 0):
            raise SettingsError(f"training.epochs is {self.epochs}; it must be above 0.")
        for name in ("learning_rate", "top_learning_rate"):
            value = getattr(self, name)
            if value != AUTO and not (isfinite(value) and value > 0):
                raise SettingsError(f"training.{name} is {value}; it must be above 0.")
        if self.batch_size != AUTO and self.batch_size < 1:
            raise SettingsError(f"training.batch_size is {self.batch_size}; it must be at least 1.")
        for name in ("evaluate_every_epochs", "observe_every_epochs", "embedding_bound"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0):
                raise SettingsError(f"training.{name} is {value}; it must not be negative.")
        if self.optimiser not in (AUTO, *OPTIMISERS):
            raise unknown_name("value of training.optimiser", self.optimiser, (AUTO, *OPTIMISERS))
        check_class_weight(self.class_weight)
        if self.table not in TABLES:
            raise unknown_name("value of training.table", self.table, TABLES)
        check_share(self.mapped_share, "training.mapped_share")
        if self.threshold != AUTO and not 0 < self.threshold < 1:
            raise SettingsError(f'training.threshold is {self.threshold}; it must lie between 0 and 1, or be "auto".')
        for name in ("decay", "top_decay"):
            if getattr(self, name) not in DECAYS:
                raise unknown_name(f"value of training.{name}", getattr(self, name), DECAYS)
        if self.keep not in KEEP:
            raise unknown_name("value of training.keep", self.keep, KEEP)
        if self.metric not in METRICS_BY_NAME:
            raise unknown_name("value of training.metric", self.metric, METRICS_BY_NAME)
        for name, choices in (("precision", PRECISIONS), ("precision_up", _WAYS), ("precision_down", _WAYS)):
            if getattr(self, name) not in choices:
                raise unknown_name(f"value of training.{name}", getattr(self, name), choices)
        if self.early_stopping < 0:
            raise SettingsError(f"training.early_stopping is {self.early_stopping}; it must be 0 (never) or more.")
        l2 = 0.0 if self.l2 == AUTO else self.l2
        OptimiserSettings(momentum=self.momentum, l2=l2, l1=self.l1)  # refuses what is out of range
        if not (isfinite(self.top_l2) and self.top_l2 >= 0):
            raise SettingsError(f"training.top_l2 is {self.top_l2}; it must not be negative.")

    @property
    def precisions(self) -> Mapping[str, str]:
        """In what form numbers travel "up" and "down"."""
        ways = {"up": self.precision_up, "down": self.precision_down}
        return {way: self.precision if asked == AUTO else asked for way, asked in ways.items()}

    @property
    def rounds(self) -> bool:
        """Whether anything is rounded before it is sent."""
        return set(self.precisions.values()) != {PRECISIONS[0]}


BOLD = 3.0
"""Steps so many times as long as usual may well make what honest parties send absurd."""
USUAL_RATES: Mapping[str, float] = MappingProxyType({"sgd": 0.1, "momentum": 0.01, "adam": 0.001})
"""Of each optimiser, where gradients are exact."""


@dataclass(frozen=True)
class DecidedTraining(Training):
    """The same with nothing left at "auto"."""

    batch_size: int = 64
    learning_rate: float = 0.1
    top_learning_rate: float = 0.1
    optimiser: str = "sgd"
    l2: float = 0.0
    heal: bool = True
    decay: str = "none"
    top_decay: str = "none"

    def bottom_optimiser(self, planned_steps: int = 0) -> OptimiserSettings:
        return OptimiserSettings(
            name=self.optimiser,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            l2=self.l2,
            l1=self.l1,
            planned_steps=planned_steps,
            falls=self.decay == "linear",
        )

    def top_optimiser(self, planned_steps: int = 0) -> OptimiserSettings:
        return OptimiserSettings(
            name=self.optimiser,
            learning_rate=self.top_learning_rate,
            momentum=self.momentum,
            l2=self.top_l2,
            planned_steps=planned_steps,
            falls=self.top_decay == "linear",
        )

    @property
    def boldness(self) -> float:
        """How many times as long as usual steps are; of plain estimates of zeroth order nothing is usual."""
        usual = USUAL_RATES.get(self.optimiser)
        return max(self.learning_rate, self.top_learning_rate) / usual if usual else 1.0

    def steps(self, rows: int) -> int:
        """How many batches of one party make up the training."""
        return max(1, ceil(self.epochs * batches_per_epoch(rows, self.batch_size) - 1e-9))


LARGEST_OF_ADAM = 0.02
"""A learning rate above this is one of plain SGD, whose steps are as long as the gradient; Adam would not learn."""

AMONG_SEVERAL = "linear among several"

BATCHES_PER_EPOCH = 64
"""What a batch is chosen for where it is left open: enough steps in a small table, few messages for a large one."""


@dataclass(frozen=True)
class Defaults:
    """What an algorithm chooses where `[training]` leaves it open: declared in its row.

    The batch is the power of two that comes nearest to so many batches per epoch, within bounds.
    """

    optimiser: str = "adam"
    rates: Mapping[str, float] = field(default_factory=lambda: USUAL_RATES)  # of each optimiser
    top_rates: Mapping[str, float] | None = None  # of the label party; None: the same
    # "linear": Adam's rate of the feature parties falls, from twice the usual: as far altogether; AMONG_SEVERAL: where
    # the label party's model is updated more often than theirs
    decay: str = "none"
    least_batch: int = 16
    most_batch: int = 128
    batches_per_epoch: int = BATCHES_PER_EPOCH
    keep: str = AUTO  # "last", where a party promises to hold no second copy of its model

    def batch_size(self, rows: int) -> int:
        """
        >>> [Defaults().batch_size(rows) for rows in (10, 500, 2_000, 60_000)]
        [10, 16, 32, 128]
        """
        nearest = 1 << max(0, round(log2(max(1, rows) / self.batches_per_epoch)))
        return max(1, min(rows, self.most_batch, max(self.least_batch, nearest)))

    def decided(self, training: Training, rows: int, top_updates: float = 1.0) -> DecidedTraining:
        """The user's settings, and this algorithm's where there are none.

        `top_updates`: how often the label party's model is updated while each feature party's is once. Its own rate is
        smaller: it sees every row as often as there are parties, and would overfit. For plain steps by as much, for
        Adam's, which do not shrink with the noise of more rows, by its square root, and then it falls to zero.
        """
        rate, top_rate = training.learning_rate, training.top_learning_rate
        optimiser = training.optimiser
        if optimiser == AUTO:
            # What a scale-free step calls a rate is a distance: any rate of the user's own is that of a plain step.
            largest = 0.0 if self.optimiser == "scale-free" else LARGEST_OF_ADAM
            large = any(given != AUTO and given > largest for given in (rate, top_rate))
            optimiser = "sgd" if large else self.optimiser
        if optimiser not in self.rates:
            raise SettingsError(
                f"training.optimiser = {optimiser!r} is the step of zeroth-order algorithms, and this is none. Choose "
                f"{', '.join(self.rates)}, or leave it out."
            )
        falls = top_rate == rate == AUTO and optimiser == "adam" and top_updates > 1 and training.top_decay != "none"
        if top_rate == AUTO:
            alike = optimiser == "scale-free"  # which knows how many steps there will be
            smaller = 1.0 if alike else sqrt(top_updates) if falls else top_updates
            top_rate = (self.top_rates or self.rates)[optimiser] / smaller if rate == AUTO else rate
        own_decay = self.decay
        if own_decay == AMONG_SEVERAL:
            own_decay = "linear" if top_updates > 1 else "none"
        decay = own_decay if rate == AUTO and optimiser == "adam" else "none"
        if training.decay != AUTO:
            decay = training.decay
        own_rate = self.rates[optimiser] * (2 if decay == own_decay == "linear" and optimiser == "adam" else 1)
        values = {one.name: getattr(training, one.name) for one in fields(Training)}
        values |= {
            "optimiser": optimiser,
            "learning_rate": own_rate if rate == AUTO else rate,
            "decay": decay,
            "top_learning_rate": top_rate,
            "batch_size": self.batch_size(rows) if training.batch_size == AUTO else training.batch_size,
            "l2": 0.0 if training.l2 == AUTO else training.l2,
            "keep": self.keep if training.keep == AUTO else training.keep,
            "top_decay": ("linear" if falls else "none") if training.top_decay == AUTO else training.top_decay,
            "heal": self.keep != "last" if training.heal == AUTO else training.heal,
        }
        return DecidedTraining(**values)
