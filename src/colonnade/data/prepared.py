"""What a party has learnt from its own table, and how it is applied to rows: float32, column by column.

Nothing learnt leaves the party but the number of columns that come out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from colonnade.data import cells, encoders
from colonnade.data.absence import ABSENT, NOWHERE, with_absent
from colonnade.data.arrow_arrays import numbers
from colonnade.data.cells import Complaints, Words
from colonnade.data.encoders import Encoder, all_finite
from colonnade.data.ids import Array
from colonnade.data.images import ImageEncoder, Pixels, pixels_in
from colonnade.data.sources import Table, is_number
from colonnade.data.texts import TokenEncoder
from colonnade.errors import DataError
from colonnade.mapped import zeros
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = on_demand("pyarrow")

_IMAGES_AT_ONCE = 256
_FEW = 1 << 14
"""Rows that are sorted more quickly than a table is gone through."""


@dataclass(frozen=True)
class PreparedColumn:
    """One column of a table, and its fitted encoder."""

    name: str
    encoder: Encoder
    format: str = ""  # of dates in text

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.encoder.names(self.name)


@dataclass(frozen=True)
class Preparation:
    """What a party has learnt from the train rows of its table, to be applied to any rows in the same way."""

    columns: tuple[PreparedColumn, ...]
    tells_absence: bool = False  # whether rows may be absent, and a last column tells so (absence.py)

    @property
    def names(self) -> tuple[str, ...]:
        """One per column that comes out."""
        return (*(name for column in self.columns for name in column.outputs), *((ABSENT,) * self.tells_absence))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one row that comes out: an image if it is all there is; a flat row otherwise."""
        if len(self.columns) == 1 and isinstance(self.columns[0].encoder, ImageEncoder) and not self.tells_absence:
            return self.columns[0].encoder.shape
        return (len(self.names),)

    def apply(self, table: Table, positions: Array, *, party: str) -> torch.Tensor:
        """Some rows of a table that has the same columns, float32 [rows, *shape].

        A position may be NOWHERE, where rows may be absent.
        """
        if not self.tells_absence:
            return self._applied(table, positions, party).reshape(-1, *self.shape)
        present = positions != NOWHERE
        rows = with_absent(self._applied(table, positions[present], party), present)
        assert isinstance(rows, torch.Tensor)
        return rows

    def _applied(self, table: Table, positions: Array, party: str) -> torch.Tensor:
        self._check_names(table, party)
        rows = ChosenRows(positions)
        sheet = Sheet(rows, sum(len(column.outputs) for column in self.columns))
        complaints = Complaints(party, table)
        place = 0
        for column in self.columns:
            raw = RawColumn(table, column.name, complaints, column.format)
            raw.encode(column.encoder, rows, sheet, place)
            place += len(column.outputs)
        complaints.refuse()
        return torch.from_numpy(sheet.filled())

    def _check_names(self, table: Table, party: str) -> None:
        """Refuse a table that has changed since the training, with the differences."""
        known = {column.name for column in self.columns}
        lacking = [column.name for column in self.columns if column.name not in table.names]
        if lacking:
            others = [name for name in table.names if name not in known]
            strange = f" It has others, which the model does not know: {', '.join(others)}." if others else ""
            raise DataError(
                f"Party {party!r}: {table.where} lacks columns that the model was trained with: {', '.join(lacking)}."
                f"{strange}"
            )

    def to_values(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        return {
            "columns": [
                {"name": one.name, "format": one.format, **encoders.encoder_values(one.encoder)} for one in self.columns
            ],
            **({"tells_absence": True} if self.tells_absence else {}),
        }

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Preparation:
        """From what `to_values` gave. Raises ValueError for anything else."""
        try:
            columns = [dict(one) for one in values["columns"]]
            return cls(
                tuple(
                    PreparedColumn(one.pop("name"), format=one.pop("format"), encoder=encoders.encoder_of(one))
                    for one in columns
                ),
                bool(values.get("tells_absence", False)),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a preparation: {type(error).__name__}") from None

    def __repr__(self) -> str:
        return f"Preparation({len(self.columns)} columns to {len(self.names)})"


class ChosenRows:
    """Rows of a table: in the order in which they are wanted, and in the one in which they lie, which is quicker."""

    def __init__(self, wanted: Array) -> None:
        self.wanted = wanted

    @cached_property
    def lying(self) -> Array:
        """Each once, from the first of the table to the last."""
        return np.unique(self.wanted) if len(self.wanted) < _FEW else np.flatnonzero(self._are_wanted)

    @cached_property
    def count(self) -> int:
        """How many there are."""
        return len(self.lying) if len(self.wanted) < _FEW else int(np.count_nonzero(self._are_wanted))

    @cached_property
    def at(self) -> Array | None:
        """Where each wanted row is among those; None: in the same order."""
        steps = self.wanted[1:] > self.wanted[:-1]
        if steps.all():
            return None
        if self.count == 1 + int(self.wanted.max()):
            return self.wanted  # all from the first on are there
        if len(self.wanted) < _FEW:
            return np.searchsorted(self.lying, self.wanted)
        return (np.cumsum(self._are_wanted, dtype=np.int64) - 1)[self.wanted]

    @cached_property
    def _are_wanted(self) -> Array:
        found = np.zeros(1 + int(self.wanted.max()), np.bool_)
        found[self.wanted] = True
        return found


class Sheet:
    """Rows of float32, filled column by column.

    Single columns come as their rows lie in the table, and wait until many are there; then the rows are put into the
    order in which they are wanted, all of these columns at once: a visit to a row somewhere else in memory costs the
    same, however much of it is taken. What waits lies in pieces of some rows, so that each piece can be turned from
    columns to rows where it is.
    """

    COLUMNS_AT_ONCE = 8  # what waits is memory; and NumPy moves items of 8, 16 and 32 bytes more quickly than others
    ROWS_AT_ONCE = 8192  # a piece of which, with so many columns, is in a core's cache

    def __init__(self, rows: ChosenRows, width: int, mapped_share: float = inf) -> None:
        self._rows = rows
        self._width = width
        self._mapped_share = mapped_share
        self._waiting: Array = np.zeros((0, 0, 0), np.float32)  # [pieces, columns, rows of a piece]
        self._count = 0  # columns that wait
        self._first = 0

    @cached_property
    def _values(self) -> Array:
        """What comes out: made when it is needed, beside columns that wait and not beside one that is read."""
        shape = (len(self._rows.wanted), self._width)
        return zeros(shape, np.float32, self._mapped_share, "A party's prepared columns")

    def column(self, place: int) -> list[Array]:
        """Where one column goes, to be filled by the caller: float32, the rows as they lie, piece after piece."""
        if self._count and (place != self._first + self._count or self._count == self._waiting.shape[1]):
            self._write()
        if not self._count:
            self._first = place
        rows = self._rows.count
        size = max(1, min(self.ROWS_AT_ONCE, rows))
        if not len(self._waiting):
            self._waiting = np.empty((-(-rows // size), min(self._width, self.COLUMNS_AT_ONCE), size), np.float32)
        pieces = [piece[self._count] for piece in self._waiting]
        if rows % size:
            pieces[-1] = pieces[-1][: rows % size]
        self._count += 1
        return pieces

    def part(self, place: int, width: int) -> Array:
        """Some columns, to be filled by the caller."""
        return self._values[:, place : place + width]

    def widen(self, place: int) -> None:
        """One more column, before the column `place`."""
        self._values = np.insert(self.filled(), place, 0.0, axis=1)
        self._width += 1

    def filled(self) -> Array:
        self._write()
        return self._values

    def _write(self) -> None:
        if not self._count:
            return
        count, at, size = self._count, self._rows.at, self._waiting.shape[2]
        self._count = 0
        out = self._values[:, self._first : self._first + count]
        turned, lying = np.empty((size, count), np.float32), self._waiting.reshape(-1)
        for number, piece in enumerate(self._waiting):
            for place in range(count):
                turned[:, place] = piece[place]
            if at is None:
                part = out[number * size : (number + 1) * size]
                part[:] = turned[: len(part)]
            else:  # of fewer columns, rows end before the next piece begins
                lying[number * size * count : (number + 1) * size * count] = turned.reshape(-1)
        if at is None:
            return
        # All columns of a row as one item: NumPy moves it at once.
        whole = np.dtype((np.void, 4 * count))
        items = lying[: len(self._waiting) * size * count].view(whole)
        places = np.ndarray(len(out), whole, self._values, 4 * self._first, (self._values.strides[0],))
        for start in range(0, len(out), size):
            rows = slice(start, start + size)
            places[rows] = items.take(at[rows])


class RawColumn:
    """One column's cells, in the form that an encoder wants; wrong cells are complained of when rows are asked for."""

    def __init__(self, table: Table, name: str, complaints: Complaints, form: str = "") -> None:
        self._table = table
        self._name = name
        self._complaints = complaints
        self._form = form
        self.column = table.column(name)
        self._words: Words | None = None
        self._numbers: Array | None = None
        self._gathered: tuple[Array, Array] | None = None  # rows, and their numbers: fitted on, then encoded
        self.is_full = False  # whether the numbers asked for last are all finite, without a gap

    @property
    def words(self) -> Words:
        if self._words is None:
            self._words = cells.words_of(self.column, self._table.gap_words)
        return self._words

    def _as_they_lie(self, chosen: ChosenRows) -> Array:
        """Of some rows, each once, from the first to the last: a column's numbers, whatever they are."""
        if self._numbers is None:
            self._numbers = cells.numbers_of(self.column)
        return self._numbers if chosen.count == len(self._numbers) else self._numbers.take(chosen.lying)

    def numbers(self, rows: Array) -> Array:
        """Of some rows, gaps as NaN; what is infinite is complained of."""
        if self._gathered is not None and self._gathered[0] is rows:
            return self._gathered[1]
        kind = self.column.type
        if is_number(kind):
            if self._numbers is None:
                self._numbers = cells.numbers_of(self.column)
            values = self._numbers.take(rows)
        elif pa.types.is_null(kind):
            values = np.full(len(rows), np.nan)
        else:
            values, wrong = (part[rows] for part in cells.numbers_in(self.words, self._table.decimal))
            self._complain(rows[wrong], "is text where a number belongs")
        self.is_full = all_finite(values)
        if not self.is_full:
            infinite = np.isinf(values)
            self._complain(rows[infinite], "is infinite")
            values = np.where(infinite, np.nan, values) if infinite.any() else values
        self._gathered = (rows, values)
        return values

    def days(self, rows: Array) -> Array:
        if cells.is_date(self.column.type):
            days, wrong = (part[rows] for part in cells.days_of(self.column))
        else:
            days, wrong = (part[rows] for part in cells.days_in(self.words, self._form))
        self._complain(rows[wrong], "is no date, or one that is out of range")
        return np.where(wrong, np.nan, days)

    def anything(self, rows: Array) -> list[Any]:
        """Python's own values, None for gaps: what a class of the user's own gets."""
        if cells.is_text(self.column.type):
            words = self.words.words.to_pylist()
            return [None if code < 0 else words[code] for code in self.words.codes[rows].tolist()]
        return list(self.column.take(numbers(rows)).to_pylist())

    def pixels(self, rows: Array, size: tuple[int, int], channels: int) -> Pixels:
        found = pixels_in(self.anything(rows), self._table.folder, size, channels)
        self._complain(rows[found.wrong], "is no image that can be read, nor the path of one")
        return found

    def encode(self, encoder: Encoder, chosen: ChosenRows, sheet: Sheet, place: int) -> None:
        """Write some rows into a sheet, from the column `place` on."""
        values: Any
        rows = chosen.wanted
        if isinstance(encoder, encoders.NumberEncoder):
            if not encoder.indicator:
                pieces = sheet.column(place)
                if is_number(self.column.type) and encoder.write_plain(self._as_they_lie(chosen), pieces):
                    return
                if not encoder.write(self.numbers(chosen.lying), pieces):
                    self._check_size(chosen.lying, np.concatenate(pieces)[:, None])
                return
            values = self.numbers(rows)
        elif isinstance(encoder, encoders.DateEncoder):
            values = self.days(rows)
        elif isinstance(encoder, ImageEncoder):
            self._encode_images(encoder, rows, sheet.part(place, len(encoder.names(""))))
            return
        elif isinstance(encoder, encoders.OwnEncoder | TokenEncoder):
            values = self.anything(rows)
        else:
            values = self.words.of_rows(rows)
        out = sheet.part(place, len(encoder.names("")))
        encoder.encode(values, out)
        self._check_size(rows, out)

    def _encode_images(self, encoder: ImageEncoder, rows: Array, out: Array) -> None:
        """A few at a time: pixels, and files that hold them, take more memory than any other cells."""
        for start in range(0, len(rows), _IMAGES_AT_ONCE):
            some = slice(start, start + _IMAGES_AT_ONCE)
            encoder.encode(self.pixels(rows[some], encoder.size, encoder.channels), out[some])

    def _check_size(self, rows: Array, out: Array) -> None:
        # A row can lie astronomically far from a nearly constant train column.
        if not all_finite(out):
            far = ~np.isfinite(out).all(axis=1)
            self._complain(rows[far], "is too large for a 32-bit float, or too far from the train rows")

    def _complain(self, rows: Array, what: str) -> None:
        if len(rows):
            self._complaints.of_cells(self._name, rows, what)
