"""The audit's lower bound on ε: at values done by hand, against its own theorem, and on mechanisms with a known ε."""

import math
from bisect import bisect_left

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special, stats

from colonnade.errors import SettingsError
from colonnade.privacy.audit_bound import (
    chance_of_so_many,
    epsilon_lower_bound,
    fewest_canaries,
    gaussian_lower_bound,
    largest_bound,
)
from colonnade.privacy.gaussian import epsilon_of


def logit(q: float) -> float:
    return math.log(q / (1 - q))


def least_refuting(canaries: int, epsilon: float, delta: float = 0.0) -> int:
    """The least number of right guesses, of all canaries, whose bound exceeds ε; one more than all if none does."""
    return bisect_left(
        range(canaries + 1), True, key=lambda v: epsilon_lower_bound(canaries, canaries, v, delta) > epsilon
    )


def test_by_hand() -> None:
    # Guessing 4 of 4 fair coins has probability 1/16: not unlikely enough. 5 of 5 has 1/32.
    assert epsilon_lower_bound(4, 4, 4) == 0.0
    # All 5 are right with probability q⁵ = 0.05 where q is its fifth root.
    assert epsilon_lower_bound(5, 5, 5) == pytest.approx(logit(0.05 ** (1 / 5)))
    assert epsilon_lower_bound(5, 5, 4) == 0.0  # 6/32
    assert epsilon_lower_bound(100, 0, 0) == 0.0
    # q = e^ε/(1 + e^ε) = 3/4 at ε = log 3; P[2 of 2] = 9/16, P[at least 1 of 2] = 15/16
    assert chance_of_so_many(2, 2, 2, math.log(3)) == pytest.approx(9 / 16)
    assert chance_of_so_many(2, 2, 1, math.log(3)) == pytest.approx(15 / 16)


def test_delta_by_hand() -> None:
    # v = r = 2, ε = 0: β = 1/4, and P[B = 1] = 2/4, P[0 ≤ B ≤ 1]/2 = 3/8. The greater is 1/2; 2mδ = 2 · 2 · 0.01.
    assert chance_of_so_many(2, 2, 2, 0.0, delta=0.01) == pytest.approx(1 / 4 + 0.04 / 2)
    # Canaries that are not guessed add to the chance all the same.
    assert chance_of_so_many(5, 2, 2, 0.0, delta=0.01) == pytest.approx(1 / 4 + 0.1 / 2)


@pytest.mark.parametrize(("guesses", "correct"), [(10, 9), (50, 40), (200, 130), (1000, 990)])
def test_without_delta_it_is_the_clopper_pearson_bound(guesses: int, correct: int) -> None:
    q = stats.beta.ppf(0.05, correct, guesses - correct + 1)
    assert epsilon_lower_bound(guesses, guesses, correct) == pytest.approx(logit(q), rel=1e-6)


@given(st.integers(1, 8), st.data(), st.floats(0, 3), st.floats(1e-4, 0.05))
def test_no_allowed_excess_beats_the_bound(canaries: int, data: st.DataObject, epsilon: float, delta: float) -> None:
    """The best F ∈ {0, …, m} with mean at most 2mδ, found by a linear programme."""
    guesses = data.draw(st.integers(1, canaries))
    correct = data.draw(st.integers(1, guesses))
    amounts = np.arange(canaries + 1)
    wins = stats.binom.sf(correct - 1 - amounts, guesses, special.expit(epsilon))
    best = optimize.linprog(-wins, A_ub=[amounts], b_ub=[2 * canaries * delta], A_eq=[np.ones(canaries + 1)], b_eq=[1])
    assert -best.fun <= chance_of_so_many(canaries, guesses, correct, epsilon, delta) + 1e-9


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 4.0])
@pytest.mark.parametrize("canaries", [20, 300])
def test_randomised_response_is_overrated_in_at_most_one_run_of_twenty(epsilon: float, canaries: int) -> None:
    """Exactly: over all numbers of right answers that randomised response can give."""
    assert stats.binom.sf(least_refuting(canaries, epsilon) - 1, canaries, special.expit(epsilon)) <= 0.05


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_the_median_run_comes_near(epsilon: float) -> None:
    median = int(stats.binom.median(2000, special.expit(epsilon)))
    assert 0.85 * epsilon <= epsilon_lower_bound(2000, 2000, median) <= epsilon


