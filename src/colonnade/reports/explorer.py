"""Curves to explore in a page: the figures as data, a script of ours, and uPlot, all inside the one file.

uPlot draws them: of the plotting libraries that are kept well it is the smallest by far (50 kB; Plotly's basic bundle
has a megabyte, Vega with Altair more, Bokeh nearly one), and it needs nothing else. Without scripts, and on paper, a
page shows its pictures instead.
"""

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from colonnade.reports.against import interval, rows_scored
from colonnade.reports.markup import Markup
from colonnade.reports.page_parts import CLOCK_WORDS
from colonnade.reports.rundir import MetricLine, Run, distinct_names

MOST_POINTS = 4000
"""Of one run: as many as a screen has columns."""
KEYS = "Hover for values, drag to zoom, double-click for all; with keys: + and −, ← and →, 0 for all."
_MARK = "data-curves"


def explorer(runs: Sequence[Run]) -> Markup:
    """Loss and headline metric of these runs, over whatever axis they share; nothing, if there is no curve."""
    if not any(run.curve for run in runs):
        return Markup("")
    clocks = {run.clock for run in runs}
    axes = {"exchanges": "exchanges", "megabytes": "megabytes", "epochs": "epochs"}
    if len(clocks) == 1:
        axes["seconds"] = CLOCK_WORDS[clocks.pop()]
    metric = next((run.headline for run in runs if run.headline is not None), None)
    plots = [{"key": "loss", "title": "training loss"}]
    if metric is not None:
        plots.append({"key": "metric", "title": f"{runs[0].scored_on} {metric}".replace("_", " ")})
    curves = [_curve(run, name) for run, name in zip(runs, distinct_names(list(runs)), strict=True)]
    banded = " Around the metric: the 95 % within which it may lie by the chance of the rows that were scored."
    note = KEYS + (banded if all("low" in one for one in curves) else "")
    return to_explore({"axes": axes, "plots": plots, "curves": curves, "banded": "metric", "what": "run", "note": note})


def to_explore(told: Mapping[str, Any]) -> Markup:
    """A box in which explorer.js draws `told`; a page that has any ends with `code_for`.

    `axes`: titles of the x-axes to choose from, by key. `plots`: key and title of each y-axis. `curves`: a name, and
    values by key; `low` and `high` are a band around the plot `banded`; `points`: dots without a line; `steps`: of a
    histogram; `dashed`, `ink` and `colour` say how it looks. `log`, `log_x`: scales to begin with.
    """
    # In a script a "<" could end it: JSON may spell it otherwise.
    data = json.dumps(told, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return Markup(f'<div class="explorer" hidden></div><script type="application/json" {_MARK}>{data}</script>')


def code_for(content: Sequence[object]) -> Markup:
    """What draws the curves in a page's content, to stand after it; nothing, if there are none."""
    if not any(_MARK in str(part) for part in content):
        return Markup("")
    return Markup(
        f"<style>{_file('watching', 'page/uplot.css')}</style><script>{_file('watching', 'page/uplot.js')}</script>"
        f"<script>{_file('reports', 'explorer.js')}</script>"
    )


def _curve(run: Run, name: str) -> dict[str, Any]:
    step = 1 + len(run.curve) // MOST_POINTS
    lines = [
        line for place, line in enumerate(run.curve) if place % step == 0 or (run.headline or "") in run.scored(line)
    ]

    def metric(line: MetricLine) -> float | None:
        return None if run.headline is None else run.scored(line).get(run.headline)

    def megabytes(line: MetricLine) -> float | None:
        return None if line.bytes_both_ways is None else line.bytes_both_ways / 1e6

    return {
        "name": name,
        "exchanges": [line.exchange for line in lines],
        "seconds": [_short(run.seconds_of(line)) for line in lines],
        "megabytes": [_short(megabytes(line)) for line in lines],
        "epochs": [_short(line.epoch) for line in lines],
        "loss": [_short(line.loss) for line in lines],
        "metric": [_short(metric(line)) for line in lines],
        **_sure(run, [metric(line) for line in lines]),
    }


def _sure(run: Run, values: Sequence[float | None]) -> dict[str, list[float | None]]:
    """Between which values each may lie by the chance of the rows that were scored, where that is known."""
    rows = rows_scored(run, run.scored_on)
    found = [interval(run.headline, value, rows) for value in values]
    if not any(found):
        return {}
    return {
        "low": [None if one is None else _short(one[0]) for one in found],
        "high": [None if one is None else _short(one[1]) for one in found],
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _file(room: str, name: str) -> str:
    return resources.files(f"colonnade.{room}").joinpath(*name.split("/")).read_text(encoding="utf-8")
