"""The settings that all split algorithms share: how long, how fast, how often to look."""

from dataclasses import dataclass
from math import ceil, isfinite

from colonnade.algorithms.parts.optimiser import OptimiserSettings
from colonnade.data.batches import batches_per_epoch
from colonnade.errors import SettingsError


@dataclass(frozen=True)
class Training:
    """`[training]` of a federation. One epoch is n / batch_size exchanges of one party."""

    epochs: float = 10.0
    batch_size: int = 64
    learning_rate: float = 0.1  # of the feature parties
    top_learning_rate: float | None = None  # of the label party; None: the same
    optimiser: str = "sgd"  # sgd | momentum | adam, on both sides; the papers use plain SGD
    momentum: float = 0.9
    l2: float = 0.0  # r(θ_m) = l2/2 ‖θ_m‖², on the feature parties' parameters
    l1: float = 0.0  # r(θ_m) = l1 ‖θ_m‖₁, by a proximal step
    evaluate_every_epochs: float = 1.0  # 0: only at the end
    observe_every_epochs: float = 0.1  # how often the training loss is recorded
    embedding_bound: float = 100_000.0  # the label party refuses a training embedding with a larger number; 0: none

    def __post_init__(self) -> None:
        for name in ("epochs", "learning_rate"):
            value = getattr(self, name)
            if not (isfinite(value) and value > 0):
                raise SettingsError(f"training.{name} is {value}; it must be above 0.")
        if self.batch_size < 1:
            raise SettingsError(f"training.batch_size is {self.batch_size}; it must be at least 1.")
        for name in ("evaluate_every_epochs", "observe_every_epochs", "embedding_bound"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0):
                raise SettingsError(f"training.{name} is {value}; it must not be negative.")
        # Building them checks the rest.
        self.bottom_optimiser()
        self.top_optimiser()

    def bottom_optimiser(self) -> OptimiserSettings:
        return OptimiserSettings(
            name=self.optimiser,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            l2=self.l2,
            l1=self.l1,
        )

    def top_optimiser(self) -> OptimiserSettings:
        rate = self.learning_rate if self.top_learning_rate is None else self.top_learning_rate
        return OptimiserSettings(name=self.optimiser, learning_rate=rate, momentum=self.momentum)

    def steps(self, rows: int) -> int:
        """How many batches of one party make up the training."""
        return max(1, ceil(self.epochs * batches_per_epoch(rows, self.batch_size) - 1e-9))
