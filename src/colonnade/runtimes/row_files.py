"""Large arrays in checkpoints, a few rows at a time: each file has the rows that had changed since the one before it.

Changed rows are copied first (`taken_rows`) and written then, perhaps while their owner goes on.

A checkpoint NAME-NUMBER names the files that its rows lie in, NAME-NUMBER.rows, with their checksums; rows that are in
none of them are zeros, and a row is in the newest file that has it. A file that no kept checkpoint names is removed. So
that files do not pile up, every checkpoint also takes some rows of the oldest over, once there are many or most of what
they hold is out of date: what is written at a time is bounded, and so is how long everybody waits for it.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from colonnade.errors import RunError
from colonnade.files import appearing, names_in, open_private, open_to_read
from colonnade.state import ChangedRows, HeldArrays, LargeArrays, RowFile, check_shape

_ENDING = ".rows"
_MOST_FILES = 24
_TAKEN_OVER_BYTES = 8 << 20  # of the oldest file's rows, by one checkpoint
_ROWS_AT_ONCE = 1 << 16
_BYTES_AT_ONCE = 1 << 20
_DTYPES = {"float32": "F32", "float16": "F16", "float64": "F64", "int64": "I64", "int32": "I32"}
"""As safetensors calls them."""


@dataclass
class _Taken:
    """Rows of one group of arrays, copied: what a file is going to have."""

    changed: ChangedRows
    rows: NDArray[np.int64]
    new: NDArray[np.bool_]  # which of them have changed; the others are taken over
    copies: dict[str, NDArray[Any]]
    files: dict[int, RowFile]  # all that the checkpoint rests on

    def describe(self) -> dict[str, Any]:
        numbered = [[number, one.checksum, one.rows] for number, one in sorted(self.files.items())]
        return {"rows": len(self.changed.flags), "files": numbered}


class KeptRows:
    """Rows that were copied for a checkpoint, so that their owner goes on while they are written."""

    def __init__(self, directory: Path, name: str, number: int, taken: dict[str, _Taken]) -> None:
        self._directory = directory
        self._name = name
        self._number = number
        self._taken = taken

    def write(self) -> None:
        """Their file; looks at nothing that changes meanwhile."""
        arrays: dict[str, NDArray[Any]] = {}
        for group, one in self._taken.items():
            if one.rows.size:
                arrays[f"{group}/rows"] = one.rows
                arrays |= {f"{group}/{key}": copy for key, copy in one.copies.items()}
            one.copies = {}
        if not arrays:
            return
        with appearing(_path(self._directory, self._name, self._number)) as unfinished:
            checksum = save_arrays(unfinished, arrays)
        for one in self._taken.values():
            if one.rows.size:
                one.files[self._number] = RowFile(checksum, one.rows.size, one.rows.size)

    def described(self) -> dict[str, Any]:
        """For the checkpoint: by group how many rows there are, and its files, the oldest first."""
        return {group: one.describe() for group, one in self._taken.items()}

    def are_safe(self) -> None:
        """The checkpoint stands: the next one begins from here, and what no kept one rests on is removed."""
        needed: set[int] = set()
        for one in self._taken.values():
            needed |= {*one.files, *one.changed.files}  # of this checkpoint, and of the one before
            one.changed.are_written(one.rows, self._number, one.files, _place(self._directory, self._name))
        with suppress(OSError):  # the next time
            for number in _numbers(self._directory, self._name):
                if number not in needed:
                    _path(self._directory, self._name, number).unlink(missing_ok=True)

    def are_lost(self) -> None:
        """The checkpoint could not be written: what had changed goes into the next one."""
        for one in self._taken.values():
            one.changed.are_not_written(one.rows[one.new])


def taken_rows(directory: Path, name: str, number: int, large: Mapping[str, LargeArrays]) -> KeptRows | None:
    """Copy the changed rows of large arrays; None where there are no such arrays."""
    taken: dict[str, _Taken] = {}
    for group, held in large.items():
        changed = held.changed
        if not isinstance(held, HeldArrays) or changed is None:
            continue
        if changed.folder != _place(directory, name):
            changed.move()  # its rows are in files of another run directory, or in none
        rows = _to_write(changed)
        copies = {key: array.take(rows, 0) for key, array in held.arrays.items()}
        taken[group] = _Taken(changed, rows, changed.flags[rows], copies, changed.files_without(rows))
        changed.are_taken()
    return KeptRows(directory, name, number, taken) if taken else None


def _to_write(changed: ChangedRows) -> NDArray[np.int64]:
    """The rows that have changed, and some of the oldest file's."""
    rows = np.flatnonzero(changed.flags)
    held, used = (sum(getattr(one, what) for one in changed.files.values()) for what in ("rows", "used"))
    if len(changed.files) <= _MOST_FILES and held <= 2 * used:
        return rows
    old = np.flatnonzero((changed.file == min(changed.files)) & ~changed.flags)
    return np.sort(np.concatenate([rows, old[: max(1, _TAKEN_OVER_BYTES // changed.row_bytes)]]))


# --- and back -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SavedRows:
    """Large arrays as the files of a checkpoint have them."""

    _directory: Path
    _name: str
    _group: str
    _rows: int
    _files: Mapping[int, str]  # number → checksum, the oldest first

    changed: ChangedRows | None = None

    def copy_into(self, arrays: Mapping[str, NDArray[Any]], changed: ChangedRows | None) -> None:
        """Write every row into the arrays, file by file, some rows at a time: no second copy of them is made."""
        for key, array in arrays.items():
            check_shape(key, (self._rows,), array.shape[:1])
            if changed is None or not changed.is_new:
                array[...] = 0
        file_of_row: NDArray[np.int32] = np.zeros(self._rows, np.int32)
        held = {}
        for number, checksum in self._files.items():
            with safe_open(_path(self._directory, self._name, number), framework="pt") as file:
                rows = file.get_tensor(f"{self._group}/rows").numpy()
                file_of_row[rows] = number
                held[number] = (checksum, rows.size)
                for key, array in arrays.items():
                    self._copy(file.get_tensor(f"{self._group}/{key}").numpy(), rows, array, key)
        if changed is not None:
            used = dict(zip(*(one.tolist() for one in np.unique(file_of_row, return_counts=True)), strict=True))
            files = {number: RowFile(*told, used.get(number, 0)) for number, told in held.items()}
            changed.take_up(file_of_row, files, _place(self._directory, self._name))

    def _copy(self, kept: NDArray[Any], rows: NDArray[np.int64], array: NDArray[Any], key: str) -> None:
        check_shape(key, kept.shape[1:], array.shape[1:])
        if kept.dtype != array.dtype:
            raise RunError(
                f"The saved state has {key!r} as {kept.dtype} where this run needs {array.dtype}. Resume with the "
                "settings that the run was started with."
            )
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = slice(start, start + _ROWS_AT_ONCE)
            array[rows[some]] = kept[some]


def saved_rows(directory: Path, name: str, described: Any) -> dict[str, LargeArrays]:
    """What a checkpoint's files of rows hold; ValueError or OSError if one of them is not as it was written."""
    if not isinstance(described, Mapping):
        raise ValueError("what is said of the files of rows is no table")
    checked: set[int] = set()
    found: dict[str, LargeArrays] = {}
    for group, told in described.items():
        files = {int(number): str(checksum) for number, checksum, _ in told["files"]}
        for number, checksum in files.items():
            if number not in checked and _checksum(_path(directory, name, number)) != checksum:
                raise ValueError("a file of rows is torn")
            checked.add(number)
        found[group] = SavedRows(directory, name, group, int(told["rows"]), files)
    return found


# --- files ----------------------------------------------------------------------------------------------------------


def _place(directory: Path, name: str) -> str:
    return str(directory.absolute() / name)


def _path(directory: Path, name: str, number: int) -> Path:
    return directory / f"{name}-{number:010d}{_ENDING}"


def _numbers(directory: Path, name: str) -> list[int]:
    start = f"{name}-"
    found = (file for file in names_in(directory) if file.startswith(start) and file.endswith(_ENDING))
    return [int(number) for file in found if (number := file[len(start) : -len(_ENDING)]).isdigit()]


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Arrays in the format of safetensors, straight from memory; gives the file's checksum.

    The library copies each and holds Python's lock while it writes: here others go on meanwhile.
    """
    told: dict[str, Any] = {}
    place = 0
    for name, array in arrays.items():
        told[name] = {
            "dtype": _DTYPES[array.dtype.name],
            "shape": [*array.shape],
            "data_offsets": [place, place + array.nbytes],
        }
        place += array.nbytes
    header = json.dumps(told).encode()
    header += b" " * (-len(header) % 8)
    found = hashlib.blake2b()
    start_of_file = np.frombuffer(len(header).to_bytes(8, "little") + header, np.uint8)
    file = open_private(path, os.O_WRONLY)
    try:
        for part in (start_of_file, *arrays.values()):
            content = np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
            for start in range(0, len(content), _BYTES_AT_ONCE):
                piece = content[start : start + _BYTES_AT_ONCE]
                found.update(piece)
                while piece:
                    piece = piece[os.write(file, piece) :]
    finally:
        os.close(file)
    return found.hexdigest()


def _checksum(path: Path) -> str:
    """BLAKE2b, at half of the cost of SHA-256: everybody waits for it."""
    found = hashlib.blake2b()
    with open_to_read(path) as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()
