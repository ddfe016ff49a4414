"""What a party process is given by the one that starts it, as files in a folder of its own: its data, and the plan.

A folder holds one party's own columns and labels and nothing of the others', so a party process could not look at
another's data if it wanted to. Arrays are safetensors, the rest is JSON; nothing in them is code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from colonnade import algorithms
from colonnade.algorithms.training import DecidedTraining
from colonnade.data.federated import PARTS, Columns, Labels, PartyColumns
from colonnade.errors import SettingsError
from colonnade.federation.building import PrivateData, build_seated
from colonnade.federation.plan import Facts, Plan
from colonnade.federation.start import Start
from colonnade.files import PRIVATE, json_of, make_folder, read_private, write_private
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.on_demand import on_demand
from colonnade.party import Party
from colonnade.privacy.noise import PerturbationSettings
from colonnade.runtimes.endurance import Endurance
from colonnade.settings import as_values, build

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = on_demand("scipy.sparse")


_SPENT = "spent before: "


@dataclass(frozen=True)
class Life:
    """How a party is to live: where it keeps its state, whom it talks to, how patient it is."""

    directory: str  # the run's
    peers: tuple[str, ...]
    endurance: Endurance
    trace: bool = False
    order: tuple[str, ...] = ()  # all parties: who comes later opens the connections
    without: tuple[str, ...] = ()  # peers that nobody waits for at the beginning
    sockets: str = ""  # of processes: the folder in which they meet
    slowdown: float = 1.0
    compute_seconds: float = 0.0
    calls_in_flight: int = 0  # of Ray actors
    extension: int = 0  # how often the plan was extended after the end of the run


@dataclass(frozen=True)
class SeatFiles:
    """A folder's content: usually one party's own; several, where one party trains alone on everybody's."""

    private_data: tuple[PrivateData, ...]
    facts: Facts
    plan: Plan
    life: Life

    @property
    def name(self) -> str:
        return self.private_data[0].name

    @property
    def label_party(self) -> str:
        return self.facts.label_party

    def build(self) -> Party:
        return build_seated(self.private_data, self.facts, self.plan)


def peers_of(name: str, facts: Facts, plan: Plan) -> tuple[str, ...]:
    """Whom a party talks to: the label party and everybody, or in a linear federation everybody and everybody."""
    if plan.is_alone:
        return ()
    if plan.is_linear or name == facts.label_party:
        return tuple(other for other in (facts.label_party, *facts.feature_parties) if other != name)
    return (facts.label_party,)


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """In a seat's folder, which only this user may enter."""
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    path.chmod(PRIVATE)


def write_seat(folder: Path, seat: SeatFiles) -> None:
    """Put a seat into a new folder that only this user may enter."""
    make_folder(folder, exist_ok=False)
    described = []
    for place, private in enumerate(seat.private_data):
        tensors: dict[str, torch.Tensor] = {}
        kinds: dict[str, list[int] | None] = {}
        for what, part in _parts(private):
            kinds[what] = _pack(tensors, what, part)
        for part, costs in (private.spent or {}).items():
            tensors[f"{_SPENT}{part}"] = torch.from_numpy(costs)
        write_tensors(folder / f"{place}.safetensors", tensors)
        labels = private.labels
        described.append(
            {
                "name": private.name,
                "secret": private.secret,
                "device": private.device,
                "kinds": kinds,
                "names": None if private.columns is None else private.columns.names,
                "drop_share": None if private.columns is None else private.columns.drop_share,
                "labels": None
                if labels is None
                else [labels.task, [_plain(one) for one in labels.classes], labels.mean, labels.deviation],
                "start": _write_start(folder / f"{place}.start.safetensors", private.start),
            }
        )
    content = {
        "private_data": described,
        "facts": asdict(seat.facts),
        "plan": plan_values(seat.plan),
        "life": as_values(seat.life),
    }
    write_private(folder / "seat.json", json.dumps(content).encode())


