"""Baselines: which columns each is trained on, and what the report says of them."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colonnade.data.federated import FederatedData
from colonnade.data.loading import load
from colonnade.errors import SettingsError
from colonnade.federation.file import Federation, federation_values, parse_federation
from colonnade.launch import baselines
from colonnade.launch.baselines import write_baselines
from colonnade.launch.experiment import train_plan
from colonnade.launch.run_options import RunOptions


def federated(parties: int, **sections: Any) -> tuple[Federation, FederatedData]:
    values = {"data": {"set": "iris", "parties": parties}, "training": {"epochs": 1, "batch_size": 64}, **sections}
    federation = parse_federation(values)
    return federation, load(federation.data, {}, federation.label_party, Path())


def test_everybody_each_alone_and_all_but_one(tmp_path: Path) -> None:
    federation, data = federated(3)
    options = RunOptions(tmp_path / "run", settings=federation_values(federation))
    train_plan(data, federation.plan(data), federation.simulate, options)
    said: list[str] = []
    found = write_baselines(tmp_path / "run", said.append)
    parties = {"party1", "party2", "party3"}
    assert found["alone"].keys() == found["without"].keys() == parties and len(said) == 7
    scores = [found["everybody"], *found["alone"].values(), *found["without"].values()]
    assert all(0 < one["accuracy"] <= 1 for one in scores)
    assert json.loads((tmp_path / "run" / "baselines.json").read_text()) == found


def test_a_label_party_with_columns_is_alone_too(tmp_path: Path) -> None:
    values = {"set": "iris", "parties": 2, "label_party_columns": True}
    federation = parse_federation({"data": values, "training": {"epochs": 1, "batch_size": 64}})
    data = load(federation.data, {}, federation.label_party, Path())
    options = RunOptions(tmp_path / "run", settings=federation_values(federation))
    train_plan(data, federation.plan(data), federation.simulate, options)
    found = write_baselines(tmp_path / "run")
    assert {*found["alone"]} == {"label", "party1", "party2"}
    assert 0 < found["alone"]["label"]["accuracy"] <= 1


def test_a_linear_federation_is_held_against_linear_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[set[str], Any]] = []

    def train(data: FederatedData, algorithm: str, **options: Any) -> Any:
        asked.append(({*data.columns}, options))
        return SimpleNamespace(summary={"test": {"accuracy": 0.5}})

    monkeypatch.setattr(baselines, "train", train)
    monkeypatch.setattr(baselines, "_of_run", lambda run: federated(2, algorithm={"name": "afsgd"}))
    write_baselines(tmp_path)
    assert [columns for columns, _ in asked] == [{"party1", "party2"}, {"party1"}, {"party2"}]
    assert {(options["bottom"].kind, options["top"].kind) for _, options in asked} == {("linear", "sum")}


def test_what_has_no_end_or_no_tables_has_no_baselines(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="not a run's directory"):
        write_baselines(tmp_path)
    (tmp_path / "federation.toml").write_text("")
    with pytest.raises(SettingsError, match="has not finished"):
        write_baselines(tmp_path)
    (tmp_path / "summary.json").write_text('{"status": "finished"}')
    (tmp_path / "everybody.json").write_text("{}")
    with pytest.raises(SettingsError, match="one party's part"):
        write_baselines(tmp_path)
