"""A block of a linear model with the curvature that its party has learnt: gradients and quasi-Newton steps as vectors.

The intercept, where the block has one, is the vector's last part.
"""

from collections.abc import Callable

import numpy as np
import torch

from colonnade.algorithms.parts.damped_lbfgs import DampedLbfgs
from colonnade.algorithms.parts.member import Member
from colonnade.algorithms.parts.solving import Floats, Rows
from colonnade.models.linear import Window
from colonnade.party import State

_LONGER, _SHORTER = 1.1, 0.6  # tried: shortening faster than lengthening keeps alike blocks from swinging
_LEAST = 0.1


class CurvedBlock:
    """Steps w ← w − γ Hv, learns H from them as `curvature_rows` says, and, if it adapts, how much of Hv a step may be.

    Only a gradient of reduced variance says how good the last step was; plain SGD's would shorten steps for its noise.
    """

    def __init__(self, member: Member, adapts: bool) -> None:
        settings = member.seat.settings
        self._block, self._loss = member.block, member.loss
        self._same_rows: bool = settings.curvature_rows == "same"
        self._curvature = DampedLbfgs(settings.memory, settings.least_curvature)
        self._started = False
        self._before: tuple[Floats, Floats] | None = None  # s and v of the step before
        # All parties step at once along directions that know their own block alone. With exact curvature a q-th of each
        # is safe, since q times the block diagonal bounds the whole; how much more or less is, shows after the step.
        self._share = 1 / member.seat.workers
        self._least_share = _LEAST / member.seat.workers
        self._adapts: bool = adapts and settings.step != "fixed"
        if settings.step == "fixed":
            self._share = 1.0

    def gradient(self, rows: Rows, coefficients: Floats) -> Floats:
        """(1/B) Σ_i coefficient_i x_i."""
        return self._flat(*self._block.gradient(rows, coefficients))

    def mean_gradient(self) -> Floats:
        return self._flat(*self._block.mean_gradient())

    def set_mean_gradient(self, flat: Floats) -> None:
        self._block.set_mean_gradient(*self._unflat(flat))

    def steps(
        self, window: Window, gradient: Callable[[Rows, Floats], Floats], step_size: Callable[[int], float]
    ) -> float:
        """One step a mini-batch along H(v + λw), v = gradient(rows, ϑ_I); gives the mean loss, NaN without targets."""
        total = 0.0
        for number, at in enumerate(range(0, window.rows.size, window.batch_size)):
            part = slice(at, at + window.batch_size)
            rows, residuals = window.rows[part], window.values[part]
            if window.loss is not None and window.targets is not None:
                outputs, targets = residuals + self._block.products(rows), window.targets[part]
                residuals = window.loss.residuals(outputs, targets)
                total += window.loss.mean_loss(outputs, targets) * rows.size
            penalty = self._flat(self._block.l2 * self._block.weights(), np.zeros(self._block.outputs))
            self._step(gradient(rows, residuals) + penalty, step_size(number), rows, residuals)
        return total / window.rows.size if window.loss is not None else np.nan

    def _step(self, v: Floats, step_size: float, rows: Rows, residuals: Floats) -> None:
        if not self._started:  # the first γ: the curvature along the first gradient
            self._started = True
            square = float(v @ v)
            self._curvature.start(float(v @ self._curved(v, rows, residuals)) / square if square else 1.0)
        if self._before is not None:
            s, v_before = self._before
            if not self._same_rows:
                self._curvature.add(s, v - v_before)  # s_{k−1} and ȳ_{k−1} = v_k − v_{k−1}
            if self._adapts:
                self._share = self._adapted(float(v @ s))
        s = -step_size * self._share * self._curvature.direction(v)
        if self._same_rows:
            self._curvature.add(s, self._curved(s, rows, residuals))
        self._before = (s, v)
        self._block.move(*self._unflat(s), -1.0)

    def _adapted(self, slope: float) -> float:
        """The share of a step after one along which the gradient now has this slope: uphill means it was too long."""
        share = self._share * (_SHORTER if slope > 0 else _LONGER)
        return min(1.0, max(self._least_share, share))

    def _curved(self, s: Floats, rows: Rows, residuals: Floats) -> Floats:
        """∇²f_I s: how the gradient of these rows changes along s, to first order."""
        matrix, vector = self._unflat(s)
        along = self._loss.curvature_times(residuals, self._block.times(rows, matrix, vector))
        return self.gradient(rows, along) + self._flat(self._block.l2 * matrix, np.zeros_like(vector))

    def _flat(self, matrix: Floats, vector: Floats) -> Floats:
        return np.concatenate([matrix.ravel(), vector]) if self._block.has_intercept else matrix.ravel().copy()

    def _unflat(self, flat: Floats) -> tuple[Floats, Floats]:
        size = self._block.columns * self._block.outputs
        matrix = flat[:size].reshape(self._block.columns, self._block.outputs)
        return matrix, flat[size:] if self._block.has_intercept else np.zeros(self._block.outputs)

    def state(self) -> State:
        state = State(values={"started": self._started, "share": self._share})
        if self._before is not None:
            state.tensors["s"], state.tensors["v"] = (torch.from_numpy(part.copy()) for part in self._before)
        state.add("curvature", self._curvature.state())
        return state

    def restore(self, state: State) -> None:
        self._started, self._share = state.values["started"], state.values["share"]
        self._before = None
        if "s" in state.tensors:
            self._before = (state.tensors["s"].numpy().copy(), state.tensors["v"].numpy().copy())
        self._curvature.restore(state.part("curvature"))