def read_seat(folder: Path) -> SeatFiles:
    """What `write_seat` wrote."""
    content = json_of(read_private(folder / "seat.json"))
    private_data = []
    for place, described in enumerate(content["private_data"]):
        tensors = load_file(folder / f"{place}.safetensors")
        parts = {what: _unpack(tensors, what, shape) for what, shape in described["kinds"].items()}
        columns = labels = None
        if "train" in parts:
            columns = PartyColumns(
                *(parts["train"], parts["test"], tuple(described["names"]), parts.get("validation")),
                drop_share=described["drop_share"],
            )
        if described["labels"] is not None:
            task, classes, mean, deviation = described["labels"]
            held = tensors["label_train"], tensors["label_test"], task, tuple(classes), mean, deviation
            labels = Labels(*held, tensors.get("label_weights"), tensors.get("label_validation"))
        start = _read_start(folder / f"{place}.start.safetensors", described["start"])
        spent = {name.removeprefix(_SPENT): one.numpy() for name, one in tensors.items() if name.startswith(_SPENT)}
        own = columns, labels, described["secret"], start, spent or None
        private_data.append(PrivateData(described["name"], *own, described.get("device", "cpu")))
    facts = content["facts"]
    facts["feature_parties"] = tuple(facts["feature_parties"])
    facts["shapes"] = {name: tuple(shape) for name, shape in facts["shapes"].items()}
    return SeatFiles(
        tuple(private_data), Facts(**facts), plan_from(content["plan"]), build(Life, content["life"], "life")
    )


def _write_start(path: Path, start: Start | None) -> dict[str, Any] | None:
    if start is None:
        return None
    write_tensors(path, start.tensors)
    return {name: value for name, value in vars(start).items() if name != "tensors"}


def _read_start(path: Path, described: dict[str, Any] | None) -> Start | None:
    if described is None:
        return None
    for name in ("columns", "order", "classes", "unit"):
        described[name] = tuple(described[name])
    return Start(load_file(path), **described)


def plan_values(plan: Plan) -> dict[str, Any]:
    """A plan as JSON holds it. Models must be settings: a torch module is code, which files here never hold."""
    bottoms = plan.bottom if isinstance(plan.bottom, Mapping) else {"": plan.bottom}
    for model in (*bottoms.values(), plan.top):
        if isinstance(model, nn.Module):
            raise SettingsError(
                f"The model {type(model).__name__} was given as a torch module, which only the runtime 'simulate' "
                "takes: give BottomSettings and TopSettings, or run it in simulate."
            )
    return {
        "algorithm": [algorithms.name_of(plan.algorithm), as_values(plan.algorithm)],
        "training": as_values(plan.training),
        "privacy": as_values(plan.privacy),
        "bottom": {name: as_values(bottom) for name, bottom in bottoms.items()},
        "top": as_values(plan.top),
        "seed": plan.seed,
    }


def plan_from(values: dict[str, Any]) -> Plan:
    """What `plan_values` described."""
    name, settings = values["algorithm"]
    bottoms = {party: build(BottomSettings, given, "bottom") for party, given in values["bottom"].items()}
    return Plan(
        build(algorithms.find(name).settings, settings, "algorithm"),
        build(DecidedTraining, values["training"], "training"),
        build(PerturbationSettings, values["privacy"], "privacy"),
        bottoms.get("", bottoms),
        build(TopSettings, values["top"], "top"),
        values["seed"],
    )


def _parts(private: PrivateData) -> list[tuple[str, Columns]]:
    held = [("", private.columns), ("label_", private.labels)]
    return [
        (f"{start}{what}", part)
        for start, one in held
        for what in (*PARTS, "weights")  # which labels alone may have
        if (part := getattr(one, what, None)) is not None
    ]


def _pack(tensors: dict[str, torch.Tensor], what: str, part: Columns) -> list[int] | None:
    """Add a part's arrays; returns the shape of a sparse one."""
    if isinstance(part, torch.Tensor):
        shared = any(part.untyped_storage().data_ptr() == one.untyped_storage().data_ptr() for one in tensors.values())
        # safetensors refuses tensors that share memory
        tensors[what] = part.clone(memory_format=torch.contiguous_format) if shared else part.contiguous()
        return None
    for field in ("indptr", "indices", "data"):
        tensors[f"{what}.{field}"] = torch.from_numpy(np.ascontiguousarray(getattr(part, field)))
    return list(part.shape)


def _unpack(tensors: dict[str, torch.Tensor], what: str, shape: list[int] | None) -> Columns:
    if shape is None:
        return tensors[what]
    data, indices, indptr = (tensors[f"{what}.{field}"].numpy() for field in ("data", "indices", "indptr"))
    return sparse.csr_array((data, indices, indptr), shape=tuple(shape))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
