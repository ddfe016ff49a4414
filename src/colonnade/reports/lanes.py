"""Who worked when, from the first exchange to the last: a lane per party to zoom into, inside the page.

Coarse over the whole run, from the lines of its `live` folder: what share of each stretch a party was at work. Fine
where the excerpt of timeline.jsonl has each piece of work. Without scripts, and on paper, the page shows its pictures.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from colonnade.errors import RunError
from colonnade.reports.amounts import number
from colonnade.reports.markup import Markup
from colonnade.reports.page_parts import CLOCK_WORDS, NOTHING
from colonnade.reports.rundir import Run, json_lines

MOST_PARTIES = 40
"""Lanes of more could not be told apart, and a page is to stay small."""
_LOG = "log.jsonl"
_MARK = "data-lanes"


def lanes(run: Run) -> Markup:
    """The lanes of a run; nothing, if it recorded neither."""
    end = run.seconds
    names = [party.name for party in run.parties][:MOST_PARTIES]
    records = _records(run)
    spans = {
        name: [(one.start_seconds, one.end_seconds, one.what) for one in run.timeline if one.party == name]
        for name in names
    }
    if not end or not names or not any(records.get(name) or spans[name] for name in names):
        return NOTHING
    told = {
        "unit": CLOCK_WORDS[run.clock],
        "end": end,
        "parties": [
            {
                "name": name,
                "records": [[*map(_short, one)] for one in records.get(name, [])],
                "spans": [[_short(start), _short(stop), what] for start, stop, what in spans[name]],
            }
            for name in names
        ],
    }
    data = json.dumps(told, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return Markup(f'<div class="explorer lanes" hidden></div><script type="application/json" {_MARK}>{data}</script>')


def code_for_lanes(content: Sequence[object]) -> Markup:
    """What draws the lanes in a page's content, to stand after it; nothing, if there are none."""
    if not any(_MARK in str(part) for part in content):
        return NOTHING
    script = resources.files("colonnade.reports").joinpath("lanes.js").read_text(encoding="utf-8")
    return Markup(f"<script>{script}</script>")


def _records(run: Run) -> dict[str, list[tuple[float, float, float]]]:
    """By party: moments of the run, and how many seconds it had been at work, and away, by then."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    for line in _live_lines(run):
        moment = number(line.get("virtual" if run.clock == "virtual" else "now"))
        parties = line.get("parties")
        for name, lane in parties.items() if isinstance(parties, Mapping) else ():
            busy = number(lane.get("busy")) if isinstance(lane, Mapping) else None
            kept = found.setdefault(str(name), [])
            if moment is not None and busy is not None and (not kept or moment > kept[-1][0]):
                kept.append((moment, busy, number(lane.get("away")) or 0.0))
    return found


def _live_lines(run: Run) -> Iterator[Mapping[str, Any]]:
    folder = run.path / "live"
    for path in sorted(folder.glob("*.jsonl")) if folder.is_dir() else ():
        if path.name != _LOG:
            try:
                lines = json_lines(path)
            except RunError:
                continue  # nothing depends on these files
            yield from (line for _, line in lines)


def _short(value: float) -> float:
    return float(f"{value:.6g}")
