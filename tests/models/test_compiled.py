"""Compiled modules: the same training, the weights of the module itself, and one sentence where it cannot be done."""

from typing import Any

import pytest
import torch
from torch import nn

import colonnade
from colonnade.errors import SettingsError
from colonnade.models import compiled
from colonnade.models.autograd import AutogradNetwork
from colonnade.models.flat import FlatModel
from colonnade.models.network import network_for


class Bent(nn.Module):
    """Not of dense layers alone, so that torch runs it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.sin(self.inner(inputs))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """In the place of the compiler: which modules it was given, called as they are."""
    given: list[nn.Module] = []

    def take(module: nn.Module) -> Any:
        given.append(module)
        return module

    monkeypatch.setattr(compiled, "_compile", take)
    return given


def test_pytorch_traces_a_module_and_gives_its_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the compiler in C++ behind it, which takes long: operation by operation."""
    monkeypatch.setattr(compiled, "_compile", lambda module: torch.compile(module, backend="eager"))
    module, rows = Bent(), torch.randn(4, 3)
    found = []
    for network in (AutogradNetwork(module), AutogradNetwork(module, compiled=True)):
        network.generator = torch.Generator().manual_seed(0)
        outputs, kept = network.forward(rows)
        gradients, _ = network.backward(kept, torch.ones_like(outputs))
        found.append([outputs, *gradients])
    for plain, traced in zip(*found, strict=True):
        torch.testing.assert_close(traced, plain, rtol=0, atol=0)


def test_a_training_is_that_of_the_module_as_it_is(asked: list[nn.Module]) -> None:
    data = colonnade.dataset("iris", parties=1)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(data.columns["party1"].shape[0], 3), Bent())
    weights = []
    for compile_ in (False, True):
        training = colonnade.Training(epochs=2, batch_size=32, compile=compile_)
        outcome = colonnade.train(data, "vafl", bottom={"party1": module}, training=training)
        weights.append(outcome.models["party1"]["bottom"].state_dict())
        assert len(asked) == compile_  # the top is of dense layers: its closed form is faster than any compiler
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("name", ["split", "cascaded", "zoo", "czofo", "dpzv"])
def test_every_kind_of_party_asks_for_it(asked: list[nn.Module], name: str) -> None:
    """Bottoms of first order, of zeroth order, and those that perturb embeddings; tops."""
    data = colonnade.dataset("iris", parties=1, max_rows=40)
    columns = data.columns["party1"].shape[0]
    bottom = nn.Sequential(nn.Linear(columns, 3), Bent())
    top = nn.Sequential(nn.Linear(2, 3), Bent(), nn.Linear(2, 3))
    training = colonnade.Training(epochs=0.5, batch_size=8, compile=True)
    colonnade.train(data, name, bottom={"party1": bottom}, top=top, training=training)
    assert {len(one) for one in asked if isinstance(one, nn.Sequential)} == {2, 3}


def test_what_cannot_be_compiled_is_called_as_it_is(asked: list[nn.Module]) -> None:
    stump = FlatModel(torch.ones(1), lambda w, x: x * w)
    assert network_for(stump, compiled=True).embed(torch.ones(2, 1)).tolist() == [[1], [1]]
    assert network_for(nn.Linear(3, 2), compiled=True) is not None
    assert asked == []


def test_one_sentence_says_what_compiling_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.exc import TorchDynamoException

    def fails(inputs: torch.Tensor) -> torch.Tensor:
        raise TorchDynamoException("no compiler\nand a long trace")

    monkeypatch.setattr(compiled, "_compile", lambda module: fails)
    with pytest.raises(SettingsError, match=r"cannot compile the model Bent here \(no compiler\)"):
        AutogradNetwork(Bent(), compiled=True).embed(torch.ones(2, 3))
