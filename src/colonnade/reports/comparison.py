"""Runs side by side: what each needed (time, exchanges, bytes) to reach one target.

The target is by default the worst final headline metric among the runs, so that every run reached it: of those that
are better than one prediction for all rows. It is reached at the first evaluation at least as good; nothing is
interpolated between evaluations. Virtual and wall seconds are never compared: where the runs differ in their clock, no
time is given.
"""

import math
from collections.abc import Sequence
from typing import TypedDict

from colonnade.errors import SettingsError
from colonnade.reports.rundir import SMALLER_IS_BETTER, Clock, Run, distinct_names


class ComparisonRow(TypedDict):
    """One run of a comparison. None: never reached, not recorded, or (seconds, speed_up) not comparable."""

    name: str
    algorithm: str
    runtime: str
    metric: str | None
    final_metric: float | None
    baseline: float | None  # of one prediction for all rows
    target: float | None
    clock: Clock | None
    seconds_to_target: float | None
    exchanges_to_target: float | None
    bytes_to_target: float | None
    speed_up: float | None


def comparison_rows(runs: Sequence[Run], target: float | None = None) -> list[ComparisonRow]:
    """One row per run, in the order given. `speed_up` is over the slowest run that reached the target."""
    headline = _shared_headline(runs)
    if target is not None and not math.isfinite(target):
        raise SettingsError(f"The target to compare at must be a finite number, not {target}.")
    finals = [run.final_metric for run in runs if run.final_metric is not None and run.beats_baseline is not False]
    if target is None and finals:
        target = max(finals) if headline in SMALLER_IS_BETTER else min(finals)
    clock = shared_clock(runs)
    rows = [
        _row(run, name, headline, target, clock) for run, name in zip(runs, distinct_names(list(runs)), strict=True)
    ]
    reached = [row["seconds_to_target"] for row in rows if row["seconds_to_target"] is not None]
    for row in rows:
        if row["seconds_to_target"]:
            row["speed_up"] = max(reached) / row["seconds_to_target"]
    return rows


def why_no_target(rows: Sequence[ComparisonRow]) -> str:
    """Of rows that have none."""
    if all(row["final_metric"] is None for row in rows):
        return "No run evaluated anything, so there is no target to reach."
    return "No run is better than one prediction for all rows, so there is no target worth reaching."


def shared_clock(runs: Sequence[Run]) -> Clock | None:
    """The clock that all runs are told in, or None if some were simulated and some were not."""
    clocks = {run.clock for run in runs}
    return clocks.pop() if len(clocks) == 1 else None


def _shared_headline(runs: Sequence[Run]) -> str | None:
    named = {run.headline: run.name for run in runs if run.headline is not None}
    if len(named) > 1:
        told = ", ".join(f"{name!r} by {metric}" for metric, name in named.items())
        raise SettingsError(
            f"These runs are judged by different metrics ({told}), so no target fits all of them. "
            "Compare runs of the same task."
        )
    return next(iter(named), None)


def _row(run: Run, name: str, headline: str | None, target: float | None, clock: Clock | None) -> ComparisonRow:
    row = ComparisonRow(
        name=name,
        algorithm=run.algorithm,
        runtime=run.runtime,
        metric=headline,
        final_metric=run.final_metric,
        baseline=run.baseline,
        target=target,
        clock=clock,
        seconds_to_target=None,
        exchanges_to_target=None,
        bytes_to_target=None,
        speed_up=None,
    )
    if headline is None or target is None:
        return row

    def good_enough(value: float | None) -> bool:
        if value is None:
            return False
        return value <= target if headline in SMALLER_IS_BETTER else value >= target

    for line in run.curve:
        if good_enough(run.scored(line).get(headline)):
            row["exchanges_to_target"] = line.exchange
            row["bytes_to_target"] = line.bytes_both_ways
            row["seconds_to_target"] = run.seconds_of(line) if clock else None
            return row
    # The last evaluation may stand in the summary alone; it was made at the run's end.
    if good_enough(run.final_metric):
        row["exchanges_to_target"] = run.total("exchanges")
        row["bytes_to_target"] = run.bytes_both_ways
        row["seconds_to_target"] = run.seconds if clock else None
    return row
