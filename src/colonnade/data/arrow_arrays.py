"""NumPy's numbers as Arrow's, sharing their memory. `pa.array` and `pa.scalar` would do as well, and load pandas, which
takes half a second and thirty megabytes: a party whose table is read by Arrow can do without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = on_demand("pyarrow")


def numbers(values: npt.NDArray[Any]) -> pa.Array:
    """An array of whole numbers or floats; anything else as Arrow takes it.

    >>> numbers(np.array([2, 0])).to_pylist()
    [2, 0]
    """
    if values.ndim != 1 or values.dtype.kind not in "iuf" or not values.dtype.isnative:
        return pa.array(values)
    whole = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(whole.dtype), len(whole), [None, pa.py_buffer(whole)])


def no_texts() -> pa.StringArray:
    """An empty column of texts."""
    return pa.nulls(0, pa.string())


def one_text(text: str) -> pa.StringArray:
    """A column of one text, where a function takes a column in place of a text.

    >>> one_text("and").to_pylist()
    ['and']
    """
    written = text.encode()
    ends = np.array([0, len(written)], np.int32)
    return pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(ends), pa.py_buffer(written)])


def as_numpy(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column of whole numbers or floats without a gap; for such, `to_numpy` gives the same, and loads pandas.

    >>> as_numpy(pa.chunked_array([numbers(np.arange(5))[2:], numbers(np.arange(2))])).tolist()
    [2, 3, 4, 0, 1]
    """
    dtype = np.dtype(column.type.to_pandas_dtype())
    found = [np.frombuffer(one.buffers()[1], dtype, len(one), one.offset * dtype.itemsize) for one in column.chunks]
    if len(found) == 1:
        return found[0]  # as it lies: only to be read
    return np.concatenate(found) if found else np.empty(0, dtype)
