"""Whether all of many numbers lie within a bound, in one look at each. It calls no kernel of another file."""

import numpy as np
import numpy.typing as npt

from colonnade.models.machine_code import compiled, readable


def are_within(numbers: npt.NDArray[np.float64], most: float) -> bool:
    """Whether no magnitude is beyond `most`; what is no number is.

    >>> [are_within(np.array([[3.0], [one]]), 4.0) for one in (-4.0, -4.5, np.nan)]
    [True, False, False]
    """
    return bool(count_within(readable(numbers, np.float64).reshape(-1), most) == numbers.size)


@compiled
def count_within(numbers: npt.NDArray[np.float64], most: float) -> int:
    """How many there are."""
    within = 0
    for p in range(numbers.shape[0]):
        within += 1 if -most <= numbers[p] <= most else 0
    return within
