"""`algorithm.precondition`: the same optimum, sooner; nothing else crosses; the papers' steps where it is left out."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_runs import read_run, sends

from colonnade import FederatedData, SettingsError, Training, from_arrays, train
from colonnade.algorithms import ALGORITHMS
from colonnade.data import synthetic_sparse
from colonnade.messages import Introduction
from colonnade.reproductions.objective import gaps, joined, optimum, reference_model
from colonnade.testing import TinyFederation

L2 = 1e-3
LINEAR = [name for name, row in ALGORITHMS.items() if row.linear_party is not None]
REDUCED = [name for name in LINEAR if name.endswith(("svrg", "saga"))]


@cache
def uneven() -> FederatedData:
    """Columns of sizes 1 to 10 and means up to 30, alike in pairs at each party."""
    generator = np.random.default_rng(4)
    X = generator.normal(size=(200, 6))
    X[:, 1::2] = 0.8 * X[:, ::2] + 0.6 * X[:, 1::2]
    y = (X @ np.array([1.0, -1.0, 0.5, 1.0, -0.5, 1.0]) + generator.normal(size=200) > 0).astype(int)
    X = X * np.array([1, 10, 1, 3, 1, 10]) + np.array([0, 30, -10, 0, 5, 10])
    return from_arrays(X[:160], y[:160], X_test=X[160:], y_test=y[160:], parties=3, task="binary", standardise=False)


def gap_of(name: str, epochs: float = 30, data: FederatedData | None = None, **settings: Any) -> float:
    data = data or uneven()
    training = Training(epochs=epochs, batch_size=16, l2=L2, evaluate_every_epochs=epochs)
    points, _ = gaps(data, ALGORITHMS[name].settings(**settings), optimum(data, L2), training=training)
    return points[-1].gap


@pytest.mark.parametrize("name", REDUCED)
def test_the_optimum_is_the_same_and_near(name: str) -> None:
    assert abs(gap_of(name, precondition="block")) < 1e-6


@pytest.mark.parametrize("name", REDUCED)
def test_the_rows_own_curvature_leads_there_too(name: str) -> None:
    assert abs(gap_of(name, precondition="curvature")) < 1e-6


@cache
def many_classes() -> FederatedData:
    """Five classes, most rows far on the right side of every border: little of the curvature there could be."""
    generator = np.random.default_rng(6)
    centres = 4 * generator.normal(size=(5, 6))
    y = generator.integers(0, 5, 300)
    X = centres[y] + generator.normal(size=(300, 6)) * np.array([1, 1, 3, 3, 1, 2])
    return from_arrays(X[:240], y[:240], X_test=X[240:], y_test=y[240:], parties=3, task="multiclass")


def test_it_is_sooner_where_rows_have_little_of_the_curvature_they_could_have() -> None:
    least = {kind: gap_of("afsaga", data=many_classes(), precondition=kind) for kind in ("block", "curvature")}
    assert abs(least["curvature"]) < least["block"] / 10, least


@pytest.mark.parametrize("name", ["afsgd", "fsgd", "asysqn-sgd", "synsqn-sgd"])
def test_plain_stochastic_gradients_keep_no_residuals_to_measure_by(name: str) -> None:
    with pytest.raises(SettingsError, match="which the plain SGD algorithms do not keep"):
        ALGORITHMS[name].settings(precondition="curvature")


def test_conjugate_gradients_have_their_own_curvature() -> None:
    with pytest.raises(SettingsError, match=r"no value of algorithm.precondition 'curvature'"):
        ALGORITHMS["fcg"].settings(precondition="curvature")


@pytest.mark.parametrize("name", ["afsaga", "fsvrg"])
def test_plain_steps_are_far_from_it_in_the_same_time(name: str) -> None:
    plain = gap_of(name, precondition="none")
    assert plain > 1e-2
    assert gap_of(name, precondition="columns") < plain / 10


@pytest.mark.parametrize("step", ["auto", "search"])
@pytest.mark.parametrize("name", ["afsgd", "asysqn-sgd", "synsqn-sgd"])
def test_stochastic_gradients_take_it_too(name: str, step: str) -> None:
    assert gap_of(name, precondition="block", step=step) < 0.02


def test_conjugate_gradients_need_fewer_steps_the_more_they_know() -> None:
    after_four = [gap_of("fcg", 4, precondition=kind) for kind in ("none", "columns", "block")]
    assert after_four[0] > 10 * after_four[1] and after_four[1] > 2 * after_four[2], after_four
    assert gap_of("fcg", 4) == after_four[2]  # the block's curvature, unless said otherwise
    assert abs(gap_of("fcg", 15, precondition="columns")) < 1e-6


@pytest.mark.parametrize(("name", "epochs"), [("afsaga", 24), ("asysqn-svrg", 80), ("fcg", 40)])
def test_sparse_columns(name: str, epochs: float) -> None:
    data = synthetic_sparse(400, 30, 5, parties=3)
    assert abs(gap_of(name, epochs, data, precondition="block")) < 1e-5


def test_the_models_are_of_the_columns_as_they_were_given() -> None:
    """What a party subtracts from its columns is in its model's constant: outputs are scikit-learn's."""
    data = uneven()
    training = Training(epochs=30, batch_size=16, l2=L2, evaluate_every_epochs=0)
    outcome = train(data, ALGORITHMS["afsaga"].settings(precondition="block"), training=training)
    outputs = outcome.outputs({name: own.test for name, own in data.columns.items()})[:, 0].numpy()
    model = reference_model(data, L2)
    assert np.allclose(outputs, model.decision_function(joined(data, "test")), atol=1e-2)


def test_nothing_but_the_three_numbers_changes_on_the_wire(tmp_path: Path) -> None:
    """As many messages of the same kinds and rows; with a matrix, the largest eigenvalue says nothing: 1/bound."""
    kinds = {}
    for precondition in ("none", "block"):
        algorithm = ALGORITHMS["afsaga"].settings(precondition=precondition)
        plan = TinyFederation(uneven(), algorithm, Training(epochs=2, batch_size=16, l2=L2))
        plan.run(tmp_path / precondition)
        run = read_run(tmp_path / precondition)
        kinds[precondition] = [(name, type(item.message).__name__) for name in run for item in run[name]]
        told = [item.message.largest_eigenvalue for item in sends(run["party2"], Introduction)]  # type: ignore[union-attr]
        assert (set(told) == {4.0}) == (precondition == "block")
    assert kinds["none"] == kinds["block"]


def test_a_misspelt_one_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"precondition.*'blocks'.*block"):
        ALGORITHMS["afsaga"].settings(precondition="blocks")


@pytest.mark.parametrize("name", [name for name in LINEAR if name != "fcg"])
def test_the_papers_steps_can_be_asked_for_and_a_metric_is_the_default(name: str) -> None:
    assert ALGORITHMS[name].settings().precondition == "auto"
    assert ALGORITHMS[name].settings(precondition="none").precondition == "none"
