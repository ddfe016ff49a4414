"""A training as it shows itself in Python: one line at a prompt, a small table with its curve in a notebook."""

from collections.abc import Mapping, Sequence
from typing import Any

from colonnade.reports.amounts import byte_size, count, duration, measure, number, significant
from colonnade.reports.markup import Markup, element, table

_WIDTH, _HEIGHT = 320, 90
_MOST_POINTS = 160


def in_one_line(summary: Mapping[str, Any]) -> str:
    """What was trained, and what came of it.

    >>> in_one_line({"algorithm": "vafl", "status": "finished", "epochs": 3.0, "exchanges": 42,
    ...              "test": {"accuracy": 0.921}, "headline": "accuracy", "parties": {"label": {}, "shop": {}}})
    'vafl, finished: 3 epochs, 42 exchanges, 2 parties, test accuracy 92.10 %'
    """
    said = [
        f"{significant(number(summary.get('epochs')))} epochs",
        f"{count(number(summary.get('exchanges')))} exchanges",
    ]
    said.append(f"{len(summary.get('parties', {}))} parties")
    headline = str(summary.get("headline", ""))
    if headline in summary.get("test", {}):
        said.append(f"test {headline.replace('_', ' ')} {measure(headline, number(summary['test'][headline]))}")
    return f"{summary.get('algorithm')}, {summary.get('status')}: {', '.join(said)}"


def as_html(summary: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> str:
    """The same, with bytes, time and the curve, for whoever shows HTML. Colours are those of the page around it."""
    seconds = summary.get("virtual_seconds")
    rows = [
        *((f"test {name.replace('_', ' ')}", measure(name, number(value))) for name, value in summary["test"].items()),
        ("training loss", significant(number(summary.get("train_loss")))),
        ("exchanges", count(number(summary.get("exchanges")))),
        ("bytes up, down", f"{byte_size(summary.get('bytes_up'))}, {byte_size(summary.get('bytes_down'))}"),
        ("virtual time" if seconds is not None else "time", duration(seconds or summary.get("wall_seconds"))),
    ]
    curve = _curve(str(summary.get("headline", "")), metrics)
    return element("div", element("p", element("strong", in_one_line(summary))), table((), rows), curve)


def _curve(headline: str, metrics: Sequence[Mapping[str, Any]]) -> Markup:
    """The headline's metric over the exchanges; nothing if it was evaluated less than twice."""
    points = [
        (float(line["exchange"]), value)
        for line in metrics
        if (value := number((line.get("metric") or {}).get(headline))) is not None
    ]
    points = points[:: max(1, len(points) // _MOST_POINTS)]
    if len(points) < 2:
        return Markup("")
    (left, right), low, high = (points[0][0], points[-1][0]), min(y for _, y in points), max(y for _, y in points)
    placed = " ".join(
        f"{_WIDTH * (x - left) / ((right - left) or 1):.1f},{_HEIGHT - _HEIGHT * (y - low) / ((high - low) or 1):.1f}"
        for x, y in points
    )
    words = f"test {headline.replace('_', ' ')} from {measure(headline, low)} to {measure(headline, high)}"
    line = Markup(
        f'<svg role="img" aria-label="{words}" viewBox="-4 -4 {_WIDTH + 8} {_HEIGHT + 8}" width="{_WIDTH}" '
        f'height="{_HEIGHT}"><polyline points="{placed}" fill="none" stroke="currentColor" stroke-width="2"/></svg>'
    )
    return element("figure", line, element("figcaption", words, f", over {count(right)} exchanges"))
