"""`colonnade join` and `colonnade leave`: one party of a network run, at its own organisation."""

import json
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.one_party import one_party
from colonnade.cli.options import (
    PartyDirectory,
    PartyFile,
    SharedFile,
    Trace,
    Tracked,
    WatchAddress,
    Watched,
    json_option,
)
from colonnade.cli.output import console, interrupted, tell
from colonnade.cli.party_log import last_words, log, set_up_logging
from colonnade.cli.watch import page_for
from colonnade.errors import RunError, SettingsError
from colonnade.exit_codes import ExitCode

if TYPE_CHECKING:
    from colonnade.federation.file import Federation
    from colonnade.federation.party_file import PartySettings
    from colonnade.launch.join import Joined
    from colonnade.launch.participant import Participant
    from colonnade.runtimes.network.guest import Guest
    from colonnade.runtimes.network.host import Host
    from colonnade.runtimes.operations import Operations
    from colonnade.runtimes.recorder import Recorder


def join(
    federation: SharedFile,
    party: PartyFile,
    out: PartyDirectory = None,
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
    trace: Trace = False,
    quarantine: Annotated[
        bool,
        typer.Option(
            "--quarantine",
            help="Go on past a message in this party's journal that it cannot handle again: the message is put aside, "
            "and its sender is expelled.",
        ),
    ] = False,
    watched: Watched = False,
    watch_address: WatchAddress = "127.0.0.1:0",
    track: Tracked = None,
    as_json: Annotated[bool, json_option("Print the summary as JSON, and nothing else.")] = False,
) -> None:
    """Take part in a federation over the network, as one party. Start it again to go on after a stop or a crash."""
    again = shlex.join(["colonnade", "join", *_arguments(federation, party, out, without, party_timeout, trace, track)])
    with one_party(party, again) as (own, stop), ExitStack() as stack:
        from colonnade.federation.file import read_federation
        from colonnade.launch.join import join as take_part
        from colonnade.launch.member import default_directory
        from colonnade.tracking.settings import with_asked

        shared = read_federation(federation)
        if party_timeout is not None:
            _check_timeout(shared)
        running = stack.enter_context(_Running(own.party, again))
        if watched:
            stack.enter_context(page_for(out or default_directory(shared, own), watched, watch_address))
        joined = take_part(
            shared,
            own,
            out=out,
            without=tuple(without or ()),
            party_timeout_seconds=party_timeout,
            trace=trace,
            quarantine=quarantine,
            operate=running.begin,
            track=with_asked(own.track.with_absolute_folders(own.base), track or []),
            stop_requested=stop,
        )
        running.conclude()
        if joined.finished and own.party.name == shared.label_party:
            from colonnade.reports.run_page import write_report

            write_report(joined.directory)
    if as_json:
        print(json.dumps(joined.summary))
    if own.party.log == "json":
        _log_end(joined, again)
    else:
        _print_end(joined, again, quiet=as_json)
    if not joined.finished:
        raise typer.Exit(ExitCode.STOPPED)


def _arguments(
    federation: Path,
    party: Path,
    out: Path | None,
    without: list[str] | None,
    party_timeout: float | None,
    trace: bool,
    track: list[str] | None,
) -> list[str]:
    """What to give once more to go on in the same way."""
    arguments = [str(federation), "--party", str(party)]
    if out is not None:
        arguments += ["--out", str(out)]
    for name in without or ():
        arguments += ["--without", name]
    if party_timeout is not None:
        arguments += ["--party-timeout", f"{party_timeout:g}"]
    for sink in track or ():
        arguments += ["--track", sink]
    return [*arguments, "--trace"] if trace else arguments


def _check_timeout(shared: "Federation") -> None:
    """Refuse a time to wait where nobody waits: it would be ignored, and whoever gave it would rely on it."""
    from colonnade.algorithms import name_of

    if not any(field.name == "party_timeout_seconds" for field in fields(shared.algorithm)):
        raise SettingsError(
            f"--party-timeout is for algorithms that wait for a party that is lost, and {name_of(shared.algorithm)} "
            "has no such setting: leave it out."
        )


class _Running:
    """A party while it takes part: its health and metrics are seen, and its disk's failure is one sentence."""

    def __init__(self, own: "PartySettings", again: str) -> None:
        self._own = own
        self._again = again
        self._directory: Path | None = None
        self._served: Operations | None = None
        self._stack = ExitStack()

    def __enter__(self) -> "_Running":
        return self

    def begin(self, participant: "Participant", carrier: "Host | Guest", recorder: "Recorder") -> Callable[[], None]:
        """The run directory is this process's alone; so the address for metrics is free, if it is this party's."""
        from colonnade.runtimes.operations import Operations, picture_of

        self._directory = participant.directory
        for counts in participant.row_counts.values():
            tell(f"{self._own.name}: {counts.held:,} rows held, {counts.used:,} used")
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


def _print_end(joined: "Joined", again: str, quiet: bool) -> None:
    if not quiet:
        for name, value in joined.summary.get("test", {}).items():
            console.print(f"test {name}: {value:.4f}", markup=False)
        console.print(f"Run directory: {joined.directory}", markup=False, soft_wrap=True)
    if not joined.finished:
        tell(f"Stopped. Continue with: {again}")


def _log_end(joined: "Joined", again: str) -> None:
    facts: dict[str, Any] = {"run_directory": str(joined.directory)}
    if joined.finished:
        if "test" in joined.summary:
            facts["test"] = joined.summary["test"]
        log.info("finished", extra={"event": "finished", "facts": facts})
    else:
        log.info("stopped; continue with: %s", again, extra={"event": "stopped", "facts": facts})


def leave(federation: SharedFile, party: PartyFile, out: PartyDirectory = None) -> None:
    """Leave a federation for good: the others go on without waiting for this party."""
    from colonnade.federation.party_file import read_party_file

    own = read_party_file(party)
    set_up_logging(own.party.log, own.party.name)
    with last_words(own.party.log), interrupted("Nothing was said to the label party."):
        from colonnade.federation.file import read_federation
        from colonnade.launch.join import leave as take_leave

        take_leave(read_federation(federation), own, out)
    if own.party.log == "json":
        log.info("has left the federation", extra={"event": "left"})
    else:
        console.print(f"{own.party.name} has left the federation.", markup=False)
