"""One party's table as it lies: CSV, Parquet, Arrow, NumPy and LIBSVM files, queries, frames of pandas and polars.

All become a `Table`: ids, and columns that are read when they are asked for, so that a large Parquet file costs the
memory of one column at a time. No message repeats what a parser said about a file's contents: that could show a value.
"""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np

from colonnade.data.arrow_arrays import no_texts, numbers
from colonnade.data.csv_files import GAPS, read_csv
from colonnade.data.databases import rows_where, table_of_query
from colonnade.data.ids import Array, RowIds, unique_ids
from colonnade.data.settings import PartyData
from colonnade.data.sparse import open_text, read_sparse_npz, read_svmlight
from colonnade.errors import DataError
from colonnade.on_demand import is_loaded, on_demand

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyarrow import feather
    from pyarrow import parquet as pq
    from scipy.sparse import csr_array

else:
    pa, pd, pl = on_demand("pyarrow"), on_demand("pandas"), on_demand("polars")
    feather, pq = on_demand("pyarrow.feather"), on_demand("pyarrow.parquet")

PACKED = ("", ".gz", ".bz2", ".xz")
CSV = tuple(kind + packed for kind in (".csv", ".tsv", ".tab", ".txt") for packed in PACKED)
PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")
NUMPY = (".npz", ".npy")
LIBSVM = tuple(kind + packed for kind in (".svm", ".libsvm", ".svmlight") for packed in PACKED)
INDEX_OF_PANDAS = "__index_level_"
_NO_FILE = Path()

Source: TypeAlias = "pd.DataFrame | pl.DataFrame | pl.LazyFrame | pa.Table | Path | str"
"""What a party's table may be given as."""


