"""Columns that nearly say the same: first-order steps are found to be slow, and the rows' own curvature is used."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from colonnade import FederatedData, Training, from_arrays
from colonnade.algorithms import ALGORITHMS
from colonnade.models.known_curvature import known_curvature
from colonnade.models.linear import LinearBlock
from colonnade.reproductions.objective import gaps, optimum

ROWS = 300


@cache
def nearly_dependent() -> FederatedData:
    """Each party's columns are one another's copies but for a tenth."""
    generator = np.random.default_rng(3)
    common = generator.normal(size=(ROWS, 2))
    X = np.repeat(common, 4, axis=1) + 0.1 * generator.normal(size=(ROWS, 8))
    y = (X @ generator.normal(size=8) * 3 + generator.logistic(size=ROWS) > 0).astype(int)
    return from_arrays(X, y, X_test=X[:4], y_test=y[:4], parties=2, task="binary")


def reached(data: FederatedData, name: str, **settings: Any) -> tuple[float, dict[str, Any]]:
    training = Training(epochs=20, evaluate_every_epochs=0)
    points, outcome = gaps(data, ALGORITHMS[name].settings(**settings), optimum(data, 1 / data.rows), training=training)
    return points[-1].gap, outcome.summary


@pytest.mark.parametrize("name", ["fsaga", "fsvrg", "synsqn-saga"])
def test_curvature_is_used_where_first_order_steps_are_slow(name: str) -> None:
    plain, _ = reached(nearly_dependent(), name.replace("synsqn-", "f"), precondition="columns")
    found, summary = reached(nearly_dependent(), name)
    assert found < plain / 5, (found, plain)
    assert summary["counts"]["fall_backs"] >= 0


def test_in_the_metric_of_known_curvature_a_block_is_curved_alike_in_every_direction() -> None:
    generator = np.random.default_rng(0)
    columns = generator.normal(size=(50, 3)) @ np.array([[1.0, 0.9, 0.0], [0.0, 0.1, 0.0], [0.0, 0.0, 7.0]])
    block = LinearBlock(torch.from_numpy(columns).float(), torch.zeros(0, 3), 2, 0.01, intercept=False)
    h = generator.uniform(0.05, 0.25, size=(50, 2))
    found = known_curvature(block, h, most_leverage=1e9)
    for output in range(2):
        root = found.metric.matrix(output)
        curvature = block.gram(np.ascontiguousarray(h[:, output])) + 0.01 * np.eye(3)
        assert np.allclose(root.T @ curvature @ root, np.eye(3), atol=1e-5)
    assert found.rows >= 3  # the mean of h‖x̃‖² is nearly the number of columns
    assert (found.guard == 1).all()


def test_a_row_that_is_most_of_a_direction_counts_more_than_once() -> None:
    columns = np.zeros((40, 2))
    columns[:, 0] = np.linspace(-1, 1, 40)
    columns[7, 1] = 5.0
    block = LinearBlock(torch.from_numpy(columns).float(), torch.zeros(0, 2), 1, 1e-4, intercept=False)
    found = known_curvature(block, np.full((40, 1), 0.25), most_leverage=8.0)
    assert found.guard[7] > 2 and np.delete(found.guard, 7).max() == 1
    along = np.square(block.all_times(found.metric.matrix(0)[:, 1:], np.zeros(1))[7, 0])
    assert 0.25 * along <= 1.1 * 8.0
