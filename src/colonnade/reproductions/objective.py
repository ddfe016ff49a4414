"""The objective of a linear federation, its optimum by scikit-learn on the joined columns, a run's distance from it."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse

from colonnade.algorithms.training import Training
from colonnade.data.federated import Columns, FederatedData
from colonnade.launch.experiment import train
from colonnade.launch.outcome import Outcome
from colonnade.runtimes.simulate.settings import Simulate


def _matrix(rows: Columns) -> Any:
    return rows.flatten(1).double().numpy() if isinstance(rows, torch.Tensor) else rows.astype(np.float64)


def joined(data: FederatedData, part: str = "train") -> Any:
    """All parties' columns side by side, in float64; sparse if theirs are."""
    parts = [_matrix(getattr(own, part)) for own in data.columns.values()]
    return sparse.csr_array(sparse.hstack(parts)) if sparse.issparse(parts[0]) else np.hstack(parts)


def optimum(data: FederatedData, l2: float) -> float:
    """The least value of (1/n) Σ loss + l2/2 ‖w‖², by scikit-learn."""
    return objective(reference_model(data, l2), data, l2)


def reference_model(data: FederatedData, l2: float) -> Any:
    """scikit-learn's model of the joined columns at the same penalty, to its last digits."""
    from sklearn.linear_model import LogisticRegression, Ridge

    X, y = joined(data), data.labels.train.numpy()
    if data.labels.task == "regression":
        return Ridge(alpha=l2 * len(y) / 2).fit(X, y)
    dense_and_narrow = not sparse.issparse(X) and X.shape[1] * len(data.labels.classes) <= 2_000
    solver = "newton-cholesky" if dense_and_narrow else "lbfgs"
    model = LogisticRegression(C=1 / (len(y) * l2), solver=solver, tol=1e-9, max_iter=20_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the last digits cannot be had
        return model.fit(X, y)


def objective(model: Any, data: FederatedData, l2: float) -> float:
    """f(w) of a scikit-learn model on the training rows."""
    X, y = joined(data), data.labels.train.numpy()
    weights = np.atleast_2d(model.coef_)
    outputs = X @ weights.T + model.intercept_
    if data.labels.task == "regression":
        loss = float(np.mean((outputs[:, 0] - y) ** 2))
    elif outputs.shape[1] == 1:
        loss = float(np.mean(np.logaddexp(0, outputs[:, 0]) - y * outputs[:, 0]))
    else:
        highest = outputs.max(1)
        total = highest + np.log(np.exp(outputs - highest[:, None]).sum(1))
        loss = float(np.mean(total - outputs[np.arange(len(y)), y]))
    return loss + l2 / 2 * float(np.sum(weights**2))


def scored_on_training_rows(data: FederatedData) -> FederatedData:
    """The same data with the training rows as test rows: an evaluation then gives the objective's loss exactly."""
    columns = {name: replace(own, test=own.train) for name, own in data.columns.items()}
    return replace(data, columns=columns, labels=replace(data.labels, test=data.labels.train))


HOPELESS = 100.0
"""A sub-optimality from which a run does not come back."""


@dataclass(frozen=True)
class Point:
    """Where a run was: its relative sub-optimality (f − f*)/f*, after so much."""

    gap: float
    epoch: float
    exchanges: int
    virtual_seconds: float


def gaps(
    data: FederatedData,
    algorithm: Any,
    best: float,
    *,
    training: Training,
    simulate: Simulate | None = None,
    seed: int = 0,
    until: float = 0.0,
) -> tuple[list[Point], Outcome]:
    """A run's sub-optimality at every evaluation; it stops once that is at most `until`, or beyond hope."""
    points: list[Point] = []
    scored = scored_on_training_rows(data)
    regression = data.labels.task == "regression"

    def look(line: dict[str, Any]) -> None:
        metric = line["metric"]
        if metric:
            loss = (metric["rmse"] / data.labels.deviation) ** 2 if regression else metric["log_loss"]
            gap = (loss + metric["penalty"] - best) / best
            points.append(Point(gap, line["epoch"], line["exchange"], line["virtual_seconds"]))

    outcome = train(
        scored,
        algorithm,
        training=training,
        simulate=simulate,
        seed=seed,
        watch=look,
        stop_requested=lambda: bool(points) and not until < points[-1].gap < HOPELESS,
    )
    return points, outcome


def first_below(points: Sequence[Point], gap: float) -> Point | None:
    """Where a run first came this close, if it did."""
    return next((point for point in points if point.gap <= gap), None)
