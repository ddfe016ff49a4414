"""The step of zeroth order that knows no scale: what it does not depend on, how far it goes; and defaults learn."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_regression

import colonnade
from colonnade import Cascaded, Dpzv, Training, Vafl, Zoo, ZooSync
from colonnade.algorithms.parts.optimiser import Optimiser, OptimiserSettings
from colonnade.algorithms.split_models.parts.steps import SlopeSpread
from colonnade.data.federated import FederatedData
from colonnade.data.loading import from_arrays
from colonnade.errors import SettingsError

FACTORS = st.floats(-4, 4).map(lambda power: 10.0**power)


def walked(gradients: list[torch.Tensor], walk: float = 5.0) -> torch.Tensor:
    """Where these gradients lead from zero, as many steps planned as there are."""
    weights = torch.zeros_like(gradients[0])
    settings = OptimiserSettings("scale-free", walk, planned_steps=len(gradients))
    optimiser = Optimiser([weights], settings)
    for gradient in gradients:
        optimiser.step([gradient])
    return weights


@given(factor=FACTORS, seed=st.integers(0, 99))
def test_a_loss_in_another_unit_leads_to_the_same_place(factor: float, seed: int) -> None:
    """Also columns in another unit: they multiply the gradient by the weights that belong to them."""
    drawn = torch.randn(20, 7, generator=torch.Generator().manual_seed(seed))
    here, there = walked([*drawn]), walked([*(drawn * factor)])
    torch.testing.assert_close(there, here, rtol=1e-4, atol=1e-5)


@given(factor=FACTORS, slopes=st.lists(st.floats(-3, 3).filter(lambda slope: abs(slope) > 0.01), min_size=1))
def test_the_relative_slope_has_no_unit_and_a_bound(factor: float, slopes: list[float]) -> None:
    here, there = SlopeSpread(), SlopeSpread()
    for slope in slopes:
        relative = here.relative(slope)
        assert there.relative(factor * slope) == pytest.approx(relative, rel=1e-6)
        assert abs(relative) <= 10


def test_the_spread_of_zeros_moves_nothing() -> None:
    spread = SlopeSpread()
    assert [spread.relative(0.0), spread.relative(0.0)] == [0.0, 0.0]
    assert spread.relative(-2.0) == pytest.approx(-math.sqrt(1 / (0.01 / (1 - 0.99**3))))


@pytest.mark.parametrize(("weights", "steps"), [(10, 400), (1000, 400), (1000, 50)])
def test_pure_noise_carries_the_weights_as_far_as_was_said(weights: int, steps: int) -> None:
    """R = 5, however many weights and steps."""
    generator = torch.Generator().manual_seed(1)
    ends = [walked([*torch.randn(steps, weights, generator=generator)]).norm() for _ in range(20)]
    assert torch.stack(ends).square().mean().sqrt() == pytest.approx(5.0, rel=1 / 3)  # moments start small


def test_a_step_after_the_planned_ones_is_a_twentieth_of_the_first() -> None:
    weights = torch.zeros(1)
    optimiser = Optimiser([weights], OptimiserSettings("scale-free", 0.05, planned_steps=3))
    places = [0.0]
    for _ in range(5):
        optimiser.step([torch.ones(1)])
        places.append(-weights.item())
    assert np.diff(places) / 0.05 == pytest.approx([1, 2 / 3, 1 / 3, 1 / 20, 1 / 20], rel=1e-5)


# --- what a user may ask for ------------------------------------------------------------------------------------


def small(kind: Any, **training: Any) -> dict[str, Any]:
    data = colonnade.dataset("iris", parties=2)
    given = {"epochs": 1, "evaluate_every_epochs": 0, **training}
    return colonnade.train(data, kind, training=Training(**given)).summary


def test_a_rate_of_the_users_own_is_the_plain_step() -> None:
    by_rate = small(Zoo(directions=1), learning_rate=0.001)
    assert small(Zoo(directions=1, step="plain"), learning_rate=0.001)["test"] == by_rate["test"]
    assert small(Zoo(directions=1), learning_rate=0.001, optimiser="sgd")["test"] == by_rate["test"]
    assert small(Zoo(directions=1, step="scale-free"), learning_rate=0.001)["test"] != by_rate["test"]


@pytest.mark.parametrize("kind", [Cascaded, Zoo, ZooSync, Dpzv])
def test_a_plain_step_needs_a_rate(kind: Any) -> None:
    with pytest.raises(SettingsError, match=r'step = "plain" needs training.learning_rate'):
        small(kind(step="plain"))
    with pytest.raises(SettingsError, match="scale-free"):
        kind(step="scalefree")


def test_an_algorithm_with_gradients_refuses_it() -> None:
    with pytest.raises(SettingsError, match="zeroth-order algorithms"):
        small(Vafl(), optimiser="scale-free")


# --- defaults learn ---------------------------------------------------------------------------------------------

POINTS = {"cascaded": 2.0, "zoo": 5.0, "zoo-sync": 5.0, "dpzv": 5.0}


@cache
def tumours() -> FederatedData:
    return colonnade.dataset("breast_cancer", parties=2)


@cache
def large_numbers() -> FederatedData:
    columns, target = make_regression(400, 8, n_informative=6, noise=60.0, random_state=3)
    return from_arrays(columns * 1e3, target * 1e4 - 7e5, parties=2, task="regression")


@cache
def scores(data: Callable[[], FederatedData], algorithm: str) -> dict[str, float]:
    return colonnade.train(data(), algorithm, training=Training(evaluate_every_epochs=0)).summary["test"]


@pytest.mark.parametrize("algorithm", POINTS)
def test_defaults_come_near_the_centralised_model_on_breast_cancer(algorithm: str) -> None:
    best, own = (scores(tumours, name)["accuracy"] for name in ("centralised", algorithm))
    assert 100 * (best - own) <= POINTS[algorithm]


@pytest.mark.parametrize("algorithm", POINTS)
def test_defaults_come_near_the_centralised_model_on_a_regression_of_large_numbers(algorithm: str) -> None:
    best, own = (scores(large_numbers, name)["r2"] for name in ("centralised", algorithm))
    assert 100 * (best - own) <= POINTS[algorithm]
