"""The compiled arithmetic of linear models over dense and sparse rows: products, sums, residuals and windows of steps.

Data are float32 and never written to; everything that is computed is float64. A vector of weights is laid out as its
storage reads it fastest: (c, d) beside dense rows, (d,) for one output and (d, c) for more beside sparse rows. All
kernels that call one another are in this file, because Numba's cache on disk only notices a change in the file of the
kernel that is called, not in the files of those that it calls.
"""

import math

import numpy as np
import numpy.typing as npt

from colonnade.models.machine_code import compiled, compiled_in_order, prefetch

Floats = npt.NDArray[np.float64]
Data = npt.NDArray[np.float32]
# Unsigned: Numba then leaves out the test for a negative index, which would double the time of a sparse product.
Indices = npt.NDArray[np.uint32]
Starts = npt.NDArray[np.uint64]
SparseData = tuple[Starts, Indices, Data]  # row i has its columns and values at starts[i]:starts[i + 1]

# What is a number at run time is not compiled anew for each value, which would cost seconds and gain nothing.
BINARY, REGRESSION, MULTICLASS, RESIDUALS_GIVEN = 0, 1, 2, 3  # losses: logistic, square, softmax, none
SMOOTHED_HINGE, SIGMOID, HUBER, ROBUST = 4, 5, 6, 7  # and those of one output that are asked for by name
SGD, SVRG, SAGA = 0, 1, 2  # rules

SCALE, CLOCK = 0, 1  # the two running numbers of lazy columns
STRIDE = 4  # numbers a lazy column with one output: u, ḡ, paid and one unused, so that none straddles a cache line
SMALLEST_SCALE = 1e-6
PENALTY, DRIFTS, TICKS, CLOCKS = 0, 1, 2, 3  # of lazy columns with L1: l1, whether ḡ counts, k, and C_0 … C_k
SOON, LATER = 16, 32  # rows ahead: whose entries, and whose ends, memory is asked for


# Losses. The residual of a row is ϑ = ∂loss/∂θ, a number for each of its c outputs. None is formed as 1 − p, which
# would lose all its digits where p rounds to 1.


@compiled
def named_residual(loss: int, scale: float, output: float, target: float) -> tuple[float, float]:
    """ϑ and the loss of a row, of the losses that are asked for by name (linear_loss.py has their equations)."""
    if loss == HUBER:
        error = output - target
        if abs(error) <= scale:
            return 2.0 * error, error * error
        return math.copysign(2.0 * scale, error), scale * (2.0 * abs(error) - scale)
    if loss == ROBUST:
        t = (output - target) / scale
        if abs(t) > 1e8:  # where the 1 is lost beside t²/2, which might overflow
            return 2.0 * scale / t, scale * scale * (2.0 * math.log(abs(t)) - math.log(2.0))
        return scale * t / (1.0 + t * t / 2.0), scale * scale * math.log1p(t * t / 2.0)
    sign = 1.0 if target > 0.5 else -1.0
    z = sign * output
    if loss == SMOOTHED_HINGE:
        short = min(max(1.0 - z, 0.0), 1.0)
        return -sign * short, short * short / 2.0 + max(-z, 0.0)
    small = math.exp(-abs(z))
    share = small / (1.0 + small)
    return -sign * share / (1.0 + small), share if z >= 0.0 else 1.0 / (1.0 + small)


@compiled
def fill_residual(loss: int, scale: float, outputs: Floats, row: int, target: float, residuals: Floats) -> float:
    """Writes ϑ of one row and returns the row's loss. Both matrices are indexed by the same row."""
    if loss == BINARY:
        # With z = θ for y = 0 and −θ for y = 1: loss = log(1 + eᶻ) and ϑ = ±σ(z); exp never overflows.
        z = float(outputs[row, 0] if target <= 0.5 else -outputs[row, 0])
        small = math.exp(-abs(z))
        sigmoid = 1.0 / (1.0 + small) if z >= 0.0 else small / (1.0 + small)
        residuals[row, 0] = sigmoid if target <= 0.5 else -sigmoid
        return max(z, 0.0) + math.log1p(small)
    if loss == REGRESSION:
        error = float(outputs[row, 0] - target)
        residuals[row, 0] = 2.0 * error
        return error * error
    if loss != MULTICLASS:
        residuals[row, 0], value = named_residual(loss, scale, outputs[row, 0], target)
        return value
    label = int(target)
    largest = outputs[row, 0]
    for k in range(1, outputs.shape[1]):
        largest = max(largest, outputs[row, k])
    others = 0.0
    for k in range(outputs.shape[1]):
        residuals[row, k] = math.exp(outputs[row, k] - largest)
        if k != label:
            others += residuals[row, k]
    total = residuals[row, label] + others
    for k in range(outputs.shape[1]):
        residuals[row, k] /= total
    residuals[row, label] = -others / total  # p_y − 1 without the cancellation
    gap = float(largest - outputs[row, label])
    return math.log1p(others) if gap == 0.0 else gap + math.log(total)


