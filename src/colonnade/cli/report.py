"""`colonnade report`: one self-contained page about a run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import console
from colonnade.reports.page import write_report


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print {report: path}.")] = False,
) -> None:
    """Write report.html and its figures into a run's directory."""
    page = write_report(run)
    if as_json:
        print(json.dumps({"report": str(page)}))
    else:
        console.print(f"Report: {page}", markup=False, soft_wrap=True)
