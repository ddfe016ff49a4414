"""How near an optimum 20 epochs of stochastic first-order methods come in one place, on the sets of `bench defaults`.

scikit-learn's SAGA, and an accelerated method, Katyusha (Z. Allen-Zhu, 2017), in mini-batches: on the joined columns,
and in variables in which every party's own block of the curvature at the optimum is the identity, which no party alone
can better. Katyusha's two constants are the best of a grid, chosen by the very gap that is told: a bound on what it can
do, not a method. Full gradients count as epochs.

What is missing there is a look along everybody's directions at once. SAGA on the joined columns shows it whose weights
are, after every half epoch and a full pass, the best in the span of the last ones (G. Narkiss, M. Zibulevsky,
"Sequential Subspace Optimization Method for Large-Scale Unconstrained Problems", 2005); one constant for all sets.
"""

import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import linalg, sparse

from colonnade.algorithms.training import Defaults
from colonnade.benchmarks.benchmark import Benchmark, Watch, one_thread
from colonnade.benchmarks.twelve_sets import TWELVE
from colonnade.data.federated import FederatedData
from colonnade.models.linear_loss import LinearLoss
from colonnade.reproductions.objective import joined, objective, reference_model

Floats = npt.NDArray[np.float64]
EPOCHS = 20
SETS = ("breast cancer", "digits", "categories", "sparse words")
REMEMBERED = 8  # weights whose span is searched
CONSTANTS = [(2.0**length, coupling) for length in range(-2, 5) for coupling in (0.5, 0.25, 0.1, 0.05)]


@one_thread
def run(watch: Watch) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in SETS:
        data = TWELVE[name]()
        problem = Problem.of(data)
        gaps = {"sklearn_saga": saga_gap(data, problem.best)}
        gaps["katyusha"] = best_of_grid(problem)
        gaps["katyusha_in_blocks"] = best_of_grid(problem.in_blocks())
        gaps["saga_with_joint_search"] = searched_saga(problem)
        for method, gap in gaps.items():
            found[f"{name.replace(' ', '_')}_{method}"] = gap
        watch(f"{name}: " + ", ".join(f"{method} {gap:.1e}" for method, gap in gaps.items()))
    return found


