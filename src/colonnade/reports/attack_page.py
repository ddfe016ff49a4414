"""One self-contained page for `colonnade attack`: what an adversary inferred, beside chance, as bars and as numbers.

It is made from the object that attack.json holds, and shows shares and deviations, never a row's label or columns.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from colonnade.reports.bars import Bar, bars, data_link
from colonnade.reports.figures import COLOURS, GRID, INK, MUTED, png_bytes
from colonnade.reports.markup import Markup, document, element, section, table
from colonnade.reports.page_parts import Plot, settings_and_versions

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
    heads, lines = numbers(result)
    facts = f"{result['training_rows']:,} training rows, {result['trials']} trials from seed {result['seed']}"
    taken = data_link("attack", ["trial", *heads], trials(result))
    return document(
        title,
        element("h1", title),
        element("p", facts, css="subtitle"),
        *(element("p", words, css="verdict") for words in verdict(rows)),
        section("What was inferred", _bars(rows), element("p", _CAPTION[measure], " ", taken, css="small")),
        section("Numbers", table(heads, lines, numeric_from=2)),
        settings_and_versions(result.get("settings", {}), result.get("versions", {})),
        element("footer", element("p", "No row's label or columns are shown.", css="small")),
    )


def attack_plots(result: Mapping[str, Any]) -> list[Plot]:
    """What is drawn for a paper."""
    figure, (heads, lines) = attack_figure(result["rows"]), numbers(result)
    return [Plot("attack", result["name"], "", png_bytes(figure), wide=True, figure=figure, data=(heads, lines))]


def verdict(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The answer first: what the most successful line came to beside what it is compared with."""
    best = max(rows, key=lambda row: row["mean"])
    against, level = next(iter(best["beside"].items()))
    share = best["measure"] == "success"

    def told(value: float) -> str:
        return f"{100 * value:.1f} %" if share else f"{value:.3f}"

    found = f"{told(best['mean'])} of the labels or values" if share else f"columns with an R² of {told(best['mean'])}"
    said = [f"The most successful ({_line_name(best, rows)}) found {found}."]
    if math.isnan(level):
        return said
    shown = {"chance": "By chance it would be"}.get(against, f"{against[0].upper()}{against[1:]}:")
    apart = best["mean"] - level
    judged = " Nothing was found that chance would not explain." if apart <= 2 * best["deviation"] + 1e-9 else ""
    return [f"{said[0]} {shown} {told(level)}.{judged if against == 'chance' else ''}"]


def numbers(result: Mapping[str, Any]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Heads and lines of the table."""
    rows = result["rows"]
    conditions = list(dict.fromkeys(key for row in rows for key in row["conditions"]))
    beside = list(dict.fromkeys(key for row in rows for key in row["beside"]))
    lines = [
        (
            row["algorithm"],
            row["adversary"],
            *(_shown(row["conditions"][key]) if key in row["conditions"] else "–" for key in conditions),
            f"{row['mean']:.4f} ± {row['deviation']:.4f}",
            *(_beside(row, key) for key in beside),
        )
        for row in rows
    ]
    return ["algorithm", "adversary", *conditions, rows[0]["measure"], *beside], lines


def trials(result: Mapping[str, Any]) -> list[tuple[object, ...]]:
    """What came out of every trial, in the columns of the table."""
    heads, lines = numbers(result)
    place = heads.index(result["rows"][0]["measure"])
    return [
        (trial, *line[:place], value, *line[place + 1 :])
        for row, line in zip(result["rows"], lines, strict=True)
        for trial, value in enumerate(row["values"])
    ]


def _beside(row: Mapping[str, Any], key: str) -> str:
    value = row["beside"].get(key)
    return "–" if value is None or math.isnan(value) else f"{value:.4f}"


def _bars(rows: Sequence[Mapping[str, Any]]) -> Markup:
    adversaries = list(dict.fromkeys(row["adversary"] for row in rows))
    share = rows[0]["measure"] == "success"
    compared = next(iter(rows[0]["beside"]))
    lines = [
        Bar(
            _line_name(row, rows),
            row["mean"],
            f"{100 * row['mean']:.1f} %" if share else f"{row['mean']:.3f}",
            adversaries.index(row["adversary"]),
            (row["mean"] - row["deviation"], row["mean"] + row["deviation"]),
            ((compared, row["beside"].get(compared)),),
        )
        for row in rows
    ]
    lowest = min(0.0, *(row["mean"] - row["deviation"] for row in rows))
    return bars(lines, adversaries, (lowest, 1.0))


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
    return ", ".join([row["algorithm"], row["adversary"], *differing])


def _shown(condition: float | str) -> str:
    return condition if isinstance(condition, str) else f"{condition:g}"
