"""Where names of 16 bytes are among others: sorted once, then many are looked up at a time."""

import numpy as np
from numpy.typing import NDArray

from colonnade.alignment.tables import Blocks
from colonnade.data.absence import NOWHERE

_AT_ONCE = 1 << 14
"""Names: what is in between takes several times the memory of the result."""


class Lookup:
    """The places of names; of one that is there twice, the first."""

    def __init__(self, names: Blocks) -> None:
        self._order: NDArray[np.int64] = np.argsort(names[:, 0], kind="stable")
        self._firsts, self._seconds = names[self._order, 0], names[self._order, 1]
        begins = np.flatnonzero(np.append(True, self._firsts[1:] != self._firsts[:-1]))
        self._most_alike = int(np.diff(np.append(begins, len(names))).max()) if len(names) else 0  # by their first half

    def __len__(self) -> int:
        return len(self._order)

    def places(self, wanted: Blocks) -> NDArray[np.int64]:
        """Where each wanted name is; NOWHERE if it is not there."""
        found = np.full(len(wanted), NOWHERE, np.int64)
        for start in range(0, len(wanted), _AT_ONCE):
            self._find(wanted[start : start + _AT_ONCE], found[start : start + _AT_ONCE])
        return found

    def _find(self, wanted: Blocks, found: NDArray[np.int64]) -> None:
        at = np.searchsorted(self._firsts, wanted[:, 0])
        for further in range(self._most_alike):
            near = np.minimum(at + further, len(self._order) - 1)
            is_it = (self._firsts[near] == wanted[:, 0]) & (self._seconds[near] == wanted[:, 1]) & (found == NOWHERE)
            found[is_it] = self._order[near[is_it]]
