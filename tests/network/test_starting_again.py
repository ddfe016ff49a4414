"""A party that is started again: after an error the same one, after a mistake put right the run; and one at a time."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from parties import IRIS, LABEL, Town, shared, with_tables

import colonnade
from colonnade.errors import RunError
from colonnade.runtimes.run_lock import only_process_in


def test_an_error_of_the_training_is_the_same_at_every_start(town: Callable[..., Town]) -> None:
    """A training that does not descend however short its steps are has failed: each start says so again, and ends."""
    one = town(shared("vafl", IRIS, 50, 16, training={"learning_rate": 1e6}))
    # Nobody comes whom it could tell: it need not stay long.
    one.label.options = {"patches": {"colonnade.runtimes.network.limits.LONGEST_RETRY_SECONDS": 0.3}}
    for start in range(3):
        one.start()  # everybody, as their supervisors do; who was expelled is told so
        assert one.label.end(1) == 1
        for party in one.feature_parties:
            party.kill()  # who came when the label party had gone would wait for it
        assert "training has diverged" in one.label.said() and "training.learning_rate" in one.label.said()
        assert one.label.said().count("\ncolonnade: ") == start + 1  # the sentence with which it ends


def test_a_mistake_may_be_put_right_before_the_run_has_begun(town: Callable[..., Town]) -> None:
    one = town(shared("split", IRIS, 2, 16))
    party = one["party1"]
    party.write_files(training={"epochs": 2, "batch_size": 8})
    one.start()
    assert party.end(1) == 1
    assert "differ in training.batch_size: use the same file" in party.said()
    party.write_files()
    party.start()
    assert one.end()["status"] == "finished"
    # Another way to the label party is no other run.
    party.write_files(network={**one.shared["network"], "address": f"localhost:{one.port}"})
    party.start()
    assert party.end(0) == 0
    party.write_files(training={"epochs": 2, "batch_size": 8})
    party.start()
    assert party.end(2) == 2
    assert "holds a run with other settings" in party.said()


def test_the_label_party_knows_what_was_sent(town: Callable[..., Town]) -> None:
    one = town(shared("split", IRIS, 2, 16))
    one.start()
    summary = one.end()
    frames = summary["frames_by_message"]
    assert frames["EmbeddingUpload"] >= 2 * 2 * 7 and frames["GradientAndBatch"] > 0
    told = {(one["viewer"], one["kind"]): one["sentence"] for one in summary["learnt"]}
    steps = one["party1"].summary()["steps"]
    assert told["label", "EmbeddingUpload"].startswith(
        f"label saw {2 * 112} exact 16-number embeddings of 112 training"
    )
    assert steps == 14 and told["party1", "GradientAndBatch"].startswith("party1 saw 224 exact 16-number gradients")
    assert summary["data"]["parties"] == {"party1": {"columns": 2}, "party2": {"columns": 2}}


@pytest.mark.parametrize("name", ["everybody.json", "rows.json"])
def test_a_damaged_file_is_said(town: Callable[..., Town], name: str) -> None:
    one = town(shared("split", IRIS, 2, 16))
    one.start()
    one.end()
    path = one[LABEL].out / name
    path.write_bytes(path.read_bytes()[:5])
    one.label.start()
    assert one.label.end(1) == 1
    assert f"{name} is damaged" in one.label.said() and "Traceback" not in one.label.said()


@pytest.mark.parametrize("runtime", ["simulate", "processes"])
def test_a_run_is_not_resumed_while_it_runs(runtime: str, tmp_path: Path) -> None:
    data = colonnade.dataset("iris", parties=2)
    training = colonnade.Training(epochs=2, batch_size=16)
    colonnade.train(data, "vafl", training=training, runtime=runtime, out=tmp_path / "run")
    with only_process_in(tmp_path / "run"), pytest.raises(RunError, match="Another process takes part from"):
        colonnade.train(data, "vafl", training=training, runtime=runtime, out=tmp_path / "run", resume=True)
    again = colonnade.train(data, "vafl", training=training, runtime=runtime, out=tmp_path / "run", resume=True)
    assert again.finished


def test_who_cannot_be_built_is_said_when_the_last_party_has_come(town: Callable[..., Town]) -> None:
    """Not swallowed by the link, nor told to the others; and afterwards the settings may be put right."""
    one = with_tables(town, shared("vafl", {}, 2, 64, top={"kind": "sum-mlp"}), parties=2)
    for name, width in (("party1", 3), ("party2", 5)):
        one[name].own["bottom"] = {"embedding": width}
        one[name].write_files()
    one.start()
    assert one.label.end(2) == 2
    assert "Traceback" not in one.label.said()
    for name in ("party1", "party2"):
        assert one[name].end(1) == 1
        assert "The training has failed at label" in one[name].said()
        one[name].own["bottom"] = {"embedding": 4}
        one[name].write_files()
    one.start()
    assert one.end()["status"] == "finished"


def test_a_party_waits_for_the_end_of_its_own_life_before(tmp_path: Path) -> None:
    """Its parent was killed, and it is about to end: then its state is read, not sooner."""
    data = colonnade.dataset("iris", parties=2)
    training = colonnade.Training(epochs=2, batch_size=16)
    colonnade.train(data, "vafl", training=training, runtime="processes", out=tmp_path / "run")
    held = ExitStack()
    held.enter_context(only_process_in(tmp_path / "run" / "journal", "party1.lock"))
    timer = threading.Timer(1.0, held.close)
    timer.start()
    again = colonnade.train(data, "vafl", training=training, runtime="processes", out=tmp_path / "run", resume=True)
    assert again.finished and not timer.is_alive()
    with (
        only_process_in(tmp_path, "own"),
        pytest.raises(RunError, match="Another process"),
        only_process_in(tmp_path, "own", patience_seconds=0.1),
    ):
        pass
