"""The command line: one file a verb. A user's mistake is one sentence and exit code 2, a failed run exit code 1."""

import sys

import typer

from colonnade.cli import algorithms, bench, compare, data, demo, report, run
from colonnade.errors import ColonnadeError

app = typer.Typer(
    name="colonnade",
    help="Asynchronous vertical federated learning: different columns of the same rows, one model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # its tracebacks would print local variables, which may hold data
)
app.command("demo")(demo.demo)
app.command("run")(run.run)
app.command("report")(report.report)
app.command("compare")(compare.compare)
app.command("bench")(bench.bench)
app.command("algorithms")(algorithms.list_algorithms)
app.add_typer(data.app, name="data")


def main() -> None:
    """The `colonnade` command."""
    try:
        app()
    except ColonnadeError as error:
        print(f"colonnade: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("colonnade: interrupted before anything was started; nothing was written.", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone: not worth a word
        sys.exit(1)
