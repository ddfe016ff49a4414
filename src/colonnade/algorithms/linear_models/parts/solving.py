"""What the solvers of linear federations share: rows, full passes, step size, state. An algorithm adds its estimator.

A full pass asks for every row once: SVRG's snapshot, SAGA's first table, or, with `tolerance`, what the stopping rule
of plain SGD needs. It gives the whole gradient of the party's block, at the other parties' weights of that moment.
"""

from math import ceil, inf, isfinite
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.block_party import LATER_CHANCE, BlockParty, batches_per_request
from colonnade.algorithms.linear_models.parts.pace import Pace
from colonnade.algorithms.linear_models.parts.step_size import StepSize
from colonnade.algorithms.linear_models.parts.windows import FullPass, Windows
from colonnade.algorithms.seats import LinearSeat
from colonnade.data.batches import batches_per_epoch
from colonnade.errors import SettingsError
from colonnade.models.known_curvature import MOST_COLUMNS
from colonnade.models.linear_window import Window
from colonnade.state import Remembering, Remembers, State, custom, part, value

Rows = NDArray[np.uint32]
Floats = NDArray[np.float64]


MOST_SHARE = 0.1
"""How much the most curvature that a row can have counts beside the curvature that it has. A row far on the right side
has none, until a step brings it back; in data with outliers a few such rows are most of the curvature."""


class Estimator(Remembers, Protocol):
    """An algorithm's equations: when it needs a full pass, what it makes of one, and a window of steps."""

    independent_rows: bool  # whether mini-batches must not depend on those before
    renewed_every: int  # steps after which what is known of all rows is another

    @property
    def fall_backs(self) -> int:
        """How often what was learnt of the curvature was given up for a first-order step."""

    def pass_is_due(self, steps: int) -> bool: ...

    def take_pass(self, residuals: Floats, steps: int) -> None:
        """∂loss/∂θ of every row, as of step number `steps`; the array is the estimator's to keep."""

    def known(self) -> Floats:
        """∂loss/∂θ of every row as it was last known, [n, c]; no row if that is not kept."""

    def jumped(self) -> None:
        """The weights differ from those that the last step led to, by a joint search."""

    def step(self, window: Window, step_size: float, steps: int) -> float:
        """Apply the window's mini-batches, the first of which is step number `steps`; gives the mean loss or NaN."""


