"""FSVRG: afsvrg.py with one shared batch and a barrier; without delay it is SVRG on the joined columns.

The synchronous baseline of B. Gu et al., "Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms for
Multiparty Collaborative Learning", 2021. The schedule is in parts/lockstep.py.
"""

from dataclasses import dataclass

from colonnade.algorithms.afsvrg import Svrg
from colonnade.algorithms.parts.linear_settings import SynchronousLinear
from colonnade.algorithms.parts.lockstep import SynchronousPeer
from colonnade.algorithms.parts.member import Member
from colonnade.algorithms.parts.seats import LinearSeat
from colonnade.algorithms.parts.solving import Descent, check_not_negative, shared_steps_per_epoch
from colonnade.party import Party


@dataclass(frozen=True)
class Fsvrg(SynchronousLinear):
    """`[algorithm]` with name = "fsvrg"."""

    snapshot_every_epochs: float = 2.0  # mini-batches between two full passes, in epochs

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative("snapshot_every_epochs", self.snapshot_every_epochs)


def peer(seat: LinearSeat) -> Party:
    member = Member(seat, abandons=False, requests_per_epoch=shared_steps_per_epoch(seat))
    return SynchronousPeer(member, Descent(member, Svrg(member), shared_rows=True))
