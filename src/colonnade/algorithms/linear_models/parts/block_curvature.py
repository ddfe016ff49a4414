"""The inverse of a party's own block of the curvature, where the weights are: the Newton direction of that block alone.

M_m = X_mᵀ diag(h) X_m / n + λ, h from the residuals of all rows, for each output apart: the curvature of a softmax
between outputs is left out. The intercept, where the block has one, is the last line. A wide block has the diagonal.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.solving import MOST_SHARE
from colonnade.errors import RunError
from colonnade.models.linear import LinearBlock
from colonnade.models.linear_loss import LinearLoss
from colonnade.on_demand import on_demand
from colonnade.state import Remembering, State, custom, value

if TYPE_CHECKING:
    from scipy import linalg
else:
    linalg = on_demand("scipy.linalg")

Floats = NDArray[np.float64]
_MOST_COLUMNS = 1024  # a wider block has its diagonal alone
_MOST_ROWS, _LEAST_ROWS, _ROWS_A_COLUMN = 16_384, 2_048, 32
"""M_m is formed from evenly spaced rows, about so many for each of its columns, within these bounds: what their chance
adds to it costs no step, and a look at all rows more than one."""


def _factor(curvature: Floats) -> tuple[Floats, bool]:
    """As `cho_factor`, whose looks at what it is given take longer than a few columns do."""
    factor, failed = linalg.lapack.dpotrf(curvature, lower=1)
    if failed or not np.isfinite(factor[-1, -1]):
        raise RunError(
            "The curvature of a party's columns cannot be factored: it is not positive in every direction. Scale the "
            'columns, or set algorithm.precondition = "columns".'
        )
    return factor, True


class BlockCurvature(Remembering):
    """M_m⁻¹ of one block. `kind`: "none" is the identity, "columns" the diagonal of M_m, "block" all of it."""

    def __init__(self, block: LinearBlock, loss: LinearLoss, kind: str = "block") -> None:
        self._block, self._loss, self._kind = block, loss, kind
        self.lines = block.columns + block.has_intercept
        self.penalty = np.full((self.lines, 1), block.l2)
        if block.has_intercept:
            self.penalty[-1] = 0.0
        self._asked = 0
        self._inverse: list[Any] = []

    def weights(self) -> Floats:
        """w of the block, [lines, c]."""
        return self.joined(self._block.weights(), self._block.intercept())

    def gradient(self, residuals: Floats, weights: Floats) -> Floats:
        """X_mᵀϑ/n + λw at w, [lines, c]."""
        return self.joined(*self._block.full_gradient(residuals)) + self.penalty * weights

    def direction(self, residuals: Floats, gradient: Floats) -> Floats:
        """−M_m⁻¹ g; M_m is formed anew at the 1st, 2nd, 3rd, 5th, 9th, … time: it changes less and less."""
        if self._asked & (self._asked - 1) == 0:
            self._form(residuals)
        self._asked += 1
        return -self._solved(gradient)

    def _form(self, residuals: Floats) -> None:
        block = self._block
        wanted = min(_MOST_ROWS, max(_LEAST_ROWS, _ROWS_A_COLUMN * self.lines))
        every = max(1, block.rows // wanted)
        self._inverse = []
        if self._kind == "none" or self.lines == 0:
            return
        whole = self._kind == "block" and self.lines <= _MOST_COLUMNS
        looked_at = slice(None, None, every if whole else 1)
        curvatures = np.zeros(residuals.shape)
        curvatures[looked_at] = self._loss.curvatures(residuals[looked_at])
        if self._loss.may_be_flat:
            curvatures = (1 - MOST_SHARE) * curvatures + MOST_SHARE * self._loss.smoothness
        for weights in np.ascontiguousarray(curvatures.T):
            if whole:
                curvature = block.gram(weights, every)
                # A little more than the penalty: a rare column may have no curvature in the rows that are looked at.
                diagonal = curvature.reshape(-1)[:: self.lines + 1]
                diagonal += self.penalty[:, 0] + 1e-6 * (1 + diagonal.sum())
                self._inverse.append(_factor(curvature))
            else:
                diagonal = block.squares(weights) + self.penalty[:, 0]
                self._inverse.append(1 / np.maximum(diagonal, 1e-6))

    def _solved(self, gradient: Floats) -> Floats:
        solved = gradient.copy()
        for output, inverse in enumerate(self._inverse):
            if isinstance(inverse, tuple):
                # As `cho_solve`, whose looks at what it is given take ten times as long as a few columns do.
                solved[:, output] = linalg.lapack.dpotrs(inverse[0], gradient[:, output], lower=1)[0]
            else:
                solved[:, output] = inverse * gradient[:, output]
        return solved

    def joined(self, matrix: Floats, intercept: Floats) -> Floats:
        return np.vstack([matrix, intercept]) if self._block.has_intercept else matrix

    def split(self, joined: Floats) -> tuple[Floats, Floats]:
        if self._block.has_intercept:
            return joined[:-1], joined[-1]
        return joined, np.zeros(self._block.outputs)

    def _save_inverse(self, state: State) -> None:
        for output, inverse in enumerate(self._inverse):
            factor = inverse[0] if isinstance(inverse, tuple) else inverse
            state.put(f"inverse.{output}", np.ascontiguousarray(factor))

    def _load_inverse(self, state: State) -> None:
        factors = [state.take(f"inverse.{output}") for output in range(len(state.part("inverse").tensors))]
        self._inverse = [(np.asfortranarray(one), True) if one.ndim == 2 else one for one in factors]

    MEMORY = (
        value("_asked", key="steps"),
        custom("_inverse", save=_save_inverse, load=_load_inverse),
    )
