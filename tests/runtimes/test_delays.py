"""Delays mean what they say: their means, their ranges, and what is refused and how."""

from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import SettingsError
from colonnade.runtimes.delays import Chance, Delay, parse_delay

DRAWS = 4000


def draws(delay: Delay, seed: int = 0) -> np.ndarray:
    draw, chance = delay.draw(), Chance([seed])
    return np.array([draw(chance) for _ in range(DRAWS)])


# The standard deviation of one draw, by the textbook; lognormal: mean √(exp(σ²) − 1); poisson: √(mean × unit).
DISTRIBUTIONS = {
    "constant": (Delay("constant", 0.2), 0.0),
    "exponential": (Delay("exponential", 0.2), 0.2),
    "uniform": (Delay("uniform", 0.2, 0.15), 0.15 / sqrt(3)),
    "lognormal": (Delay("lognormal", 0.2, 0.5), 0.2 * sqrt(np.expm1(0.25))),
    "poisson": (Delay("poisson", 0.2, 0.01), sqrt(0.2 * 0.01)),
}


@pytest.mark.parametrize(("delay", "deviation"), DISTRIBUTIONS.values(), ids=DISTRIBUTIONS.keys())
def test_mean_and_deviation(delay: Delay, deviation: float) -> None:
    drawn = draws(delay)
    # The mean of 4,000 draws is within 4 of its standard errors with probability 0.99994.
    assert abs(drawn.mean() - 0.2) <= 4 * deviation / sqrt(DRAWS) + 1e-12
    assert drawn.std() == pytest.approx(deviation, rel=0.15, abs=1e-12)


@pytest.mark.parametrize("delay", [delay for delay, _ in DISTRIBUTIONS.values()], ids=DISTRIBUTIONS.keys())
def test_no_delay_is_negative_and_a_seed_gives_it_again(delay: Delay) -> None:
    assert (draws(delay) >= 0).all()
    assert (draws(delay, seed=3) == draws(delay, seed=3)).all()


@given(mean=st.floats(0, 1e6), part=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_a_uniform_delay_stays_in_its_range(mean: float, part: float, seed: int) -> None:
    delay = parse_delay({"distribution": "uniform", "mean": mean, "spread": mean * part}, "latency_seconds")
    value = delay.draw()(Chance([seed]))
    assert value >= 0
    assert delay.mean - delay.spread <= value <= delay.mean + delay.spread


def test_poisson_delays_are_whole_units() -> None:
    units = draws(Delay("poisson", 0.5, 0.25)) / 0.25
    assert (units == units.round()).all()
    assert 0 in units  # with a mean of two units, none at all has probability e⁻² = 0.14


def test_ways_of_writing_a_delay() -> None:
    assert parse_delay(0, "x") == parse_delay(0.0, "x") == parse_delay({}, "x") == Delay("constant", 0.0)
    assert parse_delay(2, "x") == parse_delay({"mean": 2}, "x") == Delay("constant", 2.0)
    written = {"distribution": "lognormal", "mean": 1, "spread": 0.5}
    assert parse_delay(written, "x") == Delay("lognormal", 1.0, 0.5)
    assert parse_delay(Delay("exponential", 1.0), "x") == Delay("exponential", 1.0)


def of(distribution: str, mean: Any = 1.0, spread: Any = 0.0) -> dict[str, Any]:
    return {"distribution": distribution, "mean": mean, "spread": spread}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("fast", r"is 'fast'; give seconds, or"),
        ("measured", r"is 'measured'; give seconds"),
        (True, r"is True; give seconds"),
        (None, r"is None; give seconds"),
        ([1.0], r"give seconds"),
        (-1, r"mean -1\.0 and spread 0\.0 must be finite and not negative"),
        (float("nan"), r"must be finite and not negative"),
        (float("inf"), r"must be finite and not negative"),
        (of("exponential", -0.1), r"must be finite and not negative"),
        (of("uniform", 1.0, float("nan")), r"must be finite and not negative"),
        (of("uniform", 1.0, 1.5), r"a uniform delay of 1\.0 ± 1\.5 could be negative"),
        (of("lognormal", 0.0, 1.0), r"a lognormal delay needs a mean above 0"),
        (of("poisson", 1.0, 0.0), r"a poisson delay needs its unit of time as spread"),
        (of("constant", "soon"), r"mean and spread must be numbers of seconds"),
        (of("constant", [1]), r"mean and spread must be numbers of seconds"),
        (of("exponentail"), r"'exponentail'\. Did you mean 'exponential'\?"),
        ({"distribution": "uniform", "maen": 1.0}, r"'maen'\. Did you mean 'mean'\?"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_with_its_place(value: Any, said: str) -> None:
    with pytest.raises(SettingsError, match=rf"simulate\.latency_seconds.*{said}"):
        parse_delay(value, "simulate.latency_seconds")
