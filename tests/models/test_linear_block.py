"""A linear block against a plain twin with dense weights in NumPy, on the same rows in the same order."""

import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from colonnade.errors import DataError, SettingsError
from colonnade.models import linear_rows
from colonnade.models.linear import LinearBlock
from colonnade.models.linear_loss import LinearLoss
from colonnade.models.linear_window import Window
from colonnade.models.machine_code import machine_code

Floats = npt.NDArray[np.float64]
ROWS, COLUMNS = 23, 17
RULES = ["sgd", "svrg", "saga"]


def loss_for(outputs: int) -> LinearLoss:
    return LinearLoss("binary") if outputs == 1 else LinearLoss("multiclass", outputs)


def table(seed: int, rows: int = ROWS, columns: int = COLUMNS) -> npt.NDArray[np.float32]:
    """Random rows, three quarters zeros; the first row is all zeros, and the last column is empty."""
    random = np.random.default_rng(seed)
    values = random.standard_normal((rows, columns)) * (random.random((rows, columns)) < 0.25)
    values[0] = 0
    values[:, -1] = 0
    return values.astype(np.float32)


def block_of(
    values: npt.NDArray[np.float32], storage: str, outputs: int = 1, l2: float = 0.1, intercept: bool = True
) -> LinearBlock:
    tables: list[Any] = [values, values[:5]]
    tables = [sparse.csr_array(part) if storage == "sparse" else torch.from_numpy(part) for part in tables]
    return LinearBlock(tables[0], tables[1], outputs, l2, intercept)


class Twin:
    """The equations as they are written, with nothing lazy."""

    def __init__(self, block: LinearBlock, values: npt.NDArray[np.float32]) -> None:
        self.x = values.astype(np.float64)
        self.w, self.b = block.weights(), block.intercept()
        self.mean, self.mean_b = block.mean_gradient()
        self.l2, self.has_intercept = block.l2, block.has_intercept

    def steps(self, rule: str, window: Window, step_sizes: Floats, kept: Floats) -> float:
        losses = []
        for number, first in enumerate(range(0, len(window.rows), window.batch_size)):
            part = slice(first, first + window.batch_size)
            rows, eta = window.rows[part], step_sizes[number]
            x, residuals = self.x[rows], window.values[part]
            if window.loss is not None and window.targets is not None:
                theta = window.values[part] + x @ self.w + self.b
                residuals = window.loss.residuals(theta, window.targets[part])
                losses += [window.loss.mean_loss(theta, window.targets[part])] * len(rows)
            differences = residuals if rule == "sgd" else residuals - kept[rows]
            v = x.T @ differences / len(rows) + self.l2 * self.w
            v_b = differences.mean(0)
            if rule != "sgd":
                v, v_b = v + self.mean, v_b + self.mean_b
            self.w = self.w - eta * v
            if self.has_intercept:
                self.b = self.b - eta * v_b
            if rule == "saga":
                kept[rows] = residuals
                self.mean = self.mean + x.T @ differences / len(self.x)
                if self.has_intercept:
                    self.mean_b = self.mean_b + differences.sum(0) / len(self.x)
        return float(np.mean(losses)) if losses else float("nan")


