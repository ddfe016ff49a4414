"""The command line: one file per verb. A user's mistake is one sentence; exit_codes.py says what a command returns."""

import io
import os
import sys

from colonnade.errors import ColonnadeError
from colonnade.exit_codes import ExitCode


def main() -> None:
    """The `colonnade` command."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its C core would write lines of its own beside our log
    try:
        from colonnade.cli.application import command  # in here, so that Ctrl-C while it loads is answered as well

        command()(prog_name="colonnade")
    except ColonnadeError as error:
        print(f"colonnade: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("colonnade: Interrupted before anything was done.", file=sys.stderr)
        sys.exit(ExitCode.INTERRUPTED)
    except OSError as error:
        if error.filename is not None:
            raise  # a file's failure has a sentence of its own, where it is written or read
        sys.stdout = io.StringIO()  # or the interpreter would try to write the rest when it ends
        print(f"colonnade: The output could not be written: {error.strerror}.", file=sys.stderr)
        sys.exit(ExitCode.FAILED)
