"""One self-contained page for `colonnade attack`: a figure and a table of what an adversary inferred, beside chance.

It is made from the object that attack.json holds, and shows shares and deviations, never a row's label or columns.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from colonnade.reports.figures import COLOURS, GRID, INK, MUTED, png_bytes
from colonnade.reports.markup import document, element, plot, section, table

_CAPTION = {
    "success": "Share of the training rows whose label, or column value within the tolerance, was inferred. "
    "Whiskers are one deviation over the trials.",
    "R²": "1 − squared error / squared error of predicting the mean: 1 is a perfect reconstruction, 0 is none. "
    "Whiskers are one deviation over the trials.",
}


def attack_page(result: Mapping[str, Any]) -> str:
    """The page's HTML."""
    rows: Sequence[Mapping[str, Any]] = result["rows"]
    measure = rows[0]["measure"]
    title = f"{result['name']} on {result['data']}"
    conditions = list(dict.fromkeys(key for row in rows for key in row["conditions"]))
    beside = list(dict.fromkeys(key for row in rows for key in row["beside"]))
    lines = [
        (
            row["algorithm"],
            row["adversary"],
            *(_shown(row["conditions"][key]) if key in row["conditions"] else "–" for key in conditions),
            f"{row['mean']:.4f} ± {row['deviation']:.4f}",
            *("–" if math.isnan(row["beside"][key]) else f"{row['beside'][key]:.4f}" for key in beside),
        )
        for row in rows
    ]
    facts = f"{result['training_rows']:,} training rows, {result['trials']} trials from seed {result['seed']}"
    return document(
        title,
        element("h1", title),
        element("p", facts, css="subtitle"),
        section("What was inferred", plot(png_bytes(attack_figure(rows)), title, _CAPTION[measure], wide=True)),
        section("Numbers", table(["algorithm", "adversary", *conditions, measure, *beside], lines, numeric_from=2)),
        element("footer", element("p", "No row's label or columns are shown.", css="small")),
    )


def attack_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """A bar for each line of the table, with a mark at what it is compared with (the first of `beside`)."""
    figure = Figure(figsize=(9.6, 1.2 + 0.42 * len(rows)), layout="constrained")
    axes = figure.subplots()
    adversaries = list(dict.fromkeys(row["adversary"] for row in rows))
    for place, row in enumerate(rows):
        colour = COLOURS[adversaries.index(row["adversary"]) % len(COLOURS)]
        whisker = {"ecolor": INK, "elinewidth": 1.0, "capsize": 2.5}
        axes.barh(place, row["mean"], height=0.62, color=colour, xerr=row["deviation"], error_kw=whisker)
        compared = next(iter(row["beside"].values()))
        label = next(iter(row["beside"])) if place == 0 else None
        axes.plot([compared, compared], [place - 0.42, place + 0.42], color=INK, linewidth=1.6, label=label)
    axes.set_yticks(range(len(rows)), [_line_name(row, rows) for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(min(0.0, *(row["mean"] - row["deviation"] for row in rows)), 1.02)
    axes.set_xlabel(rows[0]["measure"], color=MUTED, fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=MUTED, labelsize=8.5)
    axes.set_axisbelow(True)
    axes.grid(True, axis="x", color=GRID, linewidth=0.8)
    figure.legend(loc="outside upper right", frameon=False, fontsize=8.5)
    return figure


def _line_name(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Who, and those conditions that differ between the lines."""
    differing = [
        f"{key} {_shown(value)}"
        for key, value in row["conditions"].items()
        if any(other["conditions"].get(key) != value for other in rows if key in other["conditions"])
    ]
    return "  ".join([row["algorithm"], row["adversary"], *differing])


def _shown(condition: float | str) -> str:
    return condition if isinstance(condition, str) else f"{condition:g}"