def draw_window(random: np.random.Generator, outputs: int, batch_size: int, batches: int, labelled: bool) -> Window:
    batch = [random.permutation(ROWS)[:batch_size] for _ in range(batches)]
    rows = np.concatenate(batch)[: batch_size * batches - batch_size // 2].astype(np.uint32)  # the last one is short
    values = random.standard_normal((len(rows), outputs))
    if not labelled:
        return Window(rows, batch_size, 0.3 * values)
    targets = random.integers(0, max(outputs, 2), len(rows)).astype(np.float64)
    return Window(rows, batch_size, values, targets, loss_for(outputs))


def run(block: LinearBlock, rule: str, window: Window, step_sizes: Floats, kept: Floats) -> float:
    if rule == "sgd":
        return block.sgd_steps(window, step_sizes)
    if rule == "svrg":
        return block.svrg_steps(window, float(step_sizes[0]), kept)
    return block.saga_steps(window, float(step_sizes[0]), kept)


def start(block: LinearBlock, random: np.random.Generator) -> Floats:
    """Random weights, and a table with its mean gradient."""
    shape = (block.columns, block.outputs)
    block.set_weights(random.standard_normal(shape), random.standard_normal(block.outputs))
    kept = random.standard_normal((block.rows, block.outputs))
    block.set_mean_gradient(*block.full_gradient(kept))
    return kept


def near(found: Floats, wanted: Floats, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * max(1.0, np.abs(wanted).max(initial=0)))


@pytest.mark.parametrize("labelled", [True, False], ids=["labelled", "residuals"])
@pytest.mark.parametrize("batch_size", [1, 7])
@pytest.mark.parametrize("l2", [0.0, 0.1, 8.0, 15.0], ids=lambda l2: f"l2={l2}")  # 8 and 15 rescale often
@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "bare"])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("rule", RULES)
def test_steps_are_the_twins(
    rule: str, storage: str, outputs: int, intercept: bool, l2: float, batch_size: int, labelled: bool
) -> None:
    random, values = np.random.default_rng(7), table(3)
    block = block_of(values, storage, outputs, l2, intercept)
    kept = start(block, random)
    twin, twin_kept = Twin(block, values), kept.copy()
    for _ in range(4):
        window = draw_window(random, outputs, batch_size, 50, labelled)
        step_sizes = random.uniform(0.02, 0.1, 50) if rule == "sgd" else np.full(50, 0.1)
        found = run(block, rule, window, step_sizes, kept)
        wanted = twin.steps(rule, window, step_sizes, twin_kept)
        assert found == pytest.approx(wanted, rel=1e-10, nan_ok=True)
        assert np.isnan(found) != labelled
    near(block.weights(), twin.w)
    near(block.intercept(), twin.b if intercept else np.zeros(outputs))
    near(block.mean_gradient()[0], twin.mean)
    if intercept:
        near(block.mean_gradient()[1], twin.mean_b)
    near(kept, twin_kept)
    rows = np.arange(ROWS, dtype=np.uint32)
    near(block.products(rows), twin.x @ twin.w + (twin.b if intercept else 0.0))
    assert block.penalty() == pytest.approx(block.l2 / 2 * float((twin.w**2).sum()))


@pytest.mark.parametrize("decay", [1.0, 0.0, -0.5], ids=lambda decay: f"decay={decay}")
def test_any_decay_of_one_step(decay: float) -> None:
    block = block_of(table(3), "sparse", l2=1 - decay, intercept=False)
    block.set_weights(np.full((COLUMNS, 1), 2.0), np.zeros(1))
    block.sgd_steps(Window(np.array([0], np.uint32), 1, np.ones((1, 1))), 1.0)  # the row is all zeros
    assert block.weights().tolist() == [[2.0 * decay]] * COLUMNS


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([*RULES, "mean", "move", "weights"]), max_size=8), st.integers(0, 2**31))
def test_dense_and_sparse_agree_through_any_sequence(calls: list[str], seed: int) -> None:
    values = table(seed)
    blocks, tables = [block_of(values, storage, 1, 2.0) for storage in ("dense", "sparse")], []
    for block in blocks:
        random = np.random.default_rng(seed)
        kept = start(block, random)
        tables.append(kept)
        for call in calls:
            vector, number = random.standard_normal((COLUMNS, 1)), random.standard_normal(1)
            if call == "mean":
                block.set_mean_gradient(vector, number)
            elif call == "move":
                block.move(vector, number, 0.3)
            elif call == "weights":
                block.set_weights(vector, number)
            else:
                run(block, call, draw_window(random, 1, 3, 9, labelled=True), np.full(9, 0.1), kept)
    dense, lazy = blocks
    near(lazy.weights(), dense.weights())
    near(lazy.intercept(), dense.intercept())
    near(lazy.products(np.arange(lazy.rows)), dense.products(np.arange(dense.rows)))
    near(tables[1], tables[0])


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("rule", RULES)
def test_a_restored_block_goes_on_bit_for_bit(rule: str, storage: str, outputs: int) -> None:
    values = table(5)
    random = np.random.default_rng(1)
    first, second = (block_of(values, storage, outputs, 2.0) for _ in range(2))
    kept = start(first, random)
    windows = [draw_window(random, outputs, 7, 30, labelled=True) for _ in range(2)]
    run(first, rule, windows[0], np.full(30, 0.1), kept)
    second.restore(first.state())
    second_kept = kept.copy()
    for block, own in ((first, kept), (second, second_kept)):
        run(block, rule, windows[1], np.full(30, 0.1), own)
    assert first.weights().tobytes() == second.weights().tobytes()
    states = [block.state().tensors for block in (first, second)]
    assert all(states[0][name].numpy().tobytes() == kept.numpy().tobytes() for name, kept in states[1].items())
    assert kept.tobytes() == second_kept.tobytes()


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_reading_leaves_no_trace(storage: str) -> None:
    values, results = table(5), []
    for reads in (False, True):
        random = np.random.default_rng(1)
        block = block_of(values, storage, 1, 2.0)
        kept = start(block, random)
        for _ in range(5):
            block.saga_steps(draw_window(random, 1, 7, 10, labelled=True), 0.1, kept)
            if reads:
                block.products(np.array([3, 4], np.uint32))
                (
                    block.products(np.arange(block.rows)),
                    block.test_products(0, 5),
                    block.weights(),
                    block.penalty(),
                    block.state(),
                )
        results.append(block.weights().tobytes())
    assert results[0] == results[1]


