"""What a party needs to survive its own death: its checkpoints, and a journal of the events since the last one.

At any moment the newest whole checkpoint and the journal after it are the whole party. The keeper knows files and
numbers; what is in a checkpoint, its station says.
"""

from collections.abc import Iterator
from pathlib import Path

from colonnade.errors import RunError
from colonnade.party import Event, Received
from colonnade.runtimes.checkpoint import numbers_of, read_checkpoint, write_checkpoint
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.journal import Journal, begin_life, events_after, first_number, last_number
from colonnade.runtimes.replay import event_of
from colonnade.state import State

JOURNAL_BYTES = 256 << 20
"""A longer journal is cut short by a checkpoint, unless the checkpoint itself is larger: everybody waits for one, so a
busy party writes one in ten seconds rather than in two, and handles at most that much again after a crash."""


class Keeper:
    """One party's checkpoints and journal. In this order: `load`, `begin_life`, `events`, `open`; then `save`."""

    journal: Journal  # from `open` on

    def __init__(self, name: str, directory: Path, endurance: Endurance) -> None:
        self._name = name
        self._checkpoints = directory / "checkpoints"
        self._journals = directory / "journal"
        self._endurance = endurance
        self._saved_at = 0.0
        self._checkpoint_bytes = 0
        self.number = 0  # of the last checkpoint

    def load(self) -> State | None:
        """The newest whole checkpoint; None if the party is to begin anew."""
        numbers = numbers_of(self._checkpoints, self._name)
        for number in reversed(numbers):
            saved = read_checkpoint(self._checkpoints, self._name, number)
            if saved is not None:
                self.number = number
                return saved
        first = first_number(self._journals, self._name)
        if first or (numbers and first is None):
            raise RunError(
                f"None of the checkpoints of {self._name} in {self._checkpoints} is whole, and the journal does not "
                "reach back to the beginning: what this party has learnt in this run is lost, and an older copy of its "
                "directory would contradict what the others have heard since. Begin a new run, every party in a new "
                "directory (--out)."
            )
        return None

    def begin_life(self) -> int:
        """Note that a process goes on here; gives how many did before it."""
        return begin_life(self._journals, self._name)

    def events(self) -> Iterator[tuple[Event, bytearray | None]]:
        """The events after the checkpoint, messages with their frames."""
        for record in events_after(self._journals, self._name, self.number):
            event = event_of(record)
            yield event, bytearray(record.fields[2]) if isinstance(event, Received) else None

    def open(self, clock: float) -> None:
        """Go on writing the journal."""
        self.number = max(self.number, last_number(self._journals, self._name))
        self.journal = Journal(self._journals, self._name, self.number, self._endurance.sync)
        self._saved_at = clock

    def is_due(self, clock: float) -> bool:
        """Whether it is time for a checkpoint."""
        long = self.journal.size_bytes > max(JOURNAL_BYTES, 2 * self._checkpoint_bytes)
        return long or clock - self._saved_at >= self._endurance.checkpoint_seconds

    def save(self, state: State, clock: float) -> None:
        """Write a checkpoint; the journal begins anew after it."""
        self.number += 1
        write_checkpoint(self._checkpoints, self._name, self.number, state)
        self.journal.begin(self.number)
        self._saved_at = clock
        self._checkpoint_bytes = sum(tensor.nbytes for tensor in state.tensors.values())

    def close(self) -> None:
        self.journal.flush()
        self.journal.close()
