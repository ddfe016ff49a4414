"""`colonnade reproduce`: a table or figure of a paper, beside the published numbers."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from colonnade.cli.options import ClusterAddress, Pictures, Workers, check_where, json_option
from colonnade.cli.output import console, errors, interrupted, shown
from colonnade.exit_codes import ExitCode


def reproduce(
    name: Annotated[
        str, typer.Argument(help="Which one; list, or nothing, names them all.", show_default=False)
    ] = "list",
    quick: Annotated[bool, typer.Option("--quick", help="Smaller settings, in minutes instead of hours.")] = False,
    seeds: Annotated[
        int | None,
        typer.Option(help="How many seeds, from 0 on. Default: as many as the reproduction asks for.", min=1),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where finished runs, figures and the result are kept.")] = Path(
        "runs/reproductions"
    ),
    record: Annotated[
        bool, typer.Option("--record", help="Write the result down among those that docs/reproduction.md is made from.")
    ] = False,
    figures: Pictures = None,
    workers: Workers = None,
    address: ClusterAddress = None,
    as_json: Annotated[bool, json_option("Print one JSON value.")] = False,
) -> None:
    """Repeat an experiment of a paper and print it beside the published numbers."""
    check_where(workers, address)
    from colonnade.reproductions import listed
    from colonnade.reproductions import reproduce as run_reproduction
    from colonnade.reproductions.recorded import keep
    from colonnade.trials.pool import cell_runner

    if name == "list":
        _list(listed(), as_json)
        return
    words = "Runs that had finished are kept: start it again, and it goes on after them."
    with interrupted(words, ExitCode.STOPPED):
        result = run_reproduction(
            name,
            quick,
            seeds,
            lambda line: errors.print(line, markup=False, soft_wrap=True),
            folder=out,
            each=cell_runner(workers, address),
        )
    kept = keep(result, None if record else out)
    page = _write_page(result, out, figures)
    if as_json:
        print(json.dumps(result))
        return
    _show(result)
    console.print(f"Result: {kept}", markup=False, soft_wrap=True)
    console.print(f"Report: {page}", markup=False, soft_wrap=True)


def _list(found: list[dict[str, Any]], as_json: bool) -> None:
    from rich.table import Table

    from colonnade.reproductions.published import PAPERS

    if as_json:
        print(json.dumps(found))
        return
    table = Table()
    for heading in ("name", "what of which paper", "data", "minutes, quick / full"):
        table.add_column(heading, no_wrap=heading == "name")
    for one in found:
        minutes = " / ".join(shown(one[key], "{:.1f}") for key in ("quick_minutes", "full_minutes"))
        table.add_row(
            one["name"], f"{PAPERS.get(one['paper'], 'ours')}, {one['item']}", ", ".join(one["data"]), minutes
        )
    console.print(table)
    words = "Minutes: the processor time of the recorded runs on two cores; –: none is recorded."
    console.print(words, markup=False)


def _write_page(result: dict[str, Any], out: Path, figures: Path | None) -> Path:
    """The page about a result, in the folder of its runs; its figures in theirs, if one is given."""
    from colonnade.files import SHARED
    from colonnade.reports.figures import png_bytes
    from colonnade.reports.page_parts import Plot, write_figures, write_whole
    from colonnade.reports.reproduction_page import reproduction_page
    from colonnade.reproductions.drawing import by_figure, drawing_of
    from colonnade.reproductions.published import PAPERS

    plots = []
    for name, panels in by_figure(result["panels"]).items():
        figure = drawing_of(panels)
        key = "-".join(filter(None, (result["name"], name)))
        plots.append(Plot(key, f"{key}.", result["item"], png_bytes(figure), wide=True, figure=figure))
    if figures is not None:
        write_figures(figures, plots)
    page = reproduction_page(result, PAPERS.get(result["paper"], "ours"), plots)
    path = out / f"{result['name']}-{'quick' if result['quick'] else 'full'}.html"
    return write_whole(path, page.encode(), SHARED)


def _show(result: dict[str, Any]) -> None:
    from rich.table import Table

    count, quick = len(result["seeds"]), " (quick)" if result["quick"] else ""
    table = Table(title=f"{result['name']}{quick}, {count} seed{'s' if count > 1 else ''}")
    for heading in ("what", "published", "ours", "deviation", "claim", "note"):
        table.add_column(heading, justify="left" if heading in ("what", "claim", "note") else "right")
    for row in result["rows"]:
        numbers = [shown(row[key], "{:.2f}") for key in ("published", "ours", "deviation")]
        note = "; ".join(filter(None, [row["note"], f"published: {row['source']}" if row["source"] else ""]))
        held = {True: "yes: ", False: "no: ", None: ""}[row["holds"]]
        table.add_row(row["label"], *numbers, f"{held}{row['claim']}", note)
    console.print(table)
    if result["remark"]:
        console.print(result["remark"], markup=False)
