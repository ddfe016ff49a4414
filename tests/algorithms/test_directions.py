"""The estimator that all zeroth-order algorithms share: directions, factors φ(d), slopes, and that it is unbiased.

Statistical statements are at a fixed seed, by z-scores: (sample mean − expected) / standard error, at most 4.5. Were
the seed free, one coordinate would fail by chance seven times in a million; some 300 are looked at.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from colonnade import Cascaded, SettingsError, ZooSync
from colonnade.algorithms.split_models.parts.directions import Directions

DISTRIBUTIONS = ("gaussian", "unit-sphere", "sphere", "signs")
SAMPLES = 20_000
LARGEST_Z = 4.5

# f(w) = wᵀAw/2 + bᵀw at W: the gradient is AW + b.
A = torch.tensor([[2.0, 0.5, 0.0, -1.0], [0.5, 1.0, 0.3, 0.0], [0.0, 0.3, -1.5, 0.7], [-1.0, 0.0, 0.7, 0.5]]).double()
b = torch.tensor([1.0, -2.0, 0.5, 3.0]).double()
W = torch.tensor([0.3, -0.7, 1.1, 0.2]).double()


def looks(distribution: str, count: int = 1, radius: float = 0.5, two_sided: bool = False) -> Directions:
    return Directions(distribution, count, radius, two_sided)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(11)


def quadratic(w: Tensor) -> Tensor:
    return (w @ A * w).sum(-1) / 2 + w @ b


def linear(w: Tensor) -> Tensor:
    return w @ b


def estimates(directions: Directions, function: object) -> Tensor:
    """Many estimates of the gradient at W, as the parties make them: [samples, d]."""
    assert callable(function)
    d, radius = len(W), directions.radius
    source = generator()
    looked = [directions.draw_rows(SAMPLES, d, source).double() for _ in range(directions.count)]
    losses = [function(W).expand(SAMPLES)]
    for u in looked:
        losses.append(function(W + radius * u))
        if directions.two_sided:
            losses.append(function(W - radius * u))
    assert len(losses) == 1 + directions.points
    slopes = directions.slopes(torch.stack(losses))
    total = sum(slope[:, None] * u for slope, u in zip(slopes, looked, strict=True))
    return directions.factor(d) / directions.count * total


def z_scores(samples: Tensor, expected: Tensor) -> Tensor:
    return (samples.mean(0) - expected) / (samples.std(0) / math.sqrt(len(samples)))


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("two_sided", [False, True], ids=["one-sided", "two-sided"])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_estimate_is_unbiased(distribution: str, two_sided: bool, count: int) -> None:
    """At μ = 0.5, which is far: directions are symmetric, so a quadratic's smoothed gradient is its gradient."""
    directions = looks(distribution, count, two_sided=two_sided)
    for function, gradient in ((linear, b), (quadratic, A @ W + b)):
        samples = estimates(directions, function)
        assert z_scores(samples, gradient).abs().max() < LARGEST_Z
        # The test can tell: it would see a bias of a twelfth of the gradient's length.
        assert samples.std(0).max() / math.sqrt(SAMPLES) * LARGEST_Z < gradient.norm() / 12


def test_a_wrong_factor_would_be_seen() -> None:
    samples = estimates(looks("unit-sphere"), linear)
    assert z_scores(samples / len(W), b).abs().max() > 10 * LARGEST_Z
    assert z_scores(samples * (len(W) - 1) / len(W), b).abs().max() > 2 * LARGEST_Z


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_more_directions_make_the_estimate_less_noisy(distribution: str) -> None:
    """q of them: a q-th of the variance."""
    one, four = (estimates(looks(distribution, count), linear).var(0).sum().item() for count in (1, 4))
    assert one / four == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize("dimension", [3, 70])  # 70 signs come from three words of 32 bits
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_factor_undoes_the_second_moment(distribution: str, dimension: int) -> None:
    """φ(d) E[u uᵀ] = I, E[u] = 0."""
    directions = looks(distribution)
    u = directions.draw_rows(SAMPLES, dimension, generator()).double()
    assert u.mean(0).abs().max() < LARGEST_Z * u.std(0).max() / math.sqrt(SAMPLES)
    second = directions.factor(dimension) * u.t() @ u / SAMPLES
    # The deviation of u_i² is √2 for a normal, of u_i u_j it is 1; those of a sphere and of signs are smaller.
    assert (second - torch.eye(dimension)).abs().max() < LARGEST_Z * math.sqrt(2) / math.sqrt(SAMPLES)


