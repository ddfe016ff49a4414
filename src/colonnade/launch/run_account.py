"""A prediction's or an explanation's part of a party's account: opened once per run directory, closed at its end."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import SettingsError
from colonnade.files import read_private, write_atomically
from colonnade.prediction.account import RowAccount

_SPENT = "spent.f8"


class RunAccount:
    """What its rows had cost before, as it was when the run began, and what it costs them."""

    def __init__(self, account: RowAccount, directory: Path, ids: Sequence[str]) -> None:
        self._account = account
        self._path = directory / _SPENT
        self._run = directory.absolute()
        self._ids = ids

    def open(self, cost: float, check: Callable[[float], None] = lambda worst: None) -> NDArray[np.float64]:
        """Write down that each row may cost so much. `check` may refuse what the worst row has cost already."""
        if not self._path.exists():
            spent = self._account.begin(self._run, self._ids, cost)
            try:
                check(float(spent.max(initial=0.0)))
            except SettingsError:
                self._account.end(self._run, [], np.zeros(0))  # nothing was released
                raise
            write_atomically(self._path, spent.tobytes())
        return np.frombuffer(read_private(self._path), np.float64).copy()

    def close(
        self, released: Sequence[Mapping[str, Any]], places: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """What the run has cost each row, in μ². `places`: of its rows among those that a ledger counts; None: all."""
        costs = np.zeros(len(self._ids))
        for kind in released:
            counts = kind["per_row"][: len(costs)] if places is None else kind["per_row"][places]
            costs[: len(counts)] += counts * (kind["sensitivity"] / kind["noise"]) ** 2
        self._account.end(self._run, self._ids, costs)
        return costs
