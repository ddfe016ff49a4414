"""A look along everybody's directions at once: what blocks that step each for itself cannot have.

Now and then every party offers a point, its weights and a Newton step of its own block from there. The label party is
given the sums of all rows' products at everybody's points, and takes the best weights in the span of the last ones.

    party m:      p_m = w_m − M_m⁻¹ (X_mᵀϑ/n + λw_m),   ϑ as it last knew it, M_m its own block of the curvature
    label party:  c = argmin f(Σ_k c_k p_k), Σ_k c_k = 1, from Σ_m X_m p_mk and λ Σ_m p_mj·p_mk alone
    party m:      w_m ← Σ_k c_k p_mk, which is one of the points from then on

Of the papers' steps nothing changes but where they start from. Searching the span of earlier weights is the idea of G.
Narkiss, M. Zibulevsky, "Sequential Subspace Optimization Method for Large-Scale Unconstrained Problems", 2005.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.block_curvature import BlockCurvature
from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.settings import REMEMBERED
from colonnade.algorithms.linear_models.parts.solving import MOST_SHARE
from colonnade.algorithms.parts.bounds import MOST_TOLD, check_magnitude, largest
from colonnade.models.linear_loss import LinearLoss
from colonnade.state import Remembering, array, array_or_none, arrays, part

Floats = NDArray[np.float64]
_NEWTON_STEPS, _HALVINGS = 10, 20
_LEAST_CURVATURE, _MOST_SHARES = 1e-15, 1e4
"""Points that are nearer to the best one, in units of the objective, are that one but for the rounding of sums, and
larger shares, of all points together, would make the most of it."""
_LEAST_GAIN = 1e-3
"""Of what Newton's method expects: where a step gains less, rounding is all that is left."""


class Points(Remembering):
    """One party's part: the points that it offered, and those that were found between them."""

    MEMORY = (arrays("_points"), array_or_none("_offered"), array_or_none("_residuals"), part("_inverse"))

    def __init__(self, block_party: BlockParty, known: Callable[[], Floats]) -> None:
        self._block, self._known = block_party.block, known
        self._inverse = BlockCurvature(block_party.block, block_party.loss)
        self._fresh = self._inverse.state()
        # The first weights are a point whose products are known, if they are 0.
        self._starts_at_zero = block_party.seat.start is None
        self._residuals: Floats | None = None  # of the last search, of an algorithm that keeps none
        self.forget()

    def forget(self) -> None:
        """The weights are others."""
        zeros = np.zeros((self._inverse.lines, self._block.outputs))
        self._points: list[Floats] = [zeros] if self._starts_at_zero else []
        self._offered: Floats | None = None
        self._residuals = None
        self._inverse.restore(self._fresh)

    def offer(self) -> Floats:
        """The products of every row at the next point, then its products with the points so far, times λ."""
        block, known = self._block, self._known()
        residuals = known if len(known) else self._residuals
        point = self._inverse.weights()
        if residuals is not None and len(point):
            point = point + self._inverse.direction(residuals, self._inverse.gradient(residuals, point))
        self._offered = point
        told = np.zeros((block.rows + REMEMBERED, block.outputs))
        told[: block.rows] = block.all_times(*self._inverse.split(point))
        for row, other in enumerate([*self._points, point]):
            told[block.rows + row, 0] = float((self._inverse.penalty * point * other).sum())
        return told

    def check(self, sender: str, shares: Floats) -> None:
        """Refuse shares after which nothing could be computed any more."""
        most = max((largest(one) for one in self._points), default=0.0)
        most = max(most, 0.0 if self._offered is None else largest(self._offered))
        check_magnitude(sender, "a step that moves a weight by a number", float(np.abs(shares).sum()) * most, MOST_TOLD)

    @property
    def count(self) -> int:
        """Of the points that a search is over now."""
        return len(self._points) + (self._offered is not None)

    def take(self, shares: Floats, residuals: Floats) -> None:
        """Become the best weights, and remember them."""
        assert self._offered is not None
        points = [*self._points, self._offered]
        found: Floats = np.tensordot(shares, np.stack(points), 1)
        self._block.set_weights(*self._inverse.split(found))
        self._points = [*points, found][1 - REMEMBERED :]
        self._offered = None
        if not len(self._known()):
            self._residuals = residuals


