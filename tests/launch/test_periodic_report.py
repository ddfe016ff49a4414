"""How far a party is, in words and as fields."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from colonnade.launch.periodic_report import PeriodicReport
from colonnade.party import Observe
from colonnade.runtimes.peer import Link
from colonnade.runtimes.recorder import Recorder
from colonnade.testing.fake_clock import FakeClock


def station(absent: list[str] | None = None, **counts: Any) -> Any:
    links = {name: Link(connected=False, away_seconds=12.34) for name in absent or []}
    return SimpleNamespace(
        party=SimpleNamespace(counts=lambda: counts), absent=lambda: absent or [], links=links, now=lambda: 15.0
    )


def test_the_label_party_tells_loss_rate_and_time_left(caplog: pytest.LogCaptureFixture) -> None:
    clock, recorder = FakeClock(), Recorder("bank", virtual=False)
    report = PeriodicReport(recorder, 4.0, clock)
    with caplog.at_level(logging.INFO):
        report(station(exchanges=100, epochs=0.5))
        recorder.observe("bank", Observe(200, 200, 1.0, 0.25, None), 10.0)
        clock.tick(10.0)
        report(station(["shop"], exchanges=200, epochs=1.0))
    (line,) = caplog.records
    assert line.getMessage() == "200 of about 800 exchanges, 10 per second, about 60 s left, loss 0.2500; without shop"
    assert vars(line)["event"] == "progress"
    told = {"exchange": 200, "rate": 10.0, "waiting_for": ["shop"], "waited_seconds": {"shop": 12.3}}
    told |= {"total": 800, "epoch": 1.0}
    assert vars(line)["facts"] == {**told, "loss": 0.25, "seconds_left": 60.0}


def test_a_feature_party_tells_its_own(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    report = PeriodicReport(Recorder("bank", virtual=False), 4.0, clock)
    with caplog.at_level(logging.INFO):
        report(station(exchanges=0))
        clock.tick(10.0)
        report(station(exchanges=50))
        clock.tick(5.0)
        report(station(exchanges=60))
    assert [record.getMessage() for record in caplog.records] == ["50 exchanges, 5 per second"]


def test_who_records_no_metrics_tells_sinks_how_far_it_is() -> None:
    clock, told = FakeClock(), list[dict[str, Any]]()
    report = PeriodicReport(Recorder("bank", virtual=False), 4.0, clock, told.append)
    report(station(exchanges=0, steps=0))
    clock.tick(10.0)
    report(station(exchanges=50, steps=40))
    assert told == [{"exchange": 50, "step": 40, "rate": 5.0, "wall_seconds": 15.0}]
