"""AsySQN-SGD: afsgd.py along a quasi-Newton direction d = Hv that every party learns from its own block.

Q. Zhang, B. Gu, C. Deng, S. Gu, L. Bo, J. Pei, H. Huang. "AsySQN: Faster Vertical Federated Learning Algorithms with
Better Computation Resource Utilization", KDD 2021, arXiv:2109.12519, Algorithm 3. H is Algorithm 1, in
parts/damped_lbfgs.py; the step and what it learns from are in parts/curved_block.py.
"""

from dataclasses import dataclass

import numpy as np

from colonnade.algorithms.linear_models.afsgd import Afsgd, Sgd, decayed
from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.conversation import sums_of_products
from colonnade.algorithms.linear_models.parts.curved_block import CurvedBlock
from colonnade.algorithms.linear_models.parts.everybody import asynchronous_party
from colonnade.algorithms.linear_models.parts.settings import LARGE_BATCHES, QuasiNewton
from colonnade.algorithms.linear_models.parts.solving import Descent, Floats, Rows, requests_per_epoch, steps_per_epoch
from colonnade.algorithms.row import Algorithm, Family, Paper, Passes
from colonnade.algorithms.seats import LinearSeat
from colonnade.models.linear_window import Window
from colonnade.party import Party
from colonnade.state import Remembering, array, part


@dataclass(frozen=True)
class AsysqnSgd(QuasiNewton, Afsgd):
    """`[algorithm]` with name = "asysqn-sgd"."""


def linear_party(seat: LinearSeat) -> Party:
    """Algorithm 3 on party ℓ."""
    block_party = BlockParty(seat, abandons=True, requests_per_epoch=requests_per_epoch(seat))
    return asynchronous_party(block_party, Descent(block_party, SqnSgd(block_party), shared_rows=False, newton=True))


class SqnSgd(Remembering):
    """v̂ = ∇_ℓ f_I(ŵ)."""

    independent_rows = False

    MEMORY = (array("_seen"), part("_block"))

    def __init__(self, block_party: BlockParty) -> None:
        self._first_order = Sgd(block_party)
        self._seen: Floats = np.zeros(
            (block_party.seat.rows, block_party.seat.outputs)
        )  # ϑ of each row when it came last
        self._block = CurvedBlock(block_party, adapts=False, known=self.known)
        self.renewed_every = self._per_epoch = steps_per_epoch(block_party)
        self._seat = block_party.seat

    @property
    def fall_backs(self) -> int:
        return self._block.fall_backs

    def pass_is_due(self, steps: int) -> bool:
        return self._first_order.pass_is_due(steps)

    def take_pass(self, residuals: Floats, steps: int) -> None:
        self._seen = residuals

    def jumped(self) -> None:
        self._block.jumped()

    def known(self) -> Floats:
        return self._seen

    def step(self, window: Window, step_size: float, steps: int) -> float:
        def gradient(rows: Rows, residuals: Floats) -> Floats:
            self._seen[rows] = residuals
            return self._block.gradient(rows, residuals)

        def shorter(batch: int) -> float:
            return step_size * float(decayed(self._seat, np.array((steps + batch) / self._per_epoch)))

        return self._block.steps(window, gradient, shorter)


ALGORITHM = Algorithm(
    name="asysqn-sgd",
    summary="linear; as afsgd, quasi-Newton",
    family=Family.LINEAR,
    settings=AsysqnSgd,
    paper=Paper(
        authors="Q. Zhang, B. Gu, C. Deng, S. Gu, L. Bo, J. Pei, H. Huang",
        title="AsySQN: Faster Vertical Federated Learning Algorithms with Better Computation Resource Utilization",
        year=2021,
        venue="KDD 2021",
        arxiv="2109.12519",
    ),
    conversation=sums_of_products(Passes.FOR_STOPPING),
    linear_party=linear_party,
    defaults=LARGE_BATCHES,
)
