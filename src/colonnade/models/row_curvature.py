"""The compiled curvature of losses, row by row, from residuals alone. It calls no kernel of another file."""

import math

import numpy as np
import numpy.typing as npt

from colonnade.models.linear_rows import (
    BINARY,
    HUBER,
    MULTICLASS,
    ROBUST,
    SIGMOID,
    SMOOTHED_HINGE,
    Floats,
)
from colonnade.models.machine_code import compiled

Numbers = npt.NDArray[np.float64]


@compiled
def curvature_of(loss: int, scale: float, residual: float) -> float:
    """loss''(θ) of one output, or what stands for it where a loss is not convex, from the residual."""
    size = abs(residual)
    if loss == BINARY:
        return size * (1.0 - size)
    if loss == SMOOTHED_HINGE:
        return 1.0 if 0.0 < size < 1.0 else 0.0
    if loss == SIGMOID:
        return size * math.sqrt(max(1.0 - 4.0 * size, 0.0))
    if loss == HUBER:
        return 2.0 if size < 2.0 * scale else 0.0
    if loss == ROBUST:
        root = math.sqrt(max(1.0 - 2.0 * (size / scale) * (size / scale), 0.0))
        return root * (1.0 + root) / 2.0
    return 2.0


@compiled
def fill_logistic_curvature(residuals: Numbers, direction: Numbers, products: Numbers) -> None:
    """`fill_curvature` of two classes: most often asked for, and without a choice in it several rows at a time."""
    for row in range(residuals.shape[0]):
        size = abs(residuals[row])
        products[row] = size * (1.0 - size) * direction[row]


@compiled
def fill_curvature(loss: int, scale: float, residuals: Floats, direction: Floats, products: Floats) -> None:
    """loss''(θ_i) · direction_i, with loss'' from the residual."""
    for row in range(residuals.shape[0]):
        if loss != MULTICLASS:
            products[row, 0] = curvature_of(loss, scale, residuals[row, 0]) * direction[row, 0]
        else:
            label = 0
            for k in range(1, residuals.shape[1]):
                if residuals[row, k] < residuals[row, label]:
                    label = k
            others = 0.0
            for k in range(residuals.shape[1]):
                if k != label:
                    others += residuals[row, k] * direction[row, k]
            own = 1.0 + residuals[row, label]  # p_y
            mean = others + own * direction[row, label]  # pᵀd
            for k in range(residuals.shape[1]):
                products[row, k] = residuals[row, k] * (direction[row, k] - mean)
            # p_y(d_y − pᵀd) with 1 − p_y = −ϑ_y. A saturated row has ϑ = 0 and no label to find: the result is 0.
            products[row, label] = own * (-residuals[row, label] * direction[row, label] - others)