@compiled
def fill_residuals(loss: int, scale: float, outputs: Floats, targets: Floats, residuals: Floats) -> float:
    """The same for all rows; returns the sum of their losses."""
    total = 0.0
    for row in range(outputs.shape[0]):
        total += fill_residual(loss, scale, outputs, row, targets[row], residuals)
    return total


# Dense rows. With an empty list of rows, all kernels take the rows in their order from `first` on.


@compiled
def dense_times(values: Data, rows: Indices, first: int, weights: Floats, products: Floats) -> None:
    """products_i = x_iᵀ w."""
    for p in range(products.shape[0]):
        i = np.uint64(rows[p]) if rows.size else np.uint64(first + p)
        for k in range(products.shape[1]):
            total = 0.0
            for j in range(values.shape[1]):
                total += values[i, j] * weights[k, j]
            products[p, k] = total


@compiled
def dense_sums(values: Data, rows: Indices, first: int, coefficients: Floats, sums: Floats) -> None:
    """sums += Σ_i coefficient_i x_i, four rows at a time: a sum is then loaded and stored a quarter as often."""
    count, outputs = coefficients.shape
    p = 0
    while p + 4 <= count:
        i = np.uint64(rows[p]) if rows.size else np.uint64(first + p)
        i1 = np.uint64(rows[p + 1]) if rows.size else np.uint64(first + p + 1)
        i2 = np.uint64(rows[p + 2]) if rows.size else np.uint64(first + p + 2)
        i3 = np.uint64(rows[p + 3]) if rows.size else np.uint64(first + p + 3)
        for k in range(outputs):
            a, a1 = coefficients[p, k], coefficients[p + 1, k]
            a2, a3 = coefficients[p + 2, k], coefficients[p + 3, k]
            for j in range(values.shape[1]):
                sums[k, j] += a * values[i, j] + a1 * values[i1, j] + a2 * values[i2, j] + a3 * values[i3, j]
        p += 4
    while p < count:
        i = np.uint64(rows[p]) if rows.size else np.uint64(first + p)
        for k in range(outputs):
            for j in range(values.shape[1]):
                sums[k, j] += coefficients[p, k] * values[i, j]
        p += 1


@compiled
def sparse_gram(data: SparseData, every: int, weights: Floats, gram: Floats) -> None:
    """gram += Σ_i weight_i x_i x_iᵀ over every k-th row, k = every: the lower half, last the line of the constant 1."""
    starts, columns, values = data
    constant = gram.shape[0] - 1
    for i in range(0, weights.shape[0], every):
        for e in range(starts[i], starts[i + 1]):
            left = weights[i] * values[e]
            a = columns[e]
            for f in range(starts[i], starts[i + 1]):
                b = columns[f]
                if b <= a:
                    gram[a, b] += left * values[f]
            gram[constant, a] += left
        gram[constant, constant] += weights[i]


# Sparse rows. Numba drops the branch of `ndim` that a kernel is not compiled for.


@compiled
def sparse_times(data: SparseData, rows: Indices, first: int, weights: Floats, products: Floats) -> None:
    starts, columns, values = data
    for p in range(products.shape[0]):
        i = np.uint64(rows[p]) if rows.size else np.uint64(first + p)
        if weights.ndim == 1:
            total = 0.0
            for e in range(starts[i], starts[i + np.uint64(1)]):
                total += values[e] * weights[columns[e]]
            products[p, 0] = total
        else:
            products[p, :] = 0.0
            for e in range(starts[i], starts[i + np.uint64(1)]):
                j, x = columns[e], np.float64(values[e])
                for k in range(products.shape[1]):
                    products[p, k] += x * weights[j, k]


