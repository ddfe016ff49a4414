"""Reading one party's rows: CSV, Parquet, NumPy and LIBSVM files and pandas frames all become a `Table`.

A table has one id per row, as text, so that the id 7 of one party's Parquet file meets the id 7 of another's
CSV. No message repeats what a parser said about a file's contents: that could show a value.
"""

from __future__ import annotations

import lzma
import warnings
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import numpy.typing as npt

from colonnade.data.sparse import open_text, read_sparse_npz, read_svmlight
from colonnade.errors import DataError
from colonnade.on_demand import is_loaded, on_demand

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_array
else:
    pd = on_demand("pandas")

Array = npt.NDArray[Any]
CSV = (".csv", ".csv.gz", ".csv.bz2", ".csv.xz")
PARQUET = (".parquet", ".pq")
NUMPY = (".npz", ".npy")
LIBSVM = tuple(kind + packed for kind in (".svm", ".libsvm", ".svmlight") for packed in ("", ".gz", ".bz2", ".xz"))


def unreadable(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """What pandas, pyarrow, NumPy, SciPy and scikit-learn raise for a file that is not what its name says."""
    plain = (OSError, ValueError, EOFError, KeyError, OverflowError)
    return (*others, *plain, zipfile.BadZipFile, zlib.error, lzma.LZMAError, pd.errors.ParserWarning)


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """One party's rows as read: unique ids, and every column but the id (also the label, if it is there)."""

    ids: Array  # text, unique
    frame: pd.DataFrame  # of a sparse file the label alone
    sparse: csr_array | None = None  # [n, d]
    sparse_names: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return [*self.sparse_names, *(str(name) for name in self.frame.columns)]

    def column(self, name: str) -> pd.Series:
        """One column, such as the label, dense."""
        if self.sparse is None or name in self.frame.columns:
            return self.frame[name]
        return pd.Series(self.sparse[:, [self.sparse_names.index(name)]].toarray()[:, 0])

    def __repr__(self) -> str:
        return f"Table({len(self.ids)} rows, {len(self.names)} columns)"


def is_frame(values: object) -> TypeGuard[pd.DataFrame]:
    """Whether it is a frame of pandas, which is not loaded to tell that it is not."""
    return is_loaded("pandas") and isinstance(values, pd.DataFrame)


def read_table(source: pd.DataFrame | Path | str, *, party: str, id: str, label: str = "") -> Table:
    """One party's table, from a frame or from a file whose ending tells its kind.

    In an .npz file, the array `ids` holds the ids, `columns` [n, d] the columns, `names` (optional) their
    names and `labels` (optional) the column that the settings call `label`. In an .npy file [n, 1 + d], the
    first column is the id. Columns without names are called `<party>_1`, `<party>_2`, …

    A LIBSVM text and an .npz file of `scipy.sparse.save_npz` are sparse tables. The text has labels and no ids; to the
    .npz file, `ids`, `names` and `labels` may be added. Without ids, the i-th row has the id i, counted from 1.
    """
    if is_frame(source):
        return _table(source, party=party, id=id, where="its frame")
    path = Path(source)
    name = path.name.lower()
    if not name.endswith(CSV + PARQUET + NUMPY + LIBSVM):
        raise DataError(
            f"Party {party!r} names the file {str(path)!r}, whose kind is not known by its ending: "
            f"use one of {', '.join(CSV + PARQUET + NUMPY + LIBSVM)}."
        )
    if not path.is_file():
        raise DataError(f"Party {party!r} has no file {str(path)!r}: check the setting `file` of that party.")
    try:
        if name.endswith(CSV):
            # As text: a number would lose the leading zeros of an id.
            # index_col=False: rows longer than the header would otherwise be shifted silently.
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)
                frame = pd.read_csv(path, dtype={id: str}, low_memory=False, index_col=False)
        elif name.endswith(PARQUET):
            frame = pd.read_parquet(path)
        elif name.endswith(LIBSVM) or (name.endswith(".npz") and _is_sparse_npz(path)):
            return _sparse_table(path, party, label, text=name.endswith(LIBSVM))
        else:
            frame = _numpy_frame(path, party, id, label)
    except unreadable() as error:
        raise DataError(
            f"Party {party!r}: the file {str(path)!r} could not be read as {path.suffix} "
            f"({type(error).__name__}): check that it is complete and of the kind its ending says."
        ) from None
    return _table(frame, party=party, id=id, where=f"the file {str(path)!r}")


