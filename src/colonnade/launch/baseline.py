"""What a model must be better than: one prediction for all rows, the share of each class or the mean of the label."""

from collections.abc import Mapping
from math import sqrt

import torch

from colonnade.algorithms.parts.divergence import LONG
from colonnade.algorithms.parts.losses import metrics
from colonnade.data.federated import Labels
from colonnade.reports.summary import Summary


def one_for_all(labels: Labels) -> dict[str, float]:
    """What it scores on the test rows; it is learnt from the training rows, and of no row's columns.

    Who predicts it has the majority's accuracy, and an AUC of one half.
    """
    if not len(labels.test) or not len(labels.train):
        return {}
    rows = len(labels.test)
    if labels.task == "regression":
        outputs = labels.train.double().mean().expand(rows, 1)
    else:
        counts = torch.bincount(labels.train.reshape(-1).long(), minlength=max(2, len(labels.classes))).double()
        logs = ((counts + 1) / (counts + 1).sum()).log()  # a class that no training row has is not impossible
        outputs = (logs[1] - logs[0]).expand(rows, 1) if labels.task == "binary" else logs.expand(rows, len(logs))
    return metrics(labels.task, outputs, labels.test, labels.deviation)


LITTLE = 0.05
"""Of the variance of numbers: who explains no more of it has learnt next to nothing."""
FEW = 100
"""Test rows: of fewer, chance alone makes more of a difference than many a good model."""
CHANCE = 2.0
"""Standard errors: so much better a share of right answers may be by chance."""
LITTLE_LEARNT = (
    "The model is hardly better than one prediction for all rows: it has learnt next to nothing. Perhaps these columns "
    "tell nothing of the label. If they do, scale columns and label (data.standardise), leave rates out, train longer, "
    "or try another algorithm."
)


def beside_one_for_all(labels: Labels, summary: Summary) -> Summary:
    """A run's summary with what one prediction for all rows scores, and whether that is about what the model does after
    a training that was long enough to tell."""
    summary["baseline"] = one_for_all(labels)
    if summary["epochs"] >= LONG and learnt_little(labels, summary["test"], summary["baseline"]):
        summary["little_learnt"] = True
    return summary


def learnt_little(labels: Labels, test: Mapping[str, float], baseline: Mapping[str, float]) -> bool:
    """Whether a model's scores are those of one prediction for all rows, but for what may be chance.

    >>> labels = Labels(torch.tensor([0, 1]), torch.tensor([0, 1] * 50), "binary", (0, 1))
    >>> before = {"accuracy": 0.5, "auc": 0.5}
    >>> learnt_little(labels, {"accuracy": 0.55, "auc": 0.53}, before), learnt_little(labels, {"accuracy": 0.9}, before)
    (True, False)
    """
    rows = len(labels.test)
    if rows < FEW or not {"rmse", "accuracy"} & test.keys() & baseline.keys():
        return False
    if labels.task == "regression":
        return test["rmse"] ** 2 > (1 - LITTLE) * baseline["rmse"] ** 2
    if test["accuracy"] - baseline["accuracy"] > CHANCE * sqrt(0.25 / rows):
        return False
    # A rare class may be known well though nothing is predicted but the others: the order of rows tells.
    counts = torch.bincount(labels.test.long())
    rarest = int(counts[counts > 0].min())
    spread = sqrt((rows + 1) / (12 * rarest * max(1, rows - rarest)))  # of the area, if the order is chance
    return test.get("auc", 0.5) - 0.5 <= CHANCE * spread
