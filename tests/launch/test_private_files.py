"""Other users of the machine: they can read nothing that a run writes, and nothing that they have laid out is used."""

import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import colonnade
from colonnade import files
from colonnade.data.federated import FederatedData
from colonnade.errors import RunError, SettingsError
from colonnade.launch.party_directory import PartyDirectory, make_directory
from colonnade.launch.seat_files import Life
from colonnade.launch.seated_party import open_station
from colonnade.privacy.ledger import Ledger
from colonnade.reports import comparison_page
from colonnade.reports.page_parts import write_whole
from colonnade.reports.run_page import write_report
from colonnade.runtimes.checkpoint import read_checkpoint
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.journal import Journal
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.run_lock import only_process_in
from colonnade.testing.scripted_party import Scripted
from colonnade.trace import TraceWriter

STRANGER = 12345
TRAINING = colonnade.Training(epochs=1, batch_size=16)


@pytest.fixture(scope="module")
def data() -> FederatedData:
    return colonnade.dataset("iris", parties=2)


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Make a file another user's; without the rights to do so, make us another user instead."""

    def away(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
        else:
            monkeypatch.setattr(files.os, "geteuid", lambda: STRANGER)

    return away


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def open_to_others(directory: Path) -> dict[str, str]:
    """What others may do anything with, of a directory and all that is in it."""
    return {
        str(path.relative_to(directory)): f"{mode(path):04o}"
        for path in (directory, *directory.rglob("*"))
        if mode(path) != (0o700 if path.is_dir() else 0o600)
    }


# --- what is written --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o277])
def test_a_simulation_leaves_nothing_for_others(
    data: FederatedData, tmp_path: Path, umask: Callable[[int], int], mask: int
) -> None:
    umask(mask)
    run = tmp_path / "run"
    colonnade.train(data, "vafl", training=TRAINING, out=run, trace=True)
    write_whole(run / "figures" / "loss.png", b"")
    umask(0o022)
    assert {"trace", "checkpoints", "figures", "metrics.jsonl", "ledger.jsonl"} <= {path.name for path in run.iterdir()}
    assert open_to_others(run) == {}


def test_a_page_that_was_asked_for_elsewhere_is_as_the_umask_says(
    tmp_path: Path, umask: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison_page, "read_run", lambda path: None)
    monkeypatch.setattr(comparison_page, "comparison_rows", lambda runs, target: [])
    monkeypatch.setattr(comparison_page, "_comparison_plots", lambda runs, rows: [])
    monkeypatch.setattr(comparison_page, "_comparison_page", lambda runs, rows, plots: "a page")
    umask(0o002)
    page = comparison_page.write_comparison([tmp_path, tmp_path], tmp_path / "pages" / "both.html")
    assert (mode(page), mode(page.parent)) == (0o644, 0o755)  # never for others to change
    umask(0o077)
    assert mode(comparison_page.write_comparison([tmp_path, tmp_path], tmp_path / "both.html")) == 0o600


def test_a_party_in_real_time_leaves_nothing_for_others(tmp_path: Path, umask: Callable[[int], int]) -> None:
    umask(0)
    run = tmp_path / "run"
    make_directory(run)
    recorder = Recorder("label", run, virtual=False)
    life = Life(str(run), (), Endurance(), trace=True)
    with only_process_in(run):
        station = open_station("label", Scripted(lambda party, what: []), "label", life, recorder, run / "ledger.jsonl")
        station.save()
        station.close()
        recorder.close()
    kinds = {path.suffix for path in run.rglob("*") if path.is_file()}
    assert {".journal", ".lives", ".json", ".safetensors", ".trace", ".jsonl"} <= kinds
    assert open_to_others(run) == {}


def participant(directory: Path) -> Any:
    """As much of one as its directory needs."""
    return SimpleNamespace(
        directory=directory,
        name="label",
        digest="d",
        settings={"network": {}},
        agreed={"network": {}},
        secret_of=lambda entropy: entropy,
        digests=lambda: {"rows": "r", "settings": "d"},
    )


def test_a_network_partys_secrets_and_tokens_are_its_own(tmp_path: Path, umask: Callable[[int], int]) -> None:
    umask(0)
    kept = PartyDirectory(participant(tmp_path / "run"))
    kept.keep_plan()
    kept.keep_tokens({"shop": "00"})
    kept.keep_left("clinic")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"entropy", "sealing.key", "token", "tokens.json", "left.json", "rows.json"} <= names
    assert open_to_others(tmp_path / "run") == {}


