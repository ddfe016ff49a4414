"""The page's HTML parts and its style sheet. Every text that comes from a run is escaped here, and only here.

No external resource: the page reads the same in ten years, offline, on paper and on a phone. Scripts only add to it
(`explorer.py`), and all of them are in it.
"""

import base64
from collections.abc import Iterable, Sequence
from html import escape


class Markup(str):
    """Text that already is HTML. Everything else is escaped when it is put into a page."""

    __slots__ = ()


def text(value: object) -> Markup:
    return value if isinstance(value, Markup) else Markup(escape(str(value), quote=True))


def join(parts: Iterable[object]) -> Markup:
    return Markup("\n".join(text(part) for part in parts))


def element(tag: str, *content: object, css: str = "", scrolls: bool = False) -> Markup:
    """`scrolls`: it may be wider than the page; it can then be reached, and moved, by keys."""
    attribute = (f' class="{escape(css)}"' if css else "") + (' tabindex="0"' if scrolls else "")
    return Markup(f"<{tag}{attribute}>{''.join(text(part) for part in content)}</{tag}>")


def section(heading: str, *content: object) -> Markup:
    """A section with a heading, or nothing at all if it has no content."""
    kept = [part for part in content if part]
    return element("section", element("h2", heading), *kept) if kept else Markup("")


def card(label: str, value: str, note: str = "") -> Markup:
    parts = [element("dt", label), element("dd", value)]
    if note:
        parts.append(element("dd", note, css="note"))
    return element("div", *parts, css="card")


def cards(items: Iterable[Markup]) -> Markup:
    return element("dl", *items, css="cards")


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], numeric_from: int = 1, css: str = "") -> Markup:
    """A table that scrolls sideways on a narrow screen; columns from `numeric_from` on stand right."""

    def line(tag: str, cells: Sequence[object]) -> Markup:
        return element(
            "tr",
            *(element(tag, cell, css="n" if at >= numeric_from else "") for at, cell in enumerate(cells)),
        )

    body = [line("td", row) for row in rows]
    if not body:
        return Markup("")
    head = element("thead", line("th", heads)) if heads else ""
    return element("div", element("table", head, element("tbody", *body), css=css), css="scroll", scrolls=True)


def plot(png: bytes, title: str, caption: str, wide: bool, below: Markup | str = "") -> Markup:
    encoded = base64.b64encode(png).decode("ascii")
    image = Markup(f'<img alt="{escape(title)}" src="data:image/png;base64,{encoded}">')
    words = element("figcaption", element("strong", title), " ", caption, below)
    return element("figure", element("div", image, css="paper", scrolls=wide), words, css="wide" if wide else "")


def tabs(name: str, choices: Sequence[tuple[str, Markup]]) -> Markup:
    """Figures of which one is shown at a time, the first to begin with; three at most, without a script."""
    if len(choices) < 2:
        return join(shown for _, shown in choices)
    parts = []
    for place, (label, _) in enumerate(choices):
        key, chosen = f"{escape(name)}-{place}", " checked" if place == 0 else ""
        parts.append(Markup(f'<input type="radio" name="{escape(name)}" id="{key}"{chosen}>'))
        parts.append(Markup(f'<label for="{key}">{text(label)}</label>'))
    return element("div", *parts, *(shown for _, shown in choices), css="tabs")


def folded(title: str, content: Markup) -> Markup:
    """What few readers look for, behind its title; on paper it is unfolded."""
    return element("details", element("summary", title), content) if content else content


_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""Nothing is fetched from anywhere, and nothing is sent."""


def document(title: str, *content: object) -> str:
    return join(
        [
            Markup("<!doctype html>"),
            Markup('<html lang="en"><head><meta charset="utf-8">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup('<meta name="color-scheme" content="light dark">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
            element("title", title),
            Markup(f"<style>{STYLE}</style></head><body><main>"),
            *content,
            Markup("</main></body></html>\n"),
        ]
    )


STYLE = """
:root { --ground: #f6f7f9; --card: #fff; --ink: #1f2933; --muted: #5d6975; --line: #dfe4e9;
  --warm: #fff6e0; --warm-ink: #6b4a00; --link: #00568a;
  --c0: #0072b2; --c1: #e08a00; --c2: #009e73; --c3: #8c5fb5; --c4: #56b4e9; --c5: #c2679b; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14181d; --card: #1d232a; --ink: #e6eaee; --muted: #9aa7b3; --line: #313a44;
    --warm: #33290f; --warm-ink: #f0d490; --link: #7cc4f5;
    --c0: #3a9bd9; --c1: #f0a93b; --c2: #3ccf9f; --c3: #b58ee0; --c4: #9ad4f5; --c5: #e59bc4; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); -webkit-text-size-adjust: 100%;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 2rem 1rem 3rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .35rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.6rem 0 .8rem; padding-bottom: .3rem;
  border-bottom: 1px solid var(--line); }
