"""One self-contained page for `colonnade sweep`: every row of the grid with its spread over the seeds, and its curves.

It is made from the object that sweep.json holds and from the cells' run directories. A mean is always shown with how
many seeds it is of; a cell that failed is named with its sentence.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from colonnade.reports.amounts import byte_size, count, duration, flat_settings, measure, number, significant
from colonnade.reports.bars import Bar, bars, data_link
from colonnade.reports.explorer import KEYS, code_for, to_explore
from colonnade.reports.figures import (
    COLOURS,
    DASHES,
    FULL_WIDTH_INCHES,
    HALF_WIDTH_INCHES,
    INK,
    MUTED,
    SECONDS_LABEL,
    _plain,
    new_figure,
    png_bytes,
    style,
)
from colonnade.reports.markup import Markup, document, element, section, table
from colonnade.reports.page_parts import NOTHING, Plot, footer, settings_and_versions, write_figures, write_whole
from colonnade.reports.rundir import SMALLER_IS_BETTER, MetricLine, Run, read_run

AXES = {"exchanges": "exchanges", "megabytes": "megabytes", "seconds": "virtual seconds", "epochs": "epochs"}
MEASURED = ("train_loss", "exchanges", "virtual_seconds", "bytes")
ROWS_WITH_CURVES = 8
"""More curves in one figure cannot be told apart; the best rows are drawn."""


def write_sweep(directory: Path, result: Mapping[str, Any], pictures: Path | None = None) -> Path:
    """Writes `sweep.html` and `figures/*.png` into the sweep's directory; returns the path of the page.

    `pictures`: a folder for the figures as PNG and SVG files.
    """
    plots = sweep_plots(directory, result)
    for one in plots:
        write_whole(directory / "figures" / f"{one.key}.png", one.png)
    if pictures is not None:
        write_figures(pictures, plots)
    page = sweep_page(directory.resolve().name, result, plots, directory)
    return write_whole(directory / "sweep.html", page.encode("utf-8"))


def sweep_page(name: str, result: Mapping[str, Any], plots: Sequence[Plot], directory: Path | None = None) -> str:
    """The page's HTML; with the runs' directory, their curves can be explored, and their settings are told."""
    rows: Sequence[Mapping[str, Any]] = result["rows"]
    seeds = result["seeds"]
    finished = sum(row["finished"] for row in rows)
    facts = [f"{len(rows)} combination{'s' if len(rows) > 1 else ''} of settings"]
    facts += [
        f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''} each",
        f"{finished} of {len(result['cells'])} cells finished",
    ]
    if "scored_on" in result:
        facts.append(f"scored on {result['scored_on']}")
    failed = len(result["cells"]) - finished
    notice = element("p", f"{failed} cells failed; they are named below.", css="notice") if failed else ""
    curves = [one.markup() for one in plots if one.key.startswith("curves_")]
    others = [one.markup() for one in plots if one.key.startswith("setting_")]
    parts = [
        element("h1", name),
        element("p", " · ".join(facts), css="subtitle"),
        _verdict(rows),
        _tested(result.get("best")),
        notice,
        section("Rows", _table(result), element("p", _table_words(seeds), css="small")),
        section("Row by row", *_metric_bars(result)),
        section(
            "Curves",
            NOTHING if directory is None else sweep_explorer(directory, result),
            element("div", *curves, css="plots curves") if curves else NOTHING,
        ),
        section("Setting by setting", element("div", *others, css="plots") if others else NOTHING),
        section("What failed", table(["cell", "seeds", "why"], failures(rows), numeric_from=3)),
        NOTHING if directory is None else _alike(directory, result),
        footer(virtual=True),
    ]
    return document(f"{name} – Colonnade sweep", *parts, code_for(parts))


def _metric_bars(result: Mapping[str, Any]) -> list[Markup]:
    """Mean, deviation and every seed of each row, and the cells' values to take away."""
    rows = [row for row in result["rows"] if row["metric"]["mean"] is not None]
    names = {row["metric_name"] for row in rows}
    if len(names) != 1:
        return []  # different metrics share no scale
    lines = []
    for row in rows:
        mean, deviation = row["metric"]["mean"], row["metric"]["deviation"] or 0.0
        own = [cell["metric"] for cell in result["cells"] if cell["changes"] == row["changes"]]
        dots = tuple(one for one in own if one is not None)
        whisker = (mean - deviation, mean + deviation)
        # No bars: of accuracies near one another, they would be as long as one another.
        lines.append(Bar(row_name(row), None, _metric(row), whisker=whisker, marks=(("mean", mean),), dots=dots))
    heads = [*result["settings"], "seed", "status", "metric", *MEASURED]
    cells = [
        [
            *cell["changes"].values(),
            cell["seed"],
            cell["status"],
            cell["metric_name"],
            *(cell.get(key) for key in MEASURED),
        ]
        for cell in result["cells"]
    ]
    metric = names.pop().replace("_", " ")
    words = f"{metric[0].upper()}{metric[1:]}: dots are the seeds, whiskers one deviation. "
    seen = [one for line in lines for one in (*line.dots, *(line.whisker or ()))]
    space = 0.05 * (max(seen) - min(seen)) or 0.05 * abs(seen[0])
    return [
        bars(lines, ends=(min(seen) - space, max(seen) + space)),
        element("p", words, data_link("sweep", heads, cells), css="small"),
    ]


