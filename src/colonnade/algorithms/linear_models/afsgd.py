"""AFSGD-VP: every party steps along its own block of the stochastic gradient, at its own pace; no server has a model.

B. Gu, A. Xu, Z. Huo, C. Deng, H. Huang. "Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms for
Multiparty Collaborative Learning", IEEE TNNLS 2021, arXiv:2008.06233, Algorithm 3. The schedule is in
parts/asynchronous.py, the sums in parts/sums.py.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

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
from colonnade.algorithms.row import Algorithm, Family, Paper, Passes
from colonnade.algorithms.seats import LinearSeat
from colonnade.algorithms.training import AUTO, Auto
from colonnade.models.linear_window import Window
from colonnade.party import Party
from colonnade.state import Remembering

LEAST_STEP = 0.02
"""Of the first step, what one keeps that falls in a line: a party that makes more than the planned ones learns on."""


@dataclass(frozen=True)
class Afsgd(AsynchronousLinear):
    """`[algorithm]` with name = "afsgd"."""

    keeps_residuals: ClassVar[bool] = False
    decay: float | Auto = AUTO
    """the step size is divided by 1 + decay × epoch; 0: it stays; `auto`: it falls in a line"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_decay(self.decay)


def linear_party(seat: LinearSeat) -> Party:
    """Algorithm 3 on worker ℓ."""
    block_party = BlockParty(seat, abandons=True, requests_per_epoch=requests_per_epoch(seat))
    return asynchronous_party(block_party, Descent(block_party, Sgd(block_party), shared_rows=False))


def check_decay(decay: float | Auto) -> None:
    if decay != AUTO:
        check_not_negative("decay", decay)


def decayed(seat: LinearSeat, epochs: Floats) -> Floats:
    """What is left of the first step after so many epochs of a party's own.

    A constant step ends where its noise lets it; one that falls in a line to nearly nothing ends near the optimum.
    """
    decay = seat.settings.decay
    line: Floats = np.maximum(1 - epochs / seat.training.epochs, LEAST_STEP)
    return line if decay == AUTO else 1 / (1 + decay * epochs)


class Sgd(Remembering):
    """w_ℓ ← w_ℓ − γ v̂ with v̂ = ∇_ℓ f_I(ŵ): its own block is current, the others' as they answered."""

    independent_rows = False
    fall_backs = 0

    def __init__(self, block_party: BlockParty) -> None:
        self._block_party = block_party
        self.renewed_every = self._per_epoch = steps_per_epoch(block_party)

    def pass_is_due(self, steps: int) -> bool:
        """Only the stopping rule needs one, each epoch."""
        return bool(self._block_party.seat.settings.tolerance) and steps > 0 and steps % self._per_epoch == 0

    def take_pass(self, residuals: Floats, steps: int) -> None:
        pass

    def known(self) -> Floats:
        return np.zeros((0, self._block_party.seat.outputs))

    def jumped(self) -> None:
        pass

    def step(self, window: Window, step_size: float, steps: int) -> float:
        batches = -(-window.rows.size // window.batch_size)
        epochs = (steps + np.arange(batches)) / self._per_epoch
        return self._block_party.block.sgd_steps(window, step_size * decayed(self._block_party.seat, epochs))


ALGORITHM = Algorithm(
    name="afsgd",
    summary="linear; asynchronous stochastic gradient, one block per party",
    family=Family.LINEAR,
    settings=Afsgd,
    paper=Paper(
        authors="B. Gu, A. Xu, Z. Huo, C. Deng, H. Huang",
        title="Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms for Multiparty Collaborative "
        "Learning",
        year=2021,
        venue="IEEE TNNLS 2021",
        arxiv="2008.06233",
    ),
    conversation=sums_of_products(Passes.FOR_STOPPING),
    linear_party=linear_party,
)
