"""One party's block of a linear model: its columns, its weights, and the steps that change them.

The model is θ_i = Σ_m w_mᵀ x_{i,m} + b and the objective (1/n) Σ_i loss(θ_i, y_i) + λ/2 ‖w‖² + l1 ‖w‖₁, with b outside
of the norms. With L1 every step ends with its proximal step, the soft threshold, one weight at a time. A block knows no
message and no other party: whoever steps it gives the rows, and for each row either the others' part of θ with the
label, or the residual. A whole window of mini-batches is one call of compiled code, unless the block is preconditioned
(linear_metric.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from colonnade.errors import DataError, SettingsError
from colonnade.models.linear_columns import IN_ORDER, ROWS_AT_ONCE, Chosen, RowNumbers, columns_of
from colonnade.models.linear_metric import Metric
from colonnade.models.linear_rows import RESIDUALS_GIVEN, SAGA, SGD, SVRG, Floats
from colonnade.models.linear_window import Window
from colonnade.models.machine_code import readable
from colonnade.state import Remembering, State, array, custom, included

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Precondition = Literal["auto", "none", "centre", "columns", "block", "curvature"]
_POWER_STEPS = 20
_POWER_MARGIN = 1.05
_GUARD_TURNS, _GUARD_MARGIN = 10, 1.05
_ALIKE = 1.25  # columns whose deviations lie within this factor of 1 are left as they are
_CENTRED = 0.1  # as are those whose mean is below this share of it
_NO_TARGETS = readable((), np.float64)
_LATER = ("scale", "scale_of_intercept", "times_measured", "guard", "most_curvature")  # of "auto", once it knows more
MOST_SCALED_COLUMNS = 4096
"""Of a block that scales its columns by default: with more, mostly sparse, every step would touch all of them."""


def soft(values: Floats, thresholds: Floats) -> Floats:
    """argmin_z (z − value)²/2 + threshold·|z|: towards 0, and not across it."""
    return values - np.clip(values, -thresholds, thresholds)


class LinearBlock(Remembering):
    """Weights over one party's columns, in float64, with an intercept if asked for; all start at 0.

    Columns are a float32 tensor, whose trailing dimensions count as one, or a float32 `csr_array`; they are not
    copied (few dense columns are, for passes over all rows). On sparse columns a step costs what its rows hold,
    whatever the number of columns. Reading (`products`, `weights`, …) never changes what later steps compute.

    `precondition` changes variables as linear_metric.py says, for a loss whose curvature is at most `bound`: steps are
    then w ← w − η RRᵀv and touch all columns. `centred` says that the joint model has an intercept, wherever it is, so
    that columns may be centred: x is then x − μ everywhere below. "centre" does that alone, with R = I; "curvature" is
    "block" until `measure` is told how curved the rows are.

    "auto" is "columns" where they are not alike as they are, and "none" otherwise; a column of variance 1 is left at
    its size, so that blocks with and without a metric take steps of the same length. Sparse columns are scaled by the
    entries that they have, and not centred. Rows with bound · ‖x̃‖² above `most_leverage` then count more than once in
    the metric, until none has more (nearly): a column that few rows have takes shorter steps, all others keep theirs.

    >>> from colonnade.models.linear_loss import LinearLoss
    >>> block = LinearBlock(torch.tensor([[1.0], [3.0]]), torch.zeros(0, 1), outputs=1, l2=0.0, intercept=False)
    >>> rows, loss = np.array([0, 1], np.uint32), LinearLoss("regression")
    >>> block.sgd_steps(Window(rows, 1, np.zeros((2, 1)), np.array([2.0, 6.0]), loss), 0.25)  # (2² + (6 − 3·1)²)/2
    6.5
    >>> block.weights().tolist()  # 1 + 0.25·2·3·3
    [[5.5]]
    """

    def __init__(
        self,
        train: torch.Tensor | csr_array,
        test: torch.Tensor | csr_array,
        outputs: int,
        l2: float,
        intercept: bool,
        precondition: Precondition = "none",
        bound: float = 1.0,
        centred: bool = False,
        most_leverage: float = math.inf,
        l1: float = 0.0,
    ) -> None:
        if outputs < 1:
            raise SettingsError(f"A linear block was asked for {outputs} outputs. Give at least 1.")
        if not (l2 >= 0 and math.isfinite(l2)):
            raise SettingsError(f"The L2 penalty of a linear block is {l2}. Give a number of at least 0.")
        if not (l1 >= 0 and math.isfinite(l1)):
            raise SettingsError(f"The L1 penalty of a linear block is {l1}. Give a number of at least 0.")
        if l1 and precondition in ("block", "curvature"):
            raise SettingsError(
                f'A proximal step goes one column at a time, and precondition = "{precondition}" mixes columns. Take '
                '"columns" or "none" with an L1 penalty.'
            )
        self._columns = columns_of(train, test, outputs, float(l1))
        self.rows, self.test_rows = train.shape[0], test.shape[0]
        self.columns, self.outputs = self._columns.width, outputs
        self.l2, self.l1, self.has_intercept = l2, l1, intercept
        self._b, self._mean_b = np.zeros(outputs), np.zeros(outputs)
        self._bound = bound
        self.metric: Metric | None = None
        self._centre: Floats | None = None  # μ, if there is one
        self.times_measured = 0
        self._most_curvature = 1.0  # in the variables of a matrix R
        self._most_leverage = most_leverage
        self.guard: Floats | None = None  # how much more than once a row counts in the metric, [n]
        self._automatic = precondition == "auto"
        if self._automatic:
            self.metric = self._chosen_metric(centred)
        elif precondition != "none":
            self.metric = self._measured(precondition, centred)
        self._remeasured = precondition == "curvature"

    # Reading

    def products(self, rows: RowNumbers) -> Floats:
        """This block's part of θ for these rows, [rows, c], with the intercept if it is here."""
        return self._columns.products(self._chosen(rows)) + self.constant()

    def test_products(self, first: int, count: int) -> Floats:
        """The same for `count` test rows from `first` on."""
        if first < 0 or count < 0 or first + count > self.test_rows:
            raise DataError(f"{count} test rows from {first} on were asked for, and there are {self.test_rows}.")
        return self._columns.products(Chosen(IN_ORDER, first, count), test=True) + self.constant()

    def weights(self) -> Floats:
        """A copy of w, [d, c]."""
        return self._columns.weights()

    def intercept(self) -> Floats:
        """A copy of b, [c]; zeros if the intercept is not here."""
        return self._b.copy()

    def constant(self) -> Floats:
        """What every product has besides xᵀw, with x as it was given: b − μᵀw, [c]."""
        return self._b.copy() if self._centre is None else self._b - self._centre @ self._columns.weights()

    @property
    def centred(self) -> bool:
        return self._centre is not None

    def penalty(self) -> float:
        """λ/2 ‖w‖² + l1 ‖w‖₁, without the intercept."""
        weights = self._columns.weights().ravel()
        return self.l2 / 2 * float(weights @ weights) + self.l1 * float(np.abs(weights).sum())

    def mean_gradient(self) -> tuple[Floats, Floats]:
        """Copies of ḡ, the mean gradient of SVRG's snapshot or of SAGA's table, for w and b."""
        return self._columns.mean(), self._mean_b.copy()

    def gradient(self, rows: RowNumbers, coefficients: Floats) -> tuple[Floats, Floats]:
        """(1/m) Σ_i coefficient_i x_i over these rows, [d, c], and the mean coefficient; without λw."""
        chosen = self._chosen(rows)
        return self._mean_of(chosen, self._checked_values(coefficients, chosen.number))

    def full_gradient(self, coefficients: Floats) -> tuple[Floats, Floats]:
        """The same over all training rows in order."""
        return self._mean_of(self._all(), self._checked_values(coefficients, self.rows))

    def objective_gradient(self, coefficients: Floats) -> tuple[Floats, Floats]:
        """`full_gradient` with the penalties': 0 at the optimum, and there alone if the objective is convex.

        With L1 it is the gradient mapping (w − soft(w − tg, t·l1))/t, g with λw, each column with its own t, the step
        that it could take alone: for small t the least of all subgradients, and continuous where a weight comes to 0.
        """
        gradient, gradient_b = self.full_gradient(coefficients)
        weights = self._columns.weights()
        gradient = gradient + self.l2 * weights
        if self.l1:
            curvature = self._bound * self.squares(np.ones(self.rows))[: self.columns, None] + self.l2
            t = 1 / np.where(curvature > 0, curvature, 1.0)
            gradient = (weights - soft(weights - t * gradient, t * self.l1)) / t
        return gradient, gradient_b

    def times(self, rows: RowNumbers, vector: Floats, vector_b: Floats) -> Floats:
        """x_iᵀ vector for these rows, [rows, c], plus vector_b if the intercept is here: for curvature products."""
        self._check_pair(vector, vector_b)
        return self._times(self._chosen(rows), vector, vector_b)

    def all_times(self, vector: Floats, vector_b: Floats, out: Floats | None = None) -> Floats:
        """The same for every training row in order; written to `out`, if there is one."""
        self._check_pair(vector, vector_b)
        return self._times(self._all(), vector, vector_b, out)

    def rows_along(self, matrix: Floats) -> Iterator[tuple[Chosen, Floats]]:
        """(x_i − μ)ᵀ matrix of all rows, [rows, k], some of them at a time."""
        for first in range(0, self.rows, ROWS_AT_ONCE):
            chosen = Chosen(IN_ORDER, first, min(ROWS_AT_ONCE, self.rows - first))
            yield chosen, self._columns.times(chosen, matrix, -(self.centre() @ matrix))

    def centre(self) -> Floats:
        """μ, [d]; zeros if columns are as they were given."""
        return np.zeros(self.columns) if self._centre is None else self._centre

    def squares(self, weights: Floats) -> Floats:
        """The diagonal of `gram` over all rows."""
        found = self._columns.squares(readable(weights, np.float64))
        if self._centre is not None:
            sums = self._columns.sums(self._all(), readable(weights[:, None], np.float64))[:, 0]
            found = found - self._centre * (2 * sums - self._centre * weights.sum())
        found = found / max(self.rows, 1)
        return np.append(found, weights.mean()) if self.has_intercept else found

    def gram(self, weights: Floats, every: int = 1) -> Floats:
        """(1/m) Σ_i weight_i x_i x_iᵀ over every k-th row, k = every; the intercept's line is last, if it is here."""
        total = self._gram_with_constant(weights, every)
        if self._centre is not None:
            moved = np.append(-self._centre, 0.0)  # (x, 1) ↦ (x − μ, 1) is I + moved eᵀ
            half = moved[:, None] * (total[-1] + total[-1, -1] / 2 * moved)
            total += half + half.T
        return total if self.has_intercept else np.ascontiguousarray(total[:-1, :-1])

    def longest_rows(self) -> float:
        """R²: how long rows are along the column that has the longest: max_j E‖x‖²x_j² / (E x_j² + λ/bound).

        Of x̃ if preconditioned; the intercept's constant 1 is a column, too. Never more than the longest row.
        """
        if self.rows == 0:
            return 0.0
        norms = self._row_squares()
        found = norms.mean() if self.has_intercept else 0.0
        if self.columns:
            along, of_columns = self._scaled_squares(norms)
            ratios = along / np.maximum(of_columns, np.finfo(float).tiny)
            found = max(found, float(ratios[along > 0].max(initial=0.0)))
        return float(min(found, norms.max()))

    def largest_eigenvalue(self) -> float:
        """λ_max(XᵀX/n) by the power method on this block alone, with a margin for what the method still misses.

        Never more than the trace, which is a bound whatever the method found. Preconditioned, it is that of X̃, with the
        penalty: λ_max(Rᵀ(XᵀX/n + λ/bound)R), which for a matrix R is 1/bound by its making.
        """
        if self.rows == 0 or self.columns == 0:
            return float(self.has_intercept) * self._scale_of_constant() ** 2
        if self.metric is not None and self.metric.is_matrix:
            return self._most_curvature / self._bound
        trace = float(self._row_squares().mean())
        penalty = 0.0
        if self.metric is not None:
            penalty = self.l2 / self._bound
            trace += penalty * float(np.square(self.metric.scale).sum())
        vector = np.random.default_rng(0).standard_normal((self.columns, 1))
        vector_b = np.full(1, float(self.has_intercept))
        found = 0.0
        for _ in range(_POWER_STEPS):
            length = math.sqrt(np.square(vector).sum() + np.square(vector_b).sum())
            if length == 0.0:
                break
            outward, outward_b = self.outward(vector / length, vector_b / length)
            products = self._times(self._all(), outward, outward_b)
            found = float(np.square(products).sum()) / self.rows + penalty * float(np.square(outward).sum())
            vector, vector_b = self._mean_of(self._all(), readable(products, np.float64))
            vector, vector_b = self.inward(vector + penalty * outward, vector_b * self.has_intercept)
        return min(_POWER_MARGIN * found, trace)

    def inward(self, gradient: Floats, gradient_b: Floats) -> tuple[Floats, Floats]:
        """The gradient of the variables in which steps are made: Rᵀg; g itself if the block is not preconditioned."""
        if self.metric is None:
            return gradient, gradient_b
        return self.metric.inward(gradient), self.metric.scale_b * gradient_b

    def outward(self, direction: Floats, direction_b: Floats) -> tuple[Floats, Floats]:
        """What a direction of those variables is for the weights: R u."""
        if self.metric is None:
            return direction, direction_b
        return self.metric.outward(direction), self.metric.scale_b * direction_b

    def back(self, change: Floats, change_b: Floats) -> tuple[Floats, Floats]:
        """What a change of the weights is in those variables: R⁻¹w."""
        if self.metric is None:
            return change, change_b
        return self.metric.back(change), change_b / self.metric.scale_b

    # Changing

    def measure(self, curvatures: Floats) -> None:
        """R anew, output by output, for rows whose loss is curved by so much, [n, c]."""
        assert self.metric is not None
        curvatures = self._checked_values(curvatures, self.rows)
        if self.rows == 0:
            return
        held = slice(0, self.columns)
        grams = (self.gram(np.ascontiguousarray(one))[held, held] for one in curvatures.T)
        self.metric = self.metric.of_curvature(map(np.ascontiguousarray, grams), curvatures.mean(0), self.l2)
        self.times_measured += 1

    def adopt(self, metric: Metric, guard: Floats, most_curvature: float) -> None:
        """Step in other variables from now on, in which the block is curved by so much: of "auto", later."""
        self.metric, self.guard = metric, guard if (guard > 1).any() else None
        self._most_curvature = most_curvature
        self.times_measured += 1

    def set_weights(self, weights: Floats, intercept: Floats) -> None:
        self._check_pair(weights, intercept)
        self._columns.set_weights(weights)
        if self.has_intercept:
            self._b[:] = intercept

    def set_mean_gradient(self, mean: Floats, mean_b: Floats) -> None:
        """Sets ḡ for the steps to come: at an SVRG snapshot, or when SAGA's table is filled."""
        self._check_pair(mean, mean_b)
        self._columns.set_mean(mean)
        self._mean_b[:] = mean_b

    def move(self, direction: Floats, direction_b: Floats, step: float) -> None:
        """w −= step · direction, and b likewise if it is here."""
        self._check_pair(direction, direction_b)
        self._columns.move(direction, step)
        if self.has_intercept:
            self._b -= step * direction_b

    def sgd_steps(self, window: Window, step_sizes: float | Floats) -> float:
        """v = (1/B) Σ_i ϑ_i x_i + λw; one step size for all mini-batches, or one for each.

        All steps return the window's mean loss, each row's at the moment of its use, or NaN without targets.
        """
        return self._steps(SGD, window, step_sizes, np.empty((0, self.outputs)))

    def svrg_steps(self, window: Window, step_size: float, snapshot: Floats) -> float:
        """v = (1/B) Σ_i (ϑ_i − snapshot_i) x_i + ḡ + λw, with the snapshot's residuals of all n rows, [n, c]."""
        self._check_table(snapshot)
        return self._steps(SVRG, window, step_size, snapshot)

    def saga_steps(self, window: Window, step_size: float, table: Floats) -> float:
        """v = (1/B) Σ_i (ϑ_i − table_i) x_i + ḡ + λw; then table_i ← ϑ_i in place, and ḡ follows the table."""
        self._check_table(table)
        return self._steps(SAGA, window, step_size, table)

    # Checkpoints: all that later steps depend on, to the bit. The data and a table are their owner's to keep.

    def _save_measured(self, state: State) -> None:
        if self._remeasured or self.times_measured:
            assert self.metric is not None and isinstance(self.metric.scale_b, np.ndarray)
            state.put("scale", self.metric.scale)
            state.put("scale_of_intercept", self.metric.scale_b)
            state.put("times_measured", np.full(1, float(self.times_measured)))
            if self._automatic:
                state.put("guard", np.zeros(0) if self.guard is None else self.guard)
                state.put("most_curvature", np.full(1, self._most_curvature))

    def _load_measured(self, state: State) -> None:
        if "scale" in state.tensors:
            self.metric = Metric(self.centre(), state.take("scale"), state.take("scale_of_intercept"))
            self.times_measured = int(state.take("times_measured")[0])
            if self._automatic:
                guard = state.take("guard")
                self.guard = guard if guard.size else None
                self._most_curvature = float(state.take("most_curvature")[0])

    MEMORY = (
        included("_columns"),
        array("_b", "intercept", in_place=True),
        array("_mean_b", "mean_gradient_of_intercept", in_place=True),
        custom("metric", "times_measured", "guard", "_most_curvature", save=_save_measured, load=_load_measured),
    )

    def restore(self, state: State) -> None:
        later = _LATER if self._automatic else ()
        given = {name: tuple(tensor.shape) for name, tensor in state.tensors.items() if name not in later}
        wanted = {name: tuple(tensor.shape) for name, tensor in self.state().tensors.items() if name not in later}
        if given != wanted:
            raise DataError(
                f"A linear block was restored from arrays of the shapes {given}, and its own are {wanted}. Restore the "
                "state of a block with the same columns, outputs and storage."
            )
        super().restore(state)

    # Inside

    def _scale_of_constant(self) -> float:
        """Of the intercept's column, as it was at first."""
        return 1.0 if self.metric is None else float(np.max(self.metric.scale_b))

    def _steps(self, rule: int, window: Window, step_sizes: float | Floats, table: Floats) -> float:
        rows = self._chosen(window.rows).rows
        values = self._checked_values(window.values, len(rows))
        steps = readable(step_sizes, np.float64).reshape(-1)
        batches = -(-len(rows) // window.batch_size)
        if len(steps) != 1 and len(steps) != batches:
            raise SettingsError(f"{len(steps)} step sizes came for {batches} mini-batches. Give one, or one for each.")
        loss, scale, targets = RESIDUALS_GIVEN, 1.0, _NO_TARGETS
        if window.loss is not None and window.targets is not None:
            if window.loss.outputs != self.outputs:
                raise SettingsError(
                    f"A loss of {window.loss.outputs} outputs was given to a block of {self.outputs}. They must agree."
                )
            loss, scale = window.loss.code, window.loss.scale
            targets = window.loss.checked_targets(window.targets, len(rows))
        if len(rows) == 0:
            return math.nan
        if self.metric is not None:
            return self._scaled_steps(rule, window, values, steps, table)
        if window.weights is not None:
            return self._weighted_steps(rule, window, steps, table)
        intercept = (self.has_intercept, self._b, self._mean_b)
        batch_size = min(window.batch_size, len(rows))
        return self._columns.steps(
            (*intercept, rows, batch_size, values, targets, loss, scale, rule, steps, float(self.l2), table), rule
        )

    def _scaled_steps(self, rule: int, window: Window, values: Floats, steps: Floats, table: Floats) -> float:
        """The same steps with RRᵀ before them, one mini-batch after the other in NumPy."""
        total, rows, size = 0.0, window.rows, window.batch_size
        for number, at in enumerate(range(0, len(rows), size)):
            part = slice(at, at + size)
            batch, residuals = rows[part], values[part]
            if window.loss is not None and window.targets is not None:
                outputs = residuals + self.products(batch)
                weights = None if window.weights is None else window.weights[part]
                residuals, loss = window.loss.residuals_and_mean_loss(outputs, window.targets[part], weights)
                total += loss * len(batch)
            change, change_b = self.gradient(batch, residuals if rule == SGD else residuals - table[batch])
            v, v_b = change + self.l2 * self._columns.weights(), change_b
            if rule != SGD:
                mean, mean_b = self.mean_gradient()
                v, v_b = v + mean, v_b + mean_b
                if rule == SAGA:
                    table[batch] = residuals
                    share = len(batch) / self.rows
                    self.set_mean_gradient(mean + share * change, mean_b + share * change_b)
            step = float(steps[min(number, len(steps) - 1)])
            self.move(*self.outward(*self.inward(v, v_b)), step)
            if self.l1:
                assert self.metric is not None
                threshold = step * self.l1 * np.square(self.metric.scale)[:, None]
                self._columns.set_weights(soft(self._columns.weights(), threshold))
        return total / len(rows) if window.loss is not None else math.nan

    def _weighted_steps(self, rule: int, window: Window, steps: Floats, table: Floats) -> float:
        """The same steps, one mini-batch after the other: compiled code takes residuals, but no weights."""
        total = 0.0
        for number, at in enumerate(range(0, len(window.rows), window.batch_size)):
            batch = window.part(at)
            assert batch.loss is not None and batch.targets is not None
            outputs = batch.values + self.products(batch.rows)
            residuals, loss = batch.loss.residuals_and_mean_loss(outputs, batch.targets, batch.weights)
            total += loss * len(batch.rows)
            given = Window(batch.rows, window.batch_size, residuals)
            self._steps(rule, given, steps[min(number, len(steps) - 1)], table)
        return total / len(window.rows)

    def _measured(self, precondition: Precondition, centred: bool) -> Metric:
        """μ and R of these columns; R is 1 where there is no row to measure."""
        centre = self._set_centre() if centred and self.rows else np.zeros(self.columns)
        if precondition == "centre":
            return Metric(centre, np.ones(self.columns), 1.0)
        everywhere = np.ones(self.rows)
        if precondition == "columns":
            return Metric.of_columns(centre, self.squares(everywhere)[: self.columns], self._bound, self.l2)
        Metric.check_width(self.columns, self.outputs if precondition == "curvature" else 1)
        covariance = self.gram(everywhere)[: self.columns, : self.columns]
        metric = Metric.of_block(centre, np.ascontiguousarray(covariance), self._bound, self.l2)
        return metric.outputs_apart(self.outputs) if precondition == "curvature" else metric

    def _set_centre(self) -> Floats:
        ones = readable(np.ones((self.rows, 1)), np.float64)
        self._centre = self._columns.sums(self._all(), ones)[:, 0] / self.rows
        return self._centre

    def _chosen_metric(self, centred: bool) -> Metric | None:
        """What "auto" is for these columns."""
        if not self.rows or not 0 < self.columns <= MOST_SCALED_COLUMNS:
            return None
        entries = self._columns.entries()
        shares = np.ones(self.columns) if entries is None else np.maximum(entries, 1) / self.rows
        centre = self._set_centre() if centred and entries is None else np.zeros(self.columns)
        weights = np.ones(self.rows)
        for _ in range(_GUARD_TURNS):
            squares = self.squares(weights)[: self.columns] / shares
            self.metric = Metric.of_columns(centre, squares, 1.0, self.l2 / self._bound)
            over = self._bound * self._scaled_norms() / self._most_leverage
            if over.max() <= _GUARD_MARGIN:
                break
            weights *= np.maximum(over, 1.0)
            self.guard = weights
        deviations = np.sqrt(squares[squares > 0])
        alike = (deviations <= _ALIKE).all() and (deviations >= 1 / _ALIKE).all()
        if self.guard is None and alike and (np.abs(centre) <= _CENTRED).all():
            self._centre = None
            return None
        return self.metric

    def _gram_with_constant(self, weights: Floats, every: int) -> Floats:
        total = np.zeros((self.columns + 1, self.columns + 1))
        self._columns.gram(readable(weights, np.float64), every, total)
        return total / len(range(0, max(self.rows, 1), every))

    def _row_squares(self) -> Floats:
        constant = self.has_intercept * self._scale_of_constant() ** 2
        return (self._columns.squared_norms() if self.metric is None else self._scaled_norms()) + constant

    def _scaled_squares(self, weights: Floats) -> tuple[Floats, Floats]:
        """Σ_i weight_i x̃_ij²/n of every column, and E x̃_j² with the penalty λ/bound."""
        if self.metric is None or not self.metric.is_matrix:
            factors = 1.0 if self.metric is None else np.square(self.metric.scale)
            weighted, plain = (self.squares(one)[: self.columns] for one in (weights, np.ones(self.rows)))
            return factors * weighted, factors * (plain + self.l2 / self._bound)
        weighted = np.zeros(self.columns)
        for chosen, scaled in self._scaled_rows():
            weighted += weights[chosen.first : chosen.first + chosen.number] @ np.square(scaled)
        return weighted / self.rows, np.full(self.columns, 1 / self._bound)

    def _scaled_rows(self) -> Iterator[tuple[Chosen, Floats]]:
        """x̃ of all rows where R is a matrix, some of them at a time."""
        assert self.metric is not None
        return self.rows_along(self.metric.matrix(0))  # told before anything is measured: all are the same

    def _scaled_norms(self) -> Floats:
        """‖x̃_i‖² of every row."""
        assert self.metric is not None
        centre = self.metric.centre
        if not self.metric.is_matrix:
            squares = np.square(self.metric.scale)
            cross = self._columns.times(self._all(), (squares * centre)[:, None], np.zeros(1))[:, 0]
            found: Floats = self._columns.squared_norms(squares) - 2 * cross + float(squares @ np.square(centre))
            return np.maximum(found, 0.0)
        norms = [np.square(scaled).sum(1) for _, scaled in self._scaled_rows()]
        return np.concatenate(norms) if norms else np.zeros(0)

    def _times(self, chosen: Chosen, vector: Floats, vector_b: Floats, out: Floats | None = None) -> Floats:
        constant = vector_b if self.has_intercept else np.zeros(vector.shape[1])
        if self._centre is not None:
            constant = constant - self._centre @ vector
        return self._columns.times(chosen, vector, constant, out)

    def _chosen(self, rows: RowNumbers) -> Chosen:
        chosen: RowNumbers = readable(rows, np.uint32)
        # Compiled code does not check: a row that does not exist would read other memory.
        if len(chosen) and chosen.max() >= self.rows:
            raise DataError(f"Row {chosen.max()} was asked for, and this block has {self.rows} rows, numbered from 0.")
        return Chosen(chosen, 0, len(chosen))

    def _all(self) -> Chosen:
        return Chosen(IN_ORDER, 0, self.rows)

    def _mean_of(self, chosen: Chosen, coefficients: Floats) -> tuple[Floats, Floats]:
        number = max(chosen.number, 1)
        sums, total = self._columns.sums(chosen, coefficients), coefficients.sum(0)
        if self._centre is not None:
            sums -= self._centre[:, None] * total
        return sums / number, total / number

    def _checked_values(self, values: Floats, number: int) -> Floats:
        values = readable(values, np.float64)
        if values.shape != (number, self.outputs):
            raise DataError(
                f"{number} rows came with values of shape {values.shape}. Give an array of {self.outputs} for each row."
            )
        return values

    def _check_table(self, table: Floats) -> None:
        wanted = (self.rows, self.outputs)
        kept = table.flags.c_contiguous and table.flags.writeable
        if table.dtype != np.float64 or table.shape != wanted or not kept:
            raise SettingsError(
                f"A table of residuals has shape {table.shape} and type {table.dtype}. Give a writeable, contiguous "
                f"float64 array of shape {wanted}."
            )

    def _check_pair(self, matrix: Floats, intercept: Floats) -> None:
        if matrix.shape != (self.columns, self.outputs) or intercept.shape != (self.outputs,):
            raise DataError(
                f"A linear block of {self.columns} columns and {self.outputs} outputs was given {matrix.shape} and "
                f"{intercept.shape}. Give shapes ({self.columns}, {self.outputs}) and ({self.outputs},)."
            )
