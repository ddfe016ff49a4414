"""The rows by name, and how one is found: by its name, by its settings, by what it is."""

from collections.abc import Callable
from typing import Any

from colonnade.algorithms.row import Algorithm, Family
from colonnade.errors import unknown_name

ALGORITHMS: dict[str, Algorithm] = {}


def register(algorithm: Algorithm) -> None:
    """Add a row to the table; a name is taken once."""
    if algorithm.name in ALGORITHMS:
        raise ValueError(f"There is an algorithm {algorithm.name!r} already.")
    ALGORITHMS[algorithm.name] = algorithm


def find(name: str) -> Algorithm:
    """The algorithm of that name, or an error that offers the nearest one."""
    if name not in ALGORITHMS:
        raise unknown_name("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]


def name_of(settings: Any) -> str:
    """The name of the algorithm that these settings belong to."""
    for algorithm in ALGORITHMS.values():
        if type(settings) is algorithm.settings:
            return algorithm.name
    raise unknown_name("algorithm with settings of type", type(settings).__name__, ALGORITHMS)


def which(fits: Callable[[Algorithm], bool]) -> list[Algorithm]:
    """The rows that fit, in the order of the table. The first one is what an error message suggests."""
    return [algorithm for algorithm in ALGORITHMS.values() if fits(algorithm)]


def to_begin_with(family: Family) -> str:
    """The name to suggest to somebody who wants an algorithm of this family."""
    return which(lambda row: row.family is family and row.to_begin_with)[0].name
