"""Which evaluation of validation rows was the best so far, and whether it is time to give up hope of a better one."""

from collections.abc import Mapping
from typing import Any

from colonnade.algorithms.parts.losses import SMALLER_IS_BETTER
from colonnade.state import Remembering, value


class BestScore(Remembering):
    """Compares evaluations, numbered from 1, by one metric; of equal ones the earlier is the better.

    >>> best = BestScore("accuracy", patience=2)
    >>> [best.judge(number, number / 2, {"accuracy": found}) for number, found in enumerate((0.5, 0.7, 0.7, 0.6), 1)]
    [True, True, False, False]
    >>> best.version, best.epoch, best.is_over
    (2, 1.0, True)
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
        """Whether this evaluation is better than all before; one without the metric, or with NaN, never is."""
        sound = all(metrics.get(name, 0.0) <= most for name, most in self._bounds.items())
        found = metrics.get(self.metric, float("nan")) if sound else float("nan")
        sign = -1.0 if self.metric in SMALLER_IS_BETTER else 1.0
        if found == found and (not self.version or sign * found > sign * self.metrics[self.metric]):
            self.version, self.epoch, self.metrics, self._since = version, epoch, dict(metrics), 0
            return True
        self._since += 1
        return False

    def counts(self, kept: str) -> dict[str, Any]:
        """For the run's summary: the metrics of the best evaluation, when it was made, and which model is used."""
        return {"validation": dict(self.metrics), "kept": {"model": kept, "best_epoch": self.epoch}}

    @property
    def is_over(self) -> bool:
        """Whether none of the last `patience` evaluations was better than the one before them."""
        return 0 < self._patience <= self._since