@compiled
def sparse_sums(data: SparseData, rows: Indices, first: int, coefficients: Floats, sums: Floats) -> None:
    starts, columns, values = data
    for p in range(coefficients.shape[0]):
        i = np.uint64(rows[p]) if rows.size else np.uint64(first + p)
        if sums.ndim == 1:
            coefficient = coefficients[p, 0]
            for e in range(starts[i], starts[i + np.uint64(1)]):
                sums[columns[e]] += coefficient * values[e]
        else:
            for e in range(starts[i], starts[i + np.uint64(1)]):
                j, x = columns[e], np.float64(values[e])
                for k in range(coefficients.shape[1]):
                    sums[j, k] += coefficients[p, k] * x


@compiled
def sparse_squared_norms(data: SparseData, norms: Floats) -> None:
    starts, _, values = data
    for i in range(norms.size):
        total = 0.0
        for e in range(starts[i], starts[i + 1]):
            total += np.float64(values[e]) * values[e]
        norms[i] = total


# Lazy columns. A step takes every weight from w to (1 − ηλ)w − ηḡ, but only those of its rows further. So weights
# are kept as w = s·u: the decay is s ← s(1 − ηλ), and ḡ's part is owed: with a clock C ← C + η/s, column j owes
# ḡ_j (C − paid_j) to u_j. A column pays before its ḡ_j changes, and when a step reads it. Its numbers lie side by
# side, so that a column costs one access to memory: with one output u, ḡ, paid at STRIDE·j of a flat array, with c
# outputs a row of paid, u_1 … u_c, ḡ_1 … ḡ_c.
#
# With L1 a step ends with the soft threshold η·l1, in units of u tick·l1, and a column owes that too. The clocks of the
# steps since all columns were settled are kept (`prox`; without L1 it is empty), so that what is owed is exact.


@compiled
def soft(value: float, threshold: float) -> float:
    """argmin_z (z − value)²/2 + threshold·|z|: towards 0, and not across it."""
    return value - min(max(value, -threshold), threshold)


@compiled
def after_steps(u: float, mean: float, paid: float, clock: float, prox: Floats) -> float:
    """u after every step u ← soft(u − tick·ḡ, tick·l1) between the two clocks.

    It moves evenly until it comes to 0. There it stays if |ḡ| ≤ l1; else the step in which it comes is looked up.
    """
    sign, l1 = -1.0 if u < 0.0 else 1.0, float(prox[PENALTY])
    size, drift = sign * u, sign * mean * float(prox[DRIFTS])
    left = size - (drift + l1) * (clock - paid)
    if left > 0.0 or drift + l1 <= 0.0:
        return sign * left
    if drift <= l1:
        return 0.0
    below, at = 0, int(prox[TICKS])  # the first clock after `paid` at which nothing is left is between them
    while at - below > 1:
        middle = (below + at) // 2
        if prox[CLOCKS + middle] > paid and (drift + l1) * (prox[CLOCKS + middle] - paid) >= size:
            at = middle
        else:
            below = middle
    before, after = max(float(prox[CLOCKS + at - 1]), paid), float(prox[CLOCKS + at])
    across = soft(size - (drift + l1) * (before - paid) - drift * (after - before), l1 * (after - before))
    return sign * (across - (drift - l1) * (clock - after))


@compiled
def read_ahead(data: SparseData, rows: Indices, p: int) -> None:
    """Ask memory for what rows after the p-th need. Drawn at random, they are seldom in a cache."""
    starts, columns, values = data
    last = rows.size - 1
    prefetch(starts, np.uint64(rows[min(p + LATER, last)]))
    soon = np.uint64(rows[min(p + SOON, last)])
    first, end = starts[soon], starts[soon + np.uint64(1)]
    prefetch(columns, first)
    prefetch(columns, end)
    prefetch(values, first)
    prefetch(values, end)


@compiled_in_order
def lazy_times(
    data: SparseData, rows: Indices, first: int, lazy: Floats, running: Floats, prox: Floats, products: Floats
) -> None:
    """products_i = x_iᵀ w. Pays nothing, so that a look at the weights leaves no trace in later bits."""
    starts, columns, values = data
    scale, clock = running[SCALE], running[CLOCK]
    outputs = products.shape[1]
    for p in range(products.shape[0]):
        if rows.size:
            read_ahead(data, rows, p)
        i = np.uint64(rows[p]) if rows.size else np.uint64(first + p)
        if lazy.ndim == 1:
            total = 0.0
            for e in range(starts[i], starts[i + np.uint64(1)]):
                j = np.uint64(columns[e]) * np.uint64(STRIDE)
                u, mean, paid = lazy[j], lazy[j + np.uint64(1)], lazy[j + np.uint64(2)]
                u = after_steps(u, mean, paid, clock, prox) if prox.size else u - mean * (clock - paid)
                total += values[e] * u
            products[p, 0] = scale * total
        else:
            products[p, :] = 0.0
            for e in range(starts[i], starts[i + np.uint64(1)]):
                j, x = columns[e], np.float64(values[e])
                paid = lazy[j, 0]
                for k in range(outputs):
                    u, mean = lazy[j, 1 + k], lazy[j, 1 + outputs + k]
                    u = after_steps(u, mean, paid, clock, prox) if prox.size else u - mean * (clock - paid)
                    products[p, k] += x * u
            for k in range(outputs):
                products[p, k] *= scale


