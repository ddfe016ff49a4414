"""What the joint model's raw outputs mean: probabilities, classes, values in the label's own unit."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.losses import log_odds
from colonnade.errors import DataError
from colonnade.prediction.saved_model import LabelUnit


def probabilities_of(task: str, outputs: torch.Tensor) -> NDArray[np.float64]:
    """Of each class, [rows, classes]."""
    if task == "regression":
        raise DataError("A regression has no classes: ask predict for the values.")
    logits = outputs.double()
    if task == "binary":
        logits = torch.cat([torch.zeros_like(logits), logits], 1)  # σ(z) is the softmax of (0, z)
    return torch.softmax(logits, 1).numpy()


def values_of(task: str, unit: LabelUnit, outputs: torch.Tensor) -> NDArray[Any]:
    """The most probable class of each row (of two, by the threshold), or the value in the label's own unit."""
    if task == "regression":
        values: NDArray[np.float64] = unit.mean + unit.deviation * outputs[:, 0].double().numpy()
        return values
    binary = outputs.shape[1] == 1
    index = (outputs[:, 0] > log_odds(unit.threshold)).long() if binary else outputs.argmax(1)
    found: NDArray[Any] = np.array(unit.classes)[index.numpy()]
    return found
