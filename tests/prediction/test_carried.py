"""A training that begins with the model of another counts what that one released about the same rows, by their ids."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import colonnade
from colonnade import PerturbationSettings, Training
from colonnade.data.federated import FederatedData
from colonnade.prediction.account import RowAccount, account_names
from colonnade.prediction.carried import INCLUDED, as_released, by_name, costs_of, spent_before
from colonnade.prediction.saved_model import read_model
from colonnade.privacy.gaussian import epsilon_of

NOISE = PerturbationSettings(clip=1.0, noise=4.0)
BRIEF = Training(epochs=1, batch_size=10)
COST = (2 / 4) ** 2


def tables(first: int, count: int) -> FederatedData:
    """Rows of the same table, from one on."""
    draws = np.random.default_rng(5).normal(size=(100, 2))[first : first + count]
    ids = [f"c{number:03}" for number in range(first, first + count)]
    frames = {
        "bank": pd.DataFrame({"id": ids, "paid": (draws.sum(1) > 0).astype(int)}),
        "shop": pd.DataFrame({"id": ids[::-1], "orders": draws[::-1, 0], "size": draws[::-1, 1]}),
    }
    return colonnade.from_frames(frames, label_party="bank", label="paid", test_fraction=0.25)


def costs(run: Path) -> dict[bytes, float]:
    return RowAccount(run / "model" / "shop").totals()


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("first") / "run"
    colonnade.train(tables(0, 40), "vafl", training=BRIEF, privacy=NOISE, out=out)
    return out


def test_rows_that_both_runs_have_cost_the_sum_and_new_ones_only_their_own(first: Path, tmp_path: Path) -> None:
    data = tables(20, 40)
    fresh = colonnade.train(data, "vafl", training=BRIEF, privacy=NOISE, out=tmp_path / "fresh")
    again = colonnade.train(data, "vafl", training=BRIEF, privacy=NOISE, out=tmp_path / "again", start=first)
    before, alone, both = costs(first), costs(tmp_path / "fresh"), costs(tmp_path / "again")
    assert len(before) == len(alone) == len(both) == 40 and min(before.values()) > 0
    assert both == pytest.approx({name: cost + before.get(name, 0.0) for name, cost in alone.items()})
    shared = [name for name in both if name in before]
    assert len(shared) == 20
    # The figures of the run say so, of the worst row of each part.
    names = {part: account_names(ids) for part, ids in data.ids("shop").items()}
    for one in again.summary["privacy"]["figures"]:
        part = one["direction"].rpartition(", ")[2]
        if one["direction"].startswith("columns of shop"):
            worst = max(both[name] for name in names[part])
            figure = one["conditional"] if one["sound"] is None else one["sound"]
            assert figure == pytest.approx(epsilon_of(worst**0.5, 1e-5))
    assert INCLUDED in again.summary["privacy"]["conditions"]
    assert INCLUDED not in fresh.summary["privacy"]["conditions"]


def test_a_model_in_memory_carries_its_account_along(tmp_path: Path) -> None:
    data = tables(0, 40)
    one = colonnade.train(data, "vafl", training=BRIEF, privacy=NOISE)
    two = colonnade.train(data, "vafl", training=BRIEF, privacy=NOISE, start=one.model)
    three = colonnade.train(data, "vafl", training=BRIEF, privacy=NOISE, start=two.model.save(tmp_path / "two"))
    by_run = [run.model.parties["shop"].spent for run in (one, two, three)]
    for name, cost in by_run[0].items():  # type: ignore[union-attr]
        assert [run[name] for run in by_run[1:]] == pytest.approx([2 * cost, 3 * cost])  # type: ignore[index]


def test_a_target_is_kept_over_both_runs(first: Path, tmp_path: Path) -> None:
    """Rows that have spent all they may are used no more, in any runtime: the budget is their owner's."""
    target = PerturbationSettings(clip=1.0, noise=4.0, columns_epsilon=4.0, bottom_update="frozen")
    data, training = tables(0, 40), Training(epochs=30, batch_size=10)
    once = colonnade.train(data, "vafl", training=training, privacy=target, out=tmp_path / "once")
    twice = colonnade.train(data, "vafl", training=training, privacy=target, out=tmp_path / "twice", start=first)
    limit = max(costs(tmp_path / "once").values())
    assert max(costs(tmp_path / "twice").values()) <= limit + COST
    assert twice.summary["exchanges"] < once.summary["exchanges"]
    assert {round(one["sound"], 2) <= 4.0 for one in twice.summary["privacy"]["figures"] if one["sound"]} == {True}


def test_a_model_that_is_not_taken_leaves_its_costs_to_the_one_that_stays(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    shutil.copytree(first, tmp_path / "current")
    before = costs(tmp_path / "current")
    data = tables(0, 40).with_validation(0.25)
    data = replace(
        data,
        ids_of=lambda party: {
            "training rows": [f"c{n:03}" for n in range(data.rows)],
            "validation rows": [],
            "test rows": [],
        },
    )
    judged = {"accepted": False, "metric": "accuracy", "before": 1.0, "after": 0.0}
    monkeypatch.setattr("colonnade.launch.experiment.judged", lambda *given: judged)
    kept = {"start": tmp_path / "current", "accept_if_better": True, "out": tmp_path / "next"}
    colonnade.train(data, "vafl", training=BRIEF, privacy=NOISE, **kept)  # type: ignore[arg-type]
    after = costs(tmp_path / "current")
    assert not (tmp_path / "next" / "model").exists()
    assert sum(after[name] > before.get(name, 0.0) for name in after) == data.rows


def test_the_arithmetic_of_rows_by_hand(first: Path) -> None:
    ids = {"training rows": ["a", "", "b"], "test rows": ["c"]}
    released = [
        {"protects": "columns of shop, training rows", "sensitivity": 2.0, "noise": 1.0, "per_row": np.array([3, 9])},
        {"protects": "columns of shop, test rows", "sensitivity": 1.0, "noise": 1.0, "per_row": np.array([2])},
        {"protects": "columns of other, training rows", "sensitivity": 2.0, "noise": 1.0, "per_row": np.array([5])},
        {"protects": "columns of shop, test rows", "sensitivity": None, "noise": 1.0, "per_row": np.array([2])},
    ]
    found = costs_of("shop", released, ids)
    assert [own.tolist() for own in found.values()] == [[12.0, 36.0, 0.0], [2.0]]
    a, b, c = account_names(["a", "b", "c"])
    assert by_name(ids, found, found) == {a: 24.0, b: 0.0, c: 4.0}  # a row that it lacks costs nothing
    (line, other) = as_released("shop", "bank", ("bank",), found)
    assert (line["protects"], other["protects"]) == ("columns of shop, training rows", "columns of shop, test rows")
    assert spent_before(read_model(first / "model" / "shop"), {"training rows": ["new", ""]}) is None
