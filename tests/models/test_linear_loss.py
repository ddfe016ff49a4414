"""Losses of linear models against torch's, finite differences and numbers worked by hand."""

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from colonnade.algorithms.parts.losses import Loss
from colonnade.errors import DataError, SettingsError
from colonnade.models.linear_loss import LinearLoss

Floats = npt.NDArray[np.float64]
LOSSES = [LinearLoss("binary"), LinearLoss("regression"), LinearLoss("multiclass", 2), LinearLoss("multiclass", 4)]


def batch(loss: LinearLoss, rows: int, seed: int) -> tuple[Floats, Floats]:
    random = np.random.default_rng(seed)
    outputs = 3 * random.standard_normal((rows, loss.outputs))
    if loss.task == "regression":
        return outputs, random.standard_normal(rows)
    return outputs, random.integers(0, max(2, loss.outputs), rows).astype(np.float64)


def torch_loss(loss: LinearLoss, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if loss.task == "multiclass":
        return functional.cross_entropy(outputs, targets.long())
    if loss.task == "binary":
        return functional.binary_cross_entropy_with_logits(outputs[:, 0], targets)
    return functional.mse_loss(outputs[:, 0], targets)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(LOSSES), st.integers(1, 9), st.integers(0, 2**31))
def test_values_and_residuals_are_those_of_torch(loss: LinearLoss, rows: int, seed: int) -> None:
    outputs, targets = batch(loss, rows, seed)
    leaf = torch.from_numpy(outputs.copy()).requires_grad_()
    value = torch_loss(loss, leaf, torch.from_numpy(targets))
    (gradient,) = torch.autograd.grad(value, leaf)
    assert loss.mean_loss(outputs, targets) == pytest.approx(float(value.detach()), rel=1e-12)
    np.testing.assert_allclose(loss.residuals(outputs, targets) / rows, gradient.numpy(), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_same_conventions_as_the_networks_losses(loss: LinearLoss) -> None:
    outputs, targets = batch(loss, 6, 1)
    torch_targets = torch.from_numpy(targets)
    if loss.task == "multiclass":
        torch_targets = torch_targets.long()
    value, gradient = Loss(loss.task).value_and_gradient(torch.from_numpy(outputs.copy()), torch_targets)
    assert loss.mean_loss(outputs, targets) == pytest.approx(float(value), rel=1e-12)
    np.testing.assert_allclose(loss.residuals(outputs, targets) / 6, gradient.numpy(), rtol=1e-9, atol=1e-14)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(LOSSES), st.integers(1, 9), st.integers(0, 2**31))
