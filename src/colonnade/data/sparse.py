"""Sparse columns: the one form they have here, and the text and NumPy files that hold them.

A sparse part is a `scipy.sparse.csr_array` of float32 with int32 indices, sorted within a row, no column twice and no
stored zero. Compiled loops rely on that form, so `PartyColumns` accepts no other.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from colonnade.on_demand import is_loaded, on_demand

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = on_demand("scipy.sparse")

Array = npt.NDArray[Any]
MOST_NONZEROS = 2**31 - 1
"""What 32-bit row pointers can count."""

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def is_sparse(values: Any) -> bool:
    """Whether it is a sparse matrix of SciPy, which is not loaded to tell that it is not."""
    return is_loaded("scipy.sparse") and bool(sparse.issparse(values))


def canonical(values: Any) -> sparse.csr_array:
    """A copy of any sparse or dense matrix in the one form; what is too small for a 32-bit float is 0 and left out."""
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and preparation refuses it by name
        matrix = sparse.csr_array(values, dtype=np.float32, copy=True)
    matrix.sum_duplicates()  # sorts, too
    matrix.eliminate_zeros()
    return _with_short_indices(matrix)


def is_canonical(matrix: Any) -> bool:
    """Whether a matrix has the one form."""
    if not (is_sparse(matrix) and isinstance(matrix, sparse.csr_array)):
        return False
    if matrix.ndim != 2 or matrix.dtype != np.float32:
        return False
    if matrix.indices.dtype != np.int32 or matrix.indptr.dtype != np.int32:
        return False
    try:
        matrix.check_format(full_check=True)
    except ValueError:
        return False
    return bool(matrix.has_canonical_format and matrix.data.all())


def read_svmlight(file: IO[bytes], columns: int | None = None) -> tuple[sparse.csr_array, Array]:
    """The rows and labels of a LIBSVM text, `label column:value …` a line; whole labels become int64.

    Raises ValueError or OverflowError for what is no such text. Without `columns` the largest number that occurs tells
    how many there are, and the smallest whether they count from 0 or from 1.
    """
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(
        file, n_features=columns, dtype=np.float32, zero_based="auto" if columns is None else False
    )
    if not X.shape[0]:
        raise ValueError("no rows")
    whole = bool(np.isfinite(y).all() and (y == np.floor(y)).all() and (np.abs(y) < 2**53).all())
    return canonical(X), y.astype(np.int64) if whole else y


def open_text(path: Path) -> IO[bytes]:
    """A file's bytes, decompressed if its ending says so."""
    opened: IO[bytes] = _OPENERS.get(path.suffix.lower(), open)(path, "rb")
    return opened


def read_sparse_npz(path: Path) -> sparse.csr_array:
    """A matrix that `scipy.sparse.save_npz` wrote; raises ValueError for one whose parts do not fit together."""
    try:
        matrix = sparse.load_npz(path)  # never unpickles
    except (TypeError, AttributeError, IndexError, NotImplementedError):
        raise ValueError("not a sparse matrix") from None
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise ValueError("not a matrix of real numbers")
    if matrix.format in ("csr", "csc", "bsr"):
        matrix.check_format(full_check=True)  # before compiled loops follow its indices
    return sparse.csr_array(matrix)


def scaled(matrix: sparse.csr_array, scale: Array) -> sparse.csr_array:
    """Each column divided by its scale, in the one form; a column whose scale is 0 becomes 0."""
    divisor = np.where(scale == 0, np.inf, scale)
    with np.errstate(over="ignore"):
        data = matrix.data / divisor[matrix.indices]
    return canonical(sparse.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape))


def largest_by_column(matrix: sparse.csr_array) -> Array:
    """The largest absolute value of each column."""
    largest = np.zeros(matrix.shape[1], dtype=matrix.dtype)  # of one type with the values: NumPy's quick way
    np.maximum.at(largest, matrix.indices, np.abs(matrix.data))
    return largest


def constant_columns(matrix: sparse.csr_array) -> Array:
    """Which columns hold one value in all rows, mostly 0."""
    rows, columns = matrix.shape
    counts = np.bincount(matrix.indices, minlength=columns)
    constant: Array = counts == 0
    for column in np.flatnonzero(counts == rows):
        # A full column is rare among sparse ones; each is looked at on its own.
        values = matrix.data[matrix.indices == column]
        constant[column] = values.max() == values.min()
    return constant


def _with_short_indices(matrix: sparse.csr_array) -> sparse.csr_array:
    if matrix.indices.dtype == np.int32 and matrix.indptr.dtype == np.int32:
        return matrix
    indices, pointers = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return sparse.csr_array((matrix.data, indices, pointers), shape=matrix.shape)
