"""A private change of variables for one party's block of a linear model: its columns centred, and scaled to be alike.

With x̃ = Rᵀ(x − μ) and w = R u all products are the same but for a constant, and a gradient step on u is the step
w ← w − η RRᵀ g. R and μ follow from the party's own columns, and never leave it. What centring takes from a product,
μᵀw, the intercept of the joint model makes up for: it is free of penalty, so the optimum stays where it was. Without an
intercept nothing is centred.

R may follow from the most curvature that rows can have, or from what they have at the residuals that the party knows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from colonnade.errors import SettingsError
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    from scipy import linalg
else:
    linalg = on_demand("scipy.linalg")

Floats = npt.NDArray[np.float64]

MOST_COLUMNS = 2048
"""Of a block with a matrix R: beyond, forming it takes minutes, and every step goes through millions of numbers."""

MOST_ENTRIES = 4 * MOST_COLUMNS**2
"""Of all outputs' matrices together."""

_LEAST = 1e-7  # of a column's own curvature: one that is another's copy has none besides
_ROUNDING = 1e-10  # of its square: one that never varies has none but by rounding


@dataclass(frozen=True)
class Metric:
    """μ and R: a number per column, a matrix, or a matrix for each output.

    >>> metric = Metric.of_columns(np.array([1.0]), np.array([4.0]), bound=0.25, l2=0.0)  # R² = 1/(0.25 · 4)
    >>> metric.outward(metric.inward(np.array([[3.0]]))).round(5).tolist()  # RRᵀg
    [[3.0]]
    """

    centre: Floats  # μ, [d]
    scale: Floats  # R, [d], [d, d] or [c, d, d]
    scale_b: float | Floats  # of the intercept; [c] where R is a matrix for each output

    @classmethod
    def of_columns(cls, centre: Floats, variances: Floats, bound: float, l2: float) -> "Metric":
        """R² = 1/(bound · Σ_i (x_ij − μ_j)²/n + λ), column by column; `bound` is the loss's largest curvature."""
        curvature = bound * variances
        return cls(centre, 1 / np.sqrt(curvature + l2 + _floor(curvature, bound, centre)), 1 / np.sqrt(bound))

    @classmethod
    def of_block(cls, centre: Floats, covariance: Floats, bound: float, l2: float) -> "Metric":
        """RRᵀ = (bound · Σ_i (x_i − μ)(x_i − μ)ᵀ/n + λI)⁻¹: the inverse of the most curvature that it can have."""
        return cls(centre, root_of_inverse(centre, bound * covariance, bound, l2), 1 / np.sqrt(bound))

    def of_curvature(self, curvatures: Iterable[Floats], mean_curvatures: Floats, l2: float) -> "Metric":
        """The same for each output apart, from Σ_i h_ik (x_i − μ)(x_i − μ)ᵀ/n and the mean of h_ik."""
        roots = [
            root_of_inverse(self.centre, curvature, float(mean), l2)
            for curvature, mean in zip(curvatures, mean_curvatures, strict=True)
        ]
        return Metric(self.centre, np.stack(roots), 1 / np.sqrt(mean_curvatures))

    @staticmethod
    def check_width(columns: int, matrices: int = 1) -> None:
        """Refuse a block that is too wide for a matrix R, or for so many of them."""
        if matrices * columns**2 > MOST_ENTRIES:
            raise SettingsError(
                f'algorithm.precondition = "curvature" needs a matrix of a party\'s columns by its columns for each of '
                f"{matrices} outputs, and a party has {columns:,} columns; the matrices may have {MOST_ENTRIES:,} "
                'entries together. Use "block" or "columns", or leave it out.'
            )
        if columns > MOST_COLUMNS:
            raise SettingsError(
                f'algorithm.precondition = "block" needs a matrix of a party\'s columns by its columns, and a party '
                f'has {columns:,} of them; at most {MOST_COLUMNS:,} are taken. Use "columns", or leave it out.'
            )

    def outputs_apart(self, outputs: int) -> "Metric":
        """The same with a matrix for each output."""
        return Metric(self.centre, np.tile(self.scale, (outputs, 1, 1)), np.tile(self.scale_b, outputs))

    @property
    def is_matrix(self) -> bool:
        return self.scale.ndim > 1

    def matrix(self, output: int) -> Floats:
        """R of one output as a matrix."""
        if self.scale.ndim == 3:
            found: Floats = self.scale[output]
            return found
        return self.scale if self.is_matrix else np.diag(self.scale)

    def lengthened(self, factor: float) -> "Metric":
        """The same with steps that are so many times as long: RRᵀ times the factor."""
        return Metric(self.centre, self.scale * np.sqrt(factor), self.scale_b * np.sqrt(factor))

    def back(self, change: Floats) -> Floats:
        """R⁻¹w: what a change of the weights is for u, [d, c]."""
        if not self.is_matrix:
            found: Floats = change / self.scale[:, None]
            return found
        if self.scale.ndim == 2:
            return np.asarray(linalg.solve_triangular(self.scale, change))
        solved = [linalg.solve_triangular(one, two) for one, two in zip(self.scale, change.T, strict=True)]
        return np.stack(solved, 1)

    def inward(self, gradient: Floats) -> Floats:
        """Rᵀg: the gradient of u, [d, c]."""
        if self.scale.ndim == 3:
            return _each(np.swapaxes(self.scale, 1, 2), gradient)
        found: Floats = self.scale.T @ gradient if self.is_matrix else self.scale[:, None] * gradient
        return found

    def outward(self, vector: Floats) -> Floats:
        """R u, [d, c]."""
        if self.scale.ndim == 3:
            return _each(self.scale, vector)
        found: Floats = self.scale @ vector if self.is_matrix else self.scale[:, None] * vector
        return found


def _each(matrices: Floats, vectors: Floats) -> Floats:
    """The k-th matrix times the k-th column."""
    found: Floats = np.ascontiguousarray((matrices @ vectors.T[:, :, None])[:, :, 0].T)
    return found


def root_of_inverse(centre: Floats, curvature: Floats, bound: float, l2: float) -> Floats:
    """R with RRᵀ = (curvature + λI)⁻¹; the array is used up."""
    curvature[np.diag_indices(len(centre))] += l2 + _floor(np.diag(curvature), bound, centre)
    factor = linalg.cholesky(curvature, lower=True)  # M = LLᵀ, so R = L⁻ᵀ
    inverse = linalg.solve_triangular(factor, np.eye(len(centre)), lower=True)
    return np.ascontiguousarray(inverse.T)


def _floor(curvature: Floats, bound: float, centre: Floats) -> Floats:
    """What is added to each column's curvature; to one that is 0 everywhere, 1, as its steps are 0 whatever it is."""
    least = _LEAST * np.maximum(curvature, 0.0) + _ROUNDING * bound * np.square(centre)
    return np.where(least > 0, least, 1.0)
