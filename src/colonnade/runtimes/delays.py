"""How long things take in a simulation: a constant, a distribution, or what was measured times a factor.

A delay is written as a number of seconds, or as a table such as {distribution = "exponential", mean = 0.01}.
Draws come from a generator of the simulation's own, so that the same seed gives the same times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, log
from typing import Any

import numpy as np

from colonnade.errors import SettingsError, unknown_name


class Chance:
    """A generator of these seeds, made when it is first drawn from: most links have none but constant delays."""

    __slots__ = ("_generator", "_seeds")

    def __init__(self, seeds: Sequence[int]) -> None:
        self._seeds = seeds
        self._generator: np.random.Generator | None = None

    @property
    def generator(self) -> np.random.Generator:
        if self._generator is None:
            self._generator = np.random.default_rng(self._seeds)
        return self._generator


Draw = Callable[[Chance], float]

MEASURED = "measured"
"""As a compute time: the wall time that the arithmetic took, times the party's slowdown."""


@dataclass(frozen=True)
class Delay:
    """Seconds that something takes. `spread` is half the width (uniform) or σ of the logarithm (lognormal)."""

    distribution: str = "constant"
    mean: float = 0.0
    spread: float = 0.0

    def draw(self) -> Draw:
        """A function that gives the next delay from a generator."""
        return _DISTRIBUTIONS[self.distribution](self)


_DISTRIBUTIONS: dict[str, Callable[[Delay], Draw]] = {
    "constant": lambda delay: lambda chance: delay.mean,
    "exponential": lambda delay: lambda chance: float(chance.generator.exponential(delay.mean)),
    "uniform": lambda delay: lambda chance: delay.mean + delay.spread * float(chance.generator.uniform(-1.0, 1.0)),
    # The log-normal whose mean is `mean`: its location is ln(mean) − σ²/2.
    "lognormal": lambda delay: (
        lambda chance: float(chance.generator.lognormal(log(delay.mean) - delay.spread**2 / 2, delay.spread))
    ),
    # Whole units of time, as the papers' experiments draw them: spread is the unit, mean the expected total.
    "poisson": lambda delay: lambda chance: delay.spread * float(chance.generator.poisson(delay.mean / delay.spread)),
}


def parse_delay(value: Any, where: str) -> Delay:
    """A Delay from what a settings file holds; SettingsError names the place and the fault."""
    if isinstance(value, Delay):
        delay = value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        delay = Delay("constant", float(value))
    elif isinstance(value, dict):
        unknown = sorted(set(value) - {"distribution", "mean", "spread"})
        if unknown:
            raise unknown_name(f"field of {where}", unknown[0], ["distribution", "mean", "spread"])
        try:
            delay = Delay(
                str(value.get("distribution", "constant")),
                float(value.get("mean", 0.0)),
                float(value.get("spread", 0.0)),
            )
        except (TypeError, ValueError):
            raise SettingsError(f"{where}: mean and spread must be numbers of seconds.") from None
    else:
        raise SettingsError(f'{where} is {value!r}; give seconds, or {{distribution = "exponential", mean = 0.01}}.')
    if delay.distribution not in _DISTRIBUTIONS:
        raise unknown_name(f"distribution for {where}", delay.distribution, _DISTRIBUTIONS)
    if not (isfinite(delay.mean) and delay.mean >= 0 and isfinite(delay.spread) and delay.spread >= 0):
        raise SettingsError(f"{where}: mean {delay.mean} and spread {delay.spread} must be finite and not negative.")
    if delay.distribution == "uniform" and delay.spread > delay.mean:
        raise SettingsError(f"{where}: a uniform delay of {delay.mean} ± {delay.spread} could be negative.")
    if delay.distribution == "lognormal" and delay.mean <= 0:
        raise SettingsError(f"{where}: a lognormal delay needs a mean above 0.")
    if delay.distribution == "poisson" and delay.spread <= 0:
        raise SettingsError(f"{where}: a poisson delay needs its unit of time as spread, above 0.")
    return delay
