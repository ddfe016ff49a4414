"""One party's trained model as a folder that can be taken along: its weights, and what is needed to use them.

`weights.safetensors` holds every tensor under the names of the party's own modules (`bottom.0.weight`); `model.json`
says what they are of, and has the digest of the weights. It is written last, so a folder without it is no model. Class
names and the label's unit are in the label party's folder alone, column names in their owner's, and so is
`profile.json`, how its columns were distributed. No pickle: a module of
the user's own is not written down, only its weights, and is given again when the model is loaded.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from colonnade import algorithms
from colonnade.algorithms.training import AUTO, Training
from colonnade.data.absence import absent_rows
from colonnade.data.federated import Labels, PartyColumns
from colonnade.data.prepared import Preparation
from colonnade.errors import DataError, RunError, SettingsError
from colonnade.federation.building import PrivateData, empty_models
from colonnade.federation.plan import Facts, Plan, decided_training
from colonnade.files import make_folder, read_private, write_atomically
from colonnade.models.bottom import BottomSettings
from colonnade.models.network import network_for
from colonnade.models.top import TopSettings
from colonnade.party import Party
from colonnade.prediction.account import RowAccount
from colonnade.prediction.profile import OutputProfile, Profile, profile_of
from colonnade.privacy.noise import LayerNoise, PerturbationSettings
from colonnade.reports.summary import versions
from colonnade.settings import as_values, build

FORMAT = 1
"""Of a model's folder. A reader refuses a higher one, and reads all lower ones."""


_STAND_IN = "stand_in."


class LabelUnit(msgspec.Struct, frozen=True):
    """What the joint model's outputs mean, which the label party alone knows."""

    classes: list[str | int | float]
    mean: float
    deviation: float
    threshold: float = 0.5  # the second of two classes is predicted above this probability


class ModelDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in `model.json`: enough to build the modules again, and to know what they are of."""

    format: int = FORMAT
    party: str
    label_party: str
    feature_parties: list[str]
    task: str
    class_count: int
    shapes: dict[str, list[int]]  # of one row, of everybody who holds columns
    widths: dict[str, int]  # of everybody's embeddings; empty in a linear federation
    algorithm: dict[str, Any]
    bottom: dict[str, Any]  # settings, or {"module": …} for one of the user's own
    top: dict[str, Any]
    clip: float  # of what feature parties sent: a part of the function that was trained
    columns: list[str]  # of this party, in order
    label: LabelUnit | None
    preparation: dict[str, Any] | None = None  # of this party's own table, as it was learnt from its training rows
    expects_absence: bool = False  # whether parties may lack rows, which the last column of each tells
    privacy: dict[str, Any] = {}  # how what is sent is clipped and noised, as it was in training
    training: str = ""  # of models that were trained together between organisations: the same in each of them
    weights_sha256: str = ""
    versions: dict[str, str] = {}

    @property
    def facts(self) -> Facts:
        shapes = {name: tuple(shape) for name, shape in self.shapes.items()}
        features = tuple(self.feature_parties)
        told = Facts(self.label_party, features, 0, 0, self.task, self.class_count, shapes, self.widths)
        return replace(told, expects_absence=self.expects_absence)


@dataclass(frozen=True)
class SavedModel:
    """One party's modules, and what they are of.

    >>> import colonnade
    >>> outcome = colonnade.train(colonnade.dataset("iris", parties=2), training=colonnade.Training(epochs=1))
    >>> list(outcome.model.parties["party1"].modules), list(outcome.model.parties["label"].modules)
    (['bottom'], ['top'])
    """

    description: ModelDescription
    modules: dict[str, nn.Module]  # "bottom", "top"; "bottom of NAME" where one party trained on everybody's columns
    folder: Path | None = None  # that it was read from
    stand_ins: Mapping[str, torch.Tensor] = field(default_factory=dict)  # the label party's: mean embeddings of others
    columns: PartyColumns | None = field(default=None, repr=False, compare=False)  # that it was trained on, if at hand
    outputs: OutputProfile | None = None  # at the label party, where everybody's models were in one place
    spent: Mapping[bytes, float] | None = field(default=None, repr=False, compare=False)  # after a training: what its
    # rows have cost by then, in μ², as its account has it; None: nothing was noised, or see the account in its folder
    kept_profile: Profile | None = field(default=None, repr=False)  # as it was read from its folder

    @property
    def profile(self) -> Profile | None:
        """How its columns were distributed in training, and its outputs; None: too few rows, or no table."""
        if self.kept_profile is not None:
            return self.kept_profile
        train = None if self.columns is None or self.columns.sparse else self.columns.train
        made = (
            profile_of(train, self.description.columns, self.preparation) if isinstance(train, torch.Tensor) else None
        )
        if self.outputs is None:
            return made
        return msgspec.structs.replace(made or Profile(0, []), outputs=self.outputs)

    @property
    def preparation(self) -> Preparation | None:
        """How rows of this party's own table become what the model takes; None: it was given prepared rows."""
        values = self.description.preparation
        return None if values is None else Preparation.from_values(values)

    def embed(self, rows: torch.Tensor) -> torch.Tensor:
        """What this party answers for prepared rows, [rows, width]: embeddings, clipped if its uploads were and without
        noise; in a linear federation products."""
        own = self.description
        clips = own.clip > 0 and own.party != own.label_party
        clipped = LayerNoise(PerturbationSettings(clip=own.clip), torch.Generator()) if clips else None
        return network_for(self.modules["bottom"]).score(rows, clipped)

    def stand_in(self) -> torch.Tensor | None:
        """What it answers for a row that it lacks, [width]: learnt, and the same for all such rows.

        None: there is none, since the model was trained without data.rows = "any", or the party has no columns.
        """
        own = self.description
        if not own.expects_absence or own.party not in own.shapes:
            return None
        return self.embed(absent_rows(1, tuple(own.shapes[own.party])))[0]

    def save(self, folder: str | Path) -> Path:
        """Write the folder, which others than its owner cannot read."""
        folder = Path(folder)
        tensors = {
            f"{name}.{key}": tensor.contiguous()
            for name, module in self.modules.items()
            for key, tensor in module.state_dict().items()
        }
        tensors |= {f"{_STAND_IN}{name}": mean.contiguous() for name, mean in self.stand_ins.items()}
        blob = save(tensors)
        made_with = versions()
        own = {package: made_with[package] for package in ("colonnade", "torch")}
        digest = hashlib.sha256(blob).hexdigest()
        described = msgspec.structs.replace(self.description, weights_sha256=digest, versions=own)
        try:
            if not folder.parent.exists():
                make_folder(folder.parent)
            make_folder(folder)
            if self.spent is not None:  # first: a model that may be used has its account
                RowAccount(folder).create(self.spent)
            for one in ("model.json", "profile.json"):  # from here on the one before is no model any more
                (folder / one).unlink(missing_ok=True)
            if (profile := self.profile) is not None:
                write_atomically(folder / "profile.json", msgspec.json.encode(profile))
            write_atomically(folder / "weights.safetensors", blob)
            write_atomically(folder / "model.json", msgspec.json.format(msgspec.json.encode(described), indent=1))
        except OSError as error:
            raise RunError(f"The model could not be written to {folder}: {error.strerror}.") from None
        return folder


