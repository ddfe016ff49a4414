"""What each row of a party has cost, across its training and all predictions: a file beside the party's model.

Where a target is to be kept (`privacy.columns_epsilon`), every noised embedding of a row costs it, whatever it is for.
A prediction is written down before it begins, and until it has ended it counts as if it had released every row once. So
nothing that a crash leaves behind is forgotten, and a prediction that nobody ends makes others dearer, never cheaper.

Who serves releases a few rows at a time, and appends them to a journal beside the file, in the format of a party's
journal; when that has grown, the file is written anew and names the next journal.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from colonnade.errors import RunError
from colonnade.files import open_private, read_private, write_atomically
from colonnade.runtimes.run_lock import only_process_in
from colonnade.trace import MAGIC, Record, bodies, packed

FILE = "account.msgpack"
_PATIENCE_SECONDS = 10.0
_LEAST_JOURNAL_BYTES = 1 << 20  # it is not worth while to write the file anew for less
_REMEDY = "What each row has cost so far is in there: nothing may be released before it is put back."
_NOTHING = (0.0, 0.0)
Spent = dict[bytes, tuple[float, float]]
"""What each row has cost, in training and since."""


class _Kept(msgspec.Struct):
    """The file: rows by a hash of their ids, 16 bytes each, and what each has cost in μ²: in training, and since."""

    names: bytes
    spent: bytes  # two numbers each
    open: dict[str, float]  # predictions that have not ended, by their directories: what each row may cost there
    journal: int = 0  # which one holds what came after


def account_names(ids: Sequence[str]) -> list[bytes]:
    """By what rows are known in the account, which is their owner's alone."""
    return [hashlib.sha256(b"colonnade account\0" + one.encode()).digest()[:16] for one in ids]


class RowAccount:
    """The account of one party's rows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / FILE
        self._known: _Lookup | None = None  # what `afford` has read of it

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def create(self, trained: Mapping[bytes, float]) -> None:
        """At the end of a training: what each row has cost by then. What predictions have cost since stays."""
        with self._alone():
            known, under_way = self._read() if self.exists else ({}, {})
            since = {name: (0.0, cost) for name, (_, cost) in known.items() if cost}
            fresh = {name: (cost, since.get(name, (0.0, 0.0))[1]) for name, cost in trained.items()}
            self._write({**since, **fresh}, under_way)

    def totals(self) -> dict[bytes, float]:
        """What each row has cost by now; what has begun and not ended counts as if it had released every row."""
        with self._alone():
            spent, under_way = self._read()
        begun = sum(under_way.values())
        return {name: sum(cost) + begun for name, cost in spent.items()}

    def add(self, costs: Mapping[bytes, float]) -> None:
        """What somebody else than this model's own training and predictions has cost its rows."""
        with self._alone():
            spent, under_way = self._read() if self.exists else ({}, {})
            for name, cost in costs.items():
                _add(spent, name, cost)
            self._write(spent, under_way)

    def begin(self, run: Path, ids: Sequence[str], cost: float) -> NDArray[np.float64]:
        """Write down that a prediction begins; what its rows have cost so far."""
        with self._alone():
            spent, under_way = self._read()
            others = sum(one for other, one in under_way.items() if other != str(run))
            self._write(spent, {**under_way, str(run): cost})
        return np.array([sum(spent.get(name, _NOTHING)) + others for name in account_names(ids)])

    def end(self, run: Path, ids: Sequence[str], costs: NDArray[np.float64]) -> None:
        """A prediction has ended, and has cost its rows this much. Said twice, it counts once."""
        with self._alone():
            spent, under_way = self._read()
            if str(run) not in under_way:
                return
            for name, cost in zip(account_names(ids), costs.tolist(), strict=True):
                if cost:
                    _add(spent, name, cost)
            self._write(spent, {name: cost for name, cost in under_way.items() if name != str(run)})

    def afford(self, ids: Sequence[str], cost: float, limit: float) -> NDArray[np.bool_]:
        """Which of these rows may be released once more; that they are is written down.

        A row that is there twice is released twice, and each time costs its row as much.
        """
        with self._alone():
            known = self._looked_up()
            names = account_names(ids)
            affordable: NDArray[np.bool_] = known.totals(names) + known.begun + cost * _times(names) <= limit
            released = [name for name, can in zip(names, affordable, strict=True) if can]
            if released:
                self._append(known, released, cost)
                known.add(released, cost)
                if known.journal_bytes > max(_LEAST_JOURNAL_BYTES, known.file_bytes):
                    self._write(*self._read())
        return affordable

    def _looked_up(self) -> "_Lookup":
        """The file and its journal, read again if somebody else has written."""
        try:
            found = self._path.stat()
        except OSError:
            raise self._damaged() from None
        stamp = found.st_ino, found.st_mtime_ns, found.st_size
        known = self._known
        if known is None or known.stamp != stamp or known.journal_bytes != _size_of(self._journal(known.journal)):
            kept = self._decoded()
            known = self._known = _Lookup(kept, stamp)
            for names, cost, end in self._later(kept.journal):
                known.add(names, cost)
                known.journal_bytes = end
        return known

    def _append(self, known: "_Lookup", names: Sequence[bytes], cost: float) -> None:
        """On the disk before anything is released; a record that a crash has torn is overwritten."""
        record = packed(Record("Released", (cost, b"".join(names))))
        data = record if known.journal_bytes else MAGIC + record
        handle = open_private(self._journal(known.journal), os.O_WRONLY | os.O_CREAT)
        try:
            os.ftruncate(handle, known.journal_bytes)
            os.lseek(handle, known.journal_bytes, os.SEEK_SET)
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            os.fdatasync(handle)
        except OSError:
            self._known = None
            raise
        finally:
            os.close(handle)
        known.journal_bytes += len(data)

    def _journal(self, number: int) -> Path:
        return self._folder / f"account-{number}.journal"

    def _later(self, number: int) -> Iterator[tuple[list[bytes], float, int]]:
        """What came after the file was written: rows, what each of them cost, and where the record ends."""
        path = self._journal(number)
        if _size_of(path) < len(MAGIC):
            return
        for end, body in bodies(path, _REMEDY):
            _, cost, names = msgspec.msgpack.decode(body, type=tuple[str, float, bytes])
            yield [names[at : at + 16] for at in range(0, len(names), 16)], cost, end

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with only_process_in(self._folder, "account.lock", _PATIENCE_SECONDS):
            yield

    def _read(self) -> tuple[Spent, dict[str, float]]:
        kept = self._decoded()
        spent = map(tuple, np.frombuffer(kept.spent, "<f8").reshape(-1, 2).tolist())
        found: Spent = dict(zip(_names(kept), spent, strict=True))
        for names, cost, _ in self._later(kept.journal):
            for name in names:
                _add(found, name, cost)
        return found, kept.open

    def _decoded(self) -> _Kept:
        try:
            kept = msgspec.msgpack.decode(read_private(self._path), type=_Kept)
            if len(kept.spent) != len(kept.names):
                raise ValueError(FILE)
        except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
            raise self._damaged() from None
        return kept

    def _damaged(self) -> RunError:
        return RunError(
            f"{self._path} is missing or damaged, and with it what each row has cost so far: nothing may be "
            "released before it is put back."
        )

    def _write(self, spent: Spent, under_way: Mapping[str, float]) -> None:
        """The whole, what its journal held included; so that journal is over."""
        before = self._decoded().journal if self.exists else 0
        values = np.array([*spent.values()], "<f8").tobytes()
        kept = _Kept(b"".join(spent), values, dict(under_way), before + 1)
        write_atomically(self._path, msgspec.msgpack.encode(kept))
        self._journal(before).unlink(missing_ok=True)
        self._known = None


