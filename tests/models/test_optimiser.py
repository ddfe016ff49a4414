"""Optimisers against torch.optim, and the regularisers by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from colonnade.algorithms.parts.optimiser import Optimiser, OptimiserSettings
from colonnade.errors import SettingsError


def some_tensors(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator) for size in ((3, 2), (2,), (1, 4))]


def torch_twin(choice: OptimiserSettings, parameters: list[Tensor]) -> torch.optim.Optimizer:
    if choice.name == "adam":
        betas = (choice.beta1, choice.beta2)
        return torch.optim.Adam(parameters, choice.learning_rate, betas, weight_decay=choice.l2)
    momentum = choice.momentum if choice.name == "momentum" else 0
    return torch.optim.SGD(parameters, choice.learning_rate, momentum, weight_decay=choice.l2)


@pytest.mark.parametrize("l2", [0.0, 0.1])
@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_equal_to_torch_over_many_steps(name: str, leaves: bool, l2: float) -> None:
    choice = OptimiserSettings(name, learning_rate=0.02, l2=l2)
    ours = [tensor.requires_grad_(leaves) for tensor in some_tensors(0)]
    theirs = [tensor.requires_grad_() for tensor in some_tensors(0)]
    optimiser, twin = Optimiser(ours, choice), torch_twin(choice, theirs)
    for step in range(200):
        gradients = some_tensors(step + 1)
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        twin.step()
        optimiser.step(gradients)
        assert all(map(torch.equal, gradients, some_tensors(step + 1)))  # gradients are only read
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_resumed_from_its_state(name: str) -> None:
    choice = OptimiserSettings(name, learning_rate=0.1, l1=0.01, l2=0.01)
    straight = some_tensors(0)
    optimiser = Optimiser(straight, choice)
    optimiser.step(some_tensors(1))
    resumed = [tensor.clone() for tensor in straight]
    state = optimiser.state()
    optimiser.step(some_tensors(2))
    successor = Optimiser(resumed, choice)
    successor.load(state)
    successor.step(some_tensors(2))
    assert all(map(torch.equal, straight, resumed))


def test_momentum_and_l2_by_hand() -> None:
    """θ = g = 1, l2 = 0.5, rate 0.1: the gradient is 1.5, θ is 0.85; then v = 0.5·1.5 + 1 + 0.425 = 2.175."""
    weight = torch.tensor([1.0])
    optimiser = Optimiser([weight], OptimiserSettings("momentum", learning_rate=0.1, momentum=0.5, l2=0.5))
    optimiser.step([torch.tensor([1.0])])
    assert weight.item() == pytest.approx(0.85)
    optimiser.step([torch.tensor([1.0])])
    assert weight.item() == pytest.approx(0.85 - 0.2175)


def test_l1_is_a_soft_threshold_after_the_update() -> None:
    """Rate 0.5 and l1 = 0.2: a weight moves by −0.5 g, then by 0.1 towards zero, without crossing it."""
    weight = torch.tensor([1.0, -1.0, 0.05, -0.1, 0.6])
    optimiser = Optimiser([weight], OptimiserSettings(learning_rate=0.5, l1=0.2))
    optimiser.step([torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0])])
    torch.testing.assert_close(weight, torch.tensor([0.9, -0.9, 0.0, 0.0, 0.0]))
    assert weight[2:4].tolist() == [0, 0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=5), st.floats(0, 2), st.floats(0, 2))
def test_the_proximal_step_is_softshrink(values: list[float], rate: float, l1: float) -> None:
    weight = torch.tensor(values)
    expected = torch.nn.functional.softshrink(weight, rate * l1)
    Optimiser([weight], OptimiserSettings(learning_rate=rate, l1=l1)).step([torch.zeros_like(weight)])
    torch.testing.assert_close(weight, expected)


def test_nothing_to_optimise() -> None:
    for name in ("sgd", "momentum", "adam"):
        optimiser = Optimiser([], OptimiserSettings(name, l1=0.1, l2=0.1))
        optimiser.step([])
        assert optimiser.state() == ({"steps": torch.tensor(0)} if name == "adam" else {})


def test_foreign_states_are_refused() -> None:
    adam = Optimiser(some_tensors(0), OptimiserSettings("adam"))
    with pytest.raises(SettingsError, match=r"'adam' with 3 tensors: moment2\.0"):
        adam.load({k: v for k, v in adam.state().items() if k != "moment2.0"})
    with pytest.raises(SettingsError, match=r"moment1\.1"):
        adam.load({**adam.state(), "moment1.1": torch.zeros(7)})
    with pytest.raises(SettingsError, match="steps"):
        Optimiser(some_tensors(0), OptimiserSettings()).load({"steps": torch.tensor(1)})


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("learning_rate", -0.1),
        ("learning_rate", math.nan),
        ("momentum", 1.0),
        ("beta2", 1.5),
        ("l1", -1.0),
        ("l2", math.inf),
    ],
)
def test_bad_settings_are_refused(setting: str, value: float) -> None:
    with pytest.raises(SettingsError, match=f"'{setting}' is {value}"):
        OptimiserSettings(**{setting: value})


def test_misspelt_names_offer_the_nearest_optimiser() -> None:
    with pytest.raises(SettingsError, match="Did you mean 'adam'"):
        OptimiserSettings("adm")