def described(plan: Plan, facts: Facts, private: PrivateData, threshold: float = 0.5) -> ModelDescription:
    """What is to be said of the model of the party that has these data.

    `threshold`: the one that a training with `threshold = "auto"` has found.
    """
    is_label_party = private.name == facts.label_party
    if plan.training.threshold != AUTO:
        threshold = float(plan.training.threshold)
    preparation = None if private.columns is None else private.columns.preparation
    return ModelDescription(
        party=private.name,
        label_party=facts.label_party,
        feature_parties=list(facts.feature_parties),
        task=facts.task,
        class_count=facts.classes,
        shapes={name: list(shape) for name, shape in facts.shapes.items()},
        widths=dict(facts.widths),
        algorithm={"name": plan.chosen.name, **as_values(plan.algorithm)},
        bottom=_said_of(_own_bottom(plan, private.name)),
        top=_said_of(plan.top),
        clip=plan.privacy.clip,
        columns=[] if private.columns is None else list(_names(private.columns)),
        label=_unit(private.labels, threshold) if is_label_party and private.labels is not None else None,
        preparation=None if preparation is None else preparation.to_values(),
        expects_absence=facts.expects_absence,
        privacy=as_values(plan.privacy),
    )


def trained_together(models: Mapping[str, Mapping[str, nn.Module]]) -> str:
    """By what models that were trained in one place are known: it follows from their weights."""
    total = hashlib.sha256()
    for party, modules in sorted(models.items()):
        for name, module in sorted(modules.items()):
            total.update(f"{party} {name}".encode())
            for tensor in module.state_dict().values():
                total.update(tensor.contiguous().numpy().tobytes())
    return total.hexdigest()[:32]


def stand_ins_of(party: Party) -> dict[str, torch.Tensor]:
    """What a label party of a split model knows to stand in for others; nothing, for any other party."""
    asked: Callable[[], dict[str, torch.Tensor]] = getattr(party, "stand_ins", dict)
    return asked()


def _own_bottom(plan: Plan, name: str) -> BottomSettings | nn.Module:
    if isinstance(plan.bottom, Mapping):
        return plan.bottom.get(name, BottomSettings())
    return plan.bottom


