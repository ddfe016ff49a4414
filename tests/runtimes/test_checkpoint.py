"""Checkpoints are whole or absent, whatever the disk does."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colonnade.errors import RunError
from colonnade.files import write_atomically
from colonnade.runtimes.checkpoint import CheckpointError, numbers_of, read_checkpoint, read_latest, write_checkpoint
from colonnade.state import State


def state(number: int) -> State:
    tensors = {"weight": torch.full((2, 3), float(number)), "generator": torch.arange(4, dtype=torch.uint8)}
    return State(tensors, {"step": number, "parts": {"seen": [1, 2.5, "x", None, True]}})


def assert_is(saved: State | None, number: int) -> None:
    assert saved is not None
    expected = state(number)
    assert saved.values == expected.values
    assert saved.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        assert saved.tensors[name].dtype == tensor.dtype
        assert torch.equal(saved.tensors[name], tensor)


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call it with n: the disk is full at the n-th sync from then on."""

    def fill_after(syncs: int) -> None:
        left = [syncs]

        def fsync(_: int) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", fsync)

    return fill_after


def test_what_was_saved_is_read(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "bank", 1, state(1))
    assert_is(read_checkpoint(tmp_path, "bank", 1), 1)
    assert files(tmp_path) == ["bank-0000000001.json", "bank-0000000001.safetensors"]


def test_a_transposed_tensor_and_an_empty_state_are_saved(tmp_path: Path) -> None:
    turned = torch.arange(6.0).reshape(2, 3).T
    write_checkpoint(tmp_path, "bank", 1, State({"turned": turned, "none": torch.zeros(0)}))
    saved = read_checkpoint(tmp_path, "bank", 1)
    assert saved is not None
    assert torch.equal(saved.tensors["turned"], turned)
    assert saved.tensors["none"].shape == (0,)
    write_checkpoint(tmp_path, "shop", 1, State())
    assert read_checkpoint(tmp_path, "shop", 1) == State()


@pytest.mark.parametrize("name", ["bank", "bank.eu", "a-b", "a-1", "9", "v1.2-x"])
def test_every_party_name_that_settings_allow(tmp_path: Path, name: str) -> None:
    for other in ("a", "bank", "v1"):
        if other != name:
            write_checkpoint(tmp_path, other, 5, state(5))
    write_checkpoint(tmp_path, name, 1, state(1))
    assert numbers_of(tmp_path, name) == [1]
    assert_is(read_latest(tmp_path, [name])[1][name], 1)


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    for number in (8, 9, 10, 11):
        write_checkpoint(tmp_path, "bank", number, state(number))
        write_checkpoint(tmp_path, "bank-2", number, state(number))
    assert numbers_of(tmp_path, "bank") == numbers_of(tmp_path, "bank-2") == [10, 11]
    assert len(files(tmp_path)) == 8


def test_the_latest_is_the_newest_that_all_have(tmp_path: Path) -> None:
    for number in (1, 2):
        write_checkpoint(tmp_path, "label", number, state(number))
    write_checkpoint(tmp_path, "bank", 1, state(1))
    number, states = read_latest(tmp_path, ["label", "bank"])
    assert number == 1
    assert_is(states["label"], 1)
    assert_is(states["bank"], 1)


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 400), flip=st.integers(0, 400))
def test_a_torn_or_damaged_pair_is_passed_over(tmp_path: Path, suffix: str, cut: int, flip: int) -> None:
    for number in (1, 2):
        write_checkpoint(tmp_path, "bank", number, state(number))
    damaged = tmp_path / f"bank-0000000002.{suffix}"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: min(cut, len(whole) - 1)])
    assert read_latest(tmp_path, ["bank"])[0] == 1
    if suffix == "safetensors":  # the JSON holds its checksum
        at = flip % len(whole)
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert read_latest(tmp_path, ["bank"])[0] == 1
    damaged.unlink()
    assert read_latest(tmp_path, ["bank"])[0] == 1


@pytest.mark.parametrize("garbage", [b"", b"[]", b"null", b"{}", b'{"sha256": 1}', b"\xff\xfe", b"[1, 2"])
def test_json_that_is_no_description_is_torn(tmp_path: Path, garbage: bytes) -> None:
    write_checkpoint(tmp_path, "bank", 1, state(1))
    (tmp_path / "bank-0000000001.json").write_bytes(garbage)
    assert read_checkpoint(tmp_path, "bank", 1) is None


def test_nothing_whole_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no whole checkpoint in .*without --resume"):
        read_latest(tmp_path, ["bank"])
    with pytest.raises(RunError, match="no whole checkpoint"):
        read_latest(tmp_path / "nowhere", ["bank"])


# Each file takes two syncs, its own and its folder's: four in all for a checkpoint.
@pytest.mark.parametrize("syncs", [0, 1, 2])
def test_a_full_disk_is_an_error_and_the_checkpoint_before_stays(tmp_path: Path, full_disk: Any, syncs: int) -> None:
    write_checkpoint(tmp_path, "bank", 1, state(1))
    full_disk(syncs)
    with pytest.raises(RunError, match=r"bank-0000000002 could not be written: No space left on device\. Free some"):
        write_checkpoint(tmp_path, "bank", 2, state(2))
    assert not [name for name in files(tmp_path) if name.endswith(".tmp")]
    number, states = read_latest(tmp_path, ["bank"])
    assert number == 1
    assert_is(states["bank"], 1)


def test_after_the_disk_was_full_the_same_number_can_be_written(
    tmp_path: Path, full_disk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_disk(2)
    with pytest.raises(RunError):
        write_checkpoint(tmp_path, "bank", 1, state(7))
    monkeypatch.undo()
    write_checkpoint(tmp_path, "bank", 1, state(1))
    assert_is(read_latest(tmp_path, ["bank"])[1]["bank"], 1)


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    write_atomically(path, b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert files(tmp_path) == ["summary.json"]
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_checkpoint_that_could_not_be_synced_does_not_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal would go on after the one before it, and a later life begin with this one: without those events."""
    write_checkpoint(tmp_path, "label", 1, State())

    def failing(path: Path) -> None:
        if (tmp_path / "label-0000000002.json").exists():
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("colonnade.files.sync_path", failing)
    with pytest.raises(CheckpointError, match="Input/output error"):
        write_checkpoint(tmp_path, "label", 2, State())
    assert numbers_of(tmp_path, "label") == [1]
