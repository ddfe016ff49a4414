"""How fast a party goes: for trials slower than it could, and not at all while its owner has paused it."""

from collections.abc import Callable
from dataclasses import dataclass


def never() -> bool:
    """Nobody pauses it."""
    return False


@dataclass(frozen=True)
class Pace:
    """How slow a party is, and whether it rests: then it takes no turns, and what arrives waits."""

    slowdown: float = 1.0
    compute_seconds: float = 0.0  # handling takes at least so long
    paused: Callable[[], bool] = never

    def rest_seconds(self, taken: float) -> float:
        """How much longer a turn is to last that has taken so long."""
        return self.slowdown * max(taken, self.compute_seconds) - taken

    @property
    def is_full_speed(self) -> bool:
        return self.slowdown == 1.0 and self.compute_seconds == 0.0


FULL_SPEED = Pace()
