"""Which evaluation of validation rows was the best so far, and whether it is time to give up hope of a better one."""

from collections.abc import Mapping
from math import inf
from typing import Any

import torch

from colonnade.algorithms.parts.losses import SMALLER_IS_BETTER
from colonnade.data.federated import Labels
from colonnade.errors import DataError
from colonnade.state import Remembering, value

TIE_BREAK = "log_loss"
NOWHERE = (-inf, -inf)


def check_they_can_choose(labels: Labels) -> None:
    """Of validation rows of one class a model that always says that class is the best, whatever the metric."""
    apart = labels.validation
    if labels.task == "regression" or apart is None or _classes(apart) != 1 or _classes(labels.train) == 1:
        return
    raise DataError(
        f"All {len(apart)} validation rows are of one class: they cannot tell which model is better. Set more of them "
        'apart (data.validation), or others (data.seed); or set training.keep = "last" and training.early_stopping = 0.'
    )


def _classes(rows: torch.Tensor) -> int:
    return len(torch.unique(rows))


class BestScore(Remembering):
    """Compares evaluations, numbered from 1, by one metric, equal ones by log loss; of equals the first is best.

    Where one class is rare, its rows are the last to be right: the share of right answers stays the same for many
    epochs in which the model learns. If the metric cannot be told, as an AUC of one class, the log loss alone decides.

    >>> best = BestScore("accuracy", patience=2)
    >>> [best.judge(number, number / 2, {"accuracy": found}) for number, found in enumerate((0.5, 0.7, 0.7, 0.6), 1)]
    [True, True, False, False]
    >>> best.version, best.epoch, best.is_over
    (2, 1.0, True)
    >>> best.judge(5, 2.5, {"accuracy": 0.7, "log_loss": 0.4}), best.judge(6, 3.0, {"accuracy": 0.7, "log_loss": 0.3})
    (True, True)
    """

    MEMORY = (value("version", "epoch", "metrics", "_since"),)

    def __init__(self, metric: str, patience: int = 0, bounds: Mapping[str, float] | None = None) -> None:
        """`bounds`: what other metrics may be at most. A model beyond them has diverged, whatever else it does well."""
        self.metric = metric
        self._bounds = bounds or {}
        self._patience = patience
        self.version = 0  # the number of the best one; 0: there is none
        self.epoch = 0.0  # when it was made
        self.metrics: dict[str, float] = {}
        self._since = 0  # evaluations since then

    def judge(self, version: int, epoch: float, metrics: dict[str, float]) -> bool:
        """Whether this evaluation is better than all before; one with neither metric, or with NaN, never is."""
        sound = all(metrics.get(name, 0.0) <= most for name, most in self._bounds.items())
        found = self._rank(metrics) if sound else NOWHERE
        if found > (self._rank(self.metrics) if self.version else NOWHERE):
            self.version, self.epoch, self.metrics, self._since = version, epoch, dict(metrics), 0
            return True
        self._since += 1
        return False

    def _rank(self, metrics: Mapping[str, float]) -> tuple[float, float]:
        """The larger, the better."""
        sign = -1.0 if self.metric in SMALLER_IS_BETTER else 1.0
        both = sign * metrics.get(self.metric, inf * -sign), -metrics.get(TIE_BREAK, inf)
        return NOWHERE if any(one != one for one in both) else both

    def counts(self, kept: str) -> dict[str, Any]:
        """For the run's summary: the metrics of the best evaluation, when it was made, and which model is used."""
        chosen = {"model": kept, "best_epoch": self.epoch}
        if self.version and self.metric not in self.metrics:
            chosen["by"] = TIE_BREAK
        return {"validation": dict(self.metrics), "kept": chosen}

    @property
    def is_over(self) -> bool:
        """Whether none of the last `patience` evaluations was better than the one before them."""
        return 0 < self._patience <= self._since