def _numpy_frame(path: Path, party: str, id: str, label: str) -> pd.DataFrame:
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
    frame = pd.DataFrame(columns, columns=known)
    frame.insert(0, id, ids)
    if labels is not None:
        frame[label or "labels"] = labels
    return frame


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
    as_text = _ids_as_text(pd.Series(np.arange(1, rows + 1) if ids is None else ids), party, where)
    frame = pd.DataFrame(index=range(rows)) if labels is None else pd.DataFrame({label or "labels": labels})
    return Table(as_text, frame, matrix, tuple(known))


def _table(frame: pd.DataFrame, *, party: str, id: str, where: str) -> Table:
    if id not in frame.columns and frame.index.name == id:
        frame = frame.reset_index()
    names = [str(name) for name in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise DataError(f"Party {party!r}: {where} has more than one column {twice[0]!r}: rename all but one.")
    frame = frame.set_axis(names, axis=1)
    if id not in names:
        raise DataError(
            f"Party {party!r}: {where} has no id column {id!r}.{nearest(id, names)} "
            "Name the column that identifies rows with the setting `id`."
        )
    return Table(ids=_ids_as_text(frame[id], party, where), frame=frame.drop(columns=id))


def _ids_as_text(column: pd.Series, party: str, where: str) -> Array:
    empty = int(column.isna().sum())
    if empty:
        raise DataError(f"Party {party!r}: {where} has {empty} rows without an id: fill in or remove them.")
    if pd.api.types.is_float_dtype(column):
        # A matrix of floats has no other way to hold ids; 7.0 is the id 7.
        values = column.to_numpy(dtype=np.float64)
        if not (np.isfinite(values).all() and (values == np.floor(values)).all() and (abs(values) < 2**53).all()):
            raise DataError(
                f"Party {party!r}: {where} has ids that are not whole numbers: "
                "name the column that identifies rows with the setting `id`, or store the ids as text."
            )
        column = column.astype(np.int64)
    ids = np.array([str(value).strip() for value in column.tolist()], dtype=np.str_)
    repeated = len(ids) - len(np.unique(ids))
    if repeated:
        raise DataError(
            f"Party {party!r}: {where} repeats ids ({repeated} of its {len(ids)} rows have an id that "
            "another row has too): keep one row for each id."
        )
    return ids


def choose_columns(
    table: Table, wanted: Iterable[str], *, party: str, id: str, label: str, weight: str = ""
) -> tuple[str, ...]:
    """The names of a party's columns: those wanted, or all but the label and the weight when none are named."""
    names = table.names
    chosen = tuple(wanted) or tuple(name for name in names if name not in (label, weight))
    known = set(names)
    for name in chosen:
        if name in (id, label, weight):
            what = "the id" if name == id else "the label" if name == label else "the weight"
            raise DataError(
                f"Party {party!r} lists {name!r} among its columns, but that is {what}, never a column: "
                "remove it from `columns`."
            )
        if name not in known:
            raise DataError(f"Party {party!r} has no column {name!r}.{nearest(name, names)} Mend `columns`.")
    if len(set(chosen)) < len(chosen):
        raise DataError(f"Party {party!r} lists a column twice in `columns`: name each column once.")
    return chosen


def nearest(name: str, known: Iterable[str]) -> str:
    """' Did you mean …?' with the nearest known name, or nothing when none is near."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""
