"""`colonnade algorithms`: what there is, and its settings."""

import json
from dataclasses import MISSING, fields
from typing import Annotated, Any

import typer

from colonnade.cli.output import console


def list_algorithms(
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """List the algorithms, their settings and the defaults."""
    from rich.table import Table

    from colonnade.algorithms import ALGORITHMS

    if as_json:
        rows = [
            {"name": algorithm.name, "summary": algorithm.summary, "settings": _defaults(algorithm.settings)}
            for algorithm in ALGORITHMS.values()
        ]
        print(json.dumps(rows))
        return
    table = Table()
    for heading in ("algorithm", "what it is", "settings"):
        table.add_column(heading)
    for algorithm in ALGORITHMS.values():
        defaults = _defaults(algorithm.settings)
        settings = ", ".join(f"{name} = {json.dumps(value)}" for name, value in defaults.items())
        table.add_row(algorithm.name, algorithm.summary, settings or "–")
    console.print(table)


def _defaults(settings: type[Any]) -> dict[str, Any]:
    return {field.name: field.default for field in fields(settings) if field.default is not MISSING}