@compiled_in_order
def paid_times(data: SparseData, rows: Indices, lazy: Floats, running: Floats, prox: Floats, products: Floats) -> None:
    """The same, and every column of these rows pays."""
    starts, columns, values = data
    scale, clock = running[SCALE], running[CLOCK]
    outputs = products.shape[1]
    for p in range(rows.size):
        read_ahead(data, rows, p)
        i = np.uint64(rows[p])
        if lazy.ndim == 1:
            total = 0.0
            for e in range(starts[i], starts[i + np.uint64(1)]):
                j = np.uint64(columns[e]) * np.uint64(STRIDE)
                u, mean, paid = lazy[j], lazy[j + np.uint64(1)], lazy[j + np.uint64(2)]
                u = after_steps(u, mean, paid, clock, prox) if prox.size else u - mean * (clock - paid)
                lazy[j] = u
                lazy[j + np.uint64(2)] = clock
                total += values[e] * u
            products[p, 0] = scale * total
        else:
            products[p, :] = 0.0
            for e in range(starts[i], starts[i + np.uint64(1)]):
                j, x = columns[e], np.float64(values[e])
                paid = lazy[j, 0]
                lazy[j, 0] = clock
                for k in range(outputs):
                    u, mean = lazy[j, 1 + k], lazy[j, 1 + outputs + k]
                    u = after_steps(u, mean, paid, clock, prox) if prox.size else u - mean * (clock - paid)
                    lazy[j, 1 + k] = u
                    products[p, k] += x * u
            for k in range(outputs):
                products[p, k] *= scale


@compiled_in_order
def lazy_add(
    data: SparseData,
    rows: Indices,
    first: int,
    count: int,
    coefficients: Floats,
    factors: tuple[float, float],
    clock: float,
    lazy: Floats,
) -> None:
    """u += weight_factor · Σ_i coefficient_i x_i, and ḡ with its own factor; one output pays first, up to `clock`.

    Of `count` rows from the `first` on; those after them will be stepped on next.
    """
    starts, columns, values = data
    outputs = coefficients.shape[1]
    weight_factor, mean_factor = factors
    for p in range(count):
        read_ahead(data, rows, first + p)
        i = np.uint64(rows[first + p])
        if lazy.ndim == 1:
            weight, mean = weight_factor * coefficients[p, 0], mean_factor * coefficients[p, 0]
            for e in range(starts[i], starts[i + np.uint64(1)]):
                j, x = np.uint64(columns[e]) * np.uint64(STRIDE), np.float64(values[e])
                # Everything is read before anything is written: else a write might be of what is read next.
                u, known = lazy[j], lazy[j + np.uint64(1)]
                if mean_factor != 0.0:
                    u -= known * (clock - lazy[j + np.uint64(2)])
                    lazy[j + np.uint64(1)] = known + mean * x
                    lazy[j + np.uint64(2)] = clock
                lazy[j] = u + weight * x
        else:
            for e in range(starts[i], starts[i + np.uint64(1)]):
                j, x = columns[e], np.float64(values[e])
                for k in range(outputs):
                    lazy[j, 1 + k] += weight_factor * coefficients[p, k] * x
                    if mean_factor != 0.0:
                        lazy[j, 1 + outputs + k] += mean_factor * coefficients[p, k] * x


