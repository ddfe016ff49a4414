"""Losses of linear models that are asked for by name: finite differences, bounds, and numbers worked by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import SettingsError
from colonnade.models.linear_loss import LinearLoss, LossName

BINARY: tuple[LossName, ...] = ("smoothed-hinge", "sigmoid")
REGRESSION: tuple[LossName, ...] = ("huber", "robust")
CONVEX = ("smoothed-hinge", "huber")
NAMED = (*BINARY, *REGRESSION)


def loss_of(name: LossName, scale: float = 1.0) -> LinearLoss:
    return LinearLoss("binary", 1, name) if name in BINARY else LinearLoss("regression", 1, name, scale)


def at(loss: LinearLoss, theta: float, y: float) -> tuple[float, float]:
    """The loss and its residual."""
    residuals, value = loss.residuals_and_mean_loss(np.array([[theta]]), np.array([y]))
    return value, float(residuals[0, 0])


def curvature(loss: LinearLoss, residual: float) -> float:
    return float(loss.curvature_times(np.array([[residual]]), np.ones((1, 1)))[0, 0])


rows = st.tuples(
    st.sampled_from(NAMED), st.floats(-8, 8), st.floats(-3, 3), st.booleans(), st.sampled_from([0.1, 1.0, 2.5])
)


def row(drawn: tuple[LossName, float, float, bool, float]) -> tuple[LinearLoss, float, float]:
    name, theta, number, positive, scale = drawn
    return loss_of(name, scale), theta, float(positive) if name in BINARY else number


@settings(max_examples=150, deadline=None)
@given(rows)
def test_the_residual_is_the_slope_of_the_loss(drawn: tuple[LossName, float, float, bool, float]) -> None:
    loss, theta, y = row(drawn)
    step = 1e-6
    slope = (at(loss, theta + step, y)[0] - at(loss, theta - step, y)[0]) / (2 * step)
    assert at(loss, theta, y)[1] == pytest.approx(slope, abs=1e-7 + 2 * step * loss.smoothness)
    assert abs(at(loss, theta, y)[1]) <= (1 + 1e-9) * loss.most_residual  # as parties judge what they are told


@settings(max_examples=150, deadline=None)
@given(rows)
def test_curvature_is_between_that_of_the_loss_and_its_bound(drawn: tuple[LossName, float, float, bool, float]) -> None:
    """Equal to it where the loss is convex and at least its magnitude where it is not, away from the kinks."""
    loss, theta, y = row(drawn)
    step = 1e-5
    ahead, behind = at(loss, theta + step, y)[1], at(loss, theta - step, y)[1]
    true, found = (ahead - behind) / (2 * step), curvature(loss, at(loss, theta, y)[1])
    assert 0 <= found <= loss.smoothness and abs(true) <= loss.smoothness * (1 + 1e-6)
    assert not loss.is_convex or true >= -1e-9
    kinked = loss.name in CONVEX and curvature(loss, ahead) != curvature(loss, behind)
    if not kinked:
        assert found >= abs(true) - 1e-4
        if loss.name in CONVEX or loss.name == "sigmoid":
            assert found == pytest.approx(abs(true), abs=1e-4)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(NAMED), st.integers(0, 2**31), st.sampled_from([0.2, 1.0]))
def test_many_rows_are_the_rows_one_by_one(name: LossName, seed: int, scale: float) -> None:
    loss, random = loss_of(name, scale), np.random.default_rng(seed)
    theta = 3 * random.standard_normal((7, 1))
    y = random.integers(0, 2, 7).astype(float) if name in BINARY else random.standard_normal(7)
    residuals, value = loss.residuals_and_mean_loss(theta, y)
    each = [at(loss, float(one), float(target)) for one, target in zip(theta[:, 0], y, strict=True)]
    assert value == pytest.approx(np.mean([one for one, _ in each]))
    assert residuals[:, 0].tolist() == [one for _, one in each]
    assert (loss.curvatures(residuals) == loss.curvature_times(residuals, np.ones((7, 1)))).all()
    assert loss.sure_curvature_times(residuals, theta) == pytest.approx(loss.smoothness * theta)


def test_by_hand() -> None:
    hinge, sigmoid = loss_of("smoothed-hinge"), loss_of("sigmoid")
    assert [at(hinge, theta, 1.0) for theta in (-2.0, 0.0, 0.5, 1.0, 3.0)] == [
        (2.5, -1.0),
        (0.5, -1.0),
        (0.125, -0.5),
        (0.0, 0.0),
        (0.0, 0.0),
    ]
    assert at(hinge, 2.0, 0.0) == (2.5, 1.0)
    assert [curvature(hinge, size) for size in (0.0, 0.5, -0.5, 1.0, -1.0)] == [0.0, 1.0, 1.0, 0.0, 0.0]
    assert at(sigmoid, 0.0, 1.0) == (0.5, -0.25) and at(sigmoid, 0.0, 0.0) == (0.5, 0.25)
    assert curvature(sigmoid, 0.25) == 0.0
    p = (1 - 1 / math.sqrt(3)) / 2  # where the sigmoid is most curved
    assert curvature(sigmoid, p * (1 - p)) == pytest.approx(sigmoid.smoothness) == pytest.approx(0.09622504)
    huber, robust = loss_of("huber", 0.5), loss_of("robust", 2.0)
    assert at(huber, 1.25, 1.0) == (0.0625, 0.5) and at(huber, 3.0, 1.0) == (1.75, 1.0)  # 0.5 (2·2 − 0.5)
    assert [curvature(huber, size) for size in (0.0, 0.9, 1.0)] == [2.0, 2.0, 0.0]
    assert at(robust, 3.0, 1.0) == (pytest.approx(4 * math.log(1.5)), pytest.approx(2 / 1.5))
    assert curvature(robust, 0.0) == 1.0 and curvature(robust, math.sqrt(2.0)) == pytest.approx(0.0, abs=1e-7)


def test_without_a_bend_in_reach_they_are_the_square_and_half_of_it() -> None:
    theta, y = np.array([[0.3], [-2.0]]), np.array([1.0, 0.5])
    square = LinearLoss("regression")
    assert (loss_of("huber", 10.0).residuals(theta, y) == square.residuals(theta, y)).all()
    assert loss_of("huber", 10.0).mean_loss(theta, y) == square.mean_loss(theta, y)
    assert loss_of("robust", 1e6).residuals(theta, y) == pytest.approx(square.residuals(theta, y) / 2)
    assert loss_of("robust", 1e4).mean_loss(theta, y) == pytest.approx(square.mean_loss(theta, y) / 2)


@pytest.mark.parametrize("name", NAMED)
def test_any_finite_output_gives_finite_numbers(name: LossName) -> None:
    loss = loss_of(name)
    for theta in (-1e300, -800.0, 800.0, 1e300):
        for y in (0.0, 1.0):
            value, residual = at(loss, theta, y)
            assert math.isfinite(value) and abs(residual) <= loss.most_residual
            assert 0 <= curvature(loss, residual) <= loss.smoothness
    assert abs(at(loss_of("sigmoid"), -40.0, 0.0)[1]) == pytest.approx(math.exp(-40), rel=1e-14, abs=0)


def test_the_least_loss_of_one_prediction() -> None:
    y = np.array([0.0, 0.0, 0.0, 1.0])
    assert loss_of("sigmoid").constant_loss(y) == pytest.approx(0.25, abs=0.01)
    # p (1/2 + t) + (1 − p)(1 − t)²/2 at t = 1 − p/(1 − p) = 2/3
    assert loss_of("smoothed-hinge").constant_loss(y) == pytest.approx(1 / 3, abs=0.01)
    assert loss_of("huber", 100.0).constant_loss(y) == pytest.approx(y.var())


def test_a_loss_of_another_task_is_refused() -> None:
    for name in BINARY:
        with pytest.raises(SettingsError, match=rf"algorithm\.loss = '{name}' is a loss for two classes.*'huber'"):
            LinearLoss("regression", 1, name)
        with pytest.raises(SettingsError, match=r"labels here are those of more than two classes\. Choose 'auto'\."):
            LinearLoss("multiclass", 3, name)
    with pytest.raises(SettingsError, match=r"is a loss for a regression.*Choose 'auto' or 'smoothed-hinge' or 'sig"):
        LinearLoss("binary", 1, "huber")
    with pytest.raises(SettingsError, match="Did you mean 'huber'"):
        LinearLoss("regression", 1, "hubber")  # type: ignore[arg-type]
    for scale in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(SettingsError, match=r"algorithm\.loss_scale is .*above 0"):
            LinearLoss("regression", 1, "huber", scale)
    with pytest.raises(SettingsError, match=r"algorithm\.loss = 'sigmoid' has no scale"):
        LinearLoss("binary", 1, "sigmoid", 2.0)
