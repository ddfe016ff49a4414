"""`party.toml`: one organisation's own part of a federation, which never leaves it.

Sections: [party] who and where, [data] its file, [keys] its certificate, [bottom] a model of its own, [start] the model
that it begins with, [endurance] how patient it is, [track] who is told of its run. Paths are relative to the file.
"""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from colonnade.data.settings import PartyData
from colonnade.errors import SettingsError, unknown_name
from colonnade.federation.start import StartSettings
from colonnade.federation.toml import read_toml
from colonnade.models.bottom import BottomSettings
from colonnade.models.device import CPU, check_device
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.network.settings import parse_address
from colonnade.settings import build, check_table
from colonnade.tracking.settings import Track


@dataclass(frozen=True)
class PartySettings:
    """`[party]`."""

    name: str
    """which party of the federation this is"""
    listen: str = "0.0.0.0:7443"
    """the label party's: `host:port` to listen on"""
    metrics: str = ""
    """`host:port` for `/healthz` and `/metrics`; `""`: none"""
    log: str = "text"
    """`text` for people, or `json`: one object per line"""
    out: str = ""
    """the run directory, relative to this file; `""`: `runs/FEDERATION-NAME` where the command is started"""
    otel: str = ""
    """an OpenTelemetry collector, such as `http://127.0.0.1:4318`, that is told [who worked on which exchange
    when](operations.md#traces-of-exchanges); `""`: none"""
    otel_share: float = 0.01
    """of the exchanges that it is told of: above 0, at most 1"""
    device: str = "cpu"
    """where this party's models compute: `cpu`, `cuda`, `mps` or `auto`. [Explained](how-to/devices.md)"""

    def __post_init__(self) -> None:
        parse_address(self.listen, "[party] listen", any_port=True)
        if self.metrics:
            parse_address(self.metrics, "[party] metrics", any_port=True)
        if self.otel and not self.otel.startswith(("http://", "https://")):
            raise SettingsError(
                f"party.otel is {self.otel!r}; write the address of a collector, such as http://127.0.0.1:4318."
            )
        if not 0 < self.otel_share <= 1:
            raise SettingsError(f"party.otel_share is {self.otel_share:g}; it must be above 0 and at most 1.")
        if self.device != CPU.type:
            check_device(self.device)


@dataclass(frozen=True)
class KeySettings:
    """`[keys]`: files of `colonnade certs issue`."""

    certificate: str
    """this party's certificate"""
    key: str
    """its private key, readable by its owner alone"""
    authority: str
    """the certificate of the authority that everybody trusts; several in one file are all trusted"""
    revoked: str = ""
    """the list of serials that are no longer believed; `""`: none are revoked"""


@dataclass(frozen=True)
class PartyFile:
    """A whole party.toml."""

    party: PartySettings
    keys: KeySettings
    data: PartyData = field(default_factory=PartyData)
    bottom: BottomSettings | None = None
    start: StartSettings = field(default_factory=StartSettings)
    endurance: Endurance = field(default_factory=Endurance)
    track: Track = field(default_factory=Track)
    base: Path = Path()

    def path(self, name: str) -> Path:
        return self.base / name


SECTIONS: dict[str, Any] = {
    "party": PartySettings,
    "keys": KeySettings,
    "data": PartyData,
    "bottom": BottomSettings,
    "start": StartSettings,
    "endurance": Endurance,
    "track": Track,
}
_NEEDED = {"party": 'name = "shop"', "keys": 'certificate = "shop.pem", key = "shop.key", authority = "authority.pem"'}


def read_party_file(path: Path) -> PartyFile:
    """A party's own file; every name in it must exist."""
    values = read_toml(path, "this party's party.toml")
    for section in values:
        if section not in SECTIONS:
            raise unknown_name("section of a party.toml", section, SECTIONS)
        check_table(values[section], section)
    for section, example in _NEEDED.items():
        missing = [one.name for one in fields(SECTIONS[section]) if one.name in example]
        if not set(missing) <= set(values.get(section, {})):
            raise SettingsError(f"{path} lacks something in [{section}]: it needs {example}.")
    parts = {section: build(SECTIONS[section], own, section) for section, own in values.items()}
    if parts["party"].log not in ("text", "json"):
        raise unknown_name("way to log (party.log)", parts["party"].log, ("text", "json"))
    return PartyFile(**parts, base=path.parent)
