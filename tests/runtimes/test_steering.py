"""A run is paused, resumed and stopped by a file, and no time passes for it in a pause."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from colonnade import Training, dataset, train
from colonnade.party import Finish, SetTimer
from colonnade.runtimes.pace import Pace
from colonnade.runtimes.steering import GO_ON, LOOK_SECONDS, PAUSE, STOP, Steering, ask
from colonnade.testing.fake_carrier import FakeCarrier
from colonnade.testing.scripted_party import Scripted


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds

    def pass_by(self, seconds: float) -> None:
        self.seconds += seconds


def test_it_pauses_goes_on_and_stops(tmp_path: Path) -> None:
    clock = Clock()
    steering = Steering(tmp_path, clock)
    assert not steering.paused() and not steering.stop_requested()
    seen = []
    for what in (PAUSE, GO_ON, STOP):
        ask(tmp_path, what)
        clock.pass_by(LOOK_SECONDS)
        seen.append((steering.paused(), steering.stop_requested()))
    assert seen == [(True, False), (False, False), (False, True)]


def test_the_clock_stands_still_in_a_pause(tmp_path: Path) -> None:
    clock = Clock()
    steering = Steering(tmp_path, clock)
    assert steering.clock() == 100.0
    ask(tmp_path, PAUSE)
    clock.pass_by(1.0)
    assert steering.paused() and steering.clock() == 101.0
    clock.pass_by(50.0)
    assert steering.clock() == 101.0
    ask(tmp_path, GO_ON)
    assert not steering.paused()
    clock.pass_by(2.0)
    assert steering.clock() == 103.0


def test_what_was_asked_of_a_run_before_it_was_started_is_forgotten(tmp_path: Path) -> None:
    ask(tmp_path, STOP)
    steering = Steering(tmp_path)
    steering.begin()
    assert not steering.stop_requested()


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"asked": "dance"}', b"\xff"])
def test_what_cannot_be_read_asks_for_nothing(content: bytes, tmp_path: Path) -> None:
    ask(tmp_path, PAUSE)
    (tmp_path / "live" / "asked.json").write_bytes(content)
    steering = Steering(tmp_path)
    assert not steering.paused() and not steering.stop_requested()


def test_a_file_that_others_may_change_asks_for_nothing(tmp_path: Path) -> None:
    ask(tmp_path, STOP)
    (tmp_path / "live" / "asked.json").chmod(0o622)
    assert not Steering(tmp_path).stop_requested()


# --- a party in real time ---------------------------------------------------------------------------------------


def test_a_paused_party_handles_nothing_until_it_goes_on(tmp_path: Path) -> None:
    def script(party: Scripted, what: str) -> list[object]:
        return {"Started": [SetTimer("end", 3.0)], "timer end": [Finish()]}.get(what, [])

    here = FakeCarrier(tmp_path, ["bank"], lambda _: Scripted(script), links=[])
    station = here.stations["bank"]
    here.turn("bank")
    station.is_paused = lambda: True
    here.clock.tick(10.0)
    assert not station.turn() and station.idle_until() > here.clock() + 1000
    station.is_paused = lambda: False
    assert station.turn() and station.finished
    here.close()


def test_a_pace_that_only_pauses_costs_nothing() -> None:
    assert Pace(paused=lambda: True).is_full_speed and not Pace(slowdown=2.0).is_full_speed


# --- a simulation -----------------------------------------------------------------------------------------------


class Asking:
    """Asks for something at a line of metrics, and remembers what was done by then."""

    def __init__(self, directory: Path, at_exchange: int, what: str) -> None:
        self._directory, self._at, self._what = directory, at_exchange, what
        self.exchanges: list[int] = []

    def __call__(self, line: dict[str, int]) -> None:
        self.exchanges.append(line["exchange"])
        if line["exchange"] >= self._at and self._what:
            ask(self._directory, self._what)
            self._what = ""


def trained(out: Path, watch: Callable[..., None] | None = None, **options: object) -> dict[str, object]:
    plan = Training(epochs=30, batch_size=16)
    return dict(train(dataset("iris", parties=2), "vafl", training=plan, out=out, watch=watch, **options).summary)


def test_the_time_that_a_simulation_tells_stands_still_in_a_pause(tmp_path: Path) -> None:
    run = tmp_path / "run"
    threading.Timer(1.0, ask, (run, GO_ON)).start()

    def pause_once(line: object) -> None:
        if not (run / "live" / "asked.json").exists():
            ask(run, PAUSE)

    plan = Training(epochs=40, batch_size=8, evaluate_every_epochs=1)
    train(dataset("iris", parties=2), training=plan, out=run, watch=pause_once)
    lines = [json.loads(line) for line in (run / "live" / "simulate.jsonl").read_text().splitlines()]
    paused = [line["now"] for line in lines if line["paused"]]
    assert len(paused) > 2 and max(paused) - min(paused) < 0.5  # of a pause of a second
    assert [line["now"] for line in lines] == sorted(line["now"] for line in lines)


def test_a_simulation_that_is_stopped_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole")
    asking = Asking(tmp_path / "run", 50, STOP)
    stopped = trained(tmp_path / "run", asking)
    assert stopped["status"] == "stopped" and 50 <= stopped["exchanges"] < whole["exchanges"]
    resumed = trained(tmp_path / "run", resume=True)
    same = ("status", "exchanges", "train_loss", "test", "virtual_seconds", "bytes_up")
    assert [resumed[name] for name in same] == [whole[name] for name in same]
    live = [json.loads(line) for line in (tmp_path / "run" / "live" / "simulate.jsonl").read_text().splitlines()]
    assert live[-1]["parties"]["label"]["exchanges"] == whole["exchanges"]
    assert [one["now"] for one in live] == sorted(one["now"] for one in live)
