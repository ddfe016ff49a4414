"""How much of something one peer may have: so much at once, and so much per second after that."""

import time
from collections.abc import Callable


class Allowance:
    """A supply that fills at a steady rate. Who takes more than there is must wait until it is made up for.

    >>> clock = iter([0.0, 0.0, 0.0, 1.0])
    >>> greetings = Allowance(2.0, 1.0, lambda: next(clock))
    >>> greetings.take(1.0), greetings.take(1.0), greetings.take(1.0)
    (0.0, 0.5, 0.0)
    """

    def __init__(self, per_second: float, at_once: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._at_once = at_once
        self._clock = clock
        self._left = at_once
        self._looked_at = clock()

    def take(self, amount: float) -> float:
        """Take so much; after how many seconds that is made up for."""
        now = self._clock()
        self._left = min(self._at_once, self._left + (now - self._looked_at) * self._per_second) - amount
        self._looked_at = now
        return max(0.0, -self._left / self._per_second)