def test_factors() -> None:
    assert [looks(name).factor(7) for name in DISTRIBUTIONS] == [1.0, 7.0, 1.0, 1.0]


@pytest.mark.parametrize("dimension", [1, 2, 9, 1000])
def test_spheres_have_their_radius(dimension: int) -> None:
    for distribution, radius in (("unit-sphere", 1.0), ("sphere", math.sqrt(dimension))):
        norms = looks(distribution).draw_rows(50, dimension, generator()).double().norm(dim=1)
        assert (norms / radius - 1).abs().max() < 1e-6  # float32


@pytest.mark.parametrize("dimension", [1, 31, 32, 33, 1000])
def test_signs_are_plus_or_minus_one_and_balanced(dimension: int) -> None:
    rows = 40_000 // dimension
    u = looks("signs").draw_rows(rows, dimension, generator())
    assert u.shape == (rows, dimension)
    assert u.abs().eq(1).all()
    assert abs(u.double().mean()) < LARGEST_Z / math.sqrt(u.numel())


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_draws_follow_from_the_generator_and_differ(distribution: str) -> None:
    directions = looks(distribution)
    one, two = generator(), generator()
    first, again = directions.draw(40, one), directions.draw(40, two)
    assert torch.equal(first, again)
    assert not torch.equal(first, directions.draw(40, one))
    assert torch.equal(first, directions.draw_rows(1, 40, generator())[0])
    assert first.dtype == torch.float32
    rows = directions.draw_rows(5, 40, generator())
    assert len({row.numpy().tobytes() for row in rows}) == 5


# --- slopes, by hand --------------------------------------------------------------------------------------------


def test_slopes_by_hand() -> None:
    assert looks("signs", 2, 0.5).slopes(torch.tensor([1.0, 2.0, 0.5])).tolist() == [2.0, -1.0]
    two_sided = looks("signs", 2, 0.5, two_sided=True)
    assert two_sided.slopes(torch.tensor([9.0, 2.0, 1.0, 3.0, 7.0])).tolist() == [1.0, -4.0]
    assert two_sided.points == 4
    by_row = looks("signs", 1, 0.5).slopes(torch.tensor([[1.0, 2.0], [1.0, 4.0]]))
    assert by_row.tolist() == [[0.0, 4.0]]


@given(
    count=st.integers(1, 5),
    two_sided=st.booleans(),
    here=st.integers(-9, 9),
    slopes=st.lists(st.integers(-9, 9), min_size=5),
)
def test_slopes_of_a_linear_function_are_its_slopes(count: int, two_sided: bool, here: int, slopes: list[int]) -> None:
    directions = looks("gaussian", count, 0.25, two_sided)
    losses = [float(here)]
    for slope in slopes[:count]:
        losses.append(here + 0.25 * slope)
        if two_sided:
            losses.append(here - 0.25 * slope)
    assert directions.slopes(torch.tensor(losses)).tolist() == slopes[:count]


# --- bad settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Cascaded, ZooSync])
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"distribution": "gausian"}, "'gausian'. Did you mean 'gaussian'"),
        ({"directions": 0}, r"algorithm\.directions is 0; it must be at least 1"),
        ({"smoothing_radius": 0.0}, r"algorithm\.smoothing_radius is 0\.0; it must be above 0"),
        ({"smoothing_radius": -1.0}, "smoothing_radius is -1"),
        ({"smoothing_radius": math.inf}, "smoothing_radius is inf"),
        ({"smoothing_radius": math.nan}, "smoothing_radius is nan"),
    ],
)
def test_bad_settings_are_refused(kind: type, settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        kind(**settings)


@pytest.mark.parametrize("distribution", ["gaussian", "sphere", "unit-sphere", "signs"])
@pytest.mark.parametrize("dimension", [3, 40, 1001])
def test_a_scaled_direction_is_the_direction_scaled(distribution: str, dimension: int) -> None:
    directions = looks(distribution)
    scaled = directions.draw_scaled(dimension, generator(), 37.5)
    torch.testing.assert_close(scaled, 37.5 * directions.draw(dimension, generator()), rtol=3e-7, atol=0.0)
    assert directions.draw_scaled(dimension, generator(), 0.0).abs().max() == 0