class JointSearch(Remembering):
    """The label party's part: θ of every row at everybody's points, and the best weights in their span."""

    MEMORY = (arrays("_outputs"), array("_products"))

    def __init__(self, loss: LinearLoss, targets: Floats, weights: Floats | None, starts_at_zero: bool) -> None:
        self._loss, self._targets, self._weights = loss, targets, weights
        self._starts_at_zero = starts_at_zero
        self.forget()

    def forget(self) -> None:
        zeros = np.zeros((len(self._targets), self._loss.outputs))
        self._outputs: list[Floats] = [zeros] if self._starts_at_zero else []
        self._products: Floats = np.zeros((len(self._outputs), len(self._outputs)))  # λ p_j·p_k

    def find(self, told: Floats) -> tuple[Floats, Floats, Floats, float]:
        """The points' shares in the best weights, and there: outputs, residuals and mean loss."""
        rows = len(self._targets)
        self._outputs.append(told[:rows])
        self._products = _bordered(self._products, told[rows : rows + len(self._outputs), 0])
        shares, outputs, residuals, loss = self._best()
        along = self._products @ shares
        self._products = _bordered(self._products, np.append(along, shares @ along))[1 - REMEMBERED :, 1 - REMEMBERED :]
        self._outputs = [*self._outputs, outputs][1 - REMEMBERED :]
        return shares, outputs, residuals, loss

    def _value(self, shares: Floats) -> tuple[float, Floats, Floats, float]:
        """f of the joint weights with these shares, their outputs, residuals and mean loss."""
        outputs = np.tensordot(shares, np.stack(self._outputs), 1)
        residuals, loss = self._loss.residuals_and_mean_loss(outputs, self._targets, self._weights)
        return loss + float(shares @ self._products @ shares) / 2, outputs, residuals, loss

    def _best(self) -> tuple[Floats, Floats, Floats, float]:
        """By Newton's method from the best of the points, along the differences to it."""
        count = len(self._outputs)
        values = [self._value(one)[0] for one in np.eye(count)]
        first = int(np.argmin(values))
        shares = np.eye(count)[first]
        differences = np.delete(np.eye(count), first, axis=0) - shares
        value, outputs, residuals, loss = self._value(shares)
        along = np.tensordot(differences, np.stack(self._outputs), 1)
        for _ in range(_NEWTON_STEPS if count > 1 else 0):
            newton, expected = self._newton(along, differences, shares, residuals, _LEAST_CURVATURE * abs(value))
            for _ in range(_HALVINGS):
                tried = shares + newton @ differences
                if np.abs(tried).sum() <= _MOST_SHARES:
                    found = self._value(tried)
                    if found[0] < value:
                        break
                newton /= 2
            else:
                break
            gained = value - found[0]
            shares, (value, outputs, residuals, loss) = tried, found
            if gained < _LEAST_GAIN * expected:
                break
        return shares, outputs, residuals, loss

    def _newton(
        self, along: Floats, differences: Floats, shares: Floats, residuals: Floats, least: float
    ) -> tuple[Floats, float]:
        """The step along differences of at least so much curvature, and what it gains if f is quadratic there."""
        flat = along.reshape(len(along), -1)
        curved = [self._loss.sure_curvature_times(residuals, one, MOST_SHARE, self._weights) for one in along]
        slope = flat @ residuals.ravel() / len(residuals) + differences @ (self._products @ shares)
        curvature = flat @ np.stack(curved).reshape(len(along), -1).T / len(residuals)
        curvature += differences @ self._products @ differences.T
        far = np.diag(curvature) > least
        newton = np.zeros(len(along))
        if not far.any() or not np.isfinite(curvature).all():
            return newton, 0.0
        curvature, slope = curvature[np.ix_(far, far)], slope[far]
        scale = np.sqrt(np.diag(curvature))  # differences are of very different sizes
        scaled = (curvature + curvature.T) / 2 / np.outer(scale, scale)
        newton[far] = -np.linalg.lstsq(scaled, slope / scale, rcond=1e-10)[0] / scale
        return newton, -float(slope @ newton[far]) / 2


def _bordered(matrix: Floats, last: Floats) -> Floats:
    """A symmetric matrix with one more line and column."""
    found = np.zeros((len(last), len(last)))
    found[:-1, :-1] = matrix
    found[-1, :] = found[:, -1] = last
    return found
