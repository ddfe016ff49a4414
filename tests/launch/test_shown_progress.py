"""A training that was asked to shows how far it is; whoever watches besides is given every line as before."""

import sys
from typing import Any

import pytest

from colonnade.launch import progress
from colonnade.launch.progress import TrainingPace, shown_in_python
from colonnade.launch.run_options import RunOptions


def line(exchange: int, epoch: float) -> dict[str, Any]:
    return {"exchange": exchange, "epoch": epoch, "loss": 0.5, "metric": None}


def test_what_was_not_asked_for_is_not_shown() -> None:
    options = RunOptions()
    with shown_in_python(options, "vafl", 4.0) as same:
        assert same is options


def test_a_line_now_and_then_where_there_is_no_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", -1.0)
    seen: list[dict[str, Any]] = []
    with shown_in_python(RunOptions(progress=True, watch=seen.append), "vafl", 4.0) as options:
        assert options.watch is not None
        options.watch(line(10, 0.5))
        options.watch({**line(20, 1.0), "note": "a party is away"})
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "vafl: 10/80 exchanges, loss 0.5000"
    assert said[1] == "a party is away" and said[2].startswith("vafl: 20/80 exchanges, ")
    assert [one["exchange"] for one in seen] == [10, 20]


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with shown_in_python(RunOptions(progress=True), "vafl", 1.0) as options:
        assert options.watch is not None
        options.watch(line(40, 1.0))
    assert "vafl" in capsys.readouterr().err


def test_at_the_end_no_time_is_left() -> None:
    pace = TrainingPace(epochs=1.0)
    for done in (10, 20, 40):
        pace.take(line(done, done / 40))
    assert (pace.done, pace.total) == (40, 40)
    assert " left" not in pace.facts(with_time_left=True)
