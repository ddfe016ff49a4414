"""How each column of a party's own table is taken, found and learnt from its train rows.

Columns are read one at a time, and each is read once unless the number of columns it becomes is not known before:
beside the result, few columns are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from colonnade.data import cells, encoders
from colonnade.data.cells import Complaints
from colonnade.data.encoders import Encoder, all_finite
from colonnade.data.federated import PartyColumns
from colonnade.data.ids import Array
from colonnade.data.images import FITTED_ROWS, ImageEncoder
from colonnade.data.prepared import ChosenRows, Preparation, PreparedColumn, RawColumn, Sheet
from colonnade.data.settings import ColumnSettings, DataSettings, PartyData
from colonnade.data.sources import Table, is_number, nearest
from colonnade.data.texts import TokenEncoder
from colonnade.errors import DataError, SettingsError
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = on_demand("pyarrow")

MOST_ONE_HOT = 50
"""More categories than this are hashed, unless the settings say otherwise."""

MOSTLY = 0.9
"""Text of which so many cells are numbers, or dates, is a column of them, in which the other cells are wrong."""

WORDS_OF_A_TEXT = 3.0


def prepare_own(
    table: Table,
    chosen: Sequence[str],
    train: Array,
    test: Array,
    *,
    own: PartyData,
    data: DataSettings,
    party: str,
    known: Preparation | None = None,
) -> PartyColumns:
    """A party's own dense table: each column fitted on the train rows, then applied to both parts.

    `known`: what was learnt before, and is applied again to the columns that it knows.
    """
    for name in own.prepare:
        if name not in table.names:
            raise SettingsError(f"Party {party!r} prepares a column {name!r}.{nearest(name, table.names)} It has none.")
    kept = [name for name in chosen if own.prepare.get(name, ColumnSettings()).kind != "leave-out"]
    fitting = _Fitting(table, own, data, Complaints(party, table), known)
    columns, sheet = _filled_in(fitting, kept, train, np.concatenate([train, test]))
    fitting.complaints.refuse()
    fitted_rows, others = np.split(sheet.filled(), [len(train)])  # which lie in one piece of memory
    _refuse_all_constant(fitted_rows, party, len(kept))
    made = Preparation(tuple(columns))
    shaped = [torch.from_numpy(rows).reshape(-1, *made.shape) for rows in (fitted_rows, others)]
    return PartyColumns(shaped[0], shaped[1], made.names, preparation=made)


def _filled_in(fitting: _Fitting, kept: Sequence[str], train: Array, rows: Array) -> tuple[list[PreparedColumn], Sheet]:
    """Every column fitted on the train rows, and all rows of it encoded."""
    fitted_on, both = ChosenRows(train), ChosenRows(rows)
    # Whose outputs can be counted only after they were looked at.
    fitted = {name: fitting.fit(name, fitted_on) for name in kept if fitting.needs_a_look(name)}
    widths = [len(column.outputs) if (column := fitted.get(name)) else 1 for name in kept]
    sheet = Sheet(both, sum(widths), fitting.data.mapped_share)
    columns: list[PreparedColumn] = []
    place = 0
    for name, width in zip(kept, widths, strict=True):
        if name in fitting.complaints.columns:
            continue
        raw = fitting.raw(name)
        column = fitted.get(name) or fitting.fit(name, fitted_on, raw)
        if column is None:
            continue
        if len(column.outputs) > width:  # NaN among numbers, of which the file said that there are no gaps
            sheet.widen(place + width)
        raw.encode(column.encoder, both, sheet, place)
        columns.append(column)
        place += len(column.outputs)
        del raw  # before the next is read: its memory is taken again
    return columns, sheet


class _Fitting:
    """How one party's columns are to be taken, found out column by column."""

    def __init__(
        self, table: Table, own: PartyData, data: DataSettings, complaints: Complaints, known: Preparation | None
    ) -> None:
        self._known = {column.name: column for column in known.columns} if known else {}
        self._table = table
        self._own = own
        self.data = data
        self.complaints = complaints

    def _asked(self, name: str) -> ColumnSettings:
        return self._own.prepare.get(name, ColumnSettings())

    def needs_a_look(self, name: str) -> bool:
        return name in self._known or not (
            self._asked(name).kind in ("", "number") and self._table.is_full_of_numbers(name)
        )

    def raw(self, name: str) -> RawColumn:
        known = self._known.get(name)
        return RawColumn(
            self._table, name, self.complaints, self._asked(name).format if known is None else known.format
        )

    def fit(self, name: str, chosen: ChosenRows, raw: RawColumn | None = None) -> PreparedColumn | None:
        """The column's encoder; None if something is wrong with it, of which is then complained."""
        asked, train = self._asked(name), chosen.lying
        if name in self._known:
            return self._known[name]
        raw = raw or self.raw(name)
        standardise = self.data.standardise if asked.standardise is None else asked.standardise
        if asked.kind == "image":
            return self._fit_images(name, raw, chosen, standardise)
        if not cells.is_known(raw.column.type):
            images = ": if it holds images, say so with kind = 'image'" if cells.is_bytes(raw.column.type) else ""
            self.complaints.of_column(name, f"is of the type {raw.column.type}, which cannot be used{images}")
            return None
        missing = asked.missing or self.data.missing or "indicator"
        kind = asked.kind or self._kind(raw, train)
        if ":" in kind:
            return PreparedColumn(name, encoders.OwnEncoder.fit(kind, raw.anything(chosen.wanted)))
        if kind in ("number", "date"):
            values = raw.numbers(train) if kind == "number" else raw.days(train)
            full = kind == "number" and raw.is_full
            if name in self.complaints.columns or not (full or self._gaps_are_fine(name, values, missing)):
                return None
            if kind == "date":
                return PreparedColumn(name, encoders.DateEncoder.fit(values, asked, missing, standardise), asked.format)
            return PreparedColumn(
                name, encoders.NumberEncoder.fit(values, asked, missing, standardise, full), asked.format
            )
        words = raw.words.of_rows(train)
        if not self._gaps_are_fine(name, np.where(words.codes < 0, np.nan, 0.0), missing):
            return None
        made: Encoder
        if kind == "one-hot":
            made = encoders.OneHotEncoder.fit(words, asked)
        elif kind == "ordinal":
            made = encoders.OrdinalEncoder.fit(words, asked, standardise)
        elif kind == "tokens":
            made = TokenEncoder(asked.tokens)
        elif kind == "hashed":
            made = encoders.HashedEncoder(asked.buckets or encoders.HASHED_BUCKETS)
        else:
            made = encoders.TextEncoder(asked.buckets or encoders.TEXT_BUCKETS)
        return PreparedColumn(name, made)

    def _fit_images(self, name: str, raw: RawColumn, chosen: ChosenRows, standardise: bool) -> PreparedColumn | None:
        asked = self._asked(name)
        if not (cells.is_bytes(raw.column.type) or cells.is_text(raw.column.type)):
            what = f"is of the type {raw.column.type}; images are bytes of image files, or paths of such files"
            self.complaints.of_column(name, what)
            return None
        size = asked.size[0], asked.size[1]
        some = raw.pixels(chosen.wanted[:FITTED_ROWS], size, asked.channels)  # which are in random order
        missing = asked.missing or self.data.missing
        fine = self._gaps_are_fine(name, np.where(some.gaps, np.nan, 0.0), missing)
        if name in self.complaints.columns or not fine:
            return None
        return PreparedColumn(name, ImageEncoder.fit(some, size, asked.channels, standardise))

    def _kind(self, raw: RawColumn, train: Array) -> str:
        """What a column of which the settings say nothing is."""
        kind = raw.column.type
        if is_number(kind) or pa.types.is_null(kind):
            return "number"
        if cells.is_date(kind):
            return "date"
        words = raw.words.of_rows(train)
        counts = words.counts()
        total = int(counts.sum())
        if not total:
            return "number"  # nothing but gaps, of which is complained in the same words
        if counts[cells.are_numbers(words.words, self._table.decimal)].sum() >= MOSTLY * total:
            return "number"
        if counts[cells.are_dates(words.words)].sum() >= MOSTLY * total:
            return "date"
        seen = np.flatnonzero(counts)
        if len(seen) <= MOST_ONE_HOT:
            return "one-hot"
        some = [words.words[int(code)].as_py() for code in seen[:1000]]
        return "text" if np.mean([len(word.split()) for word in some]) >= WORDS_OF_A_TEXT else "hashed"

    def _gaps_are_fine(self, name: str, values: Array, missing: str) -> bool:
        if all_finite(values):
            return True
        gaps = int(np.isnan(values).sum())
        if gaps and gaps == len(values):
            self.complaints.of_column(name, "has no value in any train row")
            return False
        if gaps and missing == "refuse":
            self.complaints.of_column(
                name,
                f"misses a value in {gaps:,} train rows: fill them in, or set `missing` to mean, median or indicator",
            )
            return False
        return True


def _refuse_all_constant(train: Array, party: str, columns: int) -> None:
    if not columns:
        raise DataError(f"Party {party!r}: all of its columns are left out: give it at least one.")
    if any(not encoders.all_alike(column) for column in _by_column(train)):
        return
    raise DataError(
        f"Party {party!r}: each of its {columns} columns is constant in the {len(train)} train rows, so it has "
        "nothing to contribute: give it other columns or more rows, or leave the party out."
    )


def _by_column(values: Array) -> Iterator[Array]:
    """Column by column: the first that varies ends the search."""
    return (values[:, j] for j in range(values.shape[1]))
