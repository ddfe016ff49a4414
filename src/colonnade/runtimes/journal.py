"""What a party must not forget between two checkpoints: every event that it has handled, in that order.

A party is a pure state machine, so its last checkpoint and the events after it are its whole state: after `kill -9` it
is rebuilt by handling them again, to the same bits and the same outgoing frames. An event is in the operating system's
hands before anything that follows from it leaves the party; with `sync` it is on the disk, so that a loss of power
loses nothing either (a sync of the disk is dear: one for all that a turn has handled). A message that the party could
not handle is not here; that its sender was expelled for it is.

One file per checkpoint, NAME-NUMBER.journal, holding the events after checkpoint NUMBER, in the format of a trace. The
last two are kept, since a torn checkpoint sends the party back to the one before. A torn last record is left out; one
that is damaged before the end is refused, since the state that followed from it cannot be rebuilt.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from colonnade.files import make_folder, open_private, open_to_read, sync_path
from colonnade.party import Event, Received
from colonnade.trace import MAGIC, Record, bodies, packed, packed_parts, read_trace, record_of

_KEPT = 2
_PARTS_PER_CALL = 64
_REMEDY = (
    "The journal is what this party has learnt since its last checkpoint, and cannot be done without. If there is an "
    "exact copy of the file, put it back; otherwise begin a new run, every party in a new directory (--out)."
)


@dataclass(frozen=True)
class Expelled:
    """A peer was put out of the run. `by_frame`: for its next frame, which counts as taken and changed nothing."""

    now: float
    peer: str
    why: str
    by_frame: bool


class Journal:
    """Appends to the journal after one checkpoint."""

    def __init__(self, directory: Path, name: str, number: int, sync: bool = False) -> None:
        self._directory = directory
        self._name = name
        self._sync = sync
        self._waiting: list[bytes | bytearray] = []
        self.is_safe = True  # whether every event is where `flush` puts it
        self.size_bytes = 0
        self._file = -1
        self._next = -1  # the file of the journal after this one
        self._next_bytes = 0
        self.begin(number, oldest=0)  # what others before this process needed may be needed again

    def prepare(self, number: int) -> None:
        """A checkpoint of that number is about to be written: open its journal, while one can still do without."""
        self.forgo()
        make_folder(self._directory)
        path = _path(self._directory, self._name, number)
        self._next = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if self._sync:
            sync_path(self._directory)  # or the name of a new file is lost with the power
        self._next_bytes = _whole_bytes(path)
        os.ftruncate(self._next, self._next_bytes)  # a record torn by a crash would hide those after it

    def forgo(self) -> None:
        """The checkpoint was not written: this journal goes on. The next one's file stays, empty, and does no harm."""
        if self._next >= 0:
            os.close(self._next)
            self._next = -1

    def begin(self, number: int, oldest: int | None = None) -> None:
        """The checkpoint is written: its journal begins, and those are removed that nobody needs.

        `oldest`: the number of the checkpoint that a party may have to go back to. Files of later numbers may be those
        of lives that died before they had written a checkpoint.
        """
        oldest = number - _KEPT + 1 if oldest is None else oldest
        if self._next < 0:
            self.prepare(number)
        self.flush()
        if self._file >= 0:
            os.close(self._file)
        self._file, self._next = self._next, -1
        if not self._next_bytes:
            self._waiting.append(MAGIC)
        self.size_bytes = self._next_bytes
        for old in _numbers(self._directory, self._name):
            if old < oldest:
                with suppress(OSError):  # the next time
                    _path(self._directory, self._name, old).unlink(missing_ok=True)

    def append(self, event: Event, frame: bytes | bytearray | None = None) -> None:
        """Take an event; it is safe after the next `flush`."""
        self.is_safe = False
        if frame is not None and isinstance(event, Received):
            start, frame = packed_parts(event, frame)
            self._waiting += (start, frame)
            self.size_bytes += len(start) + len(frame)
            return
        self._put(packed(record_of(event, frame)))

    def expel(self, note: Expelled) -> None:
        """Take it down that a peer was expelled."""
        self.is_safe = False
        self._put(packed(Record("Expelled", (note.now, note.peer, note.why, note.by_frame))))

    def _put(self, body: bytes) -> None:
        self._waiting.append(body)
        self.size_bytes += len(body)

    def flush(self) -> None:
        """Hand everything appended to the operating system, or with `sync` to the disk."""
        if not self._waiting:
            return
        written = os.writev(self._file, self._waiting) if len(self._waiting) <= _PARTS_PER_CALL else 0
        view = memoryview(b"")
        if written < sum(map(len, self._waiting)):
            view = memoryview(b"".join(self._waiting))[written:]
        try:
            while view:
                view = view[os.write(self._file, view) :]
        finally:
            self._waiting = [bytes(view)] if view else []  # on a full disk: what is written is not written twice
        if self._sync:
            os.fdatasync(self._file)
        self.is_safe = True

    def close(self) -> None:
        self.forgo()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def events_after(directory: Path, name: str, number: int) -> Iterator[Record]:
    """Everything handled after checkpoint `number`, also where a later checkpoint turned out to be torn."""
    for later in _numbers(directory, name):
        path = _path(directory, name, later)
        if later >= number and _has_begun(path):
            yield from read_trace(path, _REMEDY)


def begin_life(directory: Path, name: str) -> int:
    """Note that a process takes the journal up; gives how many did so before it, however early they ended."""
    make_folder(directory)
    # One byte a life: it is there or not, whenever the process is killed.
    file = open_private(directory / f"{name}.lives", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        before = os.fstat(file).st_size
        os.write(file, b"|")
    finally:
        os.close(file)
    return before


def first_number(directory: Path, name: str) -> int | None:
    """The number of the oldest journal: how far back events reach; None if there is none."""
    return min(_numbers(directory, name), default=None)


def last_number(directory: Path, name: str) -> int:
    """The number of the newest journal; 0 if there is none."""
    return max(_numbers(directory, name), default=0)


def _path(directory: Path, name: str, number: int) -> Path:
    return directory / f"{name}-{number:010d}.journal"


def _numbers(directory: Path, name: str) -> list[int]:
    found = (path.stem.rpartition("-") for path in directory.glob(f"{name}-*.journal"))
    return sorted(int(number) for stem, _, number in found if stem == name and number.isdigit())


def _has_begun(path: Path) -> bool:
    """Whether a journal's first line reached the disk."""
    with open_to_read(path) as file:
        first = file.read(len(MAGIC))
    return len(first) == len(MAGIC) and any(first)


def _whole_bytes(path: Path) -> int:
    """How far a journal is whole: 0 if not even its first line is."""
    if not _has_begun(path):
        return 0
    place = len(MAGIC)
    for end, _ in bodies(path, _REMEDY):
        place = end
    return place
