"""What the label party was asked for by parties without labels, and which sum answers whom.

A sum costs everybody a message each way, however many rows it has. So no more than `MOST_SUMS` are made at a time; what
is asked for meanwhile waits, and goes into the next sum together, up to as many rows as one may have. Rows that several
ask for alike are summed once. With few parties every request has a sum of its own at once; with many, what an exchange
costs no longer grows with their number.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from colonnade.state import Remembering, State, custom

Rows = NDArray[np.uint32]

MOST_SUMS = 16
"""For others, under way at a time: enough that links of some length are never idle."""


class RowRequest(NamedTuple):
    """One party's request."""

    sender: str
    exchange: int  # its number there
    rows: Rows
    answers_then: int  # how many residuals had been given when it came


def laid_out(together: list[RowRequest]) -> tuple[Rows, list[slice]]:
    """The rows of one sum for all of these, and where each one's are among them.

    >>> asked = {"a": [3, 4], "b": [5], "c": [3, 4]}
    >>> rows, places = laid_out([RowRequest(name, 1, np.array(rows, np.uint32), 0) for name, rows in asked.items()])
    >>> rows.tolist(), [rows[place].tolist() for place in places]
    ([3, 4, 5], [[3, 4], [5], [3, 4]])
    """
    parts: list[Rows] = []
    places: dict[bytes, slice] = {}
    end = 0
    for one in together:
        key = one.rows.tobytes()
        if key not in places:
            places[key] = slice(end, end + one.rows.size)
            end += one.rows.size
            parts.append(one.rows)
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return rows, [places[one.rows.tobytes()] for one in together]


class Requests(Remembering):
    """`most_rows`: of one sum.

    >>> requests = Requests(most_rows=4)
    >>> for name in "abc":
    ...     requests.add(RowRequest(name, 1, np.full(2, ord(name), np.uint32), 0))
    >>> [one.sender for one in requests.next()]  # c's rows would be too many
    ['a', 'b']
    """

    def __init__(self, most_rows: int) -> None:
        self._most_rows = most_rows
        self._waiting: list[RowRequest] = []
        self._under_way: dict[int, list[RowRequest]] = {}  # by the number of the sum

    def is_waited_for_by(self, sender: str) -> bool:
        return any(one.sender == sender for asked in (self._waiting, *self._under_way.values()) for one in asked)

    def add(self, asked: RowRequest) -> None:
        self._waiting.append(asked)

    def next(self) -> list[RowRequest]:
        """Whom the next sum is for, the oldest first; nobody, if none may be made now."""
        if len(self._under_way) >= MOST_SUMS:
            return []
        together: list[RowRequest] = []
        waiting: list[RowRequest] = []
        rows: dict[bytes, int] = {}
        for one in self._waiting:
            key = one.rows.tobytes()
            fits = not waiting and sum(rows.values()) + one.rows.size <= self._most_rows
            if not rows or key in rows or fits:
                rows[key] = one.rows.size
                together.append(one)
            else:
                waiting.append(one)
        self._waiting = waiting
        return together

    def begin(self, number: int, together: list[RowRequest]) -> None:
        self._under_way[number] = together

    def end(self, number: int) -> list[RowRequest]:
        """Whom the sum of that number was for."""
        return self._under_way.pop(number, [])

    def give_up(self, sender: str) -> None:
        """It asks for something else instead: a sum that is under way is made, but not for it."""
        self._waiting = [one for one in self._waiting if one.sender != sender]
        for together in self._under_way.values():
            together[:] = [one for one in together if one.sender != sender]

    def clear(self) -> None:
        self._waiting.clear()
        self._under_way.clear()

    def _save_asked(self, state: State) -> None:
        """One line per request, with the number of its sum; 0: it waits."""
        asked = [(number, one) for number, together in self._under_way.items() for one in together]
        asked += [(0, one) for one in self._waiting]
        state.values["asked"] = [[number, one.sender, one.exchange, one.answers_then] for number, one in asked]
        for place, (_, one) in enumerate(asked):
            state.put(f"asked.{place}", one.rows)

    def _load_asked(self, state: State) -> None:
        self.clear()
        for place, (number, sender, exchange, then) in enumerate(state.values["asked"]):
            one = RowRequest(sender, exchange, state.take(f"asked.{place}", np.uint32), then)
            (self._under_way.setdefault(number, []) if number else self._waiting).append(one)

    MEMORY = (custom("_waiting", "_under_way", save=_save_asked, load=_load_asked),)