def test_curvature_is_the_slope_of_the_residuals(loss: LinearLoss, rows: int, seed: int) -> None:
    outputs, targets = batch(loss, rows, seed)
    direction = np.random.default_rng(seed + 1).standard_normal(outputs.shape)
    step = 1e-5
    ahead = loss.residuals(outputs + step * direction, targets)
    behind = loss.residuals(outputs - step * direction, targets)
    found = loss.curvature_times(loss.residuals(outputs, targets), direction)
    np.testing.assert_allclose(found, (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-8)
    # No direction is stretched by more than the smoothness.
    lengths = np.linalg.norm(direction, axis=1)
    assert (np.linalg.norm(found, axis=1) <= loss.smoothness * lengths * (1 + 1e-12)).all()


def test_by_hand() -> None:
    zero = np.zeros((1, 1))
    assert LinearLoss("binary").residuals(zero, np.array([1.0])).tolist() == [[-0.5]]
    assert LinearLoss("binary").mean_loss(zero, np.array([0.0])) == pytest.approx(math.log(2))
    assert LinearLoss("binary").curvature_times(np.array([[-0.5]]), np.array([[8.0]])).tolist() == [[2.0]]
    assert LinearLoss("multiclass", 2).residuals(np.zeros((1, 2)), np.array([1.0])).tolist() == [[0.5, -0.5]]
    # p = (1/2, 1/2): diag(p) − ppᵀ = ((1/4, −1/4), (−1/4, 1/4)), at its largest along (1, −1)
    found = LinearLoss("multiclass", 2).curvature_times(np.array([[0.5, -0.5]]), np.array([[1.0, -1.0]]))
    assert found.tolist() == [[0.5, -0.5]]
    assert [loss.smoothness for loss in LOSSES] == [0.25, 2.0, 0.5, 0.5]


@pytest.mark.parametrize("target", [0.0, 1.0])
@pytest.mark.parametrize("logit", [-800.0, -40.0, 40.0, 800.0])
def test_saturated_logits_keep_their_digits(logit: float, target: float) -> None:
    binary, softmax = LinearLoss("binary"), LinearLoss("multiclass", 2)
    one, two, targets = np.array([[logit]]), np.array([[0.0, logit]]), np.array([target])
    wrong_by = logit if target == 0 else -logit  # > 0 if the row is on the wrong side
    loss = wrong_by if wrong_by > 0 else math.exp(wrong_by)  # log(1 + eᶻ) to within e^{−40}
    residual = (1.0 if wrong_by > 0 else math.exp(wrong_by)) * (1 if target == 0 else -1)
    assert binary.residuals(one, targets)[0, 0] == pytest.approx(residual, rel=1e-14, abs=0)
    assert softmax.residuals(two, targets)[0] == pytest.approx([-residual, residual], rel=1e-14, abs=0)
    assert binary.mean_loss(one, targets) == pytest.approx(loss, rel=1e-14, abs=0)
    assert softmax.mean_loss(two, targets) == pytest.approx(loss, rel=1e-14, abs=0)
    curvature = softmax.curvature_times(softmax.residuals(two, targets), np.array([[1.0, 2.0]]))
    assert np.isfinite(curvature).all()
    assert np.abs(curvature).max() < 1e-15


def test_no_rows() -> None:
    loss = LinearLoss("multiclass", 3)
    assert loss.residuals(np.zeros((0, 3)), np.zeros(0)).shape == (0, 3)
    assert math.isnan(loss.mean_loss(np.zeros((0, 3)), np.zeros(0)))


def test_refusals() -> None:
    with pytest.raises(SettingsError, match="Did you mean 'binary'"):
        LinearLoss("binry")
    with pytest.raises(SettingsError, match="at least 2 outputs"):
        LinearLoss("multiclass", 1)
    with pytest.raises(SettingsError, match="one output"):
        LinearLoss("regression", 2)
    loss = LinearLoss("multiclass", 3)
    for wrong in (-1.0, 3.0, math.nan):
        with pytest.raises(DataError, match="classes 0 to 2"):
            loss.residuals(np.zeros((1, 3)), np.array([wrong]))
    with pytest.raises(DataError, match="one target per row"):
        loss.residuals(np.zeros((2, 3)), np.zeros(1))
    with pytest.raises(DataError, match="rows of 3 outputs"):
        loss.residuals(np.zeros((2, 1)), np.zeros(2))
    with pytest.raises(DataError, match="one row of direction"):
        loss.curvature_times(np.zeros((2, 3)), np.zeros((1, 3)))


@pytest.mark.parametrize("loss", LOSSES)
def test_an_output_s_own_curvature_is_the_diagonal_of_the_whole(loss: LinearLoss) -> None:
    generator = np.random.default_rng(3)
    outputs = generator.normal(size=(6, loss.outputs))
    targets = generator.normal(size=6) if loss.task == "regression" else generator.integers(0, max(2, loss.outputs), 6)
    residuals = loss.residuals(outputs, targets.astype(float))
    for output in range(loss.outputs):
        along = np.zeros_like(outputs)
        along[:, output] = 1.0
        assert np.allclose(loss.curvatures(residuals)[:, output], loss.curvature_times(residuals, along)[:, output])
    assert (loss.curvatures(residuals) <= loss.most_curvature_of_an_output).all()
