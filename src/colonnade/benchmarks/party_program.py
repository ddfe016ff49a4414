"""One party's program in a benchmark, `colonnade join` itself: `python -m colonnade.benchmarks.party_program SOCKET` is
the fork server that starts them. Nothing imports this file, for it imports the command line.
"""

import importlib
import sys
from contextlib import redirect_stdout
from io import StringIO

from colonnade.cli.application import app
from colonnade.errors import ColonnadeError
from colonnade.exit_codes import ExitCode
from colonnade.runtimes.processes.fork_server import serve

_LOADED = (
    "colonnade.launch.join",
    "colonnade.runtimes.network.tls_lines",
    "colonnade.runtimes.operations",
    "colonnade.reports.run_page",
    "pyarrow.compute",
)


def main(arguments: list[str]) -> int:
    """What a started process does: a whole command, to its exit code."""
    try:
        return int(app(arguments, prog_name="colonnade", standalone_mode=False) or ExitCode.DONE)
    except ColonnadeError as error:
        print(f"colonnade: {error}", file=sys.stderr)
        return error.exit_code
    except SystemExit as ending:
        return int(ending.code or ExitCode.DONE)


if __name__ == "__main__":
    # Loaded once, here: the verb itself would load them in every process anew.
    for module in _LOADED:
        importlib.import_module(module)
    with redirect_stdout(StringIO()):
        main(["join", "--help"])  # what the command line loads when it is used
    serve(int(sys.argv[1]), main)
