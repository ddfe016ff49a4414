"""Linear federations with an L1 penalty: scikit-learn's optimum and its zeros, the stopping rule, what is refused.

The test rows are the training rows, so that the evaluations of a run are its objective, in float64.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from linear_federation import Floats, Objective, dense
from scipy.sparse import csr_array
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression

from colonnade import (
    FederatedData,
    Outcome,
    SettingsError,
    Simulate,
    SimulatedParty,
    Training,
    VerticalRegressor,
    from_arrays,
    train,
)
from colonnade.algorithms import ALGORITHMS
from colonnade.algorithms.linear_models.parts.settings import QuasiNewton
from colonnade.testing import StopAfter, TinyFederation

L1, L2 = 0.05, 0.02
LINEAR = [name for name, row in ALGORITHMS.items() if row.linear_party is not None]
SMOOTH_ONLY = [name for name in LINEAR if issubclass(ALGORITHMS[name].settings, QuasiNewton) or name == "fcg"]
UNEVEN = Simulate(parties={"party2": SimulatedParty(slowdown=3.0)})
PARTIES = ("party1", "party2", "party3")


@cache
def half_of_the_columns_matter(task: str) -> FederatedData:
    generator = np.random.default_rng(4)
    X = generator.normal(size=(120, 12)).astype(np.float32)
    score = X[:, ::2] @ np.array([1.0, -1.0, 0.5, 1.5, -0.5, 1.0]) / 2 + 0.3 * generator.normal(size=120) + 0.3
    y = {"binary": (score > 0).astype(int), "multiclass": np.digitize(score, [-0.5, 1.0]), "regression": score}[task]
    return from_arrays(X, y, X_test=X, y_test=y, parties=3, task=task, standardise=False)


def joined(data: FederatedData) -> tuple[Floats, Floats]:
    return np.hstack([dense(own.train) for own in data.columns.values()]), data.labels.train.double().numpy()


@cache
def optimum(task: str, l2: float = L2) -> tuple[float, Floats, Floats]:
    """scikit-learn's: the objective, the weights, [d, c], and the intercept."""
    X, y = joined(half_of_the_columns_matter(task))
    model: Any
    if task == "regression":  # half of our objective
        strict = {"tol": 1e-14, "max_iter": 100_000}
        model = ElasticNet((L1 + l2) / 2, l1_ratio=L1 / (L1 + l2), **strict) if l2 else Lasso(L1 / 2, **strict)
    else:
        C = 1 / ((L1 + l2) * len(y))
        model = LogisticRegression(C=C, l1_ratio=L1 / (L1 + l2), solver="saga", tol=1e-10, max_iter=100_000)
    model.fit(X, y)
    w, b = np.atleast_2d(model.coef_).T, np.atleast_1d(model.intercept_)
    objective = Objective(task, 3 if task == "multiclass" else 1)
    penalty = l2 / 2 * np.square(w).sum() + L1 * np.abs(w).sum()
    return objective.loss(X @ w + b, y) + float(penalty), w, b


def run(
    name: str, task: str = "binary", epochs: float = 40, l2: float = L2, l1: float = L1, **settings: Any
) -> Outcome:
    training = Training(epochs=epochs, batch_size=20, l2=l2, l1=l1, evaluate_every_epochs=settings.pop("every", 0))
    algorithm = ALGORITHMS[name].settings(**settings)
    return train(half_of_the_columns_matter(task), algorithm, training=training, simulate=UNEVEN)


def weights(outcome: Outcome) -> Floats:
    layers: list[Any] = [outcome.models[party]["bottom"] for party in PARTIES]
    found: Floats = np.hstack([layer.weight.detach().double().numpy() for layer in layers]).T
    return found


def objective_of(outcome: Outcome, task: str) -> float:
    test = outcome.summary["test"]
    return float(test["penalty"] + (test["rmse"] ** 2 if task == "regression" else test["log_loss"]))


@pytest.mark.parametrize(
    ("name", "task", "l2"),
    [
        ("fsaga", "binary", L2),
        ("fsvrg", "binary", L2),
        ("afsaga", "binary", L2),
        ("fsaga", "regression", L2),
        ("fsaga", "regression", 0.0),
        ("afsvrg", "regression", L2),
        ("fsaga", "multiclass", L2),
    ],
)
def test_the_optimum_and_its_zeros_are_those_of_scikit_learn(name: str, task: str, l2: float) -> None:
    outcome = run(name, task, 100 if task == "multiclass" else 40, l2)
    least, w, _ = optimum(task, l2)
    found = weights(outcome)
    assert objective_of(outcome, task) / least - 1 < 1e-5
    assert np.abs(found - w).max() < 3e-3
    assert (found[np.abs(w) < 1e-8] == 0).mean() > 0.9  # exactly; what is about to leave 0 may be either
    assert (found[np.abs(w) > 0.05] != 0).all() and (found == 0).sum() >= 2


