"""Writes docs/reference/commands.md from the command line's own declarations.

`python tools/command_reference.py` (or `make tables`) writes; with `--check` it only says whether the page is stale.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from colonnade.cli.application import app

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"
OPENING = """# Commands

What `colonnade VERB --help` says, on one page. It is written from the same declarations. What a command returns is
in [Exit codes](../exit-codes.md). With `--json` a command prints one JSON object and nothing else.
"""


def verbs(command: Any, context: Any, above: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every verb under its whole name, such as `data list`, with its command and context."""
    for name, inner in command.commands.items():
        whole = f"{above} {name}".strip()
        within = inner.context_class(inner, info_name=name, parent=context)
        if hasattr(inner, "commands"):
            yield from verbs(inner, within, whole)
        else:
            yield whole, inner, within


def section(name: str, command: Any, context: Any) -> str:
    """A verb: what it does, how it is called, what it takes."""
    usage = " ".join(command.collect_usage_pieces(context))
    records = [one for parameter in command.get_params(context) if (one := parameter.get_help_record(context))]
    lines = [f"| `{cell(what)}` | {cell(said)} |" for what, said in records if "--help" not in what]
    paragraphs = (command.help or "").split("\f")[0].strip()
    return "\n".join(
        [
            f"## colonnade {name}",
            "",
            re.sub(r"[ \t]*\n[ \t]+(?=\S)", "\n", paragraphs),
            "",
            f"    colonnade {name} {usage}",
            "",
            *(["| what | meaning |", "| --- | --- |", *lines] if lines else ["It takes no options."]),
        ]
    )


def cell(text: str) -> str:
    """On one line of a table, whose bars are not those of a choice."""
    return " ".join(text.split()).replace("|", "\\|")


def page() -> str:
    command: Any = typer.main.get_command(app)
    context = command.context_class(command, info_name="colonnade")
    parts = [section(*one) for one in verbs(command, context)]
    return "\n".join([OPENING, "\n\n".join(parts), ""])


def stale() -> bool:
    return not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page()


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit("docs/reference/commands.md is stale: run `make tables`." if stale() else 0)
    PAGE.write_text(page(), encoding="utf-8")
