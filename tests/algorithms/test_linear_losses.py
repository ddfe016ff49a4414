"""Linear federations with losses asked for by name: where they arrive, what they report, what they refuse.

The test rows are the training rows, so that the evaluations of a run are its objective, in float64.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest
from linear_federation import Floats, Objective, dense
from papers_form import papers_form
from scipy.optimize import minimize

from colonnade import FederatedData, Outcome, SettingsError, Simulate, SimulatedParty, Training, from_arrays, train
from colonnade.algorithms import ALGORITHMS
from colonnade.algorithms.linear_models.fcg import Fcg
from colonnade.errors import ProtocolError
from colonnade.messages import ResidualReply
from colonnade.party import Received, Started
from colonnade.testing import TinyFederation, tiny_data

L2 = 0.02
LOSSES: dict[str, tuple[str, float]] = {
    "smoothed-hinge": ("binary", 1.0),
    "sigmoid": ("binary", 1.0),
    "huber": ("regression", 0.5),
    "robust": ("regression", 1.0),
}
UNEVEN = Simulate(parties={"party2": SimulatedParty(slowdown=3.0)})


@cache
def outlying(task: str) -> FederatedData:
    """Labels of which one in twelve is wrong, by far in a regression."""
    generator = np.random.default_rng(2)
    X = generator.normal(size=(120, 6))
    score = X @ np.array([1.0, -1.0, 0.5, 1.5, -0.5, 1.0]) / 2 + 0.1 * generator.normal(size=120)
    y = (score > 0.1).astype(int) if task == "binary" else score
    y[::12] = 1 - y[::12] if task == "binary" else y[::12] + 8
    return from_arrays(X, y, X_test=X, y_test=y, parties=3, task=task, standardise=False)


@cache
def optimum(name: str, l2: float = L2) -> tuple[float, Floats]:
    """The least objective from the same start, and the weights with the intercept last."""
    task, scale = LOSSES[name]
    objective = Objective(task, 1, name, scale)
    data = outlying(task)
    X = np.hstack([*(dense(own.train) for own in data.columns.values()), np.ones((data.rows, 1))])
    y = data.labels.train.double().numpy()

    def value_and_gradient(w: Floats) -> tuple[float, Floats]:
        theta = X @ w[:, None]
        gradient = X.T @ objective.residuals(theta, y)[:, 0] / len(y)
        gradient[:-1] += l2 * w[:-1]
        return objective.loss(theta, y) + l2 / 2 * float(w[:-1] @ w[:-1]), gradient

    found = minimize(value_and_gradient, np.zeros(7), jac=True, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-12})
    assert np.linalg.norm(value_and_gradient(found.x)[1]) < 1e-6
    return float(found.fun), found.x


@cache
def run(algorithm: str, name: str, epochs: float = 40, l2: float = L2, **settings: Any) -> Outcome:
    task, scale = LOSSES[name]
    chosen = ALGORITHMS[algorithm].settings(loss=name, loss_scale=scale, **settings)
    training = Training(epochs=epochs, batch_size=20, l2=l2, evaluate_every_epochs=0)
    return train(outlying(task), chosen, training=training, simulate=UNEVEN)


def weights(outcome: Outcome) -> Floats:
    layers: list[Any] = [outcome.models[party]["bottom"] for party in ("party1", "party2", "party3")]
    found: Floats = np.concatenate([layer.weight.detach().double().numpy()[0] for layer in layers])
    return found


def gap(outcome: Outcome, name: str, l2: float = L2) -> float:
    test = outcome.summary["test"]
    return float((test["loss"] + test["penalty"]) / optimum(name, l2)[0] - 1)


@pytest.mark.parametrize("name", LOSSES)
def test_it_arrives_where_scipy_does(name: str) -> None:
    outcome = run("fsaga", name)
    assert abs(gap(outcome, name)) < 1e-5
    assert np.abs(weights(outcome) - optimum(name)[1][:-1]).max() < 0.01


@pytest.mark.parametrize("name", LOSSES)
def test_so_do_steps_along_a_quasi_newton_direction(name: str) -> None:
    assert abs(gap(run("asysqn-saga", name, epochs=24), name)) < 1e-4


@pytest.mark.parametrize("l2", [L2, 0.0])
@pytest.mark.parametrize("name", ["smoothed-hinge", "huber"])
def test_conjugate_gradients_take_the_convex_ones(name: str, l2: float) -> None:
    """Without a penalty no row of the hinge is curved at the first weights."""
    assert abs(gap(run("fcg", name, l2=l2), name, l2)) < 1e-9


@pytest.mark.parametrize("name", ["sigmoid", "robust"])
def test_conjugate_gradients_refuse_the_others(name: Any) -> None:
    with pytest.raises(SettingsError, match=f"algorithm.loss = '{name}' is not convex.*such as fsaga"):
        Fcg(loss=name)


def test_a_step_is_found_where_no_row_is_curved_at_first() -> None:
    for name in ("smoothed-hinge", "sigmoid"):
        assert gap(run("fsaga", name, epochs=10, step="search", precondition="none"), name) < 0.1


def test_masked_sums() -> None:
    plain, masked = (run("fsvrg", "robust", epochs=4, sums=sums) for sums in ("plain", "pairwise"))
    assert masked.summary["test"]["loss"] == pytest.approx(plain.summary["test"]["loss"], rel=1e-7)


def test_robust_losses_are_not_led_astray() -> None:
    """Ten rows of a hundred and twenty are off by 8: the square loss gives them a third of the intercept, and more."""
    training = Training(epochs=20, batch_size=20, l2=L2, evaluate_every_epochs=0)
    square = train(outlying("regression"), "fsaga", training=training)
    right = np.array([1.0, -1.0, 0.5, 1.5, -0.5, 1.0]) / 2
    assert np.abs(weights(square) - right).max() > 0.2
    for name in ("huber", "robust"):
        assert np.abs(weights(run("fsaga", name)) - right).max() < 0.1


def test_what_is_reported() -> None:
    """The objective's own loss; no log loss of outputs that are no log odds."""
    test = run("fsgd", "smoothed-hinge", epochs=2).summary["test"]
    assert {"accuracy", "auc", "f1", "loss", "penalty"} == set(test)
    assert {"rmse", "r2", "loss", "penalty"} == set(run("fsgd", "huber", epochs=2).summary["test"])
    usual = train(tiny_data(), "fsgd", training=Training(epochs=1, batch_size=8)).summary["test"]
    assert {"accuracy", "auc", "f1", "log_loss", "penalty"} == set(usual)


