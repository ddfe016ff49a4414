"""Lives that die while they write a checkpoint leave everything that the next one needs."""

from pathlib import Path

import torch

from colonnade.party import TimerFired
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.keeper import Keeper
from colonnade.state import State


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
