"""What a party process is given arrives as it was, and holds nothing of another party's."""

import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array
from torch import nn

import colonnade
from colonnade import (
    BottomSettings,
    PerturbationSettings,
    SettingsError,
    TopSettings,
    algorithms,
    from_arrays,
)
from colonnade.algorithms.training import DecidedTraining
from colonnade.data.federated import FederatedData, Labels, PartyColumns
from colonnade.federation.building import PrivateData, build_parties, build_seated, facts_of, private_data_of
from colonnade.federation.plan import Plan
from colonnade.launch.seat_files import Life, SeatFiles, plan_from, plan_values, read_seat, write_seat
from colonnade.runtimes.endurance import Endurance
from colonnade.testing.tiny_federation import lacking

LIFE = Life("/somewhere", ("label",), Endurance(notice_seconds=2.5), order=("label", "party1"), slowdown=1.5)


def plan_of(algorithm: str = "vafl", **changes: Any) -> Plan:
    settings = algorithms.find(algorithm).settings()
    return replace(
        Plan(
            settings,
            DecidedTraining(epochs=2, batch_size=8),
            PerturbationSettings(),
            BottomSettings(),
            TopSettings(),
            7,
        ),
        **changes,
    )


def tiny(task: str = "multiclass", classes: Any = None) -> FederatedData:
    generator = np.random.default_rng(3)
    X = generator.normal(size=(30, 4)).astype(np.float32)
    y = generator.integers(0, 3, 30) if task == "multiclass" else X[:, 0] * 2
    if classes is not None:
        y = np.array(classes)[y]
    return from_arrays(X, y, parties=2, task=task)


def through_files(folder: Path, *private_data: PrivateData, data: FederatedData, plan: Plan) -> SeatFiles:
    write_seat(folder / "seat", SeatFiles(private_data, facts_of(data, plan), plan, LIFE))
    return read_seat(folder / "seat")


