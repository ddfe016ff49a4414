"""A training that begins with the model of another: it first says what that one said, and what cannot be is said."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import colonnade as command
from command_line import refused

import colonnade
from colonnade import (
    BottomSettings,
    DataError,
    FederatedData,
    Fsaga,
    Outcome,
    SettingsError,
    Split,
    TopSettings,
    Training,
    Vafl,
)
from colonnade.algorithms.linear_models.afsaga import Afsaga
from colonnade.prediction.starting import preparations_of
from colonnade.runtimes.processes.settings import Processes

ROWS = 60
STILL = Training(epochs=0.01, batch_size=20, learning_rate=1e-12)  # one step, of no length
LEARNS = Training(epochs=3, batch_size=20)
ALGORITHMS = {"split": Split(), "vafl": Vafl(), "afsaga": Afsaga(), "fsaga": Fsaga(step="fixed")}


def frames(columns: dict[str, list[str]], rows: range = range(ROWS), label: str = "class") -> dict[str, pd.DataFrame]:
    """Columns a, b, … of numbers, and `town` of words; every party's own."""
    draw = np.random.default_rng(1)
    numbers = pd.DataFrame(draw.normal(size=(2 * ROWS, 6)), columns=list("abcdef"))
    towns = np.array(["Graz", "Linz", "Wien"])[draw.integers(0, 3, 2 * ROWS)]
    score = numbers.sum(axis=1) + (towns == "Graz")
    table = numbers.assign(town=towns, id=[f"{i:03d}" for i in range(2 * ROWS)]).iloc[list(rows)]
    table["class"] = np.where(score > 0, "good", "bad")[list(rows)]
    table["value"] = 10 + 3 * score.iloc[list(rows)]
    made = {party: table[["id", *names]] for party, names in columns.items()}
    return {**made, "bank": table[["id", *columns.get("bank", []), label]]}


def data_of(
    columns: dict[str, list[str]], rows: range = range(ROWS), label: str = "class", **settings: Any
) -> FederatedData:
    given = {"test_fraction": 0.2, "seed": 0, **settings}
    return colonnade.from_frames(frames(columns, rows, label), label_party="bank", label=label, **given)


TWO = {"shop": ["a", "b", "town"], "bank": ["c"]}
DATA = data_of(TWO)


def test_columns(data: FederatedData) -> dict[str, Any]:
    return {party: held.test for party, held in data.columns.items()}


test_columns.__test__ = False  # type: ignore[attr-defined]


def trained(algorithm: Any, data: FederatedData = DATA, **more: Any) -> Outcome:
    return colonnade.train(data, algorithm, **{"training": LEARNS, **more})


@pytest.fixture(scope="module")
def model() -> dict[str, Outcome]:
    return {name: trained(algorithm) for name, algorithm in ALGORITHMS.items()}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_begins_where_the_other_ended(name: str, model: dict[str, Outcome]) -> None:
    again = trained(ALGORITHMS[name], training=STILL, start=model[name].model)
    fresh = trained(ALGORITHMS[name], training=STILL)
    said = model[name].outputs(test_columns(DATA))
    assert torch.allclose(again.outputs(test_columns(DATA)), said, atol=1e-4)
    assert not torch.allclose(fresh.outputs(test_columns(DATA)), said, atol=1e-2)


