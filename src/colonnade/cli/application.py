"""The verbs, put together. Importing this is cheap: a verb loads PyTorch and the rest when it runs, not before."""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer
from typer.main import get_command

import colonnade
from colonnade.cli import (
    account,
    algorithms,
    align,
    attack,
    audit,
    bench,
    card,
    certs,
    compare,
    data,
    demo,
    drift,
    explain,
    export,
    join,
    plan,
    predict,
    replay,
    report,
    reproduce,
    run,
    serve,
    settings,
    sweep,
    tune,
    watch,
)
from colonnade.cli.verbs import Verb, Verbs

app = typer.Typer(
    name="colonnade",
    cls=Verbs,
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    rich_markup_mode=None,  # boxes take a tenth of a second to load, and leave half of 80 columns for the words
    pretty_exceptions_enable=False,  # its tracebacks would print local variables, which may hold data
)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"colonnade {colonnade.__version__}")
        raise typer.Exit


@app.callback()
def _colonnade(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Asynchronous vertical federated learning: different columns of the same rows, one model."""


VERBS: dict[str, Callable[..., None]] = {
    "demo": demo.demo,
    "align": align.align,
    "run": run.run,
    "join": join.join,
    "leave": join.leave,
    "watch": watch.watch,
    "sweep": sweep.sweep,
    "tune": tune.tune,
    "plan": plan.plan,
    "predict": predict.predict,
    "serve": serve.serve,
    "explain": explain.explain,
    "export": export.export,
    "card": card.card,
    "drift": drift.drift,
    "report": report.report,
    "replay": replay.replay,
    "compare": compare.compare,
    "account": account.account,
    "audit": audit.audit,
    "bench": bench.bench,
    "reproduce": reproduce.reproduce,
    "algorithms": algorithms.list_algorithms,
    "settings": settings.settings,
}

for name, verb in VERBS.items():
    app.command(name, cls=Verb)(verb)
app.add_typer(attack.app, name="attack")
app.add_typer(data.app, name="data")
app.add_typer(certs.app, name="certs")


@cache
def command() -> Callable[..., Any]:
    """The whole command, put together once a process: Typer would do so at every call."""
    return get_command(app)
