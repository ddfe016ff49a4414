"""One party's ids: text, unique, and sorted without comparing texts one by one.

Ids are compared as text, so that the id 7 of one party's Parquet file meets the id 7 of another's CSV. Their order is
that of their UTF-8 bytes, which is the order of their characters. The bytes that differ, as many as fit, are taken as
one whole number, and numbers are what is sorted: a hundred times faster than `np.unique` over texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from colonnade.data.arrow_arrays import numbers, one_text
from colonnade.errors import DataError
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa, pc = on_demand("pyarrow"), on_demand("pyarrow.compute")

Array = npt.NDArray[Any]


class RowIds:
    """The ids of a party's rows, in the order of its rows."""

    def __init__(self, text: pa.StringArray) -> None:
        self.text = text

    @classmethod
    def of(cls, values: Sequence[Any] | Array) -> RowIds:
        """From any values, each taken as text."""
        return cls(pa.array([str(value) for value in values], pa.string()))

    def __len__(self) -> int:
        return len(self.text)

    def tolist(self) -> list[str]:
        ids: list[str] = self.text.to_pylist()
        return ids

    @cached_property
    def order(self) -> Array:
        """The positions of the rows, sorted by their ids."""
        return self._ordered[0]

    @cached_property
    def _ordered(self) -> tuple[Array, bool]:
        """The same, and whether two texts may be alike."""
        return _ordered(_letters(self.text))

    @cached_property
    def sorted(self) -> pa.StringArray:
        """The ids, sorted."""
        return taken(self.text, self.order)

    def repeated(self) -> int:
        """How many rows have an id that an earlier one has too."""
        if not self._ordered[1]:
            return 0
        ids = self.sorted
        return int(pc.sum(pc.equal(ids[1:], ids[:-1])).as_py() or 0)

    def __repr__(self) -> str:
        return f"RowIds({len(self)})"


