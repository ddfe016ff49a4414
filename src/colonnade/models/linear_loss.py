"""The losses of linear models in NumPy arrays: residuals, values, and curvature from the residuals alone.

The residual of row i is ϑ_i = ∂loss/∂θ_i, a number for each of the c outputs. Tasks and conventions are those of
algorithms/parts/losses.py, in float64, and finite at any finite output. A task has its own loss ("auto"), and others by
name, with z = θ for y = 1 and −θ for y = 0, r = θ − y and a scale s:

    smoothed-hinge   0 for z ≥ 1, (1 − z)²/2 between, 1/2 − z for z ≤ 0
    sigmoid          1/(1 + eᶻ)                                            not convex
    huber            r² for |r| ≤ s, else s(2|r| − s)
    robust           s² log(1 + (r/s)²/2)                                  not convex

Rows may weigh more or less: then the loss of row i, and with it ϑ_i, is multiplied by weight_i. Who has no labels does
not know the weights, but the largest of them, v. As v · loss''(ϑ_i/v) is never below weight_i · loss''(ϑ_i/weight_i),
whatever the loss, it takes that.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from colonnade.errors import DataError, SettingsError, unknown_name
from colonnade.models import linear_rows, logistic_rows, row_curvature
from colonnade.models.linear_rows import (
    BINARY,
    HUBER,
    MULTICLASS,
    REGRESSION,
    ROBUST,
    SIGMOID,
    SMOOTHED_HINGE,
    Floats,
)
from colonnade.models.machine_code import readable

LossName = Literal["auto", "smoothed-hinge", "sigmoid", "huber", "robust"]

MANY_ROWS = 256
"""Of so many or more logistic rows NumPy's exponentials and logarithms, several at a time, are quicker than a compiled
loop over them (measured: 8 times with 20,000 rows)."""


class _Form(NamedTuple):
    """One loss: its number in compiled code, and what it is at most."""

    code: int
    smoothness: float  # sup of |loss''|, as an operator norm
    residual: float  # sup of |ϑ|, in units of the scale
    is_convex: bool = True


# σ(1 − σ) ≤ 1/4; the eigenvalues of diag(p) − ppᵀ are at most 1/2, reached at p = (1/2, 1/2, 0, …); p(1 − p)(1 − 2p) is
# largest at p = (1 − 1/√3)/2; r/(1 + r²/2) at r = √2.
_OF_TASK = {
    "binary": _Form(BINARY, 0.25, 1.0),
    "regression": _Form(REGRESSION, 2.0, math.inf),
    "multiclass": _Form(MULTICLASS, 0.5, 1.0),
}
_BY_NAME = {
    "binary": {
        "smoothed-hinge": _Form(SMOOTHED_HINGE, 1.0, 1.0),
        "sigmoid": _Form(SIGMOID, 1 / (6 * math.sqrt(3)), 0.25, is_convex=False),
    },
    "regression": {
        "huber": _Form(HUBER, 2.0, 2.0),
        "robust": _Form(ROBUST, 1.0, math.sqrt(0.5), is_convex=False),
    },
    "multiclass": {},
}
_SCALED = ("huber", "robust")
_WORDS = {"binary": "two classes", "regression": "a regression", "multiclass": "more than two classes"}


def check_scale(name: str, scale: float) -> None:
    """Refuse a scale that cannot be, or of a loss that has none."""
    if not (math.isfinite(scale) and scale > 0):
        raise SettingsError(f"algorithm.loss_scale is {scale}; it must be above 0.")
    if scale != 1.0 and name not in _SCALED:
        raise SettingsError(
            f"algorithm.loss_scale is {scale}, and algorithm.loss = {name!r} has no scale. Leave it out, or choose "
            f"{' or '.join(map(repr, _SCALED))} in a regression."
        )


@dataclass(frozen=True)
class LinearLoss:
    """The loss of one task over rows of `outputs` numbers.

    >>> loss = LinearLoss("regression")
    >>> loss.residuals(np.array([[3.0], [1.0]]), np.array([1.0, 1.0])).tolist()  # 2(θ − y)
    [[4.0], [0.0]]
    >>> loss.mean_loss(np.array([[3.0], [1.0]]), np.array([1.0, 1.0]))  # (2² + 0²)/2
    2.0
    >>> LinearLoss("regression", name="huber", scale=0.5).residuals(np.array([[3.0]]), np.array([1.0])).tolist()
    [[1.0]]
    """

    task: str
    outputs: int = 1  # c
    name: LossName = "auto"
    scale: float = 1.0  # s
    largest_weight: float = 1.0  # v: of any row

    def __post_init__(self) -> None:
        if self.task not in _OF_TASK:
            raise unknown_name("task", self.task, _OF_TASK)
        if self.name != "auto" and self.name not in _BY_NAME[self.task]:
            self._refuse_name()
        check_scale(self.name, self.scale)
        if self.task == "multiclass" and self.outputs < 2:
            raise SettingsError(f"A multiclass loss needs at least 2 outputs, one a class, and got {self.outputs}.")
        if self.task != "multiclass" and self.outputs != 1:
            raise SettingsError(f"The {self.task} loss has one output, and {self.outputs} were asked for. Give 1.")

    def _refuse_name(self) -> None:
        fits = [task for task, names in _BY_NAME.items() if self.name in names]
        if not fits:
            raise unknown_name("value of algorithm.loss", self.name, ("auto", *_BY_NAME["binary"], *_SCALED))
        others = ["auto", *_BY_NAME[self.task]]
        raise SettingsError(
            f"algorithm.loss = {self.name!r} is a loss for {_WORDS[fits[0]]}, and the labels here are those of "
            f"{_WORDS[self.task]}. Choose {' or '.join(map(repr, others))}."
        )

    @property
    def _form(self) -> _Form:
        return _OF_TASK[self.task] if self.name == "auto" else _BY_NAME[self.task][self.name]

    @property
    def code(self) -> int:
        """The loss's number in compiled code."""
        return self._form.code

    @property
    def smoothness(self) -> float:
        """The largest curvature that the loss of a row has anywhere: sup of ∂²loss/∂θ², as an operator norm."""
        return self._form.smoothness * self.largest_weight

    @property
    def most_residual(self) -> float:
        """The largest magnitude that an entry of a residual can have; infinite if there is none."""
        return self._form.residual * self.scale * self.largest_weight

    @property
    def is_convex(self) -> bool:
        return self._form.is_convex

    @property
    def may_be_flat(self) -> bool:
        """Whether every row may be without curvature where the loss is not at its least, as at the first weights."""
        return self.name != "auto"

    @property
    def has_least_value(self) -> bool:
        """Whether outputs need not grow without end to bring a row's loss to its least."""
        return self.task == "regression" or self.name == "smoothed-hinge"

    def residuals(self, outputs: Floats, targets: Floats, weights: Floats | None = None) -> Floats:
        """ϑ_i = ∂loss(θ_i, y_i)/∂θ_i, [rows, c], times the row's weight."""
        return self.residuals_and_mean_loss(outputs, targets, weights)[0]

    def mean_loss(self, outputs: Floats, targets: Floats, weights: Floats | None = None) -> float:
        """(1/m) Σ_i weight_i loss(θ_i, y_i); NaN if there is no row."""
        return self.residuals_and_mean_loss(outputs, targets, weights)[1]

    def residuals_and_mean_loss(
        self, outputs: Floats, targets: Floats, weights: Floats | None = None
    ) -> tuple[Floats, float]:
        """Both for the price of one; without weights, all are 1."""
        outputs, targets = self._checked(outputs), self.checked_targets(targets, len(outputs))
        if self.code == BINARY and len(outputs) >= MANY_ROWS:
            residuals, total = _logistic(outputs, targets)
        else:
            residuals = np.empty(outputs.shape)
            total = linear_rows.fill_residuals(self.code, self.scale, outputs, targets, residuals)
        if weights is not None:
            residuals *= weights[:, None]
            total = float(weights @ self._row_losses(outputs, targets))
        return residuals, total / len(outputs) if len(outputs) else math.nan

    def _row_losses(self, outputs: Floats, targets: Floats) -> Floats:
        """The loss of each row, [rows]: compiled code gives their sum alone."""
        if self.task == "multiclass":
            largest = outputs.max(1)
            total = np.exp(outputs - largest[:, None]).sum(1)
            chosen = outputs[np.arange(len(outputs)), targets.astype(np.intp)]
            return np.asarray(np.log(total) + (largest - chosen))
        if self.task == "regression":
            r = np.abs(outputs[:, 0] - targets) / self.scale
            if self.name == "robust":
                # log(1 + r²/2) without the square of a huge number
                return self.scale**2 * (2 * np.log(np.hypot(1.0, r / math.sqrt(2))))
            beyond = np.maximum(r - 1.0, 0.0) if self.name == "huber" else 0.0
            return np.asarray(self.scale**2 * ((r - beyond) * (r + beyond)))
        z = np.where(targets > 0.5, outputs[:, 0], -outputs[:, 0])
        if self.name == "smoothed-hinge":
            return np.asarray(np.square(np.clip(1.0 - z, 0.0, 1.0)) / 2 + np.maximum(-z, 0.0))
        return np.exp(-np.logaddexp(0.0, z)) if self.name == "sigmoid" else np.logaddexp(0.0, -z)

    def curvature_times(self, residuals: Floats, direction: Floats, weights: Floats | None = None) -> Floats:
        """∂²loss/∂θ_i² · direction_i for each row, from the residuals alone: a party without labels can form it.

        Without weights, each row's is taken to be the largest: the product is then one of at least so much curvature.

        The logistic residual is σ(θ) or −σ(−θ), so |ϑ|(1 − |ϑ|) is σ(1 − σ) either way. Of a softmax residual
        p − e_y only the label's entry is negative, which gives p back. Where a loss is not convex a residual belongs to
        two outputs: what is taken is never negative, and never below |loss''| at either. Of the sigmoid loss,
        |ϑ| = p(1 − p) and |ϑ|√(1 − 4|ϑ|) = |p(1 − p)(1 − 2p)|. Of the robust one, with u = 1/(1 + (r/s)²/2), loss'' is
        u(2u − 1) and (ϑ/s)² = 2u(1 − u); the larger u is taken, of the row that is less of an outlier.
        """
        residuals, direction = self._checked(residuals), self._checked(direction)
        if residuals.shape != direction.shape:
            raise DataError(
                f"A curvature product was asked for {len(residuals)} residuals and {len(direction)} rows of "
                "direction. Give one row of direction for each residual."
            )
        products = np.empty(direction.shape)
        if weights is not None:  # a row without any has residual 0
            residuals = self._checked(residuals / np.where(weights > 0, weights, 1.0)[:, None])
        elif self.largest_weight != 1.0:
            residuals = self._checked(residuals / self.largest_weight)
        if self.code == BINARY:
            row_curvature.fill_logistic_curvature(residuals[:, 0], direction[:, 0], products[:, 0])
        else:
            row_curvature.fill_curvature(self.code, self.scale, residuals, direction, products)
        if weights is not None:
            products *= weights[:, None]
        elif self.largest_weight != 1.0:
            products *= self.largest_weight
        return products

    def curvatures(self, residuals: Floats) -> Floats:
        """∂²loss/∂θ_ik² of every row and output, [rows, c], from the residuals alone.

        Of a softmax, |ϑ_k| is p_k, or 1 − p_k for the label's: p(1 − p) either way.
        """
        residuals = self._checked(residuals)
        if self.task != "multiclass":
            return self.curvature_times(residuals, np.ones(residuals.shape))
        size = np.abs(residuals)
        return size * (1.0 - size / self.largest_weight)

    def sure_curvature_times(
        self, residuals: Floats, direction: Floats, share: float = 1.0, weights: Floats | None = None
    ) -> Floats:
        """The same as `curvature_times`; where rows without any would mislead, a share of it is the most there is."""
        bent = self.curvature_times(residuals, direction, weights)
        most = self.smoothness if weights is None else self._form.smoothness * weights[:, None]
        return (1 - share) * bent + share * most * direction if self.may_be_flat else bent

    @property
    def most_curvature_of_an_output(self) -> float:
        """The most that any entry of `curvatures` can be."""
        most = 0.25 * self.largest_weight  # p(1 − p) ≤ 1/4
        return most if self.task == "multiclass" else self.smoothness

    def constant_loss(self, targets: Floats, weights: Floats | None = None) -> float:
        """About the least mean loss of one output for all rows, of a loss by name; never less."""
        if self.task == "regression":
            constants = np.append(np.quantile(targets, np.linspace(0, 1, 41)), targets.mean())
        else:
            constants = np.linspace(-5.0, 5.0, 41)
        return min(self.mean_loss(np.full((len(targets), 1), one), targets, weights) for one in constants)

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


def _logistic(outputs: Floats, targets: Floats) -> tuple[Floats, float]:
    """What `fill_residual` gives of two classes, for all rows at once: ±σ(z), and the sum of log(1 + eᶻ)."""
    residuals = np.empty(outputs.shape)
    distances, small = np.empty(len(outputs)), np.empty(len(outputs))
    logistic_rows.fill_distances(outputs[:, 0], targets, distances, small)
    np.exp(small, out=small)
    far = logistic_rows.fill_from_exponentials(targets, distances, small, residuals[:, 0])
    return residuals, far + float(np.log1p(small, out=small).sum())
