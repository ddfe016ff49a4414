"""Sinks: what they are told, what becomes of one that fails; those built in, read back where they keep runs."""

import json
import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colonnade import Training, dataset, train
from colonnade.errors import SettingsError
from colonnade.federation.file import federation_values, parse_federation
from colonnade.tracking import Track, TrackedRun
from colonnade.tracking import tracker as tracking
from colonnade.tracking.run import figures_of_summary, settings_of
from colonnade.tracking.settings import track_of, with_asked
from colonnade.tracking.sinks import sinks_of
from colonnade.tracking.to_tensorboard import TensorboardSink
from colonnade.tracking.to_wandb import WandbSink
from colonnade.tracking.tracker import Tracker

HERE = "test_sinks:Kept"
KEPT: list[tuple[str, Any]] = []
"""What sinks of this file were told."""
LINES = [
    {"exchange": 10, "loss": 0.5, "metric": None, "epoch": 1.0, "bytes_up": 80},
    {"exchange": 20, "loss": None, "metric": {"accuracy": 0.75}, "validation": {"accuracy": 0.7}, "epoch": 2.0},
]
SUMMARY = {"status": "finished", "exchanges": 20, "test": {"accuracy": 0.75}, "train_loss": float("nan")}


class Kept:
    """A sink of a test's own."""

    def __init__(self, where: str) -> None:
        self._where = where

    def began(self, run: TrackedRun) -> str:
        KEPT.append(("began", run))
        return f"{self._where}/{run.name}"

    def lines(self, lines: Sequence[Mapping[str, Any]]) -> None:
        KEPT.extend(("line", line) for line in lines)

    def ended(self, summary: Mapping[str, Any]) -> None:
        KEPT.append(("ended", summary))


class Failing(Kept):
    def lines(self, lines: Sequence[Mapping[str, Any]]) -> None:
        raise ConnectionError("the server is away\nand more that nobody wants to read")


class Hanging(Kept):
    over = threading.Event()

    def began(self, run: TrackedRun) -> str:
        self.over.wait(30)
        return ""


class NoSink:
    def __init__(self, where: str) -> None: ...


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "test_sinks", sys.modules[__name__])
    KEPT.clear()


def told(*what: str) -> list[Any]:
    return [value for kind, value in KEPT if kind in what]


def run_through(track: Track, directory: Path | None = None, resume: bool = False, **options: float) -> None:
    tracker = Tracker(track, **options)
    tracker.begin(TrackedRun("a run", "", {"training.epochs": "2"}, directory), resume)
    for line in LINES:
        tracker.line(line)
    tracker.end(SUMMARY)


def test_a_sink_is_told_what_the_files_of_a_run_say(tmp_path: Path) -> None:
    plan = Training(epochs=2, batch_size=32)
    data = dataset("iris", parties=2)
    outcome = train(data, "vafl", training=plan, out=tmp_path / "run", track={HERE: "hall"})
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert told("line") == lines and lines
    assert told("ended") == [outcome.summary]
    (run,) = told("began")
    assert (run.name, run.before, run.settings["training.epochs"]) == ("run", "", "2")
    again = train(data, "vafl", training=Training(epochs=3, batch_size=32), out=tmp_path / "run", resume=True)
    assert len(told("began")) == 1 and again.finished  # nobody asked for it


def test_a_run_that_goes_on_is_the_same_one(tmp_path: Path) -> None:
    run_through(Track(own={HERE: "hall"}), tmp_path)
    run_through(Track(own={HERE: "hall"}), tmp_path, resume=True)
    assert [run.before for run in told("began")] == ["", "hall/a run"]


def test_a_training_that_fails_ends_there_too() -> None:
    with pytest.raises(ZeroDivisionError), tracking.tracked(Track(own={HERE: ""})) as tracker:
        tracker.begin(TrackedRun("a run", ""))
        raise ZeroDivisionError
    assert told("ended") == [{"status": "failed"}]


def test_a_sink_that_fails_costs_one_warning_and_no_other_sink(caplog: pytest.LogCaptureFixture) -> None:
    run_through(Track(own={"test_sinks:Failing": "", HERE: ""}))
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert "test_sinks:Failing is told no more of this run: ConnectionError: the server is away." in line.message
    assert told("line") == LINES and told("ended") == [SUMMARY]


def test_a_login_in_what_a_sink_says_is_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: Any) -> None:
        raise ConnectionError(f"{'x' * 230} no answer from https://me:secret/of@mine@host:5000/api")

    monkeypatch.setattr(Failing, "lines", away)
    run_through(Track(own={"test_sinks:Failing": ""}))
    assert "no answer from http" in caplog.text and "secret" not in caplog.text and "mine" not in caplog.text


def test_a_sink_that_hangs_is_waited_for_and_left(caplog: pytest.LogCaptureFixture) -> None:
    run_through(Track(own={"test_sinks:Hanging": ""}), patience_seconds=0.05)
    Hanging.over.set()
    assert ["within 0.05 seconds" in line.message for line in caplog.records] == [True]


