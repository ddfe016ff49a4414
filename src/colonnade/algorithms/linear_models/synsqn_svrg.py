"""SynSQN-SVRG: asysqn_svrg.py with one shared batch and a barrier.

The synchronous baseline of Q. Zhang et al., "AsySQN: Faster Vertical Federated Learning Algorithms with Better
Computation Resource Utilization", KDD 2021, arXiv:2109.12519. The schedule is in parts/synchronous.py.
"""

from dataclasses import dataclass

from colonnade.algorithms.linear_models.asysqn_sgd import ALGORITHM as ASYSQN_SGD
from colonnade.algorithms.linear_models.asysqn_svrg import sqn_svrg
from colonnade.algorithms.linear_models.fsvrg import Fsvrg
from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.conversation import shared_steps
from colonnade.algorithms.linear_models.parts.settings import LARGE_BATCHES, QuasiNewton
from colonnade.algorithms.linear_models.parts.solving import Descent, shared_steps_per_epoch
from colonnade.algorithms.linear_models.parts.synchronous import SynchronousLinearParty
from colonnade.algorithms.row import Algorithm, Family, Passes
from colonnade.algorithms.seats import LinearSeat
from colonnade.messages import SharedStep
from colonnade.party import Party


@dataclass(frozen=True)
class SynsqnSvrg(QuasiNewton, Fsvrg):
    """`[algorithm]` with name = "synsqn-svrg"."""


def linear_party(seat: LinearSeat) -> Party:
    block_party = BlockParty(seat, abandons=False, requests_per_epoch=shared_steps_per_epoch(seat))
    return SynchronousLinearParty(
        block_party, Descent(block_party, sqn_svrg(block_party), shared_rows=True, newton=True)
    )


ALGORITHM = Algorithm(
    name="synsqn-svrg",
    summary="linear; as asysqn-svrg, synchronous",
    family=Family.LINEAR,
    settings=SynsqnSvrg,
    paper=ASYSQN_SGD.paper,
    conversation=shared_steps(SharedStep, Passes.SNAPSHOTS),
    linear_party=linear_party,
    defaults=LARGE_BATCHES,
)
