"""`colonnade explain`: which parties and columns a finished run's model rests on."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from colonnade.cli.names import ROW_PARTS, offering
from colonnade.cli.options import RunDirectory, json_option
from colonnade.cli.output import console, tell


def explain(
    run: RunDirectory,
    on: Annotated[
        str,
        typer.Option("--on", help=f"Which rows: {', '.join(ROW_PARTS)}.", autocompletion=offering(ROW_PARTS)),
    ] = "test",
    rows: Annotated[int, typer.Option("--rows", help="At most so many rows, drawn at random.")] = 2000,
    repeats: Annotated[int, typer.Option("--repeats", help="How often each column is shuffled.")] = 5,
    columns: Annotated[
        int,
        typer.Option("--columns", help="At most so many columns of each party, the largest first; 0: parties alone."),
    ] = 100,
    seed: Annotated[int, typer.Option("--seed", help="Which rows, shuffles and orders are drawn.")] = 0,
    combined: Annotated[
        bool,
        typer.Option("--combined", help="Also one page of all columns, for one person who holds all tables."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder for the pages. Default: RUN/explain.", show_default=False)
    ] = None,
    as_json: Annotated[bool, json_option("Print {pages, loss, loss_without, parties}.")] = False,
) -> None:
    """Find which parties and columns a model rests on, where all models and tables are in one place."""
    from colonnade.explanation.settings import ExplainSettings
    from colonnade.launch.explain import EVERYBODY, FOLDER
    from colonnade.launch.explain import explain as find

    settings = ExplainSettings(part=on, rows=rows, repeats=repeats, columns=columns, seed=seed)
    found = find(run, settings=settings, out=out, combined=combined)
    folder = out or run / FOLDER
    pages = {name: str(folder / f"{name}.html") for name in (*found.told, *([EVERYBODY] if combined else []))}
    if as_json:
        shown = found.combined()
        print(json.dumps({"pages": pages, **{name: shown[name] for name in ("loss", "loss_without", "parties")}}))
        return
    table = Table("party", "makes the loss less by", "standard error")
    for name, one in found.parties.items():
        table.add_row(name, f"{one.value:.4f}", f"{one.standard_error:.4f}")
    console.print(table)
    console.print(
        f"Loss {found.loss:.4f}; with everybody's mean embedding {found.loss_without:.4f}. {found.rows:,} {on} rows.",
        markup=False,
        highlight=False,
    )
    if len(found.told) == 1:
        tell(f"Labels are protected in this run, so only {found.label_party} gets a page.")
    for name, page in pages.items():
        console.print(f"{name}: {page}", markup=False, highlight=False, soft_wrap=True)
