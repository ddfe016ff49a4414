"""Bottom models that learn in private: DP-SGD equals its slow twin and is spent before it shows; frozen is frozen."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recorded_runs import read_run
from torch import nn

from colonnade import Czofo, PerturbationSettings, SettingsError, Simulate, SimulatedParty, Split, Vafl
from colonnade.algorithms.seats import FeatureSeat
from colonnade.algorithms.split_models.parts.bottom import Bottom
from colonnade.algorithms.training import DecidedTraining
from colonnade.privacy.noise import clip_factors
from colonnade.privacy.secret_gaussian import SecretGaussian
from colonnade.testing import TinyFederation, tiny_data

DATA = tiny_data()
ROWS = np.array([3, 0, 7, 5, 1], np.uint32)
PRIVATE = PerturbationSettings(noise=0.4, clip=1.5, bottom_update="dp-sgd", update_clip=0.2, update_noise=0.3)
ALGORITHMS = [Vafl(in_flight=2, max_delay=3, warm_up=True), Split(), Czofo()]


def two_layers() -> nn.Sequential:
    module = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3))
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-1, 1, generator=generator)
    return module


class Opaque(nn.Module):
    """The same function, as a module that autograd must run."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = two_layers()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.inner(rows)
        return outputs


def bottom_of(module: nn.Module, privacy: PerturbationSettings, in_flight: int = 1) -> Bottom:
    seat = FeatureSeat(
        name="party1",
        label_party="label",
        columns=DATA.columns["party1"],
        bottom=module,
        width=3,
        training=DecidedTraining(batch_size=8, learning_rate=0.5),
        settings=Vafl(in_flight=in_flight),
        privacy=privacy,
        seed=0,
        secret=0,
    )
    return Bottom(seat, several_in_flight=in_flight > 1)