def test_a_state_is_a_copy_of_its_own_block() -> None:
    block = block_of(table(5), "sparse")
    state = block.state()
    block.move(np.ones((COLUMNS, 1)), np.ones(1), -1.0)
    assert not state.tensors["lazy_columns"].any()
    with pytest.raises(DataError, match="same columns, outputs and storage"):
        block_of(table(5), "dense").restore(state)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_products_and_gradients(storage: str, intercept: bool, outputs: int) -> None:
    values, random = table(2), np.random.default_rng(0)
    x = values.astype(np.float64)
    block = block_of(values, storage, outputs, 0.1, intercept)
    w, b = random.standard_normal((COLUMNS, outputs)), random.standard_normal(outputs)
    block.set_weights(w, b)
    if not intercept:
        b = np.zeros(outputs)
    assert block.weights().tolist() == w.tolist()
    assert block.intercept().tolist() == b.tolist()
    rows = np.array([5, 0, 22, 5, 1, 9], np.uint32)
    near(block.products(rows), x[rows] @ w + b, 1e-13)
    near(block.products(np.arange(block.rows)), x @ w + b, 1e-13)
    near(block.test_products(1, 3), x[1:4] @ w + b, 1e-13)
    near(block.times(rows, 2 * w, np.ones(outputs)), 2 * x[rows] @ w + intercept, 1e-13)
    coefficients = random.standard_normal((ROWS, outputs))
    found, found_b = block.gradient(rows, coefficients[:6])
    near(found, x[rows].T @ coefficients[:6] / 6, 1e-13)
    near(found_b, coefficients[:6].mean(0), 1e-13)
    found, found_b = block.full_gradient(coefficients)
    near(found, x.T @ coefficients / ROWS, 1e-13)
    near(found_b, coefficients.mean(0), 1e-13)
    block.move(found, found_b, 0.5)
    near(block.weights(), w - 0.5 * found, 1e-13)
    near(block.intercept(), b - 0.5 * found_b if intercept else b, 1e-13)
    empty = np.array([], np.uint32)
    assert block.products(empty).shape == (0, outputs)
    assert not block.gradient(empty, np.zeros((0, outputs)))[0].any()
    assert np.isnan(block.sgd_steps(Window(empty, 3, np.zeros((0, outputs))), 0.1))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_step_size_constants(storage: str, intercept: bool) -> None:
    values = table(2)
    x = np.hstack([values.astype(np.float64), np.full((ROWS, 1), float(intercept))])
    block = block_of(values, storage, 1, 0.1, intercept)
    squares = (x**2).sum(1)
    columns = np.square(x[:, : x.shape[1] if intercept else -1])
    penalty = np.append(np.full(x.shape[1] - 1, 0.1), 0.0)[: columns.shape[1]]
    along = (squares[:, None] * columns).mean(0) / (columns.mean(0) + penalty)
    assert block.longest_rows() == pytest.approx(along.max())
    largest = np.linalg.eigvalsh(x.T @ x / ROWS)[-1]
    assert largest <= block.largest_eigenvalue() <= 1.0501 * largest
    assert block.largest_eigenvalue() == block.largest_eigenvalue()
    # One column: the trace is the eigenvalue, and no margin is added.
    assert block_of(values[:, :1], storage, 1, 0.1, False).largest_eigenvalue() == pytest.approx(
        float(np.square(values[:, 0], dtype=np.float64).mean())
    )


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_a_party_without_columns(storage: str, outputs: int) -> None:
    """A label party may hold the labels and the intercept alone."""
    nothing = np.zeros((ROWS, 0), np.float32)
    block = block_of(nothing, storage, outputs, 0.1, True)
    rows = np.array([0, 1], np.uint32)
    kept = np.zeros((ROWS, outputs))
    block.saga_steps(Window(rows, 2, np.ones((2, outputs))), 0.5, kept)
    assert block.intercept().tolist() == [-0.5] * outputs
    assert block.products(rows).tolist() == [[-0.5] * outputs] * 2
    assert block.weights().shape == (0, outputs)
    assert block.full_gradient(kept)[0].shape == (0, outputs)
    assert block.longest_rows() == 1.0 and block.largest_eigenvalue() == 1.0
    assert block_of(nothing, storage, outputs, 0.1, False).largest_eigenvalue() == 0.0


