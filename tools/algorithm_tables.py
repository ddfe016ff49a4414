"""Writes what follows from the table of algorithms into the documents and the package's exports, between markers.

`python tools/algorithm_tables.py` (or `make tables`) writes; with `--check` it only says what is stale. Nothing between
two markers is written by hand.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from inspect import get_annotations
from pathlib import Path
from typing import Any

import colonnade
from colonnade.algorithms import ALGORITHMS, DEFAULT, Algorithm, Family, which
from colonnade.algorithms.row import Passes
from colonnade.benchmarks.kept_cells import figures_in
from colonnade.benchmarks.twelve_sets import TWELVE
from colonnade.trials.audit import AUDITED

ROOT = Path(__file__).parents[1]
ROWS = list(ALGORITHMS.values())
LINEAR = [row for row in ROWS if row.family is Family.LINEAR]
OTHERS = [row for row in ROWS if row.family is not Family.LINEAR]


def as_table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (headings, ["---"] * len(headings), *lines))


def code(name: str) -> str:
    return f"`{name}`"


def listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


# --- what is written --------------------------------------------------------------------------------------------


def readme() -> str:
    """Every algorithm with what it is, and where it runs: one party alone has nobody to send anything to."""

    def line(row: Algorithm) -> list[str]:
        summary = re.sub(
            r"\bas ([\w-]+)", lambda found: f"as `{found[1]}`" if found[1] in ALGORITHMS else found[0], row.summary
        )
        elsewhere = "–" if row.family is Family.ALONE else "yes"
        which = "linear one" if row.family is Family.LINEAR else "one"
        first = f"; the {which} to begin with" if row.to_begin_with else ""
        return [f"[`{row.name}`](docs/algorithms/{row.name}.md)", summary + first, "yes", "yes", elsewhere, elsewhere]

    return as_table(
        ["algorithm", "what it is", "`simulate`", "`processes`", "`network`", "`ray`"], [line(row) for row in ROWS]
    )


def comparison() -> str:
    """What each asks of the models, what crosses, and where it comes from."""
    headings = ["algorithm", "schedule", "bottom model", "top model", "up", "down", "paper"]
    return as_table(headings, [_compared(row) for row in ROWS])


def _compared(row: Algorithm) -> list[str]:
    said, paper = row.conversation, row.paper
    bottom = top = "differentiable"
    schedule = up = down = "–"
    if said is not None:
        schedule = "asynchronous" if said.asynchronous else "synchronous"
        up = " or ".join(code(kind.__name__) for kind in (said.upload, said.masked_upload) if kind is not None)
        down = f"{code(said.reply.__name__)}: {said.answers}"
        bottom = "differentiable" if said.bottom_needs_gradients else "anything"
        top = "differentiable" if said.top_needs_gradients else "anything"
    if row.family is Family.LINEAR:
        bottom, top = "linear", "a sum"
    elif row.brings_models:
        bottom = top = "its own"
    cited = "ours"
    if paper is not None:
        cited = f"[{paper.where}](https://arxiv.org/abs/{paper.arxiv})" if paper.arxiv else paper.venue
    return [f"[`{row.name}`](algorithms/{row.name}.md)", schedule, bottom, top, up, down, cited]


def settings() -> str:
    """Which names there are, and the settings that each adds to those it shares with others, with their defaults."""
    split = [code(row.name) + (" (the default)" if row.name == DEFAULT else "") for row in OTHERS]
    linear = [code(row.name) for row in LINEAR]
    lines = []
    for row in ROWS:
        declared = get_annotations(row.settings)
        own = [f"`{one.name}` = {json.dumps(one.default)}" for one in fields(row.settings) if one.name in declared]
        lines.append(
            [f"[`{row.name}`](algorithms/{row.name}.md)", f"`colonnade.{row.settings.__name__}`", ", ".join(own) or "–"]
        )
    names = f"`name` is {listed(split)}; or, for a linear model, {listed(linear)}."
    return f"{names}\n\n{as_table(['name', 'in Python', 'settings of its own, or with a default of its own'], lines)}"


def navigation() -> str:
    """The algorithms' pages, by family, those that keep step apart from those that do not."""

    def pages(heading: str, rows: Sequence[Algorithm], *first: str) -> list[str]:
        named = [f"          - {row.name}: algorithms/{row.name}.md" for row in rows]
        return [f"      - {heading}:", *(f"          - {one}" for one in first), *named]

    def talks(row: Algorithm, *, asynchronous: bool) -> bool:
        return row.conversation is not None and row.conversation.asynchronous is asynchronous

    return "\n".join(
        [
            *pages("Split models, asynchronous", [row for row in OTHERS if talks(row, asynchronous=True)]),
            *pages("Split models, synchronous", [row for row in OTHERS if talks(row, asynchronous=False)]),
            *pages(
                "Linear models, asynchronous",
                [row for row in LINEAR if talks(row, asynchronous=True)],
                "Linear federations: linear-federations.md",
            ),
            *pages("Linear models, synchronous", [row for row in LINEAR if talks(row, asynchronous=False)]),
            *pages("To compare with", [row for row in OTHERS if row.conversation is None]),
        ]
    )


