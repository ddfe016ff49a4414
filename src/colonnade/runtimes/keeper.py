"""What a party needs to survive its own death: its checkpoints, and a journal of the events since the last one.

At any moment the newest whole checkpoint and the journal after it are the whole party. The keeper knows files and
numbers; what is in a checkpoint, its station says. A checkpoint that cannot be written for now is written later: until
then the journal goes on, and so does the party. One of a large table is written while the party goes on: what has
changed is copied first, and a journal of its own begins with the copy.
"""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

from colonnade.errors import RunError
from colonnade.files import KeptFiles
from colonnade.party import Event, Received
from colonnade.runtimes.checkpoint import CheckpointError, KeptState, numbers_of, read_checkpoint
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.journal import Expelled, Journal, begin_life, events_after, first_number, last_number
from colonnade.runtimes.replay import event_of
from colonnade.state import ChangedRows, State

log = logging.getLogger("colonnade.keeper")

JOURNAL_BYTES = 256 << 20
"""A longer journal is cut short by a checkpoint, unless the checkpoint itself is larger: everybody waits for one, so a
busy party writes one in ten seconds rather than in two, and handles at most that much again after a crash."""


CHANGED_BYTES = 24 << 20
"""So much of large arrays may change before a checkpoint is written: everybody waits while it is copied."""
CHANGED_SECONDS = 10.0
"""And not sooner than this after the last: in a quick training 24 MB change several times a second."""
MOST_CHANGED_BYTES = 128 << 20
"""Unless so much has changed, which takes about a tenth of a second to copy."""
RETRY_SECONDS = 5.0
"""After a checkpoint that could not be written."""
_LOOK_SECONDS = 0.25
"""How often it is looked whether a checkpoint has come to its end that is written beside the party."""
_RESERVED_FILES = 4
"""What writing a checkpoint has open at once, and one to spare."""


