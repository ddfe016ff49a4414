"""What the parties below one sent last, row by row: with it a plain sum goes on without a party that does not answer.

Its age is counted in requests, and what is older than allowed is not used.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.open_sums import OpenSum
from colonnade.state import Remembering, State, custom, plain, value

Floats = NDArray[np.float64]


@dataclass
class _Products:
    """What a child sent last, row by row, and when."""

    total: Floats
    when: NDArray[np.int64] = field(repr=False)


class LastKnown(Remembering):
    """Last known sums of each child, for `rows` training rows and for every part of the test rows.

    `oldest`: how many requests ago a sum may have come; 0: none is kept.
    """

    def __init__(self, rows: int, oldest: int) -> None:
        self._rows = rows
        self._oldest = oldest
        self._requests = 0  # so far: the clock
        self._products: dict[str, _Products] = {}
        self._scored: dict[tuple[str, int, int], Floats] = {}  # (child, first test row, count)

    def forget(self) -> None:
        """Everybody's weights are others: what they sent is of no use."""
        self._products.clear()
        self._scored.clear()

    def count_request(self) -> None:
        self._requests += 1

    def remember(self, child: str, open_: OpenSum, total: Floats) -> None:
        if not self._oldest:
            return
        if open_.evaluation is not None:
            self._scored[child, *open_.evaluation] = total.copy()
            return
        if open_.rows.size == 0:
            return  # a joint search's, of weights that nobody has
        known = self._products.get(child)
        if known is None:
            shape = (self._rows, total.shape[1])
            known = self._products[child] = _Products(np.zeros(shape), np.zeros(self._rows, np.int64))
        known.total[open_.rows] = total
        known.when[open_.rows] = self._requests

    def replace(self, open_: OpenSum, away: set[str]) -> int | None:
        """Take what the awaited children among these sent last. How many rows that was for; None: it cannot be.

        Only a plain sum can go on: without a party's mask, the others' do not cancel.
        """
        missing = [awaited & away for awaited in open_.awaited]
        if not any(missing):
            return 0
        # In the same order in every process: the order of additions is part of a sum.
        known = {child: self._known(child, open_) for child in sorted(missing[0])}
        if len(missing) > 1 or any(total is None for total in known.values()):
            return None
        for child, total in known.items():
            open_.awaited[0].discard(child)
            open_.add(0, total)
        return open_.rows.size * len(known)

    def _known(self, child: str, open_: OpenSum) -> Floats | None:
        """What a child sent last for these rows, if all of it is young enough."""
        if open_.evaluation is not None:
            return self._scored.get((child, *open_.evaluation))
        known = self._products.get(child)
        if known is None or open_.rows.size == 0:
            return None
        when = known.when[open_.rows]
        young = int(when.min()) > 0 and self._requests - int(when.min()) <= self._oldest
        return known.total[open_.rows] if young else None

    def _save_products(self, state: State) -> None:
        state.values["last_known"] = sorted(self._products)
        for child, known in self._products.items():
            state.put(f"last of {child}", known.total)
            state.put(f"when of {child}", known.when)

    def _load_products(self, state: State) -> None:
        self._products = {
            child: _Products(state.take(f"last of {child}"), state.take(f"when of {child}"))
            for child in state.values["last_known"]
        }

    def _save_scored(self, state: State) -> None:
        state.values["last_scored"] = plain(list(self._scored))
        for place, total in enumerate(self._scored.values()):
            state.put(f"scored.{place}", total)

    def _load_scored(self, state: State) -> None:
        self._scored = {
            (child, first, count): state.take(f"scored.{place}")
            for place, (child, first, count) in enumerate(state.values["last_scored"])
        }

    MEMORY = (
        value("_requests", key="answered"),
        custom("_products", save=_save_products, load=_load_products),
        custom("_scored", save=_save_scored, load=_load_scored),
    )