def same_columns(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return one.shape == other.shape and all(
        np.array_equal(getattr(one, part), getattr(other, part)) for part in ("indptr", "indices", "data")
    )


@pytest.mark.parametrize("task", ["multiclass", "regression"])
@pytest.mark.parametrize("name", ["label", "party1", "party2"])
def test_a_seat_is_read_back_as_it_was(name: str, task: str, tmp_path: Path) -> None:
    data, plan = tiny(task), plan_of()
    own = private_data_of(data, name, plan)
    seat = through_files(tmp_path, own, data=data, plan=plan)
    assert (seat.facts, seat.plan, seat.life) == (facts_of(data, plan), plan, LIFE)
    (back,) = seat.private_data
    assert (back.name, back.secret) == (name, 7)
    assert (back.columns is None) == (own.columns is None)
    if own.columns is not None:
        assert same_columns(back.columns.train, own.columns.train)
        assert same_columns(back.columns.test, own.columns.test)
        assert back.columns.names == own.columns.names
    assert (back.labels is None) == (name != "label")
    if own.labels is not None:
        assert torch.equal(back.labels.train, own.labels.train)
        assert torch.equal(back.labels.test, own.labels.test)
        for field in ("task", "classes", "mean", "deviation"):
            assert getattr(back.labels, field) == getattr(own.labels, field)


@pytest.mark.parametrize("classes", [("no", "yes", "maybe"), (10, 20, 30)])
def test_classes_keep_their_names(classes: Any, tmp_path: Path) -> None:
    data, plan = tiny(classes=classes), plan_of()
    seat = through_files(tmp_path, private_data_of(data, "label", plan), data=data, plan=plan)
    assert sorted(seat.private_data[0].labels.classes) == sorted(classes)
    assert seat.private_data[0].labels.classes == tuple(data.labels.classes)


def test_sparse_columns_stay_sparse(tmp_path: Path) -> None:
    rows = csr_array(random_array((9, 50), density=0.1, rng=np.random.default_rng(1), dtype=np.float32))
    data, plan = tiny(), plan_of()
    own = PrivateData("party1", PartyColumns(rows[:6], rows[6:], tuple(f"c{n}" for n in range(50))), None, 3)
    back = through_files(tmp_path, own, data=data, plan=plan).private_data[0].columns
    assert same_columns(back.train, own.columns.train)  # type: ignore[union-attr]
    assert same_columns(back.test, own.columns.test)  # type: ignore[union-attr]


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_how_many_rows_a_party_drops_comes_along(share: float, tmp_path: Path) -> None:
    data, plan = lacking(tiny(), drop_share=share), plan_of()
    seat = through_files(tmp_path, private_data_of(data, "party1", plan), data=data, plan=plan)
    assert seat.facts.expects_absence
    assert seat.private_data[0].columns.drop_share == share  # type: ignore[union-attr]


def test_test_rows_may_be_the_training_rows(tmp_path: Path) -> None:
    """Tensors that share their memory, as when somebody scores on what was trained on."""
    shared = torch.arange(12.0).reshape(6, 2)
    labels = torch.arange(6) % 2
    own = PrivateData(
        "label",
        PartyColumns(shared, shared, ("a", "b")),
        Labels(labels, labels, "binary", (0, 1)),
        0,
    )
    data, plan = tiny(), plan_of()
    (back,) = through_files(tmp_path, own, data=data, plan=plan).private_data
    assert torch.equal(back.columns.train, shared)
    assert torch.equal(back.columns.test, shared)
    assert torch.equal(back.labels.test, labels)


def test_columns_that_are_not_contiguous(tmp_path: Path) -> None:
    whole = torch.arange(24.0).reshape(6, 4)
    own = PrivateData("party1", PartyColumns(whole[:4, ::2], whole[4:, ::2], ("a", "c")), None, 0)
    data, plan = tiny(), plan_of()
    (back,) = through_files(tmp_path, own, data=data, plan=plan).private_data
    assert torch.equal(back.columns.train, torch.tensor([[0.0, 2.0], [4.0, 6.0], [8.0, 10.0], [12.0, 14.0]]))


@pytest.mark.parametrize("algorithm", sorted(algorithms.ALGORITHMS))
def test_a_party_built_from_its_files_is_the_party(algorithm: str, tmp_path: Path) -> None:
    data, plan = tiny(), plan_of(algorithm)
    parties = build_parties(data, plan.algorithm, plan.training, plan.privacy, plan.bottom, plan.top, plan.seed)
    for name, party in parties.items():
        everybody = [private_data_of(data, one, plan) for one in ("label", "party1", "party2")]
        own = everybody if plan.is_alone else [one for one in everybody if one.name == name]
        (tmp_path / name).mkdir()
        seat = through_files(tmp_path / name, *own, data=data, plan=plan)
        ours, theirs = build_seated(seat.private_data, seat.facts, seat.plan).state(), party.state()
        assert ours.values == theirs.values
        assert ours.tensors.keys() == theirs.tensors.keys()
        assert all(torch.equal(ours.tensors[key], theirs.tensors[key]) for key in ours.tensors)


@pytest.mark.parametrize(
    "bottom",
    [
        BottomSettings("linear", embedding=3),
        {"party1": BottomSettings("linear", embedding=3), "party2": BottomSettings()},
        MappingProxyType({"party1": BottomSettings("linear", embedding=3)}),
        {},
    ],
)
def test_every_plan_comes_back(bottom: Any) -> None:
    plan = plan_of(bottom=bottom, privacy=PerturbationSettings(noise=0.5, clip=1.0), top=TopSettings("sum"))
    values = json.loads(json.dumps(plan_values(plan)))
    back = plan_from(values)
    assert back == replace(plan, bottom=dict(bottom) if not isinstance(bottom, BottomSettings) else bottom)


@pytest.mark.parametrize(
    "changes",
    [{"bottom": nn.Linear(2, 2)}, {"bottom": {"party1": nn.Linear(2, 2)}}, {"top": nn.Linear(4, 3)}],
)
def test_a_torch_module_is_code_and_refused_by_name(changes: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="The model Linear was given as a torch module"):
        plan_values(plan_of(**changes))


def test_modules_are_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="The model Linear was given as a torch module"):
        colonnade.train(
            tiny(),
            "vafl",
            training=DecidedTraining(batch_size=8),
            top=nn.Linear(4, 3),
            bottom=nn.Linear(2, 2),
            runtime="processes",
        )


def test_only_this_user_may_look_and_only_its_own_is_there(tmp_path: Path) -> None:
    data, plan = tiny(), plan_of()
    through_files(tmp_path, private_data_of(data, "party1", plan), data=data, plan=plan)
    folder = tmp_path / "seat"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in folder.iterdir()) == ["0.safetensors", "seat.json"]
    content = (folder / "0.safetensors").read_bytes()
    mine, theirs = data.columns["party1"].train, data.columns["party2"].train
    assert isinstance(mine, torch.Tensor)
    assert isinstance(theirs, torch.Tensor)
    assert mine.contiguous().numpy().tobytes() in content
    for column in range(theirs.shape[1]):
        assert theirs[:1, column].numpy().tobytes() not in content
    described = json.loads((folder / "seat.json").read_text())
    assert described["private_data"][0]["labels"] is None
