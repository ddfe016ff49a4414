"""Figures of one run and of several: each is a Matplotlib Figure, or None if there is nothing to draw.

Figures are made with the object interface alone (no pyplot: no global state, no display). An axis says which
seconds it shows; virtual and wall seconds never share one. Colours stay apart for colour-blind readers, and
red means away.
"""

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from colonnade.reports.amounts import byte_size, count, duration, measure, number, ratio, share, significant
from colonnade.reports.comparison import ComparisonRow, shared_clock
from colonnade.reports.rundir import Clock, MetricLine, Run, Span, distinct_names

Against = Literal["exchanges", "megabytes", "seconds"]
Numbers = np.ndarray[Any, Any]

INK, MUTED, GRID = "#1f2933", "#667380", "#e4e8ec"
WAITING, AWAY = "#e3e6ea", "#d1343f"
# Okabe and Ito's order, without its red (kept for "away") and its yellow (too pale on white).
COLOURS = ("#0072b2", "#e08a00", "#009e73", "#8c5fb5", "#56b4e9", "#c2679b", "#7a6a3a", "#3d4a57")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
HALF_WIDTH_INCHES, FULL_WIDTH_INCHES = 5.0, 9.6
BUSY_BARS_SHOWN = 45
ROWS_SHOWN = 24
SMOOTH_FROM_POINTS = 80
SECONDS_LABEL: dict[Clock, str] = {
    "virtual": "virtual seconds (simulated)",
    "wall": "wall seconds (measured)",
}


def png_bytes(figure: Figure, dots_per_inch: int = 180) -> bytes:
    """The figure as a PNG file, on white; equal figures give equal bytes."""
    out = io.BytesIO()
    with warnings.catch_warnings():
        # A party named in a script that the font lacks shows boxes in the figure; the page spells it out.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(out, format="png", dpi=dots_per_inch, facecolor="white", metadata={"Software": None})
    return out.getvalue()