def saga_gap(data: FederatedData, best: float) -> float:
    from sklearn.linear_model import LogisticRegression

    l2 = 1 / data.rows
    model = LogisticRegression(C=1 / (data.rows * l2), solver="saga", tol=0.0, max_iter=EPOCHS, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged
        model.fit(joined(data), data.labels.train.numpy())
    return (objective(model, data, l2) - best) / best


class Problem(NamedTuple):
    """min over u of mean loss(X u) + λ/2 ‖R u‖², the intercept's column last and free of penalty."""

    columns: Floats  # [n, d + 1], in the variables u; of several outputs [c, n, d + 1]
    roots: Floats  # R, [c, d + 1, d + 1]
    targets: Floats
    loss: LinearLoss
    l2: float
    best: float
    optimum: Floats  # of the weights, [d + 1, c]
    widths: tuple[int, ...]  # of the parties' blocks

    @classmethod
    def of(cls, data: FederatedData) -> "Problem":
        l2 = 1 / data.rows
        model = reference_model(data, l2)
        X: Any = joined(data)
        X = X.toarray() if sparse.issparse(X) else X
        centre = X.mean(0)
        weights = np.atleast_2d(model.coef_).T
        outputs = weights.shape[1]
        held = np.hstack([X - centre, np.ones((len(X), 1))])
        at = np.vstack([weights, np.atleast_1d(model.intercept_) + centre @ weights])
        task = data.labels.task
        loss = LinearLoss(task, outputs)
        roots = np.tile(np.eye(held.shape[1]), (outputs, 1, 1))
        widths = tuple(int(np.prod(own.shape)) for own in data.columns.values())
        columns = np.tile(held, (outputs, 1, 1))
        targets = data.labels.train.double().numpy()
        return cls(columns, roots, targets, loss, l2, objective(model, data, l2), at, widths)

    def in_blocks(self) -> "Problem":
        """The same in u with w = R u, RRᵀ the inverse of each party's block of the curvature at the optimum."""
        outputs = np.stack([X @ w for X, w in zip(self.columns, self.optimum.T, strict=True)], 1)
        curvatures = self.loss.curvatures(self.loss.residuals(outputs, self.targets))
        roots = np.zeros_like(self.roots)
        edges = np.cumsum((0, *self.widths, 1))
        for root, X, h in zip(roots, self.columns, curvatures.T, strict=True):
            for begin, end in pairwise(edges):
                block = X[:, begin:end]
                curvature = (block * h[:, None]).T @ block / len(h) + (self.l2 + 1e-12) * np.eye(end - begin)
                root[begin:end, begin:end] = linalg.inv(linalg.cholesky(curvature, lower=True)).T
        return self._replace(columns=self.columns @ roots, roots=roots)

    def gradient(self, u: Floats, rows: Any) -> Floats:
        """Of the loss over these rows, without the penalty."""
        residuals = self.residuals(u, rows)
        found: Floats = np.einsum("knd,nk->dk", self.columns[:, rows], residuals) / len(residuals)
        return found

    def residuals(self, u: Floats, rows: Any) -> Floats:
        outputs = np.ascontiguousarray(np.einsum("knd,dk->nk", self.columns[:, rows], u))
        return self.loss.residuals(outputs, self.targets[rows])

    def penalty(self, u: Floats) -> tuple[float, Floats]:
        """λ/2 ‖R u‖² without the intercept, and its gradient."""
        weights = np.einsum("kde,ek->dk", self.roots, u)
        weights[-1] = 0.0
        return self.l2 / 2 * float(np.square(weights).sum()), self.l2 * np.einsum("kde,dk->ek", self.roots, weights)

    def gap(self, u: Floats) -> float:
        outputs = np.ascontiguousarray(np.einsum("knd,dk->nk", self.columns, u))
        value = self.loss.mean_loss(outputs, self.targets) + self.penalty(u)[0]
        return (value - self.best) / self.best if np.isfinite(value) else np.inf

    @property
    def smoothness(self) -> float:
        """bound · the mean square of a row: about what one row sees."""
        return self.loss.smoothness * float(np.square(self.columns[0]).sum(1).mean())


def best_of_grid(problem: Problem) -> float:
    """Lengths of a step from a quarter to sixteen times what a batch of that curvature bears."""
    with np.errstate(all="ignore"):
        return min(katyusha(problem, length, coupling) for length, coupling in CONSTANTS)


def searched_saga(problem: Problem) -> float:
    """The gap of SAGA with a search over the last weights after every half epoch and a full pass, which counts as one.

    What a search needs are the rows' outputs at those weights and the weights' own products: sums over parties.
    """
    rows, batch = len(problem.targets), Defaults().batch_size(len(problem.targets))
    step = _longest_step(problem, batch)
    generator = np.random.default_rng(0)
    u = np.zeros((problem.columns.shape[2], problem.columns.shape[0]))
    points, epochs = [u], 1.0
    while epochs + 1.5 <= EPOCHS:
        table = problem.residuals(u, slice(None))
        mean = np.einsum("knd,nk->dk", problem.columns, table) / rows
        for _ in range(max(1, rows // (2 * batch))):
            chosen = generator.choice(rows, batch, replace=False)
            residuals = problem.residuals(u, chosen)
            change = np.einsum("knd,nk->dk", problem.columns[:, chosen], residuals - table[chosen])
            u = u - step * (change / batch + mean + problem.penalty(u)[1])
            table[chosen], mean = residuals, mean + change / rows
        points = [*points, u][-REMEMBERED:]
        u = best_in_span(problem, points)
        points = [*points, u][-REMEMBERED:]
        epochs += 1.5
    return problem.gap(u)


def best_in_span(problem: Problem, points: list[Floats]) -> Floats:
    """The least of the objective over the last point and its differences to the others, by Newton's method."""
    last, differences = points[-1], np.stack([one - points[-1] for one in points[:-1]])
    along = np.einsum("knd,mdk->mnk", problem.columns, differences)
    at, found = np.zeros(len(differences)), last
    for _ in range(10):
        residuals = problem.residuals(found, slice(None))
        curved = [problem.loss.curvature_times(residuals, np.ascontiguousarray(one)) for one in along]
        penalties = np.stack([problem.penalty(one)[1] for one in differences])
        slope = np.einsum("mnk,nk->m", along, residuals) / len(residuals)
        slope += np.einsum("mdk,dk->m", differences, problem.penalty(found)[1])
        curvature = np.einsum("mnk,onk->mo", along, np.stack(curved)) / len(residuals)
        curvature += np.einsum("mdk,odk->mo", differences, penalties)
        scale = np.sqrt(np.diag(curvature)) + np.finfo(float).tiny
        newton = -np.linalg.lstsq(curvature / np.outer(scale, scale), slope / scale, rcond=1e-10)[0] / scale
        gap = problem.gap(found)
        for halvings in range(20):
            tried = at + newton / 2**halvings
            there = last + np.tensordot(tried, differences, 1)
            if problem.gap(there) < gap:
                break
        else:
            return found
        at, found = tried, there
    return found


def _longest_step(problem: Problem, batch: int) -> float:
    """What a batch bears: a third of what the curvature of its rows would allow, as if eight of them were one."""
    return batch / (batch + 1) / (3 * problem.smoothness) * min(batch, 8)


def katyusha(problem: Problem, length: float, coupling: float) -> float:
    """The least gap of Algorithm 1 with mini-batches after any of its passes; τ1 is `coupling`, τ2 a half."""
    rows, batch = len(problem.targets), Defaults().batch_size(len(problem.targets))
    step = length * _longest_step(problem, batch)
    shape = (problem.columns.shape[2], problem.columns.shape[0])
    snapshot, y, z = (np.zeros(shape) for _ in range(3))
    least = np.inf
    for order in _passes(rows, batch):
        mean = problem.gradient(snapshot, slice(None))
        total = np.zeros(shape)
        for chosen in order:
            x = coupling * z + 0.5 * snapshot + (0.5 - coupling) * y
            v = problem.gradient(x, chosen) - problem.gradient(snapshot, chosen) + mean + problem.penalty(x)[1]
            z = z - step / coupling * v
            y = x - step * v
            total += y
        snapshot = total / len(order)
        least = min(least, problem.gap(snapshot), problem.gap(y))
        if not np.isfinite(least) or problem.gap(y) > 1e6:
            break
    return least


def _passes(rows: int, batch: int) -> Iterator[list[npt.NDArray[np.int64]]]:
    """Two epochs of mini-batches after every full gradient, which counts as one, up to the planned ones."""
    generator = np.random.default_rng(0)
    for _ in range(EPOCHS // 3 + 1):
        yield [generator.choice(rows, batch, replace=False) for _ in range(2 * rows // batch)]


BENCHMARK = Benchmark(
    "first-order",
    "how near an optimum stochastic first-order methods come in 20 epochs, the columns in one place",
    run,
    {},
)
