"""How a model errs on the test rows, as figures: confusion matrix, ROC curve, calibration; None without their data."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from colonnade.reports.amounts import count, number
from colonnade.reports.figures import COLOURS, HALF_WIDTH_INCHES, INK, MUTED, new_figure, style
from colonnade.reports.rundir import Run

_MOST_NUMBERED = 12
"""Classes of a matrix whose counts are written into it; of more, colours have to do."""


def confusion(run: Run) -> Figure | None:
    """Rows: what the class is; columns: what was said. The darker, the more of the class."""
    counts = numbers(run.section("errors").get("confusion"))
    if counts is None or counts.ndim != 2 or counts.shape[0] != counts.shape[1] or not counts.sum():
        return None
    classes = len(counts)
    figure = new_figure(HALF_WIDTH_INCHES, 4.2)
    axes = figure.subplots()
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1.7)  # pale enough for the counts to be read, turned dark as well
    if classes <= _MOST_NUMBERED:
        for (row, column), one in np.ndenumerate(counts):
            if one:
                axes.text(column, row, count(one), ha="center", va="center", color=INK, fontsize=8)
    axes.set_xticks(range(classes))
    axes.set_yticks(range(classes))
    axes.tick_params(length=0, labelcolor=INK, labelsize=8)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel("class that was predicted", color=MUTED)
    axes.set_ylabel("class that it is", color=MUTED)
    return figure


def _square() -> tuple[Figure, Axes]:
    """Shares against shares, with the line on which they are the same."""
    figure = new_figure(HALF_WIDTH_INCHES, 3.8)
    axes = figure.subplots()
    style(axes, grid="both")
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    return figure, axes


def roc(run: Run) -> Figure | None:
    """Which share of the positives is found at the price of which share of the negatives."""
    points = numbers(run.section("errors").get("roc"))
    if points is None or points.ndim != 2 or points.shape[1] != 2:
        return None
    figure, axes = _square()
    axes.plot(points[:, 0], points[:, 1], color=COLOURS[0], linewidth=1.8)
    axes.set_xlabel("share of the negatives taken for positives", color=MUTED)
    axes.set_ylabel("share of the positives found", color=MUTED)
    return figure


def calibration(run: Run) -> Figure | None:
    """What was said with which probability, and how often it was so; the larger a point, the more rows."""
    bins = numbers(run.section("errors").get("calibration"))
    if bins is None or bins.ndim != 2 or bins.shape[1] != 3:
        return None
    figure, axes = _square()
    axes.plot(bins[:, 0], bins[:, 1], color=COLOURS[0], linewidth=1.2)
    axes.scatter(bins[:, 0], bins[:, 1], s=12 + 120 * bins[:, 2] / bins[:, 2].max(), color=COLOURS[0], alpha=0.85)
    axes.set_xlim(-0.03, 1.03)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("probability that was said", color=MUTED)
    axes.set_ylabel("share that came true", color=MUTED)
    return figure


def numbers(found: Any) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """A table of finite numbers; None for anything else that a file may hold."""
    if not isinstance(found, list) or not found or not all(isinstance(row, list) for row in found):
        return None
    rows: list[Sequence[float | None]] = [[number(one) for one in row] for row in found]
    if len({len(row) for row in rows}) != 1 or any(one is None for row in rows for one in row):
        return None
    return np.array(rows, np.float64)
