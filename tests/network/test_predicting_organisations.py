"""Organisations predict over mutual TLS, each from its own model and table; they survive kills, and budgets hold."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from parties import LABEL, Organisation, Town, shared, wait_until

from colonnade.prediction.joint_model import JointModel
from colonnade.prediction.saved_model import read_model
from colonnade.prediction.tables import predict_tables

NAMES = [LABEL, "party1", "party2"]
TRAINED = range(40)
HELD = {"party1": range(60), "party2": range(10, 70)}  # afterwards: new rows, some of which only one of them has
PIECE = {"colonnade.prediction.conversation.PIECE": 8}


def table_of(name: str, numbers: range) -> pd.DataFrame:
    draws = np.random.default_rng(7).normal(size=(100, 3))
    columns = {"id": [f"c{number:03}" for number in numbers]}
    if name == LABEL:
        return pd.DataFrame({**columns, "label": [int(draws[number].sum() > 0) for number in numbers]})
    place = NAMES.index(name) - 1
    return pd.DataFrame({**columns, f"{name}_x": draws[list(numbers), place]})


def trained(town: Callable[..., Town], algorithm: str | dict[str, Any], parties: int = 2, **more: Any) -> Town:
    """A federation that has been trained on the rows that all of them had."""
    names = NAMES[: 1 + parties]
    plan = shared(algorithm, {"id": "id", "label": "label"}, 1, 8, **more)
    own = {name: {"data": {"file": "table.csv"}} for name in names}
    built = town({**plan, "parties": {name: {} for name in names}}, parties=parties, own=own)
    for name in names:
        table_of(name, TRAINED).to_csv(built[name].folder / "table.csv", index=False)
    built.start()
    built.end()
    for name in names[1:]:
        table_of(name, HELD[name]).to_csv(built[name].folder / "table.csv", index=False)
    return built


def predict(one: Organisation, *more: str) -> None:
    files = [str(one.folder / "federation.toml"), "--party", str(one.folder / "party.toml")]
    if "--directory" not in more:
        more = (*more, "--directory", str(one.folder / "predicted"))
    if one.name == LABEL:
        more = (*more, "--out", str(one.folder / "out.csv"))
    one.begin(["predict", *files, "--model", str(one.out), *more])


def found(town: Town) -> pd.DataFrame:
    return pd.read_csv(town.label.folder / "out.csv", dtype={"id": str}).set_index("id")


@pytest.mark.parametrize("algorithm", ["vafl", {"name": "afsaga", "sums": "pairwise", "allow_two_parties": True}])
def test_who_is_killed_in_the_middle_goes_on_and_all_come_to_the_joint_model(
    algorithm: str | dict[str, Any], town: Callable[..., Town]
) -> None:
    built = trained(town, algorithm)
    wanted = [f"c{number:03}" for number in [*range(80), 5]]
    (built.label.folder / "ids.txt").write_text("\n".join(wanted), encoding="utf-8")
    for one in built.parties.values():
        one.options = {"patches": PIECE, "milliseconds_an_event": 20}
        predict(one, *(["--ids", str(one.folder / "ids.txt")] if one.name == LABEL else []))
    for victim, some_bytes in (("party1", 1200), (LABEL, 2500)):
        journal = built[victim].folder / "predicted" / "journal"
        wait_until(lambda: _size(journal) > some_bytes, "some of the work")  # noqa: B023 — asked at once
        assert not (built[victim].folder / "predicted" / "summary.json").exists()
        built[victim].kill()
        one = built[victim]
        predict(one, *(["--ids", str(one.folder / "ids.txt")] if one.name == LABEL else []))
    for one in built.parties.values():
        one.end()
    result = found(built)
    known = [f"c{number:03}" for number in range(10, 60)]
    assert sorted(result.index[result["prediction"].notna()]) == known
    assert sorted(result.index[result["prediction"].isna()]) == sorted(set(wanted) - set(known))
    models = {name: read_model(one.out / "model" / name) for name, one in built.parties.items()}
    tables = {name: built[name].folder / "table.csv" for name in NAMES[1:]}
    joint = predict_tables(JointModel(models, LABEL), tables, wanted=known)
    written = result.loc[known, "probability of 1"].to_numpy()
    assert np.array_equal(written, joint.probabilities["1"]), "in pieces of other sizes, to the bit"
    # An id that a party does not hold is in nothing that it keeps or says.
    for name in NAMES[1:]:
        assert "c075" not in built[name].said()
        kept = b"".join(path.read_bytes() for path in (built[name].folder / "predicted").rglob("*") if path.is_file())
        assert b"c075" not in kept


def test_another_training_another_purpose_and_a_changed_table_are_refused(town: Callable[..., Town]) -> None:
    built = trained(town, "vafl", 1)
    feature, path = built["party1"], built["party1"].out / "model" / "party1" / "model.json"
    feature.folder.joinpath("table.csv").rename(feature.folder / "right.csv")
    table_of("party1", TRAINED).rename(columns={"party1_x": "size"}).to_csv(feature.folder / "table.csv", index=False)
    predict(feature)
    feature.end(code=2)
    assert "lacks columns that the model was trained with: party1_x. It has others" in feature.said()
    feature.folder.joinpath("right.csv").rename(feature.folder / "table.csv")
    described = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**described, "training": "0" * 32}), encoding="utf-8")
    predict(built.label)
    predict(feature)
    feature.end(code=None)
    assert "have models of different trainings: they differ in model.training" in feature.said()
    feature.start(out=feature.folder / "again")
    feature.end(code=None)
    assert "predicts and the other trains" in feature.said()
    predict(feature, "--out", str(feature.folder / "x.csv"))
    feature.end(code=2)
    assert "is the label party's" in feature.said()


def test_a_budget_holds_across_training_and_predictions(town: Callable[..., Town]) -> None:
    target = {"privacy": {"columns_epsilon": 20.0, "delta": 1e-3, "clip": 1.0, "bottom_update": "frozen"}}
    built = trained(town, "vafl", 1, **target)
    feature, label = built["party1"], built.label
    table_of(LABEL, range(60)).to_csv(label.folder / "table.csv", index=False)
    predicted: list[int] = []
    for number in range(6):
        for one in (label, feature):
            predict(one, "--directory", str(one.folder / f"predicted-{number}"))
        for one in (label, feature):
            one.end()
        result = found(built)
        predicted.append(int(result["prediction"].notna().sum()))
        summary = json.loads((label.folder / f"predicted-{number}" / "summary.json").read_text(encoding="utf-8"))
        assert summary["refused"] == 60 - predicted[-1]
        if not predicted[-1]:
            break
    assert predicted[0] >= 20, "rows that were not trained on have all of their budget"
    assert predicted == sorted(predicted, reverse=True) and predicted[-1] < predicted[0]
    own = json.loads((feature.folder / f"predicted-{number}" / "summary.json").read_text(encoding="utf-8"))
    assert own["refused"] == 60 - predicted[-1]
    (feature.out / "model" / "party1" / "account.msgpack").unlink()
    predict(feature, "--directory", str(feature.folder / "anew"))
    feature.end(code=1)
    assert "missing or damaged" in feature.said()


def _size(journal: Path) -> int:
    return sum(path.stat().st_size for path in journal.glob("*.journal"))
