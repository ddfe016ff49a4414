"""The synchronous schedule of linear federations: the label party names a batch, everybody's products are summed, all
are told what came of it, everybody steps.

A step takes as long as the slowest party. A lost party is waited for; after `party_timeout_seconds` the steps go on
with its last known products as long as these are young enough, and it catches up when it returns.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.asynchronous import Solver, keep_early, receive_all
from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.record import LinearRecord
from colonnade.algorithms.linear_models.parts.settings import SynchronousLinear
from colonnade.algorithms.linear_models.parts.sums import Completed
from colonnade.algorithms.parts.kept_messages import pack, unpack
from colonnade.errors import ProtocolError
from colonnade.messages import (
    EvaluationAbandoned,
    EvaluationMaskedSum,
    EvaluationProductRequest,
    EvaluationProductSum,
    Introduction,
    MaskedSum,
    ProductSum,
    SharedStep,
    Stop,
    WeightsSettled,
)
from colonnade.party import (
    Effect,
    Event,
    Finish,
    Observe,
    PeerLost,
    PeerReturned,
    Received,
    Send,
    SetTimer,
    Started,
    TimerFired,
)
from colonnade.state import State

_NO_ROWS = np.zeros(0, np.uint32)


class SynchronousLinearParty:
    """One party of a synchronous linear federation; the label party leads."""

    def __init__(self, block_party: BlockParty, solver: Solver) -> None:
        self._block_party = block_party
        self._solver = solver
        self._sums = block_party.sums
        self._settings: SynchronousLinear = block_party.seat.settings
        self._record = LinearRecord(block_party, self._close) if block_party.seat.is_label_party else None
        self._rows = _NO_ROWS  # the batch under way
        self._step_number = 0
        self._sum_number = 0  # of that batch's sum
        self._completed: Completed | None = None  # at the label party: the step is not made yet
        self._values: NDArray[np.float64] = np.zeros((0, block_party.seat.outputs))  # what came of the last batch
        # Messages from before everybody was introduced, and of steps that this party has not been told of yet.
        self._early: list[tuple[str, Any]] = []

    def handle(self, event: Event) -> Sequence[Effect]:
        match event:
            case Received(sender=sender, message=message):
                return self._receive(sender, message)
            case TimerFired(name="step"):
                return self._lead()
            case TimerFired():
                self._sums.waits_for_lost = not self._sums.lost  # who is back by now is waited for again
                effects, completed = self._sums.go_on_without_lost()
                return [*effects, *self._complete_all(completed), *self._give_up_evaluations()]
            case Started():
                effects = self._block_party.introduce()
                return effects if self._block_party.peers else [*effects, *self._begin()]
            case PeerLost(peer=peer):
                effects, completed = self._sums.lose(peer)
                effects += self._complete_all(completed)
                if self._record is not None and not self._record.ending:
                    note = f"waiting for {peer}, which cannot be reached"
                    counts = self._record.counts()
                    effects.append(Observe(counts["exchanges"], self._solver.steps, counts["epochs"], note=note))
                if self._settings.party_timeout_seconds:
                    effects.append(SetTimer("party", self._settings.party_timeout_seconds))
                effects += self._give_up_evaluations()
                return [*effects, *(self._record.evaluate_if_settled() if self._record else [])]
            case PeerReturned(peer=peer):
                self._sums.lost.discard(peer)
                self._sums.waits_for_lost = self._sums.waits_for_lost or not self._sums.lost
                return []

    def _receive(self, sender: str, message: Any) -> list[Effect]:
        label_party = self._block_party.seat.label_party
        if isinstance(message, SharedStep | Stop) and sender != label_party:
            raise ProtocolError(f"{sender} sent {type(message).__name__}, which is the label party's to send.")
        if isinstance(message, EvaluationProductRequest) and message.root != label_party:
            raise ProtocolError(f"{sender} asked for an evaluation of {message.root}; only the label party makes any.")
        if not self._block_party.ready and not isinstance(message, Introduction):
            keep_early(self._early, sender, message)
            return []
        match message:
            case ProductSum() | MaskedSum() if message.number > self._sum_number:
                keep_early(self._early, sender, message)  # a party below was told of the step sooner
                return []
            case (
                ProductSum()
                | MaskedSum()
                | EvaluationProductRequest()
                | EvaluationProductSum()
                | EvaluationMaskedSum()
                | EvaluationAbandoned()
            ):
                effects, completed = self._sums.receive(sender, message)
                effects += self._complete_all([completed] if completed else [])
                return [*effects, *self._give_up_evaluations()]
            case SharedStep():
                return self._follow(message)
            case Introduction():
                return self._begin() if self._block_party.meet(sender, message) else []
            case WeightsSettled() if self._record is not None:
                return self._record.settle(sender)
            case Stop():
                return [Finish()]
        raise ProtocolError(f"{sender} sent {type(message).__name__}, which a party of this schedule does not take.")

    def _begin(self) -> list[Effect]:
        self._solver.prepare()
        effects = self._name_batch(self._solver.next_rows()) if self._record else []
        return [*effects, *self._receive_early()]

    def _receive_early(self) -> list[Effect]:
        early, self._early = self._early, []
        return receive_all(early, self._receive)

    def _give_up_evaluations(self) -> list[Effect]:
        failed = self._sums.failed(evaluations=True)
        return self._record.abandon(failed) if self._record else []

    # --- the label party leads ---

    def _name_batch(self, rows: NDArray[np.uint32]) -> list[Effect]:
        """Tell everybody what came of the last batch, and name the next; no rows after the last."""
        self._rows = rows
        self._step_number += 1
        self._sum_number = number = self._sums.next_number()
        shared = SharedStep(self._step_number, number, self._values, rows)
        effects: list[Effect] = [Send(peer, shared) for peer in self._block_party.peers]
        if rows.size:
            sent, completed = self._sums.contribute(self._block_party.seat.name, number, rows)
            effects += [*sent, *self._complete_all([completed] if completed else [])]
        return effects

    def _close(self) -> list[Effect]:
        """The registrar ends the training: the last batch's step, and that of one under way, is still everybody's."""
        return [] if self._rows.size else self._name_batch(_NO_ROWS)

    def _complete_all(self, completed: list[Completed]) -> list[Effect]:
        effects: list[Effect] = []
        for one in completed:
            if self._record is not None and self._record.awaits(one.number):
                effects += self._record.receive(one)
            elif one.number == self._sum_number:  # not that of an evaluation that was given up
                self._completed = one
                effects.append(SetTimer("step", 0.0))  # so that it takes the label party its time
        return effects

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
        residuals, loss = block_party.loss.residuals_and_mean_loss(completed.total, targets)
        self._values = completed.total if everywhere else residuals
        self._solver.apply(rows, completed.total - completed.own, targets)
        record.add_loss(loss)
        effects = record.look_for_an_optimum(completed.total, targets, rows)
        record.staleness.add(np.zeros(1, np.int64))
        if record.ending:  # since before this step
            return [*effects, *self._close()]
        effects += record.count(rows.size, block_party.seat.workers)
        return effects if record.ending else [*effects, *self._name_batch(self._solver.next_rows())]

    # --- everybody else follows ---

    def _follow(self, shared: SharedStep) -> list[Effect]:
        if shared.step <= self._step_number:
            raise ProtocolError(f"The label party sent step {shared.step}; expected was {self._step_number + 1}.")
        if shared.step > self._step_number + 1:  # sent while this party was away, and overtaking
            keep_early(self._early, self._block_party.seat.label_party, shared)
            return []
        self._sums.check_rows(self._block_party.seat.label_party, shared.next_rows)
        if self._rows.size:
            if shared.values.shape != (self._rows.size, self._block_party.seat.outputs):
                raise ProtocolError(f"The label party sent values of shape {shared.values.shape}.")
            self._apply(shared.values)
        self._step_number, self._sum_number, self._rows = shared.step, shared.number, shared.next_rows
        if self._rows.size == 0:
            return [Send(self._block_party.seat.label_party, WeightsSettled())]
        self._solver.follow()
        effects, _ = self._sums.contribute(self._block_party.seat.label_party, shared.number, self._rows)
        return [*effects, *self._receive_early()]

    def _apply(self, values: NDArray[np.float64]) -> None:
        rows, targets = self._rows, self._block_party.targets
        if targets is None:
            self._solver.apply(rows, values, None)
        else:  # the weights are those that the products were made with, so this gives back the others' part
            self._solver.apply(rows, values - self._block_party.block.products(rows), targets[rows])

    # --- the rest of the contract ---

    def state(self) -> State:
        state = State(
            {
                "rows": torch.from_numpy(self._rows.view(np.int32).copy()),
                "values": torch.from_numpy(self._values.copy()),
            },
            {
                "step_number": self._step_number,
                "sum_number": self._sum_number,
                "completed": self._completed is not None,
            },
        )
        if self._completed is not None:
            state.values["completed_number"] = self._completed.number
            state.tensors["total"] = torch.from_numpy(self._completed.total.copy())
            state.tensors["own"] = torch.from_numpy(self._completed.own.copy())
        state.add("early", pack(self._early))
        for name, part in self._parts().items():
            state.add(name, part.state())
        return state

    def restore(self, state: State) -> None:
        self._rows = state.tensors["rows"].numpy().view(np.uint32)
        self._values = state.tensors["values"].numpy().copy()
        self._step_number, self._sum_number = state.values["step_number"], state.values["sum_number"]
        self._completed = None
        if state.values["completed"]:
            total, own = (state.tensors[name].numpy().copy() for name in ("total", "own"))
            self._completed = Completed(state.values["completed_number"], total, own)
        self._early = unpack(state.part("early"))
        for name, part in self._parts().items():
            part.restore(state.part(name))
        if self._block_party.ready:
            self._solver.prepare()

    def _parts(self) -> dict[str, Any]:
        parts: dict[str, Any] = {"member": self._block_party, "solver": self._solver}
        return {**parts, "registrar": self._record} if self._record else parts

    def model(self) -> dict[str, torch.nn.Module]:
        return self._block_party.models()

    def counts(self) -> dict[str, Any]:
        own = {"exchanges": self._step_number, "steps": self._solver.steps, **self._sums.counts()}
        return {**own, **self._record.counts()} if self._record else own
