"""Coefficients by column say what the model says, from the table's own cells; scikit-learn's object says the same."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tabled import Tabled, frames, trained

import colonnade
from colonnade.errors import DataError, SettingsError
from colonnade.exports.coefficients import Coefficients, coefficients_of
from colonnade.exports.own_units import Term
from colonnade.exports.sklearn_objects import read_sklearn, to_sklearn
from colonnade.prediction.tables import predict_tables


@pytest.fixture(scope="module", params=["binary", "regression"])
def linear(request: pytest.FixtureRequest) -> Tabled:
    return trained(regression=request.param == "regression")


def measured(term: Term, cell: Any) -> float:
    """What a term multiplies, from a cell of the table: the words of the export, followed by hand."""
    missing = pd.isna(cell)
    if term.of.startswith("is "):
        word = term.of.removeprefix("is ")
        return float(missing if word == "missing" else str(cell) == word)
    if term.of.startswith("joined") or "sine" in term.of or "cosine" in term.of:
        part, wave = term.of.split()
        day = pd.Timestamp(cell)
        turn = {"month": (day.month - 1) / 12, "day": (day.day - 1) / 31, "weekday": day.weekday() / 7}[part]
        return float(np.sin(2 * np.pi * turn) if wave == "sine" else np.cos(2 * np.pi * turn))
    if missing:
        assert term.gap is not None
        return term.gap
    if term.of == "days since 1970-01-01":
        return float((pd.Timestamp(cell) - pd.Timestamp("1970-01-01")).days)
    value = float(cell)
    return float(np.sign(value) * np.log1p(abs(value))) if term.of == "sign · log(1 + |value|)" else value


def by_hand(found: Coefficients, tables: Mapping[str, pd.DataFrame]) -> np.ndarray:
    rows = len(tables["label"])
    total = np.tile(np.array(found.intercept), (rows, 1))
    for party, terms in found.terms.items():
        for term in terms:
            cells = tables[party][term.column]
            total += np.outer([measured(term, cell) for cell in cells], term.coefficients)
    return total


def test_a_sum_over_the_tables_own_cells_is_what_the_model_says(linear: Tabled) -> None:
    found = coefficients_of(linear.outcome.model)
    said = predict_tables(linear.outcome.model, linear.frames)
    by_cells = by_hand(found, linear.frames)[:, 0]
    if found.unit == "log-odds":
        assert np.allclose(1 / (1 + np.exp(-by_cells)), said.probabilities["yes"], atol=1e-5)
    else:
        assert np.allclose(by_cells, said.predicted.astype(float), rtol=1e-5)
    names = {(party, term.column, term.of) for party, terms in found.terms.items() for term in terms}
    assert {
        ("bank", "age", "value"),
        ("bank", "age", "is missing"),
        ("bank", "spent", "sign · log(1 + |value|)"),
        ("bank", "joined", "days since 1970-01-01"),
        ("shop", "city", "is Oslo"),
        ("shop", "size", "is large"),
        ("label", "visits", "value"),
    } <= names


def test_a_column_that_was_constant_has_no_coefficient(linear: Tabled) -> None:
    found = coefficients_of(linear.outcome.model)
    (always,) = [term for term in found.terms["bank"] if term.column == "always"]
    assert always.coefficients == (0.0,)


def test_the_parts_of_all_parties_are_the_whole(linear: Tabled) -> None:
    model = linear.outcome.model
    parts = [coefficients_of(saved) for saved in model.parties.values()]
    total = sum(by_hand(part, linear.frames) for part in parts)
    whole = by_hand(coefficients_of(model), linear.frames)
    assert np.allclose(total * model.unit.deviation + model.unit.mean, whole, rtol=1e-9, atol=1e-9)


def test_scikit_learn_says_the_same(linear: Tabled, tmp_path: Path) -> None:
    model, rows = linear.outcome.model, {name: held.test for name, held in linear.data.columns.items()}
    together = torch.cat([rows[name] for name in model.order], 1).double().numpy()
    colonnade.export(model, "sklearn", tmp_path / "whole.json")
    found = read_sklearn(tmp_path / "whole.json")
    if model.unit.classes:
        assert np.allclose(found.predict_proba(together), model.predict_proba(rows), atol=1e-5)
        assert (found.predict(together) == model.predict(rows)).mean() == 1.0
        label = to_sklearn(model.parties["label"])
        assert list(label.classes_) == list(model.unit.classes)
    else:
        assert np.allclose(found.predict(together), model.predict(rows), rtol=1e-4)
    shop = to_sklearn(model.parties["shop"])  # knows no classes
    part = model.parties["shop"].modules["bottom"](rows["shop"]).detach().double().numpy()[:, 0]
    assert np.allclose(shop.predict(rows["shop"].double().numpy()), part, atol=1e-5)


def test_several_classes_have_a_coefficient_each() -> None:
    iris = colonnade.dataset("iris", parties=2)
    model = colonnade.train(iris, "fcg", training=colonnade.Training(epochs=2)).model
    found = coefficients_of(model)
    assert found.outputs == tuple(map(str, iris.labels.classes))
    assert {len(term.coefficients) for terms in found.terms.values() for term in terms} == {3}
    assert {term.of for terms in found.terms.values() for term in terms} == {"prepared"}
    assert coefficients_of(model.parties["party1"]).outputs == (
        "class 1",
        "class 2",
        "class 3",
    )  # names are not its own
    rows = {name: held.test for name, held in iris.columns.items()}
    together = torch.cat([rows[name] for name in model.order], 1).double().numpy()
    assert np.allclose(to_sklearn(model).predict_proba(together), model.predict_proba(rows), atol=1e-5)


def test_split_models_that_are_linear_have_coefficients_too() -> None:
    iris = colonnade.dataset("iris", parties=2)
    brief = colonnade.Training(epochs=0.5, batch_size=16)
    linear = colonnade.BottomSettings(kind="linear", embedding=4)
    rows = {name: held.test for name, held in iris.columns.items()}
    for algorithm, top in (("vafl", "sum"), ("vafl", "concat-linear"), ("centralised", "concat-linear")):
        model = colonnade.train(iris, algorithm, training=brief, bottom=linear, top=colonnade.TopSettings(top)).model
        found = to_sklearn(model)
        together = torch.cat([rows[name] for name in model.order], 1).double().numpy()
        assert np.allclose(found.predict_proba(together), model.predict_proba(rows), atol=1e-5)
        if top == "concat-linear" and algorithm == "vafl":
            with pytest.raises(SettingsError, match="does more than add up"):
                coefficients_of(model.parties["party1"])


def test_what_is_not_linear_is_refused() -> None:
    iris = colonnade.dataset("iris", parties=2)
    brief = colonnade.Training(epochs=0.5, batch_size=16)
    with pytest.raises(SettingsError, match=r"top model of label is not linear: it has a layer ReLU"):
        coefficients_of(colonnade.train(iris, "vafl", training=brief).model)
    clipped = colonnade.train(
        iris,
        "vafl",
        training=brief,
        bottom=colonnade.BottomSettings(kind="linear"),
        top=colonnade.TopSettings("sum"),
        privacy=colonnade.PerturbationSettings(clip=1.0),
    )
    with pytest.raises(SettingsError, match="is clipped"):
        coefficients_of(clipped.model)
    with pytest.raises(SettingsError, match="label has no columns"):
        coefficients_of(clipped.model.parties["label"])


def test_files(linear: Tabled, tmp_path: Path) -> None:
    model = linear.outcome.model
    (path,) = colonnade.export(model, "coefficients", tmp_path / "all.csv")
    lines = [*csv.DictReader(path.read_text().splitlines())]
    found = coefficients_of(model)
    assert lines[0]["column"] == "intercept"
    assert [line["column"] for line in lines[1:]] == [term.column for terms in found.terms.values() for term in terms]
    assert path.stat().st_mode & 0o077 == 0
    (path,) = colonnade.export(model, "coefficients", tmp_path / "bank.json", party="bank")
    assert {term["party"] for term in json.loads(path.read_text())["terms"]} == {"bank"}
    with pytest.raises(SettingsError, match=r"written as \.csv or \.json"):
        colonnade.export(model, "coefficients", tmp_path / "x.txt")
    with pytest.raises(SettingsError, match="Did you mean 'bank'"):
        colonnade.export(model, "coefficients", tmp_path / "x.csv", party="bnk")
    with pytest.raises(SettingsError, match="Did you mean 'onnx'"):
        colonnade.export(model, "onx", tmp_path)
    (tmp_path / "other.json").write_text('{"class": "os.system"}')
    with pytest.raises(DataError, match="is not what"):
        read_sklearn(tmp_path / "other.json")


def test_an_absent_row_has_one_term_alone() -> None:
    held = frames()
    held["shop"] = held["shop"][:-40]
    data = colonnade.from_frames(held, label_party="label", label="bought", rows="any")
    model = colonnade.train(data, "fcg", training=colonnade.Training(epochs=4)).model
    found = coefficients_of(model)
    said = predict_tables(model, held)
    by_cells = np.full(len(held["label"]), found.intercept[0])
    for party, terms in found.terms.items():
        own = held[party].set_index("id").reindex(held["label"]["id"])
        here = held["label"]["id"].isin(held[party]["id"]).to_numpy()
        for term in terms:
            if term.column == "row is absent":
                by_cells += np.where(here, 0.0, term.coefficients[0])
            else:
                values = np.array([measured(term, cell) for cell in own[term.column]])
                by_cells += np.where(here, values, 0.0) * term.coefficients[0]
    expected = dict(zip(said.ids, said.probabilities["yes"], strict=True))
    assert np.allclose(1 / (1 + np.exp(-by_cells)), [expected[one] for one in held["label"]["id"]], atol=1e-5)
