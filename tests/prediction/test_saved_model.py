"""A model that is saved, taken along and loaded says what the trained one says, to the bit; a wrong folder is named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import colonnade
from colonnade import algorithms
from colonnade.data.federated import FederatedData
from colonnade.errors import DataError, SettingsError
from colonnade.launch.outcome import Outcome
from colonnade.prediction.joint_model import JointModel, load_model
from colonnade.prediction.saved_model import FORMAT, SavedModel, read_model

BRIEF = colonnade.Training(epochs=0.5, batch_size=16)


def test_rows(data: FederatedData) -> dict[str, torch.Tensor]:
    return {name: own.test for name, own in data.columns.items()}


test_rows.__test__ = False  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def iris() -> FederatedData:
    return colonnade.dataset("iris", parties=2)


@pytest.fixture(scope="module")
def outcome(iris: FederatedData) -> Outcome:
    return colonnade.train(iris, "vafl", training=colonnade.Training(epochs=4, batch_size=16))


@pytest.mark.parametrize("algorithm", algorithms.ALGORITHMS)
@pytest.mark.parametrize("set_name", ["iris", "diabetes"])
def test_every_algorithm_says_the_same_after_it_was_loaded(algorithm: str, set_name: str, tmp_path: Path) -> None:
    data = colonnade.dataset(set_name, parties=2, label_party_columns=set_name == "iris", max_rows=120)
    trained = colonnade.train(data, algorithm, training=BRIEF)
    loaded = load_model(trained.save(tmp_path / "saved"))
    assert isinstance(loaded, JointModel)
    rows = test_rows(data)
    assert torch.equal(loaded.outputs(rows), trained.outputs(rows))
    assert np.array_equal(loaded.predict(rows), trained.predict(rows))


def test_predictions_are_what_the_evaluation_scored(iris: FederatedData, outcome: Outcome) -> None:
    truth = np.array(iris.labels.classes)[iris.labels.test.numpy()]
    right = (outcome.predict(test_rows(iris)) == truth).mean()
    assert right == pytest.approx(outcome.summary["test"]["accuracy"])
    probabilities = outcome.predict_proba(test_rows(iris))
    assert probabilities.shape == (iris.test_rows, 3)
    assert np.allclose(probabilities.sum(1), 1)


def test_values_come_in_the_unit_of_the_label(tmp_path: Path) -> None:
    data = colonnade.dataset("diabetes", parties=2)
    trained = colonnade.train(data, "fcg")
    truth = data.labels.mean + data.labels.deviation * data.labels.test.double().numpy()
    error = ((trained.predict(test_rows(data)) - truth) ** 2).mean() ** 0.5
    assert error == pytest.approx(trained.summary["test"]["rmse"], rel=1e-6)
    with pytest.raises(DataError, match="no classes"):
        trained.predict_proba(test_rows(data))


def test_weights_lie_under_the_names_of_the_modules(outcome: Outcome, tmp_path: Path) -> None:
    outcome.save(tmp_path)
    party1 = read_model(tmp_path / "party1")
    trained = outcome.models["party1"]["bottom"].state_dict()
    assert party1.modules["bottom"].state_dict().keys() == trained.keys()
    from safetensors.numpy import load_file

    assert [*load_file(tmp_path / "party1" / "weights.safetensors")] == sorted(f"bottom.{key}" for key in trained)


def test_nobody_has_what_is_anothers(outcome: Outcome, iris: FederatedData, tmp_path: Path) -> None:
    outcome.save(tmp_path)
    described = {name: json.loads((tmp_path / name / "model.json").read_text()) for name in outcome.models}
    assert described["party1"]["columns"] == list(iris.columns["party1"].names)
    assert described["label"]["label"]["classes"] == list(iris.labels.classes)
    assert described["label"]["columns"] == []
    assert described["party1"]["label"] is None
    other = (tmp_path / "party2" / "model.json").read_text()
    assert not [name for name in iris.columns["party1"].names if name in other]
    assert not [one for one in iris.labels.classes if isinstance(one, str) and one in other]


def test_a_run_directory_holds_it(iris: FederatedData, tmp_path: Path) -> None:
    trained = colonnade.train(iris, "vafl", training=BRIEF, out=tmp_path / "run")
    loaded = load_model(tmp_path / "run")
    assert isinstance(loaded, JointModel)
    assert torch.equal(loaded.outputs(test_rows(iris)), trained.outputs(test_rows(iris)))
    one = load_model(tmp_path / "run" / "model" / "party1")
    assert isinstance(one, SavedModel)
    assert (tmp_path / "run" / "model" / "party1" / "model.json").stat().st_mode & 0o077 == 0


def test_an_outcome_is_loaded_with_its_summary_and_its_curve(
    iris: FederatedData, outcome: Outcome, tmp_path: Path
) -> None:
    again = Outcome.load(outcome.save(tmp_path / "kept"))
    assert again.summary == outcome.summary and again.metrics == outcome.metrics and again.finished
    assert torch.equal(again.outputs(test_rows(iris)), outcome.outputs(test_rows(iris)))
    run = colonnade.train(iris, training=colonnade.Training(epochs=1), out=tmp_path / "run")
    assert Outcome.load(tmp_path / "run").summary == json.loads(json.dumps(run.summary))
    with pytest.raises(DataError, match=r"colonnade\.load_model loads it"):
        Outcome.load(tmp_path / "kept" / "party1")
    (tmp_path / "kept" / "summary.json").unlink()
    with pytest.raises(DataError, match=r"colonnade\.load_model loads the models"):
        Outcome.load(tmp_path / "kept")


def test_modules_of_ones_own_are_given_again(iris: FederatedData, tmp_path: Path) -> None:
    own = nn.Sequential(nn.Linear(2, 5), nn.Tanh())
    trained = colonnade.train(iris, "vafl", training=BRIEF, bottom={"party1": own})
    trained.save(tmp_path)
    with pytest.raises(SettingsError, match=r'module of your own, torch.nn.modules.container.Sequential.*"bottom"'):
        load_model(tmp_path)
    again = {"party1": {"bottom": nn.Sequential(nn.Linear(2, 5), nn.Tanh())}}
    loaded = load_model(tmp_path, again)
    assert isinstance(loaded, JointModel)
    assert torch.equal(loaded.outputs(test_rows(iris)), trained.outputs(test_rows(iris)))
    with pytest.raises(DataError, match="do not fit the module 'bottom'"):
        load_model(tmp_path, {"party1": {"bottom": nn.Linear(2, 4)}})


# --- what is wrong is named ---


def test_rows_that_do_not_fit(iris: FederatedData, outcome: Outcome) -> None:
    rows = test_rows(iris)
    with pytest.raises(DataError, match="Rows of party2 are missing"):
        outcome.outputs({"party1": rows["party1"]})
    with pytest.raises(DataError, match=r"shape \(3,\); the model was trained with \(2,\)"):
        outcome.outputs({**rows, "party1": torch.zeros(5, 3)})
    with pytest.raises(DataError, match="38 of party1, 4 of party2"):
        outcome.outputs({**rows, "party2": rows["party2"][:4]})
    with pytest.raises(SettingsError, match="party3"):
        outcome.outputs({**rows, "party3": rows["party2"]})
    with pytest.raises(DataError, match=r"The rows are a Tensor: give those of every party by its name") as told:
        outcome.outputs(rows["party1"])  # type: ignore[arg-type]
    assert "tensor(" not in str(told.value)
    with pytest.raises(DataError, match="rows of party2 have values that are missing or infinite"):
        outcome.outputs({**rows, "party2": rows["party2"] * float("nan")})
    assert torch.equal(outcome.outputs({name: own.numpy() for name, own in rows.items()}), outcome.outputs(rows))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda folder: (folder / "model.json").unlink(), "holds no model"),
        (lambda folder: (folder / "model.json").write_text("{"), "is damaged"),
        (lambda folder: (folder / "weights.safetensors").unlink(), "cannot be read"),
        (lambda folder: (folder / "weights.safetensors").write_bytes(b"x"), "is damaged"),
        (lambda folder: _change(folder, format=FORMAT + 1), "reads up to"),
        (lambda folder: _change(folder, shapes={"party1": "x"}), "is damaged"),
        (lambda folder: _change(folder, widths={"party1": 3, "party2": 3}), "do not fit|is damaged"),
    ],
)
def test_a_folder_that_is_no_model(harm: object, said: str, outcome: Outcome, tmp_path: Path) -> None:
    folder = outcome.save(tmp_path) / "label"
    harm(folder)  # type: ignore[operator]
    with pytest.raises(DataError, match=said):
        read_model(folder)


def _change(folder: Path, **values: object) -> None:
    path = folder / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a model"):
        load_model(tmp_path / "nowhere")


@pytest.mark.parametrize("runtime", ["simulate", "processes"])
def test_a_stopped_run_leaves_its_model_so_far(runtime: str, tmp_path: Path) -> None:
    data, training = colonnade.dataset("iris", parties=2), colonnade.Training(epochs=4, batch_size=16)
    seen: list[dict[str, Any]] = []
    asked: dict[str, Any] = {"training": training, "runtime": runtime, "out": tmp_path / "run"}
    stopped = colonnade.train(data, **asked, watch=seen.append, stop_requested=lambda: len(seen) > 2)
    assert not stopped.finished
    rows = {party: columns.test for party, columns in data.columns.items()}
    left = colonnade.load_model(tmp_path / "run")
    assert isinstance(left, JointModel)
    assert (left.predict_proba(rows) == stopped.predict_proba(rows)).all()
    finished = colonnade.train(data, **asked, resume=True)
    after = colonnade.load_model(tmp_path / "run")
    assert isinstance(after, JointModel)
    assert (after.predict_proba(rows) == finished.predict_proba(rows)).all()
    assert (after.predict_proba(rows) != left.predict_proba(rows)).any()
