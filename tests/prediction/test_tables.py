"""Predictions from parties' own tables: prepared as in training, matched by id, written as a table; bad calls named."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from command_line import colonnade as command
from command_line import toml

import colonnade
from colonnade.alignment.settings import IdRules
from colonnade.errors import DataError
from colonnade.federation.toml import write_toml
from colonnade.launch.outcome import Outcome
from colonnade.prediction.joint_model import JointModel, load_model
from colonnade.prediction.tables import predict_tables

ROWS = 120


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    draws = np.random.default_rng(3)
    ids = [f"{number:04d}" for number in range(ROWS)]
    age, city = draws.integers(18, 80, ROWS).astype(float), draws.choice(["Lima", "Oslo"], ROWS)
    bought = np.where(0.1 * (age - 50) + (city == "Oslo") + draws.logistic(size=ROWS) > 0, "yes", "no")
    age[::9] = np.nan
    return {
        "label": pd.DataFrame({"id": ids, "bought": bought}),
        "bank": pd.DataFrame({"id": ids, "age": age, "spent": draws.lognormal(size=ROWS)}),
        "shop": pd.DataFrame({"id": ids[:-10][::-1], "city": city[:-10][::-1]}),
    }


@pytest.fixture(scope="module")
def run(frames: dict[str, pd.DataFrame], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three files."""
    folder = tmp_path_factory.mktemp("run")
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    settings = {
        "algorithm": {"name": "vafl"},
        "data": {"label": "bought", "rows": "intersection"},
        "training": {"epochs": 3},
        "parties": {name: {"file": f"{name}.csv"} for name in frames},
    }
    answer = command(
        "run", toml(str(folder / "federation.toml"), write_toml(settings)), "--out", folder / "run", "--no-report"
    )
    assert answer.code == 0, answer.err
    return folder / "run"


def train(frames: dict[str, pd.DataFrame], **training: object) -> tuple[colonnade.FederatedData, Outcome]:
    data = colonnade.from_frames(frames, label_party="label", label="bought", rows="intersection")
    return data, colonnade.train(data, "vafl", training=colonnade.Training(epochs=2, **training))  # type: ignore[arg-type]


