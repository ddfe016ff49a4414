"""What defaults alone reach on tables, beside scikit-learn on the joined one: in points of AUC on the same test rows.

Linear algorithms beside `LogisticRegression`, `vafl` beside `MLPClassifier`, all with their defaults; scikit-learn gets
columns that were standardised and one-hot encoded for it. Two tables: credit cards of UCI, if COLONNADE_DATA has them,
and one like a census, drawn here: texts of few and of many categories, gaps, a skewed amount, and an interaction.
"""

import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from colonnade.benchmarks.benchmark import Benchmark, Watch, one_thread
from colonnade.data.datasets import read_dataset
from colonnade.data.loading import from_frames
from colonnade.data.sources import read_table
from colonnade.errors import DataError
from colonnade.launch.experiment import train

LINEAR = ("fcg", "afsvrg")
SPLIT = ("vafl",)
TEST_FRACTION = 0.25
CENSUS_ROWS = 20_000
LABEL = "label"


@one_thread
def run(watch: Watch) -> dict[str, float]:
    tables = {"census": census(CENSUS_ROWS)}
    try:
        tables["credit"] = credit()
    except DataError as error:
        watch(f"credit is left out: {error}")
    ratios: dict[str, float] = {}
    for name, (columns, labels) in tables.items():
        watch(f"{name}: {len(labels)} rows, {columns.shape[1]} columns")
        ratios |= {f"{name}_{key}": points for key, points in points_below(columns, labels, watch).items()}
    return ratios


def points_below(columns: pd.DataFrame, labels: Any, watch: Watch = lambda line: None) -> dict[str, float]:
    """How many points of AUC the worst algorithm of each family is below its yardstick."""
    order = np.random.default_rng(0).permutation(len(labels))
    train_rows, test_rows = np.split(order, [len(order) - round(TEST_FRACTION * len(order))])
    families = {"linear": (LINEAR, LogisticRegression(max_iter=1000)), "vafl": (SPLIT, MLPClassifier(random_state=0))}
    found = {}
    for family, (algorithms, model) in families.items():
        reached = {name: auc(name, columns, labels, train_rows, test_rows) for name in algorithms}
        yardstick = joined_auc(model, columns, labels, train_rows, test_rows)
        told = ", ".join(f"{name} {100 * one:.2f}" for name, one in reached.items())
        watch(f"AUC in percent: {told}, {type(model).__name__} {100 * yardstick:.2f}")
        found[f"{family}_points_below_sklearn"] = 100 * (yardstick - min(reached.values()))
    return found


def auc(algorithm: str, columns: pd.DataFrame, labels: Any, train_rows: Any, test_rows: Any) -> float:
    """Of two feature parties with half of the columns each, every setting as it is."""
    halves = np.array_split(np.arange(columns.shape[1]), 2)
    parties = {f"party{1 + place}": columns.iloc[:, half] for place, half in enumerate(halves)}

    def frame(content: Any, rows: Any) -> pd.DataFrame:
        return pd.DataFrame(content).iloc[rows].assign(id=rows.astype(str))

    frames = {LABEL: frame({"y": labels}, train_rows)}
    frames |= {name: frame(own, train_rows) for name, own in parties.items()}
    data = from_frames(frames, label_party=LABEL, label="y", test_fraction=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = train(data, algorithm).model
    prepared = {}
    for name, own in parties.items():
        table, preparation = read_table(frame(own, test_rows), party=name, id="id"), model.parties[name].preparation
        assert preparation is not None
        prepared[name] = preparation.apply(table, np.arange(len(test_rows)), party=name).numpy()
    return float(roc_auc_score(labels[test_rows], model.predict_proba(prepared)[:, 1]))


def joined_auc(model: Any, columns: pd.DataFrame, labels: Any, train_rows: Any, test_rows: Any) -> float:
    texts = make_pipeline(SimpleImputer(strategy="constant", fill_value="?"), OneHotEncoder(handle_unknown="ignore"))
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    prepared = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")), (texts, make_column_selector(dtype_exclude="number"))
    )
    whole = make_pipeline(prepared, model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged after its default of iterations
        whole.fit(columns.iloc[train_rows], labels[train_rows])
    return float(roc_auc_score(labels[test_rows], whole.predict_proba(columns.iloc[test_rows])[:, 1]))


def credit() -> tuple[pd.DataFrame, Any]:
    joined = read_dataset("credit_default_uci")
    values = np.asarray(joined.X)
    return pd.DataFrame(values, columns=[f"x{1 + j}" for j in range(values.shape[1])]), np.asarray(joined.y)


def census(rows: int) -> tuple[pd.DataFrame, Any]:
    """Whether a household's income is above a bound, by a curve that no linear model knows whole."""
    draw = np.random.default_rng(0)
    age, hours = draw.uniform(17, 80, rows), draw.normal(40, 12, rows).clip(1, 99)
    schooling = draw.integers(0, 12, rows)
    work, place = draw.integers(0, 9, rows), draw.zipf(1.6, rows).clip(max=40)
    gain = np.where(draw.random(rows) < 0.1, np.exp(draw.normal(8, 1, rows)), 0.0)
    worth = draw.normal(size=9)[work] + 0.35 * (schooling - 6) + 0.03 * (hours - 40) + 0.3 * np.log1p(gain) / 4
    worth = worth - ((age - 50) / 20) ** 2 + 0.3 * draw.normal(size=41)[place] + 0.2 * (schooling > 8) * (hours > 45)
    labels = (draw.random(rows) < 1 / (1 + np.exp(1.5 - worth))).astype(np.int64)
    columns = pd.DataFrame(
        {
            "age": age.round(),
            "work": np.array([f"work {one}" for one in work], object),
            "schooling": np.array([f"level {one}" for one in schooling], object),
            "hours": hours.round(),
            "gain": gain.round(),
            "place": np.array([f"place {one}" for one in place], object),
        }
    )
    columns.loc[draw.random(rows) < 0.05, "work"] = None
    columns.loc[draw.random(rows) < 0.05, "hours"] = np.nan
    return columns, labels


BENCHMARK = Benchmark(
    "tabular",
    "AUC of the defaults on two tables, beside scikit-learn's logistic regression and its MLPClassifier",
    run,
    {
        "census_linear_points_below_sklearn": "<= 1",
        "census_vafl_points_below_sklearn": "<= 1",
        "credit_linear_points_below_sklearn": "<= 1",
        "credit_vafl_points_below_sklearn": "<= 1",
    },
)
