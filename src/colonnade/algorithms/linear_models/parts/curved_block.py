"""A block of a linear model with the curvature that its party has learnt: gradients and quasi-Newton steps as vectors.

The intercept, where the block has one, is the vector's last part. A preconditioned block's curvature is learnt in the
variables of its steps (models/linear_metric.py).
"""

from collections.abc import Callable
from math import ceil

import numpy as np

from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.damped_lbfgs import DampedLbfgs
from colonnade.algorithms.linear_models.parts.smoothness import REVISITS
from colonnade.algorithms.linear_models.parts.solving import MOST_SHARE, Floats, Rows, steps_per_epoch
from colonnade.models.linear_window import Window
from colonnade.state import Remembering, State, array_or_none, custom, part, value

_LONGER, _SHORTER = 1.1, 0.6  # tried: shortening faster than lengthening keeps alike blocks from swinging
_LEAST_OF_A_BATCH = 0.1
_STEPS_A_PAIR, _PAIRS_AN_EPOCH = 10, 10


class CurvedBlock(Remembering):
    """Steps w ← w − γ Hv, learns H from them as `curvature_rows` says, and, if it adapts, how much of Hv a step may be.

    `known` gives ϑ of every row as it was last known, 0 of one never asked for. Only a gradient of reduced variance
    says how good the last step was; plain SGD's would shorten steps for its noise.
    """

    def __init__(self, block_party: BlockParty, adapts: bool, known: Callable[[], Floats]) -> None:
        settings = block_party.seat.settings
        self._block_party = block_party
        self._block, self._loss, self._known = block_party.block, block_party.loss, known
        self._curvature_rows: str = settings.curvature_rows
        # A step that begins as the first-order one has H₀ = 1/L_m of the most curvature of this block, so that H is at
        # most the inverse of what pairs say: γ of a pair along flat directions would be far too long along all others.
        self._sound = block_party.automatic and settings.step == "auto" and self._curvature_rows == "all"
        self._curvature = DampedLbfgs(settings.memory, settings.least_curvature)
        self._before: tuple[Floats, Floats] | None = None  # s and v of the step before
        self._steps = 0
        self._measured = 0  # which of the block's changes of variables it was learnt in
        # A look at all rows: often at first, then after ten steps, or a tenth of an epoch if that is longer.
        self._every = max(_STEPS_A_PAIR, ceil(steps_per_epoch(block_party) / _PAIRS_AN_EPOCH))
        self._moved: Floats | None = None  # Σ s since the last pair of all rows
        self._learns = not self._sound  # or once first-order steps are found to be slow (pace.py)
        self.fall_backs = 0  # how often what was learnt was given up for the first-order step
        self._adapts: bool = adapts and settings.step != "fixed"
        # All parties step at once along directions that know their own block alone. With exact curvature a q-th of each
        # is safe, since q times the block diagonal bounds the whole; how much more is, shows after the step. From a
        # batch's curvature it may have to be less, and less for the chance of a batch's rows.
        self._share = 1 / (block_party.seat.workers * self._chance())
        self._least_share = self._share * (MOST_SHARE if self._curvature_rows == "all" else _LEAST_OF_A_BATCH)
        if settings.step == "fixed":
            self._share = 1.0
        self._begun_with = 0.0  # 0: with a share of Hv
        if self._sound:
            self._begin_as_first_order()

    def _chance(self) -> float:
        """How many times as curved as the block a mini-batch may be along its own rows (smoothness.py); 1 if told."""
        largest = self._block.largest_eigenvalue() if self._adapts and not self._sound else 0.0
        if largest <= 0:
            return 1.0
        of_rows = self._block.longest_rows() / (largest * self._block_party.seat.training.batch_size)
        return max(1 + of_rows, REVISITS * of_rows)

    def _begin_as_first_order(self) -> None:
        """L_m η H₀ = η. H is at most 1/MOST_SHARE times as long as H₀, so such a part of it is the first-order step or
        less, and never less is needed."""
        self._know_most()
        self._share = self._begun_with

    def _know_most(self) -> None:
        self._begun_with = self._block_party.most_curvature()
        self._curvature.most = self._begun_with
        self._least_share = MOST_SHARE * self._begun_with

    def restored(self) -> None:
        if self._sound:
            self._know_most()

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
        """One step per mini-batch along H(v + λw), v = gradient(rows, ϑ_I); the mean loss; NaN without targets."""
        total = 0.0
        for number, at in enumerate(range(0, window.rows.size, window.batch_size)):
            part = slice(at, at + window.batch_size)
            rows, residuals = window.rows[part], window.values[part]
            if window.loss is not None and window.targets is not None:
                outputs, targets = residuals + self._block.products(rows), window.targets[part]
                weights = None if window.weights is None else window.weights[part]
                residuals, loss = window.loss.residuals_and_mean_loss(outputs, targets, weights)
                total += loss * rows.size
            penalty = self._flat(self._block.l2 * self._block.weights(), np.zeros(self._block.outputs))
            self._step(gradient(rows, residuals) + penalty, step_size(number), rows, residuals)
        return total / window.rows.size if window.loss is not None else np.nan

    def _step(self, gradient: Floats, step_size: float, rows: Rows, residuals: Floats) -> None:
        if self._block.times_measured != self._measured or (self._block_party.slow and not self._learns):
            self._begin_anew()
        v = self._flat(*self._block.inward(*self._unflat(gradient)))
        if self._steps == 0:  # the first γ: the curvature along the first gradient
            square = float(v @ v)
            self._curvature.start(float(v @ self._curved(v, rows, residuals)) / square if square else 1.0)
        if self._before is not None:
            s, v_before = self._before
            if self._curvature_rows == "fresh":
                self._curvature.add(s, v - v_before)  # s_{k−1} and ȳ_{k−1} = v_k − v_{k−1}
            if self._adapts:
                self._share = self._adapted(float(v @ s))
        s = -step_size * self._share * self._direction(v)
        self._steps += 1
        self._before = (s, v)
        self._block.move(*self._block.outward(*self._unflat(s)), -1.0)
        if self._curvature_rows == "same":
            self._curvature.add(s, self._curved(s, rows, residuals))
        elif self._curvature_rows == "all" and self._learns:
            self._moved = s if self._moved is None else self._moved + s
            if self._steps <= _STEPS_A_PAIR or self._steps % self._every == 0:
                self._curvature.add(self._moved, self._curved(self._moved, rows, residuals))
                self._moved = None

    def _direction(self, v: Floats) -> Floats:
        """H v; counts where rounding made it no descent, and the gradient took its place."""
        knew = self._curvature.knows
        direction = self._curvature.direction(v)
        self.fall_backs += knew and not self._curvature.knows
        return direction

    def _begin_anew(self) -> None:
        """Other variables, in which what was learnt in the former ones says nothing; or first-order steps are slow."""
        self._measured, self._learns = self._block.times_measured, True
        self._curvature.forget()
        self._before, self._moved, self._steps = None, None, 0
        if self._sound:
            self._begin_as_first_order()

    def jumped(self) -> None:
        """The weights differ from those that the last step led to: it says nothing of them."""
        self._before, self._moved = None, None

    def _adapted(self, slope: float) -> float:
        """The share of a step after one along which the gradient now has this slope: uphill means it was too long."""
        if slope > 0 and self._sound and self._share <= self._least_share:
            self._fall_back()
        share = self._share * (_SHORTER if slope > 0 else _LONGER)
        return min(self._most_share(), max(self._least_share if self._curvature.knows else self._begun_with, share))

    def _fall_back(self) -> None:
        """Uphill, however short the step: what pairs say is wrong. First-order steps, until there are others."""
        self.fall_backs += self._curvature.knows
        self._curvature.forget()
        self._share = self._begun_with

    def _most_share(self) -> float:
        """All of Hv; where it began as the first-order step, what that could be if nobody else moved: the noise of a
        batch stays as it is."""
        party = self._block_party
        # Without delay: the more of it there is, the more would the two differ.
        longer = party.sound_step(late=0, alone=True) / party.sound_step(late=0) if self._begun_with else 1.0
        return (self._begun_with or 1.0) * longer

    def _curved(self, s: Floats, rows: Rows, residuals: Floats) -> Floats:
        """∇²f s: how the gradient of a batch, or of all rows, changes along s, to first order."""
        matrix, vector = self._block.outward(*self._unflat(s))
        if self._curvature_rows == "all":
            along = self._block.all_times(matrix, vector)
            bent = (1 - MOST_SHARE) * self._loss.curvature_times(self._known(), along)
            bent += MOST_SHARE * self._loss.smoothness * along
            if self._block.guard is not None:  # rows that count more in the metric do here, too
                bent *= self._block.guard[:, None]
            curved, curved_b = self._block.full_gradient(bent)
        else:
            along = self._loss.sure_curvature_times(residuals, self._block.times(rows, matrix, vector))
            curved, curved_b = self._block.gradient(rows, along)
        return self._flat(*self._block.inward(curved + self._block.l2 * matrix, curved_b))

    def _flat(self, matrix: Floats, vector: Floats) -> Floats:
        return np.concatenate([matrix.ravel(), vector]) if self._block.has_intercept else matrix.ravel().copy()

    def _unflat(self, flat: Floats) -> tuple[Floats, Floats]:
        size = self._block.columns * self._block.outputs
        matrix = flat[:size].reshape(self._block.columns, self._block.outputs)
        return matrix, flat[size:] if self._block.has_intercept else np.zeros(self._block.outputs)

    def _save_before(self, state: State) -> None:
        if self._before is not None:
            state.put("s", self._before[0])
            state.put("v", self._before[1])

    def _load_before(self, state: State) -> None:
        self._before = (state.take("s"), state.take("v")) if "s" in state.tensors else None

    def _save_learns(self, state: State) -> None:
        state.values["learns"] = [self._learns, self.fall_backs]

    def _load_learns(self, state: State) -> None:
        self._learns, self.fall_backs = state.values.get("learns", (True, 0))

    DERIVED = ("_begun_with", "_least_share")  # of the block's most curvature
    MEMORY = (
        value("_steps", "_share", "_measured"),
        custom("_learns", "fall_backs", save=_save_learns, load=_load_learns),
        custom("_before", save=_save_before, load=_load_before),
        array_or_none("_moved"),
        part("_curvature"),
    )
