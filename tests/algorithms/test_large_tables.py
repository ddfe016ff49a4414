"""A table of embeddings as float16, and one in a file: what is kept, rounded, restored; what is refused."""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade import Training, Vafl, mapped
from colonnade.algorithms.split_models.parts.table import EmbeddingTable
from colonnade.data.settings import DataSettings
from colonnade.errors import RunError, SettingsError
from colonnade.testing import StopAfter, TinyFederation, assert_same_bits, tiny_data, weights

ROWS = np.array([1, 3], np.uint32)


def table(kept_as: str = "float32", mapped_share: float = 1.0) -> EmbeddingTable:
    return EmbeddingTable(5, ["a", "b"], {"a": 2, "b": 1}, kept_as, mapped_share)


def test_half_numbers_are_rounded_and_never_infinite() -> None:
    half = table("float16")
    half.write("a", ROWS, np.array([[1 + 2**-11, 1e9], [0.1, -1e9]], np.float32), 1)
    read = half.read(ROWS)
    assert read.dtype.itemsize == 4
    assert read.tolist() == [[1.0, 65504.0, 0.0], [float(np.float16(0.1)), -65504.0, 0.0]]
    assert half.means()["a"].tolist() == pytest.approx([0.55, 0.0], abs=1e-3)
    assert half.state().tensors["values"].element_size() == 2


def test_a_table_in_a_file_is_the_same_table() -> None:
    plain, other = table(), table(mapped_share=0.0)
    for one in (plain, other):
        one.write("b", ROWS, np.ones((2, 1), np.float32), 7)
        one.write("a", ROWS[:1], np.full((1, 2), 0.5, np.float32), 8)
    assert other.read(ROWS).tolist() == plain.read(ROWS).tolist()
    assert other.ages(ROWS, 9).tolist() == plain.ages(ROWS, 9).tolist()
    again = table(mapped_share=0.0)
    again.restore(other.state())
    assert again.read(ROWS).tolist() == plain.read(ROWS).tolist()


@pytest.mark.parametrize("changes", [{"mapped_share": 0.0}, {"table": "float16"}], ids=["in a file", "halves"])
def test_a_training_goes_on_to_the_same_bits(tmp_path: Path, changes: dict[str, Any]) -> None:
    often = Training(2, 8, optimiser="sgd", evaluate_every_epochs=1)
    plain = TinyFederation(tiny_data(), Vafl(), training=often)
    given = plain.training_with(**changes)
    whole = given.run(tmp_path / "whole")
    given.run(tmp_path / "run", stop_requested=StopAfter(30))
    assert_same_bits(weights(whole.models), weights(given.run(tmp_path / "run", resume=True).models))
    rounded = changes.get("table") == "float16"
    same = whole.summary["train_loss"] == plain.run(tmp_path / "plain").summary["train_loss"]
    assert same is not rounded


# --- files --------------------------------------------------------------------------------------------------------


def test_what_is_larger_than_its_share_lies_in_a_file_without_a_name(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(mapped, "memory_bytes", lambda: 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    inside, outside = (mapped.zeros((rows, 1), np.float32, 0.4, "A table") for rows in (100, 101))
    assert inside.flags.owndata and not outside.flags.owndata
    outside[:] = 3.0
    assert outside.sum() == 303.0 and list(tmp_path.iterdir()) == []
    assert mapped.zeros((0, 4), np.float32, 0.0, "A table").shape == (0, 4)


def test_a_disk_without_room_is_told_of(monkeypatch: Any) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RunError, match=r"A table would take .* no room .*TMPDIR"):
        mapped.mapped_zeros((10, 10), np.float32, "A table")


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"training\.table"):
        Training(table="float8")  # type: ignore[arg-type]
    for settings in (Training, DataSettings):
        with pytest.raises(SettingsError, match="mapped_share is -1"):
            settings(mapped_share=-1)