def taken(text: pa.StringArray, rows: Array) -> pa.StringArray:
    """The texts of some rows. Those of one length, as most ids are, are moved as items of so many bytes.

    >>> taken(pa.array(["a1", "b2", "c3"]), np.array([2, 0])).to_pylist()
    ['c3', 'a1']
    """
    width = one_width(text)
    if not width or not 0 < width * len(rows) < 2**31:
        return text.take(numbers(rows))
    letters = letters_of(text, width).reshape(-1).view(np.dtype((np.void, width)))
    offsets = np.arange(0, (len(rows) + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(len(rows), pa.py_buffer(offsets), pa.py_buffer(letters.take(rows)))


def one_width(text: pa.StringArray) -> int:
    """The bytes of each text, if all have as many; else 0."""
    if not len(text) or text.null_count:
        return 0
    lengths = pc.min_max(pc.binary_length(text))
    return int(lengths["max"].as_py()) if lengths["min"].as_py() == lengths["max"].as_py() else 0


def letters_of(text: pa.StringArray, width: int) -> Array:
    """The bytes of texts that all have so many, [rows, width]."""
    offset = int(np.frombuffer(text.buffers()[1], np.int32)[text.offset])  # of a slice it is not 0
    return np.frombuffer(text.buffers()[2], np.uint8, len(text) * width, offset).reshape(len(text), width)


def _ordered(letters: Array) -> tuple[Array, bool]:
    """The order of texts by their differing letters, [letters, texts], and whether two of them may be alike."""
    packed = _with_places(letters)
    if packed is None:
        words = _words(letters)
        order = _order_of(words)
        alike = np.ones(max(0, len(order) - 1), np.bool_)
        for word in words:
            ordered = word[order]
            alike &= ordered[1:] == ordered[:-1]
        return order, bool(alike.any())
    numbers, shift = packed
    numbers.sort()  # half of the time of an argsort, which has to look a number up for each place
    order = (numbers & np.uint64((1 << shift) - 1)).astype(np.intp)
    numbers >>= np.uint64(shift)
    return order, bool((numbers[1:] == numbers[:-1]).any())


def _with_places(letters: Array) -> tuple[Array, int] | None:
    """Each text as one number that is ordered as the texts are, with its place in the lowest bits, and how many those
    are; None: that does not fit into 64 bits."""
    count = letters.shape[1]
    least = [int(one.min()) for one in letters]
    bits = [(int(one.max()) - low).bit_length() for one, low in zip(letters, least, strict=True)]
    shift = max(1, (count - 1).bit_length())
    if not count or sum(bits) + shift > 64:
        return None
    numbers = np.zeros(count, np.uint64)
    for one, low, size in zip(letters, least, bits, strict=True):
        numbers <<= np.uint64(size)
        numbers |= one - np.uint8(low)
    numbers <<= np.uint64(shift)
    numbers |= np.arange(count, dtype=np.uint64)
    return numbers, shift


def _order_of(words: list[Array]) -> Array:
    order: Array = np.argsort(words[0])
    if len(words) == 1:
        return order
    first = words[0][order]
    same = first[1:] == first[:-1]
    tied = np.flatnonzero(np.concatenate([same, [False]]) | np.concatenate([[False], same]))
    if len(tied):
        rows = order[tied]
        order[tied] = rows[np.lexsort([word[rows] for word in reversed(words)])]
    return order


def _letters(text: pa.StringArray) -> Array:
    """Each text's bytes, those that differ among the texts: [bytes, texts]."""
    if not len(text):
        return np.zeros((0, 0), np.uint8)
    width = one_width(text)
    if not width:
        width = max(1, int(pc.max(pc.binary_length(text)).as_py()))
        text = pc.ascii_rpad(text, width, "\0")
    letters = np.ascontiguousarray(letters_of(text, width).T)
    return letters[[bool((one != one[0]).any()) for one in letters]]


def _words(letters: Array) -> list[Array]:
    """Eight letters at a time as one number."""
    packed = np.zeros((letters.shape[1], max(8, -(-len(letters) // 8) * 8)), dtype=np.uint8)
    packed[:, : len(letters)] = letters.T
    numbers = packed.view(">u8")
    return [numbers[:, j].astype(np.uint64) for j in range(numbers.shape[1])]


def id_texts(column: pa.ChunkedArray, *, party: str, where: str) -> pa.StringArray:
    """A column of ids as text, without the spaces around it; gaps and fractions are refused."""
    empty = column.null_count
    if pa.types.is_floating(column.type):
        empty += int(pc.sum(pc.is_nan(column)).as_py() or 0)
    if empty:
        raise DataError(f"Party {party!r}: {where} has {empty} rows without an id: fill in or remove them.")
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        # A matrix of floats has no other way to hold ids; 7.0 is the id 7.
        values = column.to_numpy().astype(np.float64)
        whole = bool(np.isfinite(values).all() and (values == np.floor(values)).all())
        if whole and not (abs(values) < 2**53).all():
            raise DataError(
                f"Party {party!r}: {where} has ids that are floats too large to be told apart (2^53 and more): store "
                "the ids as text."
            )
        if not whole:
            raise DataError(
                f"Party {party!r}: {where} has ids that are not whole numbers: "
                "name the column that identifies rows with the setting `id`, or store the ids as text."
            )
        column = pa.chunked_array([pa.array(values.astype(np.int64))])
    if pa.types.is_large_string(column.type) and column.nbytes > 2**31 - 2**20:
        raise DataError(f"Party {party!r}: {where} has ids of more than 2 GB together: use shorter ids.")
    try:
        text = column.cast(pa.string()).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(
            f"Party {party!r}: {where} has ids of the type {column.type}: use whole numbers or text."
        ) from None
    text = text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text
    if pa.types.is_integer(column.type):
        return text
    if _are_trimmed(text):
        return text
    text = pc.utf8_trim_whitespace(text)
    blank = pc.is_in(text, value_set=one_text("")).true_count
    if blank:
        raise DataError(f"Party {party!r}: {where} has {blank} rows without an id: fill in or remove them.")
    return text


def _are_trimmed(text: pa.StringArray) -> bool:
    """Whether each text certainly begins and ends with a letter of ASCII that is no space: a tenth of the work."""
    if not len(text) or text.null_count:
        return False
    ends = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1]
    if not (ends[1:] > ends[:-1]).all():
        return False
    letters = np.frombuffer(text.buffers()[2], np.uint8)
    width = one_width(text)
    if width:
        outer = letters_of(text, width)
        borders = (outer[:, 0], outer[:, -1])
    else:
        borders = (letters[ends[:-1]], letters[ends[1:] - 1])
    return all(bool(one.min() > ord(" ") and one.max() < 0x7F) for one in borders)


def unique_ids(column: pa.ChunkedArray, *, party: str, where: str) -> RowIds:
    """A column of ids, none of them twice."""
    ids = RowIds(id_texts(column, party=party, where=where))
    repeated = ids.repeated()
    if repeated:
        raise DataError(
            f"Party {party!r}: {where} repeats ids ({repeated} of its {len(ids)} rows have an id that "
            "another row has too): keep one row for each id."
        )
    return ids
