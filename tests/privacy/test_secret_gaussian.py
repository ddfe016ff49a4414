"""Noise that cannot be searched for, and whose sum with a value tells nothing by its last digits."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from colonnade.algorithms.parts import randomness
from colonnade.algorithms.parts.randomness import generator_for
from colonnade.privacy.secret_gaussian import SecretGaussian, grid_step

deviations = st.floats(math.log(1e-3), math.log(1e6)).map(math.exp)
numbers = st.floats(-1e3, 1e3)


def test_the_numbers_are_normal() -> None:
    drawn = SecretGaussian(1, "bank").normals(200_001)
    assert drawn.dtype == torch.float64 and drawn.numel() == 200_001
    assert abs(float(drawn.mean())) < 4 / math.sqrt(200_000)
    assert abs(float(drawn.var()) - 1) < 4 * math.sqrt(2 / 200_000)
    for bound, inside in ((0.5, 0.38292), (1.0, 0.68269), (2.0, 0.9545), (3.0, 0.9973)):
        error = math.sqrt(inside * (1 - inside) / 200_000)
        assert abs(float((drawn.abs() < bound).double().mean()) - inside) < 4 * error
    halves = drawn[:100_000], drawn[100_000:200_000]  # a pair's two numbers are not alike
    assert abs(float((halves[0] * halves[1]).mean())) < 4 / math.sqrt(100_000)


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_the_place_in_the_sequence_is_kept(count: int) -> None:
    noise = SecretGaussian(1, "bank")
    noise.normals(count)
    place = noise.get_state()
    later = noise.normals(5)
    other = SecretGaussian(1, "bank")
    other.set_state(place)
    assert torch.equal(other.normals(5), later)
    assert not torch.equal(noise.normals(5), later)


def test_every_secret_and_every_purpose_has_numbers_of_its_own() -> None:
    secrets = [0, 1, 1 << 32, (1 << 255) + 1, (1 << 254) + 1]
    firsts = {SecretGaussian(secret, *words).normals(1).item() for secret in secrets for words in (("a",), ("b",), ())}
    assert len(firsts) == 15


def test_a_long_secret_is_not_cut_to_a_generator_s_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch keeps 32 bits of a seed. Two secrets for which these are alike still give different numbers."""
    monkeypatch.setattr(randomness, "seed_for", lambda *_: 7)

    def first(secret: int) -> float:
        return torch.rand((), generator=generator_for(secret, "bank", "directions")).item()

    assert first(3) == first(4)  # shared by everybody, and short
    assert first((1 << 255) + 3) != first((1 << 255) + 4)
    drawn = torch.rand(100_000, generator=generator_for((1 << 255) + 3, "bank", "directions"))
    assert abs(float(drawn.mean()) - 0.5) < 4 / math.sqrt(12 * 100_000)


@given(st.lists(numbers, min_size=1, max_size=5), st.lists(numbers, min_size=5, max_size=5), deviations)
def test_a_sum_tells_no_more_than_the_rounded_value(one: list[float], other: list[float], deviation: float) -> None:
    """The noise is a whole number of steps that does not depend on the value, and the sum is exact."""
    step = grid_step(deviation)
    values = torch.tensor([one, other[: len(one)]], dtype=torch.float64)
    sums = [SecretGaussian(5).added_to(row, deviation, 1.0, len(row)) for row in values]
    drawn = [total / step - (row / step).round() for total, row in zip(sums, values, strict=True)]
    for noise in drawn:
        assert torch.equal(noise, noise.round())
    assert torch.equal(*drawn)
    nearly = (values[0] / step).round() * step + 0.3 * step
    assert torch.equal(SecretGaussian(5).added_to(nearly, deviation, 1.0, len(one)), sums[0])
    # A shorter float is the same number, cut: nothing else enters.
    short = SecretGaussian(5).added_to(values[0].float(), deviation, 1.0, len(one))
    long = SecretGaussian(5).added_to(values[0].float().double(), deviation, 1.0, len(one))
    assert torch.equal(short, long.float())


def _could_give(sums: Tensor, value: float, deviation: float) -> np.ndarray:
    """Whether value + deviation · z, added in single precision, is the sum for some number z of single precision."""
    near = ((sums.double() - value) / deviation).float()
    found = torch.zeros_like(sums, dtype=torch.bool)
    for towards in (-math.inf, math.inf):
        z = near.clone()
        for _ in range(6):
            found |= torch.add(torch.full_like(sums, value), z, alpha=deviation) == sums
            z = torch.nextafter(z, torch.full_like(z, towards))
    return found.numpy()


@pytest.mark.parametrize("noised", ["by adding", "on the grid"])
def test_the_last_digits_do_not_tell_the_value(noised: str) -> None:
    """Who knows that it is a or b looks which of them can have given the sum; noise is twenty times their distance."""
    a, b, deviation = 1.1, 0.1, 20.0
    values = torch.full((20_000,), a)
    ways: dict[str, Callable[[], Tensor]] = {
        "by adding": lambda: torch.add(
            values, torch.randn(20_000, generator=torch.Generator().manual_seed(1)), alpha=deviation
        ),
        "on the grid": lambda: SecretGaussian(1).added_to(values, deviation, 1.0, 1),
    }
    sums = ways[noised]()
    only_a = (_could_give(sums, a, deviation) & ~_could_give(sums, b, deviation)).mean()
    only_b = (_could_give(sums, b, deviation) & ~_could_give(sums, a, deviation)).mean()
    if noised == "by adding":
        assert only_b == 0 and only_a > 0.005  # never wrong: with one coordinate a percent or so, with 16 a lot more
    else:
        assert abs(only_a - only_b) < 4 * math.sqrt(2 * max(only_a, only_b) / 20_000) + 1e-3


def test_rounding_is_made_up_for() -> None:
    """σ becomes σ (1 + Δ√d/s), and as much more as clips may be wrong: (s + Δ√d)/σ' is below the declared s/σ."""
    deviation, sensitivity, coordinates = 1.0, 1e-6, 64
    drawn = SecretGaussian(3).normals(64)
    added = SecretGaussian(3).added_to(torch.zeros(64, dtype=torch.float64), deviation, sensitivity, coordinates)
    step = grid_step(deviation)
    assert step == 2.0**-30
    widened = float((added * drawn).sum() / (drawn * drawn).sum())
    assert widened == pytest.approx(1 + step * 8 / sensitivity + 2.0**-20, rel=1e-7)
    assert (sensitivity + step * 8) / widened < sensitivity / deviation
    unbounded = SecretGaussian(3).added_to(torch.zeros(64, dtype=torch.float64), deviation, math.inf, coordinates)
    assert float((unbounded - drawn).abs().max()) < 1e-5


def test_what_is_no_number_is_as_good_as_nothing() -> None:
    odd = torch.tensor([math.nan, math.inf, -math.inf, 2.0])
    noised = SecretGaussian(3).added_to(odd, 1.0, 1.0, 4)
    assert torch.equal(noised, SecretGaussian(3).added_to(torch.tensor([0.0, 0.0, 0.0, 2.0]), 1.0, 1.0, 4))
