"""How much longer than a sound step the steps of a linear block are: found while stepping, never below 1.

The gradient after a step says whether it was too long: uphill along it, it was. Noise says so half of the time, and
then steps become as short as they soundly are; where there is little of it, they become as long as the curvature that
rows really have, and the other parties' company, allow.
"""

import numpy as np
import numpy.typing as npt

from colonnade.state import Remembering, array

Floats = npt.NDArray[np.float64]

LONGER, SHORTER = 1.1, 0.6
"""Lengthening more slowly than shortening: in balance, one step of six or seven goes too far."""

MOST = 16.0
"""Of a step in the variables of its metric, in which 1 is Newton's of the most curvature there can be."""


class Pace(Remembering):
    """The factor of the next step of one block.

    >>> pace = Pace(columns=1, outputs=1)
    >>> one, none = np.ones((1, 1)), np.zeros(1)
    >>> pace.next(one, none, one, none, 0.1)  # the first step is the sound one
    1.0
    >>> pace.next(one, none, one, none, 0.1)  # the gradient still points the same way
    1.1
    >>> pace.next(-one, none, -one, none, 0.1)  # it was too far
    1.0
    """

    MEMORY = (
        array("_factor", in_place=True),
        array("_moved", in_place=True),
        array("_moved_b", in_place=True),
    )

    def __init__(self, columns: int, outputs: int) -> None:
        self._factor = np.ones(1)
        self._moved, self._moved_b = np.zeros((columns, outputs)), np.zeros(outputs)  # the last step, against its sign

    def next(self, v: Floats, v_b: Floats, direction: Floats, direction_b: Floats, step: float) -> float:
        """For a gradient v of reduced variance at the weights where the last step led, and the direction from there."""
        slope = float((v * self._moved).sum() + (v_b * self._moved_b).sum())
        if slope > 0:
            self._factor[0] = min(self._factor[0] * LONGER, max(1.0, MOST / step))
        elif slope < 0:
            self._factor[0] = max(self._factor[0] * SHORTER, 1.0)
        self._moved[:], self._moved_b[:] = direction, direction_b
        return float(self._factor[0])
