"""`colonnade drift`: whether rows are still like those that a model was trained on."""

import json
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import RunDirectory, json_option
from colonnade.cli.output import console


def drift(
    run: RunDirectory,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="[PARTY=]FILE",
            help="Rows to look at, with the columns of the party's own table. May be repeated. Default: the tables of "
            "the run, as they are now.",
            show_default=False,
        ),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            "--predictions",
            help="At the label party: a file that `colonnade predict` wrote, to look at what the model says.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, json_option("Print {party: [{column, index, chance, distance, verdict}]}.")] = False,
) -> None:
    """Tell how far rows are from those that a model was trained on, column by column, to their owner alone."""
    from colonnade.launch.drift import drift_of_run
    from colonnade.prediction.profile import as_values

    found = drift_of_run(run, table or [], predictions)
    if as_json:
        print(json.dumps({party: as_values(drifts) for party, drifts in found.items()}))
        return
    from rich.table import Table

    shown = Table(title_justify="left")
    for heading in ("party", "column", "index", "by chance", "distance", ""):
        shown.add_column(heading, justify="right" if heading in ("index", "by chance", "distance") else "left")
    for party, drifts in found.items():
        for one in sorted(drifts, key=lambda one: one.chance - one.index):
            distance = "" if one.distance is None else f"{one.distance:.3f}"
            shown.add_row(party, one.name, f"{one.index:.3f}", f"{one.chance:.3f}", distance, one.verdict)
    console.print(shown)