def test_sparse_columns_and_masked_sums() -> None:
    data = half_of_the_columns_matter("binary")
    X, y = joined(data)
    sparse: Any = csr_array(X.astype(np.float32))
    data = from_arrays(sparse, y, X_test=sparse, y_test=y, parties=3, task="binary", standardise=False)
    training = Training(epochs=40, batch_size=20, l2=L2, l1=L1, evaluate_every_epochs=0)
    algorithm = ALGORITHMS["fsaga"].settings(sums="pairwise", precondition="none")
    outcome = train(data, algorithm, training=training)
    assert objective_of(outcome, "binary") / optimum("binary")[0] - 1 < 1e-5
    assert (weights(outcome) == 0).sum() >= 2


def test_plain_stochastic_gradients_come_near() -> None:
    for name in ("fsgd", "afsgd"):
        assert objective_of(run(name, epochs=20), "binary") / optimum("binary")[0] - 1 < 0.02


def test_a_large_penalty_leaves_the_intercept_alone() -> None:
    outcome = run("fsaga", "regression", epochs=20, l1=100.0)
    assert (weights(outcome) == 0).all() and outcome.summary["test"]["penalty"] == 0
    y = half_of_the_columns_matter("regression").labels.train.double()
    assert outcome.summary["test"]["rmse"] == pytest.approx(float(y.std(correction=0)), rel=1e-3)


# --- the stopping rule ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sums", ["plain", "pairwise"])
def test_training_stops_at_the_tolerance_and_is_really_there(sums: str) -> None:
    """The gradient itself never comes to 0: at a weight of 0 it may be anything up to l1."""
    outcome = run("fsaga", epochs=200, tolerance=1e-4, sums=sums, every=1)
    assert outcome.finished and outcome.summary["epochs"] < 150
    assert outcome.summary["test"]["gradient_norm"] <= 1e-4
    X, y = joined(half_of_the_columns_matter("binary"))
    w, layers = weights(outcome), [outcome.models[party]["bottom"] for party in PARTIES]
    b = sum(layer.bias.detach().double().numpy() for layer in layers)  # type: ignore[union-attr,operator]
    residuals = Objective("binary", 1).residuals(X @ w + b, y)
    gradient = X.T @ residuals / len(y) + L2 * w
    least = np.where(w == 0, np.maximum(np.abs(gradient) - L1, 0), gradient + L1 * np.sign(w))
    assert np.linalg.norm(least) < 2e-4 and abs(residuals.mean()) < 1e-4
    assert np.linalg.norm(gradient) > 0.05


# --- checkpoints ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_a_stopped_run_goes_on_to_the_same_bits(storage: str, tmp_path: Path) -> None:
    X, y = joined(half_of_the_columns_matter("binary"))
    table: Any = csr_array(X.astype(np.float32)) if storage == "sparse" else X
    data = from_arrays(table, y, X_test=table, y_test=y, parties=3, task="binary", standardise=False)
    algorithm = ALGORITHMS["afsaga"].settings(precondition="none")
    plan = TinyFederation(data, algorithm, Training(epochs=3, batch_size=16, l1=L1, l2=L2), simulate=UNEVEN)
    whole = weights(plan.run(tmp_path / "whole"))
    for events in (40, 150):
        out = tmp_path / str(events)
        assert not plan.run(out, stop_requested=StopAfter(events)).finished
        assert weights(plan.run(out, resume=True)).tobytes() == whole.tobytes()


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMOOTH_ONLY)
def test_algorithms_that_cannot_have_it_say_which_can(name: str) -> None:
    with pytest.raises(SettingsError, match=rf"{name} takes no training\.l1: .*such as a?fsaga"):
        run(name)


@pytest.mark.parametrize("precondition", ["block", "curvature"])
def test_a_metric_that_mixes_columns_is_refused(precondition: str) -> None:
    with pytest.raises(
        SettingsError, match=rf'precondition = "{precondition}" of afsaga mixes columns\. Use "columns"'
    ):
        run("afsaga", precondition=precondition)


def test_an_estimator_takes_it() -> None:
    X, y = joined(half_of_the_columns_matter("regression"))
    model = VerticalRegressor(parties=3, algorithm="fsaga", l1=0.5, epochs=10, batch_size=20, random_state=0).fit(X, y)
    found = np.concatenate(
        [one["bottom"].weight.detach().numpy()[0] for one in model.models_.values() if "bottom" in one]
    )
    assert (found == 0).sum() > 3 and (found != 0).any()
