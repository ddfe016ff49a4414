"""A block's private change of variables, against plain NumPy: centred products, scaled steps, what is told of them."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from colonnade.errors import SettingsError
from colonnade.models.linear import LinearBlock
from colonnade.models.linear_loss import LinearLoss
from colonnade.models.linear_metric import MOST_COLUMNS, Metric
from colonnade.models.linear_window import Window

BOUND, L2 = 0.25, 0.1
KINDS = ["columns", "block"]
X = np.array([[1.0, 10.0, 0.0], [3.0, 14.0, 0.0], [2.0, 9.0, 5.0], [6.0, 11.0, 0.0], [8.0, 10.0, 1.0]])
CENTRED = X - X.mean(0)


def block_of(kind: Any, stored: str = "dense", intercept: bool = True, l2: float = L2, table: Any = X) -> LinearBlock:
    held = torch.tensor(table, dtype=torch.float32)
    if stored == "sparse":
        held = sparse.csr_array(table.astype(np.float32))
    return LinearBlock(held, held[:2], 1, l2, intercept, kind, BOUND, centred=True)


def preconditioner(kind: str) -> Any:
    curvature = BOUND * CENTRED.T @ CENTRED / len(X)
    if kind == "columns":
        curvature = np.diag(np.diag(curvature))
    return np.linalg.inv(curvature + L2 * np.eye(3))


@pytest.mark.parametrize("stored", ["dense", "sparse"])
def test_products_and_gradients_are_those_of_centred_columns(stored: str) -> None:
    block = block_of("block", stored)
    w, b = np.array([[1.0], [-2.0], [0.5]]), np.array([3.0])
    block.set_weights(w, b)
    assert np.allclose(block.products(np.arange(block.rows)), CENTRED @ w + b)
    assert np.allclose(block.test_products(0, 2), CENTRED[:2] @ w + b)
    assert np.allclose(block.constant(), b - X.mean(0) @ w)
    residuals = np.array([[1.0], [2.0], [-1.0], [0.5], [3.0]])
    gradient, gradient_b = block.full_gradient(residuals)
    assert np.allclose(gradient, CENTRED.T @ residuals / 5) and np.allclose(gradient_b, residuals.mean())
    assert np.allclose(block.all_times(w, b), CENTRED @ w + b)


@pytest.mark.parametrize("stored", ["dense", "sparse"])
@pytest.mark.parametrize("intercept", [True, False])
def test_curvature_is_that_of_centred_columns(stored: str, intercept: bool) -> None:
    block = block_of("centre", stored, intercept)
    weights = np.array([1.0, 2.0, 0.5, 1.0, 3.0])
    joined = np.hstack([CENTRED, np.ones((5, 1))]) if intercept else CENTRED
    wanted = (joined * weights[:, None]).T @ joined / 5
    assert np.allclose(block.gram(weights), wanted)
    assert np.allclose(block.squares(weights), np.diag(wanted))


@pytest.mark.parametrize("stored", ["dense", "sparse"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_goes_along_the_preconditioned_gradient(kind: str, stored: str) -> None:
    block = block_of(kind, stored)
    w, b = np.array([[0.1], [-0.2], [0.3]]), np.array([0.5])
    block.set_weights(w, b)
    rows, residuals = np.array([0, 2], np.uint32), np.array([[1.0], [-0.5]])
    block.sgd_steps(Window(rows, 2, residuals), 0.1)
    v = CENTRED[rows].T @ residuals / 2 + L2 * w
    assert np.allclose(block.weights(), w - 0.1 * preconditioner(kind) @ v, rtol=1e-4)
    assert np.allclose(block.intercept(), b - 0.1 * residuals.mean() / BOUND)


def test_saga_s_table_and_mean_follow_the_steps() -> None:
    """What the mean gradient is after a step, is the mean over the table after it."""
    block, table = block_of("block"), np.zeros((5, 1))
    loss, y = LinearLoss("binary"), np.array([0.0, 1.0, 1.0, 0.0, 1.0])
    rows = np.array([4, 1, 0, 3], np.uint32)
    block.saga_steps(Window(rows, 2, np.zeros((4, 1)), y[rows], loss), 0.3, table)
    mean, mean_b = block.mean_gradient()
    assert np.allclose(mean, CENTRED.T @ table / 5) and np.allclose(mean_b, table.mean())
    assert table[2] == 0 and np.abs(table[rows]).min() > 0


@pytest.mark.parametrize("stored", ["dense", "sparse"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_told_is_of_the_scaled_columns(kind: str, stored: str) -> None:
    block = block_of(kind, stored)
    P = preconditioner(kind)
    squares = np.einsum("ij,jk,ik->i", CENTRED, P, CENTRED) + 1 / BOUND  # the intercept's column is 1/√bound
    assert block.metric is not None
    scaled = np.square(CENTRED @ (np.diag(block.metric.scale) if kind == "columns" else block.metric.scale))
    penalty = L2 / BOUND * np.square(block.metric.scale) if kind == "columns" else 1 / BOUND - scaled.mean(0)
    along = (squares[:, None] * scaled).mean(0) / (scaled.mean(0) + penalty)
    assert np.allclose(block.longest_rows(), max(along.max(), squares.mean()), rtol=1e-4)
    root = np.linalg.cholesky(P)
    whole = root.T @ (CENTRED.T @ CENTRED / 5 + L2 / BOUND * np.eye(3)) @ root
    largest = max(float(np.linalg.eigvalsh(whole)[-1]), 1 / BOUND)
    assert largest * 0.999 <= block.largest_eigenvalue() <= largest * 1.06


@given(st.floats(0.1, 100.0), st.floats(-50.0, 50.0), st.sampled_from(KINDS))
def test_steps_do_not_depend_on_a_column_s_unit_or_origin(scale: float, origin: float, kind: str) -> None:
    """Without a penalty, outputs after a step are the same whatever unit a column is measured in."""
    moved = X.copy()
    moved[:, 0] = scale * X[:, 0] + origin
    outputs = []
    for table in (X, moved):
        block = block_of(kind, l2=0.0, table=table)
        block.sgd_steps(Window(np.arange(5, dtype=np.uint32), 5, np.array([[1.0], [2.0], [-1.0], [0.5], [3.0]])), 0.2)
        outputs.append(block.products(np.arange(block.rows)))
    assert np.allclose(*outputs, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_never_vary_or_repeat_another_stay_finite(kind: str) -> None:
    table = np.hstack([X[:, :1], X[:, :1], np.full((5, 1), 7.0), np.zeros((5, 1))])
    block = block_of(kind, l2=0.0, table=table)
    block.sgd_steps(Window(np.arange(5, dtype=np.uint32), 2, np.ones((5, 1))), 0.2)
    assert np.isfinite(block.weights()).all() and np.abs(block.products(np.arange(block.rows))).max() < 100


def test_a_block_without_columns_has_an_intercept_to_step_on() -> None:
    block = block_of("block", table=np.zeros((5, 0)))
    block.sgd_steps(Window(np.arange(5, dtype=np.uint32), 5, np.ones((5, 1))), 0.25)
    assert block.products(np.arange(block.rows)).tolist() == [[-1.0]] * 5  # 0.25 · 1 / bound


def test_a_block_that_is_too_wide_for_a_matrix_says_so() -> None:
    Metric.check_width(MOST_COLUMNS)
    table = sparse.csr_array((3, MOST_COLUMNS + 1), dtype=np.float32)
    with pytest.raises(SettingsError, match=r'2,049 of them; at most 2,048 are taken. Use "columns"'):
        LinearBlock(table, table, 1, 0.1, False, "block")
    LinearBlock(table, table, 1, 0.1, False, "columns")


@pytest.mark.parametrize("stored", ["dense", "sparse"])
def test_a_measured_block_steps_by_each_output_s_own_curvature(stored: str) -> None:
    held: Any = torch.tensor(X, dtype=torch.float32)
    if stored == "sparse":
        held = sparse.csr_array(X.astype(np.float32))
    block = LinearBlock(held, held[:2], 2, L2, True, "curvature", 0.5, centred=True)
    curvatures = np.array([[0.1, 0.2], [0.05, 0.25], [0.2, 0.02], [0.1, 0.1], [0.15, 0.03]])
    block.measure(curvatures)
    residuals = np.array([[1.0, -1.0], [0.5, 0.2], [-0.3, 0.4], [0.1, -0.7], [0.2, 0.9]])
    block.sgd_steps(Window(np.arange(5, dtype=np.uint32), 5, residuals), 0.1)
    for output in range(2):
        curvature = (CENTRED * curvatures[:, output, None]).T @ CENTRED / 5 + L2 * np.eye(3)
        step = np.linalg.solve(curvature, CENTRED.T @ residuals[:, output] / 5)
        assert np.allclose(block.weights()[:, output], -0.1 * step, rtol=1e-4)
        constant = residuals[:, output].mean() / curvatures[:, output].mean()
        assert np.isclose(block.intercept()[output], -0.1 * constant)


def test_what_was_measured_is_kept_in_a_checkpoint() -> None:
    one, other = (block_of("curvature") for _ in range(2))
    one.measure(np.array([[0.1], [0.2], [0.05], [0.25], [0.01]]))
    other.restore(one.state())
    for block in (one, other):
        block.sgd_steps(Window(np.arange(5, dtype=np.uint32), 2, np.ones((5, 1))), 0.2)
    assert one.weights().tolist() == other.weights().tolist() and other.times_measured == 1


def test_matrices_for_too_many_outputs_are_refused() -> None:
    table = sparse.csr_array((3, 2_000), dtype=np.float32)
    with pytest.raises(SettingsError, match=r"each of 5 outputs, and a party has 2,000 columns"):
        LinearBlock(table, table, 5, 0.1, False, "curvature")
