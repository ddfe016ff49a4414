"""FCG: conjugate gradients over all blocks at once, each preconditioned by its owner, with one exact search for all.

Ours, for federations whose parties are all there. In the papers' linear algorithms every block steps for itself, and
the directions that parties have in common limit how far; here the label party looks along the sum of everybody's
directions. A step is one message each way, with every row: residuals down, the products of the next direction up.

    party m:      g_m = X_mᵀϑ/n + λw_m,   d_m = −M_m⁻¹ g_m,   M_m its own block of the curvature
    label party:  (t, u) = argmin f(w + t d + u p), from θ, Σ_m X_m d_m and Σ_m X_m p_m alone;  p: the step before
    party m:      p_m ← t d_m + u p_m,   w_m ← w_m + p_m

The search over the plane of d and p makes the directions conjugate (A. V. Knyazev, 2001, for eigenvalues).
"""

from dataclasses import dataclass
from math import inf
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.block_curvature import BlockCurvature
from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.conversation import shared_steps
from colonnade.algorithms.linear_models.parts.linear_party import LinearParty
from colonnade.algorithms.linear_models.parts.settings import Linear, check_choices
from colonnade.algorithms.linear_models.parts.solving import MOST_SHARE
from colonnade.algorithms.linear_models.parts.sums import Completed
from colonnade.algorithms.parts.bounds import MOST_TOLD, check_magnitude, length_of
from colonnade.algorithms.row import Algorithm, Family, Passes
from colonnade.algorithms.seats import LinearSeat
from colonnade.errors import ProtocolError, RunError, SettingsError
from colonnade.messages import JointStep, MaskedSum, ProductSum, Stop, WeightsSettled
from colonnade.models.linear import LinearBlock, Precondition
from colonnade.models.linear_loss import LinearLoss
from colonnade.party import Effect, Party, Send, SetTimer
from colonnade.state import Remembering, Remembers, State, array, array_or_none, custom, included, value

Floats = NDArray[np.float64]
_NO_ROWS = np.zeros(0, np.uint32)
_SCALARS = 5  # w·d, w·p, d·d, d·p, p·p of the penalised weights, summed with the products
_NEWTON_STEPS, _HALVINGS = 10, 40
_CONVERSATION = shared_steps(JointStep, Passes.ALWAYS, tells_columns=False)  # no step size depends on them


@dataclass(frozen=True)
class Fcg(Linear):
    """`[algorithm]` with name = "fcg"."""

    precondition: Literal["none", "columns", "block"] = (
        "block"  # M_m: the identity, the curvature's diagonal, or all of it
    )
    max_product_age_epochs: float = 0.0  # no step goes on without a party: last known products are of no use

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(Fcg, self)
        if self.max_product_age_epochs:
            raise SettingsError("fcg waits for a party that is away: leave algorithm.max_product_age_epochs at 0.")
        if self.step != "auto":
            raise SettingsError("fcg searches for its step at every step: leave algorithm.step out.")
        if self.loss in ("sigmoid", "robust"):
            raise SettingsError(
                f"algorithm.loss = {self.loss!r} is not convex, and fcg needs a loss that is: its directions and its "
                "search are those of one. Choose another algorithm, such as fsaga, or another loss."
            )

    def check_l1(self, name: str) -> None:
        raise SettingsError(
            f"{name} takes no training.l1: conjugate directions are those of a smooth objective. Leave it out, or "
            "choose a first-order algorithm, such as fsaga."
        )


def linear_party(seat: LinearSeat) -> Party:
    if seat.start is not None:
        raise SettingsError(
            "fcg begins with weights of 0, whose products the label party knows: leave --from out. It comes near the "
            "optimum in few steps all the same; or choose another algorithm, such as fsaga."
        )
    # Columns are centred, and no more: M_m is formed here, from the curvature where the weights are.
    centred: Precondition = "none" if seat.settings.precondition == "none" else "centre"
    block_party = BlockParty(
        seat,
        abandons=False,
        requests_per_epoch=1,
        precondition=centred,
        rows_a_sum=seat.rows + _SCALARS,
        most_product=MOST_TOLD,  # squares of directions are among the sums
        tells_columns=_CONVERSATION.tells_columns,
    )
    return ConjugateParty(block_party)


