"""Writes docs/reproduction.md and its figures, and the comparison in docs/which-algorithm.md, from recorded results.

`python tools/reproduction_page.py` (or `make tables`) writes; with `--check` it only says what is stale. A drawn figure
carries a digest of what it shows, so that one of an earlier result is found out.
"""

import io
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from colonnade.reproductions import minutes, reproductions
from colonnade.reproductions.drawing import by_figure, digest_of, drawing_of
from colonnade.reproductions.published import PAPERS
from colonnade.reproductions.recorded import recorded_result
from colonnade.reproductions.reproduction import Reproduction

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/reproduction.md"
COMPARISON_PAGE = "docs/which-algorithm.md"
FIGURES = "images/reproduction"

ITEMS = {
    "vafl": ("Figure 3", "Figure 4", "Figures 5 and 6", "Figures 7 and 8"),
    "cascaded": ("Table I", "Table II", "Figure 3", "Figure 4", "Figure 5"),
    "dpzv": ("Table I", "Figure 2", "Figure 3", "Figure 4", "Figure 5", "Figure 6", "Figure 7"),
    "afsgd-vp": ("Table II", "Figure 4", "Figure 5", "Figure 6", "Figure 7", "Figure 8"),
    "asysqn": ("Table 3", "Table 4", "Table 5", "Figure 2", "Figure 3", "Figure 4"),
}
"""Every table and figure of the papers' experiments."""

BEGINNING = """# Reproduction

The tables and figures of the five papers, each from one command:

    colonnade reproduce list                    # all of them
    colonnade reproduce afsgd-table-2 --quick   # one, in minutes; without --quick as in the paper, in hours

This page is written from the recorded results (`src/colonnade/reproductions/recorded/`) by `make tables`; nobody writes
a number of it. `colonnade reproduce NAME --record` writes a result down, with date, machine, versions, commit and
seeds.

● recorded, and everything that the paper claims there holds · ◐ recorded, and some of it does not, or nothing was
claimed · ○ not recorded. Where a paper prints a number, the claim is that ours is at least as good (speed-ups) or
within half a point (accuracies); where it shows a curve, what it says of the curve. Minutes are on two idle cores,
by the processor time of the recorded run. A published number says under its table where it was read.
"""


def page() -> str:
    """The whole page."""
    by_paper = {paper: [one for one in reproductions().values() if one.paper == paper] for paper in PAPERS}
    parts = [BEGINNING, _overview(by_paper)]
    for paper, known in by_paper.items():
        shown = [one for one in known if _results(one)]
        if shown:
            parts.append(f"## {PAPERS[paper]}\n")
            parts += [_section(one, result) for one in shown for result in _results(one)]
    return "\n".join(parts)


def _results(one: Reproduction) -> list[dict[str, Any]]:
    found = (recorded_result(one.name, quick) for quick in (False, True))
    return [result for result in found if result is not None]


# --- the overview -----------------------------------------------------------------------------------------------


def _overview(by_paper: Mapping[str, Sequence[Reproduction]]) -> str:
    lines = [("paper", "item", "command", "full", "quick", "ours", "published", "claims")]
    for paper, known in by_paper.items():
        for item in ITEMS[paper]:
            own = [one for one in known if is_of(one.item, item)]
            lines += [_line(one) for one in own]
            if not own:
                lines.append((PAPERS[paper], item, "none yet", "○", "○", "", "", ""))
    rule = ("---",) * len(lines[0])
    return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:])) + "\n"


def _line(one: Reproduction) -> tuple[str, ...]:
    full, quick = (recorded_result(one.name, kind) for kind in (False, True))
    best = full or quick
    ours, theirs, claims = ("", "", "") if best is None else _both_numbers(best)
    name = f"`{one.name}`" if best is None else f"[`{one.name}`](#{_anchor(best)})"
    return (PAPERS[one.paper], one.item, name, mark(full), mark(quick), ours, theirs, claims)


def is_of(part: str, item: str) -> bool:
    """Whether this is the item or, such as Figure 5a, a part of it."""
    return re.fullmatch(rf"{item}[a-z]?", part) is not None


