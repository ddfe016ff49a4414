"""`colonnade tune`: what is tried, what is written, and that the file as it is stays among the trials to the end."""

import json
import random
import tomllib
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import colonnade
from colonnade.errors import SettingsError
from colonnade.federation.file import federation_values, parse_federation, read_federation
from colonnade.reports.tune_page import tune_page, verdict
from colonnade.trials.compute_times import MeasuredTimes, compute_times
from colonnade.trials.tune import (
    TUNED,
    candidates,
    epochs_of_rungs,
    ranked,
    search_space,
    tune,
    why_none_is_the_best,
    with_changes,
)

FILE = """\
# Flowers.
[data]
set = "iris"
parties = 2

[training]  # how long
epochs = 3  # few
"""


@pytest.fixture
def flowers(tmp_path: Path) -> Path:
    path = tmp_path / "flowers.toml"
    path.write_text(FILE)
    return path


# --- what is tried ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "tried"),
    [
        ("vafl", {"training.learning_rate", "bottom.embedding", "bottom.hidden", "algorithm.in_flight"}),
        ("split", {"training.learning_rate", "bottom.embedding", "bottom.hidden"}),
        ("zoo-sync", {"training.optimiser", "training.learning_rate", "bottom.embedding", "bottom.hidden"}),
        ("afsaga", {"training.l2"}),
    ],
)
def test_every_value_is_one_that_the_algorithm_takes(flowers: Path, algorithm: str, tried: set[str]) -> None:
    settings = read_federation(flowers, [f"algorithm.name={algorithm}"])
    space = search_space(settings, colonnade.dataset("iris", parties=2))
    assert {*space} == {"training.batch_size", *tried}
    for name, values in space.items():
        assert len(values) == len({*values}) > 1
        for value in values:
            together = [f"{name}={value}"]
            if name == "training.learning_rate" and "training.optimiser" in tried:
                together.append("training.optimiser=scale-free")
            read_federation(flowers, [f"algorithm.name={algorithm}", *together])


@given(st.integers(2, 40), st.integers(0, 5))
def test_no_combination_is_tried_twice_and_the_first_is_the_file_s(trials: int, seed: int) -> None:
    space = {"a.b": ["1", "2", "3"], "c.d": ["x", "y"]}
    chosen = candidates(space, trials, random.Random(seed))
    assert chosen[0] == {"a.b": "1", "c.d": "x"}
    assert len(chosen) == min(trials, 6) == len({tuple(one.items()) for one in chosen})


def test_a_short_training_has_one_rung() -> None:
    assert epochs_of_rungs(27) == [3, 9, 27] and epochs_of_rungs(0.5) == [0.5]


# --- what is written --------------------------------------------------------------------------------------------


@given(
    st.dictionaries(
        st.sampled_from(["training.epochs", "training.batch_size", "bottom.hidden", "data.set", "algorithm.name"]),
        st.sampled_from(["3", "0.25", "1e-05", "[8, 4]", "zoo-sync", "true"]),
    )
)
def test_the_tuned_lines_alone_change(changes: dict[str, str]) -> None:
    text = with_changes(FILE, changes)
    parsed, before = tomllib.loads(text), tomllib.loads(FILE)
    for name, value in changes.items():
        section, _, setting = name.partition(".")
        shown = parsed[section].pop(setting)
        assert shown == (value if value == "zoo-sync" else tomllib.loads(f"x = {value}")["x"])
        before.get(section, {}).pop(setting, None)
    assert {name: values for name, values in parsed.items() if values} == {
        name: values for name, values in before.items() if values
    }
    assert {line for line in FILE.splitlines() if "=" not in line} <= {*text.splitlines()}


# --- searches ---------------------------------------------------------------------------------------------------


