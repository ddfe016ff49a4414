"""Large arrays in checkpoints: only changed rows are written, whatever happens to a writer, and all come back."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade import Simulate, Training, Vafl
from colonnade.algorithms.split_models.parts import table
from colonnade.errors import RunError
from colonnade.runtimes import checkpoint, row_files
from colonnade.runtimes.checkpoint import CheckpointError, numbers_of, read_checkpoint, read_latest, write_checkpoint
from colonnade.state import ChangedRows, Remembering, State, large_arrays
from colonnade.testing import StopAfter, TinyFederation, assert_same_bits, tiny_data, weights

ROWS = 1000


class Keeps(Remembering):
    """Two arrays of the same rows."""

    MEMORY = (large_arrays("rows", "_numbers", "_ages", changes="_changed"),)

    def __init__(self, large: bool = True) -> None:
        self._numbers = np.zeros((ROWS, 4), np.float32)
        self._ages = np.zeros((ROWS, 2), np.int64)
        self._changed = ChangedRows(ROWS, 32) if large else None

    def write(self, rows: Any, number: float) -> None:
        self._numbers[rows] = number
        self._ages[rows] = int(number)
        if self._changed is not None:
            self._changed.note(np.asarray(rows, np.uint32))

    def save(self, folder: Path, number: int) -> None:
        state = State()
        state.add("inner", self.state())  # as a table is within a label party
        write_checkpoint(folder, "label", number, state)

    def same_as(self, other: "Keeps") -> bool:
        return np.array_equal(self._numbers, other._numbers) and np.array_equal(self._ages, other._ages)


def loaded(folder: Path, number: int, large: bool = True) -> Keeps:
    saved = read_checkpoint(folder, "label", number)
    assert saved is not None
    found = Keeps(large)
    found.restore(saved.part("inner"))
    return found


def files(folder: Path) -> list[int]:
    return sorted(int(path.stem.rpartition("-")[2]) for path in folder.glob("label-*.rows"))


def test_every_checkpoint_has_only_what_changed(tmp_path: Path) -> None:
    kept = Keeps()
    kept.write(range(500), 1.0)
    kept.save(tmp_path, 1)
    kept.write([3, 700], 2.0)
    kept.save(tmp_path, 2)
    first, second = (tmp_path / f"label-{number:010d}.rows" for number in (1, 2))
    assert first.stat().st_size > 500 * 32 and second.stat().st_size < 1000
    assert loaded(tmp_path, 2).same_as(kept)
    kept.save(tmp_path, 3)  # nothing has changed: no file
    assert files(tmp_path) == [1, 2] and loaded(tmp_path, 3).same_as(kept)


def test_any_order_of_changes_lives_and_checkpoints(tmp_path: Path) -> None:
    """Sixty checkpoints; now and then another life goes on from the last one."""
    chance, kept = np.random.default_rng(0), Keeps()
    kept.write(range(ROWS), 1000.0)
    for number in range(1, 61):
        kept.write(chance.integers(0, ROWS, int(chance.integers(1, 60))), float(number))
        kept.save(tmp_path, number)
        if number % 7 == 0:
            again = loaded(tmp_path, number)
            assert again.same_as(kept)
            kept = again
    written = sum((tmp_path / f"label-{number:010d}.rows").stat().st_size for number in files(tmp_path))
    assert len(files(tmp_path)) <= row_files._MOST_FILES + 3
    assert written < 4 * ROWS * 40  # what is out of date is not kept for ever


def test_the_oldest_rows_are_taken_over_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "_TAKEN_OVER_BYTES", 100 * 32)
    monkeypatch.setattr(row_files, "_MOST_FILES", 4)
    kept = Keeps()
    kept.write(range(ROWS), 1.0)
    sizes = []
    for number in range(1, 25):
        kept.write([number], float(number))
        kept.save(tmp_path, number)
        sizes.append((tmp_path / f"label-{number:010d}.rows").stat().st_size)
        assert loaded(tmp_path, number).same_as(kept)
    assert max(sizes[1:]) < 110 * 48 and 1 not in files(tmp_path)


def test_a_writer_that_dies_before_its_checkpoint_stands_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Keeps()
    kept.write([1], 1.0)
    kept.save(tmp_path, 1)
    before = loaded(tmp_path, 1)
    kept.write([2], 2.0)
    with monkeypatch.context() as full, pytest.raises(CheckpointError):
        full.setattr(checkpoint, "write_atomically", _no_room)
        kept.save(tmp_path, 2)
    assert read_checkpoint(tmp_path, "label", 2) is None
    assert loaded(tmp_path, 1).same_as(before)  # the next life begins here, and handles its journal again
    kept.save(tmp_path, 3)  # or this one goes on
    assert loaded(tmp_path, 3).same_as(kept)
    assert files(tmp_path) == [1, 3]


def test_whoever_is_killed_at_any_moment_goes_on_from_a_whole_checkpoint(tmp_path: Path) -> None:
    """Eight lives write checkpoints as fast as they can, and are killed while they do."""

    def change(kept: Keeps, number: int) -> None:
        kept.write(np.random.default_rng(number).integers(0, ROWS, 40), float(number))

    def live() -> None:
        number, states = _newest(tmp_path)
        kept = Keeps()
        if states is not None:
            kept.restore(states.part("inner"))
        while True:
            number += 1
            change(kept, number)
            kept.save(tmp_path, number)

    for life in range(8):
        child = os.fork()
        if child == 0:
            try:
                live()
            finally:
                os._exit(1)
        time.sleep(0.05 + 0.013 * life)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    number, states = _newest(tmp_path)
    assert number > 0 and states is not None
    expected, found = Keeps(), Keeps()
    for turn in range(1, number + 1):
        change(expected, turn)
    found.restore(states.part("inner"))
    assert found.same_as(expected)


def _newest(folder: Path) -> tuple[int, State | None]:
    if not numbers_of(folder, "label"):
        return 0, None
    number, states = read_latest(folder, ["label"])
    return number, states["label"]


def test_old_files_that_cannot_be_removed_do_not_undo_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it taken for one that failed, the next would have its number, and write over rows that it alone has."""
    keeps = Keeps()
    with monkeypatch.context() as stuck:
        stuck.setattr(Path, "unlink", _no_room)
        for number in range(1, 5):
            keeps.write([7], number)
            keeps.save(tmp_path, number)
    assert numbers_of(tmp_path, "label") == files(tmp_path) == [1, 2, 3, 4]
    keeps.write([8], 5)
    keeps.save(tmp_path, 5)
    assert loaded(tmp_path, 5).same_as(keeps)
    assert numbers_of(tmp_path, "label") == files(tmp_path) == [4, 5]


