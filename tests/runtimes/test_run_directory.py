"""What `train` does to its directory: nothing before all is well, nothing to another run, no harm by a full disk."""

import errno
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import colonnade
from colonnade.data.federated import FederatedData
from colonnade.errors import ColonnadeError, DataError, RunError, SettingsError
from colonnade.launch.experiment import train
from colonnade.launch.outcome import Outcome
from colonnade.runtimes import recorder

TRAINING = colonnade.Training(epochs=2, batch_size=16, evaluate_every_epochs=1.0)


@pytest.fixture(scope="module")
def data() -> FederatedData:
    return colonnade.dataset("iris", parties=2)


def run(data: FederatedData, out: Path | None, **more: Any) -> Outcome:
    return train(data, more.pop("algorithm", "vafl"), out=out, **{"training": TRAINING, **more})


def stop_after(looks: int) -> Any:
    """A stop request that comes at the n-th look."""
    left = iter(range(looks))
    return lambda: next(left, None) is None


def digests(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def parameters(outcome: Outcome) -> list[torch.Tensor]:
    modules = [module for models in outcome.models.values() for module in models.values()]
    return [parameter for module in modules for parameter in module.parameters()]


def test_a_run_directory_holds_what_it_should(data: FederatedData, tmp_path: Path) -> None:
    outcome = run(data, tmp_path / "new" / "run", trace=True)
    assert outcome.finished
    names = set(digests(tmp_path / "new" / "run"))
    assert {"federation.toml", "metrics.jsonl", "timeline.jsonl", "summary.json", "ledger.jsonl"} <= names
    assert {"trace/label.trace", "trace/party1.trace", "trace/party2.trace"} <= names
    assert not [name for name in names if name.endswith(".tmp")]
    summary = json.loads((tmp_path / "new" / "run" / "summary.json").read_text(encoding="utf-8"))
    assert summary == json.loads(json.dumps(outcome.summary))
    assert summary["status"] == "finished"


def test_without_out_nothing_is_written(data: FederatedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(data, None)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_exists_is_left_as_it_is(data: FederatedData, tmp_path: Path) -> None:
    run(data, tmp_path / "run")
    before = digests(tmp_path / "run")
    with pytest.raises(SettingsError, match=r"run exists already\. Choose another .*--resume, or remove it"):
        run(data, tmp_path / "run")
    assert digests(tmp_path / "run") == before
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingsError, match="exists already"):
        run(data, tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(ColonnadeError, match="file"):
            run(data, out)
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


WRONG: dict[str, dict[str, Any]] = {
    "algorithm": {"algorithm": "valf"},
    "wait_for": {"algorithm": colonnade.Vafl(wait_for=3)},
    "batch_size": {"training": colonnade.Training(batch_size=10**6)},
    "bottom of nobody": {"bottom": {"nobody": colonnade.BottomSettings()}},
    "bottom kind": {"bottom": colonnade.BottomSettings(kind="cnn")},
    "top width": {"top": torch.nn.Linear(32, 7)},
    "party": {"simulate": colonnade.Simulate(parties={"nobody": colonnade.SimulatedParty()})},
    "link": {"simulate": colonnade.Simulate(links={"label -> nobody": colonnade.SimulatedLink()})},
    "seed": {"seed": -1},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_wrong_settings_make_no_directory(data: FederatedData, tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        run(data, tmp_path / "deep" / "run", **wrong)
    assert list(tmp_path.iterdir()) == []


def test_trace_and_resume_need_a_directory(data: FederatedData) -> None:
    with pytest.raises(SettingsError, match="give out="):
        run(data, None, trace=True)
    with pytest.raises(SettingsError, match="as out="):
        run(data, None, resume=True)


# --- stop and resume --------------------------------------------------------------------------------------------


def test_a_stopped_run_resumes_to_the_same_models(data: FederatedData, tmp_path: Path) -> None:
    whole = run(data, tmp_path / "whole", trace=True)
    first = run(data, tmp_path / "parts", trace=True, stop_requested=stop_after(40))
    assert (first.finished, first.summary["status"]) == (False, "stopped")
    second = run(data, tmp_path / "parts", resume=True, trace=True, stop_requested=stop_after(60))
    assert not second.finished
    last = run(data, tmp_path / "parts", resume=True, trace=True)
    assert last.finished
    for ours, theirs in zip(parameters(last), parameters(whole), strict=True):
        assert torch.equal(ours, theirs)
    for name in ("label", "party1", "party2"):
        path = Path("trace") / f"{name}.trace"
        assert (tmp_path / "parts" / path).read_bytes() == (tmp_path / "whole" / path).read_bytes()
    for key in ("exchanges", "virtual_seconds", "bytes_up", "bytes_down", "train_loss", "test", "staleness"):
        assert last.summary[key] == whole.summary[key], key
    lines = [json.loads(line) for line in (tmp_path / "parts" / "metrics.jsonl").read_text().splitlines()]
    assert [line["exchange"] for line in lines] == [line["exchange"] for line in whole.metrics]


def test_a_finished_run_that_is_resumed_gives_the_same_summary(data: FederatedData, tmp_path: Path) -> None:
    whole = run(data, tmp_path / "run")
    again = run(data, tmp_path / "run", resume=True)
    assert again.finished
    for key in ("exchanges", "virtual_seconds", "bytes_up", "bytes_down", "test", "parties"):
        assert again.summary[key] == whole.summary[key], key


def test_to_resume_there_must_be_a_run(data: FederatedData, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for out in (tmp_path / "nowhere", tmp_path / "other"):
        with pytest.raises(SettingsError, match="is not a run to resume"):
            run(data, out, resume=True)
    assert not (tmp_path / "nowhere").exists()


OTHER: dict[str, dict[str, Any]] = {
    "training.epochs": {"training": replace(TRAINING, epochs=1)},
    "training.learning_rate": {"training": replace(TRAINING, learning_rate=0.25)},
    "algorithm.in_flight": {"algorithm": colonnade.Vafl(in_flight=2)},
    "algorithm.name": {"algorithm": "split"},
    "federation.seed": {"seed": 1},
    "simulate.latency_seconds": {"simulate": colonnade.Simulate(latency_seconds=0.5)},
    "bottom.embedding": {"bottom": colonnade.BottomSettings(embedding=8)},
    "top.hidden": {"top": colonnade.TopSettings(hidden=(8,))},
    "privacy.clip": {"privacy": colonnade.PerturbationSettings(noise=1.0, clip=1.0)},
}


@pytest.fixture(scope="module")
def stopped(data: FederatedData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "stopped"
    run(data, directory, stop_requested=stop_after(40))
    return directory


@pytest.mark.parametrize(("name", "other"), OTHER.items(), ids=OTHER.keys())
def test_to_resume_with_other_settings_names_what_differs(
    data: FederatedData, stopped: Path, name: str, other: dict[str, Any]
) -> None:
    before = digests(stopped)
    with pytest.raises(SettingsError, match=rf"was started with other settings: .*{name}.* differ"):
        run(data, stopped, resume=True, **other)
    assert digests(stopped) == before


def test_more_epochs_are_for_a_run_that_has_finished(data: FederatedData, stopped: Path) -> None:
    before = digests(stopped)
    with pytest.raises(SettingsError, match=r"has not finished: resume it without training\.epochs"):
        run(data, stopped, resume=True, training=replace(TRAINING, epochs=3))
    assert digests(stopped) == before


def test_to_resume_with_other_data_is_refused(stopped: Path) -> None:
    before = digests(stopped)
    with pytest.raises((DataError, SettingsError)):
        run(colonnade.dataset("iris", parties=2, seed=1), stopped, resume=True)
    assert digests(stopped) == before


def test_a_torn_checkpoint_falls_back_to_the_one_before(data: FederatedData, tmp_path: Path) -> None:
    whole = run(data, None)
    run(data, tmp_path / "run", stop_requested=stop_after(40))
    run(data, tmp_path / "run", resume=True, stop_requested=stop_after(40))
    latest = sorted((tmp_path / "run" / "checkpoints").glob("party1-*.safetensors"))
    assert len(latest) == 2
    latest[-1].write_bytes(latest[-1].read_bytes()[:100])
    resumed = run(data, tmp_path / "run", resume=True)
    for ours, theirs in zip(parameters(resumed), parameters(whole), strict=True):
        assert torch.equal(ours, theirs)


# --- a full disk ------------------------------------------------------------------------------------------------


def no_space(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_full_from_the_start(
    data: FederatedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(RunError, match=r"run could not be (made|written): No space left on device"):
        run(data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_disk_that_fills_while_a_checkpoint_is_written(
    data: FederatedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(data, None)
    run(data, tmp_path / "run", stop_requested=stop_after(40))
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", no_space)
        with pytest.raises(RunError, match="No space left on device"):
            run(data, tmp_path / "run", resume=True, stop_requested=stop_after(40))
    assert not list((tmp_path / "run").rglob("*.tmp"))
    resumed = run(data, tmp_path / "run", resume=True)  # after some space was freed
    for ours, theirs in zip(parameters(resumed), parameters(whole), strict=True):
        assert torch.equal(ours, theirs)


def test_a_disk_that_fills_while_metrics_are_written(
    data: FederatedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(data, None)
    run(data, tmp_path / "run", stop_requested=stop_after(40))
    observe = recorder.Recorder.observe
    lines = iter(range(3))

    def full_at_the_fourth(self: Any, *arguments: Any) -> None:
        if next(lines, None) is None:
            no_space()
        observe(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(recorder.Recorder, "observe", full_at_the_fourth)
        with pytest.raises(
            RunError, match=r"run could not be written: No space left on device\. Free some space, then"
        ):
            run(data, tmp_path / "run", resume=True)
    resumed = run(data, tmp_path / "run", resume=True)
    for ours, theirs in zip(parameters(resumed), parameters(whole), strict=True):
        assert torch.equal(ours, theirs)
    lines_written = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["exchange"] for line in lines_written] == [line["exchange"] for line in whole.metrics]


def test_a_disk_error_without_a_directory_is_not_ours(data: FederatedData, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="No space left"):
        run(data, None, watch=no_space)


# --- a run's own settings, changed in its directory ---------------------------------------------------------------


def test_an_edited_federation_toml_is_noticed_though_the_resumed_settings_are_its(
    data: FederatedData, tmp_path: Path
) -> None:
    private = colonnade.PerturbationSettings(noise=12.0, clip=1.0, bottom_update="frozen")
    run(data, tmp_path / "run", privacy=private, stop_requested=stop_after(40))
    kept = tmp_path / "run" / "federation.toml"
    kept.write_text(kept.read_text(encoding="utf-8").replace("noise = 12.0", "noise = 0.5"), encoding="utf-8")
    before = digests(tmp_path / "run")
    with pytest.raises(SettingsError, match=r"federation\.toml was changed after its run was started"):
        run(data, tmp_path / "run", privacy=replace(private, noise=0.5), resume=True)
    assert digests(tmp_path / "run") == before


def test_settings_given_as_whole_numbers_are_the_same_when_read_back(data: FederatedData, tmp_path: Path) -> None:
    private = colonnade.PerturbationSettings(noise=12, clip=1, bottom_update="frozen")
    run(data, tmp_path / "run", privacy=private, stop_requested=stop_after(40))
    assert run(data, tmp_path / "run", privacy=replace(private, noise=12.0), resume=True).finished


def test_releases_met_again_under_other_noise_stop_a_run_whose_digest_was_changed_too(
    data: FederatedData, tmp_path: Path
) -> None:
    private = colonnade.PerturbationSettings(noise=12.0, clip=1.0, bottom_update="frozen")
    run(data, tmp_path / "run", privacy=private, stop_requested=stop_after(20))
    first = [*(tmp_path / "run" / "checkpoints").iterdir()]
    run(data, tmp_path / "run", privacy=private, resume=True, stop_requested=stop_after(20))
    for path in {*(tmp_path / "run" / "checkpoints").iterdir()} - {*first}:
        path.unlink()  # what was released after the first checkpoint is to be released again
    other = replace(private, noise=0.5)
    run(data, tmp_path / "other", privacy=other, stop_requested=stop_after(20))
    for name in ("federation.toml", "checkpoints/data.json"):
        (tmp_path / "run" / name).write_bytes((tmp_path / "other" / name).read_bytes())
    released = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    with pytest.raises(RunError, match=r"otherwise than .*ledger\.jsonl does"):
        run(data, tmp_path / "run", privacy=other, resume=True)
    assert (tmp_path / "run" / "ledger.jsonl").read_bytes() == released


def test_a_party_of_real_time_that_has_lost_its_journal_is_not_begun_anew(data: FederatedData, tmp_path: Path) -> None:
    private = colonnade.PerturbationSettings(noise=12.0, clip=1.0, bottom_update="frozen")
    slow = colonnade.Processes(compute_seconds=0.005)
    released = tmp_path / "run" / "ledger" / "party1.jsonl"
    run(
        data,
        tmp_path / "run",
        privacy=private,
        runtime=slow,
        stop_requested=lambda: released.exists() and released.stat().st_size > 0,
    )
    for folder in ("journal", "checkpoints"):
        for path in (tmp_path / "run" / folder).glob("party1-*"):
            path.unlink()
    with pytest.raises(RunError, match=r"party1 has a ledger of what it has released .* but no journal"):
        run(data, tmp_path / "run", privacy=private, runtime=slow, resume=True)


def with_releases_in_another_order(data: FederatedData, out: Path, simulate: colonnade.Simulate) -> Outcome:
    """Stop a run twice, lose the second checkpoint, sort what its ledger says was released after the first; go on."""
    private = colonnade.PerturbationSettings(noise=12.0, clip=1.0, bottom_update="frozen")
    run(data, out, privacy=private, simulate=simulate, stop_requested=stop_after(20))
    first = [*(out / "checkpoints").iterdir()]
    known = len((out / "ledger.jsonl").read_bytes().splitlines())
    run(data, out, privacy=private, simulate=simulate, resume=True, stop_requested=stop_after(40))
    for path in {*(out / "checkpoints").iterdir()} - {*first}:
        path.unlink()
    lines = (out / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    released = sorted(lines[known:])
    assert released != lines[known:]
    (out / "ledger.jsonl").write_bytes(b"".join([*lines[:known], *released]))
    return run(data, out, privacy=private, simulate=simulate, resume=True)


@pytest.mark.parametrize(
    "simulate",
    [
        colonnade.Simulate(compute_seconds="measured"),
        colonnade.Simulate(label_compute_seconds="measured"),
        colonnade.Simulate(parties={"party1": colonnade.SimulatedParty(compute_seconds="measured")}),
    ],
    ids=["feature parties", "label party", "one party"],
)
def test_where_times_are_measured_releases_may_come_in_another_order(
    data: FederatedData, tmp_path: Path, simulate: colonnade.Simulate
) -> None:
    """Whoever is faster this time goes first."""
    assert with_releases_in_another_order(data, tmp_path / "run", simulate).finished


def test_where_no_time_is_measured_they_may_not(data: FederatedData, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"otherwise than .*ledger\.jsonl does"):
        with_releases_in_another_order(data, tmp_path / "run", colonnade.Simulate())
