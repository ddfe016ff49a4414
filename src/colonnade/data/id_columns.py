"""The columns that identify a party's rows, as texts, and nothing else of its table.

Other than for training, rows without an id and repeated ids are let through here: whoever asks counts them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.data.arrow_arrays import numbers
from colonnade.data.cells import is_text
from colonnade.data.csv_files import read_csv
from colonnade.data.databases import table_of_query
from colonnade.data.settings import PartyData
from colonnade.data.sources import CSV, PARQUET, nearest, read_table, unreadable
from colonnade.errors import DataError, SettingsError
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
else:
    pa, pc, pq = on_demand("pyarrow"), on_demand("pyarrow.compute"), on_demand("pyarrow.parquet")

Texts: TypeAlias = "pa.ChunkedArray"
"""A column of texts, as Arrow keeps them: Python's own would take five times the memory."""


def read_id_columns(own: PartyData, base: Path, columns: Sequence[str], party: str) -> list[Texts]:
    """Each of these columns as texts, row by row; null where there is none (`listed` makes it "")."""
    if own.where or not (own.sql or own.file):
        raise SettingsError(
            f"Party {party!r} has a condition where an alignment needs rows that stay in their places: put the "
            "condition into a query (`sql`) with ORDER BY, or write the chosen rows into a file."
        )
    if own.sql:
        return _of_query(own, base, columns, party)
    path = base / own.folder / own.file
    name = path.name.lower()
    if not name.endswith(CSV + PARQUET):
        return [pa.chunked_array([read_table(path, party=party, id=column).ids.text]) for column in columns]
    if not path.is_file():
        raise DataError(f"Party {party!r} has no file {str(path)!r}: check the setting `file` of that party.")
    try:
        if name.endswith(CSV):  # each as text: a number would lose the leading zeros of an id
            found = [read_csv(path, own, party=party, id=column, columns=(column,)) for column in columns]
            _check_there(found[0].names, columns, party, f"the file {str(path)!r}")
            found_columns = [one.frame.column(column) for one, column in zip(found, columns, strict=True)]
        else:
            file = pq.ParquetFile(path)
            _check_there(file.schema_arrow.names, columns, party, f"the file {str(path)!r}")
            found_columns = [file.read(columns=[column]).column(column) for column in columns]
    except unreadable() as error:
        raise DataError(
            f"Party {party!r}: the file {str(path)!r} could not be read as {path.suffix} "
            f"({type(error).__name__}): check that it is complete and of the kind its ending says."
        ) from None
    return [_texts(column, party, f"the file {str(path)!r}") for column in found_columns]


def listed(texts: Texts | Sequence[str], rows: npt.NDArray[np.int64] | None = None) -> list[str]:
    """A column's texts as Python's own, "" where there is none; `rows`: those of these rows alone."""
    if isinstance(texts, Sequence):
        return list(texts)
    if rows is not None:
        texts = texts.take(numbers(rows))
    found: list[str | None] = texts.to_pylist()
    return [text or "" for text in found]


def _of_query(own: PartyData, base: Path, columns: Sequence[str], party: str) -> list[Texts]:
    """The same of a query, whose rows come in one order only if it says so."""
    if not re.search(r"\border\s+by\b", own.sql, re.IGNORECASE):
        raise SettingsError(
            f"Party {party!r}: its query has no ORDER BY, and a database may give rows in another order each time. An "
            "alignment finds rows again by their places: end the query with ORDER BY and the columns that identify "
            "rows."
        )
    frame = table_of_query(own, base, party=party)
    _check_there(frame.column_names, columns, party, "its query")
    return [_texts(frame.column(column), party, "its query") for column in columns]


def _check_there(names: Sequence[str], columns: Sequence[str], party: str, where: str) -> None:
    for column in columns:
        if column not in names:
            raise DataError(
                f"Party {party!r}: {where} has no id column {column!r}.{nearest(column, names)} Name "
                "the column that identifies rows with the setting `id`, or several with `id_columns`."
            )


def _texts(column: pa.ChunkedArray, party: str, where: str) -> Texts:
    """As text, null for a gap; 7.0, which is how a column of whole numbers with gaps comes out, is 7."""
    types = pa.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
        whole = pc.and_(pc.equal(column, pc.round(column)), pc.less(pc.abs(column), 2.0**53))
        if not pc.all(whole, min_count=0).as_py():
            raise DataError(
                f"Party {party!r}: {where} has ids that are not whole numbers: name the column that "
                "identifies rows with the setting `id`, or store the ids as text."
            )
        column = column.cast(pa.int64())
    if types.is_integer(column.type) or is_text(column.type) or types.is_null(column.type):
        return column.cast(pa.string())
    # Dates and the like: as pandas writes them.
    texts = column.to_pandas().astype(str).tolist()
    return pc.if_else(pc.is_valid(column), pa.chunked_array([pa.array(texts, pa.string())]), None)
