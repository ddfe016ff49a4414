"""`dpzv`: weights that come back bit for bit, slopes that are clipped on both sides and noised, and the books on them.

That its messages and weights are right is shown against a slow twin in tests/reference/test_zeroth_order_twin.py.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recorded_runs import read_run, sends
from torch import nn

from colonnade import BottomSettings, Dpzv, RunError, SettingsError, Training
from colonnade.algorithms.seats import FeatureSeat, LabelSeat
from colonnade.algorithms.split_models.dpzv import SERVER_UPDATES
from colonnade.algorithms.split_models.parts.noised_answers import NoisedTop
from colonnade.algorithms.split_models.parts.seed_replay import GRID, SeedReplayBottom
from colonnade.algorithms.training import DecidedTraining
from colonnade.errors import ProtocolError
from colonnade.messages import PairUpload, SlopeReply
from colonnade.party import Received, Started
from colonnade.privacy.noise import PerturbationSettings
from colonnade.testing import TinyFederation, tiny_data

DATA = tiny_data()
ROWS = np.arange(8, dtype=np.uint32)
PRIVATE: dict[str, Any] = {"noise": 0.4, "clip": 0.5, "server_clip": 0.25, "server_noise": 0.3}


def bottom_of(settings: Dpzv, module: nn.Module, training: Training | None = None) -> SeedReplayBottom:
    seat = FeatureSeat(
        name="party1",
        label_party="label",
        columns=DATA.columns["party1"],
        bottom=module,
        width=3,
        training=training or DecidedTraining(),
        settings=settings,
        privacy=PerturbationSettings(),
        seed=0,
        secret=0,
    )
    return SeedReplayBottom(seat, settings.directions_used())


def layer(largest: float = 1.0) -> nn.Module:
    """2 × 3 weights and 3 biases, up to ±largest."""
    module = nn.Linear(2, 3)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-largest, largest, generator=generator)
        module.weight[0, 0] = largest
    return module


def bits(bottom: SeedReplayBottom) -> bytes:
    return b"".join(tensor.numpy().tobytes() for tensor in bottom.network.state().values())


# --- perturb and restore ----------------------------------------------------------------------------------------


def test_ten_thousand_exchanges_leave_the_weights_bit_for_bit() -> None:
    bottom = bottom_of(Dpzv(), layer())
    before = bits(bottom)
    for exchange in range(10_000):
        _, plus, minus = bottom.look_both_ways(exchange, ROWS[:1])
        bottom.forget_uploads()
        if exchange % 1000 == 0:
            assert bits(bottom) == before
            assert not np.array_equal(plus, minus)
    assert bits(bottom) == before


@pytest.mark.parametrize("largest", [1e-3, 8.0])
@pytest.mark.parametrize("radius", [1e-5, 1e-3, 0.3, 1.0])
@pytest.mark.parametrize("distribution", ["sphere", "gaussian", "signs"])
def test_weights_come_back_at_every_size(distribution: str, radius: float, largest: float) -> None:
    bottom = bottom_of(Dpzv(distribution=distribution, smoothing_radius=radius), layer(largest))
    before = bits(bottom)
    for exchange in range(50):
        bottom.look_both_ways(exchange, ROWS)
        assert bits(bottom) == before


def test_weights_come_back_from_several_directions_and_so_many_slopes_are_asked_for() -> None:
    bottom = bottom_of(Dpzv(directions=3), layer())
    before = bits(bottom)
    _, plus, minus = bottom.look_both_ways(0, ROWS)
    assert bits(bottom) == before
    assert plus.shape == minus.shape == (3 * ROWS.size, 3)
    with pytest.raises(ProtocolError, match="sent 2 slopes for exchange 0; 3 pairs were sent"):
        bottom.apply(0, [1.0, 1.0])
    assert bits(bottom) == before and bottom.in_flight == 1
    assert bottom.apply(0, [1.0, -1.0, 1.0])
    assert bits(bottom) != before


def test_an_upload_with_more_pairs_than_agreed_is_refused() -> None:
    label = TinyFederation(DATA, Dpzv(), bottom=BottomSettings("linear", embedding=2)).parties()["label"]
    label.handle(Started(0.0))
    sides = np.zeros((16, 2), np.float32)
    with pytest.raises(ProtocolError, match="16 pairs of embeddings for 8 rows; 1 per row were agreed on"):
        label.handle(Received(0.0, "party1", PairUpload(0, ROWS, sides, sides)))


def test_plain_additions_and_subtractions_would_drift() -> None:
    """Or the grid would be for nothing."""
    generator = torch.Generator().manual_seed(1)
    before = torch.randn(9, generator=generator)
    w = before.clone()
    for _ in range(100):
        u = torch.randn(9, generator=generator)
        w.add_(u, alpha=0.001).add_(u, alpha=-0.002).add_(u, alpha=0.001)
    assert not torch.equal(w, before)


def test_weights_stay_on_the_grid_through_every_update() -> None:
    training = DecidedTraining(learning_rate=0.07, l2=0.013, l1=0.0031)
    bottom = bottom_of(Dpzv(), layer(), training)
    for exchange in range(200):
        bottom.look_both_ways(exchange, ROWS)
        before = bits(bottom)
        assert bottom.apply(exchange, [math.sin(exchange)])
        assert bits(bottom) != before
        for tensor in bottom.network.state().values():
            steps = tensor.double() / GRID
            assert torch.equal(steps, steps.round())
    assert not bottom.apply(7, [1.0])  # applied once already


@pytest.mark.parametrize("distribution", ["sphere", "gaussian", "signs"])
def test_an_update_goes_along_the_direction_that_was_looked_along(distribution: str) -> None:
    """Of a linear layer, plus − minus is 2λ times the layer of the direction; an update by slope −1/η adds it."""
    settings = Dpzv(distribution=distribution, smoothing_radius=0.25)
    bottom = bottom_of(settings, layer(), DecidedTraining(learning_rate=0.5))
    before = bottom.module()
    _, plus, minus = bottom.look_both_ways(0, ROWS)
    bottom.apply(0, [-2.0])
    columns = DATA.columns["party1"].train[:8]
    moved = (bottom.module()(columns) - before(columns)).detach()
    torch.testing.assert_close(torch.from_numpy(plus - minus), 0.5 * moved, atol=2e-5, rtol=0.0)
    u = torch.cat([(after - own).reshape(-1) for after, own in zip(*_parameters(bottom, before), strict=True)])
    if distribution == "sphere":
        assert u.norm().item() == pytest.approx(3.0, abs=1e-5)  # √9
    if distribution == "signs":
        assert u.abs().tolist() == pytest.approx([1.0] * 9, abs=1e-6)


def _parameters(bottom: SeedReplayBottom, before: nn.Module) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    after = bottom.module()
    return [p.detach() for p in after.parameters()], [p.detach() for p in before.parameters()]


def test_a_weight_beyond_the_exact_range_is_refused() -> None:
    with pytest.raises(RunError, match=r"party1.*beyond ±8.*learning_rate"):
        bottom_of(Dpzv(), layer(8.5))
    bottom = bottom_of(Dpzv(), layer(), DecidedTraining(learning_rate=10.0))
    bottom.look_both_ways(0, ROWS)
    with pytest.raises(RunError, match=r"beyond ±8"):
        bottom.apply(0, [10.0])


def test_scale_free_steps_stay_within_the_exact_range() -> None:
    """A walk that leads out of it ends at its edge."""
    bottom = bottom_of(Dpzv(), layer(7.9), DecidedTraining(epochs=1e5, optimiser="scale-free", learning_rate=1e6))
    largest = 0.0
    for exchange in range(100):
        bottom.look_both_ways(exchange, ROWS)
        bottom.apply(exchange, [1.0 + exchange % 7])
        largest = max(largest, *(float(own.detach().abs().max()) for own in bottom.module().parameters()))
    assert largest == 8.0


@pytest.mark.parametrize(("distribution", "l2"), [("sphere", 0.0), ("signs", 0.0), ("gaussian", 0.0), ("sphere", 0.01)])
def test_the_range_is_left_by_no_small_step_unseen(distribution: str, l2: float) -> None:
    """The range is not looked at after steps that cannot leave it; the step that leaves it is refused all the same."""
    bottom = bottom_of(Dpzv(distribution=distribution), layer(), DecidedTraining(learning_rate=0.1, l2=l2))
    largest = 0.0
    with pytest.raises(RunError, match=r"beyond ±8"):
        for exchange in range(10_000):
            largest = max(tensor.abs().max().item() for tensor in bottom.network.state().values())
            assert largest <= 8
            bottom.look_both_ways(exchange, ROWS[:1])
            bottom.apply(exchange, [2.0 if exchange % 2 else -3.0])
    assert largest > 6


def test_weights_that_are_not_numbers_are_refused() -> None:
    module = layer()
    with torch.no_grad():
        module.weight[0, 0] = math.nan
    with pytest.raises(RunError, match="party1"):
        bottom_of(Dpzv(), module)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"distribution": "unit-sphere"}, "use sphere"),
        ({"smoothing_radius": 3.0}, r"smoothing_radius is 3\.0"),  # w + λu would leave the range where sums are exact
        ({"clip": -1.0}, r"algorithm\.clip is -1"),
        ({"noise": math.nan}, r"algorithm\.noise is nan"),
        ({"noise": 1.0, "clip": 0.0}, "protects nothing"),
        ({"server_update": "frosen"}, "Did you mean 'frozen'"),
        ({"server_update": "private-zo", "server_noise": 1.0, "server_clip": 0.0}, "server_clip above 0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        Dpzv(**settings)


@pytest.mark.parametrize("server_update", ["private-zo", "dp-sgd"])
def test_a_private_update_needs_noise_or_a_target(server_update: str) -> None:
    with pytest.raises(SettingsError, match=r"needs server_noise above 0, or privacy\.labels_epsilon"):
        top_of(Dpzv(server_update=server_update))


def test_dp_sgd_refuses_a_model_that_mixes_rows() -> None:
    with pytest.raises(SettingsError, match="batch normalisation"):
        top_of(Dpzv(server_update="dp-sgd", server_noise=1.0), nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1)))


def test_an_optimiser_with_a_memory_of_its_own_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"'adam'.*'sgd'"):
        bottom_of(Dpzv(), layer(), DecidedTraining(optimiser="adam"))


# --- clip and noise ---------------------------------------------------------------------------------------------


def top_of(settings: Dpzv, top: nn.Module | None = None) -> NoisedTop:
    seat = LabelSeat(
        name="label",
        feature_parties=("party1",),
        widths={"party1": 3},
        labels=DATA.labels,
        columns=None,
        bottom=None,
        top=top or nn.Linear(3, 1),
        training=DecidedTraining(),
        settings=settings,
        privacy=PerturbationSettings(),
        seed=0,
        secret=0,
    )
    return NoisedTop(seat, settings, settings.directions_used())


def test_each_rows_slope_is_clipped_on_both_sides() -> None:
    top = top_of(Dpzv())
    slopes = np.array([[-7.0, -1.0, 0.5, 9.0], [7.0, 1.0, -0.5, -9.0]])
    assert top.noised_means(slopes, 2.0, 0.0).tolist() == [-0.5 / 4, 0.5 / 4]
    assert top.noised_means(slopes, 0.0, 0.0).tolist() == [1.5 / 4, -1.5 / 4]


def test_the_noise_has_its_deviation() -> None:
    """4,000 draws at a fixed seed: mean and variance within 4.5 standard errors, and a normal's fourth moment."""
    top = top_of(Dpzv())
    draws = np.array([top.noised_means(np.ones((1, 8)), 5.0, 0.7)[0] - 1.0 for _ in range(4000)]) / 0.7
    assert abs(draws.mean()) < 4.5 / math.sqrt(4000)
    assert abs(draws.var() - 1) < 4.5 * math.sqrt(2 / 4000)
    assert abs((draws**4).mean() - 3) < 4.5 * math.sqrt(96 / 4000)
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 4.5 / math.sqrt(4000)