class Keeper:
    """One party's checkpoints and journal. In this order: `load`, `begin_life`, `events`, `open`; then `save`."""

    journal: Journal  # from `open` on

    def __init__(self, name: str, directory: Path, endurance: Endurance) -> None:
        self._name = name
        self._checkpoints = directory / "checkpoints"
        self._journals = directory / "journal"
        self._endurance = endurance
        self._reserved = KeptFiles(_RESERVED_FILES)
        self._retry_at = 0.0
        self._failed = False  # whether the last checkpoint could not be written
        self._whole = 0  # the number of the newest checkpoint that was found, or written, whole
        self._saved_at = 0.0
        self._checkpoint_bytes = 0
        self._changed: list[ChangedRows] = []
        self._writing: _Writing | None = None
        self.number = 0  # of the last checkpoint

    def load(self) -> State | None:
        """The newest whole checkpoint; None if the party is to begin anew."""
        saved = self.recall()
        if saved is not None:
            self.number = self._whole
            return saved
        numbers = numbers_of(self._checkpoints, self._name)
        first = first_number(self._journals, self._name)
        if first or (numbers and first is None):
            raise RunError(
                f"None of the checkpoints of {self._name} in {self._checkpoints} is whole, and the journal does not "
                "reach back to the beginning: what this party has learnt in this run is lost, and an older copy of its "
                "directory would contradict what the others have heard since. Begin a new run, every party in a new "
                "directory (--out)."
            )
        return None

    def recall(self) -> State | None:
        """The newest whole checkpoint, at any time: what the events of `events` follow."""
        self.settle(self._saved_at)
        for number in reversed(numbers_of(self._checkpoints, self._name)):
            saved = read_checkpoint(self._checkpoints, self._name, number)
            if saved is not None:
                self._whole = number
                return saved
        return None

    def begin_life(self) -> int:
        """Note that a process goes on here; gives how many did before it."""
        return begin_life(self._journals, self._name)

    def events(self) -> Iterator[tuple[Event | Expelled, bytearray | None]]:
        """What was handled after the checkpoint, messages with their frames, and who was expelled."""
        for record in events_after(self._journals, self._name, self._whole):
            if record.type == "Expelled":
                yield Expelled(*record.fields), None
                continue
            event = event_of(record)
            yield event, bytearray(record.fields[2]) if isinstance(event, Received) else None

    def open(self, clock: float) -> None:
        """Go on writing the journal."""
        self.number = max(self.number, last_number(self._journals, self._name))
        self.journal = Journal(self._journals, self._name, self.number, self._endurance.sync)
        self._saved_at = clock

    def is_due(self, clock: float) -> bool:
        """Whether it is time for a checkpoint; never while one is being written."""
        if self._writing is not None:
            if clock < self._writing.look_at:
                return False
            if not self._writing.is_over():
                self._writing.look_at = clock + _LOOK_SECONDS
                return False
            self.settle(clock)
        if self._failed and clock < self._retry_at:
            return False
        quiet_seconds = clock - self._saved_at
        long = self.journal.size_bytes > max(JOURNAL_BYTES, 2 * self._checkpoint_bytes)
        if long or quiet_seconds >= self._endurance.checkpoint_seconds:
            return True
        if not self._changed:
            return False
        least = CHANGED_BYTES if quiet_seconds >= CHANGED_SECONDS else MOST_CHANGED_BYTES
        return sum(rows.size_bytes() for rows in self._changed) > least

    def save(self, state: State, clock: float, beside: bool = False) -> None:
        """Write a checkpoint; the journal begins anew after it. CheckpointError or OSError: it goes on as it was.

        `beside`: one of large arrays is written by a thread while the party goes on, and what goes wrong then is told
        as `put_off` does. Until it stands the one before it and both their journals are the whole party.
        """
        self.settle(clock)
        number = self.number + 1
        with self._reserved.lent():
            self.journal.prepare(number)  # first: a checkpoint whose journal cannot be opened would lose what follows
            try:
                taken = KeptState(self._checkpoints, self._name, number, state)
            except BaseException:
                self.journal.forgo()
                raise
            if beside and taken.is_large:
                try:
                    self.journal.begin(number, self._whole)
                except BaseException:
                    taken.is_lost()
                    raise
                self.number = number
            else:
                try:
                    taken.write()
                except BaseException:
                    taken.is_lost()
                    self.journal.forgo()
                    raise
                taken.stands()
                self.journal.begin(number, self._whole)
                self.number = number
                self._stands(number)
        self._saved_at = clock
        self.attend(state)
        self._checkpoint_bytes = sum(tensor.nbytes for tensor in state.tensors.values())
        if self.number != self._whole:
            self._writing = _Writing(taken, number, self._reserved, clock + _LOOK_SECONDS)

    def _stands(self, number: int) -> None:
        self._whole = number
        if self._failed:
            self._failed = False
            log.info("a checkpoint could be written again")

    def settle(self, clock: float) -> None:
        """The checkpoint that is being written comes to its end, if there is one."""
        writing, self._writing = self._writing, None
        if writing is None:
            return
        error = writing.result()
        if error is None:
            writing.taken.stands()
            self._stands(writing.number)
            return
        writing.taken.is_lost()
        if not isinstance(error, CheckpointError | OSError):
            raise error
        self.put_off(error, clock)

    def attend(self, state: State) -> None:
        """Look from now on how much changes in the large arrays of this state."""
        self._changed = [one.changed for one in state.large.values() if one.changed is not None]

    def put_off(self, error: CheckpointError | OSError, clock: float) -> None:
        """A checkpoint could not be written: a fault of this machine, so the party goes on and tries again."""
        self._retry_at = clock + RETRY_SECONDS
        if not self._failed:
            self._failed = True
            log.error("no checkpoint for now, the training goes on and the journal with it: %s", error)

    def close(self) -> None:
        try:
            self.settle(self._saved_at)
        finally:
            self._reserved.close()
            self.journal.flush()
            self.journal.close()


class _Writing:
    """A checkpoint that a thread writes."""

    def __init__(self, taken: KeptState, number: int, reserved: KeptFiles, look_at: float) -> None:
        self.taken = taken
        self.number = number
        self.look_at = look_at
        self._reserved = reserved
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._write, name="checkpoint", daemon=True)
        self._thread.start()

    def _write(self) -> None:
        try:
            with self._reserved.lent():
                self.taken.write()
        except BaseException as error:  # which the party's own thread tells, or raises
            self._error = error

    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> BaseException | None:
        """What went wrong, when it is over: it is waited for."""
        self._thread.join()
        return self._error
