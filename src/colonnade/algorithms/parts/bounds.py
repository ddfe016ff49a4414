"""How much of a peer is taken, and how much is kept for it: bounds that no honest training meets.

Whatever lies beyond one of them is refused on arrival, as a breach of the protocol by whoever sent it, before anything
is changed. So a peer that sends absurd numbers, or more than a party could ever use, loses its own place and no more.
"""

from math import isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.messages import KINDS, Message

MOST_PRODUCT = 1e9
"""Of one party's product wᵀx. Fixed point holds no more than about as much, so no masked training has larger ones."""
MOST_TOLD = 1e30
"""Of other numbers that parties tell one another: a loss, a squared norm. Their squares are still numbers."""
MOST_KEPT_BYTES = 1 << 25
"""Of the messages of one peer that are held for later; a federation whose honest ones are larger has more room."""
_A_MESSAGE = 200  # bytes that a message takes beside its arrays


def largest(numbers: NDArray[np.floating]) -> float:
    """The largest magnitude among these; 0 of none.

    >>> largest(np.array([1.0, -3.0]))
    3.0
    """
    return max(float(numbers.max(initial=0.0)), -float(numbers.min(initial=0.0)))  # two looks, and no copy


def length_of(numbers: NDArray[np.float64]) -> float:
    """The square root of the sum of squares: never less than the largest magnitude, and of a few numbers sooner told.

    >>> length_of(np.array([3.0, -4.0]))
    5.0
    """
    return sqrt(np.vdot(numbers, numbers))


def check_magnitude(
    sender: str, what: str, numbers: NDArray[np.floating] | float, most: float, setting: str = ""
) -> float:
    """The largest magnitude; refused beyond `most`, which may be a setting, with the sender's name."""
    found = abs(numbers) if isinstance(numbers, (int, float)) else largest(numbers)
    if not (isfinite(found) and found <= most):
        bound = f"{most:.2g} ({setting})" if setting else f"{most:.2g}"
        raise ProtocolError(
            f"{sender} sent {what} of magnitude {found:.2g}; at most {bound} is taken. It is not honest, or its "
            "training has diverged: its columns may need scaling, or training.learning_rate lowering."
        )
    return found


def is_within(numbers: NDArray[np.floating], most: float) -> bool:
    """Whether no magnitude is beyond `most`: one look, where the squares add up to no more than that of `most`.

    >>> is_within(np.array([3.0, -4.0]), 4.0), is_within(np.array([3.0, -5.0]), 4.0)
    (True, False)
    """
    return bool(np.vdot(numbers, numbers) <= most * most) or largest(numbers) <= most


def check_all(sender: str, what: str, numbers: NDArray[np.floating], most: float) -> None:
    """As `check_magnitude`, of numbers that are mostly far within."""
    if not is_within(numbers, most):
        check_magnitude(sender, what, numbers, most)


def size_bytes(message: Message) -> int:
    """About how much memory a message takes."""
    held: int = sum(getattr(message, name).nbytes for name, _ in KINDS[type(message).__name__].arrays)
    return _A_MESSAGE + held
