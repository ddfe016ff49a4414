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
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.network.settings import parse_address
from colonnade.settings import build, check_table
from colonnade.tracking.settings import Track


@dataclass(frozen=True)
class PartySettings:
    """`[party]`."""

    name: str
    listen: str = "0.0.0.0:7443"  # the label party's: at which address it is reached
    metrics: str = ""  # host:port for /metrics and /healthz; "" = none
    log: str = "text"  # "text" | "json"
    out: str = ""  # the run's directory; "" = runs/FEDERATION-NAME
    otel: str = ""  # an OpenTelemetry collector that is told of exchanges, such as http://127.0.0.1:4318; "" = none
    otel_share: float = 0.01  # of the exchanges

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


@dataclass(frozen=True)
class KeySettings:
    """`[keys]`: files of `colonnade certs issue`."""

    certificate: str
    key: str
    authority: str
    revoked: str = ""  # serial numbers that are no longer believed; read anew at every handshake


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


_KINDS: dict[str, Any] = {
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
        if section not in _KINDS:
            raise unknown_name("section of a party.toml", section, _KINDS)
        check_table(values[section], section)
    for section, example in _NEEDED.items():
        missing = [one.name for one in fields(_KINDS[section]) if one.name in example]
        if not set(missing) <= set(values.get(section, {})):
            raise SettingsError(f"{path} lacks something in [{section}]: it needs {example}.")
    parts = {section: build(_KINDS[section], own, section) for section, own in values.items()}
    if parts["party"].log not in ("text", "json"):
        raise unknown_name("way to log (party.log)", parts["party"].log, ("text", "json"))
    return PartyFile(**parts, base=path.parent)