def mark(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return "○"
    held = [row["holds"] for row in result["rows"] if row["holds"] is not None]
    return "●" if held and all(held) else "◐"


def _both_numbers(result: Mapping[str, Any]) -> tuple[str, str, str]:
    """Ours and theirs where there are both, from the least to the largest, and how many claims hold."""
    rows = [row for row in result["rows"] if row["published"] is not None and row["ours"] is not None]
    held = [row["holds"] for row in result["rows"] if row["holds"] is not None]
    counted = f"{sum(held)} of {len(held)}" if held else ""
    return _range([row["ours"] for row in rows]), _range([row["published"] for row in rows]), counted


def _range(values: Sequence[float]) -> str:
    if not values:
        return ""
    least, most = _number(min(values)), _number(max(values))
    return least if least == most else f"{least} to {most}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}"


# --- one result -------------------------------------------------------------------------------------------------


def _heading(result: Mapping[str, Any]) -> str:
    return f"{PAPERS[result['paper']]}, {result['item']}, {'quick' if result['quick'] else 'full'}: {result['name']}"


def _anchor(result: Mapping[str, Any]) -> str:
    """As both MkDocs and GitHub make it: letters, digits, underscores and hyphens stay."""
    kept = "".join(letter for letter in _heading(result).lower() if letter.isalnum() or letter in "-_ ")
    return kept.replace(" ", "-")


def _section(one: Reproduction, result: Mapping[str, Any]) -> str:
    took = minutes(dict(result))
    seeds = ", ".join(map(str, result["seeds"]))
    facts = (
        f"{one.summary[0].upper()}{one.summary[1:]}. {mark(result)} {result['date']}, {result['machine']}, commit "
        f"{result['commit']}, seeds {seeds}, {took:.1f} minutes: "
        f"`colonnade reproduce {one.name}{' --quick' if result['quick'] else ''}`"
    )
    parts = [f"### {_heading(result)}\n", f"{facts}\n", _table(result["rows"]), ""]
    if result["remark"]:
        parts.append(f"{result['remark']}\n")
    if sources := [row["source"] for row in result["rows"] if row["source"]]:
        parts.append(f"Published: {_read_from(sources)}.\n")
    if result["panels"]:
        parts.append(f"![{_heading(result)}]({FIGURES}/{_file_name(result)})\n")
    return "\n".join(parts)


def _read_from(sources: Sequence[str]) -> str:
    """Where numbers were read, the paper and its table named once."""
    places: dict[str, list[str]] = {}
    for source in dict.fromkeys(sources):
        paper, item, place = source.split(", ", 2)
        places.setdefault(f"{paper}, {item}", []).append(place)
    return "; ".join(f"{table} ({'; '.join(cells)})" for table, cells in places.items())


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    claims = any(row["claim"] for row in rows)
    lines = ["| what | published | ours | note |" + (" claim |" if claims else "")]
    lines.append("| --- | --- | --- | --- |" + (" --- |" if claims else ""))
    for row in rows:
        spread = f" ± {_number(row['deviation'])}" if row["deviation"] is not None else ""
        cells = [row["label"], _number(row["published"]), f"{_number(row['ours'])}{spread}", row["note"]]
        held = {True: "yes", False: "no", None: ""}[row["holds"]]
        cells += [f"{row['claim']}: {held}" if row["claim"] else ""] if claims else []
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)


# --- the comparison of all algorithms ---------------------------------------------------------------------------

COMPARISON = "which-one"
MARKERS = ("<!-- which-one: begin -->\n", "<!-- which-one: end -->\n")
FIGURES_SHOW = {"time": "the time of one core", "bytes": "bytes", "epsilon": "a sound ε"}


def with_comparison(text: str) -> str:
    """The page with what is between its two markers replaced."""
    before, rest = text.split(MARKERS[0])
    return f"{before}{MARKERS[0]}\n{_comparison()}\n{MARKERS[1]}{rest.split(MARKERS[1])[1]}"


def _compared() -> dict[str, Any] | None:
    """The full run; the quick one as long as there is no other."""
    return recorded_result(COMPARISON, quick=False) or recorded_result(COMPARISON, quick=True)


