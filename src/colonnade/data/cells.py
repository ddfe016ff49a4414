"""What the cells of one column hold: numbers, dates, or text; and every complaint about a table, told at once.

Text is looked at word by word, each distinct word once, however many rows have it. Complaints name the source, rows and
columns to their owner, never a value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from colonnade.data.arrow_arrays import as_numpy
from colonnade.data.ids import Array
from colonnade.data.sources import Table, is_number
from colonnade.errors import DataError
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa, pc = on_demand("pyarrow"), on_demand("pyarrow.compute")

MOST_ROWS_NAMED = 3
MOST_COMPLAINTS = 20
SECONDS_A_DAY = 86_400
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?[iI]nf(inity)?$"
_ISO = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?$"
_DOTTED = r"^\d{1,2}\.\d{1,2}\.\d{4}$"
_ADORNED = r"^[€$£¥]?\s?[+-]?(\d{1,3}([.,' ]\d{3})+|\d+)([.,]\d+)?\s?[%€$£¥]?$"
_SLASHED = r"^\d{1,2}/\d{1,2}/(\d{4}|\d{2})( .*)?$|^\d{4}/\d{1,2}/\d{1,2}( .*)?$|^\d{1,2}-\d{1,2}-\d{4}( .*)?$"


class Complaints:
    """Everything that is wrong with one party's table."""

    def __init__(self, party: str, table: Table) -> None:
        self._party = party
        self._table = table
        self._told: list[str] = []
        self.columns: set[str] = set()

    def of_column(self, column: str, what: str) -> None:
        self.columns.add(column)
        self._told.append(f"column {column!r} {what}")

    def of_cells(self, column: str, positions: Array, what: str) -> None:
        """Some rows' cells of one column."""
        self.columns.add(column)
        named = [str(row) for row in self._table.row_numbers(np.sort(positions)[:MOST_ROWS_NAMED])]
        more = f" and {len(positions) - len(named):,} more" if len(positions) > len(named) else ""
        rows = "row" if len(positions) == 1 else "rows"
        self._told.append(f"column {column!r}, {rows} {', '.join(named)}{more}: {what}")

    def refuse(self) -> None:
        """Raise if there is anything to complain of."""
        if not self._told:
            return
        told = self._told[:MOST_COMPLAINTS]
        if len(self._told) > len(told):
            told.append(f"and {len(self._told) - len(told)} more")
        raise DataError(
            f"Party {self._party!r}: {self._table.where} cannot be used as it is (rows are counted from 1, without a "
            "header):\n  " + "\n  ".join(told) + "\nMend the cells, leave columns out through `columns`, or say how to "
            "take them with `prepare`."
        )


@dataclass(frozen=True, eq=False)
class Words:
    """A column of text: its distinct words, trimmed, and which each row has; −1 for a gap."""

    codes: Array  # int32 [rows]
    words: pa.StringArray

    def of_rows(self, positions: Array) -> Words:
        return Words(self.codes[positions], self.words)

    def counts(self) -> Array:
        """How many rows have each word."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.words))


def words_of(column: pa.ChunkedArray, gap_words: tuple[str, ...]) -> Words:
    """Any column as text; whole numbers as 7 and not as 7.0."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if pa.types.is_floating(column.type):
        values = pc.if_else(pc.is_finite(column), column, None)
        whole = pc.all(pc.equal(values, pc.floor(values))).as_py()
        column = values.cast(pa.int64()) if whole else values
    encoded = column.cast(pa.string()).combine_chunks().dictionary_encode()
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    trimmed = pc.utf8_trim_whitespace(encoded.dictionary)
    again = trimmed.dictionary_encode()
    place = again.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    gaps = pc.is_in(again.dictionary, value_set=pa.array(gap_words, pa.string())).to_numpy(zero_copy_only=False)
    place[gaps[place]] = -1
    return Words(np.append(place, np.int32(-1))[codes], again.dictionary)


