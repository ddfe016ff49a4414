"""AsySQN: AFSGD, AFSVRG and AFSAGA with a quasi-Newton direction that every party learns from its own block.

Q. Zhang, B. Gu, C. Deng, S. Gu, L. Bo, J. Pei, H. Huang. "AsySQN: Faster Vertical Federated Learning Algorithms with
Better Computation Resource Utilization", 2021, Algorithms 3, 4, 5; H is Algorithm 1, in parts/damped_lbfgs.py. As
printed, the pair (s, ȳ) takes ȳ from two batches' gradients (`curvature_rows = "fresh"`). With "same", ȳ is the change
of one batch's gradient along s: a party can form it alone, since the curvature of the loss follows from ∂loss/∂θ.
"""

from dataclasses import dataclass

from colonnade.algorithms.afsaga import Afsaga, Saga
from colonnade.algorithms.afsgd import Afsgd, Sgd
from colonnade.algorithms.afsvrg import Afsvrg, Svrg
from colonnade.algorithms.parts.curved_block import CurvedBlock
from colonnade.algorithms.parts.linear_settings import QuasiNewton
from colonnade.algorithms.parts.member import Member
from colonnade.algorithms.parts.peers import AsynchronousPeer
from colonnade.algorithms.parts.seats import LinearSeat
from colonnade.algorithms.parts.solving import Descent, Estimator, Floats, Rows, requests_per_epoch, steps_per_epoch
from colonnade.models.linear import Window
from colonnade.party import Party, State


@dataclass(frozen=True)
class AsysqnSgd(QuasiNewton, Afsgd):
    """`[algorithm]` with name = "asysqn-sgd"."""

    def __post_init__(self) -> None:
        Afsgd.__post_init__(self)
        QuasiNewton.__post_init__(self)


@dataclass(frozen=True)
class AsysqnSvrg(QuasiNewton, Afsvrg):
    """`[algorithm]` with name = "asysqn-svrg"."""

    def __post_init__(self) -> None:
        Afsvrg.__post_init__(self)
        QuasiNewton.__post_init__(self)


@dataclass(frozen=True)
class AsysqnSaga(QuasiNewton, Afsaga):
    """`[algorithm]` with name = "asysqn-saga"."""

    def __post_init__(self) -> None:
        Afsaga.__post_init__(self)
        QuasiNewton.__post_init__(self)


def sgd(seat: LinearSeat) -> Party:
    """Algorithm 3."""
    member = Member(seat, abandons=True, requests_per_epoch=requests_per_epoch(seat))
    return AsynchronousPeer(member, quasi_newton(member, SqnSgd(member), shared_rows=False))


def svrg(seat: LinearSeat) -> Party:
    """Algorithm 4."""
    member = Member(seat, abandons=True, requests_per_epoch=requests_per_epoch(seat))
    return AsynchronousPeer(member, quasi_newton(member, SqnSvrg(member), shared_rows=False))


def saga(seat: LinearSeat) -> Party:
    """Algorithm 5."""
    member = Member(seat, abandons=True, requests_per_epoch=requests_per_epoch(seat))
    return AsynchronousPeer(member, quasi_newton(member, SqnSaga(member), shared_rows=False))


def quasi_newton(member: Member, estimator: Estimator, shared_rows: bool) -> Descent:
    """The direction has the length of a Newton step already: the step size is a share of it."""
    return Descent(member, estimator, shared_rows=shared_rows, newton=True)


class SqnSgd:
    """v̂ = ∇_ℓ f_I(ŵ)."""

    independent_rows = False

    def __init__(self, member: Member) -> None:
        self._first_order = Sgd(member)
        self._block = CurvedBlock(member)
        self._per_epoch = steps_per_epoch(member)
        self._decay: float = member.seat.settings.decay

    def pass_is_due(self, steps: int) -> bool:
        return self._first_order.pass_is_due(steps)

    def take_pass(self, residuals: Floats, steps: int) -> None:
        self._first_order.take_pass(residuals, steps)

    def step(self, window: Window, step_size: float, steps: int) -> float:
        def gradient(rows: Rows, residuals: Floats) -> Floats:
            return self._block.gradient(rows, residuals)

        def decayed(batch: int) -> float:
            return step_size / (1 + self._decay * (steps + batch) / self._per_epoch)

        return self._block.steps(window, gradient, decayed)

    def gradient_square(self) -> float | None:
        return None

    def state(self) -> State:
        return self._block.state()

    def restore(self, state: State) -> None:
        self._block.restore(state)


class SqnSvrg:
    """v̂ = ∇_ℓ f_I(ŵ) − ∇_ℓ f_I(wˢ) + ∇_ℓ f(wˢ)."""

    independent_rows = True

    def __init__(self, member: Member) -> None:
        self._first_order = Svrg(member)
        self._block = CurvedBlock(member)

    def pass_is_due(self, steps: int) -> bool:
        return self._first_order.pass_is_due(steps)

    def take_pass(self, residuals: Floats, steps: int) -> None:
        self._first_order.take_pass(residuals, steps)

    def step(self, window: Window, step_size: float, steps: int) -> float:
        snapshot, mean = self._first_order.snapshot, self._block.mean_gradient()

        def gradient(rows: Rows, residuals: Floats) -> Floats:
            return self._block.gradient(rows, residuals - snapshot[rows]) + mean

        return self._block.steps(window, gradient, lambda k: step_size)

    def gradient_square(self) -> float | None:
        return None

    def state(self) -> State:
        state = self._first_order.state()
        state.add("block", self._block.state())
        return state

    def restore(self, state: State) -> None:
        self._first_order.restore(state)
        self._block.restore(state.part("block"))


class SqnSaga:
    """v̂ = ∇_ℓ f_I(ŵ) − α̂_I + (1/n) Σ_i α̂_i, then α̂_I ← ∇_ℓ f_I(ŵ)."""

    independent_rows = True

    def __init__(self, member: Member) -> None:
        self._first_order = Saga(member)
        self._block = CurvedBlock(member)

    def pass_is_due(self, steps: int) -> bool:
        return self._first_order.pass_is_due(steps)

    def take_pass(self, residuals: Floats, steps: int) -> None:
        self._first_order.take_pass(residuals, steps)

    def step(self, window: Window, step_size: float, steps: int) -> float:
        table = self._first_order.table

        def gradient(rows: Rows, residuals: Floats) -> Floats:
            change = self._block.gradient(rows, residuals - table[rows])
            mean = self._block.mean_gradient()
            table[rows] = residuals
            self._block.set_mean_gradient(mean + change * (rows.size / len(table)))
            return change + mean

        return self._block.steps(window, gradient, lambda k: step_size)

    def gradient_square(self) -> float | None:
        return self._first_order.gradient_square()

    def state(self) -> State:
        state = self._first_order.state()
        state.add("block", self._block.state())
        return state

    def restore(self, state: State) -> None:
        self._first_order.restore(state)
        self._block.restore(state.part("block"))
