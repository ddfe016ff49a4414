"""FSVRG: afsvrg.py with one shared batch and a barrier; without delay it is SVRG on the joined columns.

The synchronous baseline of B. Gu et al., "Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms for
Multiparty Collaborative Learning", IEEE TNNLS 2021, arXiv:2008.06233. The schedule is in parts/synchronous.py.
"""

from dataclasses import dataclass

from colonnade.algorithms.linear_models.afsgd import ALGORITHM as AFSGD
from colonnade.algorithms.linear_models.afsvrg import Svrg
from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.conversation import shared_steps
from colonnade.algorithms.linear_models.parts.settings import SynchronousLinear
from colonnade.algorithms.linear_models.parts.solving import Descent, check_not_negative, shared_steps_per_epoch
from colonnade.algorithms.linear_models.parts.synchronous import SynchronousLinearParty
from colonnade.algorithms.row import Algorithm, Family, Passes
from colonnade.algorithms.seats import LinearSeat
from colonnade.messages import SharedStep
from colonnade.party import Party


@dataclass(frozen=True)
class Fsvrg(SynchronousLinear):
    """`[algorithm]` with name = "fsvrg"."""

    snapshot_every_epochs: float = 2.0
    """(epochs) of mini-batches between two full passes"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative("snapshot_every_epochs", self.snapshot_every_epochs)


def linear_party(seat: LinearSeat) -> Party:
    block_party = BlockParty(seat, abandons=False, requests_per_epoch=shared_steps_per_epoch(seat))
    return SynchronousLinearParty(block_party, Descent(block_party, Svrg(block_party), shared_rows=True))


ALGORITHM = Algorithm(
    name="fsvrg",
    summary="linear; as afsvrg, synchronous",
    family=Family.LINEAR,
    settings=Fsvrg,
    paper=AFSGD.paper,
    conversation=shared_steps(SharedStep, Passes.SNAPSHOTS),
    linear_party=linear_party,
)