def test_simulated_randomised_response_with_open_guesses() -> None:
    """Only a random half is guessed; the other half of the answers is never looked at."""
    epsilon, canaries, trials = 1.0, 200, 1000
    generator = np.random.default_rng(3)
    bits = generator.integers(0, 2, (trials, canaries))
    answers = np.where(generator.random((trials, canaries)) < special.expit(epsilon), bits, 1 - bits)
    right = (answers == bits)[:, : canaries // 2].sum(1)
    bounds = {v: epsilon_lower_bound(canaries, canaries // 2, int(v)) for v in np.unique(right)}
    # 5 % and four standard deviations of a count over the trials
    allowed = 0.05 * trials + 4 * math.sqrt(0.05 * 0.95 * trials)
    assert sum(bounds[v] > epsilon for v in right) <= allowed


@pytest.mark.parametrize("delta", [1e-4, 1e-3])
def test_randomised_response_that_fails_with_delta(delta: float) -> None:
    """Worst of its kind: with probability δ all bits are shown at once."""
    epsilon, canaries = 1.0, 100
    chance = stats.binom.sf(least_refuting(canaries, epsilon, delta) - 1, canaries, special.expit(epsilon))
    assert (1 - delta) * chance + delta <= 0.05


@pytest.mark.parametrize("mu", [0.5, 1.0, 3.0])
def test_the_gaussian_mechanism_is_never_seen_above_its_sound_figure(mu: float) -> None:
    """Each canary's bit is released once with μ-GDP; the best guess is right with probability Φ(μ/2)."""
    canaries, delta = 500, 1e-5
    sound = epsilon_of(mu, delta)
    least = least_refuting(canaries, sound, delta)
    assert stats.binom.sf(least - 1, canaries, special.ndtr(mu / 2)) <= 0.05


counts = st.integers(1, 60).flatmap(lambda m: st.tuples(st.just(m), st.integers(0, m)))


@settings(max_examples=40)
@given(counts, st.floats(0, 0.01), st.floats(0.6, 0.99))
def test_the_bound_is_monotone(counts: tuple[int, int], delta: float, confidence: float) -> None:
    guesses, correct = counts
    bound = epsilon_lower_bound(guesses + 5, guesses, correct, delta, confidence)
    near = 1e-9
    if correct < guesses:
        assert epsilon_lower_bound(guesses + 5, guesses, correct + 1, delta, confidence) >= bound - near
    assert epsilon_lower_bound(guesses + 9, guesses, correct, delta, confidence) <= bound + near
    assert epsilon_lower_bound(guesses + 5, guesses, correct, delta * 1.5, confidence) <= bound + near
    assert epsilon_lower_bound(guesses + 5, guesses, correct, delta, (1 + confidence) / 2) <= bound + near


@given(counts, st.floats(1e-5, 0.01))
def test_everything_below_the_bound_is_refuted_and_nothing_above(counts: tuple[int, int], delta: float) -> None:
    guesses, correct = counts
    bound = epsilon_lower_bound(guesses, guesses, correct, delta)
    for share in (0.1, 0.5, 0.9, 0.999):
        assert bound == 0 or chance_of_so_many(guesses, guesses, correct, share * bound, delta) <= 0.05
    for above in (1e-6, 0.1, 1.0, 10.0):
        assert chance_of_so_many(guesses, guesses, correct, bound + above, delta) >= 0.05 * (1 - 1e-9)


def test_how_much_canaries_can_show() -> None:
    assert largest_bound(10) == pytest.approx(logit(0.05**0.1))
    assert largest_bound(10) < largest_bound(100) < largest_bound(1000)


@pytest.mark.parametrize("counts", [(0, 0, 0), (5, 6, 1), (5, 4, 5), (5, 4, -1)])
def test_impossible_counts_are_refused(counts: tuple[int, int, int]) -> None:
    with pytest.raises(SettingsError, match="canar"):
        epsilon_lower_bound(*counts)


def test_other_nonsense_is_refused() -> None:
    with pytest.raises(SettingsError, match="confidence"):
        epsilon_lower_bound(5, 5, 5, confidence=0.4)
    with pytest.raises(SettingsError, match="δ"):
        epsilon_lower_bound(5, 5, 5, delta=1.0)
    with pytest.raises(SettingsError, match="ε"):
        chance_of_so_many(5, 5, 5, -1.0)


@pytest.mark.parametrize("mu", [0.5, 1.67, 3.0])
def test_the_sharp_bound_holds_of_a_gaussian_and_comes_near(mu: float) -> None:
    """Of 400 audits of N(±μ/2, 1) no more than a twentieth, and luck, may bound μ above what it is."""
    truth = epsilon_of(mu, 1e-5)
    right = np.random.default_rng(4).binomial(2000, stats.norm.cdf(mu / 2), 400)
    bounds = np.array([gaussian_lower_bound(2000, int(count), 1e-5) for count in right])
    assert (bounds > truth).sum() <= 32  # p < 0.01
    assert np.median(bounds) > 0.75 * truth


def test_how_many_canaries_refute_what() -> None:
    assert fewest_canaries(8.0, 1e-5) == 16384
    assert fewest_canaries(9.0, 1e-5) is None  # more of them show less
    assert gaussian_lower_bound(100, 0, 1e-5) == gaussian_lower_bound(100, 50, 1e-5) == 0
