"""One self-contained page for `colonnade reproduce`: what a paper says beside what came out here, with its curves.

It is made from the object that `colonnade reproduce --json` prints, and from the figure that is drawn of it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from colonnade.reports.amounts import DASH, duration
from colonnade.reports.bars import Bar, bars, data_link
from colonnade.reports.explorer import KEYS, code_for, to_explore
from colonnade.reports.markup import Markup, document, element, section, table
from colonnade.reports.page_parts import NOTHING, Plot, settings_and_versions

_HEADS = ("what", "published", "ours", "deviation", "claim", "does it hold", "note", "published where")


def reproduction_page(result: Mapping[str, Any], paper: str, plots: Sequence[Plot] = ()) -> str:
    """The page's HTML; `paper` is its name in words."""
    seeds = result["seeds"]
    title = f"{result['name']}{' (quick)' if result['quick'] else ''}"
    facts = [f"{paper}, {result['item']}", f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}"]
    facts += [f"run on {result['date']} in {duration(result['seconds'])}", result["machine"]]
    panels = [_panel(panel, place) for place, panel in enumerate(result["panels"])]
    taken = data_link(result["name"], _HEADS, [_line(row) for row in result["rows"]])
    circumstances = {"seeds": seeds, "date": result["date"], "machine": result["machine"], "commit": result["commit"]}
    # Bars are on paper as they are; of curves, a picture is.
    drawn = [one.markup() for one in plots] if any(not panel["bars"] for panel in result["panels"]) else []
    pictures = element("div", *drawn, css="curves") if drawn else NOTHING
    parts = [
        element("h1", title),
        element("p", " · ".join(facts), css="subtitle"),
        element("p", verdict(result["rows"]), css="verdict"),
        element("p", result["remark"]) if result["remark"] else NOTHING,
        section("Published and ours", NOTHING if panels else _beside(result["rows"])),
        section("Figures", *panels, pictures),
        section("Numbers", table(_HEADS, [_told(row) for row in result["rows"]], numeric_from=len(_HEADS)), taken),
        settings_and_versions(circumstances, result["versions"]),
        element("footer", element("p", "Published numbers are read from the papers; ours were run here.", css="small")),
    ]
    return document(f"{title} – Colonnade reproduction", *parts, code_for(parts))


def verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """The answer first: how many of the paper's claims came out here, and which did not."""
    claimed = [row for row in rows if row["holds"] is not None]
    if not claimed:
        return "Nothing is claimed of these numbers; they stand beside the published ones below."
    missed = [row["label"] for row in claimed if not row["holds"]]
    said = f"{len(claimed) - len(missed)} of {len(claimed)} claims came out here."
    return f"{said} Not: {'; '.join(missed)}." if missed else said


def _beside(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Ours as bars, what was published as marks, where anything was and one scale does for both."""
    if not any(row["published"] is not None for row in rows) or any(row["ours"] is None for row in rows):
        return Markup("")
    lines = [
        Bar(
            row["label"],
            row["ours"],
            f"{row['ours']:.4g}",
            whisker=None
            if row["deviation"] is None
            else (row["ours"] - row["deviation"], row["ours"] + row["deviation"]),
            marks=(("published", row["published"]),),
        )
        for row in rows
    ]
    return bars(lines, ["ours"])


def _panel(panel: Mapping[str, Any], place: int) -> Markup:
    """One part of a figure: bars, or curves to explore."""
    heading = element("h3", ": ".join(filter(None, [panel["title"], panel["y_label"]])))
    if panel["bars"]:
        return element("div", heading, _named_bars(panel))
    xs = [x for curve in panel["curves"] for x in curve["x"]]
    told = {
        "axes": {"x": panel["x_label"]},
        "plots": [{"key": "y", "title": panel["y_label"]}],
        "curves": _curves(panel["curves"]),
        "log": panel["log_y"],
        "log_x": panel["log_x"] and min(xs, default=0.0) > 0,
        "file": f"panel-{place + 1}",
        "note": KEYS,
    }
    return element("div", heading, to_explore(told))


def _named_bars(panel: Mapping[str, Any]) -> Markup:
    """A bar for each name and kind; what was published marks it."""
    ours = [curve for curve in panel["curves"] if not curve["published"]]
    published = {
        int(x): (curve["label"], y)
        for curve in panel["curves"]
        if curve["published"]
        for x, y in zip(curve["x"], curve["y"], strict=True)
    }
    lines = [
        Bar(
            panel["bars"][int(x)] + (f": {curve['label']}" if len(ours) > 1 else ""),
            y,
            f"{y:.4g}",
            at,
            marks=(published[int(x)],) if int(x) in published else (),
        )
        for at, curve in enumerate(ours)
        for x, y in zip(curve["x"], curve["y"], strict=True)
    ]
    return bars(lines, [curve["label"] for curve in ours] if len(ours) > 1 or published else ())


def _curves(curves: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A dashed one has the colour of the curve before it; what is published is dots in the page's ink."""
    found, colour = [], -1
    for curve in curves:
        own = {"name": curve["label"], "x": curve["x"], "y": curve["y"]}
        if curve["published"] or curve["level"]:
            found.append({**own, "ink": True, "points": curve["published"]})
            continue
        colour += not curve["dashed"] or colour < 0
        found.append({**own, "colour": colour, "dashed": curve["dashed"]})
    return found


def _line(row: Mapping[str, Any]) -> list[object]:
    keys = ("label", "published", "ours", "deviation", "claim", "holds", "note", "source")
    return [row[key] for key in keys]


def _told(row: Mapping[str, Any]) -> list[object]:
    held = {True: "yes", False: "no", None: DASH}[row["holds"]]
    numbers = [DASH if row[key] is None else f"{row[key]:.4g}" for key in ("published", "ours", "deviation")]
    return [row["label"], *numbers, row["claim"] or DASH, held, row["note"], row["source"]]
