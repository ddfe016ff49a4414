"""The losses of linear models in NumPy arrays: residuals, values, and curvature from the residuals alone.

The residual of row i is ϑ_i = ∂loss/∂θ_i, a number for each of the c outputs. Tasks and conventions are those of
algorithms/parts/losses.py, in float64, and finite at any finite output.
"""

import math
from dataclasses import dataclass

import numpy as np

from colonnade.errors import DataError, SettingsError, unknown_name
from colonnade.models.linear_rows import (
    BINARY,
    MULTICLASS,
    REGRESSION,
    Floats,
    fill_curvature,
    fill_residuals,
    readable,
)

_CODES = {"binary": BINARY, "regression": REGRESSION, "multiclass": MULTICLASS}
# sup of loss'': σ(1 − σ) ≤ 1/4; the eigenvalues of diag(p) − ppᵀ are at most 1/2, reached at p = (1/2, 1/2, 0, …).
_SMOOTHNESS = {"binary": 0.25, "regression": 2.0, "multiclass": 0.5}
_MOST_OF_AN_OUTPUT = {"binary": 0.25, "regression": 2.0, "multiclass": 0.25}  # p(1 − p) ≤ 1/4


@dataclass(frozen=True)
class LinearLoss:
    """The loss of one task over rows of `outputs` numbers.

    >>> loss = LinearLoss("regression")
    >>> loss.residuals(np.array([[3.0], [1.0]]), np.array([1.0, 1.0])).tolist()  # 2(θ − y)
    [[4.0], [0.0]]
    >>> loss.mean_loss(np.array([[3.0], [1.0]]), np.array([1.0, 1.0]))  # (2² + 0²)/2
    2.0
    """

    task: str
    outputs: int = 1  # c

    def __post_init__(self) -> None:
        if self.task not in _CODES:
            raise unknown_name("task", self.task, _CODES)
        if self.task == "multiclass" and self.outputs < 2:
            raise SettingsError(f"A multiclass loss needs at least 2 outputs, one a class, and got {self.outputs}.")
        if self.task != "multiclass" and self.outputs != 1:
            raise SettingsError(f"The {self.task} loss has one output, and {self.outputs} were asked for. Give 1.")

    @property
    def code(self) -> int:
        """The loss's number in compiled code."""
        return _CODES[self.task]

    @property
    def smoothness(self) -> float:
        """The largest curvature that the loss has anywhere: sup of ∂²loss/∂θ², as an operator norm."""
        return _SMOOTHNESS[self.task]

    def residuals(self, outputs: Floats, targets: Floats) -> Floats:
        """ϑ_i = ∂loss(θ_i, y_i)/∂θ_i, [rows, c]."""
        return self.residuals_and_mean_loss(outputs, targets)[0]

    def mean_loss(self, outputs: Floats, targets: Floats) -> float:
        """(1/m) Σ_i loss(θ_i, y_i); NaN if there is no row."""
        return self.residuals_and_mean_loss(outputs, targets)[1]

    def residuals_and_mean_loss(self, outputs: Floats, targets: Floats) -> tuple[Floats, float]:
        """Both for the price of one."""
        outputs, targets = self._checked(outputs), self.checked_targets(targets, len(outputs))
        residuals = np.empty(outputs.shape)
        total = fill_residuals(self.code, outputs, targets, residuals)
        return residuals, total / len(outputs) if len(outputs) else math.nan

    def curvature_times(self, residuals: Floats, direction: Floats) -> Floats:
        """∂²loss/∂θ_i² · direction_i for each row, from the residuals alone: a party without labels can form it.

        The logistic residual is σ(θ) or −σ(−θ), so |ϑ|(1 − |ϑ|) is σ(1 − σ) either way. Of a softmax residual
        p − e_y only the label's entry is negative, which gives p back.
        """
        residuals, direction = self._checked(residuals), self._checked(direction)
        if residuals.shape != direction.shape:
            raise DataError(
                f"A curvature product was asked for {len(residuals)} residuals and {len(direction)} rows of "
                "direction. Give one row of direction for each residual."
            )
        products = np.empty(direction.shape)
        fill_curvature(self.code, residuals, direction, products)
        return products

    def curvatures(self, residuals: Floats) -> Floats:
        """∂²loss/∂θ_ik² of every row and output, [rows, c], from the residuals alone.

        Of a softmax, |ϑ_k| is p_k, or 1 − p_k for the label's: p(1 − p) either way.
        """
        residuals = self._checked(residuals)
        if self.task == "regression":
            return np.full(residuals.shape, 2.0)
        size = np.abs(residuals)
        return size * (1.0 - size)

    @property
    def most_curvature_of_an_output(self) -> float:
        """The most that any entry of `curvatures` can be."""
        return _MOST_OF_AN_OUTPUT[self.task]

    def checked_targets(self, targets: Floats, rows: int) -> Floats:
        """The targets as compiled code reads them: it would write beyond the row of a class that does not exist."""
        targets = readable(targets, np.float64)
        if targets.shape != (rows,):
            raise DataError(f"{rows} rows came with targets of shape {targets.shape}. Give one target per row.")
        if self.task == "multiclass" and rows and not (targets.min() >= 0 and targets.max() < self.outputs):
            raise DataError(
                f"A multiclass target is not one of the classes 0 to {self.outputs - 1}. Number the classes from 0, "
                "or give the loss as many outputs as there are classes."
            )
        return targets

    def _checked(self, values: Floats) -> Floats:
        values = readable(values, np.float64)
        if values.ndim != 2 or values.shape[1] != self.outputs:
            raise DataError(f"The {self.task} loss needs rows of {self.outputs} outputs, and got shape {values.shape}.")
        return values
