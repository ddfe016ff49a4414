"""What a reproduction is: a name, a function that runs it, and the rows that come out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
class Reproduction:
    name: str
    summary: str
    run: Callable[[bool, Sequence[int], Watch], list[Row]]  # (quick, seeds, watch)
    seeds: int = 1  # how many it takes unless told otherwise
    keeps_runs: bool = False  # whether runs that have finished are kept for the next time, when it is stopped

    @property
    def after_a_stop(self) -> str:
        """What Ctrl-C has left."""
        if self.keeps_runs:
            return "Runs that had finished are kept: start it again, and it goes on after them."
        return "Nothing was kept: start again."