@compiled
def prox_add(
    data: SparseData, rows: Indices, coefficients: Floats, tick: float, mean_factor: float, lazy: Floats, prox: Floats
) -> None:
    """u ← soft(u − tick·(Σ_i coefficient_i x_i/m + ḡ), tick·l1) of these rows' columns, which have paid; then ḡ.

    Every column once, however many of its rows there are: in between it is marked as having paid −1.
    """
    starts, columns, values = data
    flat, outputs = lazy.reshape(-1), coefficients.shape[1]
    stride, paid, u, mean = (STRIDE, 2, 0, 1) if lazy.ndim == 1 else (1 + 2 * outputs, 0, 1, 1 + outputs)
    clock = prox[CLOCKS + int(prox[TICKS])]
    for p in range(rows.size):
        for e in range(starts[rows[p]], starts[np.uint64(rows[p]) + np.uint64(1)]):
            j, x = int(columns[e]) * stride, np.float64(values[e])
            drift = prox[DRIFTS] if flat[j + paid] >= 0.0 else 0.0
            for k in range(outputs):
                flat[j + u + k] -= tick * (drift * flat[j + mean + k] + coefficients[p, k] * x / rows.size)
            flat[j + paid] = -1.0
    for p in range(rows.size):
        for e in range(starts[rows[p]], starts[np.uint64(rows[p]) + np.uint64(1)]):
            j, x = int(columns[e]) * stride, np.float64(values[e])
            for k in range(outputs):
                if flat[j + paid] < 0.0:
                    flat[j + u + k] = soft(flat[j + u + k], tick * prox[PENALTY])
                flat[j + mean + k] += mean_factor * coefficients[p, k] * x
            flat[j + paid] = clock


@compiled
def settle(lazy: Floats, running: Floats, prox: Floats, decay: float) -> None:
    """w ← decay·w with every column paid, s = 1 and C = 0."""
    scale, clock = running[SCALE] * decay, running[CLOCK]
    if lazy.ndim == 1:
        for j in range(0, lazy.size, STRIDE):
            u, mean, paid = lazy[j], lazy[j + 1], lazy[j + 2]
            lazy[j] = scale * (after_steps(u, mean, paid, clock, prox) if prox.size else u - mean * (clock - paid))
            lazy[j + 2] = 0.0
    else:
        outputs = lazy.shape[1] // 2
        for j in range(lazy.shape[0]):
            for k in range(outputs):
                u, mean, paid = lazy[j, 1 + k], lazy[j, 1 + outputs + k], lazy[j, 0]
                u = after_steps(u, mean, paid, clock, prox) if prox.size else u - mean * (clock - paid)
                lazy[j, 1 + k] = scale * u
            lazy[j, 0] = 0.0
    running[SCALE], running[CLOCK] = 1.0, 0.0
    prox[TICKS : TICKS + 1] = 0.0  # if there is one


# Windows of steps: v = (1/B) Σ_i ϑ_i x_i + λw for SGD; with the differences ϑ_i − table_i and + ḡ for SVRG (whose
# table is the snapshot) and SAGA. The intercept takes the same steps on a constant 1, without λ and l1.


@compiled
def fill_differences(
    rule: int,
    loss: int,
    scale: float,
    theta: Floats,
    rows: Indices,
    values: Floats,
    targets: Floats,
    table: Floats,
    differences: Floats,
) -> float:
    """ϑ_i, less the table's unless the rule is SGD; SAGA's table takes ϑ_i. Returns the sum of the losses."""
    total = 0.0
    for p in range(rows.size):
        if loss == RESIDUALS_GIVEN:
            for k in range(values.shape[1]):
                differences[p, k] = values[p, k]
        else:
            total += fill_residual(loss, scale, theta, p, targets[p], differences)
        if rule != SGD:
            for k in range(values.shape[1]):
                residual = differences[p, k]
                differences[p, k] = residual - table[rows[p], k]
                if rule == SAGA:
                    table[rows[p], k] = residual
    return total


@compiled
def step_intercept(
    rule: int, differences: Floats, count: int, total_rows: int, eta: float, b: Floats, mean_b: Floats
) -> None:
    for k in range(differences.shape[1]):
        total = 0.0
        for p in range(count):
            total += differences[p, k]
        b[k] -= eta * (total / count)
        if rule != SGD:
            b[k] -= eta * mean_b[k]
        if rule == SAGA:
            mean_b[k] += total / total_rows


