"""Steps with an L1 penalty against a plain twin: the soft threshold after every step, on every column, nothing lazy."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from test_linear_block import COLUMNS, ROWS, RULES, Floats, Twin, draw_window, near, run, start, table

from colonnade.errors import SettingsError
from colonnade.models import linear_columns, linear_rows
from colonnade.models.linear import LinearBlock, soft
from colonnade.models.linear_window import Window


class ProximalTwin(Twin):
    """One mini-batch after the other, each followed by the threshold."""

    def __init__(self, block: LinearBlock, values: npt.NDArray[np.float32]) -> None:
        super().__init__(block, values)
        self.l1 = block.l1

    def steps(self, rule: str, window: Window, step_sizes: Floats, kept: Floats) -> float:
        losses: list[float] = []
        for number, first in enumerate(range(0, len(window.rows), window.batch_size)):
            part = slice(first, first + window.batch_size)
            targets = None if window.targets is None else window.targets[part]
            one = Window(window.rows[part], window.batch_size, window.values[part], targets, window.loss)
            losses += [super().steps(rule, one, step_sizes[number:], kept)] * len(one.rows)
            self.w = np.sign(self.w) * np.maximum(np.abs(self.w) - step_sizes[number] * self.l1, 0.0)
        return float(np.mean(losses))


def block_of(
    values: npt.NDArray[np.float32], storage: str, outputs: int, l1: float, l2: float = 0.1, **more: Any
) -> LinearBlock:
    tables: list[Any] = [values, values[:5]]
    tables = [sparse.csr_array(part) if storage == "sparse" else torch.from_numpy(part) for part in tables]
    return LinearBlock(tables[0], tables[1], outputs, l2, True, l1=l1, **more)


@pytest.mark.parametrize("labelled", [True, False], ids=["labelled", "residuals"])
@pytest.mark.parametrize("batch_size", [1, 7])
@pytest.mark.parametrize(("l1", "l2"), [(0.02, 0.0), (0.08, 0.1), (0.02, 8.0)])  # the last rescales often
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("rule", RULES)
def test_steps_are_the_twins(
    rule: str,
    storage: str,
    outputs: int,
    l1: float,
    l2: float,
    batch_size: int,
    labelled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linear_columns, "MOST_TICKS", 37)  # settled in the middle of a window
    random, values = np.random.default_rng(7), table(3)
    block = block_of(values, storage, outputs, l1, l2)
    kept = start(block, random)
    twin, twin_kept = ProximalTwin(block, values), kept.copy()
    for _ in range(3):
        window = draw_window(random, outputs, batch_size, 50, labelled)
        step_sizes = random.uniform(0.02, 0.1, 50) if rule == "sgd" else np.full(50, 0.1)
        found = run(block, rule, window, step_sizes, kept)
        assert found == pytest.approx(twin.steps(rule, window, step_sizes, twin_kept), rel=1e-10, nan_ok=True)
        weights = block.weights()
        near(weights, twin.w)
        assert ((weights == 0) == (twin.w == 0)).all()  # zeros are zeros
    near(block.intercept(), twin.b)
    near(block.mean_gradient()[0], twin.mean)
    near(kept, twin_kept)
    rows = np.arange(ROWS, dtype=np.uint32)
    near(block.products(rows), twin.x @ twin.w + twin.b)
    assert block.penalty() == pytest.approx(l2 / 2 * np.square(twin.w).sum() + l1 * np.abs(twin.w).sum())


def test_some_weights_are_zero_and_some_are_not() -> None:
    block = block_of(table(3), "sparse", 1, 0.03)
    random = np.random.default_rng(7)
    kept = start(block, random)
    for _ in range(3):
        run(block, "saga", draw_window(random, 1, 7, 50, True), np.full(50, 0.1), kept)
    assert 0 < (block.weights() == 0).sum() < COLUMNS


@settings(max_examples=200, deadline=None)
@given(
    st.floats(-2, 2),
    st.floats(-3, 3),
    st.sampled_from([0.25, 1.0]),
    st.lists(st.floats(0.001, 1.0), min_size=1, max_size=40),
    st.integers(0, 39),
    st.booleans(),
)
def test_what_a_lazy_column_owes_is_every_step_that_it_missed(
    u: float, mean: float, l1: float, ticks: list[float], since: int, drifts: bool
) -> None:
    """Also where it crosses 0 on the way."""
    since = min(since, len(ticks) - 1)
    clocks = np.cumsum([0.0, *ticks])
    prox = np.concatenate([[l1, float(drifts), float(len(ticks))], clocks])
    stepped = u
    for tick in ticks[since:]:
        stepped = float(soft(np.array(stepped - tick * mean * drifts), np.array(tick * l1)))
    found = linear_rows.after_steps(u, mean, float(clocks[since]), float(clocks[-1]), prox)
    assert found == pytest.approx(stepped, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.sampled_from([*RULES, "weights", "mean"]), min_size=2, max_size=6))
def test_rules_may_take_turns_and_looking_changes_nothing(seed: int, turns: list[str]) -> None:
    random, values = np.random.default_rng(seed), table(seed)
    lazy, plain = block_of(values, "sparse", 1, 0.1), block_of(values, "dense", 1, 0.1)
    kept = start(lazy, np.random.default_rng(seed))
    start(plain, np.random.default_rng(seed))
    for turn in turns:
        if turn == "mean":
            coefficients = random.standard_normal((ROWS, 1))
            for block in (lazy, plain):
                block.set_mean_gradient(*block.full_gradient(coefficients))
        elif turn == "weights":
            before = lazy.state()
            near(lazy.weights(), plain.weights())
            after = lazy.state()
            assert all(torch.equal(one, after.tensors[name]) for name, one in before.tensors.items())
        else:
            window, tables = draw_window(random, 1, 5, 8, True), (kept.copy(), kept.copy())
            for block, own in zip((lazy, plain), tables, strict=True):
                run(block, turn, window, np.full(8, 0.1), own)
            kept = tables[0]
    near(lazy.weights(), plain.weights())


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_a_restored_block_goes_on_to_the_same_bits(storage: str) -> None:
    random, values = np.random.default_rng(1), table(1)
    block, other = (block_of(values, storage, 1, 0.2) for _ in range(2))
    kept = start(block, random)
    windows = [draw_window(random, 1, 3, 9, True) for _ in range(4)]
    for window in windows[:2]:
        run(block, "saga", window, np.full(9, 0.1), kept)
    other.restore(block.state())
    other_kept = kept.copy()
    for window in windows[2:]:
        run(block, "saga", window, np.full(9, 0.1), kept)
        run(other, "saga", window, np.full(9, 0.1), other_kept)
    assert block.weights().tobytes() == other.weights().tobytes()


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("rule", RULES)
def test_scaled_columns_have_thresholds_of_their_own(rule: str, storage: str) -> None:
    """w ← soft(w − ηR²v, ηR²·l1): one step in the variables u = w/R, whose penalty is l1·Σ R_j|u_j|."""
    random, values = np.random.default_rng(2), table(2)
    block = block_of(values, storage, 1, 0.15, precondition="columns", bound=0.25, centred=True)
    plain = block_of(values, storage, 1, 0.0, precondition="columns", bound=0.25, centred=True)
    assert block.metric is not None
    kept, other_kept = start(block, np.random.default_rng(2)), start(plain, np.random.default_rng(2))
    for _ in range(6):
        window = draw_window(random, 1, 7, 1, True)
        run(block, rule, window, np.full(1, 0.3), kept)
        run(plain, rule, window, np.full(1, 0.3), other_kept)
        threshold = 0.3 * 0.15 * block.metric.scale[:, None] ** 2
        stepped = plain.weights()
        plain.set_weights(np.sign(stepped) * np.maximum(np.abs(stepped) - threshold, 0), plain.intercept())
        near(block.weights(), plain.weights())
    assert (block.weights() == 0).any() and (block.weights() != 0).any()


def test_the_gradient_mapping_is_zero_at_the_optimum_alone() -> None:
    """f(w) = mean (x w − y)² with x = (1, 1), y = (3, 1): w = 2 − l1/2, and 0 from l1 = 4 on."""
    x = torch.ones(2, 1)
    for l1, best in ((1.0, 1.5), (4.0, 0.0), (6.0, 0.0)):
        block = LinearBlock(x, x[:0], 1, 0.0, False, bound=2.0, l1=l1)
        for w in (best, best + 0.5, best - 0.5, 1e-9):
            block.set_weights(np.full((1, 1), w), np.zeros(1))
            residuals = 2 * (w - np.array([[3.0], [1.0]]))
            found = float(block.objective_gradient(residuals)[0][0, 0])
            assert (abs(found) < 1e-8) == (abs(w - best) < 1e-8), (l1, w, found)


def test_refusals() -> None:
    x = torch.ones(2, 1)
    for precondition in ("block", "curvature"):
        with pytest.raises(SettingsError, match=f'precondition = "{precondition}" mixes columns'):
            LinearBlock(x, x, 1, 0.0, True, precondition=precondition, l1=0.1)  # type: ignore[arg-type]
    for l1 in (-1.0, float("nan"), float("inf")):
        with pytest.raises(SettingsError, match="L1 penalty of a linear block"):
            LinearBlock(x, x, 1, 0.0, True, l1=l1)
