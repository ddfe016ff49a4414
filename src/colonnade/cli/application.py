"""The verbs, put together. Importing this brings in PyTorch and all the rest, which takes a second or two."""

import typer

from colonnade.cli import (
    account,
    algorithms,
    attack,
    audit,
    bench,
    certs,
    compare,
    data,
    demo,
    join,
    replay,
    report,
    reproduce,
    run,
    sweep,
)

app = typer.Typer(
    name="colonnade",
    help="Asynchronous vertical federated learning: different columns of the same rows, one model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # its tracebacks would print local variables, which may hold data
)
app.command("demo")(demo.demo)
app.command("run")(run.run)
app.command("join")(join.join)
app.command("leave")(join.leave)
app.command("sweep")(sweep.sweep)
app.command("report")(report.report)
app.command("replay")(replay.replay)
app.command("compare")(compare.compare)
app.command("account")(account.account)
app.command("attack")(attack.attack)
app.command("audit")(audit.audit)
app.command("bench")(bench.bench)
app.command("reproduce")(reproduce.reproduce)
app.command("algorithms")(algorithms.list_algorithms)
app.add_typer(data.app, name="data")
app.add_typer(certs.app, name="certs")
