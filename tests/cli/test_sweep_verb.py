"""`colonnade sweep`: a table and a page for people, one object for machines, a sentence for every mistake."""

import json
import re
import signal
import time
from pathlib import Path

import pytest
from command_line import IRIS, begin, colonnade, refused, toml

from colonnade.exit_codes import ExitCode


def test_a_sweep_for_people() -> None:
    flowers = toml("flowers.toml", IRIS)
    grid = ["--set-each", "training.learning_rate=0.1,0.2", "--set-each", "algorithm.name=vafl,split"]
    answer = colonnade("sweep", flowers, *grid, "--seeds", "0,1", "--workers", "1")
    assert answer.code == 0, answer.err
    assert "2 seeds, mean ± deviation" in answer.out and "Report: sweeps/flowers/sweep.html" in answer.out
    assert re.search(r"0\.2 +split +[01]\.\d{4}", answer.out)
    assert re.search(r"Trained on all training rows, 0\.\d, \w+ has a test accuracy of", answer.out)
    assert answer.err.splitlines()[-1].startswith("8/8 cells, 0.2, split, seed 1: accuracy ")
    page = Path("sweeps/flowers/sweep.html").read_text()
    assert "4 combinations of settings" in page and "http://" not in page
    assert len(Path("sweeps/flowers/sweep.csv").read_text().splitlines()) == 9
    before = {path: path.stat().st_mtime_ns for path in Path("sweeps").rglob("summary.json")}
    again = colonnade("sweep", flowers, *grid, "--seeds", "0,1", "--workers", "1", "--resume", "--json")
    assert again.object == json.loads(Path("sweeps/flowers/sweep.json").read_text())
    assert len(before) == 9 and all(path.stat().st_mtime_ns == written for path, written in before.items())


def test_a_cell_that_fails_is_told_and_the_others_are_there() -> None:
    flowers = toml("flowers.toml", IRIS)
    answer = colonnade("sweep", flowers, "--set-each", "training.learning_rate=0.1,1e30", "--workers", "1")
    assert answer.code == 1
    assert "failed" in answer.out and "1e30, seed 0: " in answer.err and "diverged" in answer.err
    rows = json.loads(Path("sweeps/flowers/sweep.json").read_text())["rows"]
    assert [row["finished"] for row in rows] == [1, 0]


def test_without_a_grid_a_sweep_is_the_seeds() -> None:
    answer = colonnade(
        "sweep", toml("flowers.toml", IRIS), "--seeds", "3,4", "--out", "mine", "--workers", "1", "--json"
    )
    assert (answer.code, answer.err) == (0, "")
    assert [cell["seed"] for cell in answer.object["cells"]] == [3, 4] and len(answer.object["rows"]) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set-each", "training.l2"], "write it as section.name=value,value"),
        (["--set-each", "l2=1,2"], "write it as section.name=value,value"),
        (["--set-each", "training.l2=0", "--set-each", "training.l2=1"], "given twice"),
        (["--set-each", "training.l2="], "no value is given"),
        (["--set-each", "training.lerning_rate=1,2"], "Did you mean 'learning_rate'"),
        (["--seeds", "one"], "write whole numbers with commas"),
        (["--seeds", "1,1"], "must be different"),
        (["--address", "auto", "--workers", "2"], "give one of the two"),
    ],
)
def test_wrong_calls(arguments: list[str], words: str) -> None:
    assert words in refused("sweep", toml("flowers.toml", IRIS), *arguments)
    assert not Path("sweeps").exists()


def test_a_sweep_that_is_there_already() -> None:
    Path("sweeps/flowers").mkdir(parents=True)
    Path("sweeps/flowers/notes.txt").touch()
    assert "exists already" in refused("sweep", toml("flowers.toml", IRIS))


def test_ctrl_c_leaves_the_cells_that_have_finished() -> None:
    flowers = toml("flowers.toml", IRIS)
    grid = ["--set-each", "training.epochs=1,3000", "--seeds", "0"]
    process = begin("sweep", flowers, *grid, "--workers", "2", "--out", "mine", "--validation", "0")
    deadline = time.monotonic() + 240
    while not [*Path("mine").glob("1-*/seed-0/summary.json")] or not [
        *Path("mine").glob("3000-*/seed-0/metrics.jsonl")
    ]:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode == ExitCode.STOPPED
    assert told.endswith("Interrupted. Cells that had finished are kept: give the same command again with --resume.\n")
    assert "Traceback" not in told and not [*Path("mine").glob("3000-*/seed-0/summary.json")]
    kept = next(Path("mine").glob("1-*/seed-0/summary.json")).read_bytes()
    smaller = [
        "--set-each",
        "training.epochs=1,2",
        "--resume",
        "--workers",
        "1",
        "--out",
        "mine",
        "--json",
        "--validation",
        "0",
    ]
    assert colonnade("sweep", flowers, *smaller).code == 0
    assert next(Path("mine").glob("1-*/seed-0/summary.json")).read_bytes() == kept
