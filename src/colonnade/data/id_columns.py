"""The columns that identify a party's rows, as texts, and nothing else of its table.

Other than for training, rows without an id and repeated ids are let through here: whoever asks counts them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from colonnade.data.csv_files import read_csv
from colonnade.data.databases import table_of_query
from colonnade.data.settings import PartyData
from colonnade.data.sources import CSV, PARQUET, nearest, read_table, unreadable
from colonnade.errors import DataError, SettingsError
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.parquet as pq
else:
    pd, pq = on_demand("pandas"), on_demand("pyarrow.parquet")


def read_id_columns(own: PartyData, base: Path, columns: Sequence[str], party: str) -> list[pd.Series]:
    """Each of these columns as texts, row by row; "" where there is none."""
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
        return [pd.Series(read_table(path, party=party, id=column).ids.tolist(), dtype=str) for column in columns]
    if not path.is_file():
        raise DataError(f"Party {party!r} has no file {str(path)!r}: check the setting `file` of that party.")
    try:
        if name.endswith(CSV):  # each as text: a number would lose the leading zeros of an id
            found = [read_csv(path, own, party=party, id=column, columns=(column,)) for column in columns]
            _check_there(found[0].names, columns, party, f"the file {str(path)!r}")
            series = [one.frame.column(column).to_pandas() for one, column in zip(found, columns, strict=True)]
        else:
            file = pq.ParquetFile(path)
            _check_there(file.schema_arrow.names, columns, party, f"the file {str(path)!r}")
            series = [file.read(columns=[column]).column(column).to_pandas() for column in columns]
    except unreadable() as error:
        raise DataError(
            f"Party {party!r}: the file {str(path)!r} could not be read as {path.suffix} "
            f"({type(error).__name__}): check that it is complete and of the kind its ending says."
        ) from None
    return [_texts(column, party, f"the file {str(path)!r}") for column in series]


def listed(texts: pd.Series | Sequence[str]) -> list[str]:
    """Some of a column's texts. To go through a series itself takes ten times as long."""
    found: list[str] = texts.tolist() if hasattr(texts, "tolist") else list(texts)
    return found


def _of_query(own: PartyData, base: Path, columns: Sequence[str], party: str) -> list[pd.Series]:
    """The same of a query, whose rows come in one order only if it says so."""
    if not re.search(r"\border\s+by\b", own.sql, re.IGNORECASE):
        raise SettingsError(
            f"Party {party!r}: its query has no ORDER BY, and a database may give rows in another order each time. An "
            "alignment finds rows again by their places: end the query with ORDER BY and the columns that identify "
            "rows."
        )
    frame = table_of_query(own, base, party=party)
    _check_there(frame.column_names, columns, party, "its query")
    return [_texts(frame.column(column).to_pandas(), party, "its query") for column in columns]


def _check_there(names: Sequence[str], columns: Sequence[str], party: str, where: str) -> None:
    for column in columns:
        if column not in names:
            raise DataError(
                f"Party {party!r}: {where} has no id column {column!r}.{nearest(column, names)} Name "
                "the column that identifies rows with the setting `id`, or several with `id_columns`."
            )


def _texts(column: pd.Series, party: str, where: str) -> pd.Series:
    """As text; 7.0, which is how a column of whole numbers with gaps comes out, is 7."""
    gaps = column.isna()
    if pd.api.types.is_float_dtype(column):
        whole = column.fillna(0.0)
        if not (whole.eq(whole.round()) & whole.abs().lt(2**53)).all():
            raise DataError(
                f"Party {party!r}: {where} has ids that are not whole numbers: name the column that "
                "identifies rows with the setting `id`, or store the ids as text."
            )
        column = whole.astype("int64")
    return column.astype(str).mask(gaps, "")
