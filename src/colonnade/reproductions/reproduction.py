"""What a reproduction is: a name, a function that runs it, and the rows that come out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from colonnade.reproductions.published import Published

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

    @classmethod
    def beside(cls, found: Published | None, label: str, values: Sequence[float], note: str = "") -> "Row":
        """Our values over seeds beside a published number, if there is one."""
        deviation = stdev(values) if len(values) > 1 else None
        number, source = (None, "") if found is None else (found.value, found.source)
        return cls(label, number, mean(values), deviation, note, source)


@dataclass(frozen=True)
class Scope:
    """How much of a reproduction is run, who is told, and where its finished cells and figures are kept."""

    quick: bool
    seeds: Sequence[int]
    watch: Watch
    folder: Path

    @property
    def cells(self) -> Path:
        return self.folder / "cells"


@dataclass(frozen=True)
class Reproduction:
    """A table or a figure of a paper."""

    name: str
    paper: str  # of published.PAPERS
    item: str  # such as "Table II" or "Figure 6"
    summary: str
    data: tuple[str, ...]
    run: Callable[[Scope], list[Row]]
    seeds: int = 1  # how many it takes unless told otherwise
