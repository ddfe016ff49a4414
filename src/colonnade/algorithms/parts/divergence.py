"""Whether a training goes the wrong way: the loss of its epochs against that of one prediction for all rows.

A loss that is not finite is too late a sign: a model whose log loss is 3e32 is no model either. One above the constant
prediction's is none: training begins there, and noise may keep it there. An epoch far above it, and no better than what
was before, is.
"""

import torch

from colonnade.algorithms.parts.losses import check_task
from colonnade.errors import RunError
from colonnade.state import Remembering, State, custom

FAR_ABOVE = 10.0
"""Times the constant prediction's loss."""


def constant_loss(task: str, targets: torch.Tensor, weights: torch.Tensor | None = None) -> float:
    """The mean loss of the best constant: the entropy of the classes, or the variance; weighted, if rows are.

    >>> constant_loss("regression", torch.tensor([1.0, 3.0]))
    1.0
    >>> round(constant_loss("binary", torch.tensor([0, 1])), 4)  # ln 2
    0.6931
    """
    check_task(task)
    if weights is not None:
        return _weighted_constant_loss(task, targets, weights)
    if task == "regression":
        return float(targets.double().var(correction=0))
    shares = torch.unique(targets, return_counts=True)[1].double() / len(targets)
    return float(-(shares * shares.log()).sum())


def _weighted_constant_loss(task: str, targets: torch.Tensor, weights: torch.Tensor) -> float:
    mean = weights.mean()
    if task == "regression":
        values = targets.double()
        centre = (weights * values).mean() / mean
        return float((weights * (values - centre).square()).mean())
    shares = torch.bincount(targets.long(), weights) / len(targets)
    shares = shares[shares > 0]
    return float(-(shares * (shares / mean).log()).sum())


class DivergenceWatch(Remembering):
    """Adds up the losses of batches, half an epoch at a time, and refuses to go on with a training that diverges."""

    def __init__(
        self,
        task: str,
        targets: torch.Tensor,
        looks: bool = True,  # or lets everything pass
        constant: float | None = None,  # the constant prediction's loss; None: that of the task's own loss
        weights: torch.Tensor | None = None,
    ) -> None:
        self._looks = looks
        if constant is None:
            # Where one class has nearly all the weight, a constant has hardly any loss, and training begins far above.
            constant = max(constant_loss(task, targets), constant_loss(task, targets, weights))
        self._bound = FAR_ABOVE * constant
        self._half = 0  # number of the one that is being added up
        self._sum = 0.0
        self._count = 0
        self._halves: list[float] = []  # mean losses of the last three halves

    def add(self, loss: float, epoch: float) -> None:
        """The mean loss of a batch, as of that many epochs."""
        if not self._looks:
            return
        if int(2 * epoch) > self._half and self._count:
            self._close(epoch)
        self._half = int(2 * epoch)
        self._sum += loss
        self._count += 1

    def _close(self, epoch: float) -> None:
        self._halves = [*self._halves, self._sum / self._count][-3:]
        self._sum, self._count = 0.0, 0
        if len(self._halves) == 3:
            before, earlier, later = self._halves
            if min(earlier, later) > self._bound > 0 and later >= before and earlier >= before:
                raise RunError(self._words(later, epoch))

    def _words(self, loss: float, epoch: float) -> str:
        return (
            f"The training has diverged: after {epoch:.2g} epochs its loss is {loss:.3g} and does not fall, while the "
            f"same prediction for every row would have {self._bound / FAR_ABOVE:.3g}. Leave "
            "training.learning_rate out, or lower it; scale columns and, in a regression, the label."
        )

    def _save(self, state: State) -> None:
        state.values.update(half=self._half, sum=self._sum, count=self._count, halves=list(self._halves))

    def _load(self, state: State) -> None:
        """Of a run of an earlier version nothing is known: it is watched from here on."""
        self._half = state.values.get("half", 0)
        self._sum, self._count = state.values.get("sum", 0.0), state.values.get("count", 0)
        self._halves = list(state.values.get("halves", []))

    MEMORY = (custom("_half", "_sum", "_count", "_halves", save=_save, load=_load),)
