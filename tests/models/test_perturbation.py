"""Perturbed embeddings: the noise has its distribution, the clip its gradient, and the release its event."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from colonnade.errors import SettingsError
from colonnade.models.autograd import AutogradNetwork
from colonnade.models.dense import DenseNetwork
from colonnade.models.network import initialise
from colonnade.privacy.events import PrivacyEvent
from colonnade.privacy.noise import LayerNoise, PerturbationSettings
from colonnade.privacy.secret_gaussian import SecretGaussian

DRAWS = 40_000


def noise_with(seed: int = 1, **settings: float) -> LayerNoise:
    return LayerNoise(PerturbationSettings(**settings), torch.Generator().manual_seed(seed), SecretGaussian(seed))


def assert_statistics(draws: Tensor, deviation: float, kurtosis: float) -> None:
    """Mean and variance within 4 standard errors: one seed in 15,000 would fail, and ours is fixed."""
    count = draws.numel()
    assert abs(float(draws.mean())) < 4 * deviation / math.sqrt(count)
    error = deviation**2 * math.sqrt((kurtosis - 1) / count)
    assert abs(float(draws.var()) - deviation**2) < 4 * error


def test_the_last_layer_gets_gaussian_noise() -> None:
    draws = noise_with(noise=0.3).last(torch.zeros(DRAWS, 2))
    assert_statistics(draws, 0.3, kurtosis=3)
    assert abs(float((draws.abs() < 0.3).double().mean()) - 0.6827) < 0.01


def test_inner_layers_get_uniform_noise() -> None:
    draws = noise_with(inner_noise=0.3).inner(torch.zeros(DRAWS, 2))
    assert_statistics(draws, 0.3, kurtosis=9 / 5)
    bound = math.sqrt(3) * 0.3
    assert 0.99 * bound < float(draws.max()) <= bound
    assert -bound <= float(draws.min()) < -0.99 * bound


def two_layers(last: nn.Module) -> nn.Sequential:
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 5), last)
    initialise(module, 2)
    return module.double()


@pytest.mark.parametrize("training", [False, True])
def test_dense_networks_perturb_as_in_the_paper(training: bool) -> None:
    """u_1 = tanh(W_1 x + b_1 + Z_1), u_2 = relu(clip(W_2 u_1 + b_2) + Z_2), with the same draws by hand."""
    module = two_layers(nn.ReLU())
    settings = PerturbationSettings(noise=0.2, inner_noise=0.5, clip=0.4)
    inputs = torch.randn(6, 3, dtype=torch.float64)
    network = DenseNetwork(module)
    noise = LayerNoise(settings, torch.Generator().manual_seed(9), SecretGaussian(9))
    outputs = network.forward(inputs, noise)[0] if training else network.embed(inputs, noise)

    generator = torch.Generator().manual_seed(9)
    uniform = torch.rand(6, 4, generator=generator, dtype=torch.float64) * 2 - 1
    normal = SecretGaussian(9).normals(30).view(6, 5)
    hidden = torch.tanh(module[0](inputs) + math.sqrt(3) * 0.5 * uniform)
    pre_activation = module[2](hidden)
    clipped = pre_activation * torch.clamp(0.4 / pre_activation.norm(dim=1, keepdim=True), max=1)
    torch.testing.assert_close(outputs, torch.relu(clipped + 0.2 * normal).detach(), rtol=1e-5, atol=1e-6)


def test_both_networks_agree_when_the_last_activation_is_the_identity() -> None:
    module = two_layers(nn.Identity())
    inputs = torch.randn(6, 3, dtype=torch.float64)
    gradient = torch.randn(6, 5, dtype=torch.float64)
    results = []
    for network in (DenseNetwork(module), AutogradNetwork(module)):
        noise = noise_with(noise=0.2, inner_noise=0.5, clip=0.4)
        embedded = network.embed(inputs, noise)
        outputs, kept = network.forward(inputs, noise)
        gradients, input_gradient = network.backward(kept, gradient, True)
        if isinstance(network, DenseNetwork):
            gradients = [tensor.t() for tensor in gradients]
        results.append([embedded, outputs, *gradients, input_gradient])
    for dense, autograd in zip(*results, strict=True):
        torch.testing.assert_close(dense, autograd)


@pytest.mark.parametrize("noise_deviation", [0.0, 0.2])
@pytest.mark.parametrize("last", [nn.Identity, nn.ReLU, nn.Tanh])
@pytest.mark.parametrize("kind", [DenseNetwork, AutogradNetwork])
def test_gradients_through_the_clip_equal_finite_differences(
    kind: type[DenseNetwork] | type[AutogradNetwork], last: type[nn.Module], noise_deviation: float
) -> None:
    module = two_layers(last())
    network = kind(module)
    inputs = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weights = torch.randn(8, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    # The clip falls between the lengths of the fourth and the fifth row: half of the rows are clipped.
    released = AutogradNetwork(module) if kind is AutogradNetwork else DenseNetwork(module[:3])
    lengths = released.embed(inputs, noise_with(inner_noise=0.1)).norm(dim=1).sort().values
    clip = float(lengths[3:5].mean())

    def objective() -> float:
        noise = noise_with(noise=noise_deviation, inner_noise=0.1, clip=clip)
        return float((network.embed(inputs, noise) * weights).sum())

    outputs, kept = network.forward(inputs, noise_with(noise=noise_deviation, inner_noise=0.1, clip=clip))
    outputs.fill_(0.0)  # belongs to us
    gradients, _ = network.backward(kept, weights)
    step = 1e-4  # far above the grid on which noise is added
    for parameter, gradient in zip(network.parameters, gradients, strict=True):
        values = parameter.detach().view(-1)
        for index in range(values.numel()):
            values[index] += step
            above = objective()
            values[index] -= 2 * step
            below = objective()
            values[index] += step
            assert gradient.reshape(-1)[index].item() == pytest.approx((above - below) / (2 * step), abs=2e-5)


def test_clipped_rows_by_hand() -> None:
    """The row (3, 4) of norm 5 is clipped to (0.6, 0.8); the row (0.3, 0.4) is short enough.

    The gradient (1, 0) of the clipped row loses its part along (0.6, 0.8) and is divided by 5: (0.64,
    −0.48)/5.
    """
    network = DenseNetwork(nn.Linear(2, 2, bias=False))
    network.load({"weight": torch.eye(2)})
    outputs, kept = network.forward(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), noise_with(clip=1.0))
    torch.testing.assert_close(outputs, torch.tensor([[0.6, 0.8], [0.3, 0.4]]))
    _, gradient = network.backward(kept, torch.tensor([[1.0, 0.0], [1.0, 0.0]]), True)
    torch.testing.assert_close(gradient, torch.tensor([[0.128, -0.096], [1.0, 0.0]]))


def test_autograd_networks_leave_no_hooks_behind() -> None:
    network = AutogradNetwork(nn.Sequential(nn.Conv1d(1, 2, 1), nn.Flatten(), nn.Linear(6, 2)))
    inputs = torch.ones(2, 1, 3)
    plain = network.embed(inputs)
    assert not torch.equal(network.embed(inputs, noise_with(inner_noise=1.0)), plain)
    assert torch.equal(network.embed(inputs), plain)


def test_a_row_of_zeros_survives_the_clip() -> None:
    for network in (DenseNetwork(nn.Linear(2, 2)), AutogradNetwork(nn.Linear(2, 2))):
        network.load({"weight": torch.eye(2), "bias": torch.zeros(2)})
        outputs, kept = network.forward(torch.zeros(1, 2), noise_with(clip=1.0))
        gradients, _ = network.backward(kept, torch.ones(1, 2))
        assert outputs.tolist() == [[0, 0]] and gradients[1].tolist() == [1, 1]


def test_events() -> None:
    noise = noise_with(noise=3.0, clip=0.5)
    ids = np.array([4, 9])
    event = noise.event(2, protects="row", viewers=["label"], row_ids=ids)
    assert event == PrivacyEvent("gaussian", 1.0, 3.0, 2, protects="row", viewers=("label",))
    assert event.row_ids is ids and "4" not in repr(event)
    assert noise_with(clip=0.5, inner_noise=1.0).event(2, "row", ["label"]) is None
    unbounded = noise_with(noise=3.0).event(2, "row", ["label"])
    assert unbounded is not None and unbounded.sensitivity == math.inf


@pytest.mark.parametrize("setting", ["noise", "inner_noise", "clip"])
@pytest.mark.parametrize("value", [-0.1, math.inf, math.nan])
def test_bad_perturbations_are_refused(setting: str, value: float) -> None:
    with pytest.raises(SettingsError, match=f"'{setting}' is {value}"):
        PerturbationSettings(**{setting: value})


def test_bad_events_are_refused() -> None:
    with pytest.raises(SettingsError, match="without noise has no event"):
        PrivacyEvent("gaussian", 1.0, 0.0, 2, protects="row", viewers=())
    with pytest.raises(SettingsError, match="counts 2 rows and lists 3"):
        PrivacyEvent("gaussian", 1.0, 1.0, 2, protects="row", viewers=(), row_ids=np.arange(3))
