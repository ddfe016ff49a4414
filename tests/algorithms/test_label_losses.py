"""The label party's losses: those that are differenced are the same function of the embeddings, whatever gives them."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from colonnade import Cascaded
from colonnade.algorithms.seats import LabelSeat
from colonnade.algorithms.split_models.parts.top import Top, means
from colonnade.algorithms.training import DecidedTraining
from colonnade.models.row_gradients import clipped_sum
from colonnade.privacy.noise import PerturbationSettings
from colonnade.testing import tiny_data

DATA = tiny_data()
ROWS = np.array([5, 0, 3, 8, 2, 7, 1], np.uint32)
EMBEDDINGS = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))
MODELS: dict[str, Callable[[], nn.Module]] = {
    "closed form": lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1)),
    "dropout": lambda: nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.Linear(5, 1)),
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 1)),
}


def top_of(module: nn.Module, own: bool = False) -> Top:
    """With `own`, the last two numbers that the top model takes are the label party's own."""
    generator = torch.Generator().manual_seed(2)
    bottom = nn.Linear(2, 2) if own else None
    with torch.no_grad():
        for parameter in [*module.parameters(), *(bottom.parameters() if bottom else [])]:
            parameter.uniform_(-1, 1, generator=generator)
    seat = LabelSeat(
        name="label",
        feature_parties=("party1",),
        widths={"party1": 2, "label": 2} if own else {"party1": 4},
        labels=DATA.labels,
        columns=DATA.columns["party1"] if own else None,
        bottom=bottom,
        top=module,
        training=DecidedTraining(),
        settings=Cascaded(),
        privacy=PerturbationSettings(),
        seed=0,
        secret=0,
    )
    return Top(seat)


def test_means_are_taken_in_float64() -> None:
    """In float32, 2²⁴ + 1 is 2²⁴."""
    assert means(np.array([[2.0**24, 1.0], [1.0, 3.0]], np.float32)).tolist() == [(2**24 + 1) / 2, 2.0]


@pytest.mark.parametrize("model", MODELS)
def test_the_same_embeddings_have_the_same_loss_to_the_last_bit(model: str) -> None:
    """`cascaded` divides the difference of these by a radius of 0.001."""
    top = top_of(MODELS[model]())
    batch = top.batch(ROWS)
    here, near = top.losses_and_own_gradients(batch, EMBEDDINGS, EMBEDDINGS)[0]
    assert here == near
    here, further, *furthest = top.losses_and_own_gradients(
        batch, EMBEDDINGS, torch.cat([EMBEDDINGS + 1, EMBEDDINGS + 2, EMBEDDINGS])
    )[0]
    assert len({here, further, furthest[0]}) == 3
    assert furthest[1] == pytest.approx(here, rel=1e-6)
    assert here == top.mean_loss([(batch, EMBEDDINGS)])
    assert here == means(top.row_losses(batch, top.outputs(batch, EMBEDDINGS)))[0]


def test_gradients_are_those_of_that_loss() -> None:
    top = top_of(MODELS["closed form"]())
    batch = top.batch(ROWS)
    losses, gradients = top.losses_and_own_gradients(batch, EMBEDDINGS, EMBEDDINGS)
    loss, same, _ = top.gradients(ROWS, EMBEDDINGS)
    assert loss == pytest.approx(losses[0], rel=1e-6)
    assert all(torch.equal(one, other) for one, other in zip(gradients, same, strict=True))
    assert all(map(torch.equal, gradients, top.own_gradients(batch, EMBEDDINGS)))


class TwoHeads(nn.Module):
    """Not a plain stack of layers: left to autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 3), nn.Linear(4, 3, bias=False)
        self.norm, self.last = nn.LayerNorm(3), nn.Linear(3, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.last(self.norm(torch.tanh(self.one(rows)) * self.other(rows)))
        return outputs


@pytest.mark.parametrize("own", [False, True], ids=["labels alone", "own columns"])
@pytest.mark.parametrize("module", [MODELS["closed form"], TwoHeads], ids=["closed form", "autograd"])
def test_each_rows_gradient_is_that_of_the_batch_of_that_row(module: Callable[[], nn.Module], own: bool) -> None:
    """The slow twin of DP-SGD: one row after the other, clipped, added up. Half of the rows are clipped."""
    top = top_of(module(), own)
    embeddings = EMBEDDINGS[:, :2] if own else EMBEDDINGS
    alone = [
        flat(top.own_gradients(top.batch(ROWS[place : place + 1]), embeddings[place : place + 1]))
        for place in range(len(ROWS))
    ]
    norms = torch.stack([gradient.norm() for gradient in alone])
    bound = norms.median().item()
    expected = sum(gradient * min(1.0, bound / gradient.norm().item()) for gradient in alone)
    parts = top.row_gradients(top.batch(ROWS), embeddings)
    assert len(parts) == 1 + own
    torch.testing.assert_close(sum(part.squared_norms() for part in parts), norms.double() ** 2, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(flat(clipped_sum(parts, bound)), expected.double(), rtol=1e-6, atol=1e-6)


def flat(gradients: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([gradient.reshape(-1) for gradient in gradients])
