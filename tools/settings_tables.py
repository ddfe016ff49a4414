"""Writes the tables of docs/settings.md from the declarations of the settings, between markers that name their classes.

`python tools/settings_tables.py` (or `make tables`) writes; with `--check` it only says whether the page is stale. A
table has what its classes declare themselves; the defaults of algorithms that have others stand beside.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from inspect import get_annotations
from pathlib import Path
from typing import Any

from colonnade.algorithms import ALGORITHMS
from colonnade.federation.sections import OF_FEDERATION, OF_PARTY_ALONE
from colonnade.meanings import Setting, settings_of

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
MARKED = re.compile(r"(<!-- settings: ([\w, ]+) -->\n)(.*?)(<!-- settings end -->\n)", re.DOTALL)


def declaring() -> dict[str, Any]:
    """Every class that explains a setting, by name."""
    whole = [*OF_FEDERATION.values(), *OF_PARTY_ALONE.values(), *(row.settings for row in ALGORITHMS.values())]
    return {one.explained_by.__name__: one.explained_by for cls in whole for one in settings_of(cls)}


def table(classes: Sequence[Any]) -> str:
    """What these classes declare: name, default, meaning, and the unit where one of them has any."""
    rows = [(cls, one) for cls in classes for one in settings_of(cls) if one.name in get_annotations(cls)]
    with_units = any(one.unit for _, one in rows)
    lines = [["name", "default", *(["unit"] if with_units else []), "meaning"]]
    lines.append(["---"] * len(lines[0]))
    for cls, one in rows:
        unit = [one.unit] if with_units else []
        line = [f"`{one.name}`", default_in_words(cls, one), *unit, one.meaning.replace("|", "\\|")]
        lines += [line] if line not in lines else []  # two classes may say the same
    return "\n".join("| " + "".join(f"{cell} | " if cell else "| " for cell in line).rstrip() for line in lines)


def default_in_words(cls: Any, setting: Setting) -> str:
    """The default, and what algorithms have in its place whose settings extend this class."""
    others: dict[str, list[str]] = {}
    for row in ALGORITHMS.values():
        for one in settings_of(row.settings):
            if one.name == setting.name and one.explained_by is cls and one.default != setting.default:
                others.setdefault(as_value(one.default), []).append(f"`{row.name}`")
    elsewhere = [f"{', '.join(names)}: {value}" for value, names in others.items()]
    return "; ".join([as_value(setting.default), *elsewhere])


def as_value(default: Any) -> str:
    """As a TOML file has it.

    >>> [as_value(one) for one in ("", 0.001, 67_108_864, False, [64], None)]
    ['`""`', '0.001', '67,108,864', 'false', '`[64]`', 'none']
    """
    if default is MISSING:
        return ""
    if default is None:
        return "none"
    if isinstance(default, bool):
        return json.dumps(default)
    if isinstance(default, int | float):
        return f"{default:,}" if abs(default) >= 1 or not default or abs(default) >= 1e-4 else f"{default:g}"
    return f"`{json.dumps(default)}`"


def written(text: str, known: Mapping[str, Any]) -> str:
    """The page with its tables; `others` are those of algorithms whose settings nobody has given a place."""

    def between(found: re.Match[str]) -> str:
        classes = [known[name.strip()] for name in found[2].split(",") if name != "others"]
        content = f"{table(classes)}\n\n" if classes else of_others(text, known)
        return f"{found[1]}\n{content}{found[4]}"

    return MARKED.sub(between, text)


def of_others(text: str, known: Mapping[str, Any]) -> str:
    rows = [row for row in ALGORITHMS.values() if row.settings.__name__ in without_table(text, known)]
    return "".join(
        f"**{row.name}** (`colonnade.{row.settings.__name__}`; [explained](algorithms/{row.name}.md)): those it "
        f"shares, and\n\n{table([row.settings])}\n\n"
        for row in rows
    )


def without_table(text: str, known: Mapping[str, Any]) -> list[str]:
    """The classes that explain a setting and have no table on the page."""
    shown = {name.strip() for _, names, *_ in MARKED.findall(text) for name in names.split(",")}
    return sorted(name for name, cls in known.items() if name not in shown and fields(cls))


def stale() -> list[str]:
    """What is wrong with the page."""
    known, text = declaring(), PAGE.read_text(encoding="utf-8")
    placed = {row.settings.__name__ for row in ALGORITHMS.values()}  # by `others`, if by nobody else
    missing = [f"docs/settings.md has no table of {name}." for name in without_table(text, known) if name not in placed]
    return missing + (["docs/settings.md is stale: run `make tables`."] if written(text, known) != text else [])


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit("\n".join(stale()))
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), declaring()), encoding="utf-8")
