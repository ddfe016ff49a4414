"""μ, ε and δ against 60-digit arithmetic, against each other over the whole range, and against dp-accounting."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from colonnade.errors import SettingsError
from colonnade.privacy.gaussian import epsilon_of, mu_of, release_mu

epsilons = st.floats(math.log(0.01), math.log(10_000)).map(math.exp)
deltas = st.floats(math.log(1e-12), math.log(0.5)).map(math.exp)


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), as the books print it, with digits to spare."""
    # e^10000 times its partner: 60 digits after cancelling, whatever the exponent
    with mpmath.workdps(60):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@given(epsilons, deltas)
def test_the_mu_of_a_budget_spends_exactly_its_delta(epsilon: float, delta: float) -> None:
    assert float(exact_delta(mu_of(epsilon, delta), epsilon)) == pytest.approx(delta, rel=1e-9)


@given(epsilons, deltas)
def test_round_trips(epsilon: float, delta: float) -> None:
    mu = mu_of(epsilon, delta)
    assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-9)
    assert mu_of(epsilon_of(mu, delta), delta) == pytest.approx(mu, rel=1e-9)


@given(epsilons, deltas, st.floats(1.01, 3.0))
def test_more_of_one_is_less_of_another(epsilon: float, delta: float, factor: float) -> None:
    mu = mu_of(epsilon, delta)
    assert mu_of(epsilon * factor, delta) > mu
    assert mu_of(epsilon, min(delta * factor, 0.9)) > mu
    assert epsilon_of(mu * factor, delta) > epsilon


@given(epsilons, deltas)
def test_the_bracket_of_the_search_holds(epsilon: float, delta: float) -> None:
    mu = mu_of(epsilon, delta)
    t = mu / 2 - epsilon / mu
    assert 2 * special.ndtr(t) - 1 <= delta * (1 + 1e-9)
    assert delta <= special.ndtr(t) * (1 + 1e-9)


def test_without_epsilon_delta_is_the_total_variation_distance() -> None:
    # |N(0, 1) − N(1, 1)| = 2Φ(1/2) − 1
    distance = 2 * special.ndtr(0.5) - 1
    assert mu_of(0.0, distance) == pytest.approx(1.0, rel=1e-12)
    assert epsilon_of(1.0, distance * 1.001) == 0.0


def test_the_ends() -> None:
    assert (epsilon_of(0.0, 1e-5), epsilon_of(math.inf, 1e-5)) == (0.0, math.inf)
    assert mu_of(math.inf, 1e-5) == math.inf
    assert release_mu(math.inf, 1.0) == math.inf


def test_rows_are_priced_one_by_one() -> None:
    mus = np.array([0.0, 0.5, 12.0, np.inf])
    assert epsilon_of(mus, 1e-5).tolist() == [epsilon_of(float(mu), 1e-5) for mu in mus]


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.2])
@pytest.mark.parametrize("steps", [1, 10, 60])
def test_closed_form_and_privacy_loss_distributions_agree(mu: float, steps: int) -> None:
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(noise_multiplier=1 / mu), steps))
    for delta in (1e-3, 1e-6):
        assert epsilon_of(mu * math.sqrt(steps), delta) == pytest.approx(accountant.get_epsilon(delta), rel=0.01)


@pytest.mark.parametrize(
    "call",
    [
        lambda: release_mu(1.0, 0.0),
        lambda: release_mu(-1.0, 1.0),
        lambda: epsilon_of(1.0, 0.0),
        lambda: epsilon_of(1.0, 1.0),
        lambda: epsilon_of(math.nan, 0.1),
        lambda: epsilon_of(-1.0, 0.1),
        lambda: mu_of(-1.0, 0.1),
        lambda: mu_of(math.nan, 0.1),
    ],
)
def test_nonsense_is_refused(call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SettingsError, match="must"):
        call()
