"""Generated sparse rows that look like text: few popular columns, many rare ones, labels from a linear model.

A seed means the same rows everywhere. Rows are drawn a block at a time, so that what is held beyond the result does
not grow with it, and nothing is ever dense.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from colonnade.data.ids import Array
from colonnade.data.partition import spread_out
from colonnade.data.sparse import MOST_NONZEROS
from colonnade.errors import SettingsError
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = on_demand("scipy.sparse")

ROWS_A_BLOCK = 32_768
# Mandelbrot's shift of Zipf's law, 1 / (rank + 2.7), which keeps the first columns from being in every row.
SHIFT = 2.7
# Half of the columns have no weight.
INFORMATIVE = 0.5
# Of Gaussian margins of deviation 1 and noise of deviation σ, the true model gets 1 − arctan(σ) / π right: 94 %. Few
# non-zeros per row make margins that are not quite Gaussian, and it gets a little less.
NOISE = float(np.tan(0.06 * np.pi))


def sparse_rows(rows: int, columns: int, nonzeros_per_row: int, seed: int) -> tuple[sparse.csr_array, Array]:
    """Rows with exactly `nonzeros_per_row` values in [0.5, 1.5) each, and labels −1 or +1, about half of each.

    The label is the sign of w·x + noise, shifted to the middle of the rows; w is normal, and 0 for half of the columns.
    Popular and rare columns are spread evenly, so that contiguous blocks of columns hold about as many values each.
    """
    _check(rows, columns, nonzeros_per_row, seed)
    random = np.random.default_rng(seed)
    weights = random.normal(size=columns) * (random.random(columns) < INFORMATIVE)
    place = spread_out(columns).astype(np.int32)
    indices = np.empty((rows, nonzeros_per_row), dtype=np.int32)
    values = np.empty((rows, nonzeros_per_row), dtype=np.float32)
    margin = np.empty(rows)
    for start in range(0, rows, ROWS_A_BLOCK):
        block = slice(start, min(start + ROWS_A_BLOCK, rows))
        indices[block] = _distinct_columns(block.stop - start, nonzeros_per_row, place, random)
        values[block] = random.random(values[block].shape, dtype=np.float32) + np.float32(0.5)
        margin[block] = (values[block] * weights[indices[block]]).sum(axis=1)
    margin -= np.median(margin)
    noisy = margin + NOISE * margin.std() * random.normal(size=rows)
    pointers = np.arange(0, rows * nonzeros_per_row + 1, nonzeros_per_row, dtype=np.int32)
    X = sparse.csr_array((values.reshape(-1), indices.reshape(-1), pointers), shape=(rows, columns))
    return X, np.where(noisy > 0, 1, -1)


def _distinct_columns(rows: int, count: int, place: Array, random: np.random.Generator) -> Array:
    """`count` different columns a row, sorted, each drawn by popularity among those the row does not have yet."""
    columns = len(place)

    def drawn(size: int | tuple[int, int]) -> Array:
        # The inverse of the distribution function ∫ 1 / (rank + SHIFT): no table, no search.
        ranks = SHIFT * np.expm1(random.random(size) * np.log1p(columns / SHIFT))
        found: Array = place[np.minimum(ranks.astype(np.int32), columns - 1)]
        return found

    chosen = np.sort(drawn((rows, count)), axis=1)
    left = np.arange(rows)
    while True:
        some = chosen[left]
        again = some[:, 1:] == some[:, :-1]
        unfinished = again.any(axis=1)
        left, some, again = left[unfinished], some[unfinished], again[unfinished]
        if not len(left):
            return chosen
        some[:, 1:][again] = drawn(int(again.sum()))
        chosen[left] = np.sort(some, axis=1)


def _check(rows: int, columns: int, nonzeros_per_row: int, seed: int) -> None:
    if rows < 1 or columns < 2 or seed < 0:
        raise SettingsError(
            f"synthetic_sparse was asked for {rows} rows and {columns} columns with the seed {seed}: give at least 1 "
            "row, 2 columns and a seed of 0 or more."
        )
    if not 1 <= nonzeros_per_row <= columns // 2:
        raise SettingsError(
            f"synthetic_sparse was asked for {nonzeros_per_row} non-zeros per row; with {columns} columns give 1 to "
            f"{columns // 2}, since rows that are more than half full are not sparse."
        )
    if rows * nonzeros_per_row > MOST_NONZEROS:
        raise SettingsError(
            f"synthetic_sparse was asked for {rows} rows of {nonzeros_per_row} non-zeros; together they may have "
            f"{MOST_NONZEROS}: ask for fewer rows."
        )
