"""Parties that each answer from their own model come to what the evaluation of the training had, to the bit."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import colonnade as command

import colonnade
from colonnade.algorithms.parts.losses import metrics
from colonnade.data.loading import load
from colonnade.data.own_tables import ids_of_parts
from colonnade.errors import ProtocolError
from colonnade.federation.file import read_federation
from colonnade.federation.toml import write_toml
from colonnade.launch.prediction import talk
from colonnade.messages import Message
from colonnade.party import Received, Started
from colonnade.prediction.conversation import PredictingParty, build_predicting_party
from colonnade.prediction.joint_model import JointModel, load_model
from colonnade.prediction.messages import (
    PredictionEmbedding,
    PredictionKey,
    PredictionProduct,
    RowsHeld,
    RowsNamed,
    RowsPlaced,
    ScoreRequest,
)
from colonnade.prediction.seat import AskedRows, PredictionSeat
from colonnade.runtimes.processes.fork_server import ForkServer
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.simulate.settings import Simulate
from colonnade.state import State

ROWS = 96
PARTIES = ("bank", "shop", "clinic")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of three parties, one of which has the label beside columns of its own."""
    folder = tmp_path_factory.mktemp("tables")
    draws = np.random.default_rng(3)
    columns = draws.normal(size=(ROWS, 5))
    ids = [f"c{number:03}" for number in range(ROWS)]
    city = draws.choice(["Lima", "Oslo", "Rome"], ROWS)
    score = columns @ [1.0, -1.0, 0.5, 0.3, 0.2] + (city == "Oslo")
    tables = {
        "bank": pd.DataFrame({"id": ids, "income": columns[:, 0], "bought": np.where(score > 0, "yes", "no")}),
        "shop": pd.DataFrame({"id": ids[::-1], "orders": columns[::-1, 1], "city": city[::-1]}),
        "clinic": pd.DataFrame({"id": ids, "age": columns[:, 2], "visits": columns[:, 3]}),
    }
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    return folder


def train(
    folder: Path, out: Path, algorithm: dict[str, Any], parties: tuple[str, ...] = PARTIES, **sections: Any
) -> Path:
    settings = {
        "federation": {"label_party": "bank"},
        "algorithm": algorithm,
        "data": {"label": "bought"},
        "training": {"epochs": 2},
        "parties": {name: {"file": str(folder / f"{name}.csv")} for name in parties},
        **sections,
    }
    out.mkdir()
    (out / "federation.toml").write_text(write_toml(settings), encoding="utf-8")
    answer = command("run", out / "federation.toml", "--out", out / "run", "--no-report")
    assert answer.code == 0, answer.err
    return out / "run"


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(folder, tmp_path_factory.mktemp("vafl") / "one", {"name": "vafl"})


def scored(run: Path, runtime: Simulate | Processes) -> tuple[dict[str, float], dict[str, float]]:
    """Metrics of the test rows by what the parties come to, and by the training's own evaluation.

    They are asked for in another order than that of the evaluation, after three other rows.
    """
    federation = read_federation(run / "federation.toml")
    model = load_model(run)
    assert isinstance(model, JointModel)
    own = federation.party_data()
    ids = ids_of_parts(federation.data, own["bank"], "bank", run)
    asked = [*ids["training rows"][:3], *reversed(ids["test rows"])]
    given = federation.data, federation.alignment, run
    party, _ = talk(model, own, *given, runtime, asked)
    labels = load(federation.data, own, "bank", run).labels
    found = metrics(labels.task, party.outputs()[3:].flip(0), labels.test, labels.deviation)
    summary = json.loads((run / "summary.json").read_text())["test"]
    return found, {name: summary[name] for name in found}