@pytest.mark.parametrize("module", [two_layers, Opaque], ids=["closed form", "autograd"])
def test_a_step_by_dp_sgd_equals_its_slow_twin(module: Any) -> None:
    """Row by row: the gradient of ⟨g_i, clip(h(x_i))⟩ times the batch, clipped; over 8 even though 5 rows are here."""
    bottom = bottom_of(module(), PRIVATE)
    bottom.upload(0, ROWS)
    gradient = torch.randn(5, 3, generator=torch.Generator().manual_seed(1)) / 5
    assert bottom.apply(0, gradient.numpy())
    twin = two_layers()
    columns = torch.as_tensor(DATA.columns["party1"].train)[torch.from_numpy(ROWS.astype(np.int64))]
    total = [torch.zeros_like(parameter) for parameter in twin.parameters()]
    clipped = 0
    for row, own in zip(columns, gradient, strict=True):
        outputs = twin(row[None])
        outputs = outputs * clip_factors(outputs, 1.5)
        gradients = torch.autograd.grad((outputs * own).sum() * 5, list(twin.parameters()))
        norm = torch.cat([one.reshape(-1) for one in gradients]).norm().item()
        clipped += norm > 0.2
        for sum_of, one in zip(total, gradients, strict=True):
            sum_of += one * min(1.0, 0.2 / norm)
    assert clipped > 0
    noise = SecretGaussian(0, "party1", "updates")
    dense = module is two_layers
    with torch.no_grad():
        for parameter, sum_of in zip(twin.parameters(), total, strict=True):
            # Dense networks hold weights as (in, out), and draw their noise so.
            drawn = noise.normals(sum_of.numel()).view(sum_of.t().shape if dense else sum_of.shape)
            parameter -= 0.5 * (sum_of / 8 + 0.3 * (drawn.t() if dense else drawn))
    trained = bottom.module()
    for ours, theirs in zip(trained.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("in_flight", [1, 3])
def test_frozen_means_frozen(in_flight: int) -> None:
    bottom = bottom_of(two_layers(), PerturbationSettings(noise=0.4, clip=1.5, bottom_update="frozen"), in_flight)
    before = bottom.module().state_dict()
    for exchange in range(3):
        _, sent = bottom.upload(exchange, ROWS)
        assert bottom.apply(exchange, np.ones_like(sent))
        assert not bottom.apply(exchange, np.ones_like(sent))
    assert bottom.steps == 3
    assert all(torch.equal(before[name], tensor) for name, tensor in bottom.module().state_dict().items())


def test_frozen_embeddings_are_those_of_the_first_weights() -> None:
    privacy = PerturbationSettings(noise=0.4, clip=1.5, bottom_update="frozen")
    _, sent = bottom_of(two_layers(), privacy).upload(0, ROWS)
    columns = torch.as_tensor(DATA.columns["party1"].train)[torch.from_numpy(ROWS.astype(np.int64))]
    plain = two_layers()(columns)
    drawn = SecretGaussian(0, "party1", "embeddings").normals(plain.numel()).view(plain.shape)
    expected = plain * clip_factors(plain, 1.5) + 0.4 * drawn
    np.testing.assert_allclose(sent, expected.detach().numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=repr)
def test_every_step_is_spent_before_anything_else_is_sent(algorithm: Any, tmp_path: Path) -> None:
    slow = Simulate(parties={"party1": SimulatedParty(slowdown=4.0)})
    given = TinyFederation(DATA, algorithm, DecidedTraining(epochs=2, batch_size=7), privacy=PRIVATE, simulate=slow)
    outcome = given.run(tmp_path / "run")
    assert outcome.finished
    run = read_run(tmp_path / "run")
    for party in DATA.feature_parties:
        applied, spent = 0, 0
        for item in run[party]:
            if item.type == "Received" and type(item.message).__name__ in ("GradientReply", "GradientAndBatch"):
                applied += 1
            if item.type == "Received" and type(item.message).__name__ == "RowLossReply":
                applied += 1
            if item.type == "Spend" and item.fields[2] == 0.3:
                mechanism, sensitivity, _, count, row_ids, protects, viewers = item.fields
                assert (mechanism, sensitivity) == ("gaussian", 2 * 0.2 / 7)
                assert len(np.frombuffer(row_ids, "<u4")) == count
                assert (protects, viewers) == (f"columns of {party}, training rows", ["label"])
                spent += 1
            if item.type == "Send":
                assert spent == applied  # nothing leaves that an unspent step went into
        assert spent == applied == outcome.summary["parties"][party]["exchanges"] > 0


def test_a_step_counts_against_the_budget_when_its_batch_is_uploaded() -> None:
    privacy = PerturbationSettings(
        noise=2.0, clip=1.0, bottom_update="dp-sgd", update_clip=0.8, update_noise=0.2, columns_epsilon=100.0
    )
    bottom = bottom_of(two_layers(), privacy)
    # An embedding costs (2·1/2)² = 1, a step (2·0.8/8/0.2)² = 1.
    assert bottom.upload_cost == pytest.approx(2.0)
    assert bottom.embedding_cost == pytest.approx(1.0)
    bottom.upload(0, ROWS)
    assert bottom.budget._spent()[ROWS].tolist() == pytest.approx([2.0] * 5)


def test_models_that_mix_rows_are_refused() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    with pytest.raises(SettingsError, match=r"in the bottom model of party1 .*batch normalisation.*frozen"):
        bottom_of(module, PRIVATE)
    bottom_of(module, PerturbationSettings(bottom_update="frozen"))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"bottom_update": "frosen"}, "Did you mean 'frozen'"),
        ({"update_noise": 1.0}, "no effect with bottom_update = 'plain'"),
        ({"bottom_update": "frozen", "update_noise": 1.0}, "no effect with bottom_update = 'frozen'"),
        ({"bottom_update": "dp-sgd", "update_noise": 1.0}, "protects nothing while embeddings leave without noise"),
        ({"bottom_update": "dp-sgd", "noise": 1.0, "clip": 1.0}, "update_noise above 0"),
        ({"bottom_update": "dp-sgd", "columns_epsilon": 1.0, "clip": 1.0, "update_clip": 0.0}, "update_clip above 0"),
        ({"columns_epsilon": 1.0}, r"without privacy\.clip"),
        ({"delta": 0.0}, r"privacy\.delta is 0"),
        ({"delta": 1.5}, r"privacy\.delta is 1\.5"),
        ({"formula": "papers"}, "Did you mean 'paper'"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        PerturbationSettings(**settings)
