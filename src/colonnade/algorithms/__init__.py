"""The table of algorithms: one line each, and what an algorithm is says the row in its own file. A line here buys the
contract tests, the command line and a place in the documents; CONTRIBUTING.md shows how to add one.
"""

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
from colonnade.algorithms.row import Algorithm, Conversation, Family, Paper
from colonnade.algorithms.split_models import cascaded, centralised, czofo, dpzv, fdml, split, vafl, zoo, zoo_sync
from colonnade.algorithms.table import ALGORITHMS, find, name_of, register, to_begin_with, which

__all__ = [
    "ALGORITHMS",
    "DEFAULT",
    "Algorithm",
    "Conversation",
    "Family",
    "Paper",
    "find",
    "name_of",
    "register",
    "to_begin_with",
    "which",
]

register(vafl.ALGORITHM)
register(split.ALGORITHM)
register(cascaded.ALGORITHM)
register(zoo.ALGORITHM)
register(zoo_sync.ALGORITHM)
register(czofo.ALGORITHM)
register(dpzv.ALGORITHM)
register(centralised.ALGORITHM)
register(afsgd.ALGORITHM)
register(afsvrg.ALGORITHM)
register(afsaga.ALGORITHM)
register(fsgd.ALGORITHM)
register(fsvrg.ALGORITHM)
register(fsaga.ALGORITHM)
register(asysqn_sgd.ALGORITHM)
register(asysqn_svrg.ALGORITHM)
register(asysqn_saga.ALGORITHM)
register(synsqn_sgd.ALGORITHM)
register(synsqn_svrg.ALGORITHM)
register(synsqn_saga.ALGORITHM)
register(fcg.ALGORITHM)
register(fdml.ALGORITHM)

DEFAULT = to_begin_with(Family.SPLIT)
"""Where nobody names an algorithm."""
