"""A row with absurd numbers, or a module that mixes rows: what one row's noise does not cover is cut off or refused."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import colonnade
from colonnade.algorithms.split_models.dpzv import Dpzv
from colonnade.data.federated import FederatedData, Labels, PartyColumns
from colonnade.errors import SettingsError
from colonnade.federation.building import build_parties
from colonnade.messages import GradientReply, PairUpload
from colonnade.models.bottom import BottomSettings
from colonnade.models.network import rows_mix
from colonnade.models.row_gradients import OuterProducts, RowGradients, StackedGradients, clipped_sum
from colonnade.models.top import TopSettings
from colonnade.party import Party, Received, Send, Started
from colonnade.privacy.noise import PerturbationSettings

ROWS = 16


def parties_of(
    columns: torch.Tensor, labels: torch.Tensor, algorithm: Any, privacy: PerturbationSettings, bottom: Any
) -> dict[str, Party]:
    held = {"party1": PartyColumns(columns, columns[:0], ("a", "b", "c"))}
    data = FederatedData("made", "label", Labels(labels, labels[:0], "binary", (0, 1)), held, "")
    training = colonnade.Training(
        epochs=9, batch_size=ROWS, learning_rate=0.01, optimiser="sgd", evaluate_every_epochs=0, embedding_bound=0
    )
    return build_parties(data, algorithm, training, privacy, bottom, TopSettings(hidden=(16,)), 0)


@pytest.mark.parametrize("size", [1e19, 1e37, 1.5e38])
@pytest.mark.parametrize("update", ["frozen", "private-zo", "dp-sgd"])
def test_no_label_decides_whether_the_label_party_goes_on(update: str, size: float) -> None:
    """An embedding so large that a row's loss or gradient is no number for one label, and one for the other."""
    answers, finite = set(), []
    for label in (0, 1):
        labels = torch.zeros(ROWS, dtype=torch.int64)
        labels[0] = label
        own = 100.0 if update != "frozen" else 0.0
        algorithm = Dpzv(clip=1.0, noise=100.0, server_update=update, server_noise=own)
        made = parties_of(torch.zeros(ROWS, 3), labels, algorithm, PerturbationSettings(), BottomSettings("linear"))
        made["label"].handle(Started(0.0))
        sent = np.zeros((ROWS, 16), np.float32)
        sent[0] = size
        upload = PairUpload(0, np.arange(ROWS, dtype=np.uint32), sent, sent)
        effects = made["label"].handle(Received(0.0, "party1", upload))
        answers |= {effect.message.slope for effect in effects if isinstance(effect, Send)}  # type: ignore[attr-defined]
        finite.append(all(torch.isfinite(own).all() for own in made["label"].model()["top"].parameters()))
    assert finite == [True, True]
    assert len(answers) == 1  # the two embeddings are alike, so no slope is seen: the same noise, the same answer


@pytest.mark.parametrize("size", [1.0, 3e19, 3e38])
@pytest.mark.parametrize("update", ["frozen", "dp-sgd"])
def test_no_row_makes_the_others_embeddings_no_numbers(update: str, size: float) -> None:
    columns = torch.ones(ROWS, 3)
    columns[0] = size
    own = {"bottom_update": update, "update_noise": 100.0 if update == "dp-sgd" else 0.0}
    privacy = PerturbationSettings(noise=100.0, clip=1.0, **own)
    bottom = BottomSettings(hidden=(8,), embedding=8)
    party = parties_of(columns, torch.zeros(ROWS, dtype=torch.int64), colonnade.Vafl(), privacy, bottom)["party1"]
    effects = party.handle(Started(0.0))
    for exchange in range(2):
        (sent,) = [effect.message for effect in effects if isinstance(effect, Send)]
        assert np.isfinite(sent.embedding).all()  # type: ignore[attr-defined]
        reply = GradientReply(exchange, np.full((ROWS, 8), 0.01, np.float32))
        effects = party.handle(Received(0.0, "label", reply))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_no_number_counts_as_none(bad: float) -> None:
    inputs = torch.tensor([[3.0], [bad], [1e38]])
    after = torch.tensor([[1.0], [1.0], [1e38]])
    kinds: list[RowGradients] = [OuterProducts(3, [(inputs, after)]), StackedGradients(3, [inputs * after])]
    # Of the three rows the first is cut to 2, the second counts as none; the third is long, and finite as a product.
    for rows, expected in zip(kinds, (4.0, 2.0), strict=True):
        (summed,) = clipped_sum([rows], 2.0)
        assert summed.item() == pytest.approx(expected)


class Centred(nn.Module):
    """Takes the mean of the batch away, as nothing in its layers tells."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        centred: torch.Tensor = self.linear(rows - rows.mean(0))
        return centred


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))


@pytest.mark.parametrize(
    ("module", "training", "expected"),
    [
        (Centred, False, True),
        (Centred, True, True),
        (normalised, True, True),
        (normalised, False, False),  # by then its means are fixed
        (lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU()), True, False),
        (lambda: nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5)), True, False),
        (lambda: nn.Sequential(nn.Dropout(0.5), normalised()), True, True),
    ],
)
def test_rows_that_mix_are_noticed(module: Any, training: bool, expected: bool) -> None:
    made = module()
    before = {name: value.clone() for name, value in made.state_dict().items()}
    assert rows_mix(made, torch.randn(8, 3), training) == expected
    assert all(torch.equal(before[name], value) for name, value in made.state_dict().items())


@pytest.mark.parametrize("module", [Centred, normalised])
@pytest.mark.parametrize("update", ["plain", "dp-sgd", "frozen"])
def test_noise_on_rows_that_mix_is_refused(module: Any, update: str) -> None:
    columns = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(1))
    own = {"bottom_update": update, "update_noise": 1.0 if update == "dp-sgd" else 0.0}
    privacy = PerturbationSettings(noise=1.0, clip=1.0, **own)
    build = lambda: parties_of(columns, torch.zeros(ROWS).long(), colonnade.Vafl(), privacy, module())  # noqa: E731
    if module is normalised and update == "frozen":
        build()
    else:
        with pytest.raises(SettingsError, match="depends on the others of its batch"):
            build()