@pytest.mark.parametrize(
    ("algorithm", "parties"),
    [
        ({"name": "vafl"}, PARTIES),
        ({"name": "zoo"}, PARTIES),
        ({"name": "fdml"}, PARTIES),
        ({"name": "afsaga"}, PARTIES[:2]),
        ({"name": "fsgd", "sums": "pairwise"}, PARTIES),
        ({"name": "fcg", "sums": "two-tree"}, PARTIES),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else str(len(value)),
)
def test_a_prediction_is_the_evaluation_to_the_bit(
    algorithm: dict[str, Any], parties: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    found, evaluated = scored(train(folder, tmp_path / "one", algorithm, parties), Simulate())
    assert found == evaluated


def test_models_put_together_say_the_same(run: Path) -> None:
    alone, between = colonnade.predict(run), colonnade.predict(run, runtime="simulate")
    places = {one: place for place, one in enumerate(between.ids)}
    order = [places[one] for one in alone.ids]
    assert np.array_equal(alone.probabilities["yes"], between.probabilities["yes"][order])


def test_an_id_that_is_asked_for_in_two_ways_is_released_once_and_answered_twice(run: Path) -> None:
    found = colonnade.predict(run, [" c001", "c002", "nobody", "c001", " c001"], runtime="simulate")
    assert found.ids == [" c001", "c001", "c002"] and found.unknown == ("nobody",)
    said = found.probabilities["yes"].tolist()
    assert said[0] == said[1] != said[2] and found.predicted[0] == found.predicted[1]
    assert said[1:] == colonnade.predict(run, ["c001", "c002"], runtime="simulate").probabilities["yes"].tolist()


@pytest.mark.parametrize("algorithm", ["vafl", "afsaga"])
def test_rows_that_some_lack_are_predicted_with_what_stands_in(algorithm: str, folder: Path, tmp_path: Path) -> None:
    fewer = pd.read_csv(folder / "clinic.csv").iloc[10:]
    for name in ("bank", "shop"):
        (tmp_path / f"{name}.csv").write_bytes((folder / f"{name}.csv").read_bytes())
    fewer.to_csv(tmp_path / "clinic.csv", index=False)
    run = train(tmp_path, tmp_path / "any", {"name": algorithm}, data={"label": "bought", "rows": "any"})
    ids = [f"c{number:03}" for number in range(20)]
    alone = colonnade.predict(run, [*ids, "nobody"])
    between = colonnade.predict(run, [*ids, "nobody"], runtime="simulate")
    assert between.ids == alone.ids == ids and between.unknown == alone.unknown == ("nobody",)
    assert np.array_equal(between.probabilities["yes"], alone.probabilities["yes"])
    assert between.lacking == alone.lacking == {"bank": 0, "shop": 0, "clinic": 10}


# --- what is refused, and changes nothing -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seats(run: Path) -> dict[str, PredictionSeat]:
    model = load_model(run)
    assert isinstance(model, JointModel)
    names = np.arange(20, dtype=np.uint64).reshape(10, 2)
    asked = AskedRows(names, None, np.arange(10))
    parties = ("bank", "shop", "clinic")
    built = {}
    for name in parties:
        columns = torch.zeros(10, *model.parties["bank"].description.facts.shapes[name])
        own = None if name == "bank" else names
        built[name] = PredictionSeat(name, "bank", parties, model.parties[name], 5, columns, own)
    return {**built, "bank": replace(built["bank"], asked=asked)}


def begun(seats: dict[str, PredictionSeat], named: bool = True) -> PredictingParty:
    """A feature party that has heard of all ten rows."""
    party = build_predicting_party(seats["shop"])
    party.handle(Started(0.0))
    if named:
        party.handle(Received(0.0, "bank", RowsNamed(0, 10, seats["bank"].asked.names)))  # type: ignore[union-attr]
    return party


def rows(*places: int) -> Any:
    return np.array(places, np.uint32)


@pytest.mark.parametrize(
    ("sender", "message", "said"),
    [
        ("clinic", ScoreRequest(1, rows(0)), "not its part"),
        ("bank", ScoreRequest(2, rows(0)), "out of turn"),
        ("bank", ScoreRequest(1, rows()), "for 0 rows"),
        ("bank", ScoreRequest(1, rows(10)), "does not hold"),
        ("bank", ScoreRequest(1, rows(3, 3)), "twice"),
        ("bank", RowsNamed(0, 10, np.zeros((10, 2), np.uint64)), "twice"),
        ("bank", RowsNamed(0, 11, np.zeros((11, 2), np.uint64)), "fits nothing"),
        ("bank", RowsNamed(0, 10, np.zeros((10, 3), np.uint64)), "not as hashes"),
        ("bank", RowsPlaced(0, 10, rows(*range(10))), "does not have"),
        ("bank", PredictionKey(np.zeros(4, np.uint64)), "not asked for"),
        ("bank", RowsHeld(0, rows(1)), "no part of a prediction"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value.replace(" ", "-"),
)
def test_a_feature_party_refuses(seats: dict[str, PredictionSeat], sender: str, message: Message, said: str) -> None:
    party = begun(seats)
    before = party.state()
    with pytest.raises(ProtocolError, match=said):
        party.handle(Received(0.0, sender, message))
    same(before, party.state())


def test_a_row_is_answered_once(seats: dict[str, PredictionSeat]) -> None:
    party = begun(seats)
    party.handle(Received(0.0, "bank", ScoreRequest(1, rows(0, 1))))
    with pytest.raises(ProtocolError, match="asked for a row twice"):
        party.handle(Received(0.0, "bank", ScoreRequest(2, rows(1, 2))))


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (RowsHeld(1, rows(0)), "not named to it"),
        (RowsHeld(0, rows(10)), "not named to it"),
        (RowsHeld(0, rows(2, 2)), "one twice"),
        (PredictionEmbedding(1, rows(0), np.zeros((1, 8), np.float32)), "not made"),
        (PredictionProduct(1, np.zeros((1, 1))), "no answer in this prediction"),
        (ScoreRequest(1, rows(0)), "no answer in this prediction"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value.replace(" ", "-"),
)
def test_the_label_party_refuses(seats: dict[str, PredictionSeat], message: Message, said: str) -> None:
    party = build_predicting_party(seats["bank"])
    party.handle(Started(0.0))
    before = party.state()
    with pytest.raises(ProtocolError, match=said):
        party.handle(Received(0.0, "shop", message))
    same(before, party.state())


def test_the_label_party_refuses_answers_that_were_not_asked_for(seats: dict[str, PredictionSeat]) -> None:
    party = build_predicting_party(seats["bank"])
    party.handle(Started(0.0))
    for name in ("shop", "clinic"):
        party.handle(Received(0.0, name, RowsHeld(0, rows(*range(9)))))
    width = seats["bank"].model.description.widths["shop"]
    for wrong in (
        PredictionEmbedding(1, rows(9), np.zeros((1, width), np.float32)),
        PredictionEmbedding(1, rows(0, 0), np.zeros((2, width), np.float32)),
        PredictionEmbedding(1, rows(0), np.zeros((1, width + 1), np.float32)),
    ):
        before = party.state()
        with pytest.raises(ProtocolError):
            party.handle(Received(0.0, "shop", wrong))
        same(before, party.state())


def same(one: State, other: State) -> None:
    assert one.values == other.values
    assert one.tensors.keys() == other.tensors.keys()
    assert all(tensor.equal(other.tensors[name]) for name, tensor in one.tensors.items())


# --- as a user gives it -------------------------------------------------------------------------------------------


def test_the_verb_lets_processes_talk(run: Path, fork_server: ForkServer, tmp_path: Path) -> None:
    from parties import SupervisedForkServer

    (tmp_path / "ids.txt").write_text("c004\nnobody\nc002\n", encoding="utf-8")
    with mock.patch("colonnade.launch.processes.fork_server_for", lambda module: SupervisedForkServer(fork_server)):
        given = ["--out", tmp_path / "some.csv", "--ids", tmp_path / "ids.txt", "--runtime", "processes"]
        answer = command("predict", run, *given)
    assert answer.code == 0, answer.err
    assert "2 rows predicted" in answer.out and "1 ids are not held by every party" in answer.out
    written = pd.read_csv(tmp_path / "some.csv").set_index("id")["probability of yes"]
    alone = colonnade.predict(run, ["c004", "c002"])
    assert written[["c004", "c002"]].tolist() == alone.probabilities["yes"].tolist()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "give --out"),
        (["--out", "x.csv", "--model", "y"], "--model is for one party over the network"),
        (["--out", "x.csv", "--runtime", "carrier"], "There is no runtime 'carrier'"),
    ],
)
def test_wrong_calls_are_named(run: Path, more: list[str], said: str) -> None:
    refused = command("predict", run, *more)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
