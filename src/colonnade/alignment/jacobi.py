"""Which numbers are squares modulo 2^255 − 19: Jacobi's symbol by subtractions and shifts, compiled.

Python's `pow` needs 130 µs for one, three times what X25519 needs for a whole multiplication. What compiles it takes a
hundred megabytes, so a party with many ids has a process of its own for it, gone when its ids are hashed: this file is
also the program of that process.
"""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from colonnade.alignment.multiplication import put, take
from colonnade.models.machine_code import compiled, readable

_ZERO, _ONE, _TWO = (np.uint64(n) for n in (0, 1, 2))
_WORD = np.uint64(64)
_DE_BRUIJN, _INDEX = np.uint64(0x03F79D71B4CB0A89), np.uint64(58)  # its 64 stretches of six bits all differ
_PLACES = np.zeros(64, np.uint64)
for _place in range(64):
    _PLACES[((1 << _place) * int(_DE_BRUIJN) % 2**64) >> 58] = _place
_P0, _P1, _P3 = np.uint64(2**64 - 19), np.uint64(2**64 - 1), np.uint64(2**63 - 1)


AreSquares = Callable[[NDArray[np.uint64]], NDArray[np.bool_]]
MANY = 50_000
"""Ids for which another process is worth the second that it takes to start."""


def are_squares(numbers: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """[n, 4] words of numbers below the prime, least first: whether each is a square other than 0."""
    found = np.empty(len(numbers), np.bool_)
    _are_squares(readable(numbers, np.uint64), found)
    return found


class SquareFinder:
    """`are_squares`, in another process if there is much to ask."""

    def __init__(self, numbers: int) -> None:
        self._other: subprocess.Popen[bytes] | None = None
        if numbers >= MANY:
            command = [sys.executable, "-m", "colonnade.alignment.jacobi"]
            self._other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> AreSquares:
        return are_squares if self._other is None else self._ask

    def _ask(self, numbers: NDArray[np.uint64]) -> NDArray[np.bool_]:
        assert self._other is not None
        try:
            put(self._other.stdin, numbers.tobytes())
            return np.frombuffer(take(self._other.stdout), np.bool_)
        except OSError:  # it was killed
            return are_squares(numbers)

    def __exit__(self, *failure: object) -> None:
        if self._other is not None:
            for pipe in (self._other.stdin, self._other.stdout):
                with suppress(OSError):
                    if pipe is not None:
                        pipe.close()
            self._other.wait()


@compiled
def _are_squares(numbers: NDArray[np.uint64], found: NDArray[np.bool_]) -> None:
    for row in range(numbers.shape[0]):
        found[row] = _symbol(numbers[row, 0], numbers[row, 1], numbers[row, 2], numbers[row, 3]) == 1


@compiled
def _symbol(a0: np.uint64, a1: np.uint64, a2: np.uint64, a3: np.uint64) -> int:
    """(a/p): halves of a and differences, each with the sign that reciprocity gives it.

    Nearly without branches, half of which a processor would guess wrong: `less` is all ones where a < n, and else 0.
    """
    n0, n1, n2, n3 = _P0, _P1, _P1, _P3
    minus = _ZERO  # its lowest bit is the sign
    while (a0 | a1 | a2 | a3) != _ZERO:
        while a0 == _ZERO:  # by a whole word: 64 halves, which is an even number of them
            a0, a1, a2, a3 = a1, a2, a3, _ZERO
        halves = _PLACES[((a0 & (_ZERO - a0)) * _DE_BRUIJN) >> _INDEX]  # the place of the lowest bit that is set
        rest = _WORD - _ONE - halves
        a0 = (a0 >> halves) | ((a1 << _ONE) << rest)
        a1 = (a1 >> halves) | ((a2 << _ONE) << rest)
        a2 = (a2 >> halves) | ((a3 << _ONE) << rest)
        a3 = a3 >> halves
        minus ^= halves & ((n0 >> _ONE) ^ (n0 >> _TWO))  # (2/n) = −1 if n = 3 or 5 modulo 8
        d0 = a0 - n0
        borrow = np.uint64(a0 < n0)
        d1 = a1 - n1 - borrow
        borrow = np.uint64(a1 < n1) | (np.uint64(a1 == n1) & borrow)
        d2 = a2 - n2 - borrow
        borrow = np.uint64(a2 < n2) | (np.uint64(a2 == n2) & borrow)
        d3 = a3 - n3 - borrow
        borrow = np.uint64(a3 < n3) | (np.uint64(a3 == n3) & borrow)
        less = _ZERO - borrow
        minus ^= ((a0 & n0) >> _ONE) & less  # (a/n) = −(n/a) if both are 3 modulo 4
        n0, n1 = n0 ^ ((n0 ^ a0) & less), n1 ^ ((n1 ^ a1) & less)
        n2, n3 = n2 ^ ((n2 ^ a2) & less), n3 ^ ((n3 ^ a3) & less)
        a0 = (d0 ^ less) + borrow  # |a − n|
        carry = np.uint64(a0 < borrow)
        a1 = (d1 ^ less) + carry
        carry = np.uint64(a1 < carry)
        a2 = (d2 ^ less) + carry
        carry = np.uint64(a2 < carry)
        a3 = (d3 ^ less) + carry
    return 1 - 2 * int(minus & _ONE) if n0 == _ONE and (n1 | n2 | n3) == _ZERO else 0


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        while True:
            asked = np.frombuffer(take(sys.stdin.buffer), np.uint64).reshape(-1, 4)
            put(sys.stdout.buffer, are_squares(asked).tobytes())
