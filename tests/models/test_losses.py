"""Losses against torch's, their gradients against autograd's, and metrics against scikit-learn's."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics
from torch import Tensor
from torch.nn import functional

from colonnade.algorithms.parts.losses import Loss, headline, metrics
from colonnade.errors import DataError, SettingsError


def batch(task: str, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    outputs = 3 * torch.randn(rows, Loss.outputs(task, 4), generator=generator)
    if task == "multiclass":
        return outputs, torch.randint(0, 4, (rows,), generator=generator)
    if task == "binary":
        return outputs, torch.randint(0, 2, (rows,), generator=generator).float()
    return outputs, torch.randn(rows, generator=generator)


def torch_loss(task: str, outputs: Tensor, targets: Tensor) -> Tensor:
    if task == "multiclass":
        return functional.cross_entropy(outputs, targets)
    if task == "binary":
        return functional.binary_cross_entropy_with_logits(outputs[:, 0], targets)
    return functional.mse_loss(outputs[:, 0], targets)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["binary", "multiclass", "regression"]), st.integers(1, 9), st.integers(0, 2**31))
def test_values_and_gradients_equal_torch(task: str, rows: int, seed: int) -> None:
    outputs, targets = batch(task, rows, seed)
    before = outputs.clone()
    value, gradient = Loss(task).value_and_gradient(outputs, targets)
    assert torch.equal(outputs, before)
    leaf = outputs.clone().requires_grad_()
    expected = torch_loss(task, leaf, targets)
    (expected_gradient,) = torch.autograd.grad(expected, leaf)
    assert value.shape == ()
    torch.testing.assert_close(value, expected.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-5, atol=1e-6)
    per_row = Loss(task).per_row(outputs, targets)
    assert per_row.shape == (rows,)
    torch.testing.assert_close(per_row.mean(), value, rtol=1e-5, atol=1e-6)


def test_large_logits_stay_finite() -> None:
    for task, outputs, targets in [
        ("binary", torch.tensor([[1000.0], [-1000.0]]), torch.tensor([0.0, 1.0])),
        ("multiclass", torch.tensor([[1000.0, -1000.0], [-1000.0, 1000.0]]), torch.tensor([1, 0])),
    ]:
        value, gradient = Loss(task).value_and_gradient(outputs, targets)
        assert float(value) == pytest.approx(1000.0 if task == "binary" else 2000.0)
        assert gradient.abs().sum().item() == pytest.approx(1.0 if task == "binary" else 2.0)


def test_targets_of_any_numeric_type_and_of_column_shape() -> None:
    outputs, targets = batch("binary", 5, 0)
    expected = Loss("binary").value_and_gradient(outputs, targets)
    for variant in (targets.long(), targets.double(), targets[:, None]):
        value, gradient = Loss("binary").value_and_gradient(outputs, variant)
        assert torch.equal(value, expected[0]) and torch.equal(gradient, expected[1])


def test_misfitting_targets_do_not_broadcast() -> None:
    with pytest.raises(DataError, match="\\(3, 1\\) for targets of shape \\(4,\\)"):
        Loss("regression").value_and_gradient(torch.zeros(3, 1), torch.zeros(4))


def test_binary_metrics_equal_scikit_learn() -> None:
    outputs, targets = batch("binary", 60, 1)
    ours = metrics("binary", outputs, targets)
    labels, scores = targets.numpy(), torch.sigmoid(outputs[:, 0].double()).numpy()
    assert ours == {
        "accuracy": pytest.approx(sklearn_metrics.accuracy_score(labels, scores > 0.5)),
        "log_loss": pytest.approx(sklearn_metrics.log_loss(labels, scores)),
        "auc": pytest.approx(sklearn_metrics.roc_auc_score(labels, scores)),
        "f1": pytest.approx(sklearn_metrics.f1_score(labels, scores > 0.5)),
    }


def test_multiclass_metrics_equal_scikit_learn() -> None:
    outputs, targets = batch("multiclass", 60, 1)
    ours = metrics("multiclass", outputs, targets)
    labels, scores = targets.numpy(), torch.softmax(outputs.double(), 1).numpy()
    one_against_rest = [sklearn_metrics.roc_auc_score(labels == k, scores[:, k]) for k in range(4)]
    assert ours == {
        "accuracy": pytest.approx(sklearn_metrics.accuracy_score(labels, scores.argmax(1))),
        "log_loss": pytest.approx(sklearn_metrics.log_loss(labels, scores)),
        "auc": pytest.approx(np.mean(one_against_rest)),
        "f1": pytest.approx(sklearn_metrics.f1_score(labels, scores.argmax(1), average="macro")),
    }


def test_equal_scores_count_half_as_scikit_learn_counts_them() -> None:
    outputs, targets = batch("binary", 60, 1)
    tied = (outputs * 2).round() / 2
    assert len(tied.unique()) < len(tied) / 2
    expected = sklearn_metrics.roc_auc_score(targets.numpy(), tied[:, 0].numpy())
    assert metrics("binary", tied, targets)["auc"] == pytest.approx(expected)


def test_two_logits_are_as_good_as_one() -> None:
    outputs, targets = batch("binary", 40, 2)
    two = metrics("multiclass", torch.cat([torch.zeros_like(outputs), outputs], 1), targets.long())
    one = metrics("binary", outputs, targets)
    assert two.pop("f1") != one.pop("f1")  # of several classes it is the mean over them, of two that of the second
    assert two == pytest.approx(one)


def test_regression_metrics_by_hand() -> None:
    """Errors 1, 1, 2 of targets 0, 3, 6: mean square 2, variance 6, r2 = 1 − 2/6."""
    ours = metrics("regression", torch.tensor([[1.0], [2.0], [8.0]]), torch.tensor([0.0, 3.0, 6.0]))
    assert ours == pytest.approx({"rmse": math.sqrt(2), "r2": 2 / 3})


def test_metrics_that_are_not_defined_are_left_out() -> None:
    assert "auc" not in metrics("binary", torch.randn(3, 1), torch.ones(3))
    assert "auc" not in metrics("multiclass", torch.randn(3, 3), torch.tensor([0, 1, 1]))
    assert "auc" not in metrics("binary", torch.tensor([[math.nan], [0.0]]), torch.tensor([0.0, 1.0]))
    assert "r2" not in metrics("regression", torch.randn(3, 1), torch.ones(3))
    with pytest.raises(DataError, match="0 outputs and 0 targets"):
        metrics("binary", torch.zeros(0, 1), torch.zeros(0))


def test_tasks() -> None:
    assert [headline(task) for task in ("binary", "multiclass", "regression")] == [
        "accuracy",
        "accuracy",
        "rmse",
    ]
    assert [Loss.outputs(task, 10) for task in ("binary", "multiclass", "regression")] == [1, 10, 1]
    with pytest.raises(SettingsError, match="at least 2 classes"):
        Loss.outputs("multiclass", 1)
    for function in (Loss, headline):
        with pytest.raises(SettingsError, match="Did you mean 'multiclass'"):
            function("multi-class")
