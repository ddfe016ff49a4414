"""What each row of a party has cost, across its training and all predictions: a file beside the party's model.

Where a target is to be kept (`privacy.columns_epsilon`), every noised embedding of a row costs it, whatever it is for.
A prediction is written down before it begins, and until it has ended it counts as if it had released every row once. So
nothing that a crash leaves behind is forgotten, and a prediction that nobody ends makes others dearer, never cheaper.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from colonnade.errors import RunError
from colonnade.files import read_private, write_atomically
from colonnade.runtimes.run_lock import only_process_in

FILE = "account.msgpack"
_PATIENCE_SECONDS = 10.0
_NOTHING = (0.0, 0.0)
Spent = dict[bytes, tuple[float, float]]
"""What each row has cost, in training and since."""


class _Kept(msgspec.Struct):
    """The file: rows by a hash of their ids, 16 bytes each, and what each has cost in μ²: in training, and since."""

    names: bytes
    spent: bytes  # two numbers each
    open: dict[str, float]  # predictions that have not ended, by their directories: what each row may cost there


def account_names(ids: Sequence[str]) -> list[bytes]:
    """By what rows are known in the account, which is their owner's alone."""
    return [hashlib.sha256(b"colonnade account\0" + one.encode()).digest()[:16] for one in ids]


class RowAccount:
    """The account of one party's rows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / FILE

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
        """Which of these rows may be released once more; that they are is written down."""
        with self._alone():
            spent, under_way = self._read()
            begun = sum(under_way.values())
            names = account_names(ids)
            affordable = np.array([sum(spent.get(name, _NOTHING)) + begun + cost <= limit for name in names], np.bool_)
            for name, can in zip(names, affordable, strict=True):
                if can:
                    _add(spent, name, cost)
            if affordable.any():
                self._write(spent, under_way)
        return affordable

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with only_process_in(self._folder, "account.lock", _PATIENCE_SECONDS):
            yield

    def _read(self) -> tuple[Spent, dict[str, float]]:
        try:
            kept = msgspec.msgpack.decode(read_private(self._path), type=_Kept)
            spent = map(tuple, np.frombuffer(kept.spent, "<f8").reshape(-1, 2).tolist())
            names = [kept.names[at : at + 16] for at in range(0, len(kept.names), 16)]
            return dict(zip(names, spent, strict=True)), kept.open
        except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
            raise RunError(
                f"{self._path} is missing or damaged, and with it what each row has cost so far: nothing may be "
                "released before it is put back."
            ) from None

    def _write(self, spent: Spent, under_way: Mapping[str, float]) -> None:
        values = np.array([*spent.values()], "<f8").tobytes()
        write_atomically(self._path, msgspec.msgpack.encode(_Kept(b"".join(spent), values, dict(under_way))))


def _add(spent: Spent, name: bytes, cost: float) -> None:
    trained, since = spent.get(name, _NOTHING)
    spent[name] = trained, since + cost
