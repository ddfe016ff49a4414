"""A grid of settings, times seeds: every cell is a simulated run in a directory of its own, several at a time.

The cells share nothing, so they run in processes of this machine or as tasks of a Ray cluster. A cell's directory is
named after its settings: a sweep that was stopped goes on with the cells that are missing, also in a larger grid. One
that fails is a row with its sentence and does not end the sweep; a value that could be in no cell is refused before the
first of them begins.
"""

import csv
import io
import json
import os
import re
import shutil
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, TypedDict

import tomli_w

from colonnade.errors import ColonnadeError, SettingsError
from colonnade.federation.file import digest, federation_values, parse_federation, read_federation
from colonnade.files import json_of, json_text, make_folder, read_whole, write_atomically
from colonnade.launch.experiment import train_plan
from colonnade.launch.run_options import RunOptions
from colonnade.prediction.starting import load_with_start
from colonnade.reports.summary import Summary
from colonnade.runtimes.checkpoint import numbers_of
from colonnade.threads import compute_with
from colonnade.trials.pool import on_cluster, run_each

VALIDATION = 0.2
"""The share of the training rows on which cells are compared, unless told otherwise."""
VALIDATED = "validated"  # the folder of such cells, apart from those that trained on all rows

MEASURED = ("metric", "train_loss", "exchanges", "virtual_seconds", "bytes")
"""What is told of a cell, and as mean and deviation of its row."""


@dataclass(frozen=True)
class Cell:
    """One run of a grid: what differs from the file, and the whole settings that follow; or why they cannot be."""

    changes: dict[str, str]  # setting → value, as `--set` takes it
    seed: int
    directory: Path
    values: dict[str, Any]
    refused: str = ""

    def absolute(self) -> str:
        """Its directory, for a process that may work elsewhere."""
        return str(self.directory.absolute())


class Job(TypedDict):
    """A cell as the process that runs it is given it: plain values."""

    place: int  # among the cells
    values: dict[str, Any]  # of its federation.toml
    base: str  # the folder that files are relative to
    directory: str
    validation: float  # the share of the training rows that are scored in place of the test rows; 0: none


class Measured(TypedDict):
    """What one cell came to; figures are None where it failed."""

    status: str  # "finished" | "failed"
    why: str
    metric_name: str | None
    metric: float | None
    train_loss: float | None
    exchanges: int | None
    virtual_seconds: float | None
    bytes: int | None
    wall_seconds: float | None


CellFinished = Callable[[dict[str, Any], int, int], None]
"""Is given a cell as it ends, how many have ended and how many there are."""


def sweep(
    federation: str | Path,
    each: Mapping[str, Sequence[Any]],
    *,
    seeds: Sequence[int] = (0,),
    out: str | Path,
    changes: Sequence[str] = (),
    workers: int | None = None,
    address: str | None = None,
    resume: bool = False,
    finished: CellFinished | None = None,
    validation: float = VALIDATION,
) -> dict[str, Any]:
    """Run every combination of the values in `each` with every seed, and return what sweep.json holds.

    `each` has the values of settings by name, such as {"training.learning_rate": [0.01, 0.1]}; `changes` are settings
    for all cells, such as "training.epochs=5". Cells run in `workers` processes (default: one a core; with 1 in this
    one), or with `address` on the Ray cluster there, whose nodes must share `out` and the data. `finished` is given
    each cell as it ends, with how many have ended and how many there are. `validation` is the share of the training
    rows that every cell is scored on and does not train on; the best row is then trained on all of them, and that run
    alone looks at the test rows. With 0 all cells do, and nothing more is run. A script that calls this must not do so
    while it is imported: put the call under `if __name__ == "__main__":`.

    >>> import colonnade, tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     file = Path(place, "federation.toml")
    ...     _ = file.write_text('[data]\\nset = "iris"\\nparties = 2\\n[training]\\nepochs = 1')
    ...     each = {"training.learning_rate": [0.01, 0.1]}
    ...     found = colonnade.sweep(file, each, out=f"{place}/sweep", workers=1, validation=0)
    >>> [row["changes"] for row in found["rows"]]
    [{'training.learning_rate': '0.01'}, {'training.learning_rate': '0.1'}]
    """
    directory = Path(out)
    if not 0 <= validation < 1:
        raise SettingsError(f"The validation part is {validation} of the training rows; give 0 or more, below 1.")
    cells = plan_cells(Path(federation), each, seeds, directory / (VALIDATED if validation else ""), changes)
    if all(cell.refused for cell in cells):
        raise SettingsError(cells[0].refused)
    _check_values(Path(federation), cells, changes)
    open_directory(directory, resume)
    how = CellOptions(str(Path(federation).resolve().parent), validation, workers, address)
    results = run_cells(cells, directory, how, finished)
    result = gathered(each, seeds, results)
    result["scored_on"] = f"{validation:.0%} of the training rows, held out" if validation else "the test rows"
    result["best"] = _tested(cells, result["rows"], seeds, directory, how.base) if validation else None
    write_atomically(directory / "sweep.json", json_text(result))
    write_atomically(directory / "sweep.csv", as_csv(result).encode())
    return result