class Direction(Remembering):
    """One party's part of d and p, and its preconditioner."""

    MEMORY = (array("d"), array("p"), value("gradient_square"), included("_inverse"))

    def __init__(self, block: LinearBlock, loss: LinearLoss, precondition: str) -> None:
        self._block = block
        self._inverse = BlockCurvature(block, loss, precondition)
        shape = (self._inverse.lines, block.outputs)
        self.d, self.p = np.zeros(shape), np.zeros(shape)
        self.gradient_square = inf  # until it is known

    def check_step(self, sender: str, along: float, conjugate: float) -> None:
        """Refuse a step along directions after which nothing could be computed any more."""
        step = abs(along) * length_of(self.d) + abs(conjugate) * length_of(self.p)
        check_magnitude(sender, "a step that moves a weight by a number", step, MOST_TOLD)

    def advance(self, along: float, conjugate: float) -> None:
        """p ← t d + u p, w ← w + p."""
        self.p = along * self.d + conjugate * self.p
        self._block.move(*self._inverse.split(self.p), -1.0)

    def turn(self, residuals: Floats) -> Floats:
        """The next d, and what the label party needs of it: products of every row, then the scalars."""
        block = self._block
        if len(self.d) == 0:  # a label party without columns
            self.gradient_square = 0.0
            return np.zeros((block.rows + _SCALARS, block.outputs))
        w = self._inverse.weights()
        gradient = self._inverse.gradient(residuals, w)
        self.gradient_square = float(np.vdot(gradient, gradient))
        self.d = self._inverse.direction(residuals, gradient)
        told = np.empty((block.rows + _SCALARS, block.outputs))
        told[block.rows :] = 0.0
        block.all_times(*self._inverse.split(self.d), out=told[: block.rows])
        held = slice(0, block.columns)
        w, d, p = w[held], self.d[held], self.p[held]
        told[block.rows :, 0] = [np.vdot(*pair) for pair in ((w, d), (w, p), (d, d), (d, p), (p, p))]
        return told


class Search(Remembering):
    """The label party's part: θ and the products of p for every row, and the best step in the plane of d and p."""

    MEMORY = (array("theta"), array("_along_p"), array("residuals"), value("mean_loss"))

    def __init__(self, loss: LinearLoss, targets: Floats, l2: float, weights: Floats | None = None) -> None:
        self._loss, self._targets, self._l2, self._weights = loss, targets, l2, weights
        shape = (len(targets), loss.outputs)
        self.theta, self._along_p = np.zeros(shape), np.zeros(shape)
        self.residuals, self.mean_loss = self._loss.residuals_and_mean_loss(self.theta, self._targets, self._weights)

    def step(self, told: Floats) -> tuple[float, float]:
        """(t, u) by Newton's method in the plane, and θ there.

        told: Σ_m X_m d_m of every row, then the scalars of the penalty: f in the plane is the mean loss plus
        λ (t w·d + u w·p + ½ (t² d·d + 2tu d·p + u² p·p)), less what does not change.
        """
        along_d, (wd, wp, dd, dp, pp) = told[: len(self.theta)], told[len(self.theta) :, 0]
        sloped, bent = np.array([wd, wp]), np.array([[dd, dp], [dp, pp]])
        directions = (along_d, self._along_p)
        at, theta, residuals, loss = np.zeros(2), self.theta, self.residuals, self.mean_loss
        along, value = np.zeros(theta.shape), loss
        for _ in range(_NEWTON_STEPS):
            slope = np.array([np.vdot(residuals, one) for one in directions]) / len(residuals)
            slope += self._l2 * (sloped + bent @ at)
            curved = [self._loss.sure_curvature_times(residuals, one, MOST_SHARE, self._weights) for one in directions]
            curvature = np.array([[np.vdot(one, other) for other in directions] for one in curved]) / len(residuals)
            newton = -solved_in_plane(curvature + self._l2 * bent, slope)
            expected = -float(slope @ newton) / 2
            for _ in range(_HALVINGS):
                tried = at + newton
                tried_along = tried[0] * along_d
                if tried[1]:
                    tried_along += tried[1] * self._along_p
                tried_theta = self.theta + tried_along
                tried_residuals, tried_loss = self._loss.residuals_and_mean_loss(
                    tried_theta, self._targets, self._weights
                )
                tried_value = tried_loss + self._l2 * float(sloped @ tried + tried @ bent @ tried / 2)
                if tried_value < value:
                    break
                newton /= 2
            else:
                break  # no further down: rounding is all that is left
            gained = value - tried_value
            at, along, theta, residuals = tried, tried_along, tried_theta, tried_residuals
            loss, value = tried_loss, tried_value
            if gained > 0.8 * expected:
                break  # the plane is as good as quadratic: another look along it gains less than a new direction
        self._along_p, self.theta, self.residuals, self.mean_loss = along, theta, residuals, loss
        return float(at[0]), float(at[1])