def unreadable(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """What pandas, pyarrow, NumPy, SciPy and scikit-learn raise for a file that is not what its name says."""
    plain = (OSError, ValueError, EOFError, KeyError, OverflowError)
    return (*others, *plain, zipfile.BadZipFile, zlib.error, lzma.LZMAError, pa.ArrowException)


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """One party's rows: unique ids, and every column but the id (also the label, if it is there)."""

    ids: RowIds
    columns: tuple[str, ...]  # of a sparse file the label alone
    read: Callable[[str], pa.ChunkedArray]
    where: str  # what it is, for messages: "the file 'bank.csv'"
    kept: Array | None = None  # the positions of the rows that the party's condition left; None = all
    sparse: csr_array | None = None  # [n, d]
    sparse_names: tuple[str, ...] = ()
    decimal: str = "."  # of numbers in text
    gap_words: tuple[str, ...] = GAPS  # cells of text that hold nothing
    folder: Path = _NO_FILE  # what paths in cells are relative to
    file: pq.ParquetFile | None = None  # the file itself, if columns are read from it one at a time

    @property
    def names(self) -> list[str]:
        return [*self.sparse_names, *self.columns]

    def column(self, name: str) -> pa.ChunkedArray:
        """One column, such as the label, as it lies."""
        if self.sparse is not None and name not in self.columns:
            return pa.chunked_array([self.sparse[:, [self.sparse_names.index(name)]].toarray()[:, 0]])
        column = self.read(name)
        return column if self.kept is None else column.take(numbers(self.kept))

    def is_full_of_numbers(self, name: str) -> bool:
        """Whether a column is known to hold numbers alone and no null, without reading it from a file."""
        if self.file is not None:
            place = self.file.schema_arrow.get_field_index(name)
            kind = self.file.schema_arrow.field(place).type
            return is_number(kind) and _nulls(self.file, place) == 0
        column = self.read(name)
        return is_number(column.type) and column.null_count == 0

    def row_numbers(self, positions: Array) -> list[int]:
        """What a person calls some rows, counted from 1 as they lie in the source."""
        rows = positions if self.kept is None else self.kept[positions]
        return [1 + int(row) for row in rows]

    def __repr__(self) -> str:
        return f"Table({len(self.ids)} rows, {len(self.names)} columns)"


def without_ids(table: Table) -> Table:
    """The same once its rows are matched: ids take as much memory as several columns."""
    without = replace(table, ids=RowIds(no_texts()))
    pa.default_memory_pool().release_unused()
    return without


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type holds numbers or truth values."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def _nulls(file: pq.ParquetFile, column: int) -> int | None:
    """How many nulls a column has, if the file says so."""
    if file.metadata.num_columns != len(file.schema_arrow):
        return None  # nested columns: they are numbered otherwise
    parts = [file.metadata.row_group(group).column(column).statistics for group in range(file.num_row_groups)]
    if any(part is None or not part.has_null_count for part in parts):
        return None
    return int(sum(part.null_count for part in parts))


def is_pandas(values: object) -> TypeGuard[pd.DataFrame]:
    """Whether it is a frame of pandas, which is not loaded to tell that it is not."""
    return is_loaded("pandas") and isinstance(values, pd.DataFrame)


def is_polars(values: object) -> TypeGuard[pl.DataFrame | pl.LazyFrame]:
    """The same of polars."""
    return is_loaded("polars") and isinstance(values, pl.DataFrame | pl.LazyFrame)


def ids_of(own: PartyData, base: Path, *, party: str, id: str) -> RowIds:
    """The ids of one party's own table, of which no other column is read where that can be avoided."""
    return read_own(replace(own, columns=()), base, party=party, id=id, only_ids=True).ids


def read_own(own: PartyData, base: Path, *, party: str, id: str, label: str = "", only_ids: bool = False) -> Table:
    """The table that a party's settings name, relative to the folder `base`."""
    if own.sql:
        frame = table_of_query(own, base, party=party)
        table = _filtered(_from_arrow(frame, party=party, id=id, where="its query"), own, id, party)
        return replace(table, folder=base / own.folder)
    path = base / own.folder / own.file
    table = read_table(path, party=party, id=id, label=label, own=own, only_ids=only_ids)
    return replace(table, folder=path.parent)


def read_table(
    source: Source, *, party: str, id: str, label: str = "", own: PartyData | None = None, only_ids: bool = False
) -> Table:
    """One party's table, from a frame or from a file whose ending tells its kind.

    In an .npz file, the array `ids` holds the ids, `columns` [n, d] the columns, `names` (optional) their
    names and `labels` (optional) the column that the settings call `label`. In an .npy file [n, 1 + d], the
    first column is the id. Columns without names are called `<party>_1`, `<party>_2`, …

    A LIBSVM text and an .npz file of `scipy.sparse.save_npz` are sparse tables. The text has labels and no ids; to the
    .npz file, `ids`, `names` and `labels` may be added. Without ids, the i-th row has the id i, counted from 1.

    With id = "" rows are numbered instead, and every column is one: somebody else has matched them.
    """
    own = own or PartyData()
    if not isinstance(source, Path | str):
        return _filtered(_from_frame(source, party=party, id=id), own, id, party)
    path = Path(source)
    name = path.name.lower()
    known = CSV + PARQUET + ARROW + NUMPY + LIBSVM
    if not name.endswith(known):
        plain = [kind for kind in known if not kind.endswith(PACKED[1:])]
        raise DataError(
            f"Party {party!r} names the file {str(path)!r}, whose kind is not known by its ending: "
            f"use one of {', '.join(plain)}; text also packed as {', '.join(PACKED[1:])}."
        )
    if not path.is_file():
        raise DataError(f"Party {party!r} has no file {str(path)!r}: check the setting `file` of that party.")
    wanted = _wanted(own, id, label, only_ids)
    try:
        table = _from_file(path, name, own, wanted, party=party, id=id, label=label)
    except unreadable() as error:
        raise DataError(
            f"Party {party!r}: the file {str(path)!r} could not be read as {path.suffix} "
            f"({type(error).__name__}): check that it is complete and of the kind its ending says."
        ) from None
    return _filtered(table, own, id, party, path)


def _wanted(own: PartyData, id: str, label: str, only_ids: bool) -> tuple[str, ...]:
    """Which columns of a text have to be kept, if that is known before it is read; () = all."""
    if own.where or not (own.columns or only_ids):
        return ()
    return (*own.columns, *(name for name in (id, label, own.weight) if name))


def _from_file(
    path: Path, name: str, own: PartyData, wanted: tuple[str, ...], *, party: str, id: str, label: str
) -> Table:
    where = f"the file {str(path)!r}"
    if name.endswith(CSV):
        found = read_csv(path, own, party=party, id=id, columns=wanted)
        return replace(_table(found.names, found.frame.column, party=party, id=id, where=where), decimal=found.decimal)
    if name.endswith(PARQUET):
        return _from_parquet(path, party=party, id=id)
    if name.endswith(ARROW):
        return _from_arrow(_arrow_file(path), party=party, id=id, where=where)
    if name.endswith(LIBSVM) or (name.endswith(".npz") and _is_sparse_npz(path)):
        return _sparse_table(path, party, label, text=name.endswith(LIBSVM))
    names, columns = _numpy_columns(path, party, id, label)
    return _table(names, columns.__getitem__, party=party, id=id, where=where)


def _table(names: Iterable[str], read: Callable[[str], pa.ChunkedArray], *, party: str, id: str, where: str) -> Table:
    known = [str(name) for name in names if not str(name).startswith(INDEX_OF_PANDAS) or str(name) == id]
    twice = sorted({name for name in known if known.count(name) > 1}) if len(set(known)) < len(known) else []
    if twice:
        raise DataError(f"Party {party!r}: {where} has more than one column {twice[0]!r}: rename all but one.")
    if not id:
        numbered = RowIds(no_texts())
        return Table(numbered, tuple(known), lambda name: _chunked(read(name)), where)
    if id not in known:
        raise DataError(
            f"Party {party!r}: {where} has no id column {id!r}.{nearest(id, known)} "
            "Name the column that identifies rows with the setting `id`."
        )
    ids = unique_ids(_chunked(read(id)), party=party, where=where)
    return Table(ids, tuple(name for name in known if name != id), lambda name: _chunked(read(name)), where)


def _chunked(column: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """A column in one form; types that Arrow only passes on, such as UUIDs, as text."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _filtered(table: Table, own: PartyData, id: str, party: str, path: Path = _NO_FILE) -> Table:
    """The table's rows for which the party's condition holds."""
    table = replace(table, gap_words=(*GAPS, *own.missing_values))
    if not own.where:
        return table
    if table.sparse is not None:
        raise DataError(f"Party {party!r}: `where` works with dense tables; {table.where} is sparse.")
    whole = (
        path if table.file is not None else pa.table({name: table.read(name) for name in (id, *table.columns) if name})
    )
    kept = rows_where(own.where, whole, party=party)
    if not len(kept):
        raise DataError(f"Party {party!r}: no row of {table.where} fits its condition `where`.")
    return replace(table, ids=RowIds(table.ids.text.take(numbers(kept))) if id else table.ids, kept=kept)


# --- Arrow and frames -------------------------------------------------------------------------------------------


def _from_parquet(path: Path, *, party: str, id: str) -> Table:
    """Each column is read from the file when it is asked for."""
    file = pq.ParquetFile(path)
    rows = file.metadata.num_rows

    def read(name: str) -> pa.ChunkedArray:
        column = file.read(columns=[name], use_threads=False).column(name)
        if len(column) != rows:
            raise DataError(f"Party {party!r}: the file {str(path)!r} has changed while it was read.")
        return column

    return replace(
        _table(file.schema_arrow.names, read, party=party, id=id, where=f"the file {str(path)!r}"), file=file
    )


def _arrow_file(path: Path) -> pa.Table:
    try:
        return feather.read_table(path, memory_map=True)
    except pa.ArrowInvalid:
        with pa.memory_map(str(path)) as content:
            return pa.ipc.open_stream(content).read_all()


def _from_arrow(frame: pa.Table, *, party: str, id: str, where: str) -> Table:
    return _table(frame.column_names, frame.column, party=party, id=id, where=where)


def _from_frame(frame: Any, *, party: str, id: str) -> Table:
    if is_pandas(frame):
        if id not in frame.columns and frame.index.name == id:
            frame = frame.reset_index()
        series = {str(name): frame.iloc[:, place] for place, name in enumerate(frame.columns)}
        names = [str(name) for name in frame.columns]
        return _table(names, lambda name: _series(series[name]), party=party, id=id, where="its frame")
    if is_polars(frame):
        whole = frame.collect() if isinstance(frame, pl.LazyFrame) else frame
        return _table(
            whole.columns,
            lambda name: pa.chunked_array(whole.get_column(name).to_arrow()),
            party=party,
            id=id,
            where="its frame",
        )
    if is_loaded("pyarrow") and isinstance(frame, pa.Table):
        return _from_arrow(frame, party=party, id=id, where="its table")
    raise DataError(
        f"Party {party!r}: its data are a {type(frame).__name__}: give a frame of pandas or polars, a pyarrow Table, "
        "or a file's path."
    )


def _series(series: pd.Series) -> pa.ChunkedArray:
    kind = series.dtype.categories.dtype if isinstance(series.dtype, pd.CategoricalDtype) else series.dtype
    if isinstance(kind, pd.IntervalDtype):  # of which Arrow makes two numbers each
        series = series.astype(object).map(str, na_action="ignore")
    try:
        return _chunked(pa.array(series, from_pandas=True))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        if series.dtype.kind == "c":
            raise DataError(f"The column {str(series.name)!r} holds complex numbers: leave it out.") from None
        # Cells of several types: text, and its preparation says which of them are wrong.
        texts = [None if empty else str(value) for value, empty in zip(series, series.isna(), strict=True)]
        return pa.chunked_array([pa.array(texts, pa.string())])


# --- NumPy and sparse files -------------------------------------------------------------------------------------


def _numpy_columns(path: Path, party: str, id: str, label: str) -> tuple[list[str], dict[str, pa.ChunkedArray]]:
    with path.open("rb") as file:
        content = np.load(file, allow_pickle=False)
        if isinstance(content, np.ndarray):
            if content.ndim != 2 or content.dtype.names:
                raise ValueError("not a matrix")
            ids, columns, names, labels = content[:, 0], content[:, 1:], None, None
        else:
            if "ids" not in content or "columns" not in content:
                raise DataError(
                    f"Party {party!r}: the file {str(path)!r} must hold the arrays `ids` and `columns`; it "
                    f"holds {', '.join(content.files) or 'none'}."
                )
            ids, columns = content["ids"], content["columns"]
            names, labels = content.get("names"), content.get("labels")
    if columns.ndim != 2 or len(ids) != len(columns):
        raise ValueError("ids and columns differ in rows")
    known = [f"{party}_{1 + i}" for i in range(columns.shape[1])] if names is None else [str(n) for n in names]
    held = {name: columns[:, j] for j, name in enumerate(known)}
    if len(known) != columns.shape[1]:
        raise ValueError("names do not fit the columns")
    held = {id: ids, **held, **({} if labels is None else {label or "labels": labels})}
    return [id, *known, *([] if labels is None else [label or "labels"])], {
        name: _chunked(numbers(values)) for name, values in held.items()
    }


def _is_sparse_npz(path: Path) -> bool:
    with path.open("rb") as file:
        content = np.load(file, allow_pickle=False)
        return not isinstance(content, np.ndarray) and {"format", "shape", "data"} <= set(content.files)


def _sparse_table(path: Path, party: str, label: str, *, text: bool) -> Table:
    ids = names = labels = None
    if text:
        with open_text(path) as file:
            matrix, labels = read_svmlight(file)
    else:
        matrix = read_sparse_npz(path)
        with np.load(path, allow_pickle=False) as content:
            ids, names, labels = content.get("ids"), content.get("names"), content.get("labels")
    rows, columns = matrix.shape
    known = [f"{party}_{1 + i}" for i in range(columns)] if names is None else [str(n) for n in names]
    for what, given, wanted in (("ids", ids, rows), ("names", known, columns), ("labels", labels, rows)):
        if given is not None and len(given) != wanted:
            raise ValueError(f"{what} do not fit the matrix")
    if len(set(known)) < columns:
        raise DataError(f"Party {party!r}: the file {str(path)!r} names a column twice: rename all but one.")
    where = f"the file {str(path)!r}"
    column = numbers(np.arange(1, rows + 1) if ids is None else ids)
    held = {} if labels is None else {label or "labels": _chunked(numbers(labels))}
    row_ids = unique_ids(_chunked(column), party=party, where=where)
    return Table(row_ids, tuple(held), held.__getitem__, where, sparse=matrix, sparse_names=tuple(known))


# --- which columns ----------------------------------------------------------------------------------------------


def choose_columns(
    table: Table, wanted: Iterable[str], *, party: str, id: str, label: str, weight: str = ""
) -> tuple[str, ...]:
    """The names of a party's columns: those wanted, or all but the label and the weight when none are named."""
    names = table.names
    chosen = tuple(wanted) or tuple(name for name in names if name not in (label, weight))
    known = set(names)
    wrong = []
    for name in chosen:
        if name in (id, label, weight):
            what = "the id" if name == id else "the label" if name == label else "the weight"
            wrong.append(
                f"Party {party!r} lists {name!r} among its columns, but that is {what}, never a column: "
                "remove it from `columns`."
            )
        elif name not in known:
            wrong.append(f"Party {party!r} has no column {name!r}.{nearest(name, names)} Mend `columns`.")
    if wrong:
        raise DataError("\n".join(wrong))
    if len(set(chosen)) < len(chosen):
        raise DataError(f"Party {party!r} lists a column twice in `columns`: name each column once.")
    return chosen


def nearest(name: str, known: Iterable[str]) -> str:
    """' Did you mean …?' with the nearest known name, or nothing when none is near."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""
