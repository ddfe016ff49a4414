"""`colonnade bench`: the claims of speed, measured here and now."""

import json
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.names import BENCHMARKS, algorithm_names, offering
from colonnade.cli.options import json_option
from colonnade.cli.output import console, errors


def bench(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=f"Which benchmark: {', '.join(BENCHMARKS)}. All without a name.",
            autocompletion=offering(BENCHMARKS),
            show_default=False,
        ),
    ] = "",
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Of `defaults`: where its figures are kept as they are measured. What is there is not measured again.",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ALGORITHM",
            help="Of `defaults`: this algorithm alone; may be given several times.",
            autocompletion=offering(algorithm_names),
            show_default=False,
        ),
    ] = None,
    unseen: Annotated[
        list[int] | None,
        typer.Option(
            metavar="SEED",
            help="Of `defaults`: a table drawn from this seed, not the twelve sets; may be given several times.",
            min=0,
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, json_option("Print one JSON object per benchmark.")] = False,
) -> None:
    """Measure ratios side by side in one run, against their targets."""
    from rich.table import Table

    from colonnade.benchmarks import benchmarks, measure
    from colonnade.benchmarks.benchmark import Part, meets

    part = Part(tuple(only or ()), keep, tuple(unseen or ())) if keep or only or unseen else None
    for chosen in [name] if name else benchmarks():
        result = measure(chosen, lambda line: errors.print(line, markup=False), part)
        if as_json:
            print(json.dumps(result))
            continue
        table = Table(title=f"{chosen} ({result['machine']}, {result['seconds']} s)")
        for heading in ("key", "measured", "target", ""):
            table.add_column(heading, justify="right" if heading == "measured" else "left")
        for key, value in result["ratios"].items():
            target = result["targets"].get(key, "")
            verdict = "" if not target else "met" if meets(value, target) else "MISSED"
            table.add_row(key, f"{value:,.3f}", target, verdict)
        console.print(table)
