"""One party's columns with the weights over them: dense rows as they are, sparse rows lazily.

A block (linear.py) says which rows and what to do with them; here is how that is done in either storage.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from colonnade.errors import DataError
from colonnade.models import linear_rows as kernels
from colonnade.models import narrow_rows
from colonnade.models.linear_rows import CLOCK, CLOCKS, DRIFTS, PENALTY, SCALE, SGD, STRIDE, TICKS, Floats
from colonnade.models.machine_code import readable
from colonnade.state import Remembering, Remembers, State, array, custom

if TYPE_CHECKING:
    from scipy.sparse import csr_array

RowNumbers = npt.NDArray[np.uint32]
IN_ORDER: RowNumbers = readable((), np.uint32)
ROWS_AT_ONCE = 4096
MOST_TICKS = 1024
"""Steps with L1 after which all lazy columns are settled: one in a thousand touches every column."""


class Chosen(NamedTuple):
    """Which rows: the listed ones, or, with an empty list, `number` rows in their order from `first` on."""

    rows: RowNumbers
    first: int
    number: int


class Columns(Remembers, Protocol):
    """Data with w and ḡ over their columns. Matrices are (d, c) at this border, whatever the layout inside."""

    width: int

    def products(self, chosen: Chosen, test: bool = False) -> Floats: ...
    def times(self, chosen: Chosen, matrix: Floats, constant: Floats, out: Floats | None = None) -> Floats: ...
    def sums(self, chosen: Chosen, coefficients: Floats) -> Floats: ...
    def gram(self, weights: Floats, every: int, gram: Floats) -> None:
        """Adds Σ weight_i (x_i, 1)(x_i, 1)ᵀ over every k-th row to zeros."""
        ...

    def squares(self, weights: Floats) -> Floats: ...
    def squared_norms(self, factors: Floats | None = None) -> Floats: ...
    def entries(self) -> npt.NDArray[np.int64] | None:
        """How many rows have an entry in each column, where others are left out; None: every row has all."""
        ...

    def weights(self) -> Floats: ...
    def mean(self) -> Floats: ...
    def set_weights(self, weights: Floats) -> None: ...
    def set_mean(self, mean: Floats) -> None: ...
    def move(self, direction: Floats, step: float) -> None: ...
    def steps(self, arguments: tuple[Any, ...], rule: int) -> float: ...


class DenseColumns(Remembering):
    """Weights as they are, (c, d).

    Of few columns and one output there is a copy of the training rows with the columns one after the other, as soon as
    all rows are asked for.
    """

    MEMORY = (array("_w", "weights", in_place=True), array("_mean", "mean_gradient", in_place=True))
    DERIVED = ("_turned", "_part", "_held")

    def __init__(self, train: npt.NDArray[Any], test: npt.NDArray[Any], outputs: int, l1: float) -> None:
        self._train, self._test = readable(train, np.float32), readable(test, np.float32)
        self.width = self._train.shape[1]
        self._l1 = l1
        _check_same_width(self.width, self._test.shape[1])
        self._w, self._mean = np.zeros((outputs, self.width)), np.zeros((outputs, self.width))
        self._turned: npt.NDArray[Any] | None = None
        self._part, self._held = slice(0, 0), np.zeros((0, self.width + 1))

    def products(self, chosen: Chosen, test: bool = False) -> Floats:
        products = np.empty((chosen.number, len(self._w)))
        kernels.dense_times(self._test if test else self._train, chosen.rows, chosen.first, self._w, products)
        return products

    def times(self, chosen: Chosen, matrix: Floats, constant: Floats, out: Floats | None = None) -> Floats:
        products = np.empty((chosen.number, matrix.shape[1])) if out is None else out
        weights = np.array(matrix.T, np.float64, order="C")
        if self._by_column(chosen, len(weights)):
            narrow_rows.times_by_column(self._columns(), weights[0], float(constant[0]), products[:, 0])
        else:
            kernels.dense_times(self._train, chosen.rows, chosen.first, weights, products)
            products += constant
        return products

    def sums(self, chosen: Chosen, coefficients: Floats) -> Floats:
        sums = np.zeros((coefficients.shape[1], self.width))
        if self._by_column(chosen, len(sums)):
            narrow_rows.sums_by_column(self._columns(), coefficients[:, 0], sums[0])
        else:
            kernels.dense_sums(self._train, chosen.rows, chosen.first, coefficients, sums)
        return np.ascontiguousarray(sums.T)

    def _by_column(self, chosen: Chosen, outputs: int) -> bool:
        """Whether all rows are asked for, in their order, and it pays to go through them column by column."""
        return (
            outputs == 1
            and 0 < self.width <= narrow_rows.NARROW
            and not chosen.rows.size
            and chosen.number == len(self._train)
        )

    def _columns(self) -> npt.NDArray[Any]:
        if self._turned is None:
            self._turned = readable(self._train.T, np.float32)
        return self._turned

    def gram(self, weights: Floats, every: int, gram: Floats) -> None:
        for first in range(0, len(self._train), ROWS_AT_ONCE * every):
            part = slice(first, first + ROWS_AT_ONCE * every, every)
            held = self._with_constant(part)
            gram += (held * weights[part, None]).T @ held

    def _with_constant(self, part: slice) -> Floats:
        """(x_i, 1) of these rows. Some few of few columns are kept: they are asked for again and again."""
        if self._part == part:
            return self._held
        chosen = self._train[part]
        held = np.empty((len(chosen), self.width + 1))
        held[:, :-1], held[:, -1] = chosen, 1.0
        if self.width <= narrow_rows.NARROW and part.step > 1:
            self._part, self._held = part, held
        return held

    def squares(self, weights: Floats) -> Floats:
        found: Floats = np.einsum("i,ij,ij->j", weights, self._train, self._train, dtype=np.float64)
        return found

    def squared_norms(self, factors: Floats | None = None) -> Floats:
        norms: Floats
        if factors is None:
            norms = np.einsum("ij,ij->i", self._train, self._train, dtype=np.float64)
        else:
            norms = np.einsum("ij,ij,j->i", self._train, self._train, factors, dtype=np.float64)
        return norms

    def entries(self) -> npt.NDArray[np.int64] | None:
        return None

    def weights(self) -> Floats:
        return np.array(self._w.T, order="C")

    def mean(self) -> Floats:
        return np.array(self._mean.T, order="C")

    def set_weights(self, weights: Floats) -> None:
        self._w[...] = weights.T

    def set_mean(self, mean: Floats) -> None:
        self._mean[...] = mean.T

    def move(self, direction: Floats, step: float) -> None:
        self._w -= step * direction.T

    def steps(self, arguments: tuple[Any, ...], rule: int) -> float:
        return kernels.dense_window(self._train, self._w, self._mean, self._l1, *arguments)


class SparseColumns(Remembering):
    """Lazy columns (see linear_rows.py) over sparse rows."""

    def _save_prox(self, state: State) -> None:
        if self._prox.size:
            state.put("clocks_of_steps", self._prox)

    def _load_prox(self, state: State) -> None:
        if self._prox.size:
            self._prox[:] = state.take("clocks_of_steps")

    # u, ḡ and what is paid are views of one array.
    MEMORY = (
        array("_lazy", "lazy_columns", in_place=True),
        array("_running", "scale_and_clock", in_place=True),
        custom("_prox", save=_save_prox, load=_load_prox),
    )

    def __init__(self, train: csr_array, test: csr_array, outputs: int, l1: float) -> None:
        self._train, self._test = _sparse_data(train), _sparse_data(test)
        self.width = int(train.shape[1])
        _check_same_width(self.width, int(test.shape[1]))
        self._outputs = outputs
        self._running = np.array([1.0, 0.0])
        self._prox = np.zeros(CLOCKS + MOST_TICKS + 1 if l1 else 0)
        if l1:
            self._prox[PENALTY] = l1
        if outputs == 1:
            self._lazy = np.zeros(STRIDE * self.width)
            self._u, self._mean, self._paid, _ = np.split(self._lazy.reshape(self.width, STRIDE), STRIDE, 1)
        else:
            self._lazy = np.zeros((self.width, 1 + 2 * outputs))
            self._paid, self._u, self._mean = np.split(self._lazy, [1, 1 + outputs], 1)

    def products(self, chosen: Chosen, test: bool = False) -> Floats:
        products = np.empty((chosen.number, self._outputs))
        data = self._test if test else self._train
        kernels.lazy_times(data, chosen.rows, chosen.first, self._lazy, self._running, self._prox, products)
        return products

    def times(self, chosen: Chosen, matrix: Floats, constant: Floats, out: Floats | None = None) -> Floats:
        products = np.empty((chosen.number, matrix.shape[1])) if out is None else out
        weights = np.array(matrix[:, 0] if matrix.shape[1] == 1 else matrix, np.float64, order="C")
        kernels.sparse_times(self._train, chosen.rows, chosen.first, weights, products)
        products += constant
        return products

    def sums(self, chosen: Chosen, coefficients: Floats) -> Floats:
        sums = np.zeros((self.width, coefficients.shape[1]))
        target = sums[:, 0] if coefficients.shape[1] == 1 else sums
        kernels.sparse_sums(self._train, chosen.rows, chosen.first, coefficients, target)
        return sums

    def gram(self, weights: Floats, every: int, gram: Floats) -> None:
        kernels.sparse_gram(self._train, every, weights, gram)  # its lower half
        gram += np.tril(gram, -1).T

    def squares(self, weights: Floats) -> Floats:
        starts, columns, values = self._train
        by_entry = np.repeat(weights, starts[1:].astype(np.int64) - starts[:-1].astype(np.int64))
        found: Floats = np.bincount(
            columns.astype(np.int64), by_entry * np.square(values, dtype=np.float64), self.width
        ).astype(np.float64)
        return found

    def squared_norms(self, factors: Floats | None = None) -> Floats:
        norms = np.empty(len(self._train[0]) - 1)
        if factors is not None:
            starts, columns, values = self._train
            of_row = np.repeat(np.arange(len(norms)), starts[1:].astype(np.int64) - starts[:-1].astype(np.int64))
            squares = factors[columns] * np.square(values, dtype=np.float64)
            return np.bincount(of_row, squares, len(norms)).astype(np.float64)
        kernels.sparse_squared_norms(self._train, norms)
        return norms

    def entries(self) -> npt.NDArray[np.int64] | None:
        return np.bincount(self._train[1].astype(np.int64), minlength=self.width)

    def weights(self) -> Floats:
        if self._prox.size and self._running[CLOCK] != 0.0:
            kept = [self._lazy.copy(), self._running.copy(), self._prox.copy()]
            self._settle()
            weights = self._u.copy(order="C")
            self._lazy[...], self._running[...], self._prox[...] = kept
            return weights
        return np.ascontiguousarray(
            self._running[SCALE] * (self._u - self._mean * (self._running[CLOCK] - self._paid)), np.float64
        )

    def mean(self) -> Floats:
        return self._mean.copy(order="C")

    def set_weights(self, weights: Floats) -> None:
        self._running[:] = 1.0, 0.0
        self._prox[TICKS : TICKS + 1] = 0.0
        self._paid[...] = 0.0
        self._u[...] = weights

    def set_mean(self, mean: Floats) -> None:
        self._settle()
        self._mean[...] = mean

    def move(self, direction: Floats, step: float) -> None:
        if self._prox.size:
            self._settle()
        self._u -= (step / self._running[SCALE]) * direction

    def steps(self, arguments: tuple[Any, ...], rule: int) -> float:
        drifts = float(rule != SGD)
        if self._prox.size and self._prox[DRIFTS] != drifts:
            self._settle()  # debts of earlier steps under another rule
            self._prox[DRIFTS] = drifts
        elif not self._prox.size and rule == SGD and self._running[CLOCK] != 0.0:
            self._settle()
        return kernels.sparse_window(self._train, self._lazy, self._running, self._prox, *arguments)

    def _settle(self) -> None:
        kernels.settle(self._lazy, self._running, self._prox, 1.0)


def columns_of(
    train: torch.Tensor | csr_array, test: torch.Tensor | csr_array, outputs: int, l1: float = 0.0
) -> Columns:
    """Zero weights over these columns, in the storage that they have."""
    if isinstance(train, torch.Tensor):
        return DenseColumns(_flat(train), _flat(test), outputs, l1)
    return SparseColumns(_canonical(train), _canonical(test), outputs, l1)


def _flat(table: torch.Tensor | csr_array) -> npt.NDArray[Any]:
    if not isinstance(table, torch.Tensor):
        raise DataError("A party's training rows are dense and its test rows sparse. Prepare both in the same way.")
    return table.detach().reshape(table.shape[0], math.prod(table.shape[1:])).numpy()


def _canonical(table: torch.Tensor | csr_array) -> csr_array:
    """With each column at most once a row, without which the squares of a row's values are not its norm."""
    if isinstance(table, torch.Tensor):
        raise DataError("A party's training rows are sparse and its test rows dense. Prepare both in the same way.")
    if not table.has_canonical_format:
        table = table.copy()
        table.sum_duplicates()
    return table


def _sparse_data(table: csr_array) -> kernels.SparseData:
    width = int(table.shape[1])
    if len(table.indices) and not 0 <= int(table.indices.min()) <= int(table.indices.max()) < width <= 2**32:
        raise DataError(f"A sparse table of {width} columns has a value outside of them. Build the table anew.")
    indices = table.indices.view(np.uint32) if table.indices.dtype == np.int32 else table.indices
    return readable(table.indptr, np.uint64), readable(indices, np.uint32), readable(table.data, np.float32)


def _check_same_width(train: int, test: int) -> None:
    if train != test:
        raise DataError(
            f"A party's training rows have {train} columns and its test rows {test}. Prepare both from the "
            "same columns."
        )
