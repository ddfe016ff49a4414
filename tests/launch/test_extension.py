"""More epochs after the end of a run: what is trained is what one longer run trains, where its length does not decide
how long steps are; and what must not be stretched is refused."""

import json
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import colonnade
from colonnade import (
    Centralised,
    Fcg,
    Fsaga,
    Fsgd,
    Outcome,
    PerturbationSettings,
    SettingsError,
    Simulate,
    Split,
    Training,
    Vafl,
    ZooSync,
)
from colonnade.algorithms.linear_models.afsaga import Afsaga
from colonnade.launch import extension
from colonnade.runtimes.processes.settings import Processes
from colonnade.testing import TinyFederation, assert_same_bits, tiny_data, weights

DATA = tiny_data()
FIXED: dict[str, Any] = {"step": "fixed", "precondition": "none"}
EXACT = {
    "split": Split(),
    "zoo-sync": ZooSync(),
    "centralised": Centralised(),
    "fsgd": Fsgd(decay=0.1, **FIXED),
    "fsaga": Fsaga(**FIXED),
    "masked": Fsaga(sums="pairwise", **FIXED),
    "fcg": Fcg(),
}
TRAINING = Training(epochs=2, batch_size=8, optimiser="sgd", learning_rate=0.05)


def federation(algorithm: Any, **training: Any) -> TinyFederation:
    return TinyFederation(DATA, algorithm, training=replace(TRAINING, **training))


def run(algorithm: Any, out: Path, runtime: Any = "simulate", **training: Any) -> Outcome:
    given = federation(algorithm, **training)
    bottom, top = given.models()
    resume = (out / "federation.toml").exists()
    options: dict[str, Any] = {"bottom": bottom, "top": top, "out": out, "resume": resume, "runtime": runtime}
    return colonnade.train(DATA, algorithm, training=given.training, **options)


@pytest.mark.parametrize("name", EXACT)
def test_twice_two_epochs_are_four(name: str, tmp_path: Path) -> None:
    run(EXACT[name], tmp_path / "run")
    longer = run(EXACT[name], tmp_path / "run", epochs=4)
    once = run(EXACT[name], tmp_path / "once", epochs=4)
    assert_same_bits(weights(longer.models), weights(once.models))
    assert longer.summary["exchanges"] == once.summary["exchanges"]
    assert longer.summary["test"] == once.summary["test"]
    assert colonnade.load_model(tmp_path / "run").predict(
        {party: held.test for party, held in DATA.columns.items()}
    ) == pytest.approx(once.predict({party: held.test for party, held in DATA.columns.items()}))


def test_a_third_time(tmp_path: Path) -> None:
    for epochs in (1, 2, 3):
        last = run(Split(), tmp_path / "run", epochs=epochs)
    assert_same_bits(weights(last.models), weights(run(Split(), tmp_path / "once", epochs=3).models))


@pytest.mark.parametrize("algorithm", [Split(), Vafl(), Afsaga(), Fsaga()], ids=lambda one: type(one).__name__)
def test_it_goes_on_from_the_model_that_was_kept(algorithm: Any, tmp_path: Path) -> None:
    data = colonnade.dataset("iris", parties=2, validation=0.2)
    training = Training(epochs=3, batch_size=16, learning_rate=0.05, evaluate_every_epochs=1)
    first = colonnade.train(data, algorithm, training=training, out=tmp_path / "run")
    longer = colonnade.train(data, algorithm, training=replace(training, epochs=6), out=tmp_path / "run", resume=True)
    assert longer.finished and longer.summary["epochs"] >= 6
    accuracy = [one.summary["validation"]["accuracy"] for one in (first, longer)]
    assert accuracy[1] >= accuracy[0]  # the best of more evaluations, the kept one among them


def test_a_run_in_processes_goes_on(tmp_path: Path) -> None:
    run(Split(), tmp_path / "run", Processes())
    longer = run(Split(), tmp_path / "run", Processes(), epochs=4)
    assert_same_bits(weights(longer.models), weights(run(Split(), tmp_path / "once", epochs=4).models))
    assert longer.finished and len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == len(longer.metrics)


@pytest.mark.parametrize("algorithm", [Vafl(), Afsaga()], ids=["vafl", "afsaga"])
def test_parties_that_are_killed_after_they_went_on_do_go_on(algorithm: Any, tmp_path: Path) -> None:
    run(algorithm, tmp_path / "run", Processes())
    exchanges = json.loads((tmp_path / "run" / "summary.json").read_text())["exchanges"]
    slow = Processes(compute_seconds=0.02)
    result: dict[str, Outcome] = {}
    worker = threading.Thread(
        target=lambda: result.update(longer=run(algorithm, tmp_path / "run", slow, epochs=6)), daemon=True
    )
    worker.start()
    _kill_one(tmp_path / "run")
    worker.join(60)
    longer = result["longer"]
    assert longer.finished and longer.summary["epochs"] >= 6 and longer.summary["exchanges"] > exchanges


