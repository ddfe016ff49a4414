"""Draws what a reproduction shows, from its record: panels in the axes of the paper, published values marked."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, ScalarFormatter

from colonnade.reports.figures import COLOURS, DASHES, GRID, INK, MUTED

ACROSS = 2


def drawing_of(panels: Sequence[Mapping[str, Any]]) -> Figure:
    """The panels of a record, two side by side."""
    across = min(ACROSS, len(panels))
    down = -(-len(panels) // across)
    figure = Figure(figsize=(4.8 * across, 3.3 * down), layout="constrained")
    places = figure.subplots(down, across, squeeze=False).flatten()
    for axes, panel in zip(places, panels, strict=False):
        (_draw_bars if panel["bars"] else _draw_lines)(axes, panel)
        axes.set_title(panel["title"], loc="left", fontsize=9.5, color=INK)
        axes.set_xlabel(panel["x_label"], color=MUTED, fontsize=9)
        axes.set_ylabel(panel["y_label"], color=MUTED, fontsize=9)
        axes.tick_params(colors=MUTED, labelsize=8)
        if len(panel["curves"]) > 1 or not panel["bars"]:  # what bars of one kind are, the axis says
            axes.legend(frameon=False, fontsize=7.5, handlelength=3)  # long enough for dashes
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    return figure


def by_figure(panels: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The panels of each figure; most records have one, without a name."""
    figures: dict[str, list[Mapping[str, Any]]] = {}
    for panel in panels:
        figures.setdefault(panel.get("figure", ""), []).append(panel)
    return figures


def _draw_lines(axes: Axes, panel: Mapping[str, Any]) -> None:
    """A twin of the same colour as the curve before it is dashed; published points are marked and not joined."""
    colour = -1
    for curve in panel["curves"]:
        if curve["published"]:
            axes.plot(curve["x"], curve["y"], "x", color=INK, markersize=6, label=curve["label"])
            continue
        if curve["level"]:
            axes.plot(curve["x"], curve["y"], color=INK, linestyle=DASHES[2], linewidth=1.0, label=curve["label"])
            continue
        colour += not curve["dashed"] or colour < 0
        line = DASHES[1] if curve["dashed"] else DASHES[0]
        short = {"marker": "o", "markersize": 3} if len(curve["x"]) <= 20 else {}
        look = {"color": COLOURS[colour % len(COLOURS)], "linestyle": line, "linewidth": 1.5, **short}
        axes.plot(curve["x"], curve["y"], label=curve["label"], **look)
    if panel["log_x"]:
        axes.set_xscale("log")
        ticks = sorted({x for curve in panel["curves"] for x in curve["x"]})
        if len(ticks) <= 8:
            axes.set_xticks(ticks)
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.xaxis.set_minor_formatter(NullFormatter())
        elif ticks[-1] < 100 * ticks[0]:  # with decades alone one is labelled, or none
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
    if panel["log_y"]:
        axes.set_yscale("log")
    axes.grid(True, color=GRID, linewidth=0.8)


def _draw_bars(axes: Axes, panel: Mapping[str, Any]) -> None:
    below = np.zeros(len(panel["bars"]))
    for place, curve in enumerate(panel["curves"]):
        if curve["published"]:
            axes.plot(curve["x"], curve["y"], "x", color=INK, markersize=6, label=curve["label"])
            continue
        heights = np.zeros(len(panel["bars"]))
        heights[[int(x) for x in curve["x"]]] = curve["y"]
        axes.bar(range(len(heights)), heights, bottom=below, width=0.6, color=COLOURS[place], label=curve["label"])
        below += heights
    names = [name.replace(", ", ",\n") for name in panel["bars"]]
    axes.set_xticks(range(len(names)), names, rotation=60 if len(names) > 4 else 0)
    axes.grid(True, axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def digest_of(panels: Sequence[Mapping[str, Any]]) -> str:
    """By which a drawn file is known to be of these panels."""
    return sha256(json.dumps(panels, sort_keys=True).encode()).hexdigest()[:24]
