"""When the label party records its loss, evaluates and offers a checkpoint: counted in exchanges, not in time."""

from math import isfinite

from colonnade.algorithms.parts.divergence import DivergedError
from colonnade.algorithms.training import DecidedTraining
from colonnade.party import Checkpoint, Effect, Observe
from colonnade.state import Remembering, value

DIVERGED = (
    "The training has diverged: the loss of a batch is no longer finite. Lower training.learning_rate or, for a "
    "regression, scale the label down."
)

PLANNED = "the planned epochs are done"
"""Why a training ends that nothing else has ended."""


class Progress(Remembering):
    """Turns the loss of every exchange into observations at even distances.

    `exchanges_per_epoch` is what one epoch of all feature parties together takes.
    """

    MEMORY = (
        value("_loss_sum", "_loss_count", "_observed", "_evaluated", underscored=True),
        value(
            "_epoch_losses",
            underscored=True,
            saved=lambda losses: [list(one) for one in losses],
            restored=lambda losses: [tuple(one) if isinstance(one, list) else (one, 1) for one in losses],
        ),  # earlier versions kept the means alone
    )

    def __init__(self, training: DecidedTraining, exchanges_per_epoch: int) -> None:
        self._per_epoch = exchanges_per_epoch
        self._observe_every = max(1, round(training.observe_every_epochs * exchanges_per_epoch))
        self._evaluate_every = round(training.evaluate_every_epochs * exchanges_per_epoch)
        self._loss_sum = 0.0
        self._loss_count = 0
        self._observed = 0
        self._evaluated = 0
        # Of the observations of the last epoch, for the summary: the mean of each, and of how many batches it is.
        self._epoch_losses: list[tuple[float, int]] = []

    def add_loss(self, loss: float) -> None:
        if not isfinite(loss):
            raise DivergedError(DIVERGED)
        self._loss_sum += loss
        self._loss_count += 1

    def forget_losses(self) -> None:
        """The training goes on from another model."""
        self._loss_sum, self._loss_count, self._epoch_losses = 0.0, 0, []

    def epoch(self, exchange: int) -> float:
        return exchange / self._per_epoch

    def observe(
        self,
        exchange: int,
        step: int,
        metric: dict[str, float] | None = None,
        recorded_as: int | None = None,
        validation: dict[str, float] | None = None,
    ) -> list[Effect]:
        """The observation that is due after this exchange, if any; one with a metric is always due.

        `recorded_as`: the number of exchanges to record, where the distances are counted in something else.
        """
        if metric is None and validation is None and exchange - self._observed < self._observe_every:
            return []
        loss = self._loss_sum / self._loss_count if self._loss_count else None
        if loss is not None:
            kept = max(1, self._per_epoch // self._observe_every)
            self._epoch_losses = [*self._epoch_losses, (loss, self._loss_count)][-kept:]
        self._loss_sum, self._loss_count = 0.0, 0
        self._observed = exchange
        recorded = exchange if recorded_as is None else recorded_as
        return [Observe(recorded, step, self.epoch(exchange), loss, metric, validation=validation), Checkpoint()]

    def evaluation_is_due(self, exchange: int) -> bool:
        if self._evaluate_every == 0 or exchange - self._evaluated < self._evaluate_every:
            return False
        self._evaluated = exchange
        return True

    def recent_loss(self) -> float | None:
        """Mean loss since the last observation, or of that observation; None before the first batch."""
        if self._loss_count:
            return self._loss_sum / self._loss_count
        return self._epoch_losses[-1][0] if self._epoch_losses else None

    def train_loss(self) -> float | None:
        """Mean training loss over about the last epoch, every batch alike."""
        batches = sum(count for _, count in self._epoch_losses)
        return sum(loss * count for loss, count in self._epoch_losses) / batches if batches else None
