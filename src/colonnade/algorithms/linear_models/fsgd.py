"""FSGD: afsgd.py with one shared batch and a barrier; without delay it is SGD on the joined columns.

The synchronous baseline of B. Gu et al., "Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms for
Multiparty Collaborative Learning", IEEE TNNLS 2021, arXiv:2008.06233. The schedule is in parts/synchronous.py.
"""

from dataclasses import dataclass
from typing import ClassVar

from colonnade.algorithms.linear_models.afsgd import ALGORITHM as AFSGD
from colonnade.algorithms.linear_models.afsgd import Sgd, check_decay
from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.conversation import shared_steps
from colonnade.algorithms.linear_models.parts.settings import SynchronousLinear
from colonnade.algorithms.linear_models.parts.solving import Descent, shared_steps_per_epoch
from colonnade.algorithms.linear_models.parts.synchronous import SynchronousLinearParty
from colonnade.algorithms.row import Algorithm, Family, Passes
from colonnade.algorithms.seats import LinearSeat
from colonnade.algorithms.training import AUTO, Auto
from colonnade.messages import SharedStep
from colonnade.party import Party


@dataclass(frozen=True)
class Fsgd(SynchronousLinear):
    """`[algorithm]` with name = "fsgd"."""

    keeps_residuals: ClassVar[bool] = False
    decay: float | Auto = AUTO
    """the step size is divided by 1 + decay × epoch; 0: it stays; `auto`: it falls in a line"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_decay(self.decay)


def linear_party(seat: LinearSeat) -> Party:
    block_party = BlockParty(seat, abandons=False, requests_per_epoch=shared_steps_per_epoch(seat))
    return SynchronousLinearParty(block_party, Descent(block_party, Sgd(block_party), shared_rows=True))


ALGORITHM = Algorithm(
    name="fsgd",
    summary="linear; as afsgd, synchronous",
    family=Family.LINEAR,
    settings=Fsgd,
    paper=AFSGD.paper,
    conversation=shared_steps(SharedStep, Passes.FOR_STOPPING),
    linear_party=linear_party,
)
