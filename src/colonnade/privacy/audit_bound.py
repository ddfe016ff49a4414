"""How small ε cannot be, after one training run with many canaries.

Every canary carries a secret bit that a fair coin chose: which of two labels its row got. An adversary who knows
everything else guesses the bits from what it saw, and may leave some open. If it is right too often to be luck under
(ε, δ)-differential privacy, that ε is refuted. The unit is one canary's bit, so the bound belongs beside figures whose
neighbours differ in one row's label.

Reference: Steinke, Nasr, Jagielski, "Privacy auditing with one (1) training run", 2023.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from colonnade.errors import SettingsError
from colonnade.on_demand import on_demand
from colonnade.privacy.gaussian import epsilon_of

if TYPE_CHECKING:
    from scipy import special, stats
else:
    special, stats = on_demand("scipy.special"), on_demand("scipy.stats")

_HALVINGS = 40


def chance_of_so_many(canaries: int, guesses: int, correct: int, epsilon: float, delta: float = 0.0) -> float:
    """At most how likely `correct` or more right guesses are if the run is (ε, δ)-differentially private: the p-value.

    Pure ε first. Fix what the adversary saw, and reveal the bits one after another. Given the bits before it, a bit is
    still a fair coin before the run, and flipping it changes the probability of what was seen by a factor of at most
    e^ε. So by Bayes its odds are at most e^ε to 1, whatever came before: a guess is right with probability at most
    q = e^ε/(1 + e^ε). The number W of right guesses is thus stochastically at most B ~ Binomial(r, q), and
    P[W ≥ v] ≤ β = P[B ≥ v].

    With δ, a part of the probability of what is seen obeys no ratio: at most δ for each value of a bit, so at most 2δ
    for a canary and 2mδ in all. On that part a guess counts as right. The theorem says that W is stochastically at most
    B + F, where F, independent of B, takes values 0, …, m and has mean at most 2mδ. Then

        P[B + F ≥ v] = β + Σ_i P[F = i]·P[v − i ≤ B < v]  ≤  β + E[F]·max_i P[v − i ≤ B < v]/i,

    as no distribution of F with that mean does better than putting it all on the i that gains most for its cost.

    >>> chance_of_so_many(canaries=4, guesses=4, correct=4, epsilon=0.0)
    0.0625
    """
    _check(canaries, guesses, correct, delta)
    if not epsilon >= 0:
        raise SettingsError(f"The ε to be tested is {epsilon}; it must be at least 0.")
    q = float(special.expit(epsilon))
    at_least = float(stats.binom.sf(correct - 1, guesses, q))  # β
    if delta == 0 or correct == 0:
        return at_least
    # P[v − i ≤ B < v] for i = 1, …, v; a greater i gains nothing more, as B is never negative
    gained = np.cumsum(stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, q))
    best = float((gained / np.arange(1, correct + 1)).max())
    return min(1.0, at_least + 2 * canaries * delta * best)


def epsilon_lower_bound(
    canaries: int, guesses: int, correct: int, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """The ε below which (ε, δ)-differential privacy is refuted with that confidence; 0 if nothing is.

    How many canaries to guess must be settled before their bits are looked at: the best of several bounds has not the
    confidence of one.

    Where the chance above is at most 1/2 it grows with ε. β does; and v lies above the median of B, so the i that is
    best reaches past the mode, to where P[B = v − i] is no smaller than P[B = v − 1], and more ε moves more probability
    into v − i ≤ B < v from below than out of it above. So the refuted ε are an interval from 0; halving finds its end.

    >>> round(epsilon_lower_bound(canaries=100, guesses=100, correct=90), 2)
    1.63
    """
    _check(canaries, guesses, correct, delta)
    if not 0.5 < confidence < 1:
        raise SettingsError(f"The confidence of an audit is {confidence}; it must lie between 0.5 and 1, such as 0.95.")
    significance = 1 - confidence
    if chance_of_so_many(canaries, guesses, correct, 0.0, delta) > significance:
        return 0.0
    # β ≥ q^r, which is the significance where q is its r-th root: nothing above that ε is ever refuted.
    log_q = math.log(significance) / guesses
    low, high = 0.0, max(0.0, log_q - math.log(-math.expm1(log_q)))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        refuted = chance_of_so_many(canaries, guesses, correct, middle, delta) <= significance
        low, high = (middle, high) if refuted else (low, middle)
    return low


def largest_bound(canaries: int, delta: float = 0.0, confidence: float = 0.95) -> float:
    """What an audit with so many canaries can show at best: all guessed, all right.

    >>> round(largest_bound(1000), 2)
    5.81
    """
    return epsilon_lower_bound(canaries, canaries, canaries, delta, confidence)


def fewest_canaries(epsilon: float, delta: float = 0.0, confidence: float = 0.95) -> int | None:
    """A power of two of canaries with which an audit could refute that ε, all guesses being right; None: none can.

    With δ there is an end to it: the more canaries, the likelier that one of them falls into what obeys no ratio.

    >>> fewest_canaries(1.0), fewest_canaries(8.0)
    (16, 16384)
    """
    for canaries in (1 << power for power in range(3, 18)):
        if largest_bound(canaries, delta, confidence) > epsilon:
            return canaries
    return None


def gaussian_lower_bound(canaries: int, correct: int, delta: float, confidence: float = 0.95) -> float:
    """The ε at δ of the least μ that so many right guesses leave, if every canary was a Gaussian mechanism of its own.

    Of N(±μ/2, 1) a fair coin's side is guessed with probability Φ(μ/2) at best. Where canaries have noise of their own
    and nothing else in common, the number of right guesses is at most binomial, and Clopper and Pearson bound Φ(μ/2)
    from below. That is far sharper than what holds of any mechanism, and refutes less: the claim that this one is
    μ-GDP.

    >>> round(gaussian_lower_bound(1000, 800, 1e-5), 1)
    7.2
    """
    _check(canaries, canaries, correct, delta)
    if correct == 0:
        return 0.0
    chance = float(stats.beta.ppf(1 - confidence, correct, canaries - correct + 1))
    return 0.0 if chance <= 0.5 else epsilon_of(2 * float(stats.norm.ppf(chance)), delta)


def _check(canaries: int, guesses: int, correct: int, delta: float) -> None:
    if not 0 <= correct <= guesses <= canaries or canaries < 1:
        raise SettingsError(
            f"An audit counts {correct} right of {guesses} guesses about {canaries} canaries. Give at least one "
            "canary, no more guesses than canaries, and no more right ones than guesses."
        )
    if not 0 <= delta < 1:
        raise SettingsError(f"The privacy parameter δ of an audit is {delta}; it must be at least 0 and below 1.")
