"""`colonnade run`: train the federation of a file."""

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.names import RUNTIMES, offering
from colonnade.cli.options import Changes, Devices, Trace, Tracked, WatchAddress, Watched, devices_of, json_option
from colonnade.cli.output import console, interrupted, megabytes, tell
from colonnade.cli.watch import page_for
from colonnade.errors import DataError, SettingsError, unknown_name
from colonnade.exit_codes import ExitCode

if TYPE_CHECKING:
    from colonnade.federation.file import Federation
    from colonnade.launch.outcome import Outcome
    from colonnade.runtimes.processes.settings import Processes
    from colonnade.runtimes.ray.settings import Ray
    from colonnade.runtimes.simulate.settings import Simulate


def run(
    federation: Annotated[
        Path,
        typer.Argument(
            metavar="FEDERATION.toml", help="The file, or with --resume a run's directory.", show_default=False
        ),
    ],
    runtime: Annotated[
        str,
        typer.Option(help=f"What carries the messages: {', '.join(RUNTIMES)}.", autocompletion=offering(RUNTIMES)),
    ] = "simulate",
    address: Annotated[
        str | None,
        typer.Option(help="With --runtime ray: the cluster, as auto, local, HOST:PORT or ray://…", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's directory. Default: runs/NAME-ALGORITHM-SEED.", show_default=False)
    ] = None,
    changes: Changes = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a stopped run, or a finished one with more epochs.")
    ] = False,
    start: Annotated[
        str | None,
        typer.Option("--from", help="Begin with the model of this run or folder.", metavar="RUN", show_default=False),
    ] = None,
    accept_if_better: Annotated[
        bool,
        typer.Option(
            "--accept-if-better", help="With --from: keep the model only if it is no worse on validation rows."
        ),
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help="Train also if fewer than half of a party's rows match. Else it asks, or in a script ends.",
        ),
    ] = False,
    trace: Trace = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Do not write report.html at the end.")] = False,
    threads: Annotated[int, typer.Option(help="PyTorch threads.", min=1)] = 1,
    device: Devices = None,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="Wall time between checkpoints; one is always written at the end.", min=0)
    ] = 30.0,
    watched: Watched = False,
    watch_address: WatchAddress = "127.0.0.1:0",
    track: Tracked = None,
    as_json: Annotated[bool, json_option("Print the summary as JSON, and nothing else.")] = False,
) -> None:
    """Train a federation and write its run directory."""
    if runtime not in RUNTIMES:
        raise unknown_name("runtime", runtime, RUNTIMES)
    path = _file_of_run(federation) if resume and federation.is_dir() else federation
    if path.is_dir():
        raise SettingsError(f"{path} is a directory. Give a federation.toml, or --resume to continue the run in it.")
    with interrupted("The training had not begun; nothing was written."):
        from colonnade.cli.progress import progress_of, tell_data
        from colonnade.federation.file import federation_values
        from colonnade.launch.baseline import LITTLE_LEARNT
        from colonnade.launch.experiment import train_plan
        from colonnade.launch.run_options import RunOptions
        from colonnade.prediction.starting import load_with_start, notes_on_start
        from colonnade.runtimes.interrupt import stop_on_interrupt

        settings = _asked_for(path, changes or [], start, track or [])
        directory = out or (federation if federation.is_dir() else default_directory(settings, path))
        data, model = load_with_start(settings, path.parent)
    if not as_json:
        tell_data(data, settings.plan(data))
        for note in [] if model is None else notes_on_start(model, data):
            tell(note)
    if data.notes and not (yes or resume):
        _ask_whether_to_train(data.notes, as_json)
    settings = settings.with_absolute_files(path.parent)
    again = _again(directory, runtime, address, threads, accept_if_better, device or [])
    with (
        interrupted(f"If it had written a checkpoint, continue with: {again}"),
        stop_on_interrupt() as stop,
        page_for(directory, watched, watch_address),
        progress_of(settings, data, quiet=as_json) as progress,
    ):
        options = RunOptions(
            *(directory, resume, trace),
            watch=progress.watch,
            report=progress.report,
            stop_requested=stop,
            checkpoint_seconds=checkpoint_seconds,
            threads=threads,
            device=devices_of(device or []),
            settings=federation_values(settings),
            start=model,
            track=settings.track,
            accept_if_better=accept_if_better,
        )
        outcome = train_plan(data, settings.plan(data), _chosen(settings, runtime, address), options)
    page = _report(directory) if outcome.finished and not no_report else None
    if as_json:
        print(json.dumps(outcome.summary))
    else:
        show(outcome, directory, page)
    if outcome.summary.get("little_learnt"):
        tell(LITTLE_LEARNT)
    if not outcome.finished:
        tell(f"Stopped. Continue with: {again}")
        raise typer.Exit(ExitCode.STOPPED)
    if not outcome.summary.get("acceptance", {}).get("accepted", True):
        tell("The model is not accepted, and was not written: the one that the training began with is better.")
        raise typer.Exit(ExitCode.NOT_BETTER)