# --- numbers ------------------------------------------------------------------------------------------------------


def are_numbers(words: pa.StringArray, decimal: str) -> Array:
    """Which words are numbers."""
    found: Array = pc.match_substring_regex(_pointed(words, decimal), _NUMBER).to_numpy(zero_copy_only=False)
    return found


def are_adorned(words: pa.StringArray) -> Array:
    """Which words are numbers for a person, with signs that say little to a program: 1,234.50, 12 %, $ 7."""
    found: Array = pc.match_substring_regex(words, _ADORNED).to_numpy(zero_copy_only=False)
    return found


def _pointed(words: pa.StringArray, decimal: str) -> pa.StringArray:
    return pc.replace_substring(words, ",", ".", max_replacements=1) if decimal == "," else words


def numbers_of(column: pa.ChunkedArray) -> Array:
    """A numeric column as it lies, gaps as NaN; whole numbers stay whole numbers if there is no gap."""
    if pa.types.is_decimal(column.type) or (column.null_count and not pa.types.is_floating(column.type)):
        column = column.cast(pa.float64(), safe=False)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    is_whole = not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type))
    return as_numpy(column) if is_whole else np.asarray(column.to_numpy())


def numbers_in(words: Words, decimal: str) -> tuple[Array, Array]:
    """The number that each row's word stands for, NaN for none; and which rows have a word that is no number."""
    good = are_numbers(words.words, decimal)
    texts = pc.if_else(pa.array(good), _pointed(words.words, decimal), None)
    # Arrow takes no plus sign.
    values = pc.utf8_ltrim(texts, "+").cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.append(values, np.nan)[words.codes], np.append(~good, False)[words.codes]


# --- dates --------------------------------------------------------------------------------------------------------


def are_dates(words: pa.StringArray) -> Array:
    """Which words look like dates: 2024-12-31, perhaps with a time, or 31.12.2024."""
    iso, dotted = (pc.match_substring_regex(words, form).to_numpy(zero_copy_only=False) for form in (_ISO, _DOTTED))
    return np.asarray(iso | dotted)


def are_slashed(words: pa.StringArray) -> Array:
    """Which words look like dates of which a program cannot tell the day from the month: 5/6/2024."""
    found: Array = pc.match_substring_regex(words, _SLASHED).to_numpy(zero_copy_only=False)
    return found


def days_in(words: Words, form: str = "") -> tuple[Array, Array]:
    """The date of each row in days since 1970, NaN for none; and which rows have a word that is no date."""
    values = [_days(word, form) for word in words.words.to_pylist()]
    days = np.array([np.nan if value is None else value for value in values] + [np.nan])
    wrong = np.array([value is None for value in values] + [False])
    return days[words.codes], wrong[words.codes]


def _days(word: str, form: str) -> float | None:
    try:
        if form:
            found = datetime.strptime(word, form)
        elif re.match(_DOTTED, word):
            day, month, year = word.split(".")
            found = datetime(int(year), int(month), int(day))
        else:
            found = datetime.fromisoformat(word)
    except ValueError:
        return None
    try:
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() / SECONDS_A_DAY
    except OverflowError:
        return None


def days_of(column: pa.ChunkedArray) -> tuple[Array, Array]:
    """The same of a column of dates or points in time; wrong are years before 1 and after 9999."""
    stamps = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    days = np.asarray(stamps.cast(pa.float64()).to_numpy(), dtype=np.float64) / SECONDS_A_DAY
    return days, (days < -719_162) | (days >= 2_932_897)


def is_date(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def is_text(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or kind == pa.string_view())


def is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def is_known(kind: pa.DataType) -> bool:
    """Whether cells of this type can be used at all."""
    simple = kind.value_type if pa.types.is_dictionary(kind) else kind
    return is_number(simple) or is_date(simple) or is_text(simple) or pa.types.is_null(simple)
