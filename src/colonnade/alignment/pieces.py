"""Arrays that are sent in pieces: cut up here, put together there, in whatever order the pieces come."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.alignment.settings import MOST_IDS
from colonnade.errors import ProtocolError
from colonnade.state import Remembering, array, value

PIECE = 4096
"""Rows of a piece: a sixth of a second of multiplications on one core."""
MOST_ROWS = 2 * MOST_IDS  # a table has more cells than ids


def starts(total: int) -> Iterator[int]:
    """Where pieces begin; an empty array is sent as one empty piece."""
    return iter(range(0, max(total, 1), PIECE))


def pieces_in(total: int) -> int:
    return max(1, -(-total // PIECE))


class Gathered(Remembering):
    """An array [total, words] that comes in pieces, each once. What breaks that is refused, and changes nothing."""

    MEMORY = (array("rows"), array("_there"), value("total", "number"))

    def __init__(self, words: int, total: int = -1) -> None:
        """`total` −1: the first piece says it."""
        self._words = words
        self.total = -1
        self.number = -1
        self.rows: NDArray[np.uint64] = np.empty((0, words), np.uint64)
        self._there = np.zeros(0, np.bool_)
        if total >= 0:
            self._expect(total, 0)

    def _expect(self, total: int, number: int) -> None:
        self.total, self.number = total, number
        self.rows = np.zeros((total, self._words), np.uint64)
        self._there = np.zeros(pieces_in(total), np.bool_)

    @property
    def arrived(self) -> int:
        """How many pieces have come."""
        return int(self._there.sum())

    @property
    def complete(self) -> bool:
        return self.total >= 0 and bool(self._there.all())

    def lacks_one_piece(self, total: int) -> bool:
        """Whether the next piece will be the last, of an array of `total` rows."""
        return self.arrived + 1 == pieces_in(total)

    def with_piece(self, first: int, total: int, piece: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """A copy of the rows, with a piece that was checked."""
        rows = self.rows.copy() if self.total >= 0 else np.zeros((total, self._words), np.uint64)
        rows[first : first + len(piece)] = piece
        return rows

    def check(self, sender: str, first: int, total: int, piece: NDArray[Any], words: int, number: int = 0) -> None:
        """Refuse a piece that cannot be one of this array. `words`: how wide it comes."""
        known = self.total >= 0
        if not 0 <= total <= MOST_ROWS or (known and (total != self.total or number != self.number)):
            raise ProtocolError(f"{sender} says that it sends {total} rows in pieces, and said otherwise before.")
        if first % PIECE or first >= max(total, 1) or piece.shape != (min(PIECE, total - first), words):
            raise ProtocolError(f"{sender} sent a piece of shape {piece.shape} that does not fit at row {first}.")
        if known and self._there[first // PIECE]:
            raise ProtocolError(f"{sender} sent the piece at row {first} twice.")

    def put(self, first: int, total: int, piece: NDArray[np.uint64], number: int = 0) -> None:
        """Keep a piece that was checked."""
        if self.total < 0:
            self._expect(total, number)
        self._there[first // PIECE] = True
        self.rows[first : first + len(piece)] = piece
