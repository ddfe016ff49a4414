"""What a run writes down for those who look on: bounded, even over the whole run, and never in the way."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np

from colonnade.runtimes.live import LINE_SECONDS, Live, spent_by_quantile
from colonnade.runtimes.live_files import MOST_LINES, LiveFile, RunLog, kept


def moments(path: Path) -> list[float]:
    return [json.loads(line)["now"] for line in path.read_text(encoding="utf-8").splitlines()]


def test_few_moments_are_all_kept() -> None:
    assert kept([0.0, 1.0, 5.0]) == [0, 1, 2]


def test_of_many_the_last_quarter_and_the_rest_evenly() -> None:
    times = [float(place) for place in range(2000)]
    places = kept(times, 1600)
    assert len(places) <= 1600 and places[0] == 0 and places[-400:] == [*range(1600, 2000)]
    before = [times[place] for place in places if place < 1600]
    assert {after - one for one, after in pairwise(before)} == {2.0}  # 1600 s / 800


def test_a_file_stays_bounded_and_shows_the_whole_run(tmp_path: Path) -> None:
    path = tmp_path / "live" / "bank.jsonl"
    file = LiveFile(path)
    for number in range(2 * MOST_LINES):
        file.append({"now": float(number)})
    shown = moments(path)
    assert len(shown) <= MOST_LINES and shown[0] == 0 and shown[-1] == 2 * MOST_LINES - 1
    assert max(after - before for before, after in pairwise(shown)) <= 8


def test_a_run_that_goes_on_from_a_checkpoint_forgets_what_came_after_it(tmp_path: Path) -> None:
    path = tmp_path / "bank.jsonl"
    for number in range(5):
        LiveFile(path).append({"now": float(number)})  # each as a new process would
    assert moments(path) == [0, 1, 2, 3, 4]
    LiveFile(path).append({"now": 2.5})
    assert moments(path) == [0, 1, 2, 2.5]


def test_a_party_that_has_not_begun_keeps_the_time_of_its_last_line(tmp_path: Path) -> None:
    path = tmp_path / "bank.jsonl"
    LiveFile(path).append({"now": 7.0})
    LiveFile(path).append({"now": None})
    assert moments(path) == [7.0, 7.0]


def test_a_line_that_takes_long_is_taken_seldom(tmp_path: Path) -> None:
    wall, own = [0.0], [0.0]

    def take() -> dict[str, object]:
        own[0] += 0.01
        return {"now": wall[0], "parties": {}}

    live = Live(tmp_path / "a.jsonl", take, clock=lambda: wall[0], own_time=lambda: own[0])
    for step in range(400):
        wall[0] = step * 0.05
        live.look()
    taken = moments(tmp_path / "a.jsonl")
    assert taken[1] - taken[0] < 2 * LINE_SECONDS  # the first may have loaded something
    assert min(after - before for before, after in pairwise(taken[1:])) >= 1.0  # 100 × 0.01 s


def test_nothing_depends_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / "live").write_text("a file where the folder would be")
    Live(tmp_path / "live" / "a.jsonl", lambda: {"now": 0.0, "parties": {}}).write()
    RunLog(tmp_path).say("hello")
    assert (tmp_path / "live").is_file()


def test_costs_add_up_by_row_and_are_told_by_quantile() -> None:
    def kind(noise: float, counts: list[int]) -> dict[str, object]:
        told = {"party": "a", "protects": "columns of a, training rows", "sensitivity": 2.0, "noise": noise}
        return {**told, "per_row": np.array(counts, np.uint16)}

    # (2/2)² = 1 for each release of the first kind, (2/4)² = 1/4 of the second; the fourth row was never released.
    found = spent_by_quantile([kind(2.0, [1, 2, 3, 0]), kind(4.0, [4, 0, 0, 0, 4])])
    assert found == {"a": {"columns of a, training rows": {"rows": 4, "mu2": [1.0, 1.75, 2.0, 2.25, 3.0]}}}
    assert spent_by_quantile([{**kind(1.0, [1]), "sensitivity": None}]) == {}


def test_the_log_is_bounded(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    for number in range(1500):
        log.say(f"{number} " + 400 * "x", "warning", "bank")
    lines = (tmp_path / "live" / "log.jsonl").read_text().splitlines()
    assert len(lines) < 1000 and json.loads(lines[-1])["message"].startswith("1499 ")