def _kill_one(directory: Path) -> None:
    """The first party whose process is found in the middle of its extension."""
    journals = directory / "journal"
    until = time.monotonic() + 30
    while time.monotonic() < until:
        for path in Path("/proc").glob("[0-9]*/fd"):
            try:
                open_files = [str(one.readlink()) for one in path.iterdir()]
            except OSError:
                continue
            if any(str(journals / "party1-") in one for one in open_files):
                os.kill(int(path.parent.name), signal.SIGKILL)
                return
        time.sleep(0.01)
    raise AssertionError("no process of party1 was found")


def test_the_ledger_goes_on(tmp_path: Path) -> None:
    noised = PerturbationSettings(clip=1.0, noise=0.5)
    given = replace(federation(Vafl()), privacy=noised)
    given.run(tmp_path / "run", trace=False)
    before = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    longer = given.training_with(epochs=4).run(tmp_path / "run", trace=False, resume=True)
    after = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    assert after.startswith(before) and len(after) > 1.5 * len(before)
    once = given.training_with(epochs=4).run(tmp_path / "once", trace=False)
    sound = [one.summary["privacy"] for one in (longer, once)]
    assert json.dumps(sound[0]["observed"])[:20] == json.dumps(sound[1]["observed"])[:20]


# --- what is refused --------------------------------------------------------------------------------------------


def test_noise_that_was_chosen_for_fewer_epochs_is_not_stretched(tmp_path: Path) -> None:
    target = PerturbationSettings(clip=1.0, columns_epsilon=50.0, bottom_update="frozen")
    given = replace(federation(Vafl()), privacy=target)
    given.run(tmp_path / "run", trace=False)
    kept = (tmp_path / "run" / "federation.toml").read_bytes()
    with pytest.raises(SettingsError, match=r"chosen so that 2 epochs keep privacy.columns_epsilon = 50"):
        given.training_with(epochs=4).run(tmp_path / "run", trace=False, resume=True)
    assert (tmp_path / "run" / "federation.toml").read_bytes() == kept


def test_a_budget_that_is_spent_ends_it_again(tmp_path: Path) -> None:
    budget = PerturbationSettings(clip=1.0, noise=2.0, columns_epsilon=20.0)
    given = replace(federation(Vafl()), privacy=budget)
    first = given.run(tmp_path / "run", trace=False)
    again = given.training_with(epochs=40).run(tmp_path / "run", trace=False, resume=True)
    assert again.finished and any("budget" in line.get("note", "") for line in again.metrics)
    third = given.training_with(epochs=80).run(tmp_path / "run", trace=False, resume=True)
    assert third.finished and third.summary["exchanges"] == again.summary["exchanges"] > first.summary["exchanges"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"epochs": 1}, "training.epochs differ"), ({"epochs": 4, "l2": 0.1}, "training.epochs, training.l2 differ")],
)
def test_nothing_else_may_change(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    run(Split(), tmp_path / "run")
    with pytest.raises(SettingsError, match=words):
        run(Split(), tmp_path / "run", **changes)


def test_a_stopped_run_is_first_to_end(tmp_path: Path) -> None:
    given = federation(Split())
    given.run(tmp_path / "run", trace=False, stop_requested=lambda: True)
    with pytest.raises(SettingsError, match=r"has not finished: resume it without training\.epochs"):
        given.training_with(epochs=4).run(tmp_path / "run", trace=False, resume=True)


def test_a_traced_run_keeps_its_plan(tmp_path: Path) -> None:
    federation(Split()).run(tmp_path / "run")
    with pytest.raises(SettingsError, match="a trace is of one plan"):
        federation(Split(), epochs=4).run(tmp_path / "run", trace=False, resume=True)


def test_fcg_does_not_go_on_from_an_earlier_model(tmp_path: Path) -> None:
    """Where it ended with the last one it does; the sentence is for the other case."""
    assert run(Fcg(), tmp_path / "run", epochs=2).finished
    assert run(Fcg(), tmp_path / "run", epochs=3).finished


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_interrupted_while_it_is_written_down(writes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(Split(), tmp_path / "run")
    done: list[Path] = []
    original = extension.write_atomically

    def interrupted(path: Path, content: bytes) -> None:
        if len(done) == writes:
            raise KeyboardInterrupt
        done.append(path)
        original(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(extension, "write_atomically", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(Split(), tmp_path / "run", epochs=4)
    longer = run(Split(), tmp_path / "run", epochs=4)
    assert_same_bits(weights(longer.models), weights(run(Split(), tmp_path / "once", epochs=4).models))


def test_an_extension_keeps_the_absences_of_a_simulation(tmp_path: Path) -> None:
    world = Simulate(compute_seconds=0.01, parties={"party1": colonnade.SimulatedParty(crashes=((0.15, 0.2),))})
    given = replace(federation(Vafl()), simulate=world)
    given.run(tmp_path / "run", trace=False)
    longer = given.training_with(epochs=8).run(tmp_path / "run", trace=False, resume=True)
    assert longer.summary["parties"]["party1"]["away_seconds"] > 0
