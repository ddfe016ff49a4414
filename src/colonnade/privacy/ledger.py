"""What has been released: every privacy event is written here before its value is sent, and never unwritten.

One line per event in ledger.jsonl, in the operating system's hands before the value leaves; and in memory, per kind of
event, how often each row was released. A crash between the line and the sending costs a line too many, never one too
few. A party that is rebuilt after a crash spends the same events again: they meet their lines and are counted once. An
event that meets another line stops it: what was released is what the file says, whatever the settings say now.

A disk sync for every event would be dear. So releases are reserved in blocks: ledger.reserved, synced before the first
value of a block leaves, says how many can have left at most, whatever else a loss of power takes away. Masked sums are
counted with them: they have no event, but a party that forgot one would use its mask again, for another sum.
"""

import json
import os
from errno import ENOSPC
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.errors import RunError
from colonnade.files import json_of, make_folder, open_private, read_private, sync_path
from colonnade.privacy.events import PrivacyEvent
from colonnade.state import State

_encode = msgspec.json.Encoder().encode
BLOCK_RELEASES = 2048
"""Reserved at once. Two disk syncs for so many releases: at 4 ms each, 4 µs a release."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_COUNTS = (np.uint16, np.uint32, np.uint64)
"""Few rows are released more often than 65,535 times: a count takes two bytes until one might need more."""
_HEAP_ROWS = 4096
_CHUNK_BYTES = 1 << 20
Counts = NDArray[np.unsignedinteger[Any]]


class _Kind:
    """Everything released by one party with one mechanism and one noise."""

    def __init__(self, party: str, event: PrivacyEvent, releases: int = 0, per_row: Counts | None = None) -> None:
        self.party = party
        self.event = event
        self.releases = releases
        self._per_row: Counts = np.zeros(0, _COUNTS[0]) if per_row is None else per_row
        self._waiting: list[NDArray[Any]] = []  # rows that are not in the counts yet
        self._waiting_rows = 0
        self._line = b""
        self._line_rows = -1

    def count(self, event: PrivacyEvent) -> None:
        """A microsecond or two, since it is part of every exchange: rows are added up in larger heaps."""
        self.releases += 1
        if event.row_ids is not None:
            self._waiting.append(event.row_ids.copy())
            self._waiting_rows += event.row_ids.size
            if self._waiting_rows >= _HEAP_ROWS:
                self._add_up()

    def per_row(self) -> Counts:
        """How often each row was released."""
        self._add_up()
        return self._per_row

    def _add_up(self) -> None:
        if not self._waiting_rows:
            return
        rows = np.concatenate(self._waiting)
        self._waiting.clear()
        self._waiting_rows = 0
        size, needed = self._per_row.size, int(rows.max()) + 1
        if needed > size:  # more than needed, so that growing stays cheap
            more = np.zeros(max(needed, size + size // 2) - size, self._per_row.dtype)
            self._per_row = np.concatenate([self._per_row, more])
        highest = int(self._per_row[rows].max()) + rows.size  # a row may be there several times
        if highest > np.iinfo(self._per_row.dtype).max:
            self._per_row = self._per_row.astype(next(kind for kind in _COUNTS if highest <= np.iinfo(kind).max))
        np.add.at(self._per_row, rows, self._per_row.dtype.type(1))  # a plain 1 takes ten times as long

    def line(self, event: PrivacyEvent) -> bytes:
        """What stands in the file for an event; events of one kind differ by the number of rows alone."""
        if event.rows != self._line_rows:
            self._line, self._line_rows = _encode(_line(self.party, event)) + b"\n", event.rows
        return self._line


class Ledger:
    """Counts privacy events, and writes them down if it was given a file."""

    def __init__(self, path: Path | None = None, resume_at: int | None = None, *, repeats: bool = True) -> None:
        """`resume_at`: where a checkpoint left the file. Lines after it belong to events that will be spent again.

        `repeats`: in the same order, so that each must be met by its line. A simulation with measured times does not.
        """
        self._repeats = repeats
        self._kinds: dict[tuple[Any, ...], _Kind] = {}
        self._file: BinaryIO | None = None
        self._reserved: _Reserved | None = None
        self._releases = 0  # noised values, and masked sums
        self._masked = 0  # of them, masked sums
        self._lines = 0  # in the file: at least one for each value that has left
        self._ahead: list[bytes] = []  # lines of events that are going to be spent again, the next one last
        self._path = path
        self._position = 0
        self._is_synced = True
        if path is not None:
            make_folder(path.parent)
            self._reserved = _Reserved(path.with_suffix(".reserved"))
            self._file = os.fdopen(open_private(path, os.O_RDWR | os.O_CREAT), "r+b", buffering=0)
            self._position = resume_at or 0
            if self._file.seek(0, 2) < self._position:
                self._file.close()
                raise RunError(
                    f"{path} is shorter than it was at the last checkpoint, and nothing here shortens it: what was "
                    "released is no longer known. Put the whole file back, or start anew in another directory."
                )
            self._lines = _lines_before(self._file, self._position)
            self._file.seek(self._position)
            after = self._file.read()
            whole = after[: after.rfind(b"\n") + 1]  # a line torn by a crash was never followed by its value
            self._ahead = whole.splitlines(keepends=True)[::-1]
            self._lines += len(self._ahead)
            self._is_synced = not self._ahead  # the process that wrote them may have died before it could see to that
            self._file.truncate(self._position + len(whole))
            self._file.seek(0, 2)

    def spend(self, party: str, event: PrivacyEvent) -> bool:
        """Write an event down; True: its value may leave. Budgets are kept by the party itself (parts/budget.py)."""
        key = (party, event.mechanism, event.sensitivity, event.noise, event.protects, event.viewers)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(party, event)
        kind.count(event)
        self._releases += 1
        if self._file is not None and self._reserved is not None:
            line = kind.line(event)
            if not self._ahead or not self._meets(line, party):
                written = self._file.write(line)
                if written < len(line):
                    self._file.truncate(self._file.tell() - written)
                    self._file.seek(0, 2)
                    raise OSError(ENOSPC, os.strerror(ENOSPC), str(self._path))
                self._lines += 1
                self._position += len(line)
                self._is_synced = False
            if self._releases > self._reserved.remembered:
                self._reserve(self._reserved)
        return True

    def use_mask(self) -> None:
        """Count a masked sum before it leaves; nothing is written about it but that it can have left."""
        self._releases += 1
        self._masked += 1
        if self._reserved is not None and self._releases > self._reserved.remembered:
            self._reserve(self._reserved)

    def _meets(self, line: bytes, party: str) -> bool:
        """Find the line of an event that is spent again; False if a loss of power took it. RunError if there is none.

        Lines before it are of events that nobody remembers: a process died between such a line and its journal.
        """
        while self._ahead:
            found = self._ahead.pop()
            self._position += len(found)
            if found == line or not self._repeats:
                return True
        if self._reserved is not None and self._reserved.is_of_another_boot:
            return False
        if self._file is not None:
            self._file.close()  # so that nothing is given back either
        raise RunError(
            f"{party} would account for its release {self._releases} otherwise than {self._path} does, though that one "
            "is to be repeated: the settings, the data or the program of this run were changed after it began, or its "
            "ledger was. What has left was noised as the ledger says. Put back what the run began with; or begin a new "
            "one in another directory, and count what this one's ledger says as spent."
        )

    def _reserve(self, reserved: "_Reserved") -> None:
        """A block from this release on. Waits for the disk."""
        self._sync()
        reserved.write(max(self._releases + BLOCK_RELEASES - 1, self._lines))

    def _sync(self) -> None:
        if self._file is not None and not self._is_synced:
            os.fsync(self._file.fileno())
            self._is_synced = True

    def settle(self, journal_is_synced: bool = False) -> None:
        """A rebuilt party has spent everything again that it had: lines that are left had no value sent after them.

        RunError if the machine went down meanwhile, and values may have left that the party does not remember: it
        would draw their noise again, for other values. With a journal that is synced it remembers all.
        """
        if self._file is not None and self._reserved is not None:
            try:
                what = "noised releases" if self._lines else "masked sums"  # these have no line
                self._reserved.go_on(self._releases, journal_is_synced, what)
            except RunError:
                self._file.close()  # so that nothing is given back either
                raise
        self._position += sum(map(len, self._ahead))
        self._ahead.clear()

    def summary(self) -> list[dict[str, Any]]:
        """Exactly which events occurred, per party and mechanism."""
        return [
            {
                "party": kind.party,
                "mechanism": kind.event.mechanism,
                "sensitivity": _number(kind.event.sensitivity),
                "noise": kind.event.noise,
                "releases": kind.releases,
                "rows": int(np.count_nonzero(kind.per_row())),
                "max_releases_per_row": int(kind.per_row().max(initial=0)),
                "protects": kind.event.protects,
                "viewers": list(kind.event.viewers),
            }
            for kind in self._kinds.values()
        ]

    def by_row(self) -> list[dict[str, Any]]:
        """As `summary`, with how often each row was released: for accounting, at its owner's."""
        return [
            {**_line(kind.party, kind.event), "releases": kind.releases, "per_row": kind.per_row()}
            for kind in self._kinds.values()
        ]

    # --- checkpoints ---

    def state(self) -> State:
        """What a checkpoint keeps; the file is on the disk as far as it says."""
        self._sync()
        kinds = [{**_line(kind.party, kind.event), "releases": kind.releases} for kind in self._kinds.values()]
        rows = {str(place): torch.from_numpy(kind.per_row().copy()) for place, kind in enumerate(self._kinds.values())}
        masked = {"masked": self._masked} if self._masked else {}
        return State(rows, {"position": self._position, "kinds": kinds, **masked})

    def restore(self, state: State) -> None:
        """Become the ledger of a checkpoint."""
        self._kinds.clear()
        for place, saved in enumerate(state.values["kinds"]):
            sensitivity = float("inf") if saved["sensitivity"] is None else saved["sensitivity"]
            event = PrivacyEvent(
                mechanism=saved["mechanism"],
                sensitivity=sensitivity,
                noise=saved["noise"],
                rows=saved["rows"],
                row_ids=None,
                protects=saved["protects"],
                viewers=tuple(saved["viewers"]),
            )
            key = (saved["party"], event.mechanism, sensitivity, event.noise, event.protects, event.viewers)
            per_row = state.tensors[str(place)].numpy().copy()
            self._kinds[key] = _Kind(saved["party"], event, saved["releases"], per_row)
        self._masked = int(state.values.get("masked", 0))
        self._releases = self._masked + sum(kind.releases for kind in self._kinds.values())

    def abandon(self) -> None:
        """Let go of the file without giving anything back: how much has left is not known."""
        if self._file is not None:
            self._file.close()

    def close(self) -> None:
        """The end of a process, in order: what was reserved and not used is given back, but for what has a line."""
        if self._file is not None and not self._file.closed:
            self._sync()
            most = max(self._releases, self._lines)
            if self._reserved is not None and (self._reserved.releases, self._reserved.remembered) != (
                most,
                self._releases,
            ):
                self._reserved.write(most, remembered=self._releases)
            self._file.close()