def _comparison() -> str:
    result = _compared()
    if result is None:
        return f"Not recorded yet: `colonnade reproduce {COMPARISON}`."
    exact: dict[str, dict[str, str]] = {}  # algorithm → what → number
    private: dict[str, dict[str, str]] = {}
    for row in result["rows"]:
        data, name, *rest = row["label"].split(", ")
        spread = "" if row["deviation"] is None else f" ± {row['deviation']:.1f}"
        is_share = "%" in row["label"]
        digits = 1 if is_share or (row["ours"] or 0) >= 10 else 2  # of seconds and megabytes below ten two
        told = "–" if row["ours"] is None else f"{row['ours']:.{digits}f}{spread if is_share else ''}"
        if len(rest) == 1:
            exact.setdefault(f"`{name}`", {})[f"{data}: {rest[0]}"] = told
        else:
            protects, epsilon = rest[0].split(" at ")
            private.setdefault(f"`{name}`, {protects}", {})[f"{data}, {epsilon}: {rest[1]}"] = told
    took = minutes(result)
    parts = [
        f"{result['remark']} {result['date']}, {result['machine']}, commit {result['commit']}, seeds "
        f"{', '.join(map(str, result['seeds']))}, {took:.0f} minutes: `colonnade reproduce "
        f"{COMPARISON}{' --quick' if result['quick'] else ''}`.",
        _pivot("algorithm", exact),
        "What is left where a target is kept, soundly:",
        _pivot("algorithm, what it protects", private),
    ]
    parts += [
        f"![What is reached on test rows against {FIGURES_SHOW[figure]}]({FIGURES}/{_file_name(result, figure)})"
        for figure in by_figure(result["panels"])
    ]
    return "\n\n".join(parts) + "\n"


def _pivot(heading: str, lines: Mapping[str, Mapping[str, str]]) -> str:
    columns = [*dict.fromkeys(column for cells in lines.values() for column in cells)]
    table = [(heading, *columns), ("---",) * (1 + len(columns))]
    table += [(name, *(cells.get(column, "–") for column in columns)) for name, cells in lines.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in table)


# --- figures ----------------------------------------------------------------------------------------------------


def _file_name(result: Mapping[str, Any], figure: str = "") -> str:
    return f"{'-'.join(filter(None, (result['name'], figure, 'quick' if result['quick'] else 'full')))}.png"


def figures() -> dict[str, Sequence[Mapping[str, Any]]]:
    """What each figure of the page shows, by its path."""
    return {
        f"docs/{FIGURES}/{_file_name(result, figure)}": panels
        for one in reproductions().values()
        for result in _results(one)
        if one.name != COMPARISON or result == _compared()
        for figure, panels in by_figure(result["panels"]).items()
    }


def _drawn(panels: Sequence[Mapping[str, Any]]) -> bytes:
    out = io.BytesIO()
    words = {"Software": None, "Description": digest_of(panels)}
    drawing_of(panels).savefig(out, format="png", dpi=110, facecolor="white", metadata=words)
    return out.getvalue()


def stale() -> dict[str, bytes | None]:
    """The files that are not as the records say, and what they should be: None where there should be none."""
    found: dict[str, bytes | None] = {}
    text = page().encode()
    if not (ROOT / PAGE).is_file() or (ROOT / PAGE).read_bytes() != text:
        found[PAGE] = text
    compared = (ROOT / COMPARISON_PAGE).read_text(encoding="utf-8")
    if (wanted_text := with_comparison(compared)) != compared:
        found[COMPARISON_PAGE] = wanted_text.encode()
    wanted = figures()
    for name, panels in wanted.items():
        path = ROOT / name
        if not path.is_file() or digest_of(panels).encode() not in path.read_bytes():
            found[name] = _drawn(panels)
    for path in (ROOT / "docs" / FIGURES).glob("*.png"):
        name = str(path.relative_to(ROOT))
        if name not in wanted:
            found[name] = None
    return found


def main(arguments: Any) -> int:
    changed = stale()
    for name, content in changed.items():
        path = ROOT / name
        if arguments == ["--check"]:
            print(f"{name} is not what the recorded results say: run `make tables`.")
        elif content is None:
            path.unlink()
            print(f"{name} removed.")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            print(f"{name} written.")
    return 1 if changed and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
