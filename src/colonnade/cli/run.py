"""`colonnade run`: train the federation of a file."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from colonnade import algorithms
from colonnade.cli.output import TrainingProgress, console, errors, interrupted, megabytes, stop_on_interrupt
from colonnade.data import load
from colonnade.errors import SettingsError, unknown_name
from colonnade.federation.file import Federation, federation_values, read_federation
from colonnade.launch.experiment import RUNTIMES, Outcome, train
from colonnade.reports.epsilons import in_one_line
from colonnade.reports.page import write_report
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.ray.settings import Ray


def run(
    federation: Annotated[
        Path,
        typer.Argument(
            metavar="FEDERATION.toml", help="The file, or with --resume a run's directory.", show_default=False
        ),
    ],
    runtime: Annotated[str, typer.Option(help=f"What carries the messages: {', '.join(RUNTIMES)}.")] = "simulate",
    address: Annotated[
        str | None,
        typer.Option(help="With --runtime ray: the cluster, as auto, local, HOST:PORT or ray://…", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's directory. Default: runs/NAME-ALGORITHM-SEED.", show_default=False)
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.NAME=VALUE",
            help="Change a setting of the file, such as training.epochs=20. May be repeated.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped run from its checkpoint.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Record every event and effect, for replay.")] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Do not write report.html at the end.")] = False,
    threads: Annotated[int, typer.Option(help="PyTorch threads.", min=1)] = 1,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="Wall time between checkpoints; one is always written at the end.", min=0)
    ] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, and nothing else.")] = False,
) -> None:
    """Train a federation and write its run directory."""
    if runtime not in RUNTIMES:
        raise unknown_name("runtime", runtime, RUNTIMES)
    path = federation
    if path.is_dir():
        if not resume:
            raise SettingsError(
                f"{path} is a directory. Give a federation.toml, or --resume to continue the run in it."
            )
        out = out or path
        path = path / "federation.toml"
        if not path.exists():
            raise SettingsError(f"{path.parent} is not a run to resume: it has no federation.toml.")
    settings = read_federation(path, changes or [])
    base = path.parent
    directory = out or default_directory(settings, path)
    with interrupted("The training had not begun; nothing was written."):
        data = load(settings.data, settings.party_data(), settings.label_party, base)
    settings = settings.with_absolute_files(base)
    name = algorithms.name_of(settings.algorithm)
    alone = algorithms.find(name).family is algorithms.Family.ALONE
    total = settings.training.steps(data.rows) * (1 if alone else len(data.feature_parties))
    unit = "steps" if alone else "exchanges"
    again = f"colonnade run {shlex.quote(str(directory))} --resume"
    if runtime != "simulate":
        again += f" --runtime {runtime}"
    if address is not None:
        again += f" --address {shlex.quote(address)}"
    if threads > 1:
        again += f" --threads {threads}"  # the order of additions is part of the result
    with (
        interrupted(f"If it had written a checkpoint, continue with: {again}"),
        stop_on_interrupt() as stop,
        TrainingProgress(name, total, unit, quiet=as_json) as progress,
    ):
        outcome = train(
            data,
            settings.algorithm,
            training=settings.training,
            bottom={party: settings.bottoms().get(party, settings.bottom) for party in data.columns},
            top=settings.top,
            privacy=settings.privacy,
            simulate=settings.simulate,
            seed=settings.seed,
            out=directory,
            resume=resume,
            trace=trace,
            runtime=_chosen(settings, runtime, address),
            watch=progress.watch,
            report=progress.report,
            stop_requested=stop,
            checkpoint_seconds=checkpoint_seconds,
            threads=threads,
            settings=federation_values(settings),
        )
    page = None
    if outcome.finished and not no_report:
        with interrupted(f"The run is whole; write its report with: colonnade report {shlex.quote(str(directory))}"):
            page = write_report(directory)
    if as_json:
        print(json.dumps(outcome.summary))
    else:
        show(outcome, directory, page)
    if not outcome.finished:
        errors.print(f"Stopped. Continue with: {again}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1)


def _chosen(settings: Federation, runtime: str, address: str | None) -> str | Processes | Ray:
    """The runtime with the federation's settings for it."""
    if address is not None and runtime != Ray.name:
        raise SettingsError(f"--address says which Ray cluster to use, but the runtime is {runtime}: leave it out.")
    if runtime == Ray.name:
        return settings.ray if address is None else replace(settings.ray, address=address)
    return settings.processes if runtime == Processes.name else runtime


def default_directory(settings: Federation, path: Path) -> Path:
    """runs/NAME-ALGORITHM-SEED, beside where the command is given."""
    name = settings.name or (settings.data.set if settings.data.set else path.stem)
    return Path("runs") / f"{name}-{algorithms.name_of(settings.algorithm)}-{settings.seed}"


def show(outcome: Outcome, directory: Path, page: Path | None) -> None:
    """What a person wants to know at the end of a run."""
    summary = outcome.summary
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in summary["test"].items():
        table.add_row(f"test {name.replace('_', ' ')}", f"{value:.4f}")
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
    virtual = summary["virtual_seconds"]
    table.add_row(
        "time", ("" if virtual is None else f"{virtual:.3f} virtual s, ") + f"{summary['wall_seconds']:.1f} wall s"
    )
    table.add_row("privacy", in_one_line(summary["privacy"]))
    console.print(table)
    console.print(f"Run directory: {directory}", markup=False, soft_wrap=True)
    if page is not None:
        console.print(f"Report:        {page}", markup=False, soft_wrap=True)
