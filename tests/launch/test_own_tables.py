"""From dirty tables of several organisations to a model, with defaults as good as scikit-learn on the joined table."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import colonnade
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from colonnade import Training, from_arrays, from_frames, train
from colonnade.data.alignment import split_rows
from colonnade.errors import DataError
from colonnade.federation.building import notes_on_size
from colonnade.federation.file import parse_federation

ROWS = 2000


def census() -> pd.DataFrame:
    """People with ids of leading zeros, words, dates and gaps, whose income depends on all of them."""
    draw = np.random.default_rng(0)
    schools, effects = ["11th", "HS-grad", "Bachelors", "Masters"], np.array([-1.5, -0.5, 0.8, 1.6])
    school, job = draw.integers(0, 4, ROWS), draw.integers(0, 12, ROWS)
    age, hours = draw.integers(17, 80, ROWS).astype(float), draw.normal(40, 10, ROWS).round(1)
    score = effects[school] + draw.normal(0, 1, 12)[job] + 0.05 * (age - 40) + 0.04 * (hours - 40)
    since = pd.Timestamp("2000-01-01") + pd.to_timedelta(draw.integers(0, 8000, ROWS), "D")
    people = pd.DataFrame(
        {
            "id": [f"{i:05d}" for i in draw.permutation(ROWS)],
            "income": np.where(draw.random(ROWS) < 1 / (1 + np.exp(-score)), ">50K", "<=50K"),
            "age": age,
            "school": np.array(schools)[school],
            "job": np.array([f"job {j}" for j in range(12)])[job],
            "hours": hours,
            "since": since.strftime("%Y-%m-%d"),
        }
    )
    people.loc[draw.random(ROWS) < 0.05, "age"] = np.nan
    people.loc[draw.random(ROWS) < 0.05, "job"] = None
    return people


PEOPLE = census()
PARTIES = {"tax": ["income", "age", "school"], "work": ["job", "hours", "since"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("census")
    tax = PEOPLE[["id", *PARTIES["tax"]]].astype({"age": object})
    tax.fillna("?").to_csv(made / "tax.csv", sep=";", index=False)
    PEOPLE[["id", *PARTIES["work"]]].sample(frac=1, random_state=0).to_parquet(made / "work.parquet")
    (made / "federation.toml").write_text(
        '[federation]\nlabel_party = "tax"\n[data]\nlabel = "income"\n'
        '[parties.tax]\nfile = "tax.csv"\n[parties.work]\nfile = "work.parquet"\n'
    )
    return made


@pytest.mark.parametrize(
    ("algorithm", "other"),
    [("fcg", LogisticRegression(max_iter=500)), ("vafl", MLPClassifier(random_state=0, max_iter=40))],
)
def test_defaults_are_as_good_as_scikit_learn_on_the_joined_table(folder: Path, algorithm: str, other) -> None:
    answer = colonnade(
        "run", folder / "federation.toml", "--set", f"algorithm.name={algorithm}", "--out", folder / algorithm, "--json"
    )
    assert answer.code == 0, answer.err
    joined = PEOPLE.sort_values("id").reset_index(drop=True)
    joined["since"] = pd.to_datetime(joined["since"]).astype("int64") / 1e15
    rows, test_rows = split_rows(ROWS, 0.25)
    X, y = joined.drop(columns=["id", "income"]), (joined["income"] == ">50K").to_numpy()
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    words = make_pipeline(SimpleImputer(strategy="constant", fill_value="gap"), OneHotEncoder(handle_unknown="ignore"))
    encoded = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")), (words, make_column_selector(dtype_exclude="number"))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = make_pipeline(encoded, other).fit(X.iloc[rows], y[rows])
    expected = roc_auc_score(y[test_rows], fitted.predict_proba(X.iloc[test_rows])[:, 1])
    assert answer.object["test"]["auc"] > expected - 0.01
    assert answer.object["data"]["rows_by_party"]["work"] == {"held": ROWS, "matched": ROWS, "used": ROWS}


def test_rows_are_told_before_the_training_and_a_poor_match_is_explained(folder: Path) -> None:
    lost = PEOPLE[["id", *PARTIES["work"]]]
    lost = lost.assign(id=[str(int(id)) if id < "01500" else id for id in lost["id"]])
    lost.to_parquet(folder / "lost.parquet")
    words = ["--set", "parties.work.file=lost.parquet", "--set", "data.rows=intersection", "--set", "training.epochs=1"]
    answer = colonnade("run", folder / "federation.toml", *words, "--out", folder / "lost", "--no-report")
    told = " ".join(answer.err.split())
    assert "work: 2,000 rows held, 500 matched, 500 used" in told
    assert "500 ids are the same; 2,000 would be if leading zeros are ignored" in told


def test_a_bad_cell_ends_the_command_with_file_row_and_column(folder: Path) -> None:
    people = PEOPLE[["id", *PARTIES["work"]]].astype({"hours": object})
    people.loc[6, "hours"] = "a secret"
    people.to_csv(folder / "bad.csv", index=False)
    answer = colonnade("run", folder / "federation.toml", "--set", "parties.work.file=bad.csv", "--out", folder / "bad")
    assert answer.code == 2
    told = " ".join(answer.err.split())
    assert "column 'hours', row 7: is text where a number belongs" in told and "bad.csv" in told
    assert "secret" not in told
    assert not (folder / "bad").exists()


# --- what a new user tries --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def outcome_and_data():
    draw = np.random.default_rng(0)
    bank = pd.DataFrame({"id": range(21), "income": draw.normal(size=21), "y": np.arange(21) % 2})
    shop = pd.DataFrame({"id": range(21), "orders": draw.normal(size=21), "kind": ["a", "b", "c"] * 7})
    data = from_frames({"bank": bank, "shop": shop}, label_party="bank", label="y", test_fraction=0)
    layers = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4))
    # The last batch of an epoch has one row.
    return train(data, training=Training(epochs=1, batch_size=20), bottom={"shop": layers}), data


def test_outputs_are_those_of_arrays_too_and_batch_norm_trains_on_one_row(outcome_and_data) -> None:
    outcome, data = outcome_and_data
    tensors = {party: held.train for party, held in data.columns.items()}
    expected = outcome.outputs(tensors)
    assert outcome.outputs({party: rows.numpy().astype(float) for party, rows in tensors.items()}).equal(expected)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda own: {"bank": own["bank"]}, "Rows of shop are missing"),
        (
            lambda own: {**own, "bank": own["shop"]},
            r"rows of bank have the shape \(5,\); the model was trained with \(1,\)",
        ),
        (lambda own: {**own, "bank": own["bank"][:3]}, "here are 21 of shop, 3 of bank"),
        (lambda own: {**own, "bank": own["bank"][0]}, r"rows of bank have the shape \(\)"),
        (lambda own: {**own, "bank": pd.DataFrame(own["bank"].numpy())}, "rows of bank are a DataFrame: give prepared"),
    ],
)
def test_rows_that_do_not_fit_a_model_are_told(change, words: str, outcome_and_data) -> None:
    outcome, data = outcome_and_data
    with pytest.raises(DataError, match=words):
        outcome.outputs(change({party: held.train for party, held in data.columns.items()}))


def test_large_dense_copies_of_sparse_columns_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy import sparse

    X = sparse.random_array((40, 30), density=0.2, rng=np.random.default_rng(0))
    data = from_arrays(X, np.arange(40) % 2, parties=2)
    for name, expected in (("vafl", 1), ("fcg", 0)):
        plan = parse_federation({"data": {"set": "iris"}, "algorithm": {"name": name}}).plan(data)
        assert notes_on_size(data, plan) == []
        with monkeypatch.context() as small:
            small.setattr("colonnade.federation.building.LARGE_BYTES", 4000)
            notes = notes_on_size(data, plan)
        assert len(notes) == expected
    with monkeypatch.context() as small, pytest.warns(UserWarning, match="vafl needs dense columns"):
        small.setattr("colonnade.federation.building.LARGE_BYTES", 4000)
        train(data, "vafl", training=Training(epochs=0.1, batch_size=10))
