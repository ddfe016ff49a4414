"""Gaussian differential privacy in figures: μ, ε and δ, each from the other two, and how μ adds up.

A mechanism is μ-GDP if telling two neighbouring data sets apart by its output is at least as hard as telling N(0, 1)
from N(μ, 1) by one draw. That holds exactly for Gaussian noise with μ = sensitivity / noise, and it composes without
loss: μ² = Σ μ_i². Searches end on the safe side: an ε is never too small and a μ never too large, but for the rounding
of float64.

Reference: Dong, Roth, Su, "Gaussian differential privacy", 2022.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colonnade.errors import SettingsError
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    from scipy import special
else:
    special = on_demand("scipy.special")

Figures = TypeVar("Figures", float, NDArray[np.float64])
"""One figure, or one for each row."""

_HALVINGS = 64  # of an interval at most a few tens wide: far below the spacing of float64


def release_mu(sensitivity: float, noise: float) -> float:
    """μ of one release with Gaussian noise; infinite if nothing bounds the sensitivity.

    >>> release_mu(sensitivity=2.0, noise=4.0)
    0.5
    """
    if not (sensitivity >= 0 and noise > 0):
        raise SettingsError(
            f"A release has sensitivity {sensitivity} and noise {noise}; sensitivity must be at least 0 and noise above"
            " 0. Without noise nothing is private."
        )
    return sensitivity / noise


def epsilon_of(mu: Figures, delta: float) -> Figures:
    """The least ε for which μ-GDP is (ε, δ)-differential privacy; infinite if μ is.

    >>> round(epsilon_of(11.9, 1e-3))
    107
    """
    _check_delta(delta)
    if isinstance(mu, float):
        return _epsilon_of_one(mu, delta)
    return cast(Figures, _like(_epsilons_of(_check_mu(mu), delta)))


@lru_cache(maxsize=1024)  # a run asks for the same few again and again, and each is a search
def _epsilon_of_one(mu: float, delta: float) -> float:
    return float(_epsilons_of(_check_mu(mu), delta))


def _epsilons_of(mus: NDArray[np.float64], delta: float) -> NDArray[np.float64]:
    inner = np.where((mus > 0) & np.isfinite(mus), mus, 1.0)

    def log_delta(t: NDArray[np.float64]) -> NDArray[np.float64]:
        return _log_delta(inner, np.maximum(inner * (inner / 2 - t), 0.0))

    t = _bisect(log_delta, np.broadcast_to(delta, inner.shape))
    epsilons = np.maximum(inner * (inner / 2 - t), 0.0)
    # where δ = 2Φ(μ/2) − 1 is small enough with ε = 0 already, the bisection only comes close to that
    epsilons = np.where(special.erf(inner / math.sqrt(8)) <= delta, 0.0, epsilons)
    return np.where(mus == 0, 0.0, np.where(np.isinf(mus), np.inf, epsilons))


def mu_of(epsilon: float, delta: float) -> float:
    """The largest μ that is still (ε, δ)-differential privacy: what a budget allows.

    >>> round(mu_of(1.0, 1e-3), 4)
    0.3884
    """
    _check_epsilon(epsilon)
    _check_delta(delta)
    if math.isinf(epsilon):
        return math.inf
    if epsilon == 0:  # δ = 2Φ(μ/2) − 1
        return 2 * math.sqrt(2) * float(special.erfinv(delta))

    def mu_at(t: NDArray[np.float64]) -> NDArray[np.float64]:
        """μ/2 − ε/μ = t solved for μ > 0, without cancellation for negative t."""
        root = np.hypot(t, math.sqrt(2 * epsilon))
        return np.where(t >= 0, t + root, 2 * epsilon / (root - np.minimum(t, 0)))

    return float(mu_at(_bisect(lambda t: _log_delta(mu_at(t), epsilon), np.asarray(delta, np.float64))))


def _log_delta(mu: NDArray[np.float64], epsilon: ArrayLike) -> NDArray[np.float64]:
    """log δ(ε; μ) for 0 < μ < ∞.

    δ = Φ(−a) − e^ε Φ(−b) with a = ε/μ − μ/2 and b = ε/μ + μ/2. As b² − a² = 2ε, the densities obey φ(a) = e^ε φ(b), so
    with Mills' ratio R(x) = Φ(−x)/φ(x), δ = φ(a)·(R(a) − R(b)) = Φ(−a)·(1 − R(b)/R(a)): e^ε is gone, and with it every
    overflow. Subtracting costs digits only where R(a) and R(b) are close, that is for small μ: about four of sixteen at
    ε = 0.01 and δ = 1e-12.
    """
    x = np.asarray(epsilon, np.float64) / mu
    a, b = x - mu / 2, x + mu / 2
    log_delta: NDArray[np.float64] = special.log_ndtr(-a) + np.log(-np.expm1(_log_mills(b) - _log_mills(a)))
    return log_delta


def _log_mills(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """log R(x), R(x) = Φ(−x)/φ(x) = √(π/2) erfcx(x/√2). Below −30, where erfcx overflows at last, Φ(−x) is 1."""
    far = x < -30
    near = np.log(math.sqrt(math.pi / 2) * special.erfcx(np.where(far, 0.0, x) / math.sqrt(2)))
    log_ratio: NDArray[np.float64] = np.where(far, x * x / 2 + math.log(math.sqrt(2 * math.pi)), near)
    return log_ratio


def _bisect(
    log_delta: Callable[[NDArray[np.float64]], NDArray[np.float64]], delta: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The largest t = μ/2 − ε/μ whose δ is at most the given one; δ grows with t if either μ or ε stays fixed.

    Where to look follows from δ = Φ(t) − e^ε Φ(−ε/μ − μ/2):
    δ < Φ(t), so t lies above Φ⁻¹(δ).
    And with a = −t, b = ε/μ + μ/2 ≥ |t|: the second term is φ(t)·R(b) ≤ φ(t)·R(|t|) = Φ(−|t|), so δ ≥ 2Φ(t) − 1 for
    t ≥ 0, and t is at most Φ⁻¹((1 + δ)/2) = √2·erfinv(δ), which is never negative.
    """
    low = np.array(special.ndtri(delta), np.float64)
    high = np.array(math.sqrt(2) * special.erfinv(delta), np.float64)
    wanted = np.log(delta)
    for _ in range(_HALVINGS):
        middle = low + (high - low) / 2
        enough = log_delta(middle) <= wanted
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    return low


def _like(figures: NDArray[np.float64]) -> float | NDArray[np.float64]:
    return float(figures) if figures.ndim == 0 else figures


def _check_mu(mu: ArrayLike) -> NDArray[np.float64]:
    mus = np.asarray(mu, np.float64)
    if not (mus >= 0).all():
        raise SettingsError("A μ of Gaussian differential privacy is negative or not a number; it must be at least 0.")
    return mus


def _check_epsilon(epsilon: float) -> None:
    if not epsilon >= 0:
        raise SettingsError(f"The privacy budget ε is {epsilon}; it must be at least 0.")


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise SettingsError(
            f"The privacy parameter δ is {delta}; it must lie strictly between 0 and 1. Gaussian noise gives no "
            "guarantee with δ = 0; choose one well below 1 / rows."
        )
