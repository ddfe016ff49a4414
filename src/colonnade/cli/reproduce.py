"""`colonnade reproduce`: a table or figure of a paper, beside the published numbers."""

import json
from typing import Annotated

import typer

from colonnade.cli.options import json_option
from colonnade.cli.output import console, errors, interrupted, shown
from colonnade.exit_codes import ExitCode


def reproduce(
    name: Annotated[str, typer.Argument(help="Which one; a list without a name.", show_default=False)] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Smaller settings, in minutes instead of hours.")] = False,
    seeds: Annotated[
        int | None,
        typer.Option(help="How many seeds, from 0 on. Default: as many as the reproduction asks for.", min=1),
    ] = None,
    as_json: Annotated[bool, json_option("Print one JSON object.")] = False,
) -> None:
    """Repeat an experiment of a paper and print it beside the published numbers."""
    from rich.table import Table

    from colonnade.reproductions import reproduce as run_reproduction
    from colonnade.reproductions import reproductions

    if not name:
        table = Table()
        table.add_column("name")
        table.add_column("what")
        for one in reproductions().values():
            table.add_row(one.name, one.summary)
        console.print(table)
        return
    known = reproductions().get(name)  # an unknown name is refused below
    left = ExitCode.STOPPED if known and known.keeps_runs else ExitCode.INTERRUPTED
    with interrupted(known.after_a_stop if known else "", left):
        result = run_reproduction(name, quick, seeds, lambda line: errors.print(line, markup=False, soft_wrap=True))
    if as_json:
        print(json.dumps(result))
        return
    count = len(result["seeds"])
    table = Table(title=f"{name}{' (quick)' if quick else ''}, {count} seed{'s' if count > 1 else ''}")
    for heading in ("what", "published", "ours", "deviation", "note"):
        table.add_column(heading, justify="left" if heading in ("what", "note") else "right")
    for row in result["rows"]:
        numbers = [shown(row[key], "{:.2f}") for key in ("published", "ours", "deviation")]
        table.add_row(row["label"], *numbers, row["note"])
    console.print(table)
