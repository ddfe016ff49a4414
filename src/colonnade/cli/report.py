"""`colonnade report`: one self-contained page about a run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import Pictures, RunDirectory, json_option
from colonnade.cli.output import console, interrupted, tell


def report(
    run: RunDirectory,
    audit: Annotated[
        Path | None,
        typer.Option(
            help="Show what this audit observed beside claimed and sound ε: a file of colonnade audit --out, or a "
            "directory with an audit.json in it. Default: the audit.json in the run's directory, if there is one.",
            show_default=False,
        ),
    ] = None,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines",
            help="Before, train what to hold the run against: all columns in one place, each party alone, everybody "
            "but one. Needs the tables of all parties.",
        ),
    ] = False,
    figures: Pictures = None,
    as_json: Annotated[bool, json_option("Print {report: path}.")] = False,
) -> None:
    """Write report.html and its figures into a run's directory."""
    from colonnade.reports.run_page import write_report

    if baselines:
        with interrupted("Baselines that were not all trained are not kept."):
            from colonnade.launch.baselines import write_baselines

            write_baselines(run, say=tell)
    page = write_report(run, audit, figures)
    if as_json:
        print(json.dumps({"report": str(page)}))
    else:
        console.print(f"Report: {page}", markup=False, soft_wrap=True)
