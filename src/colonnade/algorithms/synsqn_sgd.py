"""SynSQN-SGD: asysqn_sgd.py with one shared batch and a barrier.

The synchronous baseline of Q. Zhang et al., "AsySQN: Faster Vertical Federated Learning Algorithms with Better
Computation Resource Utilization", 2021. The schedule is in parts/lockstep.py.
"""

from dataclasses import dataclass

from colonnade.algorithms.asysqn_sgd import SqnSgd
from colonnade.algorithms.fsgd import Fsgd
from colonnade.algorithms.parts.linear_settings import QuasiNewton
from colonnade.algorithms.parts.lockstep import SynchronousPeer
from colonnade.algorithms.parts.member import Member
from colonnade.algorithms.parts.seats import LinearSeat
from colonnade.algorithms.parts.solving import Descent, shared_steps_per_epoch
from colonnade.party import Party


@dataclass(frozen=True)
class SynsqnSgd(QuasiNewton, Fsgd):
    """`[algorithm]` with name = "synsqn-sgd"."""

    def __post_init__(self) -> None:
        Fsgd.__post_init__(self)
        QuasiNewton.__post_init__(self)


def peer(seat: LinearSeat) -> Party:
    member = Member(seat, abandons=False, requests_per_epoch=shared_steps_per_epoch(seat))
    return SynchronousPeer(member, Descent(member, SqnSgd(member), shared_rows=True, newton=True))