def test_without_noise_no_slope_exceeds_the_clip(tmp_path: Path) -> None:
    TinyFederation(DATA, Dpzv(clip=0.02)).run(tmp_path / "run")
    slopes = [abs(item.message.slope) for item in sends(read_run(tmp_path / "run")["label"], SlopeReply)]
    assert 0 < max(slopes) <= 0.02


@pytest.mark.parametrize("server_update", ["zeroth-order", "private-zo"])
@pytest.mark.parametrize("clip", [0.0, 10.0])
def test_a_loss_that_becomes_infinite_is_told_in_a_sentence(clip: float, server_update: str, tmp_path: Path) -> None:
    """And in nothing else: a warning would fail this test."""
    algorithm = Dpzv(clip=clip, server_update=server_update, server_noise=1.0)
    wild = DecidedTraining(batch_size=7, learning_rate=1e-9, top_learning_rate=1e30)
    with pytest.raises(RunError, match="loss of a batch is no longer finite"):
        TinyFederation(tiny_data("regression"), algorithm, wild).run(tmp_path / "run")


# --- the books --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait_for", [1, 2])
@pytest.mark.parametrize("server_update", SERVER_UPDATES)
def test_every_slope_is_spent_before_it_is_sent(server_update: str, wait_for: int, tmp_path: Path) -> None:
    """With its rows and sensitivity 2C/B, seen by its receiver; a private update of w0 is seen by everybody."""
    algorithm = Dpzv(**PRIVATE, server_update=server_update, wait_for=wait_for)
    given = TinyFederation(DATA, algorithm, DecidedTraining(epochs=2, batch_size=7))
    outcome = given.run(tmp_path / "run")
    assert outcome.finished
    run = read_run(tmp_path / "run")
    uploads = {
        (party, item.message.exchange): item.message.rows.tolist()
        for party in DATA.feature_parties
        for item in sends(run[party], PairUpload)
    }
    private_update = server_update in ("private-zo", "dp-sgd")
    own: list[list[int]] = []  # rows of the private updates of w0 that were spent, not yet matched with slopes
    last: tuple[Any, ...] | None = None
    slopes = 0
    for item in run["label"]:
        if item.type == "Spend":
            mechanism, sensitivity, noise, count, row_ids, protects, viewers = item.fields
            rows = np.frombuffer(row_ids, "<u4").tolist()
            assert (mechanism, protects) == ("gaussian", "labels of label, training rows")
            assert len(rows) == count
            if viewers == ["party1", "party2", "party3"]:
                assert private_update
                assert (sensitivity, noise) == (2 * 0.25 / count, 0.3)
                own.append(rows)
            else:
                assert (sensitivity, noise) == (2 * 0.5 / count, 0.4)
                last = (rows, viewers)
        elif isinstance(item.message, SlopeReply):
            slopes += 1
            rows = uploads[item.peer, item.message.exchange]
            assert last == (rows, [item.peer])
            last = None
            if private_update:
                own.remove(rows)  # spent before anything of this update was sent
    assert own == []
    assert slopes == outcome.summary["exchanges"]
    books = outcome.summary["privacy"]["events"]
    assert sum(event["releases"] for event in books) == slopes * (2 if private_update else 1)
    assert not any(item.type == "Spend" for party in DATA.feature_parties for item in run[party])


@pytest.mark.parametrize("server_update", ["zeroth-order", "first-order", "frozen"])
def test_without_noise_nothing_is_spent(server_update: str, tmp_path: Path) -> None:
    outcome = TinyFederation(DATA, Dpzv(server_update=server_update)).run(tmp_path / "run")
    assert outcome.summary["privacy"]["events"] == []
    assert (tmp_path / "run" / "ledger.jsonl").read_text() == ""


def test_frozen_means_frozen(tmp_path: Path) -> None:
    given = TinyFederation(DATA, Dpzv(server_update="frozen"), bottom=BottomSettings("linear", embedding=2))
    before = given.parties()["label"].model()["top"].state_dict()
    after = given.run(tmp_path / "run").models["label"]["top"].state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
