"""The table of algorithms. One row here buys the contract tests, the command line, the docs check and the README's
table; CONTRIBUTING.md shows how to add one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from colonnade.algorithms.linear_models import (
    afsaga,
    afsgd,
    afsvrg,
    asysqn_saga,
    asysqn_sgd,
    asysqn_svrg,
    fcg,
    fsaga,
    fsgd,
    fsvrg,
    synsqn_saga,
    synsqn_sgd,
    synsqn_svrg,
)
from colonnade.algorithms.seats import FeatureSeat, LabelSeat, LinearSeat
from colonnade.algorithms.split_models import cascaded, centralised, czofo, dpzv, fdml, split, vafl, zoo, zoo_sync
from colonnade.errors import unknown_name
from colonnade.party import Party


@dataclass(frozen=True)
class Algorithm:
    """How an algorithm's parties are built.

    Instead of the two roles, `alone`: one party holds everything; or `linear_party`: a linear federation, in which
    every party has a block of the model. `bottom` and `top`: an algorithm that defines its models itself.
    """

    name: str
    summary: str
    settings: type[Any]
    label_party: Callable[[LabelSeat], Party] | None = None
    feature_party: Callable[[FeatureSeat], Party] | None = None
    alone: Callable[[LabelSeat, Sequence[FeatureSeat]], Party] | None = None
    linear_party: Callable[[LinearSeat], Party] | None = None
    bottom: Callable[[tuple[int, ...], float, str, int], nn.Module] | None = None  # (shape, d_m/d, task, outputs)
    top: Callable[[int, str, int], nn.Module] | None = None  # (parties, task, outputs)


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
register(
    Algorithm(
        "afsgd",
        "linear; asynchronous stochastic gradient, one block a party",
        afsgd.Afsgd,
        linear_party=afsgd.linear_party,
    )
)
register(
    Algorithm(
        "afsvrg", "linear; as afsgd, variance reduced by snapshots", afsvrg.Afsvrg, linear_party=afsvrg.linear_party
    )
)
register(
    Algorithm(
        "afsaga", "linear; as afsgd, variance reduced by a table", afsaga.Afsaga, linear_party=afsaga.linear_party
    )
)
register(Algorithm("fsgd", "linear; as afsgd, synchronous", fsgd.Fsgd, linear_party=fsgd.linear_party))
register(Algorithm("fsvrg", "linear; as afsvrg, synchronous", fsvrg.Fsvrg, linear_party=fsvrg.linear_party))
register(Algorithm("fsaga", "linear; as afsaga, synchronous", fsaga.Fsaga, linear_party=fsaga.linear_party))
register(
    Algorithm(
        "asysqn-sgd", "linear; as afsgd, quasi-Newton", asysqn_sgd.AsysqnSgd, linear_party=asysqn_sgd.linear_party
    )
)
register(
    Algorithm(
        "asysqn-svrg",
        "linear; as afsvrg, quasi-Newton",
        asysqn_svrg.AsysqnSvrg,
        linear_party=asysqn_svrg.linear_party,
    )
)
register(
    Algorithm(
        "asysqn-saga",
        "linear; as afsaga, quasi-Newton",
        asysqn_saga.AsysqnSaga,
        linear_party=asysqn_saga.linear_party,
    )
)
register(
    Algorithm(
        "synsqn-sgd", "linear; as asysqn-sgd, synchronous", synsqn_sgd.SynsqnSgd, linear_party=synsqn_sgd.linear_party
    )
)
register(
    Algorithm(
        "synsqn-svrg",
        "linear; as asysqn-svrg, synchronous",
        synsqn_svrg.SynsqnSvrg,
        linear_party=synsqn_svrg.linear_party,
    )
)
register(
    Algorithm(
        "synsqn-saga",
        "linear; as asysqn-saga, synchronous",
        synsqn_saga.SynsqnSaga,
        linear_party=synsqn_saga.linear_party,
    )
)
register(
    Algorithm(
        "fcg",
        "linear; synchronous, conjugate gradients over all blocks, all rows at every step",
        fcg.Fcg,
        linear_party=fcg.linear_party,
    )
)
register(
    Algorithm(
        "fdml",
        "asynchronous; a weighted sum of the parties' own predictions (a baseline)",
        fdml.Fdml,
        fdml.label_party,
        fdml.feature_party,
        bottom=fdml.WeightedPrediction,
        top=fdml.CombinedPrediction,
    )
)
