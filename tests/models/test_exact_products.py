"""What a model says of a row when it is scored does not depend on the rows beside it: to the bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from colonnade.models.exact_products import exact_product
from colonnade.models.layers import SumEmbeddings
from colonnade.models.network import network_for
from colonnade.privacy.noise import LayerNoise, PerturbationSettings

SIZES = st.sampled_from([1, 2, 3, 10, 17, 33, 600, 1100])


def numbers(seed: int, *shape: int) -> torch.Tensor:
    """Of all magnitudes."""
    drawn = np.random.default_rng(seed)
    return torch.from_numpy(drawn.normal(size=shape) * 10.0 ** drawn.integers(-6, 6, size=shape)).float()


@given(seed=st.integers(0, 999), columns=SIZES, outputs=SIZES, rows=st.integers(1, 12))
@settings(max_examples=40)
def test_a_row_is_the_same_alone_and_among_others(seed: int, columns: int, outputs: int, rows: int) -> None:
    table, weight, bias = numbers(seed, 300, columns), numbers(seed + 1, columns, outputs), numbers(seed + 2, outputs)
    together = exact_product(table, weight, bias)
    chosen = torch.from_numpy(np.random.default_rng(seed).permutation(300)[:rows])
    assert torch.equal(exact_product(table[chosen], weight, bias), together[chosen])
    backwards = torch.arange(columns - 1, -1, -1)  # sums of at most 512 terms are exact, so of any order
    if columns <= 512:
        assert torch.equal(exact_product(table[:, backwards], weight[backwards], bias), together)
    # As near the true sum as a product of 32-bit floats may be.
    true = table.double() @ weight.double() + bias.double()
    size = columns * table.abs().amax(1, keepdim=True).double() * weight.abs().amax(0).double() + bias.abs().double()
    assert ((together.double() - true).abs() <= 2.0**-22 * size).all()


@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_every_layer_of_a_dense_network_keeps_rows_apart(clip: float) -> None:
    layers = [nn.Linear(30, 10), nn.Tanh(), nn.Linear(10, 12), nn.Sigmoid(), SumEmbeddings((4, 4, 4)), nn.ReLU()]
    network = network_for(nn.Sequential(*layers, nn.Linear(4, 3)))
    noise = LayerNoise(PerturbationSettings(clip=clip), torch.Generator()) if clip else None
    table = torch.randn(300, 30, generator=torch.Generator().manual_seed(3))
    together = network.score(table, noise)
    for size in (1, 2, 3, 5, 7, 64):
        pieces = torch.cat([network.score(piece, noise) for piece in torch.split(table.flip(0), size)])
        assert torch.equal(pieces.flip(0), together)
    assert torch.allclose(together, network.embed(table, noise), atol=1e-5)


def test_what_is_no_number_stays_none_and_touches_no_other_row() -> None:
    table, weight = torch.ones(4, 3), torch.ones(3, 2)
    table[1, 2], table[2, 0] = torch.inf, torch.nan
    assert exact_product(table, weight, None).isfinite().all(1).tolist() == [True, False, False, True]
    assert exact_product(table[:0], weight, None).shape == (0, 2)
    assert exact_product(torch.zeros(2, 0), weight[:0], torch.ones(2)).tolist() == [[1, 1], [1, 1]]
