"""Models draw from the seed or generator they are given; the global generator is neither read nor moved."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from colonnade.errors import SettingsError
from colonnade.models.bottom import BottomSettings, build_bottom
from colonnade.models.network import initialise, network_for
from colonnade.models.randomness import is_random
from colonnade.models.top import TopSettings, build_top


@pytest.fixture(autouse=True)
def global_generator_stays_put() -> Iterator[None]:
    torch.manual_seed(123)
    yield
    ours = torch.rand(3)
    torch.manual_seed(123)
    assert torch.equal(ours, torch.rand(3))


class Noisy(nn.Module):
    """Random in inference mode too, as only a user's module can be."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + torch.randn_like(inputs)


def dropout_outputs(seed: int, passes: int) -> list[Tensor]:
    with torch.random.fork_rng():
        module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    initialise(module, 4)
    network = network_for(module)
    network.generator = torch.Generator().manual_seed(seed)
    return [network.forward(torch.ones(2, 8))[0] for _ in range(passes)]


def test_dropout_follows_from_the_generator() -> None:
    first, second = dropout_outputs(1, 2)
    again = dropout_outputs(1, 2)
    assert torch.equal(first, again[0]) and torch.equal(second, again[1])
    assert not torch.equal(first, second)
    assert not torch.equal(first, dropout_outputs(2, 1)[0])
    assert (first == 0).any()


def test_dropout_gradients_use_the_same_mask() -> None:
    network = network_for(nn.Sequential(nn.Identity(), nn.Dropout(0.5)))
    network.generator = torch.Generator().manual_seed(3)
    outputs, kept = network.forward(torch.ones(4, 6))
    _, gradient = network.backward(kept, torch.ones(4, 6), True)
    assert gradient is not None and torch.equal(gradient, outputs)  # both are the mask / 0.5
    assert torch.equal(network.embed(torch.ones(4, 6)), torch.ones(4, 6))


def test_random_modules_in_inference_give_one_answer_and_draw_nothing() -> None:
    network = network_for(Noisy())
    generator = network.generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    inputs = torch.zeros(2, 3)
    assert torch.equal(network.embed(inputs), network.embed(inputs))
    assert torch.equal(generator.get_state(), before)
    assert not torch.equal(network.forward(inputs)[0], network.forward(inputs)[0])


def test_a_random_module_needs_a_generator() -> None:
    with pytest.raises(SettingsError, match=r"network\.generator"):
        network_for(nn.Sequential(nn.Dropout())).forward(torch.ones(1, 1))


def test_which_modules_are_random() -> None:
    for kind, shape in [("linear", (3,)), ("mlp", (3,)), ("cnn", (4, 4)), ("lstm", (4, 4)), ("multi-view", (2, 4, 4))]:
        with torch.random.fork_rng():
            assert not is_random(build_bottom(BottomSettings(kind), shape))
    with torch.random.fork_rng():
        assert not is_random(build_top(TopSettings("sum"), [1, 1], 1))
        assert is_random(nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.Dropout())))
        assert is_random(nn.LSTM(2, 2, num_layers=2, dropout=0.1))
        assert not is_random(nn.LSTM(2, 2))
    assert is_random(Noisy())


def test_initial_weights_follow_from_the_seed_alone() -> None:
    with torch.random.fork_rng():
        one = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
        two = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    with torch.no_grad():
        one[1].weight.fill_(9)
    initialise(one, 5)
    initialise(two, 5)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    initialise(two, 6)
    assert not torch.equal(one[0].weight, two[0].weight)
