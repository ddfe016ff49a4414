"""AsySQN-SAGA: afsaga.py along a quasi-Newton direction d = Hv that every party learns from its own block.

Q. Zhang, B. Gu, C. Deng, S. Gu, L. Bo, J. Pei, H. Huang. "AsySQN: Faster Vertical Federated Learning Algorithms with
Better Computation Resource Utilization", KDD 2021, arXiv:2109.12519, Algorithm 5. H is Algorithm 1, in
parts/damped_lbfgs.py; the step and what it learns from are in parts/curved_block.py.
"""

from dataclasses import dataclass

from colonnade.algorithms.linear_models.afsaga import Afsaga, Saga
from colonnade.algorithms.linear_models.asysqn_sgd import ALGORITHM as ASYSQN_SGD
from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.conversation import sums_of_products
from colonnade.algorithms.linear_models.parts.curved_block import CurvedBlock
from colonnade.algorithms.linear_models.parts.everybody import asynchronous_party
from colonnade.algorithms.linear_models.parts.quasi_newton import QuasiNewtonEstimator
from colonnade.algorithms.linear_models.parts.settings import LARGE_BATCHES, QuasiNewton
from colonnade.algorithms.linear_models.parts.solving import Descent, Floats, Rows, requests_per_epoch
from colonnade.algorithms.row import Algorithm, Family, Passes
from colonnade.algorithms.seats import LinearSeat
from colonnade.party import Party


@dataclass(frozen=True)
class AsysqnSaga(QuasiNewton, Afsaga):
    """`[algorithm]` with name = "asysqn-saga"."""


def linear_party(seat: LinearSeat) -> Party:
    """Algorithm 5 on party ℓ."""
    block_party = BlockParty(seat, abandons=True, requests_per_epoch=requests_per_epoch(seat))
    return asynchronous_party(block_party, Descent(block_party, sqn_saga(block_party), shared_rows=False, newton=True))


def sqn_saga(block_party: BlockParty) -> QuasiNewtonEstimator:
    """v̂ = ∇_ℓ f_I(ŵ) − α̂_I + (1/n) Σ_i α̂_i, then α̂_I ← ∇_ℓ f_I(ŵ)."""
    saga = Saga(block_party)
    block = CurvedBlock(block_party, adapts=True, known=saga.known)

    def gradient(rows: Rows, residuals: Floats) -> Floats:
        change = block.gradient(rows, residuals - saga.table[rows])
        mean = block.mean_gradient()
        saga.table[rows] = residuals
        block.set_mean_gradient(mean + change * (rows.size / len(saga.table)))
        return change + mean

    return QuasiNewtonEstimator(saga, block, gradient)


ALGORITHM = Algorithm(
    name="asysqn-saga",
    summary="linear; as afsaga, quasi-Newton",
    family=Family.LINEAR,
    settings=AsysqnSaga,
    paper=ASYSQN_SGD.paper,
    conversation=sums_of_products(Passes.ONCE),
    linear_party=linear_party,
    defaults=LARGE_BATCHES,
)