def test_a_loss_of_another_task_is_refused_before_the_training() -> None:
    for task, name in (("multiclass", "smoothed-hinge"), ("regression", "sigmoid"), ("binary", "robust")):
        with pytest.raises(SettingsError, match=rf"algorithm\.loss = '{name}' is a loss for .*Choose 'auto'"):
            train(tiny_data(task), ALGORITHMS["afsgd"].settings(loss=name), training=Training(epochs=1, batch_size=8))


@pytest.mark.parametrize(("name", "most"), [("sigmoid", 0.25), ("smoothed-hinge", 1.0), ("huber", 3.0)])
def test_residuals_that_the_loss_cannot_have_are_refused(name: str, most: float) -> None:
    task, scale = LOSSES[name][0], 1.5 if name == "huber" else 1.0
    settings = papers_form("afsgd", loss=name, loss_scale=scale)
    party = TinyFederation(tiny_data(task), settings, Training(epochs=1, batch_size=8)).parties()["party1"]
    party.handle(Started(0.0))
    with pytest.raises(ProtocolError, match=f"residuals of magnitude {most * 1.1:.2g}"):
        party.handle(Received(0.1, "label", ResidualReply(1, np.full((8, 1), most * 1.1))))
    party.handle(Received(0.1, "label", ResidualReply(1, np.full((8, 1), most))))  # too early, and kept
