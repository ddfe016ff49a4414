"""What a page is told of a run: as it grows, whole or one party's part of it, and what it is doing."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import SettingsError
from colonnade.watching.budgets import budget_facts
from colonnade.watching.runs import WatchedRun, check_runs

SETTINGS = """
[federation]
label_party = "bank"
[algorithm]
name = "vafl"
[training]
epochs = 4.0
[data]
set = "iris"
"""
OF_OTHERS = "only bank and shop know this"


def append(path: Path, *lines: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def sample(now: float, ago: float = 0.0, **lanes: dict[str, Any]) -> dict[str, Any]:
    told = lanes or {"bank": {"status": "training", "exchanges": int(now), "note": OF_OTHERS}, "shop": {"exchanges": 7}}
    return {"time": time.time() - ago, "now": now, "parties": told}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "federation.toml").write_text(SETTINGS, encoding="utf-8")
    append(tmp_path / "metrics.jsonl", {"party": "bank", "exchange": 1, "loss": 0.5, "note": OF_OTHERS})
    append(tmp_path / "live" / "simulate.jsonl", sample(1.0))
    append(tmp_path / "live" / "log.jsonl", {"time": time.time(), "message": OF_OTHERS, "party": "bank"})
    append(tmp_path / "logs" / "bank.log", {"said": OF_OTHERS})
    (tmp_path / "logs" / "shop.log").write_text("of the shop\n", encoding="utf-8")
    told = {"status": "finished", "test": {"accuracy": 0.9}, "parties": {"bank": {"steps": 1}, "shop": {"steps": 2}}}
    (tmp_path / "summary.json").write_text(json.dumps(told), encoding="utf-8")
    os.utime(tmp_path / "summary.json", (1, 1))  # of long ago: the run goes on
    return tmp_path


def test_news_is_what_has_come_since(run: Path) -> None:
    watched = WatchedRun(run)
    first = watched.news()
    assert [len(first["metrics"]), len(first["samples"]["simulate"])] == [1, 1] and first["facts"][
        "algorithm"
    ] == "vafl"
    assert watched.news() == {"status": "running", "samples": {}, "metrics": [], "log": []}
    append(run / "live" / "simulate.jsonl", sample(2.0))
    before = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(before + '{"exchange": 2, "lo')  # torn for now
    news = watched.news()
    assert [one["now"] for one in news["samples"]["simulate"]] == [2.0] and not news["metrics"]
    (run / "metrics.jsonl").write_text(before + '{"exchange": 2, "loss": 0.25}\n')
    assert watched.news()["metrics"] == [{"exchange": 2, "loss": 0.25}]
    whole = watched.snapshot()
    assert [len(whole["metrics"]), len(whole["samples"]["simulate"])] == [2, 2]


def test_files_that_were_thinned_out_are_no_news_and_a_run_that_went_back_is(run: Path) -> None:
    live = run / "live" / "simulate.jsonl"
    append(live, *(sample(float(now), ago=10 - now) for now in range(2, 6)))
    watched = WatchedRun(run)
    watched.news()
    lines = live.read_text().splitlines(keepends=True)
    live.write_text("".join([lines[0], lines[2], lines[4]]))
    assert not watched.news().get("reset")
    live.write_text("".join(lines[:2]))
    assert watched.news()["reset"]
    assert [one["now"] for one in watched.snapshot()["samples"]["simulate"]] == [1.0, 2.0]


def test_a_feature_party_sees_nothing_of_the_others(run: Path) -> None:
    watched = WatchedRun(run, "shop")
    watched.news()
    seen = json.dumps(watched.snapshot())
    assert OF_OTHERS not in seen and "loss" not in seen and "0.9" not in seen and "bank.log" not in seen
    assert "of the shop" in seen and json.loads(seen)["samples"]["simulate"][0]["parties"] == {"shop": {"exchanges": 7}}
    assert json.loads(seen)["facts"]["summary"]["parties"] == {"shop": {"steps": 2}} and not watched.may_ask


def test_a_party_that_meets_the_others_later_is_known_to_be_of_a_network_run(run: Path) -> None:
    seen = WatchedRun(run)
    assert seen.news()["facts"]["runtime"] != "network"
    (run / "everybody.json").write_text("{}")
    assert seen.news()["facts"]["runtime"] == "network"


def test_the_label_party_sees_the_metrics(run: Path) -> None:
    watched = WatchedRun(run, "bank")
    watched.news()
    watched.news()
    append(run / "metrics.jsonl", {"exchange": 2, "loss": 0.25})
    assert watched.news()["metrics"] == [{"exchange": 2, "loss": 0.25}]


def test_a_party_that_is_not_there_is_refused(run: Path) -> None:
    with pytest.raises(SettingsError, match=r"no party of this run called 'shp'.*shop"):
        WatchedRun(run, "shp").check_party()


def test_what_a_run_is_doing(run: Path) -> None:
    def status() -> str:
        watched = WatchedRun(run)
        watched.news()
        return watched.status()

    live = run / "live" / "simulate.jsonl"
    assert status() == "running"
    append(live, {**sample(2.0), "paused": True})
    assert status() == "paused"
    append(live, sample(3.0, bank={"status": "waiting", "absent": ["shop"]}))
    assert status() == "waiting"
    live.write_text("")
    append(live, sample(4.0, ago=60))
    assert status() == "silent"
    append(run / "live" / "log.jsonl", {"time": time.time() - 59, "event": "failed", "message": "diverged"})
    assert status() == "failed"
    os.utime(run / "summary.json")
    assert status() == "finished"
    assert WatchedRun(run / "nothing").status() == "not begun"


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, words in (
        (tmp_path / "no", "There is no run"),
        (tmp_path / "file", "is a file"),
        (tmp_path, "not a run"),
    ):
        with pytest.raises(SettingsError, match=words):
            check_runs([path])


def test_an_epsilon_of_the_table_is_never_too_small() -> None:
    facts = budget_facts({"columns_epsilon": 8.0, "delta": 1e-5})
    assert facts is not None and [*facts["limits"]] == ["columns"]
    limit = facts["limits"]["columns"]["mu2"]
    shown = next(epsilon for cost, epsilon in facts["epsilon_of_mu2"] if cost >= limit)
    assert 8.0 <= shown < 8.2
    assert budget_facts({"noise": 0.0, "delta": 1e-5}) is None
    assert budget_facts({"noise": 1.0, "delta": 1e-5, "columns_epsilon": 0.0})["limits"] == {}
