"""AsySQN-SAGA: afsaga.py along a quasi-Newton direction d = Hv that every party learns from its own block.

Q. Zhang, B. Gu, C. Deng, S. Gu, L. Bo, J. Pei, H. Huang. "AsySQN: Faster Vertical Federated Learning Algorithms with
Better Computation Resource Utilization", KDD 2021, arXiv:2109.12519, Algorithm 5. H is Algorithm 1, in
parts/damped_lbfgs.py; the step and what it learns from are in parts/curved_block.py.
"""

from dataclasses import dataclass

from colonnade.algorithms.linear_models.afsaga import Afsaga, Saga
from colonnade.algorithms.linear_models.asysqn_sgd import ALGORITHM as ASYSQN_SGD
from colonnade.algorithms.linear_models.parts.asynchronous import AsynchronousLinearParty
from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.curved_block import CurvedBlock
from colonnade.algorithms.linear_models.parts.settings import QuasiNewton
from colonnade.algorithms.linear_models.parts.solving import Descent, Floats, Rows, requests_per_epoch
from colonnade.algorithms.row import Algorithm, Conversation, Family, Passes
from colonnade.algorithms.seats import LinearSeat
from colonnade.messages import MaskedSum, ProductSum, ResidualReply
from colonnade.models.linear import Window
from colonnade.party import Party
from colonnade.state import State


@dataclass(frozen=True)
class AsysqnSaga(QuasiNewton, Afsaga):
    """`[algorithm]` with name = "asysqn-saga"."""

    def __post_init__(self) -> None:
        Afsaga.__post_init__(self)
        QuasiNewton.__post_init__(self)


def linear_party(seat: LinearSeat) -> Party:
    """Algorithm 5 on party ℓ."""
    block_party = BlockParty(seat, abandons=True, requests_per_epoch=requests_per_epoch(seat))
    return AsynchronousLinearParty(
        block_party, Descent(block_party, SqnSaga(block_party), shared_rows=False, newton=True)
    )


class SqnSaga:
    """v̂ = ∇_ℓ f_I(ŵ) − α̂_I + (1/n) Σ_i α̂_i, then α̂_I ← ∇_ℓ f_I(ŵ)."""

    independent_rows = True

    def __init__(self, block_party: BlockParty) -> None:
        self._first_order = Saga(block_party)
        self._block = CurvedBlock(block_party, adapts=True, known=self.known)

    def pass_is_due(self, steps: int) -> bool:
        return self._first_order.pass_is_due(steps)

    def take_pass(self, residuals: Floats, steps: int) -> None:
        self._first_order.take_pass(residuals, steps)

    def known(self) -> Floats:
        return self._first_order.known()

    def step(self, window: Window, step_size: float, steps: int) -> float:
        table = self._first_order.table

        def gradient(rows: Rows, residuals: Floats) -> Floats:
            change = self._block.gradient(rows, residuals - table[rows])
            mean = self._block.mean_gradient()
            table[rows] = residuals
            self._block.set_mean_gradient(mean + change * (rows.size / len(table)))
            return change + mean

        return self._block.steps(window, gradient, lambda k: step_size)

    def state(self) -> State:
        state = self._first_order.state()
        state.add("block", self._block.state())
        return state

    def restore(self, state: State) -> None:
        self._first_order.restore(state)
        self._block.restore(state.part("block"))


ALGORITHM = Algorithm(
    name="asysqn-saga",
    summary="linear; as afsaga, quasi-Newton",
    family=Family.LINEAR,
    settings=AsysqnSaga,
    paper=ASYSQN_SGD.paper,
    conversation=Conversation(
        upload=ProductSum,
        masked_upload=MaskedSum,
        reply=ResidualReply,
        answers="residuals",
        passes=Passes.ONCE,
    ),
    linear_party=linear_party,
)
