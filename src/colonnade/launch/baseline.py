"""What a model must be better than: one prediction for all rows, the share of each class or the mean of the label."""

import torch

from colonnade.algorithms.parts.losses import metrics
from colonnade.data.federated import Labels


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
