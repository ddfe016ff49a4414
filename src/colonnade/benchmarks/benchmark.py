"""What a benchmark is: a name, a function that measures ratios, and the target of each."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path

from colonnade.threads import computing_with

Watch = Callable[[str], None]


@dataclass(frozen=True)
class Part:
    """Of a benchmark that takes hours: what is measured of it, and where what was measured is kept."""

    only: tuple[str, ...] = ()  # algorithms; none: all
    kept: Path | None = None
    unseen: tuple[int, ...] = ()  # seeds of tables to draw, in place of the data sets that there are


@dataclass(frozen=True)
class Benchmark:
    name: str
    summary: str
    run: Callable[[Watch], dict[str, float]]
    targets: dict[str, str]  # key → such as ">= 0.9"
    run_part: Callable[[Watch, Part], dict[str, float]] | None = None  # of one that can be stopped and resumed


def one_thread(run: Callable[[Watch], dict[str, float]]) -> Callable[[Watch], dict[str, float]]:
    """A benchmark that both sides run on one thread."""

    @wraps(run)
    def alone(watch: Watch) -> dict[str, float]:
        with computing_with(1):
            return run(watch)

    return alone


def meets(value: float, target: str) -> bool:
    """Whether a ratio keeps its target."""
    relation, _, number = target.partition(" ")
    return value >= float(number) if relation == ">=" else value <= float(number)