@dataclass(frozen=True)
class CellOptions:
    """Where cells run, and on which rows they are scored."""

    base: str  # the folder that files are relative to
    validation: float
    workers: int | None = None  # processes; None: one per core
    address: str | None = None  # of a Ray cluster, instead


def run_cells(
    cells: Sequence[Cell], directory: Path, how: CellOptions, finished: CellFinished | None = None
) -> list[dict[str, Any]]:
    """What every cell came to, in their order; those that have finished before are not run again."""
    results = _Results(directory, cells, finished)
    jobs = [
        Job(place=place, values=cell.values, base=how.base, directory=cell.absolute(), validation=how.validation)
        for place, cell in enumerate(cells)
        if not results.is_known(place)
    ]
    if how.address is not None:
        on_cluster(how.address)(run_cell, jobs, results.came_in)
    elif how.workers == 1:
        for job in jobs:
            results.came_in(job, run_cell(job))
    else:
        run_each(run_cell, jobs, results.came_in, how.workers or os.cpu_count())
    return results.in_order()


def _tested(
    cells: Sequence[Cell], rows: Sequence[Mapping[str, Any]], seeds: Sequence[int], directory: Path, base: str
) -> dict[str, Any] | None:
    """The best row, trained on all training rows with the first seed, and scored on the test rows."""
    from colonnade.reports.sweep_page import best_row

    best = best_row(rows)
    if best is None:
        return None
    return on_test_rows(cells[rows.index(best) * len(seeds)], directory, base)


def on_test_rows(cell: Cell, directory: Path, base: str) -> dict[str, Any]:
    """A cell trained on all training rows, and scored on the test rows."""
    own = replace(cell, directory=directory / "best" / cell.directory.parent.name / cell.directory.name)
    (came,) = run_cells([own], directory, CellOptions(base, validation=0.0, workers=1))
    return {name: came[name] for name in ("changes", "seed", "directory", "status", "why", "metric_name", "metric")}


def open_directory(directory: Path, resume: bool) -> None:
    if directory.exists() and any(directory.iterdir()) and not resume:
        raise SettingsError(
            f"The directory {directory} exists already. Choose another one with --out, go on with --resume, or "
            "remove it."
        )
    try:
        make_folder(directory)
    except OSError as error:
        raise SettingsError(f"The directory {directory} could not be made: {error.strerror}. Choose another.") from None


class _Results:
    """What cells have come to, in whatever order they end; whoever looks on is given each."""

    def __init__(self, directory: Path, cells: Sequence[Cell], finished: CellFinished | None) -> None:
        self._directory = directory
        self._cells = cells
        self._finished = finished
        self._ended: dict[int, dict[str, Any]] = {}

    def is_known(self, place: int) -> bool:
        """Whether a cell need not be run: it cannot be, or an earlier sweep has."""
        cell = self._cells[place]
        if cell.refused:
            self._take(place, _failed(cell.refused))
        elif (summary := _finished_summary(cell)) is not None:
            self._take(place, _measured(summary))
        return place in self._ended

    def came_in(self, job: Job, result: Measured) -> None:
        self._take(job["place"], result)

    def _take(self, place: int, result: Measured) -> None:
        cell = self._cells[place]
        where = "" if cell.refused else str(cell.directory.relative_to(self._directory))
        self._ended[place] = {"changes": cell.changes, "seed": cell.seed, "directory": where, **result}
        if self._finished is not None:
            self._finished(self._ended[place], len(self._ended), len(self._cells))

    def in_order(self) -> list[dict[str, Any]]:
        return [self._ended[place] for place in range(len(self._cells))]


