"""Cells of a reproduction, kept as they finish: what was stopped goes on. Results that are written down."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line import colonnade

from colonnade.errors import RunError
from colonnade.reproductions import recorded, reproductions
from colonnade.reproductions.cells import Work, run_cells
from colonnade.reproductions.objective import Point
from colonnade.reproductions.reproduction import Reproduction, Row, Scope, Shown, Watch


@dataclass(frozen=True)
class Sum:
    name: str
    number: float

    def __str__(self) -> str:
        return f"{self.name} {self.number:g}"


@dataclass(frozen=True)
class Total:
    value: float
    points: tuple[Point, ...] = ()

    def __str__(self) -> str:
        return f"is {self.value:g}"


CELLS = [Sum("twice", 1.0), Sum("twice", 3.0), Sum("twice", 10.0)]


class Workers:
    """Does the work at once, until it is interrupted."""

    def __init__(self, before_interruption: int = 99) -> None:
        self.asked: list[Sum] = []
        self._left = before_interruption

    def __call__(
        self, work: Callable[[Work], Any], jobs: Sequence[Work], finished: Callable[[Work, Any], None]
    ) -> list[Any]:
        for job in jobs:
            if self._left == 0:
                raise KeyboardInterrupt
            self._left -= 1
            self.asked.append(job.cell)
            finished(job, work(job))
        return []


def twice(cell: Sum) -> Total:
    return Total(2 * cell.number, (Point(math.nan, 1.0, 2, 3.0),))


def silent(line: str) -> None: ...


def scope(folder: Path, workers: Workers, watch: Watch = silent) -> Scope:
    return Scope(True, [0], watch, folder, workers)


def test_a_stopped_reproduction_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_cells(twice, CELLS, Total, scope(tmp_path, Workers(2)))
    rest, said = Workers(), list[str]()
    found = run_cells(twice, CELLS, Total, scope(tmp_path, rest, said.append))
    assert rest.asked == CELLS[2:]
    assert [one.value for one in found] == [2, 6, 20]
    assert math.isnan(found[0].points[0].gap) and found[0].points[0].exchanges == 2
    assert said[0].startswith("2 of 3 cells are kept") and said[1] == "3/3  twice 10: is 20"


def test_a_torn_file_and_what_follows_from_something_else_are_run_again(tmp_path: Path) -> None:
    run_cells(twice, CELLS, Total, scope(tmp_path, Workers()))
    torn = next(path for path in (tmp_path / "cells").iterdir() if path.name.startswith("twice-3-"))
    torn.write_bytes(torn.read_bytes()[:20])
    again, other = Workers(), Workers()
    run_cells(twice, CELLS, Total, scope(tmp_path, again))
    assert again.asked == [CELLS[1]]
    run_cells(twice, CELLS, Total, scope(tmp_path, other), follows_from=lambda cell: "other data")
    assert other.asked == CELLS


def test_the_same_cell_asked_for_twice_is_run_once(tmp_path: Path) -> None:
    workers = Workers()
    found = run_cells(twice, [CELLS[0], CELLS[0]], Total, scope(tmp_path, workers))
    assert [one.value for one in found] == [2, 2] and len(workers.asked) == 1


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="could not be made"):
        run_cells(twice, CELLS, Total, scope(tmp_path / "file", Workers()))


# --- results that are written down ------------------------------------------------------------------------------


@pytest.fixture
def one_and_two(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A reproduction of one row, in place of all others."""
    monkeypatch.chdir(tmp_path)

    def run(scope: Scope) -> Shown:
        return Shown([Row("one and one", None, 2.0 + len(scope.seeds), None, "as expected")])

    only = Reproduction("one-and-two", "vafl", "Figure 3", "sums", ("digits",), run, seeds=2)
    monkeypatch.setattr("colonnade.reproductions.reproductions", lambda: {only.name: only})


@pytest.mark.usefixtures("one_and_two")
def test_a_result_is_kept_with_when_and_on_what_it_was_measured() -> None:
    made = colonnade("reproduce", "one-and-two", "--quick", "--out", "kept", "--json")
    assert made.code == 0, made.err
    result = json.loads(Path("kept/one-and-two-quick.json").read_text(encoding="utf-8"))
    assert result == made.object
    assert (result["seeds"], result["rows"][0]["ours"]) == ([0, 1], 4.0)
    assert {"date", "machine", "versions", "commit", "seconds", "paper", "item"} <= result.keys()


@pytest.mark.usefixtures("one_and_two")
def test_what_was_recorded_is_listed_with_its_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "FOLDER", tmp_path / "recorded")
    assert json.loads(colonnade("reproduce", "list", "--json").out)[0]["recorded"] == []
    assert colonnade("reproduce", "one-and-two", "--quick", "--record").code == 0
    (told,) = json.loads(colonnade("reproduce", "list", "--json").out)
    assert (told["recorded"], told["full_minutes"]) == (["quick"], None)
    assert told["quick_minutes"] >= 0
    assert set(told) == {"name", "paper", "item", "data", "quick_minutes", "full_minutes", "recorded"}
    assert "one-and-two" in colonnade("reproduce").out


def test_every_reproduction_says_what_it_is_of() -> None:
    for one in reproductions().values():
        assert one.item.split()[0] in ("Table", "Figure", "Figures", "Comparison") and one.data and one.summary


@pytest.mark.usefixtures("one_and_two")
def test_processes_and_a_cluster_are_not_both_asked_for() -> None:
    refused = colonnade("reproduce", "one-and-two", "--workers", "1", "--address", "auto")
    assert refused.code == 2 and "give one of the two" in refused.err


def test_processor_time_is_that_of_every_cell_kept_ones_too(tmp_path: Path) -> None:
    first, again = scope(tmp_path, Workers()), scope(tmp_path, Workers())
    run_cells(twice, CELLS, Total, first)
    run_cells(twice, CELLS, Total, again)
    assert len(first.processor_seconds) == 3 and again.processor_seconds == first.processor_seconds
