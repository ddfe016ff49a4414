"""`colonnade align`: the rows that all parties hold, in one order; in one place, or as one party over the network."""

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.names import RUNTIMES, offering
from colonnade.cli.one_party import one_party
from colonnade.cli.options import Changes, SharedFile, json_option
from colonnade.cli.output import console, interrupted, show_learnt, tell
from colonnade.errors import DataError, unknown_name
from colonnade.exit_codes import ExitCode

if TYPE_CHECKING:
    from colonnade.federation.file import Federation


def align(
    federation: SharedFile,
    party: Annotated[
        Path | None,
        typer.Option(
            "--party",
            metavar="PARTY.toml",
            help="This party's own file: takes part over the network. Without: all tables lie here.",
            show_default=False,
        ),
    ] = None,
    runtime: Annotated[
        str,
        typer.Option(
            help=f"Without --party, what carries the messages: {', '.join(RUNTIMES)}.",
            autocompletion=offering(RUNTIMES),
        ),
    ] = "simulate",
    out: Annotated[
        Path | None,
        typer.Option(
            help="The directory to write. Default: runs/NAME-align, or runs/NAME-PARTY-align.", show_default=False
        ),
    ] = None,
    changes: Changes = None,
    method: Annotated[
        str,
        typer.Option(
            help="With ecdh nobody is shown an id that not all parties hold. hashed is quicker and LEAKS: the label "
            "party can test, for every id that it can guess, whether a party holds it, and sees what each two share. "
            "All parties must give the same.",
            show_default="that of the file, ecdh",
        ),
    ] = "",
    yes: Annotated[
        bool, typer.Option("--yes", help="Take the result even if fewer than half of a party's ids match.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Without --party: continue a stopped alignment from its checkpoint.")
    ] = False,
    workers: Annotated[int, typer.Option(help="Processes that multiply, per party. 0: one per core.", min=0)] = 0,
    trace: Annotated[bool, typer.Option("--trace", help="Record every event and effect.")] = False,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="Without --party: wall time between checkpoints.", min=0)
    ] = 30.0,
    as_json: Annotated[bool, json_option("Print the outcome as JSON, and nothing else.")] = False,
) -> None:
    """Find the rows that all parties hold, in one order, without showing ids that not all hold.

    With alignment.rows = "any": which of the label party's rows each party holds.
    """
    changes = [*(changes or []), *([f'alignment.method="{method}"'] if method else [])]
    if party is not None:
        _as_party(federation, party, out, changes, workers, yes, trace, as_json)
        return
    if runtime not in RUNTIMES:
        raise unknown_name("runtime", runtime, RUNTIMES)
    with interrupted("The alignment had not begun; nothing was written."):
        from colonnade.cli.progress import TrainingProgress
        from colonnade.federation.file import federation_values, read_federation
        from colonnade.launch.alignment import align as align_all
        from colonnade.launch.run_options import RunOptions
        from colonnade.runtimes.interrupt import stop_on_interrupt

        settings = read_federation(federation, changes)
        directory = out or Path("runs") / f"{settings.name or federation.stem}-align"
        settings = settings.with_absolute_files(federation.parent)
    again = shlex.join(_again(federation, directory, runtime, changes))
    with (
        interrupted(f"If it had written a checkpoint, continue with: {again}"),
        stop_on_interrupt() as stop,
        TrainingProgress("align", 1.0, "multiplications", quiet=as_json) as progress,
    ):
        options = RunOptions(
            directory,
            resume=resume,
            trace=trace,
            watch=progress.watch,
            report=progress.report,
            stop_requested=stop,
            checkpoint_seconds=checkpoint_seconds,
            settings=federation_values(settings),
        )
        chosen = getattr(settings, runtime)
        each = workers or _cores_each(settings, runtime)
        done = align_all(settings, federation.parent, chosen, options, each, lambda warnings: _accepted(warnings, yes))
    if not done.finished:
        tell(f"Stopped. Continue with: {again}")
        raise typer.Exit(ExitCode.STOPPED)
    if not done.written:
        raise _refused(f"{again} --yes")
    if as_json:
        print(json.dumps(done.summary))
        return
    for name, told in done.summary["parties"].items():
        _show(told, directory / name)


def _again(federation: Path, directory: Path, runtime: str, changes: list[str]) -> list[str]:
    """What continues an alignment of tables in one place."""
    command = ["colonnade", "align", str(federation), "--out", str(directory), "--resume"]
    if runtime != "simulate":
        command += ["--runtime", runtime]
    for change in changes:
        command += ["--set", change]
    return command


def _cores_each(settings: "Federation", runtime: str) -> int:
    """In one process the parties take turns; in processes of their own they share the cores."""
    cores = os.cpu_count() or 1
    return cores if runtime == "simulate" else max(1, cores // max(1, len(settings.parties)))


def _accepted(warnings: Mapping[str, str], yes: bool) -> bool:
    for warning in filter(None, warnings.values()):
        tell(warning)
    return yes or (sys.stdin.isatty() and typer.confirm("Take these rows all the same?"))


def _refused(again: str) -> DataError:
    return DataError(
        "Hardly any rows match, and nobody said that this is right: no rows were written. Mend the ids or the rules "
        f"and align anew; or take the result, which is kept, with: {again}"
    )


def _as_party(
    federation: Path,
    party: Path,
    out: Path | None,
    changes: list[str],
    workers: int,
    yes: bool,
    trace: bool,
    as_json: bool,
) -> None:
    """One party of an alignment over the network, at its own organisation."""
    command = ["colonnade", "align", str(federation), "--party", str(party)]
    command += ["--out", str(out)] if out is not None else []
    for change in changes:
        command += ["--set", change]
    again = shlex.join(command)
    with one_party(party, again) as (own, stop):
        from colonnade.federation.file import read_federation
        from colonnade.launch.alignment_network import align_party

        done = align_party(
            read_federation(federation, changes),
            own,
            out=out,
            workers=workers or os.cpu_count() or 1,
            accepts=lambda warning: _accepted({own.party.name: warning}, yes),
            trace=trace,
            stop_requested=stop,
        )
        if done.finished and not done.written:
            raise _refused(f"{again} --yes")
    if as_json:
        print(json.dumps(done.summary))
    elif done.finished:
        _show(done.summary, done.directory)
    if not done.finished:
        tell(f"Stopped. Continue with: {again}")
        raise typer.Exit(ExitCode.STOPPED)


def _show(told: Mapping[str, Any], folder: Path) -> None:
    """What a party wants to know at the end: its own, and nobody else's."""
    own = told["own"]
    left_out = [f"{own[what]} {what}" for what in ("missing", "malformed", "repeated") if own[what]]
    whose = "shared rows" if told["rows"] == "all" else f"of {told['total']:,} rows of {told['label_party']}"
    console.print(
        f"{told['party']}: {told['shared']:,} {whose} ({told['train']:,} train, {told['validation']:,} validation, "
        f"{told['test']:,} test) of {own['usable']:,} usable ids",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    if left_out:
        console.print(f"  left out: {', '.join(left_out)} of {own['held']:,} rows", markup=False, highlight=False)
    show_learnt(told["learnt"])
    console.print(f"  rows: {folder / 'rows.csv'}", markup=False, highlight=False, soft_wrap=True)