# --- which cells ------------------------------------------------------------------------------------------------


def plan_cells(
    federation: Path, each: Mapping[str, Sequence[Any]], seeds: Sequence[int], out: Path, changes: Sequence[str] = ()
) -> list[Cell]:
    """Every combination of values, each with every seed, in the order given."""
    for name, values in each.items():
        if not values:
            raise SettingsError(f"The setting {name} is to be swept, but no value is given for it.")
        if name == "federation.seed":
            raise SettingsError("Seeds are not a setting to sweep but repetitions of every cell: give them as --seeds.")
    if not seeds or min(seeds) < 0 or len({*seeds}) < len(seeds):
        raise SettingsError("The seeds of a sweep must be different whole numbers, 0 or more, and at least one.")
    cells: list[Cell] = []
    for chosen in product(*each.values()):
        written = {name: as_toml(value) for name, value in zip(each, chosen, strict=True)}
        for seed in seeds:
            cell = cell_of(federation, written, seed, out, changes)
            if any(
                (cell.values or cell.changes, seed) == (other.values or other.changes, other.seed) for other in cells
            ):
                shown = ", ".join(f"{name}={value}" for name, value in written.items())
                raise SettingsError(f"Two cells of the sweep have the same settings, {shown}: leave one of them out.")
            cells.append(cell)
    return cells


def _check_values(federation: Path, cells: Sequence[Cell], changes: Sequence[str]) -> None:
    """Refuse a value that no cell can have, before hours are spent on the others.

    One that only does not go with other values of the grid is refused in those cells alone.
    """
    values = {change for cell in cells for change in cell.changes.items()}
    good = {change for cell in cells if not cell.refused for change in cell.changes.items()}
    for name, value in sorted(values - good):
        read_federation(federation, [*changes, f"{name}={value}"])


def cell_of(federation: Path, written: dict[str, str], seed: int, out: Path, changes: Sequence[str]) -> Cell:
    asked = [*changes, *(f"{name}={value}" for name, value in written.items()), f"federation.seed={seed}"]
    # The algorithm's name first: changing it drops the settings of the one before.
    asked.sort(key=lambda change: change.partition("=")[0].strip() != "algorithm.name")
    name = re.sub(r"[^A-Za-z0-9.+-]+", "_", "-".join(written.values()))[:60].strip("._") or "plain"
    try:
        settings = read_federation(federation, asked).with_absolute_files(federation.parent)
    except SettingsError as error:
        return Cell(written, seed, out, {}, str(error))
    values = federation_values(settings)
    seedless = {**values, "federation": {**values["federation"], "seed": 0}}
    return Cell(written, seed, out / f"{name}-{digest(seedless)[:8]}" / f"seed-{seed}", values)


def as_toml(value: Any) -> str:
    """A value as `--set` takes it: text as it stands, everything else as TOML.

    >>> as_toml("vafl"), as_toml(0.1), as_toml([8, 8]), as_toml(True)
    ('vafl', '0.1', '[8, 8]', 'true')
    """
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, Sequence):
        return f"[{', '.join(as_toml(one) if not isinstance(one, str) else json.dumps(one) for one in value)}]"
    return tomli_w.dumps({"value": value}).partition("=")[2].strip()


def split_values(text: str) -> list[str]:
    """The values of a list with commas, those inside brackets, braces and quotation marks left whole.

    >>> split_values("0.01, 0.1"), split_values("[64],[64,32]")
    (['0.01', '0.1'], ['[64]', '[64,32]'])
    """
    values, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        depth += (letter in "[{") - (letter in "]}") if not quote else 0
        if letter == "," and not depth and not quote:
            values.append("")
        else:
            values[-1] += letter
    return [value.strip() for value in values if value.strip()]