class Descent(Remembering):
    """The solver of every linear algorithm: full passes when they are due, windows of mini-batches otherwise.

    A schedule asks it for rows, and gives it their values: where `targets` are known, the other parties' part of θ;
    otherwise ∂loss/∂θ itself.
    """

    def __init__(self, block_party: BlockParty, estimator: Estimator, shared_rows: bool, newton: bool = False) -> None:
        seat = block_party.seat
        self._block_party = block_party
        self._estimator = estimator
        self._fresh = estimator.state()  # before it has seen a row
        # With everything "auto" all parties draw the same mini-batches, each at its own pace: nearly alike, their steps
        # stay together within the space that the rows span, outside of which nothing but the penalty brings them back.
        shared_rows = shared_rows or (block_party.automatic and seat.settings.step == "auto")
        self._windows = Windows(seat, batches_per_request(seat), shared_rows, estimator.independent_rows)
        self._step_size = StepSize(block_party, newton)
        self._pass: FullPass | None = None
        self._passed_at = -1  # steps when the last full pass began
        curved = seat.settings.precondition == "curvature" and block_party.works
        self._measure_at: float = 0 if curved else inf  # steps from which the block's curvature is measured anew
        self._newton = newton
        self._pace = self._begin_pace()
        self.steps = 0  # mini-batches applied so far
        block_party.gradient_square = self._gradient_square
        self._last_square: float | None = None if block_party.works else 0.0  # ‖∇_ℓ f‖² of the last full pass

    def prepare(self) -> None:
        """Everybody has introduced themselves: choose the step size."""
        self._step_size.prepare()

    def extend(self, anew: bool) -> None:
        """Go on after the end. A full pass that was cut off begins anew; of other weights, everything does."""
        if anew:
            self.restart(self._step_size.scale)
        elif self._pass is not None:
            self._pass, self._passed_at = None, -1

    def restart(self, scale: float) -> None:
        """The weights are others: forget what was learnt on the way, and take steps of that share of their length."""
        self._pass, self._passed_at = None, -1
        self._last_square = None if self._block_party.works else 0.0
        self._measure_at = self._measure_at if self._measure_at == inf else self.steps
        block = self._block_party.block
        block.set_mean_gradient(np.zeros((block.columns, block.outputs)), np.zeros(block.outputs))
        self._estimator.restore(self._fresh)
        self._step_size.scale = scale
        self._step_size.begin_anew()
        if self._pace is not None:
            self._pace.begin_anew()

    def counts(self) -> dict[str, int]:
        return {"fall_backs": self._estimator.fall_backs + (self._pace.fall_backs if self._pace else 0)}

    def next_rows(self) -> Rows:
        self.follow()
        return self._windows.next() if self._pass is None else self._pass.next_rows()

    def follow(self) -> None:
        """Another party names the rows: begin a full pass where it does."""
        if self._pass is None and self._passed_at != self.steps and self._estimator.pass_is_due(self.steps):
            self._begin_pass(self.steps)

    def pass_is_next(self, clock: int) -> bool:
        """Whether the rows that `lead` would give now are of a full pass."""
        due = self._passed_at != clock and self._estimator.pass_is_due(clock)
        return self._pass is not None or due

    def lead(self, clock: int) -> tuple[Rows, bool]:
        """The rows from which everybody is to learn next, and whether they are of a full pass.

        `clock`: mini-batches named so far; a block that misses some steps less often.
        """
        if not self.pass_is_next(clock):
            return self._windows.next(), False
        if self._pass is None:
            self._begin_pass(clock)
        assert self._pass is not None
        return self._pass.next_rows(), True

    def learn(self, rows: Rows, residuals: Floats, in_pass: bool, clock: int, late: int = 0) -> None:
        """Step on residuals that everybody is told, or fill the pass that they are a piece of.

        `late`: how many requests' mini-batches have taught since the products were made.
        """
        if not in_pass:
            self._step_size.follow_delay((late + 1) * batches_per_request(self._block_party.seat) - 1)
            self._step(rows, residuals, None)
            return
        if self._pass is None:
            self._begin_pass(clock)
        self._fill(rows, residuals, None, clock)

    def _begin_pass(self, clock: int) -> None:
        self._pass = FullPass(self._block_party.seat.rows, self._block_party.seat.outputs)
        self._passed_at = clock

    def apply(self, rows: Rows, values: Floats, targets: Floats | None) -> float | None:
        """Update the block; gives the mean loss where the targets are known."""
        if self._pass is not None:
            self._fill(rows, values, targets, self.steps)
            return None
        return self._step(rows, values, targets)

    def _step(self, rows: Rows, values: Floats, targets: Floats | None) -> float | None:
        if self._step_size.searching:
            self._step_size.look(rows, self._residuals(rows, values, targets))
        loss = None if targets is None else self._block_party.loss
        weights = None if targets is None else self._block_party.weights_of(rows)
        window = Window(rows, self._block_party.seat.training.batch_size, values, targets, loss, weights)
        before = self._step_size.before()
        mean_loss = self._estimator.step(window, self._step_size.length, self.steps)
        self._step_size.stepped(before)
        self.steps += -(-rows.size // window.batch_size)
        self._look_at_pace()
        self._measure_if_due()
        return None if targets is None else mean_loss

    def _fill(self, rows: Rows, values: Floats, targets: Floats | None, clock: int) -> None:
        assert self._pass is not None
        residuals = self._residuals(rows, values, targets)
        self._pass.fill(residuals)
        if self._step_size.searching:
            self._step_size.look(rows, residuals)
        if self._pass.complete:
            table, self._pass = self._pass.residuals, None
            self._take_pass(table, clock)

    def jump(self, residuals: Floats, clock: int) -> None:
        """A joint search has moved the weights; `residuals`: every row's there, the solver's to keep."""
        self._pass, self._passed_at = None, clock
        self._step_size.jumped()
        self._estimator.jumped()
        self._take_pass(residuals, clock)

    def _take_pass(self, table: Floats, clock: int) -> None:
        block = self._block_party.block
        gradient, gradient_b = block.objective_gradient(table)
        square_b = float(np.square(gradient_b).sum()) if block.has_intercept else 0.0
        self._last_square = float(np.square(gradient).sum()) + square_b
        self._estimator.take_pass(table, clock)
        self._measure_if_due()

    @property
    def in_pass(self) -> bool:
        """Whether a full pass is under way."""
        return self._pass is not None

    def known(self) -> Floats:
        """∂loss/∂θ of every row as it was last known; no row if that is not kept."""
        return self._estimator.known()

    def _measure_if_due(self) -> None:
        """At the beginning and after 1, 2, 4, 8, … epochs: the curvature changes less and less."""
        if self.steps < self._measure_at:
            return
        loss, known = self._block_party.loss, self._estimator.known()
        if self._block_party.automatic:
            assert self._pace is not None
            self._block_party.follow_curvature(known, 1.0 if self._newton else LATER_CHANCE, self._pace.caution)
            self._step_size.begin_anew()
            self._pace.begin_anew()
            self._measure_at = 2 * self.steps
            return
        curvatures = (1 - MOST_SHARE) * loss.curvatures(known) + MOST_SHARE * loss.most_curvature_of_an_output
        self._block_party.block.measure(curvatures)
        self._measure_at = max(2 * self.steps, steps_per_epoch(self._block_party))

    def _begin_pace(self) -> Pace | None:
        """With everything "auto", where curvature could be used: of a Newton step, or in a metric of the rows' own."""
        block_party = self._block_party
        seat, block = block_party.seat, block_party.block
        self._narrow = block.columns <= MOST_COLUMNS and seat.settings.keeps_residuals and not block.l1
        automatic = block_party.automatic and seat.settings.step == "auto"
        if not (automatic and block.columns and block.rows and (self._newton or self._narrow)):
            return None
        return Pace(seat.training.epochs * steps_per_epoch(block_party), self._estimator.renewed_every)

    def _look_at_pace(self) -> None:
        """See whether curvature is needed; from then on measure it anew as weights change."""
        pace, block_party = self._pace, self._block_party
        if pace is None:
            return
        if pace.is_due(self.steps):
            block = block_party.block
            inward, inward_b = block.inward(*block.objective_gradient(self._estimator.known()))
            square = float(np.square(inward).sum()) + float(np.square(inward_b).sum()) * block.has_intercept
            if pace.look(square, self.steps):
                self._measure_at = self.steps if self._narrow else inf
            elif pace.slow and not block_party.slow:
                block_party.slow, self._measure_at = True, self.steps if self._narrow else inf

    def _residuals(self, rows: Rows, values: Floats, targets: Floats | None) -> Floats:
        """∂loss/∂θ at the current weights of this block."""
        if targets is None:
            return values
        outputs, weights = values + self._block_party.block.products(rows), self._block_party.weights_of(rows)
        return self._block_party.loss.residuals(outputs, targets, weights)

    def _gradient_square(self) -> float:
        return inf if self._last_square is None else self._last_square

    def _save_pass(self, state: State) -> None:
        if self._pass is not None:
            state.values["pass_place"] = self._pass.place
            state.put("pass", self._pass.residuals)

    def _load_pass(self, state: State) -> None:
        self._pass = None
        if "pass_place" in state.values:
            self._pass = FullPass(self._block_party.seat.rows, self._block_party.seat.outputs)
            self._pass.residuals[:] = state.take("pass")
            self._pass.place = state.values["pass_place"]

    def _save_pace(self, state: State) -> None:
        if self._pace is not None:
            state.add("pace", self._pace.state())

    def _load_pace(self, state: State) -> None:
        """Runs of earlier versions used curvature from the first step on."""
        if self._pace is not None:
            if "pace" in state.values:
                self._pace.restore(state.part("pace"))
            else:
                self._pace.slow = True
            self._block_party.slow = self._pace.slow

    MEMORY = (
        value("steps", "_passed_at", "_last_square"),
        value(
            "_measure_at",
            saved=lambda steps: None if steps == inf else steps,
            restored=lambda steps: inf if steps is None else steps,
        ),
        custom("_pass", save=_save_pass, load=_load_pass),
        part("_windows"),
        part("_step_size"),
        custom("_pace", save=_save_pace, load=_load_pace),
        part("_estimator"),
    )


def requests_per_epoch(seat: LinearSeat) -> int:
    """How many requests all parties together make in an epoch; where one sum teaches everybody, one for them all."""
    workers = 1 if seat.settings.updates == "everybody" else seat.workers
    return ceil(batches_per_epoch(seat.rows, seat.training.batch_size) / batches_per_request(seat)) * workers


def shared_steps_per_epoch(seat: LinearSeat) -> int:
    """The same in a synchronous schedule, where one request is everybody's."""
    return batches_per_epoch(seat.rows, seat.training.batch_size)


def steps_per_epoch(block_party: BlockParty) -> int:
    return batches_per_epoch(block_party.seat.rows, block_party.seat.training.batch_size)


def check_not_negative(name: str, value: float) -> None:
    if not (isfinite(value) and value >= 0):
        raise SettingsError(f"algorithm.{name} is {value}; it must be finite and not negative.")