def check_journal(path: Path, journal_exists: bool, party: str) -> None:
    """RunError if a party has released something and lost its journal, which is there before anything is released."""
    kept = [one for one in (path, path.with_suffix(".reserved")) if one.exists() and one.stat().st_size]
    if journal_exists or not kept:
        return
    raise RunError(
        f"{party} has a ledger of what it has released ({kept[0]}), but no journal: it has forgotten what it sent, and "
        "would draw the same noise, or use the same masks, again for other values. Put the whole directory back as it "
        "was; or begin a new run in another one, and count what this one's ledger says as spent."
    )


class _Reserved:
    """ledger.reserved: a line per block, each synced before anything leaves that counts on it. The last one is true.

    A line says up to how many releases can have left, and since which start of the machine: while that is the same,
    the operating system has kept everything that it was given. After an end in order also how many of them the party
    remembers: fewer, if it died between a line and its value.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._boot = _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.exists() else ""
        self._written_at = self._boot
        self._whole_bytes = 0  # a line torn by a crash was not counted on yet
        self.releases = self.remembered = 0
        whole, newline, _ = (read_private(path) if path.exists() else b"").rpartition(b"\n")
        if newline:
            try:
                last = json_of(whole.splitlines()[-1])
                self.releases, self._written_at = int(last["releases"]), str(last["boot"])
                self.remembered = int(last.get("remembered", self.releases))
            except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError):
                raise RunError(
                    f"{path} is damaged, so it is not known how much was released. Put the file back as it was, or "
                    "begin a new run in another directory and count what this one's ledger says as spent."
                ) from None
            self._whole_bytes = len(whole) + 1

    @property
    def is_of_another_boot(self) -> bool:
        """Whether the machine went down since, so that what was not synced may be lost."""
        return self._written_at != self._boot

    def go_on(self, remembered: int, journal_is_synced: bool, what: str) -> None:
        """Take the reservation over from a process before this one."""
        # Where the system does not say which start of the machine this is, it may have gone down.
        if (self._boot and not self.is_of_another_boot) or self.remembered <= remembered:
            return
        if not journal_is_synced:
            down = "went down" if self._boot else "may have gone down"
            same = "use the same masks" if what == "masked sums" else "draw the same noise"
            raise RunError(
                f"The machine {down} while this party ran: {remembered} {what} are remembered, and up to "
                f"{self.releases} can have left ({self._path}). To go on would {same} again for other values. End this "
                "run, and count the larger number as spent. With endurance.sync = true a party survives that, at the "
                "price of a disk sync for every turn."
            )
        self.write(self.releases)

    def write(self, releases: int, remembered: int | None = None) -> None:
        told = {} if remembered in (None, releases) else {"remembered": remembered}
        line = json.dumps({"releases": releases, "boot": self._boot, **told}).encode() + b"\n"
        handle = open_private(self._path, os.O_WRONLY | os.O_CREAT)
        try:
            os.ftruncate(handle, self._whole_bytes)
            if os.pwrite(handle, line, self._whole_bytes) < len(line):
                raise OSError(ENOSPC, os.strerror(ENOSPC), str(self._path))
            os.fsync(handle)
        finally:
            os.close(handle)
        if not self._whole_bytes:  # that there are such files must be on the disk too
            sync_path(self._path.parent)
        self._whole_bytes += len(line)
        self.releases, self._written_at = releases, self._boot
        self.remembered = releases if remembered is None else remembered


def _lines_before(file: BinaryIO, position: int) -> int:
    file.seek(0)
    lines = 0
    while position > 0 and (chunk := file.read(min(_CHUNK_BYTES, position))):
        lines += chunk.count(b"\n")
        position -= len(chunk)
    return lines


def _line(party: str, event: PrivacyEvent) -> dict[str, Any]:
    return {
        "party": party,
        "mechanism": event.mechanism,
        "sensitivity": _number(event.sensitivity),
        "noise": event.noise,
        "rows": event.rows,
        "protects": event.protects,
        "viewers": list(event.viewers),
    }


def _number(value: float) -> float | None:
    """JSON has no infinity; None means unbounded."""
    return None if value == float("inf") else value
