"""FSGD: afsgd.py with one shared batch and a barrier; without delay it is SGD on the joined columns.

The synchronous baseline of B. Gu et al., "Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms for
Multiparty Collaborative Learning", 2021. The schedule is in parts/lockstep.py.
"""

from dataclasses import dataclass
from typing import ClassVar

from colonnade.algorithms.afsgd import Sgd
from colonnade.algorithms.parts.linear_settings import SynchronousLinear
from colonnade.algorithms.parts.lockstep import SynchronousPeer
from colonnade.algorithms.parts.member import Member
from colonnade.algorithms.parts.seats import LinearSeat
from colonnade.algorithms.parts.solving import Descent, check_not_negative, shared_steps_per_epoch
from colonnade.party import Party


@dataclass(frozen=True)
class Fsgd(SynchronousLinear):
    """`[algorithm]` with name = "fsgd"."""

    keeps_residuals: ClassVar[bool] = False
    decay: float = 0.1  # the step size is divided by 1 + decay × epoch; 0: constant

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative("decay", self.decay)


def peer(seat: LinearSeat) -> Party:
    member = Member(seat, abandons=False, requests_per_epoch=shared_steps_per_epoch(seat))
    return SynchronousPeer(member, Descent(member, Sgd(member), shared_rows=True))
