"""Directions that move what layers give: right on average, silent where a batch says nothing, and off under noise.

That messages and weights are right is shown against slow twins in tests/reference/test_zeroth_order_twin.py.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from colonnade import (
    BottomSettings,
    Cascaded,
    Centralised,
    Czofo,
    Dpzv,
    SettingsError,
    Split,
    TopSettings,
    Training,
    Vafl,
    Zoo,
    ZooSync,
)
from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.seats import LabelSeat
from colonnade.algorithms.split_models.parts.zeroth_top import ZerothOrderTop
from colonnade.algorithms.training import DecidedTraining
from colonnade.federation.plan import decided_training
from colonnade.messages import LossReply, SlopeReply
from colonnade.models.flat import FlatModel
from colonnade.party import Received, Send, Started
from colonnade.privacy.noise import PerturbationSettings
from colonnade.testing import StopAfter, TinyFederation, tiny_data, weights

SCALE_FREE = DecidedTraining(epochs=3, batch_size=2, optimiser="scale-free", learning_rate=3.0, top_learning_rate=2.0)
KINDS = [Cascaded, Zoo, ZooSync, Dpzv]
MLP = BottomSettings(hidden=(4,), embedding=3)


def wide(kind: Any, **settings: Any) -> TinyFederation:
    """Three columns per party, two rows per batch."""
    data = tiny_data(parties=2)
    return TinyFederation(data, kind(**settings), training=SCALE_FREE, bottom=MLP, top=TopSettings())


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize("distribution", ["gaussian", "unit-sphere", "signs"])
def test_the_estimate_is_the_gradient_on_average(distribution: str, two_sided: bool) -> None:
    data = tiny_data("multiclass", label_party_columns=True)
    settings = Zoo(directions=20_000, distribution=distribution, two_sided=two_sided)
    own, top = nn.Sequential(nn.Linear(1, 3), nn.Tanh()), nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3))
    with torch.no_grad():
        for parameter in [*own.parameters(), *top.parameters()]:
            parameter.uniform_(-1, 1, generator=generator_for(1, str(tuple(parameter.shape))))
    seat = LabelSeat(
        *("label", ("party1",), {"party1": 4, "label": 3}, data.labels, data.columns["label"], own, top),
        *(SCALE_FREE, settings, PerturbationSettings(), 0, 0),
    )
    model = ZerothOrderTop(seat, settings.directions_used(), first_order=True)
    rows = np.arange(6, dtype=np.uint32)
    embeddings = torch.randn(6, 4, generator=torch.Generator().manual_seed(3))
    batch = model.batch(rows)
    true = torch.cat([one.reshape(-1) for one in model.own_gradients(batch, embeddings)])
    found = model.estimate([(batch, embeddings)], here=model.mean_loss([(batch, embeddings)]))
    assert torch.cosine_similarity(true, found, dim=0) > 0.99
    assert float(found.norm() / true.norm()) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_without_a_value_keeps_its_weights(kind: Any, tmp_path: Path) -> None:
    """Also rows without any value: nothing is divided by their length."""
    given = wide(kind)
    own = given.data.columns["party1"]
    train = own.train.clone()
    train[:, 1] = 0.0
    train[:5] = 0.0
    columns = {**given.data.columns, "party1": replace(own, train=train)}
    given = replace(given, data=replace(given.data, columns=columns))
    first = "party1 bottom 0.weight"
    before = weights({party: own.model() for party, own in given.parties().items()})[first]
    after = weights(given.run(tmp_path / "run").models)[first]
    assert torch.equal(before[:, 1], after[:, 1])
    assert (before[:, [0, 2]] != after[:, [0, 2]]).all() and after.isfinite().all()


@pytest.mark.parametrize("kind", [Cascaded, Dpzv])
def test_it_goes_on_where_it_was_stopped(kind: Any, tmp_path: Path) -> None:
    given = wide(kind, in_flight=2)
    whole = given.run(tmp_path / "whole")
    assert not given.run(tmp_path / "parts", stop_requested=StopAfter(41)).finished
    parts = given.run(tmp_path / "parts", resume=True)
    for name, tensor in weights(whole.models).items():
        assert torch.equal(tensor, weights(parts.models)[name]), name


@pytest.mark.parametrize("kind", [Cascaded, Dpzv])
def test_an_upload_of_an_earlier_version_moves_nothing(kind: Any) -> None:
    """Its checkpoint does not say what went into wide layers."""
    party = wide(kind).parties()["party1"]
    started = party.handle(Started(0.0))
    exchange = next(one.message.exchange for one in started if isinstance(one, Send))
    reply = SlopeReply(exchange, 0.5) if kind is Dpzv else LossReply(exchange, np.linspace(0.5, 0.6, 16))

    def moved(older: bool) -> bool:
        state = party.state()
        if older:
            assert state.values["bottom"].pop("passed") == [exchange]
        again = wide(kind).parties()["party1"]
        again.restore(state)
        effects = again.handle(Received(1.0, "label", reply))
        assert any(isinstance(one, Send) for one in effects)  # it goes on
        after, before = weights({"p": again.model()}), weights({"p": party.model()})
        return any(not torch.equal(after[name], before[name]) for name in before)

    assert moved(older=False) and not moved(older=True)


@pytest.mark.parametrize("kind", KINDS)
def test_under_noise_on_embeddings_weights_are_moved(kind: Any, tmp_path: Path) -> None:
    """Or a model would depend on columns beside what noise covers."""
    noise = PerturbationSettings(noise=0.1, clip=1.0)
    by_itself, asked = (replace(wide(kind, **how), privacy=noise) for how in ({}, {"perturb": "weights"}))
    models = [weights(one.run(tmp_path / str(place)).models) for place, one in enumerate((by_itself, asked))]
    feature = [name for name in models[0] if name.startswith("party")]
    if kind is Cascaded:  # the others' label parties move layers all the same, whose losses follow from labels alone
        assert all(torch.equal(models[0][name], models[1][name]) for name in feature)
    with pytest.raises(SettingsError, match=r"depend on its columns beside what noise covers"):
        replace(wide(kind, perturb="layers"), privacy=noise).parties()


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be(kind: Any) -> None:
    with pytest.raises(SettingsError, match=r"algorithm\.perturb.*Did you mean 'layers'"):
        kind(perturb="layer")
    flat = FlatModel(torch.ones(2), lambda w, x: x[:, :1] * w[0] + w[1])
    with pytest.raises(SettingsError, match=r"party1 has other ones\. Leave it out"):
        replace(wide(kind, perturb="layers"), bottom=flat).parties()
    replace(wide(kind), bottom=flat).parties()


# --- the label party's rate -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "rate", "decay"),
    [
        ({}, 0.001 / 4, "linear"),
        ({"top_decay": "none"}, 0.001 / 16, "none"),
        ({"optimiser": "sgd"}, 0.1 / 16, "none"),
        ({"learning_rate": 0.002}, 0.002, "none"),
        ({"top_learning_rate": 0.003}, 0.003, "none"),
        ({"top_learning_rate": 0.003, "top_decay": "linear"}, 0.003, "linear"),
    ],
)
def test_the_label_partys_rate_with_sixteen_parties(given: dict[str, Any], rate: float, decay: str) -> None:
    decided = decided_training(Training(**given), Vafl(), rows=1000, feature_parties=16)
    assert (decided.top_learning_rate, decided.top_decay) == (pytest.approx(rate), decay)


@pytest.mark.parametrize(
    ("given", "rate", "decay"),
    [
        ({}, 0.002, "linear"),
        ({"decay": "none"}, 0.001, "none"),
        ({"learning_rate": 0.003}, 0.003, "none"),
        ({"learning_rate": 0.003, "decay": "linear"}, 0.003, "linear"),
        ({"optimiser": "sgd"}, 0.1, "none"),
    ],
)
def test_the_rate_of_feature_parties(given: dict[str, Any], rate: float, decay: str) -> None:
    for kind in (Vafl, Czofo):
        decided = decided_training(Training(**given), kind(), rows=1000, feature_parties=4)
        assert (decided.learning_rate, decided.decay) == (rate, decay)
    with pytest.raises(SettingsError, match=r"training\.decay"):
        Training(decay="cosine")


def test_a_feature_party_that_is_the_only_one_keeps_its_rate_in_vafl() -> None:
    alone = decided_training(Training(), Vafl(), rows=1000, feature_parties=1)
    assert (alone.learning_rate, alone.decay, alone.top_learning_rate, alone.top_decay) == (0.001, "none") * 2
    assert decided_training(Training(), Czofo(), rows=1000, feature_parties=1).decay == "linear"


@pytest.mark.parametrize("algorithm", [Vafl(wait_for=16), Split(), Centralised()])
def test_who_waits_for_all_of_them_has_the_rate_of_one_place(algorithm: Any) -> None:
    decided = decided_training(Training(), algorithm, rows=1000, feature_parties=16)
    assert (decided.top_learning_rate, decided.top_decay) == (0.001, "none")
    with pytest.raises(SettingsError, match=r"training\.top_decay"):
        Training(top_decay="cosine")