class _Lookup:
    """What an account holds, to be asked for a few rows at a time: the file as arrays, what came later beside it."""

    def __init__(self, kept: _Kept, stamp: tuple[int, int, int]) -> None:
        names = np.frombuffer(kept.names, "S16")
        order = np.argsort(names)
        self._names = names[order]
        self._totals = np.frombuffer(kept.spent, "<f8").reshape(-1, 2).sum(1)[order]
        self._later: dict[bytes, float] = {}
        self.begun = sum(kept.open.values())
        self.stamp, self.file_bytes = stamp, stamp[2]
        self.journal, self.journal_bytes = kept.journal, 0

    def totals(self, names: Sequence[bytes]) -> NDArray[np.float64]:
        """What each of these rows has cost."""
        later = np.array([self._later.get(name, 0.0) for name in names])
        if not len(self._names):
            return later
        wanted = np.array(names, "S16")
        at = np.minimum(np.searchsorted(self._names, wanted), len(self._names) - 1)
        found: NDArray[np.float64] = np.where(self._names[at] == wanted, self._totals[at], 0.0) + later
        return found

    def add(self, names: Sequence[bytes], cost: float) -> None:
        for name in names:
            self._later[name] = self._later.get(name, 0.0) + cost


def _times(names: Sequence[bytes]) -> NDArray[np.float64]:
    """For each how often its name has come by then: 1, unless a row is there twice."""
    if len(set(names)) == len(names):
        return np.ones(len(names))
    counted = Counter[bytes]()
    found = []
    for name in names:
        counted[name] += 1
        found.append(counted[name])
    return np.array(found, np.float64)


def _names(kept: _Kept) -> list[bytes]:
    return [kept.names[at : at + 16] for at in range(0, len(kept.names), 16)]


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _add(spent: Spent, name: bytes, cost: float) -> None:
    trained, since = spent.get(name, _NOTHING)
    spent[name] = trained, since + cost