p { margin: .5rem 0; max-width: 46rem; }
.subtitle { color: var(--muted); margin: 0; overflow-wrap: anywhere; }
.badge { display: inline-block; font-size: .8rem; padding: .05rem .6rem; border-radius: 1rem;
  vertical-align: .2em; font-weight: 500; border: 1px solid var(--line); color: var(--muted);
  background: var(--card); }
.notice { background: var(--warm); color: var(--warm-ink); border-radius: .5rem; padding: .6rem .9rem;
  margin: 1rem 0; max-width: none; }
.small { color: var(--muted); font-size: .875rem; }
.cards { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: .75rem;
  margin: 1.5rem 0 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .7rem .9rem; }
.card dt { color: var(--muted); font-size: .82rem; }
.card dd { margin: 0; font-size: 1.4rem; line-height: 1.3; font-weight: 600;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.card dd.note { color: var(--muted); font-size: .8rem; font-weight: 400; line-height: 1.4; }
.plots { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1.25rem; }
figure { margin: 0; min-width: 0; break-inside: avoid; }
.plots > div { min-width: 0; }
figure.wide { grid-column: 1 / -1; }
.paper { background: #fff; border: 1px solid var(--line); border-radius: .6rem; padding: .6rem;
  overflow-x: auto; }
.paper img { display: block; width: 100%; height: auto; }
/* Figures are drawn on white. In the dark they are turned: white becomes the ground's colour, hues stay. */
@media screen and (prefers-color-scheme: dark) {
  .paper { background: var(--ground); }
  .paper img { filter: invert(1) hue-rotate(180deg) brightness(1.15); mix-blend-mode: lighten; }
}
.tabs { display: flex; flex-wrap: wrap; gap: .4rem; margin-bottom: .6rem; }
.tabs > input { position: absolute; opacity: 0; }
.tabs > label { font-size: .875rem; border: 1px solid var(--line); border-radius: .5rem; padding: .15rem .7rem;
  background: var(--card); cursor: pointer; }
.tabs > input:checked + label { background: var(--ink); color: var(--card); }
.tabs > input:focus-visible + label { outline: 2px solid var(--muted); outline-offset: 2px; }
.tabs > figure { display: none; flex-basis: 100%; order: 1; }
.tabs > input:nth-of-type(1):checked ~ figure:nth-of-type(1),
.tabs > input:nth-of-type(2):checked ~ figure:nth-of-type(2),
.tabs > input:nth-of-type(3):checked ~ figure:nth-of-type(3) { display: block; }
figcaption { font-size: .875rem; color: var(--muted); margin-top: .45rem; }
figcaption strong { color: var(--ink); }
/* Bars, without a picture: a name, what is said of it, and a scale below the words on a phone. */
.bars { list-style: none; margin: .6rem 0; padding: 0; font-size: .9rem; font-variant-numeric: tabular-nums; }
.bars li { display: grid; grid-template-columns: minmax(8rem, 17rem) minmax(4.5rem, var(--said)) minmax(0, 1fr);
  gap: .15rem .9rem; align-items: center; padding: .22rem 0; }
.bars li > span { overflow-wrap: anywhere; }
.bars .said { font-weight: 500; text-align: right; }
.scale { position: relative; height: 1.15rem; background: var(--card);
  border: 1px solid var(--line); border-radius: .25rem;
  -webkit-print-color-adjust: exact; print-color-adjust: exact; }
.scale i { position: absolute; top: 0; bottom: 0; }
i.bar { background: var(--c0); border-radius: .15rem; min-width: 1px; }
i.c1 { background: var(--c1); } i.c2 { background: var(--c2); } i.c3 { background: var(--c3); }
i.c4 { background: var(--c4); } i.c5 { background: var(--c5); }
.scale i.bar { top: 14%; bottom: 14%; }
.scale i.whisker { top: 50%; bottom: auto; height: 2px; margin-top: -1px; background: var(--ink); }
.scale i.dot { width: 5px !important; height: 5px; margin: -2px 0 0 -2px; top: 50%; border-radius: 50%;
  background: var(--ink); }
.scale i.mark { width: 3px !important; margin-left: -1px; }
i.mark { background: var(--ink); } i.m1 { background: var(--c1); }
i.m2 { background: var(--c2); } i.m3 { background: var(--c3); }
.bars .ruler div { display: flex; justify-content: space-between; color: var(--muted); font-size: .78rem; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .85rem; color: var(--muted); }
.legend i { display: inline-block; width: .9rem; height: .8rem; vertical-align: -.08rem;
  -webkit-print-color-adjust: exact; print-color-adjust: exact; }
.legend i.mark { width: 3px; }
a { color: var(--link); }
a.data { white-space: nowrap; font-size: .875rem; }
.controls .whole { flex-basis: 100%; }
.explorer .uplot:focus-visible { outline: 2px solid var(--muted); outline-offset: -2px; }
.explorer { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .6rem 0;
  margin-bottom: 1.25rem; overflow: hidden; }
.controls { display: flex; flex-wrap: wrap; gap: .3rem 1rem; align-items: center; padding: 0 .9rem .4rem;
  font-size: .875rem; }
.controls label { overflow-wrap: anywhere; }
.controls button { font: inherit; color: var(--ink); background: var(--ground); border: 1px solid var(--line);
  border-radius: .4rem; padding: .1rem .6rem; margin-left: auto; cursor: pointer; }
.explorer .u-legend { font-size: .8rem; color: var(--muted); }
.explorer .u-legend .u-value { color: var(--ink); display: inline-block; min-width: 4.5em; }
.explorer .u-legend th, .explorer .u-legend td { border: 0; padding: 0 .2rem; }
@media screen { .only-print { display: none; } }
@media print { .explorer { display: none; } }
figure.wide + .plots, .lanes { margin-bottom: 1.25rem; }
.lanes canvas { touch-action: pan-y; cursor: crosshair; }
.lanes canvas:focus-visible { outline: 2px solid var(--muted); outline-offset: 4px; }
.lanes p { margin: .3rem .9rem 0; max-width: none; }
details > summary { cursor: pointer; color: var(--muted); }
details > summary:focus-visible { outline: 2px solid var(--muted); outline-offset: 2px; }
@media print { details::details-content { content-visibility: visible; block-size: auto; }
  details > summary { display: none; } }
.explorer .u-legend .band { display: none; }
.verdict { font-size: 1.1rem; margin: 1rem 0 0; }
/* A shadow at the side where a table goes on, covered by the ground where it ends. */
.scroll { overflow-x: auto; margin: .6rem 0; background:
  linear-gradient(to right, var(--ground) 40%, transparent) 0 0 / 2.5rem 100% no-repeat local,
  linear-gradient(to left, var(--ground) 40%, transparent) 100% 0 / 2.5rem 100% no-repeat local,
  radial-gradient(farthest-side at 0 50%, var(--muted), transparent) 0 0 / .8rem 100% no-repeat scroll,
  radial-gradient(farthest-side at 100% 50%, var(--muted), transparent) 100% 0 / .8rem 100% no-repeat scroll; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .38rem .8rem .38rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: break-word; }
th { color: var(--muted); font-weight: 500; font-size: .82rem; vertical-align: bottom; }
th.n, td.n { text-align: right; white-space: nowrap; padding: .38rem 0 .38rem .8rem; }
table.pairs { width: auto; min-width: min(100%, 26rem); }
table.pairs td:last-child { overflow-wrap: anywhere; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: .8rem; }
@media (max-width: 700px) {
  main { padding: 1.25rem .8rem 2rem; }
  h1 { font-size: 1.4rem; }
  .plots { grid-template-columns: minmax(0, 1fr); }
  .cards { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .5rem; }
  .bars li { grid-template-columns: minmax(0, 1fr) auto; }
  .bars li > div { grid-column: 1 / -1; }
  .bars .ruler span:empty { display: none; }
  .card dd { font-size: 1.15rem; }
  figure.wide .paper img { width: 44rem; max-width: none; }
}
@media print {
  :root { --ground: #fff; --card: #fff; --ink: #000; --muted: #444; --line: #ccc;
    --warm: #fff; --warm-ink: #000; --link: #000; }
  a.data { display: none; }
  body { font-size: 11pt; }
  main { max-width: none; padding: 0; }
  h2 { break-after: avoid; }
  .card, tr { break-inside: avoid; }
  .notice { border: 1px solid #999; }
}
"""
