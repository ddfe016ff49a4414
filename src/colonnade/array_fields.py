"""What an array field of a message may hold, and how its numbers travel in fewer bytes.

Rounded, a row of numbers is a record: of float16 and int8 a power of two in front, one byte, that multiplies the row;
of bfloat16 the upper half of every float32. So each row has all the digits of its form, whatever its magnitude, and
widening is exact. int8 is rounded up or down at random, so that nothing is lost on average; the others to the nearest.
A number that is none (NaN, infinity) stays none, so that it is refused where it arrives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

PRECISIONS = ("float32", "bfloat16", "float16", "int8")
"""What a federation may choose from. float32 stands for numbers as they are; linear federations have float64."""

_LOWEST, _HIGHEST = -126, 127  # powers of two that float32 has in full

Dither = Callable[[int], NDArray[np.float32]]
"""So many numbers between 0 and 1, 1 excluded, drawn by the party that rounds."""


@dataclass(frozen=True)
class ArrayField:
    """What an array field may hold: little-endian dtype, the names of its dimensions, whether NaN is refused.

    `travels`: "up" or "down", if a federation may have it rounded on that way. `beside`: of another field that is near
    it; rounded, it is sent as the difference, which keeps its digits.
    """

    dtype: str
    dimensions: tuple[str, ...]
    finite: bool = False
    travels: str = ""
    beside: str = ""


@dataclass(frozen=True, eq=False)
class Rounded:
    """An array as it is sent: one record per row, the last dimension being a row."""

    precision: str
    shape: tuple[int, ...]
    records: NDArray[np.uint8]  # [rows, bytes of a record]

    def __repr__(self) -> str:
        return f"<{self.precision} {'×'.join(map(str, self.shape))}>"


def record_bytes(precision: str, width: int) -> int:
    """What a row of so many numbers takes.

    >>> [record_bytes(precision, 32) for precision in PRECISIONS]
    [128, 64, 65, 33]
    """
    return {"float32": 4 * width, "bfloat16": 2 * width, "float16": 1 + 2 * width, "int8": 1 + width}[precision]


def rounded_bytes(precision: str, shape: tuple[int, ...] | list[int]) -> int:
    """What an array of that shape takes."""
    return prod(shape[:-1]) * record_bytes(precision, shape[-1])


def rounded(values: NDArray[np.floating], precision: str, dither: Dither) -> Rounded:
    """In the form of that name.

    >>> halves = lambda count: np.full(count, 0.5, np.float32)
    >>> sent = rounded(np.array([[1.0, -0.25, 0.0], [1e-6, 1e-6, 0.0]], np.float32), "int8", halves)
    >>> sent, sent.records.nbytes, widened("int8", sent.shape, sent.records)[0].tolist()
    (<int8 2×3>, 8, [1.0, -0.25, 0.0])
    """
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(values, np.float32).reshape(prod(values.shape[:-1]), values.shape[-1])
    return Rounded(precision, values.shape, _TO_RECORDS[precision](rows, dither))


def widened(precision: str, shape: tuple[int, ...] | list[int], records: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The numbers of what was rounded; what was no number, or would be too large for one, is infinite or NaN."""
    rows = records.reshape(prod(shape[:-1]), record_bytes(precision, shape[-1]))
    with np.errstate(over="ignore", invalid="ignore"):
        return _FROM_RECORDS[precision](rows).reshape(shape)


def _powers(rows: NDArray[np.float32], stretch: float = 1.0) -> NDArray[np.int32]:
    """Of every row, the least e with stretch · |number| below 2^e; 0 for zeros and for what is no number."""
    with np.errstate(over="ignore"):
        largest = np.abs(rows).max(1, initial=0.0) * np.float32(stretch)
    powers: NDArray[np.int32] = np.frexp(largest)[1].astype(np.int32)
    return powers


def _with_powers(powers: NDArray[np.int32], codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.concatenate([powers.astype(np.int8).view(np.uint8)[:, None], codes], 1)


def _to_int8(rows: NDArray[np.float32], dither: Dither) -> NDArray[np.uint8]:
    """floor(x/2^p + u) with u between 0 and 1: on average x/2^p."""
    powers = np.clip(_powers(rows, 128 / 127) - 7, _LOWEST, _HIGHEST)
    drawn = dither(rows.size).reshape(rows.shape)
    with np.errstate(invalid="ignore"):
        scaled = np.floor(np.ldexp(rows, -powers[:, None]) + drawn)
    is_number = np.isfinite(scaled)
    codes = np.clip(scaled, -127, 127, where=is_number, out=np.full_like(scaled, 127)).astype(np.int8)
    powers[~is_number.all(1)] = _HIGHEST  # 127 · 2^127 is infinite
    return _with_powers(powers, codes.view(np.uint8))


def _to_float16(rows: NDArray[np.float32], dither: Dither) -> NDArray[np.uint8]:
    """Each row's largest number just below 2^15, where float16 still has all its digits and ends at 2^16."""
    powers = np.clip(_powers(rows) - 15, _LOWEST, _HIGHEST)
    with np.errstate(over="ignore", under="ignore"):
        codes = np.ldexp(rows, -powers[:, None]).astype("<f2")
    return _with_powers(powers, codes.view(np.uint8))


def _to_bfloat16(rows: NDArray[np.float32], dither: Dither) -> NDArray[np.uint8]:
    """The upper half of the bits, rounded to the nearest, halves to even."""
    bits = rows.view(np.uint32)
    upper = (bits + (np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1)))) >> 16
    upper = np.where(np.isnan(rows), np.uint32(0x7FC0), upper)
    return upper.astype("<u2").view(np.uint8)


def _factors(records: NDArray[np.uint8]) -> NDArray[np.float32]:
    powers = records[:, 0].view(np.int8).astype(np.int32)
    return np.ldexp(np.float32(1), powers)[:, None]


def _from_int8(records: NDArray[np.uint8]) -> NDArray[np.float32]:
    numbers = records[:, 1:].view(np.int8).astype(np.float32)
    numbers *= _factors(records)
    return numbers


def _from_float16(records: NDArray[np.uint8]) -> NDArray[np.float32]:
    numbers = np.ascontiguousarray(records[:, 1:]).view("<f2").astype(np.float32)
    numbers *= _factors(records)
    return numbers


def _from_bfloat16(records: NDArray[np.uint8]) -> NDArray[np.float32]:
    upper = np.ascontiguousarray(records).view("<u2").astype(np.uint32)
    return (upper << 16).view(np.float32)


_TO_RECORDS: dict[str, Callable[[NDArray[np.float32], Dither], NDArray[np.uint8]]] = {
    "bfloat16": _to_bfloat16,
    "float16": _to_float16,
    "int8": _to_int8,
}
_FROM_RECORDS: dict[str, Callable[[NDArray[np.uint8]], NDArray[np.float32]]] = {
    "bfloat16": _from_bfloat16,
    "float16": _from_float16,
    "int8": _from_int8,
}
