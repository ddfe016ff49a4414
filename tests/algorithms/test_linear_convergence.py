"""Where linear federations arrive: the optimum that scikit-learn's field agrees on, linearly with reduced variance,
and a stopping rule that tells the truth.

The test rows are the training rows, so that the evaluations of a run are its objective, in float64.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from linear_federation import Floats, Objective, dense
from recorded_runs import read_run, receipts
from scipy.optimize import minimize

from colonnade import FederatedData, Outcome, Simulate, SimulatedParty, Training, from_arrays, train
from colonnade.algorithms import ALGORITHMS
from colonnade.messages import Stop
from colonnade.testing import TinyFederation

L2 = 0.1
REDUCED = [f"{family}{rule}" for family in ("af", "f", "asysqn-", "synsqn-") for rule in ("svrg", "saga")]
UNEVEN = Simulate(
    compute_seconds={"distribution": "exponential", "mean": 0.01},
    latency_seconds={"distribution": "exponential", "mean": 0.002},
    parties={"party2": SimulatedParty(slowdown=3.0)},
)


@cache
def well_conditioned(task: str = "binary") -> FederatedData:
    generator = np.random.default_rng(2)
    X = generator.normal(size=(120, 6))
    score = X @ np.array([1.0, -1.0, 0.5, 1.5, -0.5, 1.0]) + generator.normal(size=120)
    y = {"binary": (score > 0.3).astype(int), "multiclass": np.digitize(score, [-1.0, 1.0]), "regression": score}[task]
    return from_arrays(X, y, X_test=X, y_test=y, parties=3, task=task, standardise=False)


@cache
def optimum(task: str) -> tuple[float, float]:
    """The least objective, and the norm of the gradient that SciPy left."""
    data = well_conditioned(task)
    objective, X, y = problem(data)

    def value_and_gradient(flat: Floats) -> tuple[float, Floats]:
        w = flat.reshape(X.shape[1], objective.classes)
        theta = X @ w
        gradient = X.T @ objective.residuals(theta, y) / len(y)
        gradient[:-1] += L2 * w[:-1]
        return objective.loss(theta, y) + L2 / 2 * float(np.square(w[:-1]).sum()), gradient.ravel()

    start = np.zeros(X.shape[1] * objective.classes)
    found = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-12})
    return float(found.fun), float(np.linalg.norm(value_and_gradient(found.x)[1]))


def problem(data: FederatedData) -> tuple[Objective, Floats, Floats]:
    X = np.hstack([*(dense(own.train) for own in data.columns.values()), np.ones((data.rows, 1))])
    task = data.labels.task
    return (
        Objective(task, len(data.labels.classes) if task == "multiclass" else 1),
        X,
        data.labels.train.double().numpy(),
    )


def suboptimality(outcome: Outcome, task: str) -> Floats:
    """f − f* at every evaluation, relative to f*."""
    scores = [line["metric"] for line in outcome.metrics if line["metric"]]
    least, _ = optimum(task)
    values = [m["penalty"] + (m["rmse"] ** 2 if task == "regression" else m["log_loss"]) for m in scores]
    return np.array(values) / least - 1


@cache
def run(name: str, task: str = "binary", epochs: float = 30, batch_size: int = 12, **settings: Any) -> Outcome:
    training = Training(epochs=epochs, batch_size=batch_size, l2=L2, learning_rate=0.1)
    data = well_conditioned(task)
    return train(data, ALGORITHMS[name].settings(**settings), training=training, simulate=UNEVEN)


def test_the_optimum_is_one() -> None:
    for task in ("binary", "multiclass", "regression"):
        assert optimum(task)[1] < 1e-7


@pytest.mark.parametrize("name", REDUCED)
def test_reduced_variance_falls_linearly_over_four_decades(name: str) -> None:
    gaps = suboptimality(run(name, "binary"), "binary")
    decades = np.log10(np.maximum(gaps, 1e-15))
    used = decades[: int(np.argmax(decades < -8)) + 1] if (decades < -8).any() else decades
    assert used[0] - used[-1] > 4, used
    epochs = np.arange(len(used))
    slope, _ = np.polyfit(epochs, used, 1)
    explained = np.corrcoef(epochs, used)[0, 1] ** 2 if len(used) > 2 else 1.0
    assert slope < 0 and explained > 0.85, (slope, explained)


@pytest.mark.parametrize("name", ["afsgd", "fsgd"])
def test_a_constant_step_without_reduced_variance_stalls(name: str) -> None:
    gaps = suboptimality(run(name, epochs=40, step="fixed", decay=0.0), "binary")
    late = np.log10(gaps[len(gaps) // 2 :])
    assert abs(np.polyfit(np.arange(len(late)), late, 1)[0]) < 0.05  # flat: no decade in twenty epochs
    assert np.median(late) > -5


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("name", [name for name in REDUCED if name.startswith("a")])
def test_the_optimum_is_reached(name: str, task: str) -> None:
    assert suboptimality(run(name, task), task)[-1] < 1e-6


# --- the stopping rule ------------------------------------------------------------------------------------------


def gradient_norm(outcome: Outcome, data: FederatedData) -> float:
    """Of the whole objective, at the models that the run gave."""
    objective, X, y = problem(data)
    layers = [outcome.models[party]["bottom"] for party in data.columns]
    w = np.vstack([layer.weight.detach().double().numpy().T for layer in layers])  # type: ignore[union-attr,operator]
    b = sum(layer.bias.detach().double().numpy() for layer in layers if layer.bias is not None)  # type: ignore[union-attr,operator]
    w = np.vstack([w, b])
    gradient = X.T @ objective.residuals(X @ w, y) / len(y)
    gradient[:-1] += L2 * w[:-1]
    return float(np.linalg.norm(gradient))


@pytest.mark.parametrize("sums", ["plain", "pairwise"])
@pytest.mark.parametrize("name", REDUCED)
def test_training_stops_at_the_tolerance_and_is_really_there(name: str, sums: str) -> None:
    tolerance = 1e-4
    outcome = run(name, epochs=200, tolerance=tolerance, sums=sums)
    assert outcome.finished and outcome.summary["epochs"] < 100
    assert gradient_norm(outcome, well_conditioned()) < tolerance
    assert outcome.summary["test"]["gradient_norm"] <= tolerance


def test_a_norm_that_is_not_known_yet_stops_nothing() -> None:
    """The first evaluations come before some party's first full pass; its unknown part is not taken for zero."""
    slow = Simulate(parties={"party3": SimulatedParty(slowdown=100.0)})
    training = Training(epochs=3, batch_size=8, l2=L2, evaluate_every_epochs=0.1)
    algorithm = ALGORITHMS["afsvrg"].settings(tolerance=0.3)
    outcome = train(well_conditioned(), algorithm, training=training, simulate=slow)
    first = next(line["metric"] for line in outcome.metrics if line["metric"])
    assert "gradient_norm" not in first


@pytest.mark.parametrize("name", ["fsvrg", "fsaga"])
def test_the_reason_is_told(name: str, tmp_path: Path) -> None:
    algorithm = ALGORITHMS[name].settings(tolerance=0.05)
    plan = TinyFederation(well_conditioned(), algorithm, Training(epochs=100, batch_size=8, l2=L2))
    plan.run(tmp_path / "run")
    (stop,) = receipts(read_run(tmp_path / "run")["party1"], Stop)
    assert stop.message.reason == "the gradient's norm is below algorithm.tolerance = 0.05"  # type: ignore[union-attr]