@pytest.mark.parametrize("name", ["vafl", "afsaga"])
def test_it_learns_on(name: str, model: dict[str, Outcome]) -> None:
    """Three more epochs from a model are at least as near to the labels as the model was."""
    longer = trained(ALGORITHMS[name], start=model[name].model)
    assert longer.summary["train_loss"] < model[name].summary["train_loss"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_new_columns_change_nothing_at_first(name: str, model: dict[str, Outcome]) -> None:
    wider = data_of({"shop": ["d", "a", "b", "town"], "bank": ["c", "e"]})
    again = trained(ALGORITHMS[name], wider, training=STILL, start=model[name].model)
    narrow = model[name].outputs(test_columns(DATA))
    assert torch.allclose(again.outputs(test_columns(wider)), narrow, atol=1e-4)
    moved = trained(ALGORITHMS[name], wider, start=model[name].model)
    of_new = next(moved.models["shop"]["bottom"].parameters())[:, 0]
    assert of_new.abs().max() > 0  # and then they are learnt


@pytest.mark.parametrize("top", ["concat-mlp", "sum", "linear family"])
def test_a_party_that_is_new_changes_nothing_at_first(top: str) -> None:
    algorithm, kind = (Afsaga(), "concat-mlp") if top == "linear family" else (Vafl(), top)
    models = {} if top == "linear family" else {"top": TopSettings(kind), "bottom": BottomSettings(hidden=(8,))}
    first = trained(algorithm, **models)
    more = data_of({"shop": TWO["shop"], "telco": ["d", "e"], "bank": ["c"]})
    again = trained(algorithm, more, training=STILL, start=first.model, **models)
    said = first.outputs(test_columns(DATA))
    assert torch.allclose(again.outputs(test_columns(more)), said, atol=1e-4)
    moved = trained(algorithm, more, start=first.model, **models)
    other = {**test_columns(more), "telco": torch.zeros_like(more.columns["telco"].test)}  # type: ignore[arg-type]
    assert not torch.allclose(moved.outputs(test_columns(more)), moved.outputs(other))  # and then it counts


def test_a_party_without_columns_in_common_begins_anew_in_words(model: dict[str, Outcome]) -> None:
    other = data_of({"shop": ["d", "e"], "bank": ["c"]})
    with pytest.raises(SettingsError, match="shop has none of the columns of the model to start from"):
        trained(Vafl(), other, start=model["vafl"].model)


def test_in_processes(model: dict[str, Outcome], tmp_path: Path) -> None:
    more = data_of({"shop": [*TWO["shop"], "f"], "telco": ["d"], "bank": ["c"]})
    options: dict[str, Any] = {"training": LEARNS, "start": model["split"].model.save(tmp_path / "model")}
    virtual = colonnade.train(more, "split", **options)
    real = colonnade.train(more, "split", runtime=Processes(), **options)
    for party, own in virtual.models.items():
        for name, module in own.items():
            for key, tensor in module.state_dict().items():
                assert torch.equal(tensor, real.models[party][name].state_dict()[key]), (party, name, key)


def test_a_label_that_is_a_number_keeps_its_unit() -> None:
    before = data_of(TWO, label="value")
    model = trained(Vafl(), before)
    later = data_of(TWO, range(ROWS // 2, 2 * ROWS), label="value", known=preparations_of(model.model))
    assert later.labels.mean != before.labels.mean
    again = trained(Vafl(), later, training=STILL, start=model.model)
    said = [one.predict(test_columns(later)) for one in (model, again)]
    assert said[0] == pytest.approx(said[1], abs=1e-3)
    assert again.model.unit.mean == pytest.approx(before.labels.mean)


# --- preparation ------------------------------------------------------------------------------------------------


def test_columns_are_prepared_as_the_model_learnt_them(model: dict[str, Outcome]) -> None:
    later = frames(TWO, range(ROWS, 2 * ROWS))
    later["shop"] = later["shop"].assign(town=later["shop"]["town"].where(later["shop"]["town"] != "Wien", "Bregenz"))
    known = preparations_of(model["vafl"].model)
    kept = colonnade.from_frames(later, label_party="bank", label="class", known=known)
    anew = colonnade.from_frames(later, label_party="bank", label="class")
    assert kept.columns["shop"].names == DATA.columns["shop"].names
    assert anew.columns["shop"].names != DATA.columns["shop"].names
    unseen = list(kept.columns["shop"].names).index("town is unseen")
    assert float(kept.columns["shop"].train[:, unseen].sum()) > 0  # type: ignore[index]
    trained(Vafl(), kept, start=model["vafl"].model)


# --- what does not fit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"bottom": BottomSettings(embedding=5)},
            r"bottom model of bank differs from that .* \(5, 64\) here and \(16, 64\)",
        ),
        ({"bottom": BottomSettings(hidden=(3,))}, r"bottom model of bank differs from that .* Keep \[bottom\]"),
        ({"top": TopSettings(hidden=(3,))}, r"top model differs from that .* Keep \[top\]"),
        ({"algorithm": "fsaga"}, "has no linear block of bank"),
        ({"algorithm": "fcg"}, "fcg begins with weights of 0"),
    ],
)
def test_other_models_are_refused(changes: dict[str, Any], words: str, model: dict[str, Outcome]) -> None:
    start = model["fsaga" if changes.get("algorithm") == "fcg" else "vafl"].model
    with pytest.raises(SettingsError, match=words):
        colonnade.train(DATA, **{"algorithm": "vafl", "training": LEARNS, **changes}, start=start)


def test_other_labels_are_refused(model: dict[str, Outcome]) -> None:
    with pytest.raises(SettingsError, match="predicts two classes; the labels of these data are numbers"):
        trained(Vafl(), data_of(TWO, label="value"), start=model["vafl"].model)


def test_a_party_that_is_gone_is_missed(model: dict[str, Outcome]) -> None:
    alone = colonnade.from_frames(
        {"telco": frames({"telco": ["a"]})["telco"], "bank": frames({"bank": ["c"]})["bank"]},
        label_party="bank",
        label="class",
    )
    with pytest.raises(SettingsError, match="needs shop, which this federation has no columns of"):
        trained(Vafl(), alone, start=model["vafl"].model)


def test_other_label_parties_and_models_of_one(model: dict[str, Outcome], tmp_path: Path) -> None:
    folder = model["vafl"].save(tmp_path / "model")
    with pytest.raises(SettingsError, match="is that of shop alone"):
        trained(Vafl(), start=folder / "shop")
    with pytest.raises(DataError, match="holds no model"):
        trained(Vafl(), start=tmp_path / "nothing")
    iris = colonnade.dataset("iris", parties=2)
    with pytest.raises(SettingsError, match="are those of 'bank'; here 'label' has them"):
        colonnade.train(iris, "vafl", start=folder)
    (folder / "shop" / "weights.safetensors").write_bytes(b"no weights")
    with pytest.raises(DataError, match="is damaged"):
        trained(Vafl(), start=folder)


