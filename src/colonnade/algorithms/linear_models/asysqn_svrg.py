"""AsySQN-SVRG: afsvrg.py along a quasi-Newton direction d = Hv that every party learns from its own block.

Q. Zhang, B. Gu, C. Deng, S. Gu, L. Bo, J. Pei, H. Huang. "AsySQN: Faster Vertical Federated Learning Algorithms with
Better Computation Resource Utilization", KDD 2021, arXiv:2109.12519, Algorithm 4. H is Algorithm 1, in
parts/damped_lbfgs.py; the step and what it learns from are in parts/curved_block.py.
"""

from dataclasses import dataclass

from colonnade.algorithms.linear_models.afsvrg import Afsvrg, Svrg
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
class AsysqnSvrg(QuasiNewton, Afsvrg):
    """`[algorithm]` with name = "asysqn-svrg"."""

    def __post_init__(self) -> None:
        Afsvrg.__post_init__(self)
        QuasiNewton.__post_init__(self)


def linear_party(seat: LinearSeat) -> Party:
    """Algorithm 4 on party ℓ."""
    block_party = BlockParty(seat, abandons=True, requests_per_epoch=requests_per_epoch(seat))
    return AsynchronousLinearParty(
        block_party, Descent(block_party, SqnSvrg(block_party), shared_rows=False, newton=True)
    )


class SqnSvrg:
    """v̂ = ∇_ℓ f_I(ŵ) − ∇_ℓ f_I(wˢ) + ∇_ℓ f(wˢ)."""

    independent_rows = True

    def __init__(self, block_party: BlockParty) -> None:
        self._first_order = Svrg(block_party)
        self._block = CurvedBlock(block_party, adapts=True, known=self.known)

    def pass_is_due(self, steps: int) -> bool:
        return self._first_order.pass_is_due(steps)

    def take_pass(self, residuals: Floats, steps: int) -> None:
        self._first_order.take_pass(residuals, steps)

    def known(self) -> Floats:
        return self._first_order.known()

    def step(self, window: Window, step_size: float, steps: int) -> float:
        snapshot, mean = self._first_order.snapshot, self._block.mean_gradient()

        def gradient(rows: Rows, residuals: Floats) -> Floats:
            return self._block.gradient(rows, residuals - snapshot[rows]) + mean

        return self._block.steps(window, gradient, lambda k: step_size)

    def state(self) -> State:
        state = self._first_order.state()
        state.add("block", self._block.state())
        return state

    def restore(self, state: State) -> None:
        self._first_order.restore(state)
        self._block.restore(state.part("block"))


ALGORITHM = Algorithm(
    name="asysqn-svrg",
    summary="linear; as afsvrg, quasi-Newton",
    family=Family.LINEAR,
    settings=AsysqnSvrg,
    paper=ASYSQN_SGD.paper,
    conversation=Conversation(
        upload=ProductSum,
        masked_upload=MaskedSum,
        reply=ResidualReply,
        answers="residuals",
        passes=Passes.SNAPSHOTS,
    ),
    linear_party=linear_party,
)