def imports() -> str:
    homes = sorted((row.settings.__module__, row.settings.__name__) for row in ROWS)
    return "\n".join(["if TYPE_CHECKING:", *(f"    from {module} import {name}" for module, name in homes)])


def exports() -> str:
    names = sorted({*colonnade._HOMES, *(row.settings.__name__ for row in ROWS)})
    return "\n".join(f'    "{name}",' for name in names)


def help_names() -> str:
    """Names in help texts, which must not load the table: it takes PyTorch with it."""
    snapshots = which(lambda row: row.conversation is not None and row.conversation.passes is Passes.SNAPSHOTS)
    return "\n".join(
        [
            f'DEFAULT_ALGORITHM = "{DEFAULT}"',
            f'WITH_SNAPSHOTS = "{snapshots[0].name}"',
            f"AUDITED = ({', '.join(json.dumps(name) for name in AUDITED)})",
        ]
    )


def gap_in_words(figure: float) -> str:
    """Of a gap; what rounding leaves of none is 0."""
    return "0" if figure < 1e-14 else f"{figure:.0e}".replace("e-0", "e-")


def reached() -> str:
    """What the defaults reach, from the figures that `colonnade bench defaults --keep docs/defaults.json` wrote."""
    figures = figures_in(ROOT / "docs/defaults.json")

    def table(rows: Sequence[Algorithm], heading: str, shown: Callable[[float], str]) -> str:
        names = [row.name for row in rows if any(name == row.name for _, name in figures)]
        lines = []
        for data in TWELVE:
            found = [figures.get((data, name), math.nan) for name in names]
            said = ["diverged" if one is None else "–" if math.isnan(one) else shown(one) for one in found]
            lines.append([data, *said])
        return as_table([heading, *map(code, names)], lines)

    split = table(OTHERS, "test rows right, or R², percent", lambda figure: f"{figure:.1f}")
    linear = table(LINEAR, "above the optimum, (f − f*)/f*", gap_in_words)
    return f"{split}\n\n{linear}" if any(row.name == name for row in LINEAR for _, name in figures) else split


# --- where ------------------------------------------------------------------------------------------------------

MARKDOWN = "<!-- algorithms: {} -->"
BLOCKS: list[tuple[str, str, Callable[[], str]]] = [
    ("README.md", MARKDOWN, readme),
    ("docs/which-algorithm.md", MARKDOWN, comparison),
    ("docs/which-algorithm.md", "<!-- defaults: {} -->", reached),
    ("docs/settings.md", MARKDOWN, settings),
    ("mkdocs.yml", "      # algorithms: {}", navigation),
    ("src/colonnade/cli/names.py", "# algorithms: names {}", help_names),
    ("src/colonnade/__init__.py", "# algorithms: imports {}", imports),
    ("src/colonnade/__init__.py", "    # algorithms: exports {}", exports),
]


def with_block(text: str, marker: str, content: str) -> str:
    """The text with what is between its two markers replaced; a blank line keeps Markdown's tables apart."""
    begin, end = (f"{marker.format(word)}\n" for word in ("begin", "end"))
    before, rest = text.split(begin)
    space = "\n" if marker.startswith("<!--") else ""
    return f"{before}{begin}{space}{content}\n{space}{end}{rest.split(end)[1]}"


def stale() -> dict[str, str]:
    """The files that are not as the table says, and what they should be."""
    found: dict[str, str] = {}
    for name, marker, content in BLOCKS:
        text = found.get(name) or (ROOT / name).read_text(encoding="utf-8")
        found[name] = with_block(text, marker, content())
    return {name: text for name, text in found.items() if text != (ROOT / name).read_text(encoding="utf-8")}


def main(arguments: Any) -> int:
    changed = stale()
    for name, text in changed.items():
        if arguments == ["--check"]:
            print(f"{name} is not what the table of algorithms says: run `make tables`.")
        else:
            (ROOT / name).write_text(text, encoding="utf-8")
            print(f"{name} written.")
    return 1 if changed and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