@pytest.mark.parametrize("columns", [40, 4000])
def test_many_rows_at_once(columns: int) -> None:
    """Memory is asked for rows before they are read: what is computed is the same."""
    values = table(1, 300, columns)
    dense, lazy = (block_of(values, storage) for storage in ("dense", "sparse"))
    rows = np.random.default_rng(2).permutation(len(values)).astype(np.uint32)
    window = Window(rows, 32, np.random.default_rng(3).standard_normal((len(rows), 1)))
    for block in (dense, lazy):
        block.saga_steps(window, 0.05, np.zeros((len(values), 1)))
    assert np.abs(dense.weights() - lazy.weights()).max() < 1e-12 < np.abs(dense.weights()).max()
    assert np.abs(dense.products(rows) - lazy.products(rows)).max() < 1e-12


def test_images_are_flattened() -> None:
    images = torch.arange(24, dtype=torch.float32).reshape(2, 3, 2, 2)
    block = LinearBlock(images, images[:1], 1, 0.0, False)
    block.set_weights(np.ones((12, 1)), np.zeros(1))
    assert block.products(np.arange(block.rows)).tolist() == [[66.0], [210.0]]


def test_sparse_rows_with_a_column_twice_and_wide_indices() -> None:
    parts = (np.array([1.0, 2.0, 5.0], np.float32), np.array([1, 1, 0], np.int64), np.array([0, 2, 3], np.int64))
    twice = sparse.csr_array(parts, shape=(2, 2))
    block = LinearBlock(twice, twice, 1, 0.0, False)
    assert block.longest_rows() == 25.0  # of (1 + 2)² and 5²
    assert twice.nnz == 3  # the caller's table stays as it is
    block.set_weights(np.array([[1.0], [10.0]]), np.zeros(1))
    assert block.products(np.arange(block.rows)).tolist() == [[30.0], [5.0]]


def test_read_only_and_unaligned_arrays_are_taken() -> None:
    """As they come out of a message."""
    block = block_of(table(2), "sparse")
    packed = np.frombuffer(b"\0" + np.array([3, 4], np.uint32).tobytes(), np.uint8)[1:].view(np.uint32)
    residuals = np.frombuffer(np.ones((2, 1)).tobytes()).reshape(2, 1)
    before = len(getattr(linear_rows.sparse_window, "signatures", ()))  # it has none before any kernel was called
    block.sgd_steps(Window(packed, 2, residuals), 0.1)
    compiled = len(linear_rows.sparse_window.signatures)  # type: ignore[attr-defined]
    block.sgd_steps(Window(packed.copy(), 2, residuals.copy()), 0.1)
    assert len(linear_rows.sparse_window.signatures) == compiled <= before + 1  # type: ignore[attr-defined]


def test_a_disk_that_cannot_be_written_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def njit(cache: bool = False, **options: Any) -> Any:
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(numba, "njit", njit)
    assert machine_code(abs) is abs
    assert asked == [True, False]


def test_what_another_process_is_compiling_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def inner(value: float) -> float:
        return value + 1.0

    inner = machine_code(inner)
    outer = machine_code(lambda value: inner(value) * 2.0)
    place = Path(outer.stats.cache_path)  # type: ignore[attr-defined]
    found: list[float] = []
    lock = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        call = threading.Thread(target=lambda: found.append(outer(1.0)))
        call.start()
        call.join(0.1)
        assert call.is_alive()
        assert not outer.signatures  # type: ignore[attr-defined]
    finally:
        os.close(lock)
    call.join()
    assert found == [4.0]