def sweep_explorer(directory: Path, result: Mapping[str, Any]) -> Markup:
    """The mean curve of every row over its seeds, with a band of one deviation; as many as can be told apart."""
    rows = [row for row in result["rows"] if row["metric"]["mean"] is not None]
    names = {row["metric_name"] for row in rows}
    if len(names) != 1:
        return NOTHING
    metric = names.pop()
    drawn, runs = _runs_to_draw(directory, result, rows)
    curves = [
        {"name": row_name(row), **curve}
        for row, own in zip(drawn, runs, strict=True)
        if (curve := _explored(own, metric)) is not None
    ]
    if not curves:
        return NOTHING
    note = f"{KEYS} Means over the seeds at each evaluation; the band is one deviation."
    if len(drawn) < len(rows):
        note += f" The {len(drawn)} best rows of {len(rows)}."
    plots = [{"key": "metric", "title": metric.replace("_", " ")}]
    told = {"axes": AXES, "plots": plots, "curves": curves, "banded": "metric", "what": "row", "note": note}
    return to_explore(told)


def _explored(runs: Sequence[Run], metric: str) -> dict[str, list[float]] | None:
    _, y, deviation = _mean_curve(runs, metric, "exchanges")
    if len(y) < 2:
        return None
    return {
        **{against: _short(_mean_curve(runs, metric, against)[0]) for against in AXES},
        "metric": _short(y),
        "low": _short(y - deviation),
        "high": _short(y + deviation),
    }


def _short(values: Any) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _alike(directory: Path, result: Mapping[str, Any]) -> Markup:
    """What all cells had alike, and with what they were made."""
    runs = [read_run(directory / cell["directory"]) for cell in result["cells"] if cell["status"] == "finished"]
    if not runs:
        return NOTHING
    told = [flat_settings(run.section("settings")) for run in runs]
    alike = {key: value for key, value in told[0].items() if all(one.get(key) == value for one in told)}
    return settings_and_versions(alike, flat_settings(runs[0].section("versions")))


def row_name(row: Mapping[str, Any]) -> str:
    """A row by its values, the names of settings left out."""
    return ", ".join(row["changes"].values()) or "as the file says"


