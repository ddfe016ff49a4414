"""What a reproduction is: a name, a function that runs it, and what comes out: rows, a figure, why they differ."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from colonnade.reproductions.published import Published
from colonnade.trials.pool import run_each

Watch = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """One number of a paper and ours."""

    label: str
    published: float | None
    ours: float
    deviation: float | None = None  # over seeds; None for a single one
    note: str = ""
    source: str = ""  # where the published number was read: paper, table, row, column
    claim: str = ""  # what the paper says of it, such as "at least the published speed-up"
    holds: bool | None = None  # whether ours keeps that claim; None: nothing is claimed of this row

    @classmethod
    def beside(
        cls,
        found: Published | None,
        label: str,
        values: Sequence[float],
        note: str = "",
        claim: str = "",
        holds: Callable[[float, float | None], bool] | None = None,
    ) -> "Row":
        """Our values over seeds beside a published number, if there is one.

        `holds` is given our mean and the published number, and says whether the claim is kept.
        """
        deviation = stdev(values) if len(values) > 1 else None
        number, source = (None, "") if found is None else (found.value, found.source)
        ours = mean(values)
        return cls(label, number, ours, deviation, note, source, claim, holds(ours, number) if holds else None)


@dataclass(frozen=True)
class Curve:
    """Points of one colour: a line, or the parts of one kind in bars."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    dashed: bool = False
    published: bool = False  # marked points that the paper prints
    level: bool = False  # what curves are held against: a horizontal line


@dataclass(frozen=True)
class Panel:
    """One part of a figure, in the axes of the paper."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    log_x: bool = False
    log_y: bool = False
    bars: tuple[str, ...] = ()  # names of bars; the curves are then their parts, one upon the other
    figure: str = ""  # which of several figures it belongs to


@dataclass(frozen=True)
class Shown:
    """What a reproduction found: numbers, the figure in the paper's axes, and why the two differ where they do."""

    rows: list[Row]
    panels: tuple[Panel, ...] = ()
    remark: str = ""


@dataclass(frozen=True)
class Scope:
    """How much of a reproduction is run, who is told, where its finished cells are kept, and who runs them."""

    quick: bool
    seeds: Sequence[int]
    watch: Watch
    folder: Path
    each: Callable[..., list[Any]] = run_each
    processor_seconds: list[float] = field(default_factory=list)  # of every cell that was used, kept ones too

    @property
    def cells(self) -> Path:
        return self.folder / "cells"


@dataclass(frozen=True)
class Reproduction:
    """A table or a figure of a paper."""

    name: str
    paper: str  # of published.PAPERS, or "ours"
    item: str  # such as "Table II" or "Figure 6"
    summary: str
    data: tuple[str, ...]
    run: Callable[[Scope], Shown]
    seeds: int = 1  # how many it takes unless told otherwise
    quick_seeds: int | None = None  # how many with --quick; None: as many
