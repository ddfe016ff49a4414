"""Where names of 16 bytes are among others: sorted once, then many are looked up at a time."""

import numpy as np
from numpy.typing import NDArray

from colonnade.alignment.tables import Blocks
from colonnade.data.absence import NOWHERE


class Lookup:
    """The places of names; of one that is there twice, the first."""

    def __init__(self, names: Blocks) -> None:
        self._order: NDArray[np.int64] = np.argsort(names[:, 0], kind="stable")
        self._sorted = names[self._order]
        self._firsts = np.ascontiguousarray(self._sorted[:, 0])
        begins = np.flatnonzero(np.append(True, self._firsts[1:] != self._firsts[:-1]))
        self._most_alike = int(np.diff(np.append(begins, len(names))).max()) if len(names) else 0  # by their first half

    def __len__(self) -> int:
        return len(self._order)

    def places(self, wanted: Blocks) -> NDArray[np.int64]:
        """Where each wanted name is; NOWHERE if it is not there."""
        found = np.full(len(wanted), NOWHERE, np.int64)
        at = np.searchsorted(self._firsts, wanted[:, 0])
        for further in range(self._most_alike):
            near = np.minimum(at + further, len(self._order) - 1)
            is_it = (found == NOWHERE) & (self._sorted[near] == wanted).all(axis=1)
            found[is_it] = self._order[near[is_it]]
        return found
