"""Cells of a reproduction: independent runs, each kept in a file as soon as it has finished.

A reproduction that is stopped goes on after the cells that it has. A cell's file is named after all that its result
follows from, but for the program itself: after a change of an algorithm, remove the folder.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from colonnade.errors import RunError
from colonnade.files import json_of, make_folder, read_whole, write_atomically
from colonnade.reproductions.reproduction import Scope

Cell = TypeVar("Cell")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Work:
    """A cell and the function that runs it, as a worker process is told."""

    work: Callable[[Any], Any]
    cell: Any


def measured(job: Work) -> tuple[Any, float]:
    """What a cell gave, and the processor seconds that it took, programs that it started included.

    Those of a busy machine are those of an idle one.
    """
    began = sum(os.times()[:4])
    return job.work(job.cell), sum(os.times()[:4]) - began


def run_cells(
    work: Callable[[Cell], Found],
    cells: Sequence[Cell],
    kind: type[Found],
    scope: Scope,
    *,
    follows_from: Callable[[Cell], Any] = lambda cell: None,
) -> list[Found]:
    """`[work(cell) for cell in cells]`: what the scope's folder has, and the others run now and kept there.

    Cells and results (of `kind`) are dataclasses. `follows_from`: what a result depends on beside the cell, such as a
    digest of the data. Whoever watches is told each result as it comes in.
    """
    folder = scope.cells
    try:
        make_folder(folder)
    except OSError as error:
        raise RunError(
            f"The directory {folder} could not be made: {error.strerror}. Start the reproduction where you may write."
        ) from None
    places = {cell: folder / _file_name(cell, follows_from(cell)) for cell in cells}
    known: dict[Cell, Found] = {}
    for cell, path in places.items():
        kept = _kept(path, kind)
        if kept is not None:
            known[cell], seconds = kept
            scope.processor_seconds.append(seconds)
    if known:
        scope.watch(f"{len(known)} of {len(places)} cells are kept in {folder}; the others are run now.")

    def finished(job: Work, result: tuple[Found, float]) -> None:
        cell, (found, seconds) = job.cell, result
        known[cell] = found
        scope.processor_seconds.append(seconds)
        content = {"cell": _values(cell), "found": msgspec.to_builtins(found), "processor_seconds": seconds}
        write_atomically(places[cell], json.dumps(content).encode())
        scope.watch(f"{len(known)}/{len(places)}  {cell}: {found}")

    scope.each(measured, [Work(work, cell) for cell in places if cell not in known], finished)
    return [known[cell] for cell in cells]


def _values(cell: Any) -> Any:
    assert is_dataclass(cell) and not isinstance(cell, type)
    return asdict(cell)


def _file_name(cell: Any, follows_from: Any) -> str:
    """Words that a reader knows the cell by, and a digest of everything."""
    words = [f"{value:g}" if isinstance(value, float) else str(value) for value in _values(cell).values()]
    readable = "-".join(word for word in words if word and word.replace(".", "").replace("_", "").isalnum())
    digest = sha256(repr((cell, follows_from)).encode()).hexdigest()[:12]
    return f"{readable[:80]}-{digest}.json"


def _kept(path: Path, kind: type[Found]) -> tuple[Found, float] | None:
    try:
        content = json_of(read_whole(path))
        return msgspec.convert(content["found"], kind), float(content["processor_seconds"])
    except (OSError, ValueError, KeyError, TypeError, RunError, msgspec.ValidationError):
        return None  # not there, or not whole: run it