def test_a_loaded_model_prepares_tables_as_the_training_did(frames: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    data, outcome = train(frames)
    loaded = load_model(outcome.save(tmp_path))
    assert isinstance(loaded, JointModel)
    own = {name: frame for name, frame in frames.items() if name != "label"}
    found = predict_tables(loaded, own)
    assert found.ids == sorted(frames["shop"]["id"])
    assert found.left_out == {"bank": 10, "shop": 0}
    everybody = {name: torch.cat([held.train, held.test]) for name, held in data.columns.items()}  # in another order
    trained = outcome.predict_proba(everybody)[:, 1]
    assert np.array_equal(np.sort(found.probabilities["yes"]), np.sort(trained))


def test_ids_are_written_alike_by_the_rules_of_the_training(frames: dict[str, pd.DataFrame]) -> None:
    _, outcome = train(frames)
    own = {name: frame for name, frame in frames.items() if name != "label"}
    plain = predict_tables(outcome.model, own)
    own["shop"] = own["shop"].assign(id="0" + own["shop"]["id"] + " ")
    rules = IdRules(zeros="strip")
    found = predict_tables(outcome.model, own, rules=rules)
    assert sorted(one.strip("0") for one in found.ids) == sorted(one.strip("0") for one in plain.ids)
    assert sorted(found.probabilities["yes"]) == sorted(plain.probabilities["yes"])
    first = plain.ids[0]
    some = predict_tables(outcome.model, own, wanted=[f"00{first}", "nobody", first], rules=rules)
    assert some.ids == [f"00{first}", first] and some.unknown == ("nobody",)
    own["bank"] = pd.concat([own["bank"], own["bank"].assign(id="0" + own["bank"]["id"])])
    with pytest.raises(DataError, match="are the same by the rules of the federation"):
        predict_tables(outcome.model, own, rules=rules)


def test_the_label_party_finds_its_own_writing_of_ids(frames: dict[str, pd.DataFrame]) -> None:
    bank = frames["bank"].merge(frames["label"])
    data = colonnade.from_frames(
        {"shop": frames["shop"], "bank": bank}, label_party="bank", label="bought", rows="intersection"
    )
    model = colonnade.train(data, "vafl", training=colonnade.Training(epochs=1)).model
    shop = frames["shop"].assign(id=frames["shop"]["id"].str.lstrip("0"))
    found = predict_tables(model, {"shop": shop[:20], "bank": bank}, rules=IdRules(zeros="strip"))
    assert len(found.ids) >= 19 and all(len(one) == 4 for one in found.ids)


def test_the_threshold_decides(frames: dict[str, pd.DataFrame]) -> None:
    own = {name: frame for name, frame in frames.items() if name != "label"}
    for threshold in (0.2, "auto"):
        _, outcome = train(frames, threshold=threshold)
        used = outcome.model.unit.threshold
        assert used == (outcome.summary["test"]["threshold"] if threshold == "auto" else threshold)
        found = predict_tables(outcome.model, own)
        assert np.array_equal(found.predicted == "yes", found.probabilities["yes"] > used)


def test_the_verb_writes_what_the_model_says(run: Path, frames: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    answer = command("predict", run, "--out", tmp_path / "all.parquet", "--json")
    assert answer.object == {
        "out": str(tmp_path / "all.parquet"),
        "predicted": ROWS - 10,
        "unknown": 0,
        "left_out": {"bank": 10, "shop": 0},
    }
    written = pq.read_table(tmp_path / "all.parquet").to_pandas()
    model = load_model(run)
    assert isinstance(model, JointModel)
    found = predict_tables(model, {name: frames[name] for name in ("bank", "shop")})
    assert np.array_equal(written["probability of yes"], found.probabilities["yes"])
    assert (tmp_path / "all.parquet").stat().st_mode & 0o077 == 0


def test_asked_for_rows_come_in_their_order(run: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("0004\nnobody\n0002\n", encoding="utf-8")
    answer = command("predict", run, "--out", tmp_path / "some.csv", "--ids", tmp_path / "ids.txt")
    assert "2 rows predicted" in answer.out
    assert "1 ids are not held by every party" in answer.out
    written = pd.read_csv(tmp_path / "some.csv", dtype={"id": str})
    assert written["id"].tolist() == ["0004", "0002", "nobody"]
    assert written["prediction"].isna().tolist() == [False, False, True]


def test_ids_that_nobody_knows_and_a_model_that_is_not_whole(run: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("4\n2\n", encoding="utf-8")
    answer = command("predict", run, "--out", tmp_path / "some.csv", "--ids", tmp_path / "ids.txt")
    assert "Are they written as in the tables?" in answer.out
    answer = command("predict", run, "--out", tmp_path / "no" / "such.csv")
    assert "such.csv could not be written" in answer.err and "Choose another place" in answer.err
    shutil.copytree(run, tmp_path / "torn")
    (tmp_path / "torn" / "model" / "shop" / "model.json").unlink()
    answer = command("predict", tmp_path / "torn", "--out", tmp_path / "some.csv")
    assert "torn/model/shop has weights and no model.json" in answer.err


def test_another_table_has_the_same_columns(run: Path, frames: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    new = pd.DataFrame({"id": ["0001", "0003"], "city": ["Lima", "Paris"]})  # a city that nobody had seen
    new.to_csv(tmp_path / "new.csv", index=False)
    answer = command("predict", run, "--out", tmp_path / "new-rows.csv", "--table", f"shop={tmp_path / 'new.csv'}")
    assert "2 rows predicted" in answer.out
    frames["bank"].to_csv(tmp_path / "bank.csv", index=False)
    refused = command("predict", run, "--out", tmp_path / "x.csv", "--table", f"shop={tmp_path / 'bank.csv'}")
    assert refused.code == 2
    assert "lacks columns that the model was trained with: city" in refused.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--out", "x.txt"], ".csv or .parquet"),
        (["--out", "x.csv", "--table", "shop"], "give PARTY=FILE"),
        (["--out", "x.csv", "--table", "shp=x.csv"], "Did you mean 'shop'?"),
        (["--out", "x.csv", "--ids", "nothing.txt"], "no file 'nothing.txt' of ids"),
        (["--out", "nowhere/x.csv"], "could not be written"),
    ],
)
def test_wrong_calls_are_named(run: Path, more: list[str], said: str) -> None:
    refused = command("predict", run, *more)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err


def test_a_model_of_prepared_rows_takes_no_table(frames: dict[str, pd.DataFrame]) -> None:
    iris = colonnade.dataset("iris", parties=2)
    model = colonnade.train(iris, "vafl", training=colonnade.Training(epochs=1)).model
    with pytest.raises(DataError, match="trained on prepared columns"):
        predict_tables(model, {"party1": frames["bank"], "party2": frames["bank"]})
    with pytest.raises(DataError, match="Tables of party2 are missing"):
        predict_tables(model, {"party1": frames["bank"]})


# --- rows that some parties lack ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lenient(frames: dict[str, pd.DataFrame], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the same files with rows = "any": the shop lacks ten rows."""
    folder = tmp_path_factory.mktemp("lenient")
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    settings = {
        "data": {"label": "bought", "rows": "any"},
        "training": {"epochs": 3},
        "parties": {name: {"file": f"{name}.csv"} for name in frames},
    }
    path = toml(str(folder / "federation.toml"), write_toml(settings))
    answer = command("run", path, "--out", folder / "run", "--no-report", "--json")
    assert answer.code == 0, answer.err
    assert answer.object["data"]["rows"] + answer.object["data"]["test_rows"] == ROWS
    told = [one["sentence"] for one in answer.object["learnt"] if one["kind"] == "EmbeddingUpload"]
    assert all("rows that" in one and "are all alike" in one for one in told) and len(told) == 2
    return folder / "run"


def test_rows_that_any_party_knows_are_predicted(lenient: Path, tmp_path: Path) -> None:
    pd.DataFrame({"id": ["0001", "0119", "new"], "city": ["Lima", "Oslo", "Oslo"]}).to_csv(tmp_path / "shop.csv")
    (tmp_path / "ids.txt").write_text("new\n0118\n0119\nnobody\n", encoding="utf-8")
    more = ["--ids", tmp_path / "ids.txt", "--table", f"shop={tmp_path / 'shop.csv'}"]
    answer = command("predict", lenient, "--out", tmp_path / "some.csv", *more)
    assert answer.code == 0, answer.err
    assert "1 ids are not held by any party" in answer.out
    assert "bank: lacks 1 of them" in answer.out and "shop: lacks 1 of them" in answer.out
    written = pd.read_csv(tmp_path / "some.csv", dtype=str, keep_default_na=False)
    assert written["id"].tolist() == ["new", "0118", "0119", "nobody"]
    assert written["known to"].tolist() == ["shop", "bank", "bank shop", ""]
    assert written["prediction"].isin(["yes", "no"]).tolist() == [True, True, True, False]
    whole = command("predict", lenient, "--out", tmp_path / "all.parquet", "--json").object
    assert (whole["predicted"], whole["lacking"]) == (ROWS, {"bank": 0, "shop": 10})
    assert "left_out" not in whole


def test_a_party_may_be_left_out_where_the_model_expects_it(
    lenient: Path, run: Path, frames: dict[str, pd.DataFrame]
) -> None:
    model, strict = load_model(lenient), load_model(run)
    assert isinstance(model, JointModel) and isinstance(strict, JointModel)
    alone = predict_tables(model, {"bank": frames["bank"]})
    gone = frames["shop"].assign(id="x" + frames["shop"]["id"])  # of none of these customers
    both = predict_tables(model, {"bank": frames["bank"], "shop": gone})
    place = {id: number for number, id in enumerate(both.ids)}
    same = both.probabilities["yes"][[place[id] for id in alone.ids]]
    assert np.array_equal(alone.probabilities["yes"], same)
    assert alone.lacking == {"bank": 0, "shop": ROWS}
    stand_in = model.parties["shop"].stand_in()
    assert stand_in is not None and stand_in.shape == (16,)
    assert strict.parties["shop"].stand_in() is None and model.parties["label"].stand_in() is None
    with pytest.raises(DataError, match="Tables of shop are missing"):
        predict_tables(strict, {"bank": frames["bank"]})
    with pytest.raises(DataError, match="Tables of bank and shop are missing"):
        predict_tables(model, {})
    with pytest.raises(DataError, match="one party at least must know them"):
        model.predict({})
    with pytest.raises(DataError, match=r"Only a model that was trained with data\.rows = 'any'"):
        strict.predict({"shop": torch.zeros(1, 3)})


def test_a_model_of_one_place_knows_no_tables_of_others() -> None:
    ids = list("abcdefgh")
    bank = pd.DataFrame({"id": ids, "income": range(8), "paid": ["no", "yes"] * 4})
    shop = pd.DataFrame({"id": ids, "orders": range(8)})
    data = colonnade.from_frames({"bank": bank, "shop": shop}, label_party="bank", label="paid")
    outcome = colonnade.train(data, "centralised", training=colonnade.Training(epochs=1))
    with pytest.raises(DataError, match="trained in one place and does not know how the table of shop"):
        predict_tables(outcome.model, {"bank": bank, "shop": shop})