def svg_bytes(figure: Figure) -> bytes:
    """The figure as an SVG file with its words as words, for a paper; equal figures give equal bytes."""
    out = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "colonnade"}):
        figure.savefig(out, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
    return out.getvalue()


# --- one run ----------------------------------------------------------------------------------------------


def learning_curves(run: Run, against: Against) -> Figure | None:
    """Training loss above, headline test metric below, against exchanges, megabytes or the run's seconds."""
    return _curves([run], [None], against, target=None)


def timeline(run: Run) -> Figure | None:
    """One row per party over the first moments of a run: at work, waiting, away."""
    window = timeline_window(run.timeline)
    if window is None:
        return None
    names = _timeline_rows(run)
    figure = _figure(FULL_WIDTH_INCHES, 1.35 + 0.36 * len(names))
    axes = figure.subplots()
    _draw_timeline(axes, run, names, window)
    axes.set_xlabel(SECONDS_LABEL[run.clock], color=MUTED)
    _timeline_legend(axes)
    return figure


def utilisation(run: Run) -> Figure | None:
    """The shares of each party's time at work, waiting and away, over the whole run."""
    rows = []
    for party in run.parties[:ROWS_SHOWN]:
        parts = [party.busy_seconds or 0.0, party.idle_seconds or 0.0, party.away_seconds or 0.0]
        if sum(parts) > 0:
            rows.append((party.name, np.array(parts) / sum(parts)))
    if not rows:
        return None
    figure = _figure(HALF_WIDTH_INCHES, 1.5 + 0.34 * len(rows))
    axes = figure.subplots()
    for row, (name, (busy, idle, away)) in enumerate(rows):
        axes.barh(row, busy, height=0.66, color=_party_colour(run, name))
        axes.barh(row, idle, left=busy, height=0.66, color=WAITING)
        axes.barh(row, away, left=busy + idle, height=0.66, **_away_look())
        _beside_row(axes, row, share(float(busy)))
    _party_rows(axes, [name for name, _ in rows])
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    axes.set_xlabel("share of the party's time", color=MUTED)
    _timeline_legend(axes)
    return figure


def staleness_histogram(run: Run) -> Figure | None:
    """How often a value of each age was used; age counted in exchanges."""
    histogram = run.section("staleness").get("histogram")
    bins = staleness_bins(histogram) if isinstance(histogram, dict) else []
    if not bins:
        return None
    labels, counts = zip(*bins, strict=True)
    total = sum(counts)
    figure = _figure(HALF_WIDTH_INCHES, 3.4)
    axes = figure.subplots()
    _style(axes, grid=None)
    axes.bar(range(len(counts)), [one / total for one in counts], width=0.84, color=COLOURS[0])
    for place, one in enumerate(counts):
        if one:
            axes.annotate(
                share(one / total),
                (place, one / total),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=MUTED,
            )
    axes.set_xticks(
        range(len(labels)),
        labels,
        rotation=45 if len(labels) > 9 else 0,
        ha="right" if len(labels) > 9 else "center",
    )
    axes.set_yticks([])
    axes.tick_params(axis="x", length=0, labelcolor=INK)
    axes.spines["left"].set_visible(False)
    axes.margins(y=0.12)
    axes.set_xlabel("age of the value when it was used, in exchanges", color=MUTED)
    return figure


def bytes_by_message(run: Run) -> Figure | None:
    """What the bytes were spent on, by kind of message, the largest first."""
    sizes = {kind: number(size) or 0.0 for kind, size in run.section("bytes_by_message").items()}
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:12]
    if not largest or largest[0][1] <= 0:
        return None
    figure = _figure(HALF_WIDTH_INCHES, 0.75 + 0.42 * max(len(largest), 2))
    axes = figure.subplots()
    for row, (_, size) in enumerate(largest):
        axes.barh(row, size, height=0.66, color=COLOURS[0])
        axes.annotate(
            byte_size(size),
            (size, row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=MUTED,
        )
    _party_rows(axes, [kind for kind, _ in largest])
    axes.set_xlim(0, largest[0][1] * 1.25)  # room for the longest bar's number
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    return figure


# --- several runs -----------------------------------------------------------------------------------------


def compared_curves(runs: Sequence[Run], against: Against, target: float | None = None) -> Figure | None:
    """The learning curves of several runs in the same axes; None for seconds that cannot be compared."""
    if against == "seconds" and shared_clock(runs) is None:
        return None
    return _curves(runs, list(distinct_names(list(runs))), against, target)


def time_to_target(rows: Sequence[ComparisonRow]) -> Figure | None:
    """A bar a run: the seconds until the target was reached, with the speed-up over the slowest."""
    clock = rows[0]["clock"] if rows else None
    seconds = [row["seconds_to_target"] for row in rows]
    longest = max((one for one in seconds if one is not None), default=0.0)
    if clock is None or longest <= 0:
        return None
    figure = _figure(HALF_WIDTH_INCHES, 0.95 + 0.46 * max(len(rows), 2))
    axes = figure.subplots()
    for place, (row, one) in enumerate(zip(rows, seconds, strict=True)):
        axes.barh(place, one or 0.0, height=0.66, color=COLOURS[place % len(COLOURS)])
        speed_up = row["speed_up"]
        told = "not reached" if row["exchanges_to_target"] is None else duration(one)
        if speed_up is not None and speed_up > 1.005:
            told += f"  ({ratio(speed_up)})"
        axes.annotate(
            told,
            (one or 0.0, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=MUTED,
        )
    _party_rows(axes, [row["name"] for row in rows])
    axes.set_xlim(0, longest * 1.35)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel(f"{SECONDS_LABEL[clock]} until the target", color=MUTED)
    return figure


def compared_timelines(first: Run, second: Run) -> Figure | None:
    """Two runs' timelines, one above the other, over the same seconds."""
    windows = [timeline_window(first.timeline), timeline_window(second.timeline)]
    if windows[0] is None or windows[1] is None or first.clock != second.clock:
        return None
    # The shorter window: beyond it one of the excerpts might know nothing, which would look like waiting.
    shared = (0.0, min(windows[0][1] - windows[0][0], windows[1][1] - windows[1][0]))
    rows = [_timeline_rows(first), _timeline_rows(second)]
    figure = _figure(FULL_WIDTH_INCHES, 2.0 + 0.34 * (len(rows[0]) + len(rows[1])))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[len(rows[0]) + 1, len(rows[1]) + 1])
    run_names = distinct_names([first, second])
    for axes, run, names, window, title in zip((above, below), (first, second), rows, windows, run_names, strict=True):
        assert window is not None
        _draw_timeline(axes, run, names, shared, shift=window[0])
        axes.set_title(_plain(title, 60), loc="left", fontsize=10, fontweight="bold", color=INK)
    above.tick_params(labelbottom=False)
    below.set_xlabel(f"{SECONDS_LABEL[first.clock]} from the start of each run", color=MUTED)
    _timeline_legend(below)
    return figure


# --- a plan -----------------------------------------------------------------------------------------------


def epsilon_against_epochs(
    epochs: Sequence[float],
    curves: Sequence[tuple[str, Mapping[str, Sequence[float | None]]]],
    planned: float,
) -> Figure | None:
    """What so many epochs cost with the plan's noise: by the paper's formula dashed, by ours drawn through.

    `curves`: what is protected, then by the name of the formula ("sound" is ours) ε at each number of epochs.
    """
    figure = _figure(HALF_WIDTH_INCHES, 3.4)
    axes = figure.subplots()
    _style(axes, grid="both")
    drawn = False
    for place, (what, by_formula) in enumerate(curves):
        for nth, (formula, values) in enumerate(by_formula.items(), 1):
            dashes = DASHES[0] if formula == "sound" else DASHES[nth % len(DASHES)]
            points = [(x, y) for x, y in zip(epochs, values, strict=True) if y is not None and 0 < y < np.inf]
            if points:
                drawn = True
                look: dict[str, Any] = {"color": COLOURS[place % len(COLOURS)], "linestyle": dashes, "linewidth": 1.7}
                axes.plot(*zip(*points, strict=True), label=f"{_plain(what, 40)}: {formula}", **look)
    if not drawn:
        return None
    axes.axvline(planned, color=INK, linewidth=0.9, linestyle=(0, (2, 2)))
    axes.annotate(
        "the plan",
        (planned, 0),
        xycoords=("data", "axes fraction"),
        xytext=(4, 4),
        textcoords="offset points",
        fontsize=8,
        color=INK,
    )
    axes.set_yscale("log")
    axes.set_xlabel("epochs", color=MUTED)
    axes.set_ylabel("ε, one row's data", color=MUTED)
    figure.legend(loc="outside upper left", ncols=1, frameon=False, fontsize=8.5)
    return figure


# --- what the figures are made of -------------------------------------------------------------------------


def timeline_window(spans: Sequence[Span]) -> tuple[float, float] | None:
    """The stretch worth drawing: from the start until the party with most busy spans has shown 45 of them."""
    busy_of: dict[str, list[Span]] = {}
    for span in spans:
        if span.what == "busy":
            busy_of.setdefault(span.party, []).append(span)
    if not busy_of:
        return None
    start = min(span.start_seconds for span in spans)
    most_spans = max(busy_of.values(), key=lambda own: len(own))
    busiest = sorted(most_spans, key=lambda span: span.start_seconds)
    if len(busiest) > BUSY_BARS_SHOWN:
        end = busiest[BUSY_BARS_SHOWN - 1].end_seconds
    else:
        end = max(span.end_seconds for span in spans)
    return (start, end) if end > start else None


def staleness_bins(histogram: dict[str, Any]) -> list[tuple[str, float]]:
    """Bins with readable labels: edges 0, 1, 2, 4, 8 make "0", "1", "2–3", "4–7", without empty last ones.

    With as many edges as counts the last bin has no upper end ("8+"). Another shape gives no bins.
    """
    edges, counts = histogram.get("edges"), histogram.get("counts")
    if not isinstance(edges, list) or not isinstance(counts, list):
        return []
    if edges and number(edges[-1]) is None:
        edges = edges[:-1]  # an infinite last edge says the same as none
    lows = [low for edge in edges if (low := number(edge)) is not None]
    kept = [height for one in counts if (height := number(one)) is not None and height >= 0]
    if len(lows) != len(edges) or len(kept) != len(counts) or len(lows) - len(kept) not in (0, 1):
        return []
    bins = []
    for place, height in enumerate(kept):
        low = lows[place]
        if place + 1 >= len(lows):
            label = f"{low:g}+"
        elif low.is_integer() and lows[place + 1].is_integer():
            last = lows[place + 1] - 1
            label = f"{low:g}" if last <= low else f"{low:g}–{last:g}"
        else:
            label = f"{low:g}–{lows[place + 1]:g}"
        bins.append((label, height))
    while bins and bins[-1][1] == 0:
        bins.pop()
    return bins


def _headline_of(run: Run, headline: str, line: MetricLine) -> float | None:
    return run.scored(line).get(headline)


def _curves(runs: Sequence[Run], names: Sequence[str | None], against: Against, target: float | None) -> Figure | None:
    headline = next((run.headline for run in runs if run.headline is not None), None)
    losses = [_points(run, against, lambda line: line.loss) for run in runs]
    metrics = [_points(run, against, partial(_headline_of, run, headline or "")) for run in runs]
    scored_on = " or ".join(sorted({run.scored_on for run in runs}))
    panels = [
        (what, curves)
        for what, curves in (("training loss", losses), (f"{scored_on} {headline}".replace("_", " "), metrics))
        if any(len(x) for x, _ in curves)
    ]
    if not panels:
        return None
    figure = _figure(HALF_WIDTH_INCHES, 0.9 + 1.75 * len(panels) + (0.2 if len(runs) > 1 else 0))
    all_axes = np.atleast_1d(figure.subplots(len(panels), 1, sharex=True))
    for axes, (what, curves) in zip(all_axes, panels, strict=True):
        _draw_panel(axes, what, curves, several=len(runs) > 1)
        if what != "training loss" and target is not None:
            _mark_target(axes, headline, target)
    bottom = all_axes[-1]
    bottom.xaxis.set_major_locator(MaxNLocator(6))
    bottom.xaxis.set_major_formatter(lambda value, _: count(value) if abs(value) >= 1000 else significant(value))
    clock = runs[0].clock
    labels = {
        "exchanges": "exchanges",
        "megabytes": "megabytes sent, both ways",
        "seconds": SECONDS_LABEL[clock],
    }
    bottom.set_xlabel(labels[against], color=MUTED)
    if len(runs) > 1:
        _name_the_runs(figure, all_axes[0], names)
    return figure


def _draw_panel(axes: Axes, what: str, curves: Sequence[tuple[Numbers, Numbers]], several: bool) -> None:
    """One quantity of every run, a line each."""
    for place, (x, y) in enumerate(curves):
        look: dict[str, Any] = {"color": COLOURS[place % len(COLOURS)], "linewidth": 1.7}
        if several:
            look |= {"linestyle": DASHES[place // 2 % len(DASHES)]}
        if what == "training loss" and len(x) >= SMOOTH_FROM_POINTS:
            axes.plot(x, y, color=look["color"], linewidth=0.7, alpha=0.3)
            y = _running_mean(y, len(y) // 40)
        elif len(x) <= 30:
            look |= {"marker": "o", "markersize": 3.2}
        axes.plot(x, y, **look)
    _style(axes, grid="both")
    axes.set_ylabel(what, color=MUTED)
    heights = np.concatenate([y for _, y in curves])
    if what == "training loss" and heights.min() > 0 and heights.max() > 30 * heights.min():
        axes.set_yscale("log")
    elif what.endswith(" accuracy"):
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")


def _mark_target(axes: Axes, headline: str | None, target: float) -> None:
    axes.axhline(target, color=INK, linewidth=0.9, linestyle=(0, (2, 2)))
    axes.annotate(
        f"target {measure(headline, target)}",
        (0, target),
        xycoords=("axes fraction", "data"),
        xytext=(4, 3),
        textcoords="offset points",
        fontsize=8,
        color=INK,
    )


def _name_the_runs(figure: Figure, axes: Axes, names: Sequence[str | None]) -> None:
    """A legend above all panels."""
    handles = [
        axes.plot([], [], color=COLOURS[place % len(COLOURS)], linestyle=DASHES[place // 2 % len(DASHES)])[0]
        for place in range(len(names))
    ]
    figure.legend(
        handles,
        [_plain(name or "") for name in names],
        loc="outside upper left",
        ncols=2,
        frameon=False,
        fontsize=8.5,
    )


def _points(run: Run, against: Against, value_of: Callable[[MetricLine], float | None]) -> tuple[Numbers, Numbers]:
    points = []
    for line in run.curve:
        size = line.bytes_both_ways
        x = {
            "exchanges": float(line.exchange),
            "megabytes": None if size is None else size / 1e6,
            "seconds": run.seconds_of(line),
        }[against]
        y = value_of(line)
        if x is not None and y is not None:
            points.append((x, y))
    table = np.array(points, dtype=float).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _running_mean(values: np.ndarray[Any, Any], reach: int) -> np.ndarray[Any, Any]:
    """The mean of the values within `reach` of each place; at the ends of those that exist."""
    window = np.ones(2 * reach + 1)
    summed = np.convolve(values, window, mode="full")[reach : reach + len(values)]
    terms = np.convolve(np.ones(len(values)), window, mode="full")[reach : reach + len(values)]
    return np.asarray(summed / terms)


def _timeline_rows(run: Run) -> list[str]:
    seen = {span.party for span in run.timeline}
    return [party.name for party in run.parties if party.name in seen][:ROWS_SHOWN]


def _draw_timeline(axes: Axes, run: Run, names: list[str], window: tuple[float, float], shift: float = 0.0) -> None:
    start, end = window
    hair = (end - start) * 0.0012  # a sliver of white tells one busy span from the next
    for row, name in enumerate(names):
        place = (row - 0.36, 0.72)
        axes.broken_barh([(start, end - start)], place, facecolor=WAITING)
        busy, away, busy_seconds = [], [], 0.0
        for span in run.timeline:
            low, high = max(span.start_seconds - shift, start), min(span.end_seconds - shift, end)
            if span.party != name or high < low or low >= end:
                continue
            if span.what == "busy":
                busy.append((low, max(high - low - hair, hair)))
                busy_seconds += high - low
            elif span.what == "away":
                away.append((low, high - low))
        if away:
            axes.broken_barh(away, place, **_away_look())
        if busy:
            axes.broken_barh(busy, place, facecolor=_party_colour(run, name))
        _beside_row(axes, row, f"{share(min(busy_seconds / (end - start), 1.0))} busy")
    _party_rows(axes, names)
    axes.set_xlim(start, end)
    axes.xaxis.set_major_locator(MaxNLocator(9))


def _timeline_legend(axes: Axes) -> None:
    kinds = [
        Patch(facecolor=COLOURS[-1], label="at work (in the party's colour)"),
        Patch(facecolor=WAITING, label="waiting"),
        Patch(label="away", **_away_look()),
    ]
    figure = axes.get_figure()
    assert figure is not None
    figure.legend(handles=kinds, loc="outside upper left", ncols=3, frameon=False, fontsize=8.5)


def _away_look() -> dict[str, Any]:
    return {"facecolor": "#fbe3e4", "edgecolor": AWAY, "hatch": "////", "linewidth": 0}


def _party_colour(run: Run, name: str) -> str:
    """The label party in dark slate; feature parties by their place in the summary, in every figure alike."""
    others = [party.name for party in run.parties if party.role != "label"]
    return COLOURS[others.index(name) % (len(COLOURS) - 1)] if name in others else COLOURS[-1]


def _party_rows(axes: Axes, names: list[str]) -> None:
    _style(axes, grid=None)
    axes.set_yticks(range(len(names)), [_plain(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)  # the first row on top
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.spines["left"].set_visible(False)


def _beside_row(axes: Axes, row: int, text: str) -> None:
    axes.annotate(
        text,
        (1, row),
        xycoords=("axes fraction", "data"),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=8.5,
        color=MUTED,
    )


def _figure(width_inches: float, height_inches: float) -> Figure:
    return Figure(figsize=(width_inches, height_inches), layout="constrained")


def _style(axes: Axes, grid: Literal["both"] | None) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#b8c0c8")
    axes.tick_params(colors=MUTED, labelsize=8.5)
    axes.xaxis.label.set_fontsize(9)
    axes.yaxis.label.set_fontsize(9)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(True, which="major", color=GRID, linewidth=0.8)


def _plain(text: str, longest: int = 26) -> str:
    """A name that Matplotlib shows unchanged: dollars start no mathematics, an underscore hides nothing."""
    shown = "".join(one if one.isprintable() else " " for one in text)
    if len(shown) > longest:
        shown = f"{shown[: longest // 2]}…{shown[-(longest // 2 - 1) :]}"
    shown = shown.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown
