"""Sparse rows read ahead: drawn at random, they are seldom in a cache, and a loop over them waits for each.

Reading the ends of all of them first asks memory for many at a time. It calls no other kernel, and none calls it.
"""

import numpy as np

from colonnade.models.linear_rows import Floats, Indices, SparseData
from colonnade.models.machine_code import compiled


@compiled
def fetch(data: SparseData, rows: Indices, lazy: Floats) -> float:
    """Read these rows' ends and, if there are not many more of them, the lazy columns; the sum means nothing."""
    starts, columns, values = data
    total = 0.0
    for p in range(rows.size):
        first, end = starts[rows[p]], starts[np.uint64(rows[p]) + np.uint64(1)]
        if end > first:
            last = end - np.uint64(1)
            total += float(columns[first] + columns[last]) + values[first] + values[last]
    if lazy.ndim == 1 and lazy.size <= 16 * rows.size:
        for j in range(0, lazy.size, 8):  # one of every 64 bytes
            total += lazy[j]
    return total