# --- one cell ---------------------------------------------------------------------------------------------------


def run_cell(job: Job) -> Measured:
    """Run one cell, or go on with it; what it measured, or why it failed. Takes and gives plain values."""
    directory = Path(job["directory"])
    compute_with(1)
    try:
        settings = parse_federation(job["values"])
        resumes = bool(numbers_of(directory / "checkpoints", "simulate"))
        if directory.exists() and not resumes:
            shutil.rmtree(directory)  # it was stopped before its first checkpoint
        data, model = load_with_start(settings, Path(job["base"]))
        data = data.held_out(job["validation"]) if job["validation"] else data
        name = f"{directory.parent.name}-{directory.name}"
        options = RunOptions(directory, resumes, settings=job["values"], start=model, track=settings.track, name=name)
        outcome = train_plan(data, settings.plan(data), settings.simulate, options)
    except ColonnadeError as error:
        return _failed(str(error))
    except Exception as error:
        # The other cells are worth having all the same.
        return _failed(f"{type(error).__name__}, which was not foreseen: a defect of Colonnade. Run this cell alone.")
    return _measured(outcome.summary)


def _finished_summary(cell: Cell) -> Summary | None:
    """The summary of a cell that has ended well, before."""
    with suppress(OSError, ValueError, KeyError, TypeError, ColonnadeError):
        summary: Summary = json_of(read_whole(cell.directory / "summary.json"))
        if summary["status"] == "finished":
            return summary
    return None


def _measured(summary: Summary) -> Measured:
    return {
        "status": "finished",
        "why": "",
        "metric_name": summary["headline"],
        "metric": summary["test"].get(summary["headline"]),
        "train_loss": summary["train_loss"],
        "exchanges": summary["exchanges"],
        "virtual_seconds": summary["virtual_seconds"],
        "bytes": summary["bytes_up"] + summary["bytes_down"],
        "wall_seconds": summary["wall_seconds"],
    }


def _failed(why: str) -> Measured:
    return {
        "status": "failed",
        "why": why,
        "metric_name": None,
        "metric": None,
        "train_loss": None,
        "exchanges": None,
        "virtual_seconds": None,
        "bytes": None,
        "wall_seconds": None,
    }


# --- all of them ------------------------------------------------------------------------------------------------


def gathered(each: Iterable[str], seeds: Sequence[int], cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The object of sweep.json: the cells, and a row for each combination of values over its seeds."""
    rows: list[dict[str, Any]] = []
    for start in range(0, len(cells), len(seeds)):
        repeated = cells[start : start + len(seeds)]
        finished = [cell for cell in repeated if cell["status"] == "finished"]
        rows.append(
            {
                "changes": repeated[0]["changes"],
                "metric_name": finished[0]["metric_name"] if finished else None,
                "finished": len(finished),
                "failures": [
                    {"seed": cell["seed"], "why": cell["why"]} for cell in repeated if cell["status"] == "failed"
                ],
                **{name: spread([cell[name] for cell in finished]) for name in MEASURED},
            }
        )
    return {"settings": [*each], "seeds": [*seeds], "rows": rows, "cells": [*cells]}


def spread(values: Sequence[float | None]) -> dict[str, float | None]:
    """Mean and sample deviation of the values that are there.

    >>> spread([1.0, 3.0, None]), spread([2.0])
    ({'mean': 2.0, 'deviation': 1.4142135623730951}, {'mean': 2.0, 'deviation': None})
    """
    known = [value for value in values if value is not None]
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return {"mean": statistics.fmean(known) if known else None, "deviation": deviation}


def as_csv(result: Mapping[str, Any]) -> str:
    """One line per cell, for tables and plotting programs."""
    measured = ["status", "metric_name", *MEASURED, "wall_seconds", "directory", "why"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*result["settings"], "seed", *measured])
    for cell in result["cells"]:
        changed = [cell["changes"][name] for name in result["settings"]]
        writer.writerow([*changed, cell["seed"], *(cell[name] for name in measured)])
    return text.getvalue()
