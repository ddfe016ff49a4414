"""What the pages about one run and about several share: plots, footers, tables of settings, and how a page is written.

A page is written whole or not at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from colonnade.errors import RunError
from colonnade.files import FOLDER, PRIVATE, SHARED, make_folder, write_atomically
from colonnade.reports import figures
from colonnade.reports.amounts import (
    DASH,
)
from colonnade.reports.bars import data_link
from colonnade.reports.markup import Markup, element, folded, join, plot, section, table
from colonnade.reports.rundir import Clock

NOT_PRIVATE = "No value was noised. Nothing here is differentially private: ε = ∞."
PAPER_FORMULA = (
    'The noise was chosen by a paper\'s formula (privacy.formula = "paper"), which keeps less than it claims: see the '
    "sound ε."
)
NOTHING = Markup("")
CLOCK_WORDS: dict[Clock, str] = {"virtual": "virtual seconds", "wall": "wall seconds"}


@dataclass(frozen=True)
class Plot:
    """A drawn figure with its file name and the sentence that says how to read it."""

    key: str
    title: str
    caption: str
    png: bytes
    wide: bool = False
    figure: Figure | None = None
    data: tuple[Sequence[str], Sequence[Sequence[object]]] | None = None
    """what it shows, as the heads and the lines of a table"""

    def markup(self) -> Markup:
        taken = Markup(" ") + data_link(self.key, *self.data) if self.data else ""
        return plot(self.png, self.title, self.caption, self.wide, Markup(taken))


def write_whole(path: Path, content: bytes, mode: int | None = PRIVATE) -> Path:
    """A reader sees the old file or the new one, never half of either. `mode`: SHARED for one that is to be shown."""
    try:
        make_folder(path.parent, mode=SHARED if mode is SHARED else FOLDER)
        write_atomically(path, content, mode)
    except OSError as reason:
        raise RunError(
            f"{path} could not be written ({reason.strerror}). Make the directory writable, free some space, "
            "or choose another place."
        ) from reason
    return path


def drawn(candidates: Sequence[tuple[str, str, str, Figure | None, bool]]) -> list[Plot]:
    return [
        Plot(key, title, caption, figures.png_bytes(figure), wide, figure)
        for key, title, caption, figure, wide in candidates
        if figure is not None
    ]


def write_figures(folder: Path, plots: Sequence[Plot]) -> None:
    """Every figure as a PNG and as an SVG file, for a paper."""
    for one in plots:
        write_whole(folder / f"{one.key}.png", one.png)
        if one.figure is not None:
            write_whole(folder / f"{one.key}.svg", figures.svg_bytes(one.figure))


def settings_and_versions(settings: Mapping[str, Any], versions: Mapping[str, Any]) -> Markup:
    """Of what was run, behind their titles."""
    return join(
        [
            section("Settings", folded("All settings", pairs_table(settings))),
            section("Versions", folded("All versions", pairs_table(versions))),
        ]
    )


def footer(virtual: bool) -> Markup:
    told = "Made by Colonnade from the files of the run directory; no raw column, label or weight is shown."
    if virtual:
        told += (
            " Virtual seconds are simulated time, wall seconds are what the machine took; the two never share a figure."
        )
    return element("footer", element("p", told, css="small"))


def shown_value(value: Any) -> str:
    """A JSON value as a person would write it."""
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "true" if value else "false"  # as in TOML
    if isinstance(value, int):
        # Years, seeds and sizes alike: no thousands separators, so that a value can be copied into a setting.
        return str(value)
    if isinstance(value, float):
        return "∞" if value == float("inf") else f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(shown_value(one) for one in value) or DASH
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {shown_value(one)}" for key, one in value.items()) or DASH
    return str(value)


def pairs_table(values: Mapping[str, Any]) -> Markup:
    return table([], [[name, shown_value(value)] for name, value in values.items()], numeric_from=2, css="pairs")
