"""Linear federations once more, slowly: dense NumPy, one party after the other, nothing shared with the framework.

The twin is given a recorded run. It reads from the traces who asked for which rows, after how many of its own steps
each party answered, and whose sum became whose step; then it computes every number anew, and compares what crossed the
wire. Step sizes must be fixed.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from linear_timeline import Answer, Offer, Step, Take, shared_timeline, sums_for_others, timeline
from numpy.typing import NDArray
from recorded_runs import Item
from scipy.optimize import minimize

from colonnade.messages import (
    ProductSum,
    SearchStep,
    SharedRequest,
)
from colonnade.testing import TinyFederation

Floats = NDArray[np.float64]
CLOSE = 1e-9


@dataclass
class Objective:
    """(1/n) Σ loss(θ_i, y_i): the loss and its first two derivatives in θ, row by row."""

    task: str
    classes: int
    name: str = "auto"
    scale: float = 1.0
    largest: float = 1.0  # of the rows' weights, which a party without labels takes for every row's

    def residuals(self, theta: Floats, y: Floats) -> Floats:
        if self.name == "huber":
            return 2 * np.clip(theta - y[:, None], -self.scale, self.scale)
        if self.name == "robust":
            r = theta - y[:, None]
            return r / (1 + r**2 / (2 * self.scale**2))
        sign = 2 * y[:, None] - 1
        if self.name == "smoothed-hinge":
            return -sign * np.clip(1 - sign * theta, 0, 1)
        if self.name == "sigmoid":
            return -sign / (1 + np.exp(theta)) / (1 + np.exp(-theta))
        if self.task == "regression":
            return 2 * (theta - y[:, None])
        if self.task == "binary":
            return 1 / (1 + np.exp(-theta)) - y[:, None]
        return self._softmax(theta) - np.eye(self.classes)[y.astype(int)]

    def loss(self, theta: Floats, y: Floats) -> float:
        r, z = np.abs(theta[:, 0] - y), (2 * y - 1) * theta[:, 0]
        if self.name == "huber":
            return float(np.where(r <= self.scale, r**2, 2 * self.scale * r - self.scale**2).mean())
        if self.name == "robust":
            return float(self.scale**2 * np.log(1 + r**2 / (2 * self.scale**2)).mean())
        if self.name == "smoothed-hinge":
            return float(np.where(z >= 1, 0, np.where(z <= 0, 0.5 - z, (1 - z) ** 2 / 2)).mean())
        if self.name == "sigmoid":
            return float((1 / (1 + np.exp(z))).mean())
        if self.task == "regression":
            return float(np.square(theta[:, 0] - y).mean())
        if self.task == "binary":
            return float(np.mean(np.logaddexp(0, theta[:, 0]) - y * theta[:, 0]))
        return float(-np.log(self._softmax(theta)[np.arange(len(y)), y.astype(int)]).mean())

    def curvature(self, residuals: Floats, y: Floats) -> Floats:
        """As below, of rows that all are taken to weigh the most."""
        return self.largest * self._curvature(residuals / self.largest, y)

    def _curvature(self, residuals: Floats, y: Floats) -> Floats:
        """∂²loss/∂θ², [rows, c, c], from ϑ = p − y; where θ may be one of two, at the one where it is not negative."""
        size = np.abs(residuals)[:, :, None]
        if self.name == "huber":
            return np.where(size < 2 * self.scale, 2.0, 0.0)
        if self.name == "robust":
            t = size / self.scale
            r = 2 * t / (1 + np.sqrt(1 - 2 * t**2))
            return (1 - r**2 / 2) / (1 + r**2 / 2) ** 2
        if self.name == "smoothed-hinge":
            return np.where((size > 0) & (size < 1), 1.0, 0.0)
        if self.name == "sigmoid":
            p = (1 - np.sqrt(np.maximum(1 - 4 * size, 0))) / 2
            return p * (1 - p) * (1 - 2 * p)
        if self.task == "regression":
            return np.full((len(y), 1, 1), 2.0)
        if self.task == "binary":
            p = residuals + y[:, None]
            return (p * (1 - p))[:, :, None]
        p = residuals + np.eye(self.classes)[y.astype(int)]
        return p[:, :, None] * np.eye(self.classes) - p[:, :, None] * p[:, None, :]

    def most_curvature(self) -> float:
        """sup of ∂²loss/∂θ²."""
        if self.name != "auto":
            by_name = {"smoothed-hinge": 1.0, "sigmoid": 3**-1.5 / 2, "huber": 2.0, "robust": 1.0}
            return self.largest * by_name[self.name]
        return self.largest * {"regression": 2.0, "binary": 0.25, "multiclass": 0.5}[self.task]

    def _softmax(self, theta: Floats) -> Floats:
        powers = np.exp(theta - theta.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)


@dataclass
class Inverse:
    """The damped BFGS matrix of the last pairs, as a matrix."""

    memory: int
    delta: float
    gamma: float = 1.0
    pairs: deque[tuple[Floats, Floats]] = field(default_factory=deque)

    def add(self, s: Floats, y: Floats) -> None:
        if not s.any():
            return
        self.gamma = max(y @ y / (s @ y), self.delta) if s @ y > 0 else self.delta
        sigma = self.gamma * (s @ s)
        theta = 0.7 * sigma / (sigma - s @ y) if s @ y < 0.3 * sigma else 1.0
        self.pairs.append((s, theta * y + (1 - theta) * self.gamma * s))
        if len(self.pairs) > self.memory:
            self.pairs.popleft()

    def matrix(self, width: int) -> Floats:
        unit = np.eye(width)
        matrix = unit / self.gamma
        for s, y in self.pairs:
            left = unit - np.outer(s, y) / (s @ y)
            matrix = left @ matrix @ left.T + np.outer(s, s) / (s @ y)
        return matrix


class Worker:
    """One party's block: w with the intercept, if it has it, as a last row on a column of ones."""

    def __init__(self, plan: TinyFederation, name: str, objective: Objective) -> None:
        data, settings = plan.data, plan.algorithm
        own = data.columns.get(name)
        X = np.zeros((data.rows, 0)) if own is None else dense(own.train)
        owner = data.label_party if data.label_party in data.columns else data.feature_parties[0]
        self.intercept = settings.intercept and name == owner
        centre = X.mean(0) if settings.precondition != "none" and settings.intercept else np.zeros(X.shape[1])
        X = self.columns = X - centre
        self.centre = centre
        self.objective = objective
        most = np.full((data.rows, objective.classes), objective.most_curvature())
        self.guard = np.ones(data.rows)
        if settings.precondition == "auto":
            X = self._choose(float(most[0, 0]), plan.training.l2, 16 * plan.training.batch_size)
        else:
            self.root = self._roots(most, plan.training.l2, settings.precondition, most[0, 0])
        self.X = np.hstack([X, np.ones((data.rows, 1))]) if self.intercept else X
        self.w = np.zeros((self.X.shape[1], objective.classes))
        self.penalty = np.full(self.w.shape, plan.training.l2)
        if self.intercept:
            self.penalty[-1] = 0.0
        self.y = data.labels.train.double().numpy()
        self.weights = row_weights(plan)
        self.has_labels = name == data.label_party or settings.labels == "everywhere"
        self.settings, self.training = settings, plan.training
        self.per_epoch = -(-data.rows // plan.training.batch_size)
        self.rule = type(settings).__name__.lower().removeprefix("asysqn").removeprefix("synsqn")
        self.rule = self.rule.removeprefix("af").removeprefix("f")
        self.newton = hasattr(settings, "memory")
        self.steps = self.newton_steps = 0
        self.measure_at = 0 if settings.precondition == "curvature" else np.inf
        self.taken_at: int | None = None
        self.table: Floats = np.zeros((0, 0))
        self.mean: Floats = np.zeros((0, 0))
        self.before: tuple[Floats, Floats] | None = None
        self.inverse = Inverse(settings.memory, settings.least_curvature) if self.newton else None
        self.moved: Floats | None = None  # Σ s since the last pair
        self.seen = np.zeros((data.rows, objective.classes))  # ϑ of each row as it was last known
        self.points = [np.zeros(self.w.shape)]  # of joint searches
        self.offered: Floats = self.points[0]
        self.told: Floats | None = None  # ϑ of the last search
        self.directions = 0
        self.own_curvature: list[Floats] = []

    def products(self, rows: NDArray[np.uint32]) -> Floats:
        return self.X[rows] @ self.w

    def wants_pass(self) -> bool:
        if self.rule == "sgd":
            return False
        if self.taken_at is None:
            return True
        return self.rule == "svrg" and self.steps >= self.taken_at + round(
            self.settings.snapshot_every_epochs * self.per_epoch
        )

    def step(
        self,
        rows: NDArray[np.uint32],
        others: Floats | None,
        residuals: Floats | None,
        in_pass: bool | None = None,
    ) -> None:
        """What a request gave: the others' part of θ for a party with labels, ϑ for one without.

        `in_pass`: whether it was of a full pass, if somebody else decides that.
        """
        if self.wants_pass() if in_pass is None else in_pass:
            assert rows.tolist() == list(range(len(self.y)))
            self.table = self._residuals(rows, others, residuals).copy()
            self.mean = self.X.T @ self.table / len(self.y)
            self.taken_at = self.steps
            self._measure()
            return
        for at in range(0, len(rows), self.training.batch_size):
            part = slice(at, at + self.training.batch_size)
            own_others = None if others is None else others[part]
            theta_residuals = self._residuals(rows[part], own_others, None if residuals is None else residuals[part])
            self._batch(rows[part], theta_residuals)
            self.steps += 1
        self._measure()

    def _measure(self) -> None:
        """At the first pass and after 1, 2, 4, … epochs: variables in which the rows' own curvature is about 1."""
        if self.steps < self.measure_at:
            return
        self.measure_at = max(2 * self.steps, self.per_epoch)
        every = np.einsum("icc->ic", self.objective.curvature(self.table, self.y))
        most = 0.25 * self.objective.largest
        most = most if self.objective.task == "multiclass" else self.objective.most_curvature()
        self.root = self._roots(0.9 * every + 0.1 * most, self.training.l2, "block")
        self.before, self.moved, self.newton_steps = None, None, 0
        if self.inverse is not None:
            self.inverse.pairs.clear()

    def _roots(self, curvature: Floats, l2: float, precondition: str, bound: float | None = None) -> Floats:
        """The symmetric root of the preconditioner for each output, [c, d, d]."""
        found = [
            root_of_inverse(self.columns, self.centre, self.intercept, h, l2, precondition, bound) for h in curvature.T
        ]
        return np.stack(found)

    def _choose(self, bound: float, l2: float, most: float) -> Floats:
        """Dense columns to variance 1, unless they nearly have it. Rows beyond `most` count more, until none is."""
        for _ in range(10):
            squares = (self.guard[:, None] * self.columns**2).mean(0)
            floors = 1e-7 * squares + 1e-10 * self.centre**2
            scale = (squares + np.where(floors > 0, floors, 1.0) + l2 / bound) ** -0.5
            over = bound * np.square(self.columns * scale).sum(1, initial=0.0) / most
            if over.max() <= 1.05:
                break
            self.guard = self.guard * np.maximum(over, 1.0)
        deviations = np.sqrt(squares[squares > 0])
        alike = ((deviations >= 0.8) & (deviations <= 1.25)).all() and (np.abs(self.centre) <= 0.1).all()
        if alike and (self.guard == 1).all():
            self.columns, self.centre, scale = self.columns + self.centre, 0 * self.centre, np.ones(len(scale))
        self.root = np.stack([np.diag(np.append(scale, 1.0) if self.intercept else scale)] * self.objective.classes)
        return self.columns

    def offer(self) -> Floats:
        """The products of all rows at w − M⁻¹g, then λ times its products with the points before, and with itself."""
        known: Floats | None = self.table if self.rule != "sgd" else (self.seen if self.newton else self.told)
        self.offered = self.w if known is None or not self.w.size else self.w + self._own_newton(known)
        told = np.zeros((len(self.y) + 16, self.objective.classes))
        told[: len(self.y)] = self.X @ self.offered
        for place, point in enumerate([*self.points, self.offered]):
            told[len(self.y) + place, 0] = (self.penalty * point * self.offered).sum()
        return told

    def _own_newton(self, known: Floats) -> Floats:
        if self.directions in (0, 1, 2, 4, 8, 16, 32):
            every = np.einsum("icc->ic", self.objective.curvature(known, self.y))
            self.own_curvature = []
            for h, penalty in zip(every.T, self.penalty.T, strict=True):
                curvature = (h[:, None] * self.X).T @ self.X / len(self.X)
                bit = 1e-6 * (1 + np.trace(curvature))
                self.own_curvature.append(curvature + np.diag(penalty + bit))
        self.directions += 1
        gradient = self.X.T @ known / len(self.X) + self.penalty * self.w
        solved = [np.linalg.solve(one, g) for one, g in zip(self.own_curvature, gradient.T, strict=True)]
        return -np.stack(solved, 1)

    def take(self, shares: Floats, residuals: Floats) -> None:
        """The best weights between the points, of which the last fifteen are kept."""
        self.points.append(self.offered)
        self.w = sum((share * point for share, point in zip(shares, self.points, strict=True)), 0 * self.w)
        self.points = [*self.points, self.w][-15:]
        self.before = self.moved = None
        self.told, self.seen = residuals.copy(), residuals.copy()
        if self.rule != "sgd":
            self.table = residuals.copy()
            self.mean = self.X.T @ self.table / len(self.y)
            self.taken_at = self.steps
            self._measure()

    def _residuals(self, rows: NDArray[np.uint32], others: Floats | None, residuals: Floats | None) -> Floats:
        if others is None:
            assert residuals is not None
            return residuals
        return self.weights[rows, None] * self.objective.residuals(others + self.products(rows), self.y[rows])

    def _batch(self, rows: NDArray[np.uint32], residuals: Floats) -> None:
        X = self.X[rows]
        v = X.T @ residuals / len(rows)
        if self.rule != "sgd":
            change = X.T @ (residuals - self.table[rows]) / len(rows)
            v = change + self.mean
            if self.rule == "saga":
                self.mean = self.mean + change * len(rows) / len(self.y)
                self.table[rows] = residuals
        v = v + self.penalty * self.w
        rate = self.training.learning_rate
        if self.rule == "sgd":
            epochs = self.steps / self.per_epoch
            line = max(1 - epochs / self.training.epochs, 0.02)
            rate *= line if self.settings.decay == "auto" else 1 / (1 + self.settings.decay * epochs)
        if self.rule == "sgd":
            self.seen[rows] = residuals
        else:
            self.seen = self.table
        inward = np.einsum("cde,ec->dc", self.root, v)
        s = -rate * inward if self.inverse is None else self._newton_step(inward, rate, rows, residuals)
        self.w = self.w + np.einsum("cde,ec->dc", self.root, s)
        if self.training.l1:
            self._threshold(rate * self.training.l1)

    def _threshold(self, length: float) -> None:
        """The proximal step of length · ‖w‖₁ in the metric, which is diagonal; the intercept is left alone."""
        for output, root in enumerate(self.root):
            assert not (root - np.diag(np.diag(root))).any()
            for column in range(len(self.w) - self.intercept):
                threshold = length * root[column, column] ** 2
                w = self.w[column, output]
                self.w[column, output] = 0.0 if abs(w) <= threshold else w - np.sign(w) * threshold

    def _newton_step(self, v: Floats, rate: float, rows: NDArray[np.uint32], residuals: Floats) -> Floats:
        assert self.inverse is not None
        flat = v.ravel()
        if not flat.size:
            return v
        which = self.settings.curvature_rows
        hessian = self._hessian(rows, residuals) if which != "all" else self._hessian_of_all()
        if self.newton_steps == 0:
            self.inverse.gamma = max(flat @ hessian @ flat / (flat @ flat), self.inverse.delta)
        elif which == "fresh" and self.before is not None:
            self.inverse.add(self.before[0], flat - self.before[1])
        s = -rate * self.inverse.matrix(flat.size) @ flat
        self.before = (s, flat)
        self.newton_steps += 1
        if which == "same":
            self.inverse.add(s, hessian @ s)
        elif which == "all":
            self.moved = s if self.moved is None else self.moved + s
            if self.newton_steps <= 10 or self.newton_steps % 10 == 0:
                self.inverse.add(self.moved, hessian @ self.moved)
                self.moved = None
        return s.reshape(v.shape)

    def _hessian(self, rows: NDArray[np.uint32], residuals: Floats) -> Floats:
        """∇² of the batch's objective in the variables of the steps, flattened row by row."""
        curvature = self.objective.curvature(residuals, self.y[rows])
        if self.objective.name != "auto":  # a batch may have none
            curvature = np.full(curvature.shape, self.objective.most_curvature())
        return self._hessian_from(self.X[rows], curvature)

    def _hessian_of_all(self) -> Floats:
        """The same of all rows, a tenth of it as curved as can be; a row not seen yet has no other curvature."""
        labels = np.where(np.abs(self.seen).sum(1) > 0, self.y, -1)
        curvature = np.stack([self._curvature_of(*row) for row in zip(self.seen, labels, strict=True)])
        most = self.objective.most_curvature() * np.eye(self.objective.classes)
        return self._hessian_from(self.X, (0.9 * curvature + 0.1 * most) * self.guard[:, None, None])

    def _curvature_of(self, residual: Floats, label: float) -> Floats:
        if label < 0 and self.objective.task != "regression":
            return np.zeros((self.objective.classes, self.objective.classes))
        return self.objective.curvature(residual[None], np.array([label]))[0]

    def _hessian_from(self, X: Floats, curvature: Floats) -> Floats:
        whole = np.einsum("id,iab,ie->daeb", X, curvature, X).reshape(self.w.size, self.w.size) / len(X)
        whole += np.diag(self.penalty.ravel())
        classes = self.objective.classes
        root = np.einsum("cde,ca->dcea", self.root, np.eye(classes)).reshape(self.w.size, self.w.size)
        return root @ whole @ root


def row_weights(plan: TinyFederation) -> Floats:
    """What each row counts for in the loss: here its own weight alone, the mean of all being 1."""
    given = plan.data.labels.weights
    return np.ones(plan.data.rows) if given is None else given.numpy() * plan.data.rows / sum(given.tolist())


def root_of_inverse(
    X: Floats,
    centre: Floats,
    intercept: bool,
    weights: Floats,
    l2: float,
    precondition: str,
    bound: float | None = None,
) -> Floats:
    """The symmetric root of the preconditioner for rows of these curvatures: any root gives the same steps."""
    width, bound = X.shape[1], float(weights.mean()) if bound is None else bound
    curvature = (weights[:, None] * X).T @ X / len(X)
    if precondition == "columns":
        curvature = np.diag(np.diag(curvature))
    curvature = curvature + np.diag(1e-7 * np.diag(curvature) + 1e-10 * bound * centre**2 + l2)
    if precondition == "none":
        curvature, bound = np.eye(width), 1.0
    values, vectors = np.linalg.eigh(curvature)
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    if not intercept:
        return root
    joined = np.eye(width + 1) * bound**-0.5
    joined[:width, :width] = root
    return joined


def dense(columns: Any) -> Floats:
    if hasattr(columns, "toarray"):
        return columns.toarray().astype(np.float64)
    return columns.double().numpy().reshape(columns.shape[0], -1)


# --- the whole federation ---------------------------------------------------------------------------------------


def check_passes(plan: TinyFederation, items: list[Item]) -> None:
    """The label party asks for passes when its estimator needs one, counted in the mini-batches that it asked for."""
    worker = Worker(plan, plan.data.label_party, Objective("binary", 1))
    numbers: set[int] = set()
    for item in items:
        message: Any = item.message
        if item.type == "Send" and isinstance(message, SearchStep):
            worker.taken_at = worker.steps  # what a search found is a pass
        if item.type != "Send" or not isinstance(message, SharedRequest) or message.number in numbers:
            continue
        numbers.add(message.number)
        if message.instead_of:
            continue
        assert bool(message.full_pass) == worker.wants_pass()
        if message.full_pass:
            worker.taken_at = worker.steps
        else:
            worker.steps += -(-message.rows.size // plan.training.batch_size)


class Twin:
    """Plays a recorded run again; `checked` counts the numbers that were compared."""

    def __init__(self, plan: TinyFederation, run: dict[str, list[Item]]) -> None:
        self.plan, self.run = plan, run
        labels = plan.data.labels
        classes = len(labels.classes) if labels.task == "multiclass" else 1
        largest = float(row_weights(plan).max())
        self.objective = Objective(labels.task, classes, plan.algorithm.loss, plan.algorithm.loss_scale, largest)
        self.workers = {name: Worker(plan, name, self.objective) for name in plan.names}
        self.parts: dict[tuple[str, int], dict[str, Floats]] = {}
        self.rows: dict[tuple[str, int], NDArray[np.uint32]] = {}
        self.outputs = [np.zeros((plan.data.rows, classes))]  # at the points of joint searches
        self.searched: dict[tuple[str, int], Floats] = {}  # residuals where they ended
        self.checked = 0

    def play(self) -> None:
        label = self.plan.data.label_party
        if getattr(self.plan.algorithm, "updates", "one") == "everybody":
            check_passes(self.plan, self.run[label])
            lines = {name: deque(shared_timeline(self.plan, name, items)) for name, items in self.run.items()}
        else:
            sum_of = sums_for_others(self.plan, self.run[label])
            lines = {name: deque(timeline(self.plan, name, items, sum_of)) for name, items in self.run.items()}
        moved = True
        while moved:
            moved = False
            for name, line in lines.items():
                while line and self._do(name, line[0]):
                    line.popleft()
                    moved = True
        assert not any(lines.values()), "the twin could not finish: a step waits for a sum that never was"
        self._check_parts()

    def _do(self, name: str, entry: Answer | Step | Offer | Take) -> bool:
        worker = self.workers[name]
        if isinstance(entry, Offer):
            self.parts.setdefault(entry.sum, {})[name] = worker.offer()
            return True
        if isinstance(entry, Answer):
            self.parts.setdefault(entry.sum, {})[name] = worker.products(entry.rows)
            self.rows[entry.sum] = entry.rows
            return True
        parts = self.parts.get(entry.sum, {})
        if len(parts) < len(self.workers):
            return False
        if isinstance(entry, Take):
            if entry.sum not in self.searched:
                self.searched[entry.sum] = self._search(sum(parts.values(), 0.0), entry.wire.shares)
            self._same(entry.wire.residuals, self.searched[entry.sum])
            worker.take(entry.wire.shares, self.searched[entry.sum])
            return True
        rows = self.rows[entry.sum]
        theta = sum(parts.values(), np.zeros((len(rows), self.objective.classes)))
        residuals = worker.weights[rows, None] * self.objective.residuals(theta, worker.y[rows])
        if entry.in_pass is not None:
            if len(entry.wire if entry.wire is not None else ()):  # the first peer may have been away
                self._same(entry.wire, theta if self.plan.algorithm.labels == "everywhere" else residuals)
            worker.step(rows, None, residuals, entry.in_pass)
            return True
        if entry.wire is not None:
            self._same(entry.wire, theta if worker.has_labels else residuals)
        if worker.has_labels:
            worker.step(rows, theta - parts[name], None)
        else:
            worker.step(rows, None, residuals)
        return True

    def _search(self, told: Any, shares: Floats) -> Floats:
        """The residuals where the shares lead; nowhere in the span of the points is the objective much lower."""
        worker, rows = self.workers[self.plan.data.label_party], self.plan.data.rows
        self.outputs.append(told[:rows])
        points = self._joined(len(self.outputs) - 1)

        def value(at: Floats) -> float:
            theta = sum((share * one for share, one in zip(at, self.outputs, strict=True)), 0.0)
            losses = [self.objective.loss(one[None], y[None]) for one, y in zip(theta, worker.y, strict=True)]
            weights = sum(share * one for share, one in zip(at, points, strict=True))
            return float(worker.weights @ losses) / rows + self.plan.training.l2 / 2 * float(np.square(weights).sum())

        assert shares.sum() == pytest.approx(1)
        ends = [value(one) for one in np.eye(len(shares))]
        found = value(shares)
        base, differences = shares, np.eye(len(shares))[1:] - np.eye(len(shares))[:1]
        best = minimize(lambda at: value(base + at @ differences), np.zeros(len(shares) - 1), tol=1e-12).fun
        assert found - best <= 0.01 * (min(ends) - best) + 1e-9
        theta = sum((share * one for share, one in zip(shares, self.outputs, strict=True)), 0.0)
        self.outputs = [*self.outputs, theta][-15:]
        return worker.weights[:, None] * self.objective.residuals(theta, worker.y)

    def _joined(self, kept: int) -> list[Floats]:
        """Everybody's points side by side, without the intercept: before, or after, the workers take the step."""
        joined = []
        for worker in self.workers.values():
            held = slice(0, len(worker.w) - worker.intercept)
            joined.append([one[held] for one in [*worker.points[:kept], worker.offered]])
        return [np.vstack(together) for together in zip(*joined, strict=True)]

    def _check_parts(self) -> None:
        """Every ProductSum on the wire is the sum over everybody below its sender."""
        below: dict[tuple[str, int], dict[str, list[str]]] = {}
        sent: list[tuple[str, Any]] = []
        for name, items in self.run.items():
            for item in items:
                if item.type == "Send" and isinstance(item.message, ProductSum):
                    message: Any = item.message
                    below.setdefault((message.root, message.number), {}).setdefault(item.peer, []).append(name)
                    sent.append((name, message))
        for name, message in sent:
            key = (message.root, message.number)
            members, waiting = [], [name]
            while waiting:
                members.append(waiting.pop())
                waiting += below[key].get(members[-1], [])
            if all(member in self.parts[key] for member in members):
                self._same(message.total, sum(self.parts[key][member] for member in members))

    def _same(self, wire: Floats, ours: Any) -> None:
        assert wire.shape == ours.shape
        assert np.abs(wire - ours).max(initial=0.0) <= CLOSE
        self.checked += wire.size
