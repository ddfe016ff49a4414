"""`colonnade join` and `colonnade leave`: one party of a network run, at its own organisation."""

import json
import logging
import shlex
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import console, errors, interrupted, stop_on_interrupt
from colonnade.federation import read_federation
from colonnade.joining import PeriodicReport
from colonnade.joining import join as take_part
from colonnade.joining import leave as take_leave
from colonnade.party_file import read_party_file
from colonnade.reports.page import write_report

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
    shared = read_federation(federation)
    set_up_logging(own.party.log, own.party.name)
    again = shlex.join(["colonnade", "join", str(federation), "--party", str(party)])
    if out is not None:
        again += f" --out {shlex.quote(str(out))}"
    with interrupted(f"Continue with: {again}"), stop_on_interrupt(quiet=own.party.log == "json") as stop:
        joined = take_part(
            shared,
            own,
            out=out,
            without=tuple(without or ()),
            party_timeout_seconds=party_timeout,
            trace=trace,
            report=PeriodicReport(),
            stop_requested=stop,
        )
    if joined.finished and own.party.name == shared.label_party:
        write_report(joined.directory)
    if as_json:
        print(json.dumps(joined.summary))
    else:
        for name, value in joined.summary.get("test", {}).items():
            console.print(f"test {name}: {value:.4f}", markup=False)
        console.print(f"Run directory: {joined.directory}", markup=False, soft_wrap=True)
    if not joined.finished:
        errors.print(f"Stopped. Continue with: {again}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1)


def leave(federation: FederationFile, party: PartyOption, out: OutOption = None) -> None:
    """Leave a federation for good: the others go on without waiting for this party."""
    own = read_party_file(party)
    with interrupted("Nothing was said to the label party."):
        take_leave(read_federation(federation), own, out)
    console.print(f"{own.party.name} has left the federation.", markup=False)


class _JsonLines(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, party: str) -> None:
        super().__init__()
        self._party = party

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "party": self._party,
            "message": record.getMessage(),
        }
        return json.dumps(line)


def set_up_logging(kind: str, party: str) -> None:
    """What a party tells its operator, on standard error."""
    handler = logging.StreamHandler()
    text = logging.Formatter(f"%(asctime)s {party}: %(message)s", "%H:%M:%S")
    handler.setFormatter(_JsonLines(party) if kind == "json" else text)
    logger = logging.getLogger("colonnade")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
