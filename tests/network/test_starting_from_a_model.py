"""Organisations that begin with the models of an earlier training: each with its own, named in its own file."""

from collections.abc import Callable
from pathlib import Path

import pytest
from parties import IRIS, Town, assert_same_bits, shared


@pytest.mark.parametrize("algorithm", ["split", "fsaga"])
def test_each_with_its_own_part(algorithm: str, town: Callable[..., Town], tmp_path: Path) -> None:
    plan = shared({"name": algorithm}, IRIS, 2, 16)
    model = town(plan).simulated().save(tmp_path / "model")
    own = {name: {"start": {"model": str(model / name)}} for name in ("label", "party1", "party2")}
    later = town(plan, own=own)
    later.start()
    assert later.end()["status"] == "finished"
    assert_same_bits(later.models(), later.simulated(start=model).models)


def test_what_does_not_fit_is_said_to_its_owner(town: Callable[..., Town], tmp_path: Path) -> None:
    plan = shared({"name": "split"}, IRIS, 1, 16)
    model = town(plan).simulated().save(tmp_path / "model")
    one = town(plan, own={"party1": {"start": {"model": str(model / "party2")}}})
    one["party1"].start()
    one["party1"].end(2)
    assert "is that of 'party2'; this is 'party1'" in one["party1"].said()
    one = town({**plan, "start": {"model": str(model)}})
    one.label.start()
    one.label.end(2)
    assert "say it in [start] of each party.toml" in one.label.said()
