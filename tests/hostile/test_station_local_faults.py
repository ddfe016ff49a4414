"""A fault of this machine (a full disk, no file descriptors) is this party's pause: the run goes on, and says so."""

import errno
import logging
import os
import resource
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import RunError
from colonnade.files import KeptFiles
from colonnade.party import Observe, Send, SetTimer
from colonnade.runtimes import checkpoint, keeper
from colonnade.runtimes.checkpoint import numbers_of
from colonnade.testing import PATIENT, FakeCarrier, letter, says

OFTEN = replace(PATIENT, checkpoint_seconds=1.0)
TICKS = {"Started": [SetTimer("tick", 1.0)], "timer tick": [SetTimer("tick", 1.0), Send("shop", letter(1))]}


def town_of(directory: Path) -> FakeCarrier:
    script = {**TICKS, "timer tick": [*TICKS["timer tick"], Observe(1, 1, 0.1, loss=0.5)]}
    parties = {"bank": lambda: says(script), "shop": lambda: says({})}
    town = FakeCarrier(directory, [*parties], lambda name: parties[name](), endurance=OFTEN)
    town.join_all()
    town.settle()
    return town


def wait(town: FakeCarrier, seconds: int) -> None:
    for _ in range(seconds):
        town.clock.tick(1.0)
        town.settle()


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def open_files() -> list[int]:
    return [int(path.name) for path in Path("/proc/self/fd").iterdir()]


def letters(town: FakeCarrier) -> int:
    return len(town.stations["shop"].party.party.names("letter"))  # type: ignore[attr-defined]


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EMFILE, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("at", ["the tensors", "the description", "the journal"])
def test_a_checkpoint_that_cannot_be_written_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: int, at: str
) -> None:
    town = town_of(tmp_path)
    wait(town, 3)
    bank = town.stations["bank"]
    before = numbers_of(tmp_path / "checkpoints", "bank")

    def fails(*_: Any, **__: Any) -> None:
        raise OSError(fault, os.strerror(fault))

    with closing(town), caplog.at_level(logging.INFO), monkeypatch.context() as patch:
        if at == "the tensors":
            patch.setattr(checkpoint, "save_file", fails)
        elif at == "the description":
            patch.setattr(checkpoint, "write_atomically", fails)
        else:
            patch.setattr(bank._keeper.journal, "prepare", fails)
        sent = letters(town)
        wait(town, 20)
        assert letters(town) == sent + 20
        assert numbers_of(tmp_path / "checkpoints", "bank") == before
        assert caplog.text.count("no checkpoint for now") == (1 if at == "the journal" else 2)  # once a party
        with pytest.raises((RunError, OSError)):
            bank.save()  # who asks for one is told
        patch.undo()
        town.kill("bank")  # the journal has it all
        town.revive("bank")
        assert len(town.stations["bank"].party.party.names("timer")) == 23  # type: ignore[attr-defined]
        town.join_all()
        wait(town, 20)
        assert numbers_of(tmp_path / "checkpoints", "bank")[-1] > before[-1]


def test_that_it_works_again_is_said(tmp_path: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture) -> None:
    with closing(town_of(tmp_path)) as town, caplog.at_level(logging.INFO):
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "save_file", full)
            wait(town, 20)
        wait(town, 10)
        assert caplog.text.count("a checkpoint could be written again") == 2  # once a party


def test_what_comes_after_a_checkpoint_that_failed_is_not_lost(tmp_path: Path, monkeypatch: Any) -> None:
    """The journal of a checkpoint that is not there goes on under the number before."""
    monkeypatch.setattr(keeper, "RETRY_SECONDS", 2.0)
    with closing(town_of(tmp_path)) as town:
        for failing in (True, False, True, True, False):
            with monkeypatch.context() as patch:
                if failing:
                    patch.setattr(checkpoint, "write_atomically", full)
                wait(town, 3)
            ticks = len(town.stations["bank"].party.party.names("timer"))  # type: ignore[attr-defined]
            town.kill("bank")
            town.revive("bank")
            assert len(town.stations["bank"].party.party.names("timer")) == ticks  # type: ignore[attr-defined]
            town.join_all()


def test_metrics_that_cannot_be_written_are_written_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(town_of(tmp_path)) as town, caplog.at_level(logging.INFO):
        wait(town, 2)
        recorder = town.recorders["bank"]
        assert recorder._file is not None
        recorder._file.close()
        recorder._file = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115
        wait(town, 5)
        assert len(town.metrics()) == 2
        assert caplog.text.count("metrics.jsonl cannot be written for now, the training goes on: No space left") == 1
        recorder._file.close()
        recorder._file = None
        wait(town, 1)
        assert len(town.metrics()) == 8
        assert caplog.text.count("is written again") == 1


def test_a_checkpoint_is_written_though_no_file_can_be_opened(tmp_path: Path) -> None:
    """A thousand connections hold all file descriptors: those kept back serve."""
    with closing(town_of(tmp_path)) as town:
        wait(town, 1)
        before = town.stations["bank"].checkpoints
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        held: list[int] = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_files()) + 10, limits[1]))
            with pytest.raises(OSError, match="Too many open files"):
                while True:
                    held.append(os.open(os.devnull, os.O_RDONLY))
            town.clock.tick(2.0)
            town.turn("bank")
            assert town.stations["bank"].checkpoints > before
        finally:
            for one in held:
                os.close(one)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_reserved_files_are_taken_back() -> None:
    reserved = KeptFiles(3)
    open_before = len(open_files())
    with reserved.lent():
        assert len(open_files()) == open_before - 3
    assert len(open_files()) == open_before
    reserved.close()
    assert len(open_files()) == open_before - 3
