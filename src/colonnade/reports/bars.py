"""Bars of a page: a line for each, with its value as a word, a bar, whiskers and marks. No picture and no script.

They follow the page's colours, can be read on a phone, on paper and by a screen reader, and show what they stand for
under the pointer. Beside them stands their data, to be taken away.
"""

import base64
import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite

from colonnade.reports.markup import Markup, element


@dataclass(frozen=True)
class Bar:
    """One line: `said` is what is read, `whisker` from where to where, `marks` what it is held against, by name."""

    name: str
    value: float | None
    said: str
    kind: int = 0
    """its colour, as a place among `kinds`"""
    whisker: tuple[float, float] | None = None
    marks: tuple[tuple[str, float | None], ...] = ()
    dots: tuple[float, ...] = ()


def bars(lines: Sequence[Bar], kinds: Sequence[str] = (), ends: tuple[float, float] | None = None) -> Markup:
    """A list of bars over one scale, which begins at 0 unless a value is below; `ends`: over that one."""
    known = [one for line in lines for one in _values(line)]
    low, high = ends or (min([0.0, *known]), max([0.0, *known]))
    if not lines or high <= low:
        return Markup("")
    names = list(dict.fromkeys(name for line in lines for name, value in line.marks if value is not None))

    def at(value: float) -> float:
        return 100 * min(1.0, max(0.0, (value - low) / (high - low)))

    def span(css: str, start: float, end: float) -> Markup:
        left, right = sorted((at(start), at(end)))
        return Markup(f'<i class="{css}" style="left:{left:.2f}%;width:{right - left:.2f}%"></i>')

    def drawn(line: Bar) -> Markup:
        parts = []
        if line.value is not None and isfinite(line.value):
            parts.append(span(f"bar c{line.kind % 6}", max(low, 0.0), line.value))
        if line.whisker is not None:
            parts.append(span("whisker", *line.whisker))
        parts += [span("dot", one, one) for one in line.dots]
        marks = [(names.index(name), name, value) for name, value in line.marks if value is not None]
        parts += [span(f"mark m{place % 4}", value, value) for place, _, value in marks if isfinite(value)]
        words = "; ".join([f"{line.name}: {line.said}", *(f"{name} {value:.4g}" for _, name, value in marks)])
        title = escape(words, quote=True)
        return Markup(f'<div class="scale" title="{title}">{"".join(parts)}</div>')

    listed = [
        element("li", element("span", line.name), element("span", line.said, css="said"), drawn(line)) for line in lines
    ]
    ruler = Markup(
        f'<li class="ruler" aria-hidden="true"><span></span><span></span><div><span>{low:.4g}</span>'
        f"<span>{(low + high) / 2:.4g}</span><span>{high:.4g}</span></div></li>"
    )
    # Each line is a grid of its own: with one width for all words, all scales begin at one place.
    wide = max(len(line.said) for line in lines)
    inside = "".join([*listed, ruler])
    return element("div", _legend(kinds, names), Markup(f'<ul class="bars" style="--said:{wide}ch">{inside}</ul>'))


def _values(line: Bar) -> list[float]:
    found = [line.value, *(line.whisker or ()), *(value for _, value in line.marks), *line.dots]
    return [one for one in found if one is not None and isfinite(one)]


def _legend(kinds: Sequence[str], marks: Sequence[str]) -> Markup:
    keys = [f'<span><i class="bar c{at % 6}"></i> {escape(name)}</span>' for at, name in enumerate(kinds)]
    keys += [f'<span><i class="mark m{at % 4}"></i> {escape(name)}</span>' for at, name in enumerate(marks)]
    return element("p", Markup(" ".join(keys)), css="legend") if keys else Markup("")


def data_link(name: str, heads: Sequence[str], lines: Sequence[Sequence[object]]) -> Markup:
    """A link with the values in it, as CSV: it is taken away without a server and without a script."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([["" if cell is None else cell for cell in line] for line in lines])
    encoded = base64.b64encode(out.getvalue().encode()).decode("ascii")
    kind = "data:text/csv;charset=utf-8;base64,"
    return Markup(f'<a class="data" download="{escape(name)}.csv" href="{kind}{encoded}">Data (CSV)</a>')
