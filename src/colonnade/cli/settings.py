"""`colonnade settings`: what each setting means, from where it is declared."""

import json
from collections.abc import Sequence
from dataclasses import MISSING
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.names import DEFAULT_ALGORITHM
from colonnade.cli.options import json_option
from colonnade.cli.output import console
from colonnade.errors import unknown_name

if TYPE_CHECKING:
    from colonnade.meanings import Setting


def settings(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=f"A section, an algorithm, or a setting of one: training, {DEFAULT_ALGORITHM}, training.epochs. "
            "Left out: all sections.",
            show_default=False,
        ),
    ] = "",
    as_json: Annotated[bool, json_option("Print them as JSON.")] = False,
) -> None:
    """Say what the settings of a federation.toml and a party.toml mean, and their defaults."""
    from colonnade.meanings import settings_of

    sections = _sections()
    if not name:
        _list(sections, as_json)
        return
    where, _, one_name = (name, "", "") if name in sections else name.rpartition(".")
    if where not in sections:
        raise unknown_name("section, algorithm or setting", name, sections)
    chosen = [one for one in settings_of(sections[where]) if one_name in ("", one.name)]
    if one_name and not chosen:
        raise unknown_name(f"setting of {where}", one_name, [one.name for one in settings_of(sections[where])])
    if as_json:
        print(json.dumps([{"section": where, **_as_values(one)} for one in chosen]))
    else:
        _show(chosen)


def _sections() -> dict[str, Any]:
    """Every section, and the settings of every algorithm under its name."""
    from colonnade.algorithms import ALGORITHMS
    from colonnade.federation.sections import OF_FEDERATION, OF_PARTY_ALONE

    of_algorithms = {row.name: row.settings for row in ALGORITHMS.values()}
    return {**OF_FEDERATION, **OF_PARTY_ALONE, "algorithm": of_algorithms[DEFAULT_ALGORITHM], **of_algorithms}


def _list(sections: dict[str, Any], as_json: bool) -> None:
    from colonnade.meanings import settings_of

    if as_json:
        whole = [{"section": name, **_as_values(one)} for name, cls in sections.items() for one in settings_of(cls)]
        print(json.dumps(whole))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("section", "settings"):
        table.add_column(heading, overflow="fold")
    for name, cls in sections.items():
        table.add_row(name, ", ".join(one.name for one in settings_of(cls)) or "–")
    console.print(table)


def _show(chosen: Sequence["Setting"]) -> None:
    """One paragraph per setting, which no terminal is too narrow for."""
    from rich.padding import Padding
    from rich.text import Text

    for one in chosen:
        default = "" if one.default is MISSING else "nothing" if one.default is None else json.dumps(one.default)
        facts = [one.kind, f"in {one.unit}" if one.unit else "", f"default {default}" if default else ""]
        console.print(f"{one.name}: {', '.join(fact for fact in facts if fact)}", markup=False, highlight=False)
        console.print(Padding(Text(one.plain_meaning), (0, 0, 0, 4)))


def _as_values(one: "Setting") -> dict[str, Any]:
    required = one.default is MISSING
    return {
        "name": one.name,
        "type": one.kind,
        "default": None if required else one.default,
        "unit": one.unit,
        "meaning": one.plain_meaning,
    }
