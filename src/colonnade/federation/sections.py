"""Every table of settings that a federation.toml or a party.toml may have, by its heading there."""

from collections.abc import Mapping
from typing import Any

from colonnade.alignment.settings import IdRules
from colonnade.data.settings import ColumnSettings
from colonnade.federation import file, party_file
from colonnade.runtimes.simulate.settings import SimulatedLink, SimulatedParty

INNER: Mapping[str, Any] = {
    "alignment.rules.COLUMN": IdRules,
    "parties.NAME": file.PartySection,
    "parties.NAME.prepare.COLUMN": ColumnSettings,
    "simulate.parties.NAME": SimulatedParty,
    'simulate.links."FROM -> TO"': SimulatedLink,
}
OF_FEDERATION: Mapping[str, Any] = {
    **{name: kind for name, kind in file.SECTIONS.items() if kind is not None},
    **INNER,
}
OF_PARTY_ALONE: Mapping[str, Any] = {
    name: kind for name, kind in party_file.SECTIONS.items() if name not in file.SECTIONS
}
"""Those of a party.toml whose name no section of a federation.toml has."""
