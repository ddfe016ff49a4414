"""A sweep's cells are the runs that one would have made by hand, and its rows are their means and deviations."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade import dataset
from colonnade.errors import SettingsError
from colonnade.federation.file import read_federation
from colonnade.launch.run_options import RunOptions
from colonnade.reports.sweep_page import best_row, failures, sweep_page, write_sweep
from colonnade.trials import sweep as sweeping
from colonnade.trials.sweep import gathered, plan_cells, split_values, sweep

IRIS = """
[data]
set = "iris"
parties = 2
[training]
epochs = 2
batch_size = 16
[bottom]
hidden = [4]
[top]
hidden = [4]
"""


@pytest.fixture
def flowers(tmp_path: Path) -> Path:
    path = tmp_path / "flowers.toml"
    path.write_text(IRIS, encoding="utf-8")
    return path


# --- which cells ------------------------------------------------------------------------------------------------


def test_every_combination_with_every_seed(flowers: Path) -> None:
    each = {"training.learning_rate": [0.01, 0.1], "algorithm.name": ["vafl", "split"]}
    cells = plan_cells(flowers, each, [0, 5], Path("out"))
    assert [(*cell.changes.values(), cell.seed) for cell in cells] == [
        *(("0.01", "vafl", 0), ("0.01", "vafl", 5), ("0.01", "split", 0), ("0.01", "split", 5)),
        *(("0.1", "vafl", 0), ("0.1", "vafl", 5), ("0.1", "split", 0), ("0.1", "split", 5)),
    ]
    assert cells[6].values["training"]["learning_rate"] == 0.1
    assert cells[6].values["algorithm"]["name"] == "split"
    assert cells[7].values["federation"]["seed"] == 5
    assert len({cell.directory for cell in cells}) == 8
    assert cells[6].directory.parent == cells[7].directory.parent  # the seeds of a row lie together


def test_the_name_of_the_algorithm_is_set_before_its_settings(flowers: Path) -> None:
    cells = plan_cells(flowers, {"algorithm.wait_for": [2], "algorithm.name": ["cascaded"]}, [0], Path("out"))
    assert cells[0].values["algorithm"]["wait_for"] == 2
    cells = plan_cells(flowers, {"algorithm.name": ["zoo"]}, [0], Path("out"), ["algorithm.directions=3"])
    assert cells[0].values["algorithm"]["directions"] == 3


def test_a_directory_stands_for_settings_and_not_for_a_place_in_the_grid(flowers: Path) -> None:
    few = plan_cells(flowers, {"training.l2": [0.1]}, [0], Path("out"))
    many = plan_cells(flowers, {"training.l2": [0.0, 0.1]}, [1, 0], Path("out"))
    assert few[0].directory == many[3].directory
    other = plan_cells(flowers, {"training.l2": [0.1]}, [0], Path("out"), ["training.epochs=3"])
    assert other[0].directory != few[0].directory


@pytest.mark.parametrize(
    ("each", "seeds", "words"),
    [
        ({"training.l2": []}, [0], "no value is given"),
        ({"federation.seed": [1]}, [0], "give them as --seeds"),
        ({}, [], "at least one"),
        ({}, [1, 1], "different"),
        ({}, [-1], "0 or more"),
        ({"training.l2": [0.1, "0.10"]}, [0], "the same settings, training.l2=0.10"),
    ],
)
def test_grids_that_cannot_be(flowers: Path, each: dict[str, list[Any]], seeds: list[int], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        plan_cells(flowers, each, seeds, Path("out"))


PLAIN = st.text(st.characters(codec="ascii", exclude_characters=",[]{}\"'"), min_size=1).filter(str.strip)


@given(st.lists(PLAIN | st.lists(st.integers(0, 9), min_size=1).map(str), min_size=1))
def test_values_come_back_from_a_list_with_commas(values: list[str]) -> None:
    assert split_values(",".join(values)) == [value.strip() for value in values]


# --- rows -------------------------------------------------------------------------------------------------------


def cell(value: str, seed: int, metric: float | None, why: str = "") -> dict[str, Any]:
    told = {"changes": {"training.l2": value}, "seed": seed, "directory": f"{value}/{seed}", "why": why}
    measured = dict.fromkeys(("train_loss", "exchanges", "virtual_seconds", "bytes", "wall_seconds"), metric)
    status = "finished" if metric is not None else "failed"
    name = "accuracy" if metric is not None else None
    return {**told, **measured, "status": status, "metric": metric, "metric_name": name}


CELLS = [cell("0", 0, 0.5), cell("0", 1, 0.7), cell("1", 0, 0.9), cell("1", 1, None, "It diverged.")]


def test_a_row_is_the_mean_and_deviation_of_the_seeds_that_finished() -> None:
    rows = gathered(["training.l2"], [0, 1], CELLS)["rows"]
    assert rows[0]["metric"] == {"mean": pytest.approx(0.6), "deviation": pytest.approx(0.02**0.5)}
    assert rows[1]["metric"] == {"mean": 0.9, "deviation": None}
    assert (rows[0]["finished"], rows[1]["finished"]) == (2, 1)
    assert rows[1]["failures"] == [{"seed": 1, "why": "It diverged."}]
    assert best_row(rows) is rows[1]
    assert failures(rows) == [("1", "1", "It diverged.")]


def test_the_page_names_every_row_and_every_failure() -> None:
    page = sweep_page("mine", gathered(["training.l2"], [0, 1], CELLS), [])
    assert "60.00 % ± 14.14 %" in page and "It diverged." in page and "3 of 4 cells finished" in page
    assert "http://" not in page


def test_rows_of_different_metrics_have_no_best() -> None:
    other = [cell("0", 0, 0.5), {**cell("1", 0, 0.4), "metric_name": "rmse"}]
    assert best_row(gathered(["training.l2"], [0], other)["rows"]) is None
    assert (
        best_row(gathered(["training.l2"], [0], [{**one, "metric_name": "rmse"} for one in other])["rows"])
        == (gathered(["training.l2"], [0], [{**one, "metric_name": "rmse"} for one in other])["rows"][1])
    )


# --- runs -------------------------------------------------------------------------------------------------------


def test_a_sweep_from_python(flowers: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    out = tmp_path / "sweep"
    result = sweep(
        flowers,
        {"algorithm.name": ["vafl", "split"], "bottom.hidden": [[4]]},
        seeds=(0, 1),
        out=out,
        changes=["training.epochs=1"],
        workers=1,
        finished=lambda cell, ended, total: seen.append((ended, total)),
        validation=0,
    )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert json.loads((out / "sweep.json").read_text()) == result
    assert [row["exchanges"]["mean"] for row in result["rows"]] == [14, 14]  # 2 parties, 112 rows in batches of 16
    with (out / "sweep.csv").open(newline="") as file:
        lines = [*csv.DictReader(file)]
    assert [line["algorithm.name"] for line in lines] == ["vafl", "vafl", "split", "split"]
    for line in lines:
        run = out / line["directory"]
        assert float(line["metric"]) == json.loads((run / "summary.json").read_text())["test"]["accuracy"]
        assert read_federation(run / "federation.toml").seed == int(line["seed"])
    page = write_sweep(out, result)
    assert page.exists() and sorted(path.name for path in (out / "figures").iterdir()) == ["metric.png"]


def test_a_sweep_goes_on_with_the_cells_that_are_missing(
    flowers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "sweep"
    grid = {"training.learning_rate": [0.1, 0.2]}
    train = sweeping.train_plan

    def stops(data: Any, plan: Any, runtime: Any, options: RunOptions) -> Any:
        """The second cell is interrupted after some exchanges, when a checkpoint is written."""
        calls.append(str(options.directory))
        if len(calls) == 2:
            train(data, plan, runtime, replace(options, stop_requested=lambda: True))
            raise KeyboardInterrupt
        return train(data, plan, runtime, options)

    calls: list[str] = []
    monkeypatch.setattr(sweeping, "train_plan", stops)
    with pytest.raises(KeyboardInterrupt):
        sweep(flowers, grid, out=out, workers=1, validation=0)
    with pytest.raises(SettingsError, match="exists already"):
        sweep(flowers, grid, out=out, workers=1, validation=0)
    assert len(calls) == 2
    result = sweep(flowers, {"training.learning_rate": [0.2, 0.1, 0.3]}, out=out, workers=1, resume=True, validation=0)
    assert calls[2] == calls[1] and len(calls) == 4  # the one that was stopped, and the new one
    whole = sweep(flowers, {"training.learning_rate": [0.2, 0.1, 0.3]}, out=tmp_path / "whole", workers=1, validation=0)
    for one, other in zip(result["cells"], whole["cells"], strict=True):
        assert {**one, "wall_seconds": 0} == {**other, "wall_seconds": 0}
    figures = sorted(path.name for path in (write_sweep(out, result).parent / "figures").iterdir())
    assert figures[-1] == "setting_training_learning_rate.png"


def test_the_best_is_chosen_on_rows_held_out_and_alone_sees_the_test_rows(flowers: Path, tmp_path: Path) -> None:
    grid = {"training.epochs": [0.2, 30]}
    out = tmp_path / "sweep"
    result = sweep(flowers, grid, seeds=(3, 4), out=out, workers=1)
    data = dataset("iris", parties=2)
    for one in result["cells"]:
        told = json.loads((out / one["directory"] / "summary.json").read_text())
        assert (told["data"]["rows"], told["data"]["test_rows"]) == (90, 22)  # of 112 training rows
    best = result["best"]
    told = json.loads((out / best["directory"] / "summary.json").read_text())
    assert best["changes"] == {"training.epochs": "30"} and best["seed"] == told["seed"] == 3
    assert (told["data"]["rows"], told["data"]["test_rows"]) == (data.rows, data.test_rows)
    assert best["metric"] == told["test"]["accuracy"]
    page = sweep_page("mine", result, [])
    assert "scored on 20% of the training rows" in page and "30 has a test accuracy of" in page
    written = (out / best["directory"] / "summary.json").stat().st_mtime_ns
    again = sweep(flowers, grid, seeds=(3, 4), out=out, workers=1, resume=True)
    assert again == result and (out / best["directory"] / "summary.json").stat().st_mtime_ns == written


def test_a_share_that_cannot_be_held_out(flowers: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="give 0 or more, below 1"):
        sweep(flowers, {}, out=tmp_path / "sweep", workers=1, validation=1.0)


def test_a_cell_that_fails_is_a_row(flowers: Path, tmp_path: Path) -> None:
    grid = {"algorithm.name": ["vafl", "split"], "algorithm.wait_for": [1], "training.learning_rate": [0.1, 1e30]}
    result = sweep(flowers, grid, out=tmp_path / "sweep", workers=1)
    assert [cell["status"] for cell in result["cells"]] == ["finished", "failed", "failed", "failed"]
    why = [cell["why"] for cell in result["cells"]]
    assert "diverged" in why[1] and "no setting in [algorithm] named 'wait_for'" in why[2]


def test_a_defect_in_one_cell_does_not_end_the_sweep(
    flowers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "load_with_start", lambda *arguments: 1 / 0)
    result = sweep(flowers, {}, out=tmp_path / "sweep", workers=1)
    assert result["cells"][0]["why"].startswith("ZeroDivisionError")


def test_a_value_that_no_cell_can_have_is_refused_before_the_first_training(
    flowers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "run_cell", lambda job: pytest.fail("a cell was trained"))
    for grid, said in (
        ({"training.learning_rate": [0.1, "foo"]}, "training.learning_rate"),
        ({"algorithm.name": ["vafl", "valf"], "training.l2": [0, 0.1]}, "Did you mean 'vafl'"),
    ):
        with pytest.raises(SettingsError, match=said):
            sweep(flowers, grid, out=tmp_path / "sweep", workers=1)
    assert not (tmp_path / "sweep").exists()


def test_settings_that_no_cell_can_have_are_refused_at_once(flowers: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="Did you mean 'learning_rate'"):
        sweep(flowers, {"training.lerning_rate": [0.1]}, out=tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_processes_give_what_one_gives(flowers: Path, tmp_path: Path) -> None:
    grid = {"training.learning_rate": [0.1, 0.2]}
    alone = sweep(flowers, grid, out=tmp_path / "alone", workers=1)
    together = sweep(flowers, grid, out=tmp_path / "together", workers=2)
    assert [cell["metric"] for cell in together["cells"]] == [cell["metric"] for cell in alone["cells"]]
    assert [cell["train_loss"] for cell in together["cells"]] == [cell["train_loss"] for cell in alone["cells"]]