def test_a_sink_that_falls_behind_is_left(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(tracking, "MOST_WAITING", 1)
    Hanging.over.clear()
    run_through(Track(own={"test_sinks:Hanging": ""}), patience_seconds=0.0)
    Hanging.over.set()
    assert ["1 lines wait for it" in line.message for line in caplog.records] == [True]


@pytest.mark.parametrize(
    ("sinks", "said"),
    [
        ({"mlflw": "x"}, "Did you mean 'mlflow'"),
        ({"mlflow": ""}, "mlflow=sqlite:///mlflow.db"),
        ({"mlflow": "http://me:secret@host/"}, "holds a password"),
        ({"mlflow": "http://me:[secret@host/"}, "is no address"),
        ({"no_such_module:Sink": "x"}, "cannot be made: ModuleNotFoundError"),
        ({"test_sinks:NoSink": "x"}, "has no began and no lines and no ended"),
    ],
)
def test_a_wrong_sink_is_said_before_the_run(sinks: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        sinks_of(track_of(sinks))
    assert "secret" not in str(caught.value)


def test_an_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.tracking.sinks.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"pip install 'colonnade\[tensorboard\]'"):
        sinks_of(Track(tensorboard="board"))


def test_one_name_in_file_command_and_python() -> None:
    values = {"data": {"set": "iris", "parties": 2}, "track": {"mlflow": "sqlite:///a.db", "own": {HERE: "hall"}}}
    of_file = parse_federation(values).track
    assert of_file == track_of({"mlflow": "sqlite:///a.db", HERE: "hall"})
    asked = with_asked(of_file, ["mlflow=sqlite:///b.db", "tensorboard=/board"])
    assert asked.sinks == {"mlflow": "sqlite:///b.db", "tensorboard": "/board", HERE: "hall"}
    assert parse_federation(federation_values(parse_federation(values))).track == of_file
    assert "track" not in federation_values(parse_federation({"data": values["data"]}))
    with pytest.raises(SettingsError, match="NAME=WHERE"):
        with_asked(of_file, ["mlflow"])


def test_where_a_partys_files_lie_is_not_told() -> None:
    shown = settings_of({"parties": {"bank": {"file": "customers.csv"}}, "training": {"epochs": 2}})
    assert shown == {"training.epochs": "2"}


def test_figures_are_finite_numbers() -> None:
    assert figures_of_summary(SUMMARY) == {"summary/exchanges": 20, "summary/test/accuracy": 0.75}


# --- built in ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # of packages that it loads
def test_mlflow_keeps_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_ALLOW_FILE_STORE", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "true")
    where = f"file:{tmp_path / 'store'}"
    run_through(Track(mlflow=where), tmp_path)
    run_through(Track(mlflow=where), tmp_path, resume=True)
    from mlflow.tracking import MlflowClient

    client = MlflowClient(where)
    experiment = client.get_experiment_by_name("colonnade")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("a run", "FINISHED")
    assert run.data.params == {"training.epochs": "2"}
    assert run.data.metrics["test/accuracy"] == run.data.metrics["summary/test/accuracy"] == 0.75
    assert {(one.step, one.value) for one in client.get_metric_history(run.info.run_id, "loss")} == {(10, 0.5)}


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_reads_a_run(tmp_path: Path) -> None:
    run_through(Track(tensorboard=str(tmp_path / "board")))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "board" / "a run"))
    events.Reload()
    assert [(one.step, one.value) for one in events.Scalars("loss")] == [(10, 0.5)]
    assert [(one.step, one.value) for one in events.Scalars("test/accuracy")] == [(20, 0.75)]
    assert [one.value for one in events.Scalars("summary/exchanges")] == [20]


@pytest.mark.filterwarnings("ignore")
def test_two_runs_of_one_name_are_two_in_tensorboard(tmp_path: Path) -> None:
    folders = [TensorboardSink(str(tmp_path)).began(TrackedRun("a run", "")) for _ in range(2)]
    assert folders == [str(tmp_path / "a run"), str(tmp_path / "a run-2")]


def test_weights_and_biases_is_given_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its package is not among those of the tests: this is what it would be called with."""
    called: list[Any] = []
    run = SimpleNamespace(
        id="abc",
        define_metric=lambda name, step_metric: None,
        log=called.append,
        summary={},
        finish=lambda exit_code: called.append(exit_code),
    )

    def init(**given: Any) -> Any:
        called.append(given)
        return run

    fake = SimpleNamespace(init=init, Settings=lambda **given: given)
    monkeypatch.setitem(sys.modules, "wandb", fake)  # type: ignore[arg-type]
    sink = WandbSink("project")
    assert sink.began(TrackedRun("a run", "", {"training.epochs": "2"})) == "abc"
    sink.lines(LINES)
    sink.ended(SUMMARY)
    given, first, _, exit_code = called
    assert (given["project"], given["name"], given["config"]) == ("project", "a run", {"training.epochs": "2"})
    assert first == {"exchange": 10, "loss": 0.5, "epoch": 1.0, "bytes_up": 80} and exit_code == 0
    assert run.summary == {"summary/exchanges": 20, "summary/test/accuracy": 0.75}
