"""`colonnade replay`: a recorded run gives the same effects and models again, or it is said where not."""

from pathlib import Path

import pytest
from command_line import IRIS, colonnade, refused, toml

import colonnade as framework
from colonnade.trace import read_trace

CHANGED = {
    "vafl": [],
    "dpzv": ["algorithm.server_update=private-zo", "privacy.labels_epsilon=5"],
    "afsaga": ["training.l2=0.01"],
}


def recorded(algorithm: str = "vafl", runtime: str = "simulate") -> Path:
    changes = [f"algorithm.name={algorithm}", *CHANGED[algorithm]]
    arguments = [part for change in changes for part in ("--set", change)]
    made = colonnade(
        *("run", toml("flowers.toml", IRIS), "--runtime", runtime, "--trace", "--no-report", "--out", "run", *arguments)
    )
    assert made.code == 0, made.err
    return Path("run")


@pytest.mark.parametrize(("algorithm", "runtime"), [*((name, "simulate") for name in CHANGED), ("vafl", "processes")])
def test_a_run_is_played_again(algorithm: str, runtime: str) -> None:
    run = recorded(algorithm, runtime)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    parties = ("label", "party1", "party2")
    events = {name: sum(one.is_event for one in read_trace(run / "trace" / f"{name}.trace")) for name in parties}
    told = colonnade("replay", run, "--json").object
    assert told == {"run": "run", "parties": {name: {"events": events[name], "model": "the same"} for name in parties}}
    assert f"label: {events['label']:,} events, the same effects, the same model" in colonnade("replay", run).out
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_another_federation_is_not_the_recorded_one() -> None:
    kept = recorded() / "federation.toml"
    as_run = kept.read_text()
    kept.write_text(as_run.replace('\nlearning_rate = "auto"\n', "\nlearning_rate = 0.11\n"))
    assert kept.read_text() != as_run
    answer = colonnade("replay", "run")
    assert (answer.code, answer.out) == (1, "")
    assert "label.trace, event " in answer.err and "other settings or data than the recorded one" in answer.err


def test_a_checkpoint_that_is_older_than_the_trace_is_not_compared() -> None:
    run = recorded(runtime="processes")
    for path in (run / "checkpoints").glob("party1-*"):
        path.unlink()
    models = {name: one["model"] for name, one in colonnade("replay", run, "--json").object["parties"].items()}
    assert models == {"label": "the same", "party1": "not compared", "party2": "the same"}
    assert "no checkpoint of the trace's end to compare with" in colonnade("replay", run).out


def test_what_cannot_be_played_again() -> None:
    assert "nowhere is not a run's directory: it has no federation.toml." in refused("replay", "nowhere")
    assert colonnade("run", toml("flowers.toml", IRIS), "--no-report", "--out", "silent").code == 0
    assert "silent has no traces. A run records them when it is started with --trace." in refused("replay", "silent")
    run = recorded()
    (run / "trace" / "party2.trace").unlink()
    answer = colonnade("replay", run)
    assert answer.code == 2 and "There is no run/trace/party2.trace." in answer.err
    training = framework.Training(epochs=1, batch_size=16)
    framework.train(framework.dataset("iris", parties=2), "vafl", training=training, out="python", trace=True)
    assert "started from Python is replayed from there" in refused("replay", "python")
