"""`colonnade data`: the data sets that go by a name."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.options import json_option
from colonnade.cli.output import console, errors, interrupted, tell
from colonnade.cli.verbs import Verb, Verbs
from colonnade.exit_codes import ExitCode

if TYPE_CHECKING:
    from rich.progress import TaskID

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


@app.command("get", cls=Verb)
def get_data(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which one; `colonnade data list` has them.")],
    url: Annotated[
        str, typer.Option("--url", help="A folder to fetch its files from, in place of the usual address.")
    ] = "",
) -> None:
    """Fetch a data set into the cache folder, check it, and show its licence."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from colonnade.data.catalogue import FOLDER_VARIABLE, names
    from colonnade.data.downloads import REMOTE, get
    from colonnade.errors import unknown_name

    known = {facts.name: facts for facts in names()}
    if name not in known:
        raise unknown_name("data set", name, known)
    if name not in REMOTE:
        here = known[name].source != FOLDER_VARIABLE
        tell(f"{name} is {known[name].source}: there is nothing to fetch." if here else _by_hand(name))
        raise typer.Exit(ExitCode.DONE if here else ExitCode.WRONG)
    tell(f"Licence: {REMOTE[name].licence}. {REMOTE[name].home}")
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with (
        interrupted(f"What has come so far is kept; go on with: colonnade data get {name}"),
        Progress(*columns, TimeRemainingColumn(), console=errors, transient=True) as shown,
    ):
        tasks: dict[str, TaskID] = {}

        def progress(file: str, done: int, whole: int) -> None:
            if file not in tasks:
                tasks[file] = shown.add_task(file.rpartition(".part")[0].rpartition(".")[0], total=whole or None)
            shown.update(tasks[file], completed=done)

        found = get(name, url, progress)
    for path in found:
        console.print(str(path), markup=False, soft_wrap=True)


def _by_hand(name: str) -> str:
    from colonnade.data.catalogue import FOLDER_VARIABLE

    return (
        f"{name} cannot be fetched: no file of it with a known checksum is given away. Put it into {FOLDER_VARIABLE}."
    )