def failures(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """What failed and why: the row, its seeds, their sentence, told once for all seeds that it is true of."""
    seeds: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for failure in row["failures"]:
            seeds.setdefault((row_name(row), failure["why"]), []).append(str(failure["seed"]))
    return [(name, ", ".join(own), why) for (name, why), own in seeds.items()]


def best_row(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The row with the best mean metric; None if the rows are judged by different ones, or by none."""
    known = [row for row in rows if row["metric"]["mean"] is not None]
    if len({row["metric_name"] for row in known}) != 1:
        return None
    choose = min if known[0]["metric_name"] in SMALLER_IS_BETTER else max
    return choose(known, key=lambda row: row["metric"]["mean"])


def _verdict(rows: Sequence[Mapping[str, Any]]) -> Markup:
    best = best_row(rows)
    if best is None or len(rows) < 2:
        return Markup("")
    metric = best["metric_name"].replace("_", " ")
    told = f"Best mean {metric}: {row_name(best)}, {_metric(best)}."
    deviation = best["metric"]["deviation"] or 0.0
    near = [
        row
        for row in rows
        if row is not best
        and row["metric"]["mean"] is not None
        and abs(row["metric"]["mean"] - best["metric"]["mean"]) <= deviation
    ]
    if near:
        told += f" Within one deviation of it: {'; '.join(row_name(row) for row in near)}."
    return element("p", told, css="verdict")


def best_on_test_rows(best: Mapping[str, Any]) -> str:
    """What the best row came to on rows that no choice was made by."""
    if best["metric"] is None:
        return f"Trained on all training rows, {row_name(best)} failed: {best['why']}"
    shown = measure(best["metric_name"], best["metric"])
    return (
        f"Trained on all training rows, {row_name(best)} has a test {best['metric_name'].replace('_', ' ')} of {shown} "
        f"(seed {best['seed']})."
    )


def _tested(best: Mapping[str, Any] | None) -> Markup:
    return element("p", best_on_test_rows(best)) if best else Markup("")


def _table(result: Mapping[str, Any]) -> Markup:
    names = {row["metric_name"] for row in result["rows"]} - {None}
    shared = names.pop() if len(names) == 1 else None
    heads = [*map(column_name, result["settings"]), "seeds", (shared or "metric").replace("_", " ")]
    heads += ["training loss", "exchanges", "virtual time", "bytes"]
    lines = [
        (
            *row["changes"].values(),
            str(row["finished"]),
            _metric(row) if shared or row["metric_name"] is None else f"{row['metric_name']} {_metric(row)}",
            _with_spread(row["train_loss"], significant),
            _with_spread(row["exchanges"], count),
            _with_spread(row["virtual_seconds"], duration),
            _with_spread(row["bytes"], byte_size),
        )
        for row in result["rows"]
    ]
    return table(heads, lines, numeric_from=len(result["settings"]))


def column_name(setting: str) -> str:
    """A setting as a heading: short, since the values are.

    >>> column_name("training.learning_rate"), column_name("algorithm.name")
    ('learning rate', 'algorithm')
    """
    return "algorithm" if setting == "algorithm.name" else setting.rpartition(".")[2].replace("_", " ")


def _table_words(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return "One seed says nothing about chance: repeat with several, --seeds 0,1,2."
    return "Mean ± sample deviation over the seeds that finished; where no deviation stands, it is zero or of one seed."


def _metric(row: Mapping[str, Any]) -> str:
    return _with_spread(row["metric"], lambda value: measure(row["metric_name"], value))


def _with_spread(value: Mapping[str, float | None], show: Any) -> str:
    told: str = show(number(value["mean"]))
    deviation = value["deviation"]
    if not deviation:
        return told
    return f"{told} ± {significant(deviation, 2) if show is significant else show(deviation)}"


# --- figures ----------------------------------------------------------------------------------------------------


def sweep_plots(directory: Path, result: Mapping[str, Any]) -> list[Plot]:
    """Every figure that there is something to draw for."""
    rows = [row for row in result["rows"] if row["metric"]["mean"] is not None]
    names = {row["metric_name"] for row in rows}
    if len(names) != 1:
        return []  # different metrics share no axis
    metric = names.pop()
    better = "lower is better" if metric in SMALLER_IS_BETTER else "higher is better"
    spread = "whiskers are one deviation over the seeds" if len(result["seeds"]) > 1 else "of one seed"
    of_rows = metric_figure(rows, result["cells"], metric)
    plots = [
        Plot(
            "metric",
            f"{metric.replace('_', ' ').capitalize()} of every row.",
            f"Large dots are means, small ones the seeds ({better}); {spread}.",
            png_bytes(of_rows),
            wide=True,
            figure=of_rows,
        )
    ]
    for setting in result["settings"]:
        figure = setting_figure(rows, setting, metric)
        if figure is not None:
            words = f"Mean {metric.replace('_', ' ')} at each value; {spread}."
            plots.append(
                Plot(
                    f"setting_{setting.replace('.', '_')}",
                    f"{setting}.",
                    words,
                    png_bytes(figure),
                    figure=figure,
                    data=(
                        [*result["settings"], metric, "deviation"],
                        [[*row["changes"].values(), *row["metric"].values()] for row in rows],
                    ),
                )
            )
    drawn, runs = _runs_to_draw(directory, result, rows)
    for key, words in (("exchanges", "exchanges"), ("seconds", "virtual seconds")):
        curves = curve_figure(drawn, runs, metric, key)
        if curves is not None:
            told = "Mean over the seeds at each evaluation; the band is one deviation."
            if len(drawn) < len(rows):
                told += f" The {len(drawn)} best rows of {len(rows)}."
            plots.append(Plot(f"curves_{key}", f"Against {words}.", told, png_bytes(curves), figure=curves))
    return plots


def metric_figure(rows: Sequence[Mapping[str, Any]], cells: Sequence[Mapping[str, Any]], metric: str) -> Figure:
    """A line per row: its seeds as small dots, their mean as a large one, one deviation as a whisker."""
    figure = new_figure(FULL_WIDTH_INCHES, 1.0 + 0.34 * len(rows))
    axes = figure.subplots()
    for place, row in enumerate(rows):
        own = [cell["metric"] for cell in cells if cell["changes"] == row["changes"] and cell["metric"] is not None]
        axes.plot(own, [place] * len(own), "o", color=MUTED, markersize=3.5, alpha=0.7)
        axes.errorbar(
            row["metric"]["mean"],
            place,
            xerr=row["metric"]["deviation"] or 0.0,
            fmt="o",
            color=COLOURS[0],
            markersize=7,
            elinewidth=1.2,
            capsize=3,
        )
    axes.set_yticks(range(len(rows)), [_plain(row_name(row), 48) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    style(axes, grid="both")
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.set_xlabel(metric.replace("_", " "), color=MUTED)
    if metric == "accuracy":
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    return figure


def setting_figure(rows: Sequence[Mapping[str, Any]], setting: str, metric: str) -> Figure | None:
    """The metric against a setting of numbers, a line for each combination of the others; None if it has no numbers."""
    lines: dict[str, list[tuple[float, float, float]]] = {}
    for row in rows:
        try:
            value = float(row["changes"][setting])
        except ValueError:
            return None
        others = ", ".join(text for name, text in row["changes"].items() if name != setting)
        lines.setdefault(others, []).append((value, row["metric"]["mean"], row["metric"]["deviation"] or 0.0))
    values = sorted({point[0] for points in lines.values() for point in points})
    if len(values) < 2 or len(lines) > ROWS_WITH_CURVES:
        return None
    figure = new_figure(HALF_WIDTH_INCHES, 3.4)
    axes = figure.subplots()
    for place, (others, points) in enumerate(lines.items()):
        x, y, deviation = zip(*sorted(points), strict=True)
        look: dict[str, Any] = {"color": COLOURS[place % len(COLOURS)], "linestyle": DASHES[place // 2 % len(DASHES)]}
        axes.errorbar(x, y, yerr=deviation, marker="o", markersize=4, capsize=3, label=_plain(others, 40), **look)
    if values[0] > 0 and values[-1] >= 8 * values[0]:
        axes.set_xscale("log")
    style(axes, grid="both")
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()
    axes.set_xlabel(setting, color=MUTED)
    axes.set_ylabel(metric.replace("_", " "), color=MUTED)
    if metric == "accuracy":
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    if len(lines) > 1:
        figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=8.5)
    return figure


def curve_figure(
    rows: Sequence[Mapping[str, Any]], runs: Sequence[Sequence[Run]], metric: str, against: str
) -> Figure | None:
    """The mean metric over each row's seeds at every evaluation, with a band of one deviation."""
    curves = [_mean_curve(own, metric, against) for own in runs]
    if not any(len(x) > 1 for x, _, _ in curves):
        return None
    figure = new_figure(HALF_WIDTH_INCHES, 3.6)
    axes = figure.subplots()
    for place, (row, (x, y, deviation)) in enumerate(zip(rows, curves, strict=True)):
        colour = COLOURS[place % len(COLOURS)]
        axes.fill_between(x, y - deviation, y + deviation, color=colour, alpha=0.15, linewidth=0)
        axes.plot(
            x,
            y,
            color=colour,
            linestyle=DASHES[place // 2 % len(DASHES)],
            linewidth=1.7,
            label=_plain(row_name(row), 40),
        )
    style(axes, grid="both")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlabel("exchanges" if against == "exchanges" else SECONDS_LABEL["virtual"], color=MUTED)
    axes.set_ylabel(metric.replace("_", " "), color=MUTED)
    if metric == "accuracy":
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=8.5)
    return figure


def _mean_curve(runs: Sequence[Run], metric: str, against: str) -> tuple[Any, Any, Any]:
    """Means over runs of the same settings, evaluation by evaluation: they evaluate at the same exchanges."""
    told = []
    for run in runs:
        lines = [line for line in run.curve if metric in run.scored(line)]
        told.append(([_place(line, against) for line in lines], [run.scored(line)[metric] for line in lines]))
    shortest = min((len(values) for _, values in told), default=0)
    x = np.array([places[:shortest] for places, _ in told]).reshape(len(told), shortest)
    y = np.array([values[:shortest] for _, values in told]).reshape(len(told), shortest)
    deviation = y.std(axis=0, ddof=1) if len(told) > 1 else np.zeros(shortest)
    return x.mean(axis=0), y.mean(axis=0), deviation


def _place(line: MetricLine, against: str) -> float:
    found = {
        "exchanges": line.exchange,
        "seconds": line.virtual_seconds,
        "megabytes": None if line.bytes_both_ways is None else line.bytes_both_ways / 1e6,
        "epochs": line.epoch,
    }
    return float(found[against] or 0.0)


def _runs_to_draw(
    directory: Path, result: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> tuple[list[Mapping[str, Any]], list[list[Run]]]:
    """The best rows, in the order of the grid, and the runs of their seeds."""
    sign = 1.0 if rows[0]["metric_name"] in SMALLER_IS_BETTER else -1.0
    best = sorted(rows, key=lambda row: sign * row["metric"]["mean"])[:ROWS_WITH_CURVES]
    drawn = [row for row in rows if any(row is one for one in best)]
    runs = [
        [
            read_run(directory / cell["directory"])
            for cell in result["cells"]
            if cell["changes"] == row["changes"] and cell["metric"] is not None
        ]
        for row in drawn
    ]
    return drawn, runs
