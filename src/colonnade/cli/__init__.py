"""The command line: one file a verb. A user's mistake is one sentence and exit code 2, a failed run exit code 1."""

import io
import os
import sys

from colonnade.errors import ColonnadeError

_INTERRUPTED = 130  # what Typer makes of Ctrl-C that nothing else has caught


def main() -> None:
    """The `colonnade` command."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its C core would write lines of its own beside our log
    try:
        from colonnade.cli.application import app  # in here, so that Ctrl-C while it loads is answered as well

        app(prog_name="colonnade")
    except ColonnadeError as error:
        print(f"colonnade: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("colonnade: Interrupted before anything was done.", file=sys.stderr)
        sys.exit(1)
    except SystemExit as ending:
        if ending.code != _INTERRUPTED:
            raise
        print("colonnade: Interrupted.", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        if error.filename is not None:
            raise  # a file's failure has a sentence of its own, where it is written or read
        sys.stdout = io.StringIO()  # or the interpreter would try to write the rest when it ends
        print(f"colonnade: The output could not be written: {error.strerror}.", file=sys.stderr)
        sys.exit(1)
