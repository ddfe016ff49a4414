"""`colonnade compare`: several runs side by side."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.options import Pictures, json_option
from colonnade.cli.output import console, megabytes, shown, tell

if TYPE_CHECKING:
    from rich.table import Table

    from colonnade.reports import ComparisonRow


def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="The directories of two or more runs.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("comparison.html"),
    target: Annotated[
        float | None,
        typer.Option(
            help="The metric to reach. Default: the worst final one of runs that beat one prediction for all rows.",
            show_default=False,
        ),
    ] = None,
    figures: Pictures = None,
    as_json: Annotated[bool, json_option("Print the rows as JSON.")] = False,
) -> None:
    """Compare runs: time, exchanges and bytes to the same metric."""
    from colonnade.reports import comparison_rows, read_run
    from colonnade.reports.comparison import why_no_target
    from colonnade.reports.comparison_page import write_comparison

    page = write_comparison(runs, out, target, figures)
    rows = comparison_rows([read_run(run) for run in runs], target)
    if as_json:
        print(json.dumps({"report": str(page), "rows": rows}))
        return
    console.print(comparison_table(rows))
    if rows[0]["target"] is None:
        tell(why_no_target(rows))
    console.print(f"Report: {page}", markup=False, soft_wrap=True)


def comparison_table(rows: "Sequence[ComparisonRow]") -> "Table":
    """Rows of a comparison for the terminal."""
    from rich.table import Table

    first = rows[0]
    target = first["target"]
    table = Table(title=None if target is None else f"to reach {first['metric']} {target:.4g}")
    for heading in ("run", "algorithm", f"{first['clock'] or ''} seconds".strip(), "speed-up", "exchanges", "bytes"):
        # A name is whole on a narrow terminal, too: runs often differ in its end alone.
        table.add_column(heading, justify="left" if heading in ("run", "algorithm") else "right", overflow="fold")
    table.add_column(f"final {first['metric']}", justify="right")
    for row in rows:
        table.add_row(
            row["name"],
            row["algorithm"],
            shown(row["seconds_to_target"], "{:.2f}"),
            shown(row["speed_up"], "{:.2f}×"),
            shown(row["exchanges_to_target"], "{:,}"),
            shown(row["bytes_to_target"], "{}", megabytes),
            shown(row["final_metric"], "{:.4f}"),
        )
    return table
