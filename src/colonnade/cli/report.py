"""`colonnade report`: one self-contained page about a run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import console
from colonnade.reports.page import write_report


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory.", show_default=False)],
    audit: Annotated[
        Path | None,
        typer.Option(
            help="Show what this audit observed beside claimed and sound ε: a file of colonnade audit --out, or a "
            "directory with an audit.json in it. Without it: the run's own audit.json, if there is one.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print {report: path}.")] = False,
) -> None:
    """Write report.html and its figures into a run's directory."""
    page = write_report(run, audit)
    if as_json:
        print(json.dumps({"report": str(page)}))
    else:
        console.print(f"Report: {page}", markup=False, soft_wrap=True)
