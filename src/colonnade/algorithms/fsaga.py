"""FSAGA: afsaga.py with one shared batch and a barrier; without delay it is SAGA on the joined columns.

The synchronous baseline of B. Gu et al., "Privacy-Preserving Asynchronous Vertical Federated Learning Algorithms for
Multiparty Collaborative Learning", 2021. The schedule is in parts/lockstep.py.
"""

from dataclasses import dataclass

from colonnade.algorithms.afsaga import Saga
from colonnade.algorithms.parts.linear_settings import SynchronousLinear
from colonnade.algorithms.parts.lockstep import SynchronousPeer
from colonnade.algorithms.parts.member import Member
from colonnade.algorithms.parts.seats import LinearSeat
from colonnade.algorithms.parts.solving import Descent, shared_steps_per_epoch
from colonnade.party import Party


@dataclass(frozen=True)
class Fsaga(SynchronousLinear):
    """`[algorithm]` with name = "fsaga"."""


def peer(seat: LinearSeat) -> Party:
    member = Member(seat, abandons=False, requests_per_epoch=shared_steps_per_epoch(seat))
    return SynchronousPeer(member, Descent(member, Saga(member), shared_rows=True))
