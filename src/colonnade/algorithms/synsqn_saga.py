"""SynSQN-SAGA: asysqn_saga.py with one shared batch and a barrier.

The synchronous baseline of Q. Zhang et al., "AsySQN: Faster Vertical Federated Learning Algorithms with Better
Computation Resource Utilization", 2021. The schedule is in parts/lockstep.py.
"""

from dataclasses import dataclass

from colonnade.algorithms.asysqn_saga import SqnSaga
from colonnade.algorithms.fsaga import Fsaga
from colonnade.algorithms.parts.linear_settings import QuasiNewton
from colonnade.algorithms.parts.lockstep import SynchronousPeer
from colonnade.algorithms.parts.member import Member
from colonnade.algorithms.parts.seats import LinearSeat
from colonnade.algorithms.parts.solving import Descent, shared_steps_per_epoch
from colonnade.party import Party


@dataclass(frozen=True)
class SynsqnSaga(QuasiNewton, Fsaga):
    """`[algorithm]` with name = "synsqn-saga"."""

    def __post_init__(self) -> None:
        Fsaga.__post_init__(self)
        QuasiNewton.__post_init__(self)


def peer(seat: LinearSeat) -> Party:
    member = Member(seat, abandons=False, requests_per_epoch=shared_steps_per_epoch(seat))
    return SynchronousPeer(member, Descent(member, SqnSaga(member), shared_rows=True, newton=True))