def test_a_search_from_python(flowers: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    seen: list[tuple[int, int]] = []
    result = tune(
        flowers, out=out, trials=4, workers=1, finished=lambda cell, ended, total: seen.append((ended, total))
    )
    assert [rung["epochs"] for rung in result["rungs"]] == [1, 3]
    assert seen[:4] == [(1, 4), (2, 4), (3, 4), (4, 4)] and seen[-1][0] == seen[-1][1]
    plain = result["rungs"][0]["trials"][0]["changes"]
    assert all(plain in [one["changes"] for one in rung["trials"]] for rung in result["rungs"])
    last = [one["metric"] for one in result["rungs"][-1]["trials"]]
    assert result["after"] == max(last) >= result["before"]
    (summary,) = (out / "best").rglob("summary.json")
    assert json.loads(summary.read_text())["data"]["test_rows"] == 38  # all of them, and the training rows as well
    assert json.loads(summary.read_text())["test"]["accuracy"] == result["test"]
    assert json.loads((out / "tune.json").read_text()) == result
    assert (out / TUNED).read_text() == with_changes(FILE, result["changes"])
    read_federation(out / TUNED)
    with pytest.raises(SettingsError, match="exists already"):
        tune(flowers, out=out, trials=4, workers=1)
    times = {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")}
    assert tune(flowers, out=out, trials=4, workers=1, resume=True) == result
    assert times == {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")}
    page = tune_page("mine", result)
    assert "on held-out rows" in page and "http://" not in page
    check_measured(out, result, page)


def check_measured(out: Path, result: dict[str, Any], page: str) -> None:
    """Every trial was simulated with times that were measured, and the same ones after `resume`."""
    assert {*result["compute_seconds"]} == {"label", "party1", "party2"}
    assert all(seconds > 0 for seconds in result["compute_seconds"].values())
    assert "compute times measured on this machine" in page and "party2" in page
    kept = json.loads((out / "compute.json").read_text())
    for rung in result["rungs"]:
        for one in rung["trials"]:
            run = json.loads((out / one["directory"] / "summary.json").read_text())
            simulated = run["settings"]["simulate"]["parties"]
            assert {name: own["compute_seconds"] for name, own in simulated.items()} in kept.values()


def test_the_mean_of_a_partys_messages_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by a quarter of a second whenever it is looked at."""
    ticks = count(step=0.25)
    monkeypatch.setattr("colonnade.trials.compute_times.time.thread_time", lambda: next(ticks))
    data = colonnade.dataset("iris", parties=2)
    plan = parse_federation(tomllib.loads(FILE)).plan(data)
    assert compute_times(data, plan) == {"label": 0.25, "party1": 0.25, "party2": 0.25}
    impossible = replace(plan, bottom=torch.nn.Linear(99, 3))
    assert compute_times(data, impossible) == {}


def test_what_a_file_declares_is_not_measured(tmp_path: Path) -> None:
    data = colonnade.dataset("iris", parties=2)
    values = federation_values(parse_federation(tomllib.loads(FILE)))

    def measured(declared: dict[str, Any]) -> list[str]:
        return MeasuredTimes(tmp_path / "none.json", data, declared).parties

    assert measured({"latency_seconds": 0.1}) == ["party1", "party2", "label"]
    assert measured({"compute_seconds": 0.1}) == ["label"]
    assert measured({"label_compute_seconds": 0.1, "parties": {"party1": {"compute_seconds": 1}}}) == ["party2"]
    assert measured({"parties": {"party1": {"slowdown": 3}}}) == ["party1", "party2", "label"]
    times = MeasuredTimes(tmp_path / "none.json", data, {"compute_seconds": 0.1, "label_compute_seconds": 0.1})
    assert times.given_to({}, values) == values


def test_a_declared_slowdown_multiplies_what_was_measured(tmp_path: Path) -> None:
    data = colonnade.dataset("iris", parties=2)
    (tmp_path / "kept.json").write_text('{"training.batch_size=8": {"party1": 0.5, "label": 0.25}}')
    values = federation_values(parse_federation({"data": {"set": "iris", "parties": 2}, "simulate": SLOW}))
    times = MeasuredTimes(tmp_path / "kept.json", data, SLOW)
    given = times.given_to({"training.batch_size": "8", "training.learning_rate": "1"}, values)
    settings = parse_federation(given).simulate
    assert (settings.parties["party1"].compute_seconds, settings.parties["party1"].slowdown) == (0.5, 3.0)
    assert settings.parties["label"].compute_seconds == 0.25 and "party2" not in settings.parties


SLOW = {"parties": {"party1": {"slowdown": 3.0}}}


def test_what_it_says() -> None:
    told: dict[str, Any] = {"metric_name": "rmse", "before": 2.0, "after": 1.5, "test": 1.6, "changes": {"a.b": "3"}}
    told["virtual_seconds"] = [20.0, 4.0]
    assert verdict(told).startswith("Best: a.b = 3. On held-out rows rmse 1.5, with the file as it is 2")
    assert "it took 4 virtual seconds, the file as it is 20 virtual seconds" in verdict(told)
    assert verdict({**told, "changes": {}}).startswith("Nothing that was tried is better")


def test_of_trials_that_are_as_good_the_quicker_is_the_better() -> None:
    def trial(metric: float | None, seconds: float | None, name: str = "accuracy") -> dict[str, Any]:
        return {"metric_name": name, "metric": metric, "virtual_seconds": seconds}

    trials = [trial(0.9, 10.0), trial(0.9000001, 9.9), trial(0.9, 4.0), trial(None, None), trial(0.91, 80.0)]
    assert ranked(trials) == [4, 2, 0, 1]  # a metric that is better counts more than any time
    assert ranked([trial(2.0, 5.0, "rmse"), trial(2.0, 1.0, "rmse"), trial(1.0, 9.0, "rmse")]) == [2, 1, 0]


def test_what_cannot_be(flowers: Path, tmp_path: Path) -> None:
    for wrong, said in (({"trials": 1}, "at least 2"), ({"validation": 0.0}, "between 0 and 1")):
        with pytest.raises(SettingsError, match=said):
            tune(flowers, out=tmp_path / "mine", **wrong)
    own = tmp_path / "own.toml"
    own.write_text(
        '[data]\nlabel = "y"\n[parties.label]\nfile = "a.csv"\n[privacy]\ncolumns_epsilon = 1.0\nclip = 1.0\n'
    )
    with pytest.raises(SettingsError, match=r"privacy target.*data\.set"):
        tune(own, out=tmp_path / "mine")
    flowers.write_text(FILE.replace("epochs = 3", "epochs = 3\nlearning_rate = 1e30"))
    with pytest.raises(SettingsError, match="No trial came to its end"):
        tune(flowers, out=tmp_path / "diverged", trials=2, workers=1)
    assert not (tmp_path / "mine").exists()


def test_a_metric_that_held_out_rows_do_not_have_is_told() -> None:
    """As the AUC of rows that are all of one class: no trial failed, and none can be called the best."""
    ended = {"why": "", "metric_name": "auc", "metric": None}
    assert "auc cannot be told" in why_none_is_the_best([{**ended, "why": "It diverged."}, ended])
    assert "first said: It diverged." in why_none_is_the_best([{**ended, "why": "It diverged."}])
