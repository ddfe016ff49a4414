"""Cells of a reproduction: independent runs, each kept in a file as soon as it has finished.

A reproduction that is stopped goes on after the cells that it has. A cell's file is named after all that its result
follows from, but for the program itself: after a change of an algorithm, remove the folder.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from colonnade.errors import RunError
from colonnade.files import json_of, make_folder, read_whole, write_atomically
from colonnade.reproductions.reproduction import Watch
from colonnade.trials.pool import run_each

Cell = TypeVar("Cell")
Found = TypeVar("Found")


def run_cells(
    work: Callable[[Cell], Found],
    cells: Sequence[Cell],
    kind: type[Found],
    folder: Path,
    watch: Watch,
    *,
    follows_from: Callable[[Cell], Any] = lambda cell: None,
    each: Callable[..., list[Any]] = run_each,
) -> list[Found]:
    """`[work(cell) for cell in cells]`: what `folder` has, and the others run now and kept there.

    Cells and results (of `kind`) are dataclasses. `follows_from`: what a result depends on beside the cell, such as a
    digest of the data. `watch` is told each result as it comes in.
    """
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
            known[cell] = kept
    if known:
        watch(f"{len(known)} of {len(places)} cells are kept in {folder}; the others are run now.")

    def finished(cell: Cell, found: Found) -> None:
        known[cell] = found
        content = {"cell": _values(cell), "found": msgspec.to_builtins(found)}
        write_atomically(places[cell], json.dumps(content).encode())
        watch(f"{len(known)}/{len(places)}  {cell}: {found}")

    each(work, [cell for cell in places if cell not in known], finished)
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


def _kept(path: Path, kind: type[Found]) -> Found | None:
    try:
        return msgspec.convert(json_of(read_whole(path))["found"], kind)
    except (OSError, ValueError, KeyError, TypeError, RunError, msgspec.ValidationError):
        return None  # not there, or not whole: run it
