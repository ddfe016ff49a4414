"""The table of algorithms. One row here buys the contract tests, the command line, the docs check and the README's
table; CONTRIBUTING.md shows how to add one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from colonnade.algorithms import cascaded, centralised, czofo, dpzv, split, vafl, zoo, zoo_sync
from colonnade.algorithms.parts.seats import FeatureSeat, LabelSeat
from colonnade.errors import unknown_name
from colonnade.party import Party


@dataclass(frozen=True)
class Algorithm:
    """How an algorithm's parties are built. `alone` instead of the two roles: one party holds everything."""

    name: str
    summary: str
    settings: type[Any]
    label_party: Callable[[LabelSeat], Party] | None = None
    feature_party: Callable[[FeatureSeat], Party] | None = None
    alone: Callable[[LabelSeat, Sequence[FeatureSeat]], Party] | None = None


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


register(
    Algorithm(
        "vafl",
        "asynchronous split learning, first order on both sides",
        vafl.Vafl,
        vafl.label_party,
        vafl.feature_party,
    )
)
register(
    Algorithm(
        "split",
        "synchronous split learning: one shared batch, everybody waits for everybody",
        split.Split,
        split.label_party,
        split.feature_party,
    )
)
register(
    Algorithm(
        "cascaded",
        "asynchronous; zeroth order at the feature parties, first order at the label party",
        cascaded.Cascaded,
        cascaded.label_party,
        cascaded.feature_party,
    )
)
register(Algorithm("zoo", "asynchronous, zeroth order on both sides", zoo.Zoo, zoo.label_party, zoo.feature_party))
register(
    Algorithm(
        "zoo-sync",
        "synchronous, zeroth order on both sides",
        zoo_sync.ZooSync,
        zoo_sync.label_party,
        zoo_sync.feature_party,
    )
)
register(
    Algorithm(
        "czofo",
        "asynchronous; zeroth order at the embedding, first order below and above it",
        czofo.Czofo,
        czofo.label_party,
        czofo.feature_party,
    )
)
register(
    Algorithm(
        "dpzv",
        "asynchronous, zeroth order on both sides; one clipped, noised number back; memory of the model alone",
        dpzv.Dpzv,
        dpzv.label_party,
        dpzv.feature_party,
    )
)
register(
    Algorithm(
        "centralised",
        "the same model trained in one place on the joined columns",
        centralised.Centralised,
        alone=centralised.OnlyParty,
    )
)
