"""Checkpoints that are whole or absent.

A state is two files, NAME-NUMBER.safetensors and NAME-NUMBER.json. Each is written to a temporary file, synced and
renamed; the JSON goes last and holds the tensors' checksum, so a torn pair is recognised and the one before it is used.
The last two of a name are kept. Of large arrays there is a third file, of the rows that have changed since the
checkpoint before (row_files.py).
"""

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file

from colonnade.errors import RunError
from colonnade.files import appearing, json_of, make_folder, names_in, read_private, write_atomically
from colonnade.runtimes.row_files import saved_rows, taken_rows
from colonnade.state import State

_KEPT = 2


class CheckpointError(RunError):
    """A checkpoint could not be written; those before it are untouched."""


def write_checkpoint(directory: Path, name: str, number: int, state: State) -> None:
    """Save a state; on a full disk the checkpoints before it stay as they were."""
    taken = KeptState(directory, name, number, state)
    try:
        taken.write()
    except BaseException:
        taken.is_lost()
        raise
    taken.stands()


class KeptState:
    """A state of which everything that changes was copied: it may be written while its party goes on.

    In this order: made and, when it is written or not, `stands` or `is_lost` by the party; `write` by anybody.
    """

    def __init__(self, directory: Path, name: str, number: int, state: State) -> None:
        self._directory = directory
        self._name = name
        self._stem = f"{name}-{number:010d}"
        self._tensors = {key: tensor.contiguous() for key, tensor in state.tensors.items()}  # copies by contract
        self._values = json.dumps(state.values)
        self._rows = taken_rows(directory, name, number, state.large)

    @property
    def is_large(self) -> bool:
        """Whether everybody would wait for it to be written."""
        return self._rows is not None

    def write(self) -> None:
        directory, stem, rows = self._directory, self._stem, self._rows
        try:
            make_folder(directory)
            with appearing(directory / f"{stem}.safetensors") as unfinished:
                save_file(self._tensors, unfinished)
                with unfinished.open("rb") as written:
                    checksum = hashlib.file_digest(written, "sha256").hexdigest()
            described = f'{{"sha256": "{checksum}", "values": {self._values}'
            if rows is not None:
                rows.write()
                described += f', "rows": {json.dumps(rows.described())}'
            write_atomically(directory / f"{stem}.json", (described + "}").encode())
        except (OSError, SafetensorError) as error:
            with suppress(OSError):  # it may stand, not synced: the journal goes on after the one before
                (directory / f"{stem}.json").unlink(missing_ok=True)
            raise CheckpointError(
                f"The checkpoint {directory / stem} could not be written: {getattr(error, 'strerror', error)}. "
                "Free some space and resume; the checkpoint before it is untouched."
            ) from error

    def stands(self) -> None:
        """What was before it is removed."""
        with suppress(OSError):  # the checkpoint stands, whatever becomes of old ones: they are removed the next time
            for old in numbers_of(self._directory, self._name)[:-_KEPT]:
                for suffix in ("json", "safetensors"):
                    (self._directory / f"{self._name}-{old:010d}.{suffix}").unlink(missing_ok=True)
        if self._rows is not None:
            self._rows.are_safe()

    def is_lost(self) -> None:
        """It could not be written."""
        if self._rows is not None:
            self._rows.are_lost()


def numbers_of(directory: Path, name: str) -> list[int]:
    """The numbers of the checkpoints of that name, oldest first."""
    start, end = f"{name}-", ".json"
    found = (file for file in names_in(directory) if file.startswith(start) and file.endswith(end))
    return sorted(int(number) for file in found if (number := file[len(start) : -len(end)]).isdigit())


def read_checkpoint(directory: Path, name: str, number: int) -> State | None:
    """A saved state, or None if its files are torn."""
    stem = f"{name}-{number:010d}"  # a name may hold a dot, so no with_suffix
    try:
        described: dict[str, Any] = json_of(read_private(directory / f"{stem}.json"))
        blob = read_private(directory / f"{stem}.safetensors")
        if hashlib.sha256(blob).hexdigest() != described["sha256"]:
            return None
        tensors: dict[str, torch.Tensor] = load(blob)
        return State(tensors, described["values"], saved_rows(directory, name, described.get("rows", {})))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return None


def read_latest(directory: Path, names: list[str]) -> tuple[int, dict[str, State]]:
    """The newest checkpoint that is whole for all of these names."""
    for number in reversed(numbers_of(directory, names[0]) if names else []):
        states = {name: read_checkpoint(directory, name, number) for name in names}
        if all(state is not None for state in states.values()):
            return number, {name: state for name, state in states.items() if state is not None}
    raise RunError(
        f"There is no whole checkpoint in {directory}. Start the run again without --resume, in a new directory."
    )


def joined_frames(frames: Iterable[bytes | bytearray]) -> torch.Tensor:
    """Frames one after another, as a checkpoint keeps them; their sizes are kept beside."""
    return torch.frombuffer(bytearray(b"".join(frames) or b"\0"), dtype=torch.uint8)


def split_frames(joined: torch.Tensor, sizes: Iterable[int]) -> list[bytearray]:
    """The frames that `joined_frames` put together."""
    blob = joined.numpy().tobytes()
    frames: list[bytearray] = []
    place = 0
    for size in sizes:
        frames.append(bytearray(blob[place : place + size]))
        place += size
    return frames
