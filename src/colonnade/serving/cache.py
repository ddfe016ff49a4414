"""What parties answered a moment ago, used again up to an age: fewer messages, and with noise fewer releases.

An update of a party's table is then seen when what is kept of the row has grown too old. Rows that a party lacks, or
whose budget is spent, are not kept.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.prediction.seat import Names

MOST_ROWS = 100_000
Key = tuple[str, str, bytes]
"""A version, a party, and the name of a row."""


class AnswerCache:
    """Values by version, party and row, the oldest first."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._kept: OrderedDict[Key, tuple[float, NDArray[Any]]] = OrderedDict()

    def get(self, version: str, party: str, names: Names) -> dict[int, NDArray[Any]]:
        """What is kept and young enough, by place among the names."""
        if not self._seconds:
            return {}
        oldest = self._clock() - self._seconds
        while self._kept and next(iter(self._kept.values()))[0] < oldest:
            self._kept.popitem(last=False)
        found = ((place, self._kept.get((version, party, name.tobytes()))) for place, name in enumerate(names))
        return {place: kept[1] for place, kept in found if kept is not None}

    def put(self, version: str, party: str, names: Names, values: NDArray[Any]) -> None:
        if not self._seconds:
            return
        now = self._clock()
        for name, value in zip(names, values, strict=True):
            key = (version, party, name.tobytes())
            self._kept.pop(key, None)
            self._kept[key] = (now, np.array(value))
        while len(self._kept) > MOST_ROWS:
            self._kept.popitem(last=False)
