"""Predictions from parties' own tables: prepared as in training, matched by id, written as a table; bad calls named."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from command_line import colonnade as command
from command_line import toml

import colonnade
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
