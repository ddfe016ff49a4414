"""SynSQN: the estimators and directions of asysqn.py with one shared batch and a barrier.

The synchronous baselines of Q. Zhang et al., "AsySQN: Faster Vertical Federated Learning Algorithms with Better
Computation Resource Utilization", 2021. The schedule is in parts/lockstep.py.
"""

from dataclasses import dataclass

from colonnade.algorithms.asysqn import SqnSaga, SqnSgd, SqnSvrg, quasi_newton
from colonnade.algorithms.fsgd import Fsaga, Fsgd, Fsvrg
from colonnade.algorithms.parts.linear_settings import QuasiNewton
from colonnade.algorithms.parts.lockstep import SynchronousPeer
from colonnade.algorithms.parts.member import Member
from colonnade.algorithms.parts.seats import LinearSeat
from colonnade.algorithms.parts.solving import shared_steps_per_epoch
from colonnade.party import Party


@dataclass(frozen=True)
class SynsqnSgd(QuasiNewton, Fsgd):
    """`[algorithm]` with name = "synsqn-sgd"."""

    def __post_init__(self) -> None:
        Fsgd.__post_init__(self)
        QuasiNewton.__post_init__(self)


@dataclass(frozen=True)
class SynsqnSvrg(QuasiNewton, Fsvrg):
    """`[algorithm]` with name = "synsqn-svrg"."""

    def __post_init__(self) -> None:
        Fsvrg.__post_init__(self)
        QuasiNewton.__post_init__(self)


@dataclass(frozen=True)
class SynsqnSaga(QuasiNewton, Fsaga):
    """`[algorithm]` with name = "synsqn-saga"."""

    def __post_init__(self) -> None:
        Fsaga.__post_init__(self)
        QuasiNewton.__post_init__(self)


def sgd(seat: LinearSeat) -> Party:
    member = Member(seat, abandons=False, requests_per_epoch=shared_steps_per_epoch(seat))
    return SynchronousPeer(member, quasi_newton(member, SqnSgd(member), shared_rows=True))


def svrg(seat: LinearSeat) -> Party:
    member = Member(seat, abandons=False, requests_per_epoch=shared_steps_per_epoch(seat))
    return SynchronousPeer(member, quasi_newton(member, SqnSvrg(member), shared_rows=True))


def saga(seat: LinearSeat) -> Party:
    member = Member(seat, abandons=False, requests_per_epoch=shared_steps_per_epoch(seat))
    return SynchronousPeer(member, quasi_newton(member, SqnSaga(member), shared_rows=True))
