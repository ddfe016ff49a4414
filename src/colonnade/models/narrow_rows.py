"""Products and sums over all rows of a table of few columns, from a copy that has its columns one after the other.

Row by row, so few entries are no work for vector instructions; column by column they are: 5 to 12 times as quick with
22,500 rows of three columns, and no quicker from about 16 columns on. Nothing here calls a kernel of another file.
"""

import numpy as np
import numpy.typing as npt

from colonnade.models.machine_code import compiled

Numbers = npt.NDArray[np.float64]
Turned = npt.NDArray[np.float32]  # turned[j, i] is x_ij

NARROW = 8
"""Columns at most; the copy then takes about as long as one product of the table as it was given."""


_AT_ONCE = 1024  # rows whose products stay in the first cache while one column after the other is added


@compiled
def times_by_column(turned: Turned, weights: Numbers, constant: float, products: Numbers) -> None:
    """products_i = x_iᵀ w + constant of every row, of which there is at least one column."""
    for first in range(0, products.shape[0], _AT_ONCE):
        some = products[first : first + _AT_ONCE]
        for j in range(turned.shape[0]):
            column, weight = turned[j, first : first + _AT_ONCE], weights[j]
            if j == 0:
                for p in range(some.shape[0]):
                    some[p] = weight * column[p]
            else:
                for p in range(some.shape[0]):
                    some[p] += weight * column[p]
        for p in range(some.shape[0]):
            some[p] += constant


@compiled
def sums_by_column(turned: Turned, coefficients: Numbers, sums: Numbers) -> None:
    """sums = Σ_i coefficient_i x_i."""
    for j in range(turned.shape[0]):
        column, total = turned[j], 0.0
        for p in range(coefficients.shape[0]):
            total += coefficients[p] * column[p]
        sums[j] = total
