"""The loss of each task with its gradient in closed form, and the metrics that reports show.

Tasks: "binary" (one logit, cross entropy), "multiclass" (a logit a class, softmax cross entropy),
"regression" (one output, squared error). Losses are means over rows, each times its weight if there are any. Targets
are one number per row: a class index of int64 for multiclass, a number for the others.
"""

from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from colonnade.errors import DataError, SettingsError, unknown_name

_LEAST_THRESHOLD = 1e-6

TASKS = ("binary", "multiclass", "regression")
METRICS = {
    "binary": ("accuracy", "auc", "log_loss", "f1"),
    "multiclass": ("accuracy", "auc", "log_loss", "f1"),
    "regression": ("rmse",),
}
"""By which a task may be judged, the usual one first."""
SMALLER_IS_BETTER = frozenset({"log_loss", "rmse"})


def check_task(task: str) -> None:
    if task not in TASKS:
        raise unknown_name("task", task, TASKS)


@dataclass(frozen=True)
class Loss:
    """The loss of one task.

    >>> outputs, targets = torch.tensor([[3.0], [1.0]]), torch.tensor([1.0, 1.0])
    >>> value, gradient = Loss("regression").value_and_gradient(outputs, targets)
    >>> float(value), gradient.tolist()  # (2² + 0²)/2 and 2·(2, 0)/2
    (2.0, [[2.0], [0.0]])
    """

    task: str

    def __post_init__(self) -> None:
        check_task(self.task)

    @staticmethod
    def outputs(task: str, classes: int) -> int:
        """How many outputs the model needs; `classes` matters to multiclass alone."""
        check_task(task)
        if task != "multiclass":
            return 1
        if classes < 2:
            raise SettingsError(f"A multiclass task needs at least 2 classes, and {classes} were given.")
        return classes

    def value_and_gradient(
        self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The mean loss as a tensor without dimensions, and its gradient with respect to the outputs.

        With weights it is (1/m) Σ_i weight_i loss_i: the weights' mean over all training rows is 1, not over these.
        """
        if weights is not None:
            _, gradient = self.value_and_gradient(outputs, targets)
            return self.per_row(outputs, targets, weights).mean(), gradient.mul_(weights.unsqueeze(1))
        count = outputs.shape[0]
        if self.task == "multiclass":
            log_probabilities = torch.log_softmax(outputs, 1)
            value = functional.nll_loss(log_probabilities, targets)
            # (softmax − one-hot of the target) / rows
            gradient = log_probabilities.exp_().mul_(1 / count)
            share = torch.full((count, 1), -1 / count, dtype=gradient.dtype)
            return value, gradient.scatter_add_(1, targets.unsqueeze(1), share)
        targets = _as_column(outputs, targets)
        if self.task == "binary":
            value = functional.binary_cross_entropy_with_logits(outputs, targets)
            return value, torch.sigmoid(outputs).sub_(targets).mul_(1 / count)
        gradient = outputs - targets
        value = torch.dot(gradient.view(-1), gradient.view(-1)) / count
        return value, gradient.mul_(2 / count)

    def per_row(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """The loss of each row, times its weight; its mean is the value above."""
        if weights is not None:
            return self.per_row(outputs, targets).mul_(weights)
        if self.task == "multiclass":
            return functional.cross_entropy(outputs, targets, reduction="none")
        targets = _as_column(outputs, targets)
        if self.task == "binary":
            # Not by torch.nn.functional, whose checks take as long; those of _as_column are enough. 0: no reduction.
            return torch.binary_cross_entropy_with_logits(outputs, targets, None, None, 0).squeeze(1)
        return (outputs - targets).square_().squeeze(1)


def _as_column(outputs: Tensor, targets: Tensor) -> Tensor:
    """Targets as [rows, 1] in the outputs' type: [rows, 1] against [rows] would broadcast to a square."""
    if targets.dtype != outputs.dtype:
        targets = targets.to(outputs.dtype)
    column = targets.reshape(-1, 1)
    if column.shape != outputs.shape:
        raise DataError(
            f"The model gave outputs of shape {tuple(outputs.shape)} for targets of shape "
            f"{tuple(targets.shape)}. Binary and regression tasks need one output and one target per row."
        )
    return column


def headline(task: str, asked: str = "auto") -> str:
    """The one metric to name if only one is named, to stop by and to choose by: `training.metric`."""
    check_task(task)
    if asked == "auto":
        return METRICS[task][0]
    if asked not in METRICS[task]:
        raise SettingsError(
            f"training.metric = {asked!r} is no metric of a {task} task: choose {', '.join(METRICS[task])}, or leave "
            "it out."
        )
    return asked


def check_threshold(task: str, threshold: float | str) -> None:
    """Refuse a decision threshold where there is nothing to decide between two."""
    if task != "binary" and threshold != 0.5:
        raise SettingsError(
            f"training.threshold is {threshold}; it decides between two classes, and the task is {task}. Leave it out."
        )


def metrics(
    task: str, outputs: Tensor, targets: Tensor, deviation: float = 1.0, threshold: float = 0.5
) -> dict[str, float]:
    """What reports show for a task: accuracy, log_loss, f1 and auc, or rmse and r2. No row weighs more than another.

    Of two classes the second is predicted above the threshold, a probability: accuracy follows from that, log_loss and
    auc do not.
    AUC is left out unless every class occurs in the targets (for multiclass it is the mean of one class
    against the rest) and the outputs are finite; r2 is left out if all targets are equal. `deviation`: what the targets
    were divided by; rmse is in the label's own unit.
    """
    loss = Loss(task)
    if len(targets) == 0 or len(outputs) != len(targets):
        raise DataError(
            f"Metrics were asked for {len(outputs)} outputs and {len(targets)} targets. Both must have the "
            "same number of rows, and at least one."
        )
    outputs = outputs.detach().double()
    mean_loss = float(loss.per_row(outputs, targets).mean())
    if task == "regression":
        values = {"rmse": mean_loss**0.5 * deviation}
        variance = float(targets.double().var(correction=0))
        if variance > 0:
            values["r2"] = 1 - mean_loss / variance
        return values
    if task == "binary":
        labels = targets.reshape(-1) > 0.5
        guesses = outputs.squeeze(1) > log_odds(threshold)
    else:
        labels = targets
        guesses = outputs.argmax(1)
    values = {"accuracy": float((guesses == labels).double().mean()), "log_loss": mean_loss}
    classes = 2 if task == "binary" else outputs.shape[1]
    values["f1"] = _f1(guesses, labels, classes)
    if len(torch.unique(labels)) == classes and bool(outputs.isfinite().all()):
        values["auc"] = _auc(outputs, labels, classes)
    return values


def best_threshold(outputs: Tensor, targets: Tensor) -> float:
    """The probability above which the second of two classes is to be predicted so that most of these rows are right.

    Of equally good ones the one nearest to 0.5, and in the middle between two rows' own.

    >>> round(best_threshold(torch.tensor([-3.0, -2.0, -1.0, 4.0]), torch.tensor([0, 0, 1, 1])), 3)  # σ(−1.5)
    0.182
    """
    scores, order = torch.sort(outputs.detach().double().reshape(-1))
    second = (targets.reshape(-1)[order] > 0.5).long()
    # Cut before each row, and after the last: what lies below is taken for the first class.
    ends = torch.tensor([-torch.inf, torch.inf], dtype=torch.float64)
    below, above = torch.cat([ends[:1], scores]), torch.cat([scores, ends[1:]])
    cuts = ((below + above) / 2).clamp(scores[:1] - 1, scores[-1:] + 1)
    seconds_below = torch.cat([second.new_zeros(1), second.cumsum(0)])
    right = (torch.arange(len(cuts)) - seconds_below) + (second.sum() - seconds_below)
    right[below == above] = -1  # equal scores are not parted
    best = cuts[right == right.max()]
    chosen = torch.sigmoid(best[best.abs().argmin()])
    return float(chosen.clamp(_LEAST_THRESHOLD, 1 - _LEAST_THRESHOLD))


def log_odds(threshold: float) -> float:
    """The output above which a row is taken for the second class.

    >>> log_odds(0.5)
    0.0
    """
    return log(threshold / (1 - threshold))


def _f1(guesses: Tensor, labels: Tensor, classes: int) -> float:
    """2TP / (2TP + FP + FN) of the class 1; of more than two classes the mean over those that occur, or are guessed."""
    found = []
    for one in (1,) if classes == 2 and labels.dtype == torch.bool else range(classes):
        guessed, there = guesses == one, labels == one
        together = int(guessed.sum()) + int(there.sum())
        if together or classes == 2:
            found.append(2 * int((guessed & there).sum()) / together if together else 0.0)
    return float(np.mean(found))


def _auc(outputs: Tensor, labels: Tensor, classes: int) -> float:
    if classes > 2:
        probabilities = torch.softmax(outputs, 1).numpy()
        return float(np.mean([_chance_above(probabilities[:, one], labels.numpy() == one) for one in range(classes)]))
    scores = outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 else outputs[:, 0]
    return _chance_above(scores.numpy(), labels.numpy() > 0)


def _chance_above(scores: npt.NDArray[np.float64], positive: npt.NDArray[np.bool_]) -> float:
    """How often a positive row scores above a negative one, a tie counting half: the area under the ROC curve.

    By ranks, and not by scikit-learn, which needs two seconds to load and 10 ms for a small table: every evaluation
    of every label party would pay for it.
    """
    _, place, ties = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place]
    above, below = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - above * (above + 1) / 2) / (above * below))
