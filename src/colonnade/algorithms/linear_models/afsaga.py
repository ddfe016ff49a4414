"""AFSAGA-VP: AFSGD-VP with the variance of the gradient reduced by a table of the last residuals.

B. Gu, A. Xu, Z. Huo, C. Deng, H. Huang. "Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms for
Multiparty Collaborative Learning", IEEE TNNLS 2021, arXiv:2008.06233, Algorithm 5. The paper's table holds
gradients; ours holds the numbers ϑ_i that they are multiples of, one a row and output.
"""

from dataclasses import dataclass

import numpy as np

from colonnade.algorithms.linear_models.afsgd import ALGORITHM as AFSGD
from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.conversation import sums_of_products
from colonnade.algorithms.linear_models.parts.everybody import asynchronous_party
from colonnade.algorithms.linear_models.parts.settings import AsynchronousLinear
from colonnade.algorithms.linear_models.parts.solving import Descent, Floats, requests_per_epoch, steps_per_epoch
from colonnade.algorithms.row import Algorithm, Family, Passes
from colonnade.algorithms.seats import LinearSeat
from colonnade.models.linear_window import Window
from colonnade.party import Party
from colonnade.state import Remembering, array, value


@dataclass(frozen=True)
class Afsaga(AsynchronousLinear):
    """`[algorithm]` with name = "afsaga"."""


def linear_party(seat: LinearSeat) -> Party:
    """Algorithm 5 on worker ℓ."""
    block_party = BlockParty(seat, abandons=True, requests_per_epoch=requests_per_epoch(seat))
    return asynchronous_party(block_party, Descent(block_party, Saga(block_party), shared_rows=False))


class Saga(Remembering):
    """v̂ = ∇_ℓ f_I(ŵ) − α̂_I + (1/n) Σ_i α̂_i, then α̂_I ← ∇_ℓ f_I(ŵ), with α̂_i = ϑ_i x_i."""

    independent_rows = True
    fall_backs = 0

    MEMORY = (array("table"), value("_taken_at"))

    def __init__(self, block_party: BlockParty) -> None:
        self._block_party = block_party
        # The table's mean gradient is not the objective's until the weights rest: a stopping rule needs a full pass.
        self._every = 2 * steps_per_epoch(block_party) if block_party.seat.settings.tolerance else 0
        self._taken_at = 0  # steps when the table was filled
        self.renewed_every = steps_per_epoch(block_party)
        self.table: Floats = np.zeros((0, block_party.seat.outputs))

    def pass_is_due(self, steps: int) -> bool:
        """Line 2: once, to fill the table; every other epoch if there is a stopping rule."""
        return len(self.table) == 0 or 0 < self._every <= steps - self._taken_at

    def take_pass(self, residuals: Floats, steps: int) -> None:
        self.table, self._taken_at = residuals, steps
        self._block_party.block.set_mean_gradient(*self._block_party.block.full_gradient(residuals))

    def known(self) -> Floats:
        return self.table

    def jumped(self) -> None:
        pass

    def step(self, window: Window, step_size: float, steps: int) -> float:
        return self._block_party.block.saga_steps(window, step_size, self.table)


ALGORITHM = Algorithm(
    name="afsaga",
    summary="linear; as afsgd, variance reduced by a table",
    family=Family.LINEAR,
    settings=Afsaga,
    paper=AFSGD.paper,
    conversation=sums_of_products(Passes.ONCE),
    linear_party=linear_party,
    to_begin_with=True,
)
