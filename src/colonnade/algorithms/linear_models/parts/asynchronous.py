"""The asynchronous schedule of linear federations: every party asks for the sums it needs whenever it is done with the
last ones, and answers the others' requests at once, even in the middle of a step.

A party with labels is the root of its own sums. One without asks the label party, which makes the sum and answers with
∂loss/∂θ. A sum that cannot be completed because a party is away is asked for again when it is back; one for which a
party does not answer within `request_timeout_seconds` goes on with what that party sent last, or is asked for again.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.patience import TIMER
from colonnade.algorithms.linear_models.parts.record import LinearRecord
from colonnade.algorithms.linear_models.parts.sums import Completed
from colonnade.algorithms.parts.kept_messages import pack, unpack
from colonnade.errors import ProtocolError
from colonnade.messages import (
    Abandoned,
    EvaluationAbandoned,
    EvaluationMaskedSum,
    EvaluationProductRequest,
    EvaluationProductSum,
    Introduction,
    LastCall,
    LossReport,
    MaskedSum,
    ProductRequest,
    ProductSum,
    ResidualReply,
    ResidualRequest,
    Stop,
    WeightsSettled,
)
from colonnade.party import Effect, Event, Finish, PeerLost, PeerReturned, Received, Send, SetTimer, Started, TimerFired
from colonnade.state import State

_NO_ROWS = np.zeros(0, np.uint32)
_NOTHING = np.zeros((0, 0))
_LABEL_PARTYS = (ResidualReply, LastCall, Stop)
MOST_EARLY = 1 << 16
"""Messages of one sender that are kept for later: more than come while a party catches up on two epochs."""


def keep_early(early: list[tuple[str, Any]], sender: str, message: Any) -> None:
    """Keep a message that comes before its time."""
    if len(early) >= MOST_EARLY and sum(other == sender for other, _ in early) >= MOST_EARLY:
        raise ProtocolError(f"{sender} has sent {MOST_EARLY} messages before their time.")
    early.append((sender, message))


def receive_all(early: list[tuple[str, Any]], receive: Callable[[str, Any], list[Effect]]) -> list[Effect]:
    """Take what came early. What breaks the protocol is left out: whose message was handled last is not to blame."""
    effects: list[Effect] = []
    for sender, message in early:
        with suppress(ProtocolError):
            effects += receive(sender, message)
    return effects


class Solver(Protocol):
    """What an algorithm writes: which rows it needs next, and what it does with them.

    `values` are, where `targets` are given, the other parties' part of θ; otherwise ∂loss/∂θ itself.
    """

    steps: int  # mini-batches applied so far

    def prepare(self) -> None:
        """Everybody has introduced themselves: choose the step size."""

    def next_rows(self) -> NDArray[np.uint32]: ...

    def follow(self) -> None:
        """In a shared schedule, instead of `next_rows`: another party has named the rows."""

    def apply(
        self, rows: NDArray[np.uint32], values: NDArray[np.float64], targets: NDArray[np.float64] | None
    ) -> float | None:
        """Update the block; gives the mean loss where the targets are known."""

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...


class AsynchronousLinearParty:
    """One party: a worker that asks and steps, a listener that answers, and at the label party the registrar."""

    def __init__(self, block_party: BlockParty, solver: Solver) -> None:
        self._block_party = block_party
        self._solver = solver
        self._sums = block_party.sums
        seat = block_party.seat
        self._sums.patience.timeout_seconds = seat.settings.request_timeout_seconds
        self._record = LinearRecord(block_party, self._close) if seat.is_label_party else None
        self._rows = _NO_ROWS  # what the worker asked for last
        self._exchange = 0  # requests of this party's worker
        self._own_sum = 0  # the number of the worker's sum, if it is the root itself
        self._others: NDArray[np.float64] | None = None  # the sum is there, the step is not made yet
        self._blocked = False  # the request was abandoned; it is repeated when the party that lacked is back
        self._closed = False  # no more requests, no more steps
        self._asked: dict[int, tuple[str, int, NDArray[np.uint32], int]] = {}  # sums made for others: who, their number
        self._answers = 0  # residuals given so far: the clock of staleness
        self._early: list[tuple[str, Any]] = []  # messages from before everybody was introduced
        self._losses: list[float] = []  # of a feature party that has labels, until they are reported
        self._report_every = max(1, round(seat.training.observe_every_epochs * seat.rows / seat.training.batch_size))

    def handle(self, event: Event) -> Sequence[Effect]:
        self._sums.patience.now = event.now
        match event:
            case Received(sender=sender, message=message):
                self._sums.patience.hear(sender)
                return self._receive(sender, message)
            case TimerFired(name="step"):
                return self._step()
            case TimerFired(name=name) if name == TIMER:
                return self._go_on(*self._sums.look_at_the_time())
            case TimerFired():
                return self._repeat_if_possible()
            case Started():
                effects = self._block_party.introduce()
                return effects if self._block_party.peers else [*effects, *self._begin()]
            case PeerLost(peer=peer):
                effects = self._go_on(*self._sums.lose(peer))
                return [*effects, *(self._record.evaluate_if_settled() if self._record else [])]
            case PeerReturned(peer=peer):
                self._sums.lost.discard(peer)
                self._sums.patience.hear(peer)
                return self._repeat_if_possible()

    def _receive(self, sender: str, message: Any) -> list[Effect]:
        self._check_role(sender, message)
        if not self._block_party.ready and not isinstance(message, Introduction):
            keep_early(self._early, sender, message)  # of one who was ready sooner
            return []
        match message:
            case ProductRequest():
                effects, completed = self._sums.receive(sender, message)
                if self._record is not None:
                    effects += self._record.count(message.rows.size)
                return [*effects, *self._complete(completed), *self._after_failures()]
            case (
                ProductSum()
                | MaskedSum()
                | EvaluationProductRequest()
                | EvaluationProductSum()
                | EvaluationMaskedSum()
                | EvaluationAbandoned()
            ):
                effects, completed = self._sums.receive(sender, message)
                return [*effects, *self._complete(completed), *self._after_failures()]
            case ResidualRequest():
                return self._sum_for(sender, message)
            case ResidualReply():
                if self._closed or message.exchange != self._exchange:
                    return []
                if message.residuals.shape != (self._rows.size, self._block_party.seat.outputs):
                    raise ProtocolError(f"{sender} answered with residuals of shape {message.residuals.shape}.")
                self._solver.apply(self._rows, message.residuals, None)
                return self._request()
            case Abandoned():
                if message.root == self._block_party.seat.name:
                    self._sums.receive(sender, message)
                    return self._after_failures()
                return self._block() if message.number == self._exchange and not self._closed else []
            case Introduction():
                return self._begin() if self._block_party.meet(sender, message) else []
            case LossReport():
                if self._record is not None:
                    for _ in range(min(message.batches, 10_000)):
                        self._record.add_loss(message.loss)
                return []
            case LastCall():
                self._closed = True
                return [Send(sender, WeightsSettled())]
            case WeightsSettled() if self._record is not None:
                return self._record.settle(sender)
            case Stop():
                return [Finish()]
        raise ProtocolError(f"{sender} sent {type(message).__name__}, which a party of this schedule does not take.")

    def _check_role(self, sender: str, message: Any) -> None:
        """Refuse what is the label party's to send, or to be the root of."""
        label_party = self._block_party.seat.label_party
        if isinstance(message, _LABEL_PARTYS) and sender != label_party:
            raise ProtocolError(f"{sender} sent {type(message).__name__}, which is the label party's to send.")
        if isinstance(message, EvaluationProductRequest) and message.root != label_party:
            raise ProtocolError(f"{sender} asked for an evaluation of {message.root}; only the label party makes any.")
        one_has_labels = self._block_party.seat.settings.labels == "one"
        if isinstance(message, ProductRequest) and one_has_labels and message.root != label_party:
            raise ProtocolError(f"{sender} asked for a sum of {message.root}, who has no labels to use it with.")

    # --- the worker ---

    def _begin(self) -> list[Effect]:
        self._solver.prepare()
        effects = self._request() if self._block_party.works else []
        early, self._early = self._early, []
        return [*effects, *receive_all(early, self._receive)]

    def _request(self) -> list[Effect]:
        """Choose rows, and ask for the sum of their products or, without labels, for the residuals."""
        if self._closed:
            return []
        self._rows = self._solver.next_rows()
        return self._repeat()

    def _repeat(self) -> list[Effect]:
        self._blocked = False
        self._exchange += 1
        if self._block_party.targets is None:
            return [Send(self._block_party.seat.label_party, ResidualRequest(self._exchange, self._rows))]
        self._own_sum, effects, completed = self._sums.begin(self._rows)
        if self._record is not None:
            effects += self._record.count(self._rows.size)
        return [*effects, *self._complete(completed), *self._after_failures()]

    def _block(self) -> list[Effect]:
        """The request failed: repeat it once everybody can be reached."""
        self._blocked = True
        # Others may have known sooner who is away: a timer waits its turn behind that news.
        return [] if self._sums.lost else [SetTimer("repeat", 0.0)]

    def _repeat_if_possible(self) -> list[Effect]:
        return self._repeat() if self._blocked and not self._closed and not self._sums.lost else []

    def _step(self) -> list[Effect]:
        """The worker's own sum is there: update, and ask for the next. A timer, so that it takes its time."""
        if self._closed or self._others is None:
            return []
        others, self._others = self._others, None
        targets = self._block_party.targets
        assert targets is not None
        loss = self._solver.apply(self._rows, others, targets[self._rows])
        effects = self._report(loss) if loss is not None else []
        return [*effects, *self._request()]

    def _report(self, loss: float) -> list[Effect]:
        if self._record is not None:
            self._record.add_loss(loss)
            return []
        self._losses.append(loss)
        if len(self._losses) < self._report_every:
            return []
        report = LossReport(len(self._losses), sum(self._losses) / len(self._losses))
        self._losses = []
        return [Send(self._block_party.seat.label_party, report)]

    # --- sums that are complete, or will not be ---

    def _go_on(self, effects: list[Effect], completed: list[Completed]) -> list[Effect]:
        """Sums have gone on without a party, or were abandoned for want of it."""
        for one in completed:
            effects += self._complete(one)
        return [*effects, *self._after_failures()]

    def _complete(self, completed: Completed | None) -> list[Effect]:
        if completed is None:
            return []
        if self._record is not None and self._record.awaits(completed.number):
            return self._record.receive(completed)
        asked = self._asked.pop(completed.number, None)
        if asked is not None:
            return self._answer(completed, *asked)
        if completed.number != self._own_sum or self._closed:
            return []
        self._others = completed.total - completed.own
        effects: list[Effect] = [SetTimer("step", 0.0)]
        if self._record is not None and self._block_party.targets is not None:
            effects += self._record.look_for_an_optimum(
                completed.total, self._block_party.targets[self._rows], self._rows
            )
        return effects

    def _sum_for(self, sender: str, request: ResidualRequest) -> list[Effect]:
        """Label party: make the sum that a party without labels needs."""
        if self._record is None or self._block_party.seat.settings.labels != "one":
            raise ProtocolError(f"{sender} asked {self._block_party.seat.name} for residuals, which it does not give.")
        self._sums.check_rows(sender, request.rows)
        if self._record.ending:
            return []
        if any(asker == sender for asker, _, _, _ in self._asked.values()):
            raise ProtocolError(f"{sender} asked for residuals again before it was answered.")
        number, effects, completed = self._sums.begin(request.rows)
        self._asked[number] = (sender, request.exchange, request.rows, self._answers)
        effects += self._record.count(request.rows.size)
        return [*effects, *self._complete(completed), *self._after_failures()]

    def _answer(
        self, completed: Completed, sender: str, exchange: int, rows: NDArray[np.uint32], answers_then: int
    ) -> list[Effect]:
        """ϑ_i = ∂loss/∂θ_i: all that a party without labels needs for its block's gradient."""
        assert self._record is not None and self._block_party.targets is not None
        if self._record.ending:
            return []
        targets = self._block_party.targets[rows]
        residuals, loss = self._block_party.loss.residuals_and_mean_loss(completed.total, targets)
        self._record.add_loss(loss)
        self._record.staleness.add(np.array([self._answers - answers_then]))
        self._answers += 1
        reply = ResidualReply(exchange, residuals)
        return [Send(sender, reply), *self._record.look_for_an_optimum(completed.total, targets, rows)]

    def _after_failures(self) -> list[Effect]:
        """Sums of which this party is the root that were abandoned."""
        effects: list[Effect] = []
        for number in self._sums.failed():
            asked = self._asked.pop(number, None)
            if asked is not None:
                effects.append(Send(asked[0], Abandoned(self._block_party.seat.name, asked[1])))
            elif number == self._own_sum and not self._closed:
                effects += self._block()
        given_up = self._sums.failed(evaluations=True)
        return [*effects, *(self._record.abandon(given_up) if self._record else [])]

    def _close(self) -> list[Effect]:
        """The registrar ends the training."""
        self._closed = True
        self._asked.clear()
        return [Send(peer, LastCall()) for peer in self._block_party.peers]

    # --- the rest of the contract ---

    def state(self) -> State:
        others = _NOTHING if self._others is None else self._others
        state = State(
            {
                "rows": torch.from_numpy(self._rows.view(np.int32).copy()),
                "others": torch.from_numpy(others.copy()),
                **{
                    f"asked.{place}": torch.from_numpy(rows.view(np.int32).copy())
                    for place, (_, _, rows, _) in enumerate(self._asked.values())
                },
            },
            {
                **{name: getattr(self, name) for name in _VALUES},
                "losses": list(self._losses),
                "has_others": self._others is not None,
                "asked": [[number, who, theirs, then] for number, (who, theirs, _, then) in self._asked.items()],
            },
        )
        state.add("early", pack(self._early))
        for name, part in self._parts().items():
            state.add(name, part.state())
        return state

    def restore(self, state: State) -> None:
        for name in _VALUES:
            setattr(self, name, state.values[name])
        self._losses = list(state.values["losses"])
        self._rows = state.tensors["rows"].numpy().view(np.uint32)
        self._others = state.tensors["others"].numpy().copy() if state.values["has_others"] else None
        self._asked = {
            number: (who, theirs, state.tensors[f"asked.{place}"].numpy().view(np.uint32), then)
            for place, (number, who, theirs, then) in enumerate(state.values["asked"])
        }
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
        own = {"exchanges": self._exchange, "steps": self._solver.steps, **self._sums.counts()}
        return {**own, **self._record.counts()} if self._record else own


_VALUES = ("_exchange", "_own_sum", "_blocked", "_closed", "_answers")
