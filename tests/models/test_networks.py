"""Networks against plain torch modules: the same outputs, gradients and states, either way."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from colonnade.errors import SettingsError
from colonnade.models.autograd import AutogradNetwork
from colonnade.models.dense import DenseNetwork, is_dense
from colonnade.models.layers import Bias, LastHidden, SumEmbeddings
from colonnade.models.network import initialise, network_for, output_width

KINDS = [DenseNetwork, AutogradNetwork]
ACTIVATIONS = [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity]


@st.composite
def dense_modules(draw: st.DrawFn) -> tuple[nn.Sequential, tuple[int, ...]]:
    """A random module that DenseNetwork must run, and the shape of its rows."""
    layers: list[nn.Module] = []
    width = draw(st.integers(1, 5))
    shape: tuple[int, ...] = (width,)
    front = draw(st.sampled_from(["none", "flatten", "sum"]))
    if front == "flatten":
        shape, width = (2, width), 2 * width
        layers.append(nn.Flatten())
    elif front == "sum":
        parties = draw(st.integers(1, 3))
        shape = (parties * width,)
        layers.append(SumEmbeddings([width] * parties))
    for _ in range(draw(st.integers(1, 3))):
        layers += [draw(st.sampled_from(ACTIVATIONS))() for _ in range(draw(st.integers(0, 2)))]
        if draw(st.booleans()):
            units = draw(st.integers(1, 5))
            layers.append(nn.Linear(width, units, bias=draw(st.booleans())))
            width = units
        else:
            layers.append(nn.Sequential(Bias(width)))  # nested, for the names in the state
    layers += [draw(st.sampled_from(ACTIVATIONS))() for _ in range(draw(st.integers(0, 2)))]
    return nn.Sequential(*layers), shape


def plain_torch(module: nn.Module, inputs: Tensor, output_gradient: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
    inputs = inputs.clone().requires_grad_()
    outputs = module(inputs)
    *gradients, input_gradient = torch.autograd.grad(
        outputs, [*module.parameters(), inputs], output_gradient, materialize_grads=True
    )
    return outputs.detach(), gradients, input_gradient


def as_torch(network: DenseNetwork | AutogradNetwork, gradients: list[Tensor]) -> list[Tensor]:
    """Gradients in torch's layout: dense networks keep weights as (in, out)."""
    return [g.t() for g in gradients] if isinstance(network, DenseNetwork) else gradients


