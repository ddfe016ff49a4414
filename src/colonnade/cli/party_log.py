"""What a party tells its operator on standard error: text for people, or one JSON object per line."""

import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import typer

from colonnade.errors import ColonnadeError
from colonnade.exit_codes import ExitCode

log = logging.getLogger("colonnade.join")

_NAME_WORDS = 5


class _JsonLines(logging.Formatter):
    """One JSON object per line. `event` is the same for all lines of one kind: its name, or its first words."""

    def __init__(self, party: str) -> None:
        super().__init__()
        self._party = party

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "party": self._party,
            "event": getattr(record, "event", _first_words(str(record.msg))),
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _first_words(form: str) -> str:
    """A name for lines that have none, from their form: `is_expelled_from_this_run` of "%s is expelled from …"."""
    plain = re.sub(r"%[-#0 +.\d]*[a-zA-Z]", " ", form)
    return "_".join(re.findall(r"[a-z]+", plain.lower())[:_NAME_WORDS]) or "said"


class _PrintedLines(io.TextIOBase):
    """Standard error for whoever prints to it instead of logging: every line becomes one of the log."""

    def __init__(self) -> None:
        super().__init__()
        self._rest = ""
        self._is_logging = False  # a log that cannot be written is complained of here; once is enough

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        if not self._is_logging:
            self._is_logging = True
            for line in filter(str.strip, lines):
                log.warning("%s", line, extra={"event": "printed"})
            self._is_logging = False
        return len(text)


def set_up_logging(kind: str, party: str) -> None:
    """What a party tells its operator, on standard error."""
    handler = logging.StreamHandler()
    if kind == "json":
        sys.stderr = _PrintedLines()  # libraries print tracebacks of their own
    text = logging.Formatter(f"%(asctime)s {party}: %(message)s", "%H:%M:%S")
    handler.setFormatter(_JsonLines(party) if kind == "json" else text)
    logging.captureWarnings(kind == "json")
    for name in ("colonnade", "asyncio", "grpc", "py.warnings"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
    logging.getLogger("colonnade").setLevel(logging.INFO)


@contextmanager
def last_words(kind: str) -> Iterator[None]:
    """Where the log is JSON, what ends the program is a line of it too, a traceback included."""
    try:
        yield
    except ColonnadeError as error:
        if kind != "json":
            raise
        facts = {"exit_code": int(error.exit_code)}
        log.error("%s", error, extra={"event": type(error).__name__, "facts": facts})
        raise typer.Exit(error.exit_code) from None
    except Exception:
        if kind != "json":
            raise
        facts = {"exit_code": int(ExitCode.FAILED)}
        log.critical("a defect of Colonnade", exc_info=True, extra={"event": "defect", "facts": facts})
        raise typer.Exit(ExitCode.FAILED) from None