# --- whether it is used -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("label", "metric"), [("class", "log_loss"), ("value", "rmse")])
def test_a_worse_model_is_not_accepted(label: str, metric: str, tmp_path: Path) -> None:
    data = data_of(TWO, label=label, validation=0.3)
    sound = {"epochs": 20, "keep": "best"}
    wild = {"learning_rate": 0.5, "optimiser": "adam", "keep": "last", "heal": False, "end_when_diverged": False}

    def judged(name: str, start: Outcome, **training: Any) -> Any:
        given = Training(batch_size=8, metric=metric, **{"epochs": 2, **training})
        options: dict[str, Any] = {"start": start.model, "accept_if_better": True, "out": tmp_path / name}
        found = trained(Vafl(), data, training=given, **options)
        assert found.summary["acceptance"]["metric"] == metric
        return found

    good = judged("better", trained(Vafl(), data, training=STILL), **sound)
    assert good.summary["acceptance"]["accepted"]
    assert good.summary["acceptance"]["after"] == pytest.approx(good.summary["validation"][metric], rel=1e-5)
    assert colonnade.load_model(tmp_path / "better")
    worse = judged("worse", good, **wild).summary["acceptance"]
    assert worse["before"] == pytest.approx(good.summary["validation"][metric], rel=1e-5)
    assert worse["after"] > worse["before"] and worse["accepted"] is False
    with pytest.raises(DataError, match="holds no model"):
        colonnade.load_model(tmp_path / "worse")


def test_what_cannot_be_judged_is_refused(model: dict[str, Outcome]) -> None:
    with pytest.raises(SettingsError, match="there is none: give --from"):
        trained(Vafl(), accept_if_better=True)
    with pytest.raises(SettingsError, match=r"there are none: set data\.validation"):
        trained(Vafl(), accept_if_better=True, start=model["vafl"].model)


# --- from the command line --------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for party, frame in frames(TWO).items():
        frame.to_csv(tmp_path / f"{party}.csv", index=False)
    (tmp_path / "federation.toml").write_text(
        """
[federation]
label_party = "bank"
[data]
label = "class"
rows = "intersection"
[training]
epochs = 2
[parties.shop]
file = "shop.csv"
[parties.bank]
file = "bank.csv"
""",
        encoding="utf-8",
    )
    return tmp_path


def test_run_from_a_run(files: Path) -> None:
    file = files / "federation.toml"
    assert command("run", file, "--out", files / "first", "--no-report").code == 0
    later = frames({"shop": ["a", "b", "town", "d"], "bank": ["c"]}, range(ROWS // 2, 2 * ROWS))
    later["shop"]["town"] = "Bregenz"
    for party, frame in later.items():
        frame.to_csv(files / f"{party}.csv", index=False)
    answer = command("run", file, "--from", files / "first", "--out", files / "second", "--no-report")
    assert answer.code == 0
    assert "shop has other columns than in the model to start from: new: d." in answer.out + answer.err
    kept = (files / "second" / "federation.toml").read_text(encoding="utf-8")
    assert f'model = "{(files / "first").resolve()}"' in kept
    more = command("run", files / "second", "--resume", "--set", "training.epochs=3", "--no-report")
    assert more.code == 0, more.err  # which needs the preparation of the model again
    assert "no model" in refused("run", file, "--from", files / "nothing", "--out", files / "third")
    assert "There is no value of start.preparation 'forget'" in refused(
        "run", file, "--from", files / "first", "--set", "start.preparation=forget", "--out", files / "third"
    )
    anew = command(
        *("run", file, "--from", files / "first", "--set", "start.preparation=fit", "--out", files / "third", "--json")
    )
    assert anew.code == 0, anew.err
    bad = ("--set", "training.learning_rate=2.0", "--set", "training.optimiser=sgd", "--set", "training.keep=last")
    asked = ("--from", files / "first", "--set", "data.validation=0.3", "--accept-if-better", "--out", files / "fourth")
    answer = command("run", file, *asked, *bad, "--no-report")
    assert answer.code == 4 and "The model is not accepted" in answer.err + answer.out
    assert not (files / "fourth" / "model").exists()


def test_a_poor_match_is_asked_about_and_not_trained_on_unasked(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = pd.read_csv(files / "shop.csv", dtype=str)
    shop["id"] = shop["id"].where(shop.index < 10, "x" + shop["id"])
    shop.to_csv(files / "shop.csv", index=False)
    file, short = files / "federation.toml", ("--set", "training.epochs=1", "--no-report")
    for more in ([], ["--json"]):  # where nobody can be asked
        answer = command("run", file, "--out", files / "run", *short, *more)
        assert answer.code == 2 and "Fewer than half" in answer.err and not (files / "run").exists()
        assert "say --yes to train on these rows all the same" in " ".join(answer.err.split())
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    answer = command("run", file, "--out", files / "run", *short)
    assert answer.code != 0 and "Fewer than half" in answer.err and not (files / "run").exists()
    assert command("run", file, "--out", files / "run", "--yes", *short).code == 0
