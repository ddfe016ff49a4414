"""Lives that die while they write a checkpoint leave everything that the next one needs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from colonnade.party import TimerFired
from colonnade.runtimes import keeper as keepers
from colonnade.runtimes.checkpoint import CheckpointError, KeptState
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.keeper import Keeper
from colonnade.state import ChangedRows, Remembering, State, large_arrays


def life(folder: Path) -> tuple[Keeper, list[str]]:
    """A keeper that goes on here, and the events that it finds."""
    keeper = Keeper("bank", folder, Endurance())
    keeper.load()
    keeper.begin_life()
    found = [event.name for event, _ in keeper.events() if isinstance(event, TimerFired)]
    keeper.open(0.0)
    return keeper, found


def note(keeper: Keeper, name: str) -> None:
    keeper.journal.append(TimerFired(0.0, name))
    keeper.journal.flush()


def test_lives_that_die_before_their_checkpoint_lose_no_event(tmp_path: Path) -> None:
    """The file of the next journal is there before the checkpoint is: however often that happens."""
    keeper, _ = life(tmp_path)
    keeper.save(State({"weights": torch.zeros(2)}, {}), 0.0)
    expected: list[str] = []
    for number in range(6):
        note(keeper, f"event {number}")
        expected.append(f"event {number}")
        keeper.journal.prepare(keeper.number + 1)  # and killed here
        keeper.journal.close()
        keeper, found = life(tmp_path)
        assert found == expected


def test_a_torn_checkpoint_after_such_lives_sends_back_to_the_one_before(tmp_path: Path) -> None:
    keeper, _ = life(tmp_path)
    keeper.save(State({"weights": torch.zeros(2)}, {}), 0.0)
    for number in range(3):
        note(keeper, f"event {number}")
        keeper.journal.prepare(keeper.number + 1)
        keeper.journal.close()
        keeper, _ = life(tmp_path)
    keeper.save(State({"weights": torch.ones(2)}, {}), 0.0)
    note(keeper, "event 3")
    keeper.close()
    newest = max((tmp_path / "checkpoints").glob("bank-*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-3])
    _, found = life(tmp_path)
    assert found == [f"event {number}" for number in range(4)]


# --- checkpoints that are written while the party goes on -------------------------------------------------------


class Table(Remembering):
    """Ten rows, whose changes are counted."""

    MEMORY = (large_arrays("rows", "_numbers", changes="_changed"),)

    def __init__(self) -> None:
        self._numbers = np.zeros(10, np.float32)
        self._changed = ChangedRows(10, 4)

    def write(self, row: int, number: float) -> None:
        self._numbers[row] = number
        self._changed.note(np.array([row], np.uint32))


def numbers_in(folder: Path) -> tuple[list[float], list[str]]:
    """What the next life begins with: rows, and the events after them."""
    keeper = Keeper("bank", folder, Endurance())
    saved = keeper.load()
    assert saved is not None
    table = Table()
    table.restore(saved)
    events = [event.name for event, _ in keeper.events() if isinstance(event, TimerFired)]
    return table._numbers.tolist(), events


@contextmanager
def slow_disk(monkeypatch: pytest.MonkeyPatch, ends_well: bool = True) -> Iterator[threading.Event]:
    """Writing a checkpoint waits for the event."""
    go_on, write = threading.Event(), KeptState.write

    def waits(self: KeptState) -> None:
        go_on.wait(30)
        if not ends_well:
            raise CheckpointError("no room")
        write(self)

    with monkeypatch.context() as slow:
        slow.setattr(KeptState, "write", waits)
        yield go_on


def test_a_large_table_is_saved_as_it_was_although_the_party_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper, _ = life(tmp_path)
    table = Table()
    table.write(0, 1.0)
    keeper.save(table.state(), 0.0)
    note(keeper, "first")
    table.write(0, 2.0)
    table.write(1, 2.0)
    with slow_disk(monkeypatch) as go_on:
        keeper.save(table.state(), 1.0, beside=True)
        table.write(0, 3.0)
        note(keeper, "second")
        assert not keeper.is_due(1e9)  # one is under way
        # Killed here, the party has the one before, and everything since.
        assert numbers_in(tmp_path) == ([1.0, *[0.0] * 9], ["first", "second"])
        go_on.set()
        keeper.settle(2.0)
    assert numbers_in(tmp_path) == ([2.0, 2.0, *[0.0] * 8], ["second"])
    assert table._changed.flags.tolist() == [True, *[False] * 9]  # changed since
    keeper.save(table.state(), 3.0, beside=True)
    keeper.close()  # waits for it
    assert numbers_in(tmp_path) == ([3.0, 2.0, *[0.0] * 8], [])


def test_what_could_not_be_written_beside_is_in_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, _ = life(tmp_path)
    table = Table()
    table.write(0, 1.0)
    keeper.save(table.state(), 0.0)
    for number in (2.0, 3.0):
        table.write(int(number), number)
        note(keeper, str(number))
        with slow_disk(monkeypatch, ends_well=False) as go_on:
            keeper.save(table.state(), number, beside=True)
            go_on.set()
            keeper.settle(number)
        assert not keeper.is_due(number + keepers.RETRY_SECONDS / 2)
    table.write(4, 4.0)
    assert numbers_in(tmp_path) == ([1.0, *[0.0] * 9], ["2.0", "3.0"])
    keeper.save(table.state(), 9.0, beside=True)
    keeper.close()
    assert numbers_in(tmp_path) == ([1.0, 0.0, 2.0, 3.0, 4.0, *[0.0] * 5], [])


def test_much_that_has_changed_makes_a_checkpoint_due_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, _ = life(tmp_path)
    table = Table()
    keeper.save(table.state(), 0.0)
    monkeypatch.setattr(keepers, "MOST_CHANGED_BYTES", 6)
    monkeypatch.setattr(keepers, "CHANGED_BYTES", 2)
    table.write(0, 1.0)
    assert not keeper.is_due(1.0) and keeper.is_due(keepers.CHANGED_SECONDS)
    table.write(1, 1.0)
    assert keeper.is_due(1.0)
    keeper.close()
