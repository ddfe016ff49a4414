"""Organisations that begin with the models of an earlier training: each with its own, named in its own file."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from parties import IRIS, Town, assert_same_bits, shared

from colonnade.prediction.account import RowAccount
from colonnade.prediction.carried import INCLUDED


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


def test_what_both_trainings_released_about_a_row_adds_up(town: Callable[..., Town], tmp_path: Path) -> None:
    """By ids, from a model that was trained in one place; the feature party's own summary says so."""
    ids = [f"c{number:03}" for number in range(40)]
    draws = np.random.default_rng(2).normal(size=(40, 2))
    plan = shared("vafl", {"id": "id", "label": "label"}, 1, 8, privacy={"noise": 4.0, "clip": 1.0})
    plan["parties"] = {"label": {}, "party1": {}}
    own = {name: {"data": {"file": "table.csv"}} for name in ("label", "party1")}

    def built(**more: dict[str, str]) -> Town:
        given = {name: {**one, **({"start": more[name]} if name in more else {})} for name, one in own.items()}
        one = town(plan, parties=1, own=given)
        pd.DataFrame({"id": ids, "label": draws.sum(1) > 0}).to_csv(one.label.folder / "table.csv", index=False)
        pd.DataFrame({"id": ids, "x": draws[:, 0]}).to_csv(one["party1"].folder / "table.csv", index=False)
        return one

    model = built().simulated().save(tmp_path / "model")
    later = built(**{name: {"model": str(model / name)} for name in own})
    later.start()
    later.end()
    before = RowAccount(model / "party1").totals()
    after = RowAccount(later["party1"].out / "model" / "party1").totals()
    assert len(before) == len(after) == 40
    released = later["party1"].summary()["privacy"]
    counts = {one["protects"]: one["max_releases_per_row"] for one in released["events"]}
    most = max(counts.values()) * (2 / 4) ** 2
    assert all(before[name] < after[name] <= before[name] + most + 1e-9 for name in before)
    assert INCLUDED in released["conditions"]
