"""AFSVRG-VP: AFSGD-VP with the variance of the gradient reduced by a snapshot.

B. Gu, A. Xu, Z. Huo, C. Deng, H. Huang. "Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms for
Multiparty Collaborative Learning", IEEE TNNLS 2021, arXiv:2008.06233, Algorithm 4. A party's snapshot is what
one full pass of its own gave, one number per row and output: no barrier is needed, and the inner loop sends nothing for
it.
"""

from dataclasses import dataclass

import numpy as np

from colonnade.algorithms.linear_models.afsgd import ALGORITHM as AFSGD
from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.conversation import sums_of_products
from colonnade.algorithms.linear_models.parts.everybody import asynchronous_party
from colonnade.algorithms.linear_models.parts.settings import AsynchronousLinear
from colonnade.algorithms.linear_models.parts.solving import (
    Descent,
    Floats,
    check_not_negative,
    requests_per_epoch,
    steps_per_epoch,
)
from colonnade.algorithms.row import Algorithm, Family, Passes
from colonnade.algorithms.seats import LinearSeat
from colonnade.models.linear_window import Window
from colonnade.party import Party
from colonnade.state import Remembering, array, value


@dataclass(frozen=True)
class Afsvrg(AsynchronousLinear):
    """`[algorithm]` with name = "afsvrg"."""

    snapshot_every_epochs: float = 2.0
    """(epochs) of mini-batches between two full passes"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative("snapshot_every_epochs", self.snapshot_every_epochs)


def linear_party(seat: LinearSeat) -> Party:
    """Algorithm 4 on worker ℓ."""
    block_party = BlockParty(seat, abandons=True, requests_per_epoch=requests_per_epoch(seat))
    return asynchronous_party(block_party, Descent(block_party, Svrg(block_party), shared_rows=False))


class Svrg(Remembering):
    """v̂ = ∇_ℓ f_I(ŵ) − ∇_ℓ f_I(wˢ) + ∇_ℓ f(wˢ), with ϑ_i(wˢ) kept for every row."""

    independent_rows = True
    fall_backs = 0

    MEMORY = (array("snapshot"), value("_taken_at"))

    def __init__(self, block_party: BlockParty) -> None:
        self._block_party = block_party
        self.renewed_every: int = max(
            1, round(block_party.seat.settings.snapshot_every_epochs * steps_per_epoch(block_party))
        )
        self._taken_at: int = -self.renewed_every  # steps when the snapshot was taken
        self.snapshot: Floats = np.zeros((0, block_party.seat.outputs))

    def pass_is_due(self, steps: int) -> bool:
        """Line 3: the full gradient at the beginning of every outer loop."""
        return steps >= self._taken_at + self.renewed_every

    def take_pass(self, residuals: Floats, steps: int) -> None:
        self.snapshot, self._taken_at = residuals, steps
        self._block_party.block.set_mean_gradient(*self._block_party.block.full_gradient(residuals))

    def known(self) -> Floats:
        return self.snapshot

    def jumped(self) -> None:
        pass

    def step(self, window: Window, step_size: float, steps: int) -> float:
        return self._block_party.block.svrg_steps(window, step_size, self.snapshot)


ALGORITHM = Algorithm(
    name="afsvrg",
    summary="linear; as afsgd, variance reduced by snapshots",
    family=Family.LINEAR,
    settings=Afsvrg,
    paper=AFSGD.paper,
    conversation=sums_of_products(Passes.SNAPSHOTS),
    linear_party=linear_party,
)
