"""`colonnade join` and `colonnade leave`: one party of a network run, at its own organisation."""

import io
import json
import logging
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from colonnade.algorithms import name_of
from colonnade.cli.output import console, errors, interrupted, stop_on_interrupt
from colonnade.errors import ColonnadeError, RunError, SettingsError
from colonnade.federation.file import Federation, read_federation
from colonnade.federation.party_file import PartySettings, read_party_file
from colonnade.launch.join import Joined, Participant, PeriodicReport
from colonnade.launch.join import join as take_part
from colonnade.launch.join import leave as take_leave
from colonnade.reports.page import write_report
from colonnade.runtimes.network.guest import Guest
from colonnade.runtimes.network.host import Host
from colonnade.runtimes.operations import Operations, picture_of
from colonnade.runtimes.recorder import Recorder

log = logging.getLogger("colonnade.join")

STOPPED = 3
"""The exit code of a party that was asked to stop and has saved its state: neither a failure, after which it should be
started again at once, nor the end of its part, after which it should not be started again at all."""

FederationFile = Annotated[
    Path, typer.Argument(metavar="FEDERATION.toml", help="What all parties share.", show_default=False)
]
PartyOption = Annotated[
    Path, typer.Option("--party", metavar="PARTY.toml", help="This party's own file.", show_default=False)
]
OutOption = Annotated[
    Path | None, typer.Option(help="This party's run directory. Default: runs/NAME-PARTY.", show_default=False)
]


def join(
    federation: FederationFile,
    party: PartyOption,
    out: OutOption = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Label party: begin without this feature party, which joins late or never. May be repeated.",
            show_default=False,
        ),
    ] = None,
    party_timeout: Annotated[
        float | None,
        typer.Option(
            help="Label party, synchronous algorithms: seconds to wait for a party that cannot be reached.",
            min=0,
            show_default=False,
        ),
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Record every event and effect, for replay.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, and nothing else.")] = False,
) -> None:
    """Take part in a federation over the network, as one party. Start it again to go on after a stop or a crash."""
    own = read_party_file(party)
    set_up_logging(own.party.log, own.party.name)
    again = shlex.join(["colonnade", "join", *_arguments(federation, party, out, without, party_timeout, trace)])
    with (
        last_words(own.party.log),
        interrupted(f"Continue with: {again}"),
        stop_on_interrupt(quiet=own.party.log == "json") as stop,
        ExitStack() as stack,
    ):
        shared = read_federation(federation)
        if party_timeout is not None:
            _check_timeout(shared)
        running = stack.enter_context(_Running(own.party, again))
        joined = take_part(
            shared,
            own,
            out=out,
            without=tuple(without or ()),
            party_timeout_seconds=party_timeout,
            trace=trace,
            report=PeriodicReport(),
            operate=running.begin,
            stop_requested=stop,
        )
        running.conclude()
        if joined.finished and own.party.name == shared.label_party:
            write_report(joined.directory)
    if as_json:
        print(json.dumps(joined.summary))
    if own.party.log == "json":
        _log_end(joined, again)
    else:
        _print_end(joined, again, quiet=as_json)
    if not joined.finished:
        raise typer.Exit(STOPPED)


def _arguments(
    federation: Path,
    party: Path,
    out: Path | None,
    without: list[str] | None,
    party_timeout: float | None,
    trace: bool,
) -> list[str]:
    """What to give once more to go on in the same way."""
    arguments = [str(federation), "--party", str(party)]
    if out is not None:
        arguments += ["--out", str(out)]
    for name in without or ():
        arguments += ["--without", name]
    if party_timeout is not None:
        arguments += ["--party-timeout", f"{party_timeout:g}"]
    return [*arguments, "--trace"] if trace else arguments


def _check_timeout(shared: Federation) -> None:
    """Refuse a time to wait where nobody waits: it would be ignored, and its giver rely on it."""
    if not any(field.name == "party_timeout_seconds" for field in fields(shared.algorithm)):
        raise SettingsError(
            f"--party-timeout is for algorithms that wait for a party that is lost, and {name_of(shared.algorithm)} "
            "has no such setting: leave it out."
        )


class _Running:
    """A party while it takes part: its health and metrics are seen, and its disk's failure is one sentence."""

    def __init__(self, own: PartySettings, again: str) -> None:
        self._own = own
        self._again = again
        self._directory: Path | None = None
        self._served: Operations | None = None
        self._stack = ExitStack()

    def __enter__(self) -> "_Running":
        return self

    def begin(self, participant: Participant, carrier: Host | Guest, recorder: Recorder) -> Callable[[], None]:
        """The run directory is this process's alone; so the address for metrics is free, if it is this party's."""
        self._directory = participant.directory
        if not self._own.metrics:
            return lambda: None
        self._served = self._stack.enter_context(Operations(self._own.name, self._own.metrics))
        take = partial(picture_of, carrier, recorder)
        return self._served.attend(take, lambda: participant.credentials().expires, participant.plan.chosen.name)

    def conclude(self) -> None:
        if self._served is not None:
            self._served.conclude()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._stack.close()
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):  # nobody reads what is printed
            where = error.filename or self._directory or "the run directory"
            raise RunError(
                f"{self._own.name} could not write its state in {where}: {error.strerror or error}. Free some space "
                f"there; nothing that was sent is lost. Continue with: {self._again}"
            ) from error


def _print_end(joined: Joined, again: str, quiet: bool) -> None:
    if not quiet:
        for name, value in joined.summary.get("test", {}).items():
            console.print(f"test {name}: {value:.4f}", markup=False)
        console.print(f"Run directory: {joined.directory}", markup=False, soft_wrap=True)
    if not joined.finished:
        errors.print(f"Stopped. Continue with: {again}", markup=False, highlight=False, soft_wrap=True)


def _log_end(joined: Joined, again: str) -> None:
    facts: dict[str, Any] = {"run_directory": str(joined.directory)}
    if joined.finished:
        if "test" in joined.summary:
            facts["test"] = joined.summary["test"]
        log.info("finished", extra={"event": "finished", "facts": facts})
    else:
        log.info("stopped; continue with: %s", again, extra={"event": "stopped", "facts": facts})


def leave(federation: FederationFile, party: PartyOption, out: OutOption = None) -> None:
    """Leave a federation for good: the others go on without waiting for this party."""
    own = read_party_file(party)
    set_up_logging(own.party.log, own.party.name)
    with last_words(own.party.log), interrupted("Nothing was said to the label party."):
        take_leave(read_federation(federation), own, out)
    if own.party.log == "json":
        log.info("has left the federation", extra={"event": "left"})
    else:
        console.print(f"{own.party.name} has left the federation.", markup=False)


# --- what an operator reads -------------------------------------------------------------------------------------


class _JsonLines(logging.Formatter):
    """One JSON object a line. `event` is the same for all lines of one kind: the words without names and numbers."""

    def __init__(self, party: str) -> None:
        super().__init__()
        self._party = party

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "party": self._party,
            "event": getattr(record, "event", str(record.msg)),
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


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
        facts = {"exit_code": error.exit_code}
        log.error("%s", error, extra={"event": type(error).__name__, "facts": facts})
        raise typer.Exit(error.exit_code) from None
    except Exception:
        if kind != "json":
            raise
        log.critical("a defect of Colonnade", exc_info=True, extra={"event": "defect", "facts": {"exit_code": 1}})
        raise typer.Exit(1) from None
