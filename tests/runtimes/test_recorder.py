"""The books of a run: lines as they come, bytes up and down, and a bounded excerpt of who was busy."""

import json
from math import nan
from pathlib import Path
from typing import Any

from colonnade.messages import EvaluationEmbedding, EvaluationRequest, GradientReply, Stop
from colonnade.party import Observe
from colonnade.runtimes import recorder as recorder_module
from colonnade.runtimes.recorder import Recorder


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def busy_recorder(directory: Path | None = None, **more: Any) -> Recorder:
    recorder = Recorder("label", directory, **more)
    recorder.traffic_of("label").count(GradientReply, 100)
    recorder.traffic_of("label").count(Stop, 10)
    recorder.traffic_of("label").count(EvaluationRequest, 1000)
    recorder.traffic_of("bank").count(GradientReply, 20)
    recorder.traffic_of("shop").count(GradientReply, 3)
    recorder.traffic_of("shop").count(EvaluationEmbedding, 5000)
    return recorder


def test_bytes_go_up_to_the_label_party_and_down_from_it_without_evaluation() -> None:
    recorder = busy_recorder()
    assert recorder.bytes_up_and_down() == (23, 110)
    assert recorder.traffic_of("shop").evaluation_bytes() == 5000


def test_an_observation_is_one_line_at_once(tmp_path: Path) -> None:
    watched: list[dict[str, Any]] = []
    recorder = busy_recorder(tmp_path, watch=watched.append)
    recorder.observe("label", Observe(40, 10, 0.1234567, loss=0.5, metric={"accuracy": 0.75}), now=2.5)
    recorder.observe("bank", Observe(41, 11, 0.5, note="waiting for shop"), now=3.0)
    written = lines(tmp_path / "metrics.jsonl")  # before close: a crash loses nothing
    assert written == recorder.metrics == watched
    first, second = written
    assert first.pop("wall_seconds") >= 0
    assert first == {
        "party": "label",
        "exchange": 40,
        "step": 10,
        "epoch": 0.123457,
        "virtual_seconds": 2.5,
        "loss": 0.5,
        "metric": {"accuracy": 0.75},
        "bytes_up": 23,
        "bytes_down": 110,
    }
    assert second["note"] == "waiting for shop"
    recorder.close()


def test_what_is_not_finite_is_null_in_the_file(tmp_path: Path) -> None:
    """Now, and when the file is written anew from a checkpoint."""
    recorder = Recorder("label", tmp_path)
    recorder.observe("label", Observe(1, 1, 0.5, loss=float("inf"), metric={"accuracy": 0.5, "log_loss": nan}), 1.0)
    recorder.observe("label", Observe(2, 2, 0.5, loss=0.5), 1.0)
    recorder.close()
    for _ in range(2):
        text = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8")
        assert "NaN" not in text and "Infinity" not in text
        first, second = lines(tmp_path / "metrics.jsonl")
        assert (first["loss"], first["metric"]) == (None, {"accuracy": 0.5, "log_loss": None})
        assert first["note"] == "The loss was not a finite number: the training has diverged."
        assert second["loss"] == 0.5 and "note" not in second
        Recorder("label", tmp_path).restore(recorder.state())


def test_without_virtual_time_there_are_no_virtual_seconds() -> None:
    recorder = Recorder("label", virtual=False)
    recorder.observe("label", Observe(1, 1, 0.5), now=2.5)
    assert recorder.metrics[0]["virtual_seconds"] is None


def test_the_timeline_is_an_excerpt_of_every_party(tmp_path: Path) -> None:
    kept = recorder_module.TIMELINE_INTERVALS_PER_PARTY
    recorder = Recorder("label", tmp_path)
    for number in range(kept + 50):
        recorder.interval("bank", number, number + 0.5)
    recorder.interval("shop", 1.0, 2.0, "away")
    recorder.close()
    written = lines(tmp_path / "timeline.jsonl")
    assert len(written) == kept + 1
    assert written[0] == {"party": "bank", "start": 0, "end": 0.5, "what": "busy"}
    assert written[-1] == {"party": "shop", "start": 1.0, "end": 2.0, "what": "away"}


def test_a_resumed_recorder_drops_the_lines_after_the_checkpoint(tmp_path: Path) -> None:
    recorder = busy_recorder(tmp_path)
    recorder.observe("label", Observe(1, 1, 0.1), now=1.0)
    recorder.interval("bank", 0.0, 1.0)
    saved = json.loads(json.dumps(recorder.state()))  # as a checkpoint keeps it
    recorder.observe("label", Observe(2, 2, 0.2), now=2.0)
    recorder.interval("bank", 1.0, 2.0)
    recorder.traffic_of("bank").count(GradientReply, 7)
    recorder.close()

    resumed = Recorder("label", tmp_path)
    resumed.restore(saved)
    assert [line["exchange"] for line in lines(tmp_path / "metrics.jsonl")] == [1]
    assert resumed.bytes_up_and_down() == (23, 110)
    assert resumed.wall_seconds() >= saved["wall_seconds"]
    resumed.observe("label", Observe(3, 3, 0.3), now=2.5)
    resumed.close()
    assert [line["exchange"] for line in lines(tmp_path / "metrics.jsonl")] == [1, 3]
    assert [line["end"] for line in lines(tmp_path / "timeline.jsonl")] == [1.0]


def test_without_a_directory_nothing_is_written(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    recorder = busy_recorder()
    recorder.observe("label", Observe(1, 1, 0.1), now=1.0)
    recorder.close()
    assert list(tmp_path.iterdir()) == []