def _ask_whether_to_train(notes: Sequence[str], as_json: bool) -> None:
    """On few rows, for a cause that is likely a mistake. Where nobody can be asked, it is not done unasked."""
    if sys.stdin.isatty() and not as_json:
        typer.confirm("Train on these rows all the same?", abort=True, err=True)
        return
    told = f"{' '.join(notes)} " if as_json else ""  # which has been told, otherwise
    raise DataError(f"{told}Nobody can be asked here: mend the ids, or say --yes to train on these rows all the same.")


def _asked_for(path: Path, changes: list[str], start: str | None, track: list[str]) -> "Federation":
    """The federation of a file, with what the command line says besides."""
    from colonnade.federation.file import read_federation
    from colonnade.tracking.settings import with_asked

    settings = read_federation(path, changes)
    settings = replace(settings, track=with_asked(settings.track.with_absolute_folders(path.parent), track))
    if start is None:
        return settings
    return replace(settings, start=replace(settings.start, model=str(Path(start).absolute())))


def _file_of_run(directory: Path) -> Path:
    """The federation of a run that is to be resumed."""
    path = directory / "federation.toml"
    if not path.exists():
        raise SettingsError(f"{directory} is not a run to resume: it has no federation.toml.")
    return path


def _again(
    directory: Path, runtime: str, address: str | None, threads: int, accept_if_better: bool, device: list[str]
) -> str:
    """The command that resumes this run."""
    again = f"colonnade run {shlex.quote(str(directory))} --resume"
    if runtime != "simulate":
        again += f" --runtime {runtime}"
    if address is not None:
        again += f" --address {shlex.quote(address)}"
    if accept_if_better:
        again += " --accept-if-better"
    if threads > 1:
        again += f" --threads {threads}"  # the order of additions is part of the result
    again += "".join(f" --device {one}" for one in device)
    return again


def _report(directory: Path) -> Path:
    with interrupted(f"The run is whole; write its report with: colonnade report {shlex.quote(str(directory))}"):
        from colonnade.reports.run_page import write_report

        return write_report(directory)


def _chosen(settings: "Federation", runtime: str, address: str | None) -> "Simulate | Processes | Ray":
    """The runtime with the federation's settings for it."""
    from colonnade.runtimes.processes.settings import Processes
    from colonnade.runtimes.ray.settings import Ray

    if address is not None and runtime != Ray.name:
        raise SettingsError(f"--address says which Ray cluster to use, but the runtime is {runtime}: leave it out.")
    if runtime == Ray.name:
        return settings.ray if address is None else replace(settings.ray, address=address)
    return settings.processes if runtime == Processes.name else settings.simulate


def default_directory(settings: "Federation", path: Path) -> Path:
    """runs/NAME-ALGORITHM-SEED, beside where the command is given."""
    from colonnade import algorithms

    name = settings.name or (settings.data.set if settings.data.set else path.stem)
    return Path("runs") / f"{name}-{algorithms.name_of(settings.algorithm)}-{settings.seed}"


def show(outcome: "Outcome", directory: Path, page: Path | None) -> None:
    """What a person wants to know at the end of a run."""
    from rich.table import Table

    from colonnade.reports.epsilons import in_one_line

    summary = outcome.summary
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in summary["test"].items():
        table.add_row(f"test {name.replace('_', ' ')}", f"{value:.4f}")
    if "acceptance" in summary:
        judged = summary["acceptance"]
        table.add_row(
            f"validation {judged['metric'].replace('_', ' ')}", f"{judged['after']:.4f}, before {judged['before']:.4f}"
        )
    if summary["train_loss"] is not None:
        table.add_row("training loss (last epoch)", f"{summary['train_loss']:.4f}")
    if summary["exchanges"]:
        table.add_row("exchanges", f"{summary['exchanges']:,}")
        table.add_row("bytes up / down", f"{megabytes(summary['bytes_up'])} / {megabytes(summary['bytes_down'])}")
        table.add_row("evaluation bytes", megabytes(summary["evaluation_bytes"]))
        stale = summary["staleness"]
        table.add_row("staleness", f"mean {stale['mean']:.1f}, p95 {stale['p95']}, max {stale['max']} exchanges")
    if summary["counts"]["late_rows"]:
        table.add_row("used though old", f"{summary['counts']['late_rows']:,} embeddings or products of rows")
    if summary["counts"]["abandoned_sums"]:
        table.add_row("sums given up", f"{summary['counts']['abandoned_sums']:,}, a party being away")
    if "step_cuts" in summary:
        when = ", ".join(f"{epoch:.3g}" for epoch in summary["step_cuts"])
        table.add_row("began again", f"with shorter steps, after {when} epochs: the training did not descend")
    if summary["counts"]["fall_backs"]:
        table.add_row("curvature given up", f"{summary['counts']['fall_backs']:,} times, for shorter steps")
    virtual = summary["virtual_seconds"]
    table.add_row(
        "time", ("" if virtual is None else f"{virtual:.3f} virtual s, ") + f"{summary['wall_seconds']:.1f} wall s"
    )
    table.add_row("privacy", in_one_line(summary["privacy"]))
    console.print(table)
    console.print(f"Run directory: {directory}", markup=False, soft_wrap=True)
    if page is not None:
        console.print(f"Report:        {page}", markup=False, soft_wrap=True)
