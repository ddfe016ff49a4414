"""`colonnade plan`: how long a training will take, what it will send, and who will wait for whom."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.names import PLACES, offering
from colonnade.cli.options import Changes, FederationFile, json_option
from colonnade.cli.output import console, errors, megabytes

if TYPE_CHECKING:
    from rich.table import Table

    from colonnade.trials.forecast import Forecast
    from colonnade.trials.plan import Planned, Variant


def plan(
    federation: FederationFile,
    set_each: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SECTION.NAME=VALUE,VALUE",
            help="A setting and its values, such as algorithm.in_flight=1,2,4. May be repeated: all combinations are "
            "forecast. Default: uploads in flight, and the batch once, twice and four times.",
            show_default=False,
        ),
    ] = None,
    changes: Changes = None,
    runtime: Annotated[
        str,
        typer.Option(
            help=f"Where it will run: {', '.join(PLACES)}. On a network every party has a machine like this one, and "
            "the links are those of [simulate].",
            autocompletion=offering(PLACES),
        ),
    ] = PLACES[0],
    seconds: Annotated[
        float, typer.Option(help="About how long each variant is rehearsed; less for quick models.", min=0.1)
    ] = 2.0,
    as_json: Annotated[bool, json_option("Print the forecasts as JSON, and nothing else.")] = False,
) -> None:
    """Foretell time, bytes and utilisation of a training and its variants, from a few exchanges made here."""
    from colonnade.cli.sweep import grid_of
    from colonnade.trials.plan import plan_training

    found = plan_training(
        federation,
        grid_of(set_each) if set_each else None,
        changes=changes or [],
        place=runtime,
        seconds=seconds,
        watch=lambda line: errors.print(line, markup=False, highlight=False),
    )
    if as_json:
        print(json.dumps(found.as_values()))
        return
    console.print(_table(found))
    for sentence in advice(found):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    for one in found.variants:
        if one.forecast is None:
            console.print(f"{_shown(one)}: {one.refused}", style="yellow", markup=False, soft_wrap=True)


def _table(found: "Planned") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    where = {"network": "every party on a machine of its own", "simulate": "in one process"}
    title = where.get(found.place, f"as processes that share {found.cores} cores")
    table = Table(title=f"Foretold: {title}", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    settings = [*dict.fromkeys(name for one in found.variants for name in one.changes)]
    for name in settings:
        table.add_column(name.partition(".")[2])
    for heading in ("time", "exchanges/s", "up", "down", "label party", "busiest other"):
        table.add_column(heading, justify="right")
    for one in found.variants:
        cells = [one.changes.get(name, "as it is") for name in settings]
        told = one.forecast
        if told is None:
            table.add_row(*cells, "refused")
            continue
        leader = next(iter(told.busy))
        other = max(share for name, share in told.busy.items() if name != leader)
        table.add_row(
            *cells,
            duration(told.seconds),
            f"{told.exchanges_per_second:,.4g}",
            megabytes(told.bytes_up),
            megabytes(told.bytes_down),
            f"{told.busy[leader]:.0%}",
            f"{other:.0%}",
        )
    return table


def advice(found: "Planned") -> list[str]:
    """What to change, and what it gives; what nobody can foretell."""
    said = []
    base = None if found.as_it_is is None else found.variants[found.as_it_is].forecast
    if base is not None:
        busiest = base.bottleneck()
        why = (
            f"{busiest} is busy {base.busy[busiest]:.0%} of the time"
            if base.busy[busiest] > 0.5
            else "everybody waits for the links most of the time"
        )
        said.append(f"As the file is: {duration(base.seconds)}, of which evaluations {_share(base)}; {why}.")
    for place, words in ((found.best_alike, "With the same algorithm and batch"), (found.best, "Of all")):
        if place is None or (place == found.best_alike and words == "Of all"):
            continue
        one = found.variants[place]
        assert one.forecast is not None
        if place == found.as_it_is:
            said.append(f"{words}, nothing that was tried is clearly faster than the file as it is.")
        else:
            said.append(f"{words}, the best is {_shown(one)}: {duration(one.forecast.seconds)}.")
    said.append(
        "All planned epochs are counted. A training may stop early, or learn less from larger batches and more uploads "
        "in flight; no forecast knows that: `colonnade tune` tries it."
    )
    return said


def _share(told: "Forecast") -> str:
    return f"{told.evaluation_seconds / told.seconds:.0%}" if told.seconds else "0%"


def _shown(one: "Variant") -> str:
    return ", ".join(f"{name} = {value}" for name, value in one.changes.items()) or "the file as it is"


def duration(seconds: float) -> str:
    """
    >>> duration(0.5), duration(75), duration(7300)
    ('0.50 s', '75 s', '2.03 h')
    """
    if seconds >= 7200:
        return f"{seconds / 3600:.3g} h"
    if seconds >= 600:
        return f"{seconds / 60:.3g} min"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
