"""How a trained model errs on the test rows, added up: which classes it confuses, its ROC curve, its calibration.

Classes are told by number, in the order of the model's own: a report need not name them. Nothing of a single row is
told, but counts over all of them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_CLASSES = 20
MOST_POINTS = 101
BINS = 10

Numbers = NDArray[np.float64]


def errors_made(truth: NDArray[np.int64], probabilities: Numbers, threshold: float = 0.5) -> dict[str, Any]:
    """`truth`: each test row's class; `probabilities`: of each class, [rows, classes]. Of two, by the threshold."""
    rows, classes = probabilities.shape
    if not rows or classes < 2 or not np.isfinite(probabilities).all():
        return {}
    guesses = (probabilities[:, 1] > threshold).astype(np.int64) if classes == 2 else probabilities.argmax(1)
    told: dict[str, Any] = {}
    if classes <= MOST_CLASSES:
        counts = np.zeros((classes, classes), np.int64)
        np.add.at(counts, (truth, guesses), 1)
        told["confusion"] = counts.tolist()
    if classes == 2:
        told["calibration"] = calibration(probabilities[:, 1], truth == 1)
        if 0 < int((truth == 1).sum()) < rows:
            told["roc"] = roc(probabilities[:, 1], truth == 1)
    else:
        told["calibration"] = calibration(probabilities.max(1), guesses == truth)
    return told


def calibration(said: Numbers, happened: NDArray[np.bool_]) -> list[list[float]]:
    """For each tenth of the probabilities that has rows: the mean that was said, the share that happened, how many."""
    places = np.minimum((said * BINS).astype(np.int64), BINS - 1)
    bins = []
    for place in range(BINS):
        own = places == place
        if own.any():
            bins.append([_short(said[own].mean()), _short(happened[own].mean()), int(own.sum())])
    return bins


def roc(scores: Numbers, positive: NDArray[np.bool_]) -> list[list[float]]:
    """(share of the negatives, share of the positives) above each score, from none to all; a hundred points at most."""
    order = np.argsort(-scores, kind="stable")
    last_of_score = np.append(np.diff(scores[order]) != 0, True)  # rows of one score are above it together
    hits = np.cumsum(positive[order])[last_of_score] / positive.sum()
    false = np.cumsum(~positive[order])[last_of_score] / (~positive).sum()
    places = np.unique(np.linspace(0, len(hits) - 1, min(MOST_POINTS, len(hits))).round().astype(np.int64))
    return [[0.0, 0.0], *([_short(false[at]), _short(hits[at])] for at in places)]


def _short(value: float) -> float:
    return round(float(value), 5)