def _said_of(model: BottomSettings | TopSettings | nn.Module) -> dict[str, Any]:
    if isinstance(model, nn.Module):
        return {"module": f"{type(model).__module__}.{type(model).__qualname__}"}
    values: dict[str, Any] = as_values(model)
    return values


def _names(columns: PartyColumns) -> tuple[str, ...]:
    return tuple(str(name) for name in columns.names)


def _unit(labels: Labels, threshold: float) -> LabelUnit:
    return LabelUnit(list(labels.classes), labels.mean, labels.deviation, threshold)


# --- reading ----------------------------------------------------------------------------------------------------


def find_model(place: Path, party: str) -> Path:
    """The folder of a party's model: a model's own, or in a run directory, or among those of several parties."""
    places = (place, place / "model" / party, place / party, place / "model")
    for folder in places:
        if (folder / "model.json").exists():
            return folder
    raise DataError(
        f"There is no model of {party} in {place}: name the run directory of its training, or the model's folder."
    )


def read_model(folder: str | Path, modules: Mapping[str, nn.Module] | None = None) -> SavedModel:
    """A party's model from its folder. `modules`: those of the user's own that it was trained with, by name."""
    folder = Path(folder)
    described = _description(folder)
    weights = _weights(folder, described)
    given = dict(modules or {})
    built = _built(described, weights, given, folder)
    for name, module in built.items():
        own = {key.removeprefix(f"{name}."): tensor for key, tensor in weights.items() if key.startswith(f"{name}.")}
        try:
            module.load_state_dict(own)
        except RuntimeError as error:
            raise DataError(f"The weights in {folder} do not fit the module {name!r}: {error}") from None
    stand_ins = {key.removeprefix(_STAND_IN): one for key, one in weights.items() if key.startswith(_STAND_IN)}
    return SavedModel(described, built, folder, stand_ins, kept_profile=_profile(folder))


def _profile(folder: Path) -> Profile | None:
    path = folder / "profile.json"
    try:
        return msgspec.json.decode(read_private(path), type=Profile)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise _damaged(path) from None


def _description(folder: Path) -> ModelDescription:
    try:
        content = read_private(folder / "model.json")
    except FileNotFoundError:
        raise DataError(f"{folder} holds no model: there is no model.json in it.") from None
    except OSError as error:
        raise DataError(f"The model in {folder} cannot be read: {error.strerror}.") from None
    try:
        number = msgspec.json.decode(content, type=_Numbered).format
        if number > FORMAT:
            raise DataError(
                f"The model in {folder} has the format {number}, and this version of Colonnade reads up to {FORMAT}: "
                "use the version that wrote it, or a newer one."
            )
        return msgspec.json.decode(content, type=ModelDescription)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise _damaged(folder / "model.json") from None


class _Numbered(msgspec.Struct):
    format: int


def _weights(folder: Path, described: ModelDescription) -> dict[str, torch.Tensor]:
    path = folder / "weights.safetensors"
    try:
        blob = read_private(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    if hashlib.sha256(blob).hexdigest() != described.weights_sha256:
        raise _damaged(path)
    try:
        weights: dict[str, torch.Tensor] = load(blob)
    except SafetensorError:
        raise _damaged(path) from None
    return weights


def _built(
    described: ModelDescription, weights: Mapping[str, torch.Tensor], given: dict[str, nn.Module], folder: Path
) -> dict[str, nn.Module]:
    """Modules of the right shapes: those that settings describe, and the user's own in their places."""
    for name in ("bottom", "top"):
        own = getattr(described, name)
        if "module" in own and any(key.startswith(f"{name}.") for key in weights) and name not in given:
            raise SettingsError(
                f"The {name} model in {folder} is a module of your own, {own['module']}: give one of the same shape, "
                f'as modules={{"{name}": …}}. Its weights are loaded into it.'
            )
    return {**empty_models(described.party, described.facts, _plan(described, given), weights), **given}


def _plan(described: ModelDescription, given: Mapping[str, nn.Module]) -> Plan:
    values = dict(described.algorithm)
    row = algorithms.find(values.pop("name"))
    algorithm = build(row.settings, values, "algorithm")
    bottom = given.get("bottom") or build(BottomSettings, _settings(described.bottom), "bottom")
    top = given.get("top") or build(TopSettings, _settings(described.top), "top")
    training = decided_training(Training(), algorithm, 1, len(described.feature_parties))
    return Plan(algorithm, training, PerturbationSettings(), bottom, top, 0)


def _settings(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "module"}


def _damaged(path: Path) -> DataError:
    return DataError(f"{path} is damaged: it is not what was written. Take it from a copy, or from its run again.")
