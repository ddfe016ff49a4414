"""`colonnade data`: the data sets that go by a name."""

import json
from typing import Annotated

import typer

from colonnade.cli.options import json_option
from colonnade.cli.output import console
from colonnade.cli.verbs import Verb, Verbs

app = typer.Typer(cls=Verbs, help="Data sets that go by a name.", no_args_is_help=True)


@app.callback()
def _data() -> None:
    """Data sets that go by a name."""


@app.command("list", cls=Verb)
def list_data(as_json: Annotated[bool, json_option("Print the list as JSON.")] = False) -> None:
    """List the data sets, and where each comes from."""
    from rich.table import Table

    from colonnade.data.catalogue import names

    if as_json:
        print(json.dumps([facts._asdict() for facts in names()]))
        return
    table = Table()
    for heading in ("set", "rows", "columns", "task", "source"):
        table.add_column(heading, justify="right" if heading in ("rows", "columns") else "left")
    for facts in names():
        table.add_row(facts.name, f"{facts.rows:,}", f"{facts.columns:,}", facts.task, facts.source)
    console.print(table)