def test_all_compiled_code_is_in_one_file() -> None:
    """Numba's cache on disk would miss a change in another file, and run the old code."""
    folder = Path(linear_rows.__file__).parent
    using = [path.name for path in folder.glob("linear*.py") if "@compiled" in path.read_text("utf-8")]
    assert using == ["linear_rows.py"]


def test_refusals() -> None:
    block = block_of(table(2), "sparse")
    one, value = np.array([0], np.uint32), np.zeros((1, 1))
    with pytest.raises(DataError, match="Row 23 was asked for, and this block has 23 rows"):
        block.products(np.array([0, 23], np.uint32))
    with pytest.raises(DataError, match="there are 5"):
        block.test_products(3, 3)
    with pytest.raises(DataError, match="array of 1 for each row"):
        block.gradient(one, np.zeros((2, 1)))
    with pytest.raises(DataError, match=r"Give shapes \(17, 1\) and \(1,\)"):
        block.move(np.zeros((1, 17)), np.zeros(1), 1.0)
    with pytest.raises(SettingsError, match="3 step sizes came for 1 mini-batches"):
        block.sgd_steps(Window(one, 1, value), np.ones(3))
    with pytest.raises(SettingsError, match="contiguous"):
        block.saga_steps(Window(one, 1, value), 0.1, np.zeros((ROWS, 1), np.float32))
    with pytest.raises(SettingsError, match="They must agree"):
        block.sgd_steps(Window(one, 1, value, np.zeros(1), LinearLoss("multiclass", 3)), 0.1)
    with pytest.raises(SettingsError, match="Give both or neither"):
        Window(one, 1, value, np.zeros(1))
    with pytest.raises(SettingsError, match="at least 1"):
        Window(one, 0, value)
    with pytest.raises(SettingsError, match="at least 0"):
        block_of(table(2), "dense", l2=-1.0)
    with pytest.raises(DataError, match="17 columns and its test rows 3"):
        LinearBlock(torch.zeros(2, 17), torch.zeros(2, 3), 1, 0.0, False)
    with pytest.raises(DataError, match="dense and its test rows sparse"):
        LinearBlock(torch.zeros(2, 17), sparse.csr_array((2, 17), dtype=np.float32), 1, 0.0, False)
    broken = sparse.csr_array(table(2))
    broken.indices[0] = 99
    with pytest.raises(DataError, match="outside of them"):
        LinearBlock(broken, broken, 1, 0.0, False)


@pytest.mark.parametrize("columns", [1, 3, 8, 9])
@pytest.mark.parametrize("outputs", [1, 2])
def test_passes_over_all_rows_of_few_columns(columns: int, outputs: int) -> None:
    """Narrow tables have a way of their own, over all rows; listed rows do not take it."""
    random = np.random.default_rng(columns)
    values = random.standard_normal((ROWS, columns)).astype(np.float32)
    block = LinearBlock(
        torch.from_numpy(values), torch.from_numpy(values[:5]), outputs, 0.1, True, "centre", centred=True
    )
    centred = values - values.mean(0, dtype=np.float64)
    coefficients, vector = random.standard_normal((ROWS, outputs)), random.standard_normal((columns, outputs))
    for _ in range(2):  # the copy is made by the first, and kept
        gradient, gradient_b = block.full_gradient(coefficients)
        assert gradient == pytest.approx(centred.T @ coefficients / ROWS, abs=1e-7)
        assert gradient_b == pytest.approx(coefficients.mean(0))
        assert block.all_times(vector, np.ones(outputs)) == pytest.approx(centred @ vector + 1, abs=1e-6)
    some = np.array([4, 0, 7], np.uint32)
    assert block.times(some, vector, np.ones(outputs)) == pytest.approx(centred[some] @ vector + 1, abs=1e-6)
    weights = random.random(ROWS)
    wide = np.hstack([centred, np.ones((ROWS, 1))])
    for every in (1, 3):
        chosen, weighed = wide[::every], weights[::every, None]
        assert block.gram(weights, every) == pytest.approx(chosen.T @ (weighed * chosen) / len(chosen), abs=1e-6)
