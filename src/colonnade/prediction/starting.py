"""Saved models as the beginning of another training: each party's own part of one, and how it prepared its columns."""

from collections.abc import Iterable
from pathlib import Path

from colonnade.data.federated import FederatedData
from colonnade.data.loading import load
from colonnade.data.prepared import Preparation
from colonnade.errors import SettingsError
from colonnade.federation.file import Federation
from colonnade.federation.plan import embedding_order
from colonnade.federation.start import Start, changes
from colonnade.prediction.joint_model import JointModel, load_model
from colonnade.prediction.saved_model import SavedModel


def joint_start(model: JointModel | SavedModel | str | Path) -> JointModel:
    """The model of all parties, from itself or from where it lies."""
    if isinstance(model, str | Path):
        model = load_model(model)
    if isinstance(model, SavedModel):
        raise SettingsError(
            f"The model to start from is that of {model.description.party} alone: where all parties are trained in one "
            "place, the models of all are needed. Name the run's directory, or the folder with one folder per party."
        )
    return model


def starts_of(model: JointModel, label_party: str, parties: Iterable[str]) -> dict[str, Start]:
    """Every party's part; one that the model does not know has nothing to start with."""
    if model.label_party != label_party:
        raise SettingsError(
            f"The labels of the model to start from are those of {model.label_party!r}; here {label_party!r} has them. "
            "Parties are known by name: keep it, or begin anew."
        )
    return {party: _part(model, party) for party in parties}


def start_of(saved: SavedModel) -> Start:
    """One party's part, from its own model."""
    described, unit = saved.description, saved.description.label
    tensors = {
        f"{name}.{key}": tensor for name, module in saved.modules.items() for key, tensor in module.state_dict().items()
    }
    return Start(
        tensors,
        tuple(described.columns),
        embedding_order(described.facts),
        dict(described.widths),
        described.task,
        () if unit is None else tuple(unit.classes),
        (0.0, 1.0) if unit is None else (unit.mean, unit.deviation),
    )


def preparations_of(model: JointModel) -> dict[str, Preparation]:
    """How each party prepared its own table, where it did."""
    made = {name: saved.preparation for name, saved in model.parties.items()}
    return {name: one for name, one in made.items() if one is not None}


def _part(model: JointModel, party: str) -> Start:
    leader = model.parties[model.label_party]
    alone = f"bottom of {party}"
    if party in model.parties and alone not in leader.modules:
        return start_of(model.parties[party])
    if alone not in leader.modules:
        return Start()
    raise SettingsError(
        f"The model to start from was trained by one party alone, which did not keep the column names of {party}: "
        "start from a model that parties trained together."
    )


def load_with_start(federation: Federation, base: Path) -> tuple[FederatedData, JointModel | None]:
    """The data of a federation.toml, and the model that it names to begin with, as which columns are prepared."""
    start = federation.start
    model = joint_start(base / start.model) if start.model else None
    known = preparations_of(model) if model is not None and start.preparation == "keep" else None
    return load(federation.data, federation.party_data(), federation.label_party, base, known), model


def notes_on_start(model: JointModel, data: FederatedData) -> list[str]:
    """What to know of a training that does not start from quite the model that was named."""
    notes = []
    for party, start in starts_of(model, data.label_party, data.columns).items():
        names = tuple(str(name) for name in data.columns[party].names)
        if not start.tensors:
            notes.append(f"{party} is not in the model to start from: it begins anew, and changes nothing at first.")
        elif names != start.columns:
            notes.append(f"{party} has other columns than in the model to start from: {changes(start.columns, names)}.")
    return notes
