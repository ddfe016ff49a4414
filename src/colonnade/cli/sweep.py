"""`colonnade sweep`: a grid of settings, times seeds."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.options import ClusterAddress, Pictures, Workers, check_where, json_option
from colonnade.cli.output import console, interrupted, megabytes, shown, tell
from colonnade.errors import SettingsError
from colonnade.exit_codes import ExitCode

if TYPE_CHECKING:
    from rich.table import Table


def sweep(
    federation: Annotated[
        Path,
        typer.Argument(metavar="FEDERATION.toml", help="The file that every cell begins with.", show_default=False),
    ],
    set_each: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SECTION.NAME=VALUE,VALUE",
            help="A setting and its values, such as training.l2=0,0.01. May be repeated: all combinations are run.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(metavar="SEED,SEED", help="Seeds with which every cell is repeated.")] = "0",
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.NAME=VALUE",
            help="Change a setting of the file in every cell. May be repeated.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The sweep's directory. Default: sweeps/FEDERATION.", show_default=False)
    ] = None,
    workers: Workers = None,
    address: ClusterAddress = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep cells that have finished, run the others.")] = False,
    validation: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Share of the training rows on which cells are scored. The best is then trained on all of them, and "
            "scored on the test rows. 0: every cell is scored on the test rows.",
        ),
    ] = 0.2,
    figures: Pictures = None,
    as_json: Annotated[bool, json_option("Print what sweep.json holds, and nothing else.")] = False,
) -> None:
    """Run a federation with every combination of settings and seeds, and tell what they gave."""
    from colonnade.cli.progress import SweepProgress
    from colonnade.reports.sweep_page import best_on_test_rows, failures, write_sweep
    from colonnade.trials.sweep import sweep as run_sweep

    each = grid_of(set_each or [])
    directory = out or Path("sweeps") / federation.stem
    check_where(workers, address)
    with (
        interrupted("Cells that had finished are kept: give the same command again with --resume.", ExitCode.STOPPED),
        SweepProgress(quiet=as_json) as progress,
    ):
        result = run_sweep(
            federation,
            each,
            seeds=_seeds(seeds),
            out=directory,
            changes=changes or [],
            workers=workers,
            address=address,
            resume=resume,
            finished=progress.finished,
            validation=validation,
        )
        page = write_sweep(directory, result, figures)
    if as_json:
        print(json.dumps(result))
    else:
        console.print(sweep_table(result))
        if result["best"] is not None:
            console.print(best_on_test_rows(result["best"]), markup=False, soft_wrap=True)
        for cell, failed, why in failures(result["rows"]):
            tell(f"{cell}, seed {failed}: {why}")
        console.print(f"Report: {page}", markup=False, soft_wrap=True)
    if any(row["failures"] for row in result["rows"]):
        raise typer.Exit(ExitCode.FAILED)


def grid_of(set_each: list[str]) -> dict[str, list[str]]:
    """The values of `--set-each`, by setting."""
    from colonnade.trials.sweep import split_values

    grid: dict[str, list[str]] = {}
    for one in set_each:
        name, equals, values = one.partition("=")
        if not equals or "." not in name:
            raise SettingsError(
                f"--set-each {one!r}: write it as section.name=value,value, such as training.l2=0,0.01."
            )
        if name.strip() in grid:
            raise SettingsError(f"--set-each {name.strip()} is given twice: write all its values in one list.")
        grid[name.strip()] = split_values(values)
    return grid


def _seeds(text: str) -> list[int]:
    try:
        return [int(one) for one in text.split(",")]
    except ValueError:
        raise SettingsError(f"--seeds {text!r}: write whole numbers with commas between them, such as 0,1,2.") from None


def sweep_table(result: dict[str, Any]) -> "Table":
    """The rows of a sweep for the terminal; ± is one deviation over the seeds."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from colonnade.reports.sweep_page import column_name

    named = {row["metric_name"] for row in result["rows"]} - {None}
    metric = named.pop() if len(named) == 1 else "metric"
    title = f"{len(result['seeds'])} seed{'s' if len(result['seeds']) > 1 else ''}, mean ± deviation"
    if "scored_on" in result:
        title += f", scored on {result['scored_on']}"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for setting in result["settings"]:
        table.add_column(column_name(setting))
    for heading in (metric, "loss", "exchanges", "virtual s", "bytes"):
        table.add_column(heading, justify="right")
    for row in result["rows"]:
        failed = len(row["failures"])
        note = f" ({failed} failed)" if failed and row["finished"] else "failed" if failed else ""
        table.add_row(
            *row["changes"].values(),
            (f"{row['metric_name']} " if named and row["finished"] else "")
            + (_spread(row["metric"], "{:.4f}") if row["finished"] else "")
            + note,
            _spread(row["train_loss"], "{:.4f}"),
            _spread(row["exchanges"], "{:,.0f}"),
            _spread(row["virtual_seconds"], "{:.2f}"),
            shown(row["bytes"]["mean"], "{}", megabytes),
        )
    return table


def _spread(value: dict[str, float | None], form: str) -> str:
    mean = shown(value["mean"], form)
    return f"{mean} ± {form.format(value['deviation'])}" if value["deviation"] else mean
