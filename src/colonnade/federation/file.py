"""`federation.toml`: what all parties of a federation share, read strictly and written back whole.

Sections: [federation], [data], [alignment], [parties.NAME], [algorithm], [training], [start], [privacy], [bottom],
[top], [track], and one for each runtime: [simulate], [processes], [ray], [network]. Every name must exist; a misspelt
one is refused with the nearest. A run keeps the file it ran with, defaults filled in.
"""

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from colonnade import algorithms
from colonnade.algorithms.training import Training
from colonnade.alignment.settings import AlignmentSettings
from colonnade.data.federated import FederatedData
from colonnade.data.settings import DataSettings, PartyData
from colonnade.errors import SettingsError, unknown_name
from colonnade.federation.plan import Plan, decided_training
from colonnade.federation.start import StartSettings
from colonnade.federation.toml import read_toml
from colonnade.files import toml_of
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.names import check_party_name
from colonnade.privacy.noise import PerturbationSettings
from colonnade.runtimes.network.settings import NetworkSettings
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.ray.settings import Ray
from colonnade.runtimes.simulate.settings import Simulate
from colonnade.settings import as_values, build, check_table
from colonnade.tracking.settings import Track


@dataclass(frozen=True)
class PartySection(PartyData):
    """`[parties.NAME]`: where a party's columns come from, and a bottom model of its own if it wants one."""

    bottom: BottomSettings | None = None
    """a bottom model of its own: a table with the names of `[bottom]`"""


@dataclass(frozen=True)
class Federation:
    """A whole federation.toml."""

    data: DataSettings
    algorithm: Any = field(default_factory=lambda: algorithms.find(algorithms.DEFAULT).settings())
    name: str = ""
    label_party: str = "label"
    seed: int = 0
    alignment: AlignmentSettings = field(default_factory=AlignmentSettings)
    parties: Mapping[str, PartySection] = field(default_factory=dict)
    training: Training = field(default_factory=Training)
    start: StartSettings = field(default_factory=StartSettings)
    privacy: PerturbationSettings = field(default_factory=PerturbationSettings)
    bottom: BottomSettings = field(default_factory=BottomSettings)
    top: TopSettings = field(default_factory=TopSettings)
    simulate: Simulate = field(default_factory=Simulate)
    processes: Processes = field(default_factory=Processes)
    ray: Ray = field(default_factory=Ray)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    track: Track = field(default_factory=Track)

    def party_data(self) -> dict[str, PartyData]:
        return dict(self.parties)

    def plan(self, data: FederatedData) -> Plan:
        """What its parties share, with a bottom model for each that holds columns: its own, or everybody's."""
        own_models = {name: party.bottom for name, party in self.parties.items() if party.bottom is not None}
        bottoms = {name: own_models.get(name, self.bottom) for name in data.columns}
        training = decided_training(
            self.training, self.algorithm, data.rows, len(data.feature_parties), self.privacy.labels_epsilon
        )
        return Plan(self.algorithm, training, self.privacy, bottoms, self.top, self.seed)

    def with_absolute_files(self, base: Path) -> "Federation":
        """The same, readable from any folder."""

        def absolute(own: PartySection) -> PartySection:
            folder = (base / own.folder).resolve()
            if own.aligned:
                own = replace(own, aligned=str((base / own.aligned).resolve()))
            if own.sql:
                return replace(own, folder=str(folder))
            return replace(own, file=str((folder / own.file).resolve()), folder="") if own.file else own

        model = self.start.model and str((base / self.start.model).resolve())
        parties = {name: absolute(own) for name, own in self.parties.items()}
        start, track = replace(self.start, model=model), self.track.with_absolute_folders(base)
        return replace(self, parties=parties, start=start, track=track)


@dataclass(frozen=True)
class FederationSection:
    """`[federation]`."""

    name: str = ""
    """names the default run directory"""
    label_party: str = "label"
    """who holds the label"""
    seed: int = 0
    """of weights, batches, noise, activations and delays"""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise SettingsError(f"federation.seed is {self.seed}; it must be 0 or more.")
        if self.name.startswith(".") or not self.name.isprintable() or set(self.name) & set("/\\"):
            raise SettingsError(
                f"federation.name is {self.name!r}, but a run's directory is named after it: leave out slashes and "
                "control characters, and begin with something other than a dot."
            )


SECTIONS: Mapping[str, Any] = {
    "federation": FederationSection,
    "data": DataSettings,
    "alignment": AlignmentSettings,
    "parties": None,  # a table of sections
    "algorithm": None,  # that of the algorithm it names
    "training": Training,
    "start": StartSettings,
    "privacy": PerturbationSettings,
    "bottom": BottomSettings,
    "top": TopSettings,
    "simulate": Simulate,
    "processes": Processes,
    "ray": Ray,
    "network": NetworkSettings,
    "track": Track,
}


BEFORE_A_CHOICE = {"updates": "one"}
"""Of `[algorithm]`: what earlier versions did where now another way is the default."""


