"""A change of variables from the curvature that a block's rows have where the weights are, found during a training.

With h_i the curvature of row i's loss (linear_loss.py), RRᵀ = (Σ_i h_i (x_i − μ)(x_i − μ)ᵀ/n + λI)⁻¹ for each output.
In x̃ = Rᵀ(x − μ) the block's own curvature is 1 in every direction. What a step on a mini-batch sees beside it, its
rows' chance, is told with it, as in algorithms/linear_models/parts/smoothness.py: here in the curvature's unit.

Rows that alone have more than `most_leverage` of a direction's curvature, h ‖x̃‖², count more than once, as where
columns are scaled (linear.py): a direction that few rows have takes shorter steps.
"""

from typing import NamedTuple

import numpy as np

from colonnade.models.linear import LinearBlock
from colonnade.models.linear_metric import Floats, Metric, root_of_inverse

MOST_COLUMNS = 256
"""Of a block that is scaled so by default: with more, a step through the matrix costs more than its rows."""

_TURNS, _MARGIN = 10, 1.05


class KnownCurvature(NamedTuple):
    """R of every output, and what it does."""

    metric: Metric
    guard: Floats  # how many times a row counts, [n]
    rows: float  # R²: E[(h‖x̃‖²) h x̃x̃ᵀ] ≼ R² I


def known_curvature(block: LinearBlock, curvatures: Floats, most_leverage: float) -> KnownCurvature:
    """The metric of rows with these curvatures, [n, c]."""
    guard = np.ones(block.rows)
    for _ in range(_TURNS):
        matrices = [_curvature(block, guard * h) for h in curvatures.T]
        roots = [
            root_of_inverse(block.centre(), one.copy(), float(h.mean()), block.l2)
            for one, h in zip(matrices, curvatures.T, strict=True)
        ]
        leverages = np.stack([h * _squares(block, root) for h, root in zip(curvatures.T, roots, strict=True)], 1)
        over = leverages.max(1) / most_leverage
        if over.max() <= _MARGIN:
            break
        guard *= np.maximum(over, 1.0)
    metric = Metric(block.centre(), np.stack(roots), 1 / np.sqrt(curvatures.mean(0)))
    longest = leverages.max(1)
    rows = max(_largest(block, longest * h, root) for h, root in zip(curvatures.T, roots, strict=True))
    return KnownCurvature(metric, guard, rows)


def _curvature(block: LinearBlock, weights: Floats) -> Floats:
    """Σ_i weight_i (x_i − μ)(x_i − μ)ᵀ/n, without the intercept's line."""
    held = slice(0, block.columns)
    return np.ascontiguousarray(block.gram(weights)[held, held])


def _squares(block: LinearBlock, root: Floats) -> Floats:
    """‖Rᵀ(x_i − μ)‖² of every row."""
    return np.concatenate([np.square(part).sum(1) for _, part in block.rows_along(root)])


def _largest(block: LinearBlock, weights: Floats, root: Floats) -> float:
    """λ_max of Σ_i weight_i x̃_i x̃_iᵀ/n."""
    return float(np.linalg.eigvalsh(root.T @ _curvature(block, weights) @ root)[-1])