@compiled
def dense_window(
    data: Data,
    w: Floats,
    mean: Floats,
    l1: float,
    has_intercept: bool,
    b: Floats,
    mean_b: Floats,
    rows: Indices,
    batch_size: int,
    values: Floats,
    targets: Floats,
    loss: int,
    loss_scale: float,
    rule: int,
    step_sizes: Floats,
    l2: float,
    table: Floats,
) -> float:
    outputs, columns = w.shape
    total_rows = data.shape[0]
    theta, differences = np.empty((batch_size, outputs)), np.empty((batch_size, outputs))
    sums = np.empty((outputs, columns))
    total_loss = 0.0
    for number in range((rows.size + batch_size - 1) // batch_size):
        first = number * batch_size
        batch = rows[first : first + batch_size]
        count = batch.size
        eta = step_sizes[min(number, step_sizes.size - 1)]
        if loss != RESIDUALS_GIVEN:
            dense_times(data, batch, 0, w, theta[:count])
            for p in range(count):
                for k in range(outputs):
                    theta[p, k] += values[first + p, k] + b[k]
        total_loss += fill_differences(
            rule, loss, loss_scale, theta, batch, values[first:], targets[first:], table, differences
        )
        sums[:, :] = 0.0
        dense_sums(data, batch, 0, differences[:count], sums)
        decay, share = 1.0 - eta * l2, eta / count
        for k in range(outputs):
            for j in range(columns):
                w[k, j] = decay * w[k, j] - share * sums[k, j]
            if rule != SGD:
                for j in range(columns):
                    w[k, j] -= eta * mean[k, j]
            if rule == SAGA:
                for j in range(columns):
                    mean[k, j] += sums[k, j] / total_rows
            if l1 > 0.0:
                for j in range(columns):
                    w[k, j] = soft(w[k, j], eta * l1)
        if has_intercept:
            step_intercept(rule, differences, count, total_rows, eta, b, mean_b)
    return total_loss / rows.size if loss != RESIDUALS_GIVEN else math.nan


@compiled
def sparse_window(
    data: SparseData,
    lazy: Floats,
    running: Floats,
    prox: Floats,
    has_intercept: bool,
    b: Floats,
    mean_b: Floats,
    rows: Indices,
    batch_size: int,
    values: Floats,
    targets: Floats,
    loss: int,
    loss_scale: float,
    rule: int,
    step_sizes: Floats,
    l2: float,
    table: Floats,
) -> float:
    outputs, total_rows, given = values.shape[1], data[0].size - 1, loss == RESIDUALS_GIVEN
    theta, differences = np.empty((batch_size, outputs)), np.empty((batch_size, outputs))
    total_loss = 0.0
    for number in range((rows.size + batch_size - 1) // batch_size):
        first = number * batch_size
        batch = rows[first : first + batch_size]
        count, eta = batch.size, step_sizes[min(number, step_sizes.size - 1)]
        # Where ḡ stays, debts may wait until someone reads the column: they only grow by C. Not with L1. Where nobody
        # reads θ, one output pays when it is stepped.
        if prox.size or (rule == SAGA and not (given and outputs == 1)) or (rule == SVRG and not given):
            paid_times(data, batch, lazy, running, prox, theta)
        elif not given:
            lazy_times(data, batch, 0, lazy, running, prox, theta[:count])
        if not given:
            for p in range(count):
                for k in range(outputs):
                    theta[p, k] += values[first + p, k] + b[k]
        total_loss += fill_differences(
            rule, loss, loss_scale, theta, batch, values[first:], targets[first:], table, differences
        )
        decay = 1.0 - eta * l2
        full = prox.size > 0 and CLOCKS + int(prox[TICKS]) + 1 >= prox.size
        if running[SCALE] * decay >= SMALLEST_SCALE and not full:
            running[SCALE] *= decay
        else:  # s would be so small that sums of η/s lose digits, or 0, or negative
            settle(lazy, running, prox, decay)
        tick, clock = eta / running[SCALE], running[CLOCK]
        weight_factor, mean_factor = -tick / count, 1.0 / total_rows if rule == SAGA else 0.0
        if rule != SGD or prox.size:
            running[CLOCK] += tick
        if prox.size:
            prox[TICKS] += 1.0
            prox[CLOCKS + int(prox[TICKS])] = running[CLOCK]
            prox_add(data, batch, differences, tick, mean_factor, lazy, prox)
        else:  # the step owes SAGA's old ḡ, but its columns will pay with the new one: they get the excess back
            factors = (weight_factor + tick * mean_factor, mean_factor)
            lazy_add(data, rows, first, count, differences, factors, clock, lazy)
        if has_intercept:
            step_intercept(rule, differences, count, total_rows, eta, b, mean_b)
    return total_loss / rows.size if loss != RESIDUALS_GIVEN else math.nan