def read_federation(path: Path, changes: Sequence[str] = ()) -> Federation:
    """The federation of a file, after `section.name=value` changes from the command line."""
    return parse_federation(changed_values(path, changes))


def changed_values(path: Path, changes: Sequence[str] = ()) -> dict[str, Any]:
    """What the file and the changes say, as plain values, and nothing that they leave open."""
    values = read_toml(path, "a federation.toml")
    if path.with_name("checkpoints").is_dir():  # the file that a run keeps
        values = _as_it_was(values)
    for change in changes:
        _apply(values, change)
    return values


def parse_federation(values: Mapping[str, Any]) -> Federation:
    """A federation from the plain values of a TOML file."""
    for section in values:
        if section not in SECTIONS:
            raise unknown_name("section", section, SECTIONS)
    for section in ("algorithm", "parties"):
        check_table(values.get(section, {}), section)
    head = build(FederationSection, values.get("federation", {}), "federation")
    chosen = dict(values.get("algorithm", {}))
    algorithm = algorithms.find(str(chosen.pop("name", algorithms.DEFAULT)))
    if "data" not in values:
        raise SettingsError('There is no [data] section. Give one, for instance: [data] set = "digits", parties = 4.')
    parties: dict[str, PartySection] = {}
    for name, own in values.get("parties", {}).items():
        check_party_name(name)
        parties[name] = build(PartySection, own, f"parties.{name}")
    check_party_name(head.label_party)
    sections: dict[str, Any] = {
        section: build(kind, values.get(section, {}), section)
        for section, kind in SECTIONS.items()
        if kind not in (None, FederationSection)
    }
    algorithm_settings = build(algorithm.settings, chosen, "algorithm")
    return Federation(
        algorithm=algorithm_settings,
        name=head.name,
        label_party=head.label_party,
        seed=head.seed,
        parties=parties,
        **sections,
    )


def federation_values(federation: Federation) -> dict[str, Any]:
    """The plain values of a federation, with every default filled in."""
    algorithm = {"name": algorithms.name_of(federation.algorithm), **as_values(federation.algorithm)}
    head = {"name": federation.name, "label_party": federation.label_party, "seed": federation.seed}
    values: dict[str, Any] = {"federation": head, "algorithm": algorithm}
    for section in (
        "data",
        "alignment",
        "training",
        "start",
        "privacy",
        "bottom",
        "top",
        "simulate",
        "processes",
        "ray",
        "network",
        "parties",
    ):
        values[section] = as_values(getattr(federation, section))
    if federation.track:  # who is told of a run is no part of it: without that, nothing stands there
        values["track"] = {name: value for name, value in as_values(federation.track).items() if value}
    return values


def with_new_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a file that an earlier version wrote whole, with the defaults of settings that came since."""
    values = _as_it_was(values)
    try:
        now = federation_values(parse_federation(values))
    except SettingsError:
        return dict(values)  # written for models that were given as objects: nothing can be filled in
    return {section: _filled(values.get(section, {}), now.get(section, {})) for section in {**now, **values}}


def _as_it_was(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a file that an earlier version wrote whole, with what it did before there was a choice of it."""
    chosen = values.get("algorithm")
    if not isinstance(chosen, Mapping) or chosen.get("name") not in algorithms.ALGORITHMS:
        return dict(values)
    known = {one.name for one in fields(algorithms.ALGORITHMS[chosen["name"]].settings)}
    was = {name: value for name, value in BEFORE_A_CHOICE.items() if name in known}
    return {**values, "algorithm": {**was, **chosen}}


def _filled(own: Any, now: Any) -> Any:
    if not (isinstance(own, Mapping) and isinstance(now, Mapping)):
        return own
    return {**now, **{name: _filled(value, now.get(name)) for name, value in own.items()}}


def digest(values: Mapping[str, Any]) -> str:
    """One number for a whole federation, the same wherever it is computed."""
    return hashlib.sha256(msgspec.json.encode(values, order="deterministic")).hexdigest()


def _apply(values: dict[str, Any], change: str) -> None:
    """Put one `section.name=value` into the values; the value is TOML, or else a plain string."""
    path, equals, text = change.partition("=")
    names = [name.strip() for name in path.split(".")]
    if not equals or len(names) < 2 or not all(names):
        raise SettingsError(f"--set {change!r}: write it as section.name=value, such as training.epochs=20.")
    try:
        value = toml_of(f"value = {text.strip()}".encode())["value"]
    except (tomllib.TOMLDecodeError, UnicodeError):
        value = text.strip()
    except ValueError:
        raise SettingsError(
            f"--set {path}=…: brackets too deep, or a number too long. No setting needs that."
        ) from None
    if names[0] not in SECTIONS:
        raise unknown_name("section", names[0], SECTIONS)
    table: Any = values
    for name in names[:-1]:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise SettingsError(f"--set {change!r}: {name} is a value, not a section.")
    if names == ["algorithm", "name"] and table.get("name") != value:
        table.clear()  # the settings of another algorithm do not carry over
    table[names[-1]] = value