# --- what is found ----------------------------------------------------------------------------------------------


def resume(data: FederatedData, run: Path) -> Any:
    return colonnade.train(data, "vafl", training=TRAINING, out=run, resume=True)


@pytest.fixture(scope="module")
def stopped_once(data: FederatedData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    left = iter(range(3))
    run = tmp_path_factory.mktemp("stopped") / "run"
    out = colonnade.train(data, "vafl", training=TRAINING, out=run, stop_requested=lambda: next(left, None) is None)
    assert not out.finished
    return run


@pytest.fixture
def stopped(stopped_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped_once, tmp_path / "run"))


def test_a_run_directory_of_before_is_closed_and_gone_on_with(
    data: FederatedData, stopped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for path in (stopped, *stopped.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with caplog.at_level(logging.WARNING, "colonnade"):
        assert resume(data, stopped).finished
    assert open_to_others(stopped) == {}
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"{stopped} could be read by other users")


def test_in_a_closed_directory_wider_files_are_closed_without_a_word(
    data: FederatedData, stopped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (stopped / "federation.toml").chmod(0o666)
    assert resume(data, stopped).finished
    assert open_to_others(stopped) == {} and not caplog.records


@pytest.mark.parametrize("what", [".", "checkpoints", "checkpoints/data.json", "ledger.jsonl"])
def test_what_others_could_change_is_refused(data: FederatedData, stopped: Path, what: str) -> None:
    stopped.chmod(0o755)
    (stopped / what).chmod(0o775)
    with pytest.raises(RunError, match=rf"{what}.* others may change it \(mode 0775\).*chmod -R go-w"):
        resume(data, stopped)


@pytest.mark.parametrize("what", [".", "checkpoints", "checkpoints/data.json", "ledger.jsonl", "federation.toml"])
def test_what_another_user_has_laid_out_is_refused(
    data: FederatedData, stopped: Path, give_away: Callable[[Path], None], what: str
) -> None:
    give_away(stopped / what)
    with pytest.raises(RunError, match=r"belongs to .*this program runs as .*not used\. Choose another"):
        resume(data, stopped)


@pytest.mark.parametrize("what", ["checkpoints", "ledger.jsonl", "federation.toml"])
def test_links_in_a_run_directory_are_not_followed(data: FederatedData, stopped: Path, what: str) -> None:
    elsewhere = stopped.parent / "elsewhere"
    (stopped / what).rename(elsewhere)
    (stopped / what).symlink_to(elsewhere)
    with pytest.raises(RunError, match=f"{what} is a link .*not followed"):
        resume(data, stopped)


def test_a_pipe_in_a_run_directory_is_refused_and_not_waited_for(data: FederatedData, stopped: Path) -> None:
    os.mkfifo(stopped / "summary.json.new")
    with pytest.raises(RunError, match=r"summary\.json\.new is a pipe, not a file"):
        resume(data, stopped)


def test_a_link_to_a_run_directory_is_followed_if_it_is_ours(
    data: FederatedData, stopped: Path, give_away: Callable[[Path], None]
) -> None:
    link = stopped.parent / "link"
    link.symlink_to(stopped)
    assert resume(data, link).finished
    give_away(link)
    with pytest.raises(RunError, match="belongs to"):
        files.take_over(link)


@pytest.mark.parametrize("what", ["entropy", "token", "sealing.key", "tokens.json", "everybody.json"])
def test_a_planted_secret_is_not_used(tmp_path: Path, give_away: Callable[[Path], None], what: str) -> None:
    make_directory(tmp_path / "run")
    (tmp_path / "run" / what).write_bytes(bytes(32))
    give_away(tmp_path / "run" / what)
    with pytest.raises(RunError, match="belongs to"):
        PartyDirectory(participant(tmp_path / "run"))


def test_a_planted_directory_is_not_used(tmp_path: Path, give_away: Callable[[Path], None]) -> None:
    (tmp_path / "run").mkdir(0o700)
    give_away(tmp_path / "run")
    with pytest.raises(RunError, match="belongs to"):
        PartyDirectory(participant(tmp_path / "run"))
    assert not list((tmp_path / "run").iterdir())


def test_a_secret_behind_a_link_is_not_used(tmp_path: Path) -> None:
    make_directory(tmp_path / "run")
    (tmp_path / "known").write_bytes(bytes(32))
    (tmp_path / "run" / "entropy").symlink_to(tmp_path / "known")
    with pytest.raises(RunError, match="entropy is a link"):
        PartyDirectory(participant(tmp_path / "run"))


OPENERS: dict[str, Callable[[Path], Any]] = {
    "run.trace": TraceWriter,
    "ledger.jsonl": Ledger,
    "ledger.reserved": lambda path: Ledger(path.with_suffix(".jsonl")),
    "label-0000000001.journal": lambda path: Journal(path.parent, "label", 1),
    "label-0000000001.json": lambda path: read_checkpoint(path.parent, "label", 1),
    "lock": lambda path: only_process_in(path.parent).__enter__(),
    "metrics.jsonl": lambda path: Recorder("label", path.parent).restore(
        {"metrics": [], "timeline": [], "intervals": {}, "traffic": {}, "wall_seconds": 0.0}
    ),
}


@pytest.mark.parametrize("name", OPENERS)
def test_whoever_opens_a_file_looks_once_more(tmp_path: Path, give_away: Callable[[Path], None], name: str) -> None:
    """Also where the directory was exchanged after it was looked at."""
    path, elsewhere = tmp_path / name, tmp_path / "elsewhere"
    elsewhere.write_bytes(b"mine\n")
    path.symlink_to(elsewhere)
    with pytest.raises(RunError, match="is a link"):
        OPENERS[name](path)
    path.unlink()
    path.write_bytes(b"theirs\n")
    give_away(path)
    with pytest.raises(RunError, match="belongs to"):
        OPENERS[name](path)
    assert elsewhere.read_bytes() == b"mine\n" and path.read_bytes() == b"theirs\n"


def test_a_report_does_not_follow_links_of_others(stopped: Path, give_away: Callable[[Path], None]) -> None:
    elsewhere = stopped.parent / "elsewhere"
    elsewhere.mkdir()
    (stopped / "figures").symlink_to(elsewhere)
    (stopped / "metrics.jsonl").symlink_to(stopped / "timeline.jsonl")
    with pytest.raises(RunError, match=r"metrics\.jsonl is a link"):
        write_report(stopped)
    give_away(stopped / "figures")
    with pytest.raises(RunError, match="figures belongs to"):
        write_whole(stopped / "figures" / "loss.png", b"")
    assert not list(elsewhere.iterdir())


# --- damage to the JSON that a run goes on from -----------------------------------------------------------------

DAMAGED = [b"[" * 100_000, b"7" * 5000, b"\xff", b"[]", b"{", b'{"a": ' * 5000, b"null"]


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_json_that_is_none_is_one_sentence(data: FederatedData, stopped: Path, content: bytes, tmp_path: Path) -> None:
    (stopped / "checkpoints" / "data.json").write_bytes(content)
    with pytest.raises((RunError, SettingsError), match=r"cannot be resumed|was changed"):
        resume(data, stopped)
    kept = PartyDirectory(participant(tmp_path / "party"))
    (tmp_path / "party" / "tokens.json").write_bytes(content)
    with pytest.raises(RunError, match=r"tokens\.json is damaged"):
        kept.tokens()
    (tmp_path / "ledger.jsonl").touch()
    (tmp_path / "ledger.reserved").write_bytes(content + b"\n")
    with pytest.raises(RunError, match=r"ledger\.reserved is damaged"):
        Ledger(tmp_path / "ledger.jsonl")
    (tmp_path / "c-0000000001.json").write_bytes(content)
    assert read_checkpoint(tmp_path, "c", 1) is None
