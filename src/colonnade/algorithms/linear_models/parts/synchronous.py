"""The synchronous schedule of linear federations: the label party names a batch, everybody's products are summed, all
are told what came of it, everybody steps.

A step takes as long as the slowest party. A lost party is waited for; after `party_timeout_seconds` the steps go on
with its last known products as long as these are young enough, and it catches up when it returns.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.linear_party import LinearParty
from colonnade.algorithms.linear_models.parts.searching import searching_of
from colonnade.algorithms.linear_models.parts.settings import SynchronousLinear
from colonnade.algorithms.linear_models.parts.solving import Descent
from colonnade.algorithms.linear_models.parts.sums import Completed
from colonnade.errors import ProtocolError
from colonnade.messages import Abandoned, MaskedSum, ProductSum, SearchRequest, SharedStep, Stop, WeightsSettled
from colonnade.party import Effect, Send, SetTimer
from colonnade.state import State, array, custom, value

_NO_ROWS = np.zeros(0, np.uint32)


class SynchronousLinearParty(LinearParty):
    """One party of a synchronous linear federation; the label party leads."""

    LABEL_PARTYS = (SharedStep, Stop)
    TAKES = (SharedStep, Abandoned)

    def __init__(self, block_party: BlockParty, solver: Descent) -> None:
        super().__init__(block_party, searching_of(block_party, solver.known), solver=solver)
        self._solver = solver
        self._settings: SynchronousLinear = self._seat.settings
        self._rows = _NO_ROWS  # the batch under way
        self._step_number = 0
        self._sum_number = 0  # of that batch's sum
        self._completed: Completed | None = None  # at the label party: the step is not made yet
        self._values: NDArray[np.float64] = np.zeros((0, self._seat.outputs))  # what came of the last batch

    def _begin(self) -> list[Effect]:
        self._solver.prepare()
        return self._name_batch(self._solver.next_rows()) if self._record else []

    def _wake(self, timer: str) -> list[Effect]:
        if timer == "step":
            return self._lead()
        self._sums.waits_for_lost = not self._sums.lost  # who is back by now is waited for again
        return self._go_on(*self._sums.go_on_without_lost())

    def _lose(self, peer: str) -> list[Effect]:
        effects, completed = self._sums.lose(peer)
        effects += [*self._complete_all(completed), *self._note_waiting(peer)]
        if self._settings.party_timeout_seconds:
            effects.append(SetTimer("party", self._settings.party_timeout_seconds))
        return [*effects, *self._after_failures()]

    def _welcome_back(self) -> list[Effect]:
        self._sums.waits_for_lost = self._sums.waits_for_lost or not self._sums.lost
        return []

    def _take(self, sender: str, message: Any) -> list[Effect]:
        match message:
            case ProductSum() | MaskedSum() if message.number > self._sum_number:
                self._keep_early(sender, message)  # a party below was told of the step sooner
                return []
            case ProductSum() | MaskedSum() | Abandoned():
                return self._take_part(sender, message)
            case SharedStep():
                return self._follow(message)
        return super()._take(sender, message)

    # --- the label party leads ---

    def _name_batch(self, rows: NDArray[np.uint32]) -> list[Effect]:
        """Tell everybody what came of the last batch, and name the next; no rows after the last."""
        self._rows = rows
        self._step_number += 1
        self._sum_number = number = self._sums.next_number()
        shared = SharedStep(self._step_number, number, self._values, rows)
        effects: list[Effect] = [Send(peer, shared) for peer in self._block_party.peers]
        if rows.size:
            sent, completed = self._sums.contribute(self._seat.name, number, rows)
            effects += [*sent, *self._complete_all([completed])]
        return effects

    def _restart(self, scale: float) -> None:
        """No batch is under way: what came of the last one is of weights that are gone."""
        self._solver.restart(scale)
        self._rows, self._completed = _NO_ROWS, None
        self._values = np.zeros((0, self._seat.outputs))

    def _begin_again(self, returned: str = "") -> list[Effect]:
        record = self._record
        assert record is not None
        is_between = self._step_number > 0 and self._rows.size == 0 and self._completed is None and not record.ending
        searches = self._searching is not None and self._searching.under_way > 0
        may = is_between and not searches and record.recall.all_are_back
        return self._name_next() if may else []

    def _extend(self, anew: bool) -> list[Effect]:
        self._solver.extend(anew)
        self._rows, self._completed = _NO_ROWS, None
        self._sums.waits_for_lost = not self._sums.lost or self._sums.waits_for_lost
        return self._name_next() if self._record else []

    def _close(self) -> list[Effect]:
        """The last batch's step, and that of one under way, is still everybody's."""
        return [] if self._rows.size else self._name_batch(_NO_ROWS)

    def _complete(self, completed: Completed) -> list[Effect]:
        if completed.number != self._sum_number:
            return []  # of an evaluation that was given up
        self._completed = completed
        return [SetTimer("step", 0.0)]  # so that it takes the label party its time

    def _lead(self) -> list[Effect]:
        """The sum of the batch is there: step, and go on."""
        completed, self._completed = self._completed, None
        if completed is None:
            return []
        block_party, record, rows = self._block_party, self._record, self._rows
        assert record is not None and block_party.targets is not None
        self._rows = _NO_ROWS
        targets = block_party.targets[rows]
        everywhere = self._settings.labels == "everywhere"
        weights = block_party.weights_of(rows)
        residuals, loss = block_party.loss.residuals_and_mean_loss(completed.total, targets, weights)
        self._values = completed.total if everywhere else residuals
        self._solver.apply(rows, completed.total - completed.own, targets)
        record.add_loss(loss)
        effects = record.look_for_an_optimum(completed.total, targets, rows)
        record.staleness.add(np.zeros(1, np.int64))
        if record.ending:  # since before this step
            return [*effects, *self._close()]
        effects += record.count(rows.size, block_party.seat.workers)
        return effects if record.ending else [*effects, *self._name_next()]

    def _name_next(self) -> list[Effect]:
        """The next batch, or a joint search."""
        if not self._search_is_due():
            return self._name_batch(self._solver.next_rows())
        values, self._values = self._values, np.zeros((0, self._seat.outputs))
        return self._begin_search(values)

    def _go_on_after_search(self) -> list[Effect]:
        return self._name_next() if self._record else []

    def _note_search(self, number: int) -> None:
        self._sum_number = number

    def _jump(self, residuals: NDArray[np.float64]) -> None:
        self._solver.jump(residuals, self._solver.steps)

    # --- everybody else follows ---

    def _check_message(self, sender: str, message: Any) -> None:
        super()._check_message(sender, message)
        if isinstance(message, SharedStep):
            self._sums.check_rows(sender, message.next_rows)
        if isinstance(message, SharedStep | SearchRequest):
            if message.values.shape[0] > self._sums.bounds.rows or message.values.shape[1] != self._seat.outputs:
                raise ProtocolError(f"{sender} sent values of shape {message.values.shape}.")
            self._check_residuals(sender, message.values, are_outputs=self._settings.labels == "everywhere")

    def _follow(self, shared: SharedStep) -> list[Effect]:
        label_party = self._seat.label_party
        if shared.step <= self._step_number or shared.number <= self._sum_number:
            raise ProtocolError(
                f"{label_party} sent step {shared.step} of the sum {shared.number}; expected were "
                f"{self._step_number + 1} and one after {self._sum_number}."
            )
        if shared.step > self._step_number + 1:  # sent while this party was away, and overtaking
            self._keep_early(label_party, shared)
            return []
        if self._searching is not None and self._rows.size and not len(shared.values):
            self._keep_early(label_party, shared)  # a search that was given up has them, and is still on its way
            return []
        if self._rows.size and len(shared.values) != self._rows.size:
            raise ProtocolError(f"{label_party} sent values of shape {shared.values.shape}.")
        if shared.next_rows.size:
            self._sums.check_turn(label_party, label_party, shared.number, shared.next_rows.size * self._seat.outputs)
        if self._rows.size:
            self._apply(shared.values)
        self._step_number, self._sum_number, self._rows = shared.step, shared.number, shared.next_rows
        if self._rows.size == 0:
            return [Send(self._seat.label_party, WeightsSettled())]
        self._solver.follow()
        effects, _ = self._sums.contribute(self._seat.label_party, shared.number, self._rows)
        return [*effects, *self._receive_early()]

    def _learn_before_search(self, sender: str, request: SearchRequest) -> None:
        if request.number <= self._sum_number or len(request.values) != self._rows.size:
            raise ProtocolError(
                f"{sender} asked for a search by the sum {request.number}, with values of {len(request.values)} rows."
            )
        if self._rows.size:
            self._apply(request.values)
            self._rows = _NO_ROWS

    def _apply(self, values: NDArray[np.float64]) -> None:
        rows, targets = self._rows, self._block_party.targets
        if targets is None:
            self._solver.apply(rows, values, None)
        else:  # the weights are those that the products were made with, so this gives back the others' part
            self._solver.apply(rows, values - self._block_party.block.products(rows), targets[rows])

    # --- the rest of the contract ---

    def counts(self) -> dict[str, Any]:
        return {**super().counts(), **self._solver.counts()}

    def _progress(self) -> tuple[int, int]:
        return self._step_number, self._solver.steps

    def _save_completed(self, state: State) -> None:
        state.values["completed"] = self._completed is not None
        if self._completed is not None:
            state.values["completed_number"] = self._completed.number
            state.put("total", self._completed.total)
            state.put("own", self._completed.own)

    def _load_completed(self, state: State) -> None:
        self._completed = None
        if state.values["completed"]:
            self._completed = Completed(state.values["completed_number"], state.take("total"), state.take("own"))

    MEMORY = (
        value("_step_number", "_sum_number"),
        array("_rows"),
        array("_values"),
        custom("_completed", save=_save_completed, load=_load_completed),
    )

    def restored(self) -> None:
        super().restored()
        if self._block_party.ready:
            self._solver.prepare()