def solved_in_plane(matrix: Floats, vector: Floats) -> Floats:
    """A⁻¹b of two unknowns; of least length, where A is singular or nearly: at first there is no p.

    >>> solved_in_plane(np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([5.0, 5.0])).tolist()
    [2.0, 1.0]
    >>> solved_in_plane(np.array([[4.0, 0.0], [0.0, 0.0]]), np.array([2.0, 0.0])).tolist()
    [0.5, 0.0]
    """
    (a, b), (_, c) = matrix.tolist()
    determinant = a * c - b * b
    if not determinant > 1e-10 * (a + c) ** 2:  # of a symmetric matrix: the smaller eigenvalue over the larger
        return np.asarray(np.linalg.lstsq(matrix, vector, rcond=1e-12)[0], np.float64)
    one, other = vector.tolist()
    return np.array([(c * one - b * other) / determinant, (a * other - b * one) / determinant])


class ConjugateParty(LinearParty):
    """One party; the label party leads."""

    LABEL_PARTYS = (JointStep, Stop)
    TAKES = (JointStep,)
    HEALS = False  # an exact search goes no way but down

    def _save_rests(self, state: State) -> None:
        if self._rests:
            state.values["rests"] = True

    def _load_rests(self, state: State) -> None:
        self._rests = state.values.get("rests", False)

    MEMORY = (
        custom("_rests", save=_save_rests, load=_load_rests),
        value("_steps", "_sum_number", "_under_way"),
        value("_pending", restored=tuple),
        array_or_none("_told", flag="told"),
    )

    def __init__(self, block_party: BlockParty) -> None:
        self._direction = Direction(block_party.block, block_party.loss, block_party.seat.settings.precondition)
        self._search = None
        if block_party.seat.is_label_party:
            assert block_party.targets is not None
            l2 = block_party.seat.training.l2
            self._search = Search(block_party.loss, block_party.targets, l2, block_party.weights)
        learner: dict[str, Remembers] = {"direction": self._direction}
        if self._search:
            learner["search"] = self._search
        super().__init__(block_party, None, **learner)
        block_party.gradient_square = lambda: self._direction.gradient_square
        self._told: Floats | None = None  # at the label party: the sum is there, the step is not made yet
        self._pending = (0.0, 0.0)  # a step that is found and not told yet
        self._sum_number = 0  # of the sum under way
        self._rests = False  # after the end of the training: the step that is told next was taken before it
        self._under_way = False  # whether everybody has been asked for a direction that is not searched along yet
        self._steps = 0

    def _begin(self) -> list[Effect]:
        return self._announce() if self._search else []

    def _wake(self, timer: str) -> list[Effect]:
        return self._lead()

    def _lose(self, peer: str) -> list[Effect]:
        effects, _ = self._sums.lose(peer)
        return [*effects, *self._note_waiting(peer)]

    def _take(self, sender: str, message: Any) -> list[Effect]:
        if isinstance(message, JointStep):
            self._check_step(sender, message)
            return self._follow(message)
        if not isinstance(message, ProductSum | MaskedSum):
            return super()._take(sender, message)
        if message.number > self._sum_number:
            self._keep_early(sender, message)  # a party below was told of the step sooner
            return []
        return self._take_part(sender, message)

    def _check_message(self, sender: str, message: Any) -> None:
        super()._check_message(sender, message)
        if isinstance(message, JointStep):
            if message.residuals.shape != (self._seat.rows, self._seat.outputs):
                raise ProtocolError(f"{sender} sent residuals of shape {message.residuals.shape}.")
            self._check_residuals(sender, message.residuals)

    def _check_step(self, sender: str, step: JointStep) -> None:
        self._direction.check_step(sender, step.along, step.conjugate)
        if step.number:
            if step.number <= self._sum_number:
                raise ProtocolError(f"{sender} sent a step of the sum {step.number}; {self._sum_number} was the last.")
            self._sums.check_turn(sender, sender, step.number, (self._seat.rows + _SCALARS) * self._seat.outputs)

    def _announce(self, ends: bool = False) -> list[Effect]:
        """Label party: tell everybody the step and the residuals after it, and take part in the next sum."""
        assert self._search is not None
        number = 0 if ends else self._sums.next_number()
        self._under_way = not ends
        step = JointStep(number, *self._pending, self._search.residuals)
        return [*(Send(peer, step) for peer in self._block_party.peers), *self._follow(step)]

    def _follow(self, step: JointStep) -> list[Effect]:
        """Every party: take the step, and tell the products of the next direction."""
        if not self._rests:
            self._direction.advance(step.along, step.conjugate)
        self._rests = False
        if step.number == 0:
            return [] if self._search else [Send(self._seat.label_party, WeightsSettled())]
        self._steps += 1
        self._sum_number = step.number
        told = self._direction.turn(step.residuals)
        effects, completed = self._sums.contribute(self._seat.label_party, step.number, _NO_ROWS, told)
        if completed is not None:
            effects += self._complete_all([completed])
        return [*effects, *self._receive_early()] if self._early else effects

    def _complete(self, completed: Completed) -> list[Effect]:
        if completed.number != self._sum_number:
            return []  # of an evaluation that was given up
        self._told = completed.total
        return [SetTimer("step", 0.0)]  # so that it takes the label party its time

    def _lead(self) -> list[Effect]:
        """Label party: everybody's directions are there. Look for the best step, and go on."""
        told, self._told = self._told, None
        if told is None:
            return []
        block_party, record, search = self._block_party, self._record, self._search
        assert record is not None and search is not None and block_party.targets is not None
        self._under_way = False
        self._pending = search.step(told)
        record.add_loss(search.mean_loss)
        record.staleness.add(np.zeros(1, np.int64))
        effects = record.look_for_an_optimum(search.theta, block_party.targets)
        if record.ending:  # since before this step
            return [*effects, *self._close()]
        effects += record.count(block_party.seat.rows, block_party.seat.workers)
        return effects if record.ending else [*effects, *self._announce()]

    def _extend(self, anew: bool) -> list[Effect]:
        if anew:
            raise RunError(
                "fcg cannot go on from a model that is not its last one: the label party knows the products of the "
                'last one alone. Train with training.keep = "last", or begin a new run.'
            )
        self._rests, self._told = True, None
        return self._announce() if self._search else []

    def _close(self) -> list[Effect]:
        """The last step, and that of a sum under way, is still everybody's."""
        return [] if self._under_way else self._announce(ends=True)

    def _progress(self) -> tuple[int, int]:
        return self._steps, self._steps


ALGORITHM = Algorithm(
    name="fcg",
    summary="linear; synchronous, conjugate gradients over all blocks, all rows at every step",
    family=Family.LINEAR,
    settings=Fcg,
    paper=None,
    conversation=_CONVERSATION,
    linear_party=linear_party,
)
