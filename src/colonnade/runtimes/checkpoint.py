"""Checkpoints that are whole or absent.

A state is two files, NAME-NUMBER.safetensors and NAME-NUMBER.json. Each is written to a temporary file, synced and
renamed; the JSON goes last and holds the tensors' checksum, so a torn pair is recognised and the one before it is used.
The last two of a name are kept.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from colonnade.errors import RunError
from colonnade.party import State

_KEPT = 2


def write_checkpoint(directory: Path, name: str, number: int, state: State) -> None:
    """Save a state; on a full disk the checkpoints before it stay as they were."""
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"{name}-{number:010d}"
    tensors = {key: tensor.contiguous() for key, tensor in state.tensors.items()}
    blob = save(tensors)
    described = {"sha256": hashlib.sha256(blob).hexdigest(), "values": state.values}
    try:
        write_atomically(directory / f"{stem}.safetensors", blob)
        write_atomically(directory / f"{stem}.json", json.dumps(described).encode())
    except OSError as error:
        raise RunError(
            f"The checkpoint {directory / stem} could not be written: {error.strerror}. "
            "Free some space and resume; the checkpoint before it is untouched."
        ) from error
    for old in numbers_of(directory, name)[:-_KEPT]:
        for suffix in ("json", "safetensors"):
            (directory / f"{name}-{old:010d}.{suffix}").unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """The file appears with its whole content, or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def numbers_of(directory: Path, name: str) -> list[int]:
    """The numbers of the checkpoints of that name, oldest first."""
    found = (path.stem.rpartition("-") for path in directory.glob(f"{name}-*.json"))
    return sorted(int(number) for stem, _, number in found if stem == name and number.isdigit())


def read_checkpoint(directory: Path, name: str, number: int) -> State | None:
    """A saved state, or None if its files are torn."""
    stem = f"{name}-{number:010d}"  # a name may hold a dot, so no with_suffix
    try:
        described: dict[str, Any] = json.loads((directory / f"{stem}.json").read_text(encoding="utf-8"))
        blob = (directory / f"{stem}.safetensors").read_bytes()
        if hashlib.sha256(blob).hexdigest() != described["sha256"]:
            return None
        tensors: dict[str, torch.Tensor] = load(blob)
        return State(tensors, described["values"])
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