def assert_all_close(ours: list[Tensor], theirs: list[Tensor]) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(dense_modules(), st.integers(0, 2**31), st.integers(0, 4), st.booleans())
def test_networks_equal_the_module(
    drawn: tuple[nn.Sequential, tuple[int, ...]], seed: int, rows: int, snapshots: bool
) -> None:
    module, shape = drawn
    initialise(module, seed)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, *shape, generator=generator)
    output_gradient = torch.randn(rows, output_width(module, shape), generator=generator)
    expected, gradients, input_gradient = plain_torch(module, inputs, output_gradient)
    assert is_dense(module)
    for kind in KINDS:
        network = kind(module, snapshots)
        given_inputs = inputs.clone()
        outputs, kept = network.forward(given_inputs)
        torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(network.embed(given_inputs), expected, rtol=1e-5, atol=1e-5)
        assert torch.equal(given_inputs, inputs)
        outputs.fill_(7.0)  # outputs belong to the caller
        ours, ours_input = network.backward(kept, output_gradient, input_gradient=True)
        assert_all_close(as_torch(network, ours), gradients)
        assert ours_input is not None
        torch.testing.assert_close(ours_input, input_gradient, rtol=1e-5, atol=1e-5)

        _, kept = network.forward(inputs)
        ours, nothing = network.backward(kept, output_gradient)
        assert nothing is None
        assert_all_close(as_torch(network, ours), gradients)

        _, kept = network.forward(inputs)
        _, columns = network.backward(kept, output_gradient, slice(1, 3))
        assert columns is not None
        torch.testing.assert_close(columns, input_gradient[:, 1:3], rtol=1e-5, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(dense_modules(), st.integers(0, 2**31))
def test_states_go_round_bit_for_bit(drawn: tuple[nn.Sequential, tuple[int, ...]], seed: int) -> None:
    module, shape = drawn
    initialise(module, seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.25)  # a Bias would be zero otherwise
    for kind in KINDS:
        network = kind(module)
        state = network.state()
        assert list(state) == list(module.state_dict())
        for name, tensor in module.state_dict().items():
            assert torch.equal(state[name], tensor) and state[name].is_contiguous()
        for parameter in network.parameters:
            with torch.no_grad():
                parameter.zero_()
        assert all(tensor.any() for tensor in state.values())  # clones
        assert all(parameter.any() for parameter in module.parameters())  # the given module is not touched
        assert not any(tensor.any() for tensor in network.module().state_dict().values())
        network.load(state)
        inputs = torch.randn(2, *shape)
        assert all(torch.equal(network.state()[name], state[name]) for name in state)
        torch.testing.assert_close(network.module()(inputs), network.embed(inputs))


@pytest.mark.parametrize("kind", KINDS)
def test_load_refuses_foreign_states(kind: type[DenseNetwork] | type[AutogradNetwork]) -> None:
    network = kind(nn.Linear(2, 3))
    with pytest.raises(SettingsError, match="missing \\['bias'\\], unexpected \\['offset'\\]"):
        network.load({"weight": torch.zeros(3, 2), "offset": torch.zeros(3)})
    with pytest.raises(SettingsError, match="'weight' has shape \\(2, 3\\) and should have \\(3, 2\\)"):
        network.load({"weight": torch.zeros(2, 3), "bias": torch.zeros(3)})


class Custom(nn.Module):
    """A user's module, which nobody can look into."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)
        self.unused = nn.Linear(1, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.inner(inputs).sin()


def tied() -> nn.Module:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.ReLU(), layer)


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    module[0].requires_grad_(False)
    return module


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 2))
    module[0].register_forward_hook(lambda _module, _inputs, outputs: 2 * outputs)
    return module


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(24, 3))


def recurrent() -> nn.Module:
    return nn.Sequential(LastHidden(2, 5), nn.Linear(5, 2))


OTHERS = [
    (Custom, (4,)),
    (tied, (3,)),
    (frozen, (3,)),
    (hooked, (3,)),
    (convolutional, (1, 3, 4)),
    (recurrent, (6, 2)),
    (nn.Flatten, (2, 3)),
    (lambda: nn.Sequential(nn.ReLU(inplace=True), nn.LayerNorm(3), nn.Linear(3, 2)), (3,)),
]


@pytest.mark.parametrize("snapshots", [False, True])
@pytest.mark.parametrize(("build", "shape"), OTHERS)
def test_other_modules_go_through_autograd(build: type[nn.Module], shape: tuple[int, ...], snapshots: bool) -> None:
    module = build()
    network = network_for(module, snapshots)
    assert isinstance(network, AutogradNetwork)
    network.generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(5, *shape)
    before = inputs.clone()
    output_gradient = torch.randn(5, output_width(module, shape))
    outputs, kept = network.forward(inputs)
    gradients, input_gradient = network.backward(kept, output_gradient, True)
    assert torch.equal(inputs, before)

    leaf = inputs.clone().requires_grad_()
    expected = module(leaf.clone())
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    *theirs, their_input = torch.autograd.grad(expected, [*trained, leaf], output_gradient, materialize_grads=True)
    torch.testing.assert_close(outputs, expected.detach())
    assert_all_close(gradients, theirs)
    torch.testing.assert_close(input_gradient, their_input)
    # Buffers moved as the module's own did (BatchNorm), and are part of the state.
    for name, tensor in module.state_dict().items():
        torch.testing.assert_close(network.state()[name], tensor)
    torch.testing.assert_close(network.embed(inputs), network.module()(inputs.clone()).detach())


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), (3,)),
        (Custom(), (4,)),
        (recurrent(), (6, 2)),
    ],
)
def test_snapshots_answer_for_the_parameters_of_their_forward(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Two uploads in flight, and an update before each answer."""
    network = network_for(module, snapshots=True)
    network.generator = torch.Generator().manual_seed(1)
    batches = [torch.randn(3, *shape), torch.randn(3, *shape)]
    gradient = torch.randn(3, 2 if isinstance(module, nn.Sequential) else 3)
    expected, passes = [], []
    for inputs in batches:
        expected.append(plain_torch(network.module(), inputs, gradient))
        passes.append(network.forward(inputs))
        with torch.no_grad():
            for parameter in network.parameters:
                parameter.add_(0.5)
    for (_, theirs, their_input), (_, kept) in zip(expected, passes, strict=True):
        ours, input_gradient = network.backward(kept, gradient, True)
        assert_all_close(as_torch(network, ours), theirs)
        torch.testing.assert_close(input_gradient, their_input)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_is_used_once(kind: type[DenseNetwork] | type[AutogradNetwork]) -> None:
    network = kind(nn.Linear(2, 3))
    _, kept = network.forward(torch.ones(1, 2))
    network.backward(kept, torch.ones(1, 3))
    with pytest.raises(ValueError, match="earlier backward"):
        network.backward(kept, torch.ones(1, 3))


def test_integer_inputs() -> None:
    network = network_for(nn.Sequential(nn.Embedding(5, 2), nn.Flatten()))
    outputs, kept = network.forward(torch.tensor([[1, 1], [4, 0]]))
    (gradient,), _ = network.backward(kept, torch.ones_like(outputs))
    assert gradient.tolist() == [[1, 1], [2, 2], [0, 0], [0, 0], [1, 1]]  # how often each row was looked up
    _, kept = network.forward(torch.tensor([[1, 1]]))
    with pytest.raises(ValueError, match="no gradient"):
        network.backward(kept, torch.ones(1, 4), input_gradient=True)


def test_dense_networks_refuse_what_they_cannot_run() -> None:
    with pytest.raises(SettingsError, match="network_for"):
        DenseNetwork(Custom())
    with pytest.raises(SettingsError, match="Flatten"):
        DenseNetwork(nn.Linear(2, 3)).embed(torch.zeros(4, 5, 2))


def test_output_width() -> None:
    module = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(4), nn.Linear(4, 6))
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    assert output_width(module, (4,)) == 6
    assert module.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    with pytest.raises(SettingsError, match="cannot take rows of shape \\(5,\\)"):
        output_width(module, (5,))
    with pytest.raises(SettingsError, match="output of shape \\(1, 3, 2\\)"):
        output_width(nn.Linear(4, 2), (3, 4))
