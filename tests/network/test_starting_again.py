"""A party that is started again: after an error the same one, after a mistake put right the run; and one at a time."""

from collections.abc import Callable
from pathlib import Path

import pytest
from parties import IRIS, LABEL, Town, shared

import colonnade
from colonnade.errors import RunError
from colonnade.run_lock import only_process_in


def test_an_error_of_the_training_is_the_same_at_every_start(town: Callable[..., Town]) -> None:
    """The event that could not be handled stays unhandled: no checkpoint pretends that it was."""
    one = town(shared("vafl", IRIS, 50, 16, training={"learning_rate": 1e6}))
    one.start()
    for start in range(3):
        if start:
            one.label.start()
        assert one.label.end(1) == 1
        assert one.label.said().count("colonnade: The training has diverged") == start + 1


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