def _no_room(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("number", [1, 2])
def test_a_file_of_rows_that_is_torn_or_gone_tears_the_checkpoint(tmp_path: Path, number: int) -> None:
    kept = Keeps()
    for turn in (1, 2):
        kept.write([turn], float(turn))
        kept.save(tmp_path, turn)
    harmed = tmp_path / f"label-{number:010d}.rows"
    content = harmed.read_bytes()
    harmed.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert read_checkpoint(tmp_path, "label", 2) is None
    harmed.unlink()
    assert read_checkpoint(tmp_path, "label", 2) is None
    assert (read_checkpoint(tmp_path, "label", 1) is None) is (number == 1)


def test_from_whole_to_rows_and_back(tmp_path: Path) -> None:
    """A checkpoint of an earlier version has everything whole; where the bound is another one, so may be the next."""
    whole = Keeps(large=False)
    whole.write([5], 5.0)
    whole.save(tmp_path, 1)
    rows = loaded(tmp_path, 1)
    assert rows.same_as(whole)
    rows.write([6], 6.0)
    rows.save(tmp_path, 2)
    assert loaded(tmp_path, 2, large=False).same_as(rows)
    moved = loaded(tmp_path, 2)
    moved.write([7], 7.0)
    moved.save(tmp_path / "elsewhere", 3)  # whose files are not there
    assert loaded(tmp_path / "elsewhere", 3).same_as(moved)


def test_another_runs_arrays_are_refused(tmp_path: Path) -> None:
    kept = Keeps()
    kept.write([1], 1.0)
    kept.save(tmp_path, 1)
    saved = read_checkpoint(tmp_path, "label", 1)
    other = Keeps()
    other._numbers = other._numbers.astype(np.float16)
    assert saved is not None
    with pytest.raises(RunError, match="as float32 where this run needs float16"):
        other.restore(saved.part("inner"))


def test_what_has_changed_is_counted_once(tmp_path: Path) -> None:
    kept = Keeps()
    changed = kept._changed
    assert changed is not None and changed.is_new
    for _ in range(10):
        kept.write(range(ROWS), 1.0)
    assert changed.size_bytes() == ROWS * 32
    kept.save(tmp_path, 1)
    assert changed.size_bytes() == 0


@pytest.mark.parametrize("limits", [(0, 0), (0, 1 << 40), (1 << 40, 0)], ids=["rows", "rows, whole", "whole, rows"])
def test_a_run_that_goes_on_has_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int]
) -> None:
    """The same models, with a table saved row by row before it stopped, after it, or both."""
    training = Training(2, 8, optimiser="sgd", evaluate_every_epochs=1)
    given = TinyFederation(tiny_data(), Vafl(in_flight=2), training=training, simulate=Simulate())
    plain = given.run(tmp_path / "plain")
    monkeypatch.setattr(table, "LARGE_BYTES", limits[0])
    given.run(tmp_path / "run", stop_requested=StopAfter(30))
    monkeypatch.setattr(table, "LARGE_BYTES", limits[1])
    again = given.run(tmp_path / "run", resume=True)
    assert_same_bits(weights(plain.models), weights(again.models))
    assert again.summary["exchanges"] == plain.summary["exchanges"]
    assert bool(list((tmp_path / "run" / "checkpoints").glob("*.rows"))) is (0 in limits)
