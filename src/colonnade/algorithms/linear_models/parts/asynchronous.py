"""The asynchronous schedule of linear federations: every party asks for the sums it needs whenever it is done with the
last ones, and answers the others' requests at once, even in the middle of a step.

A party with labels is the root of its own sums. One without asks the label party, which makes the sum and answers with
∂loss/∂θ. A sum that cannot be completed because a party is away is asked for again when it is back; one for which a
party does not answer within `request_timeout_seconds` goes on with what that party sent last, or is asked for again.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.linear_party import LinearParty
from colonnade.algorithms.linear_models.parts.patience import TIMER
from colonnade.algorithms.linear_models.parts.requests import Requests, RowRequest, laid_out
from colonnade.algorithms.linear_models.parts.searching import searching_of
from colonnade.algorithms.linear_models.parts.solving import Descent
from colonnade.algorithms.linear_models.parts.sums import Completed
from colonnade.algorithms.parts.bounds import MOST_TOLD, check_magnitude
from colonnade.errors import ProtocolError
from colonnade.messages import (
    Abandoned,
    GoOn,
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
from colonnade.party import Effect, Event, Send, SetTimer
from colonnade.state import State, array, custom, included, value

_NO_ROWS = np.zeros(0, np.uint32)
_NOTHING = np.zeros((0, 0))


class AsynchronousLinearParty(LinearParty):
    """One party: a worker that asks and steps, a listener that answers, and at the label party the record."""

    LABEL_PARTYS = (ResidualReply, LastCall, GoOn, Stop)
    TAKES = (ProductRequest, ResidualRequest, ResidualReply, Abandoned, LossReport, LastCall, GoOn)

    def __init__(self, block_party: BlockParty, solver: Descent) -> None:
        super().__init__(block_party, searching_of(block_party, solver.known), solver=solver)
        self._solver = solver
        self._sums.patience.timeout_seconds = self._seat.settings.request_timeout_seconds
        self._rows = _NO_ROWS  # what the worker asked for last
        self._exchange = 0  # requests of this party's worker
        self._own_sum = 0  # the number of the worker's sum, if it is the root itself
        self._others: NDArray[np.float64] | None = None  # the sum is there, the step is not made yet
        self._blocked = False  # the request was abandoned; it is repeated when the party that lacked is back
        self._closed = False  # no more requests, no more steps
        self._paused = False  # the same, until everybody has gone back to earlier weights
        self._requests = Requests(self._sums.bounds.rows)  # of parties without labels
        self._makes_sums = False  # just now
        self._answers = 0  # residuals given so far: the clock of staleness
        self._losses: list[float] = []  # of a feature party that has labels, until they are reported
        training = self._seat.training
        self._report_every = max(1, round(training.observe_every_epochs * self._seat.rows / training.batch_size))

    def _handle(self, event: Event) -> Sequence[Effect]:
        effects = super()._handle(event)
        return [*effects, *self._begin_search()] if self._search_is_due() else effects

    def _wake(self, timer: str) -> list[Effect]:
        if timer == "step":
            return self._step()
        return self._go_on(*self._sums.look_at_the_time()) if timer == TIMER else self._repeat_if_possible()

    def _lose(self, peer: str) -> list[Effect]:
        return self._go_on(*self._sums.lose(peer))

    def _welcome_back(self) -> list[Effect]:
        return self._repeat_if_possible()

    def _take(self, sender: str, message: Any) -> list[Effect]:
        match message:
            case ProductRequest():
                effects, completed = self._sums.receive(sender, message)
                if self._record is not None:
                    effects += self._record.count(message.rows.size)
                return self._go_on(effects, [completed])
            case ProductSum() | MaskedSum():
                return self._take_part(sender, message)
            case ResidualRequest():
                return self._sum_for(sender, message)
            case ResidualReply():
                return self._take_residuals(sender, message)
            case Abandoned():
                return self._take_abandoned(sender, message)
            case LossReport():
                assert self._record is not None
                if self._record.recall.is_behind(sender):
                    return []
                for _ in range(message.batches):
                    self._record.add_loss(message.loss)
                return []
            case GoOn():
                was_paused, self._paused = self._paused, False
                return self._request() if was_paused and self._block_party.works else []
            case LastCall():
                self._closed = True
                return [Send(sender, WeightsSettled())]
        return super()._take(sender, message)

    def _check_message(self, sender: str, message: Any) -> None:
        super()._check_message(sender, message)
        one_has_labels = self._seat.settings.labels == "one"
        match message:
            case ProductRequest() if one_has_labels and message.root != self._seat.label_party:
                raise ProtocolError(f"{sender} asked for a sum of {message.root}, who has no labels to use it with.")
            case ResidualRequest():
                if self._record is None or not one_has_labels:
                    raise ProtocolError(f"{sender} asked {self._seat.name} for residuals, which it does not give.")
                self._sums.check_rows(sender, message.rows)
                if message.rows.size == 0:
                    raise ProtocolError(f"{sender} asked for the residuals of no row.")
            case ResidualReply():
                if self._block_party.targets is not None:
                    raise ProtocolError(f"{sender} sent residuals to {self._seat.name}, which has labels of its own.")
                self._check_residuals(sender, message.residuals)
            case LossReport():
                if self._record is None or one_has_labels or not 0 < message.batches <= self._report_every:
                    raise ProtocolError(
                        f"{sender} reported the loss of {message.batches} batches, which was not asked for."
                    )
                check_magnitude(sender, "a loss", message.loss, MOST_TOLD)

    def _take_residuals(self, sender: str, reply: ResidualReply) -> list[Effect]:
        if reply.exchange > self._exchange:
            raise ProtocolError(f"{sender} answered the request {reply.exchange}, which was never made.")
        if self._closed or self._rests or reply.exchange != self._exchange:
            return []  # of a request that was given up
        if reply.residuals.shape != (self._rows.size, self._seat.outputs):
            raise ProtocolError(f"{sender} answered with residuals of shape {reply.residuals.shape}.")
        self._solver.apply(self._rows, reply.residuals, None)
        return self._request()

    def _take_abandoned(self, sender: str, abandoned: Abandoned) -> list[Effect]:
        """A sum of this party's own, or the one that the label party made for it, could not be completed."""
        if abandoned.root == self._seat.name:
            return self._take_part(sender, abandoned)
        asked = self._block_party.targets is None and 0 < abandoned.number <= self._exchange
        if not asked or sender != self._seat.label_party or abandoned.root != sender:
            raise ProtocolError(
                f"{sender} abandoned the sum {abandoned.number} of {abandoned.root}, for which {self._seat.name} has "
                "not asked."
            )
        return self._block() if abandoned.number == self._exchange and not self._closed and not self._rests else []

    # --- the worker ---

    def _begin(self) -> list[Effect]:
        self._solver.prepare()
        return self._request() if self._block_party.works else []

    def _request(self) -> list[Effect]:
        """Choose rows, and ask for the sum of their products or, without labels, for the residuals."""
        if self._closed or self._rests:
            return []
        self._rows = self._solver.next_rows()
        return self._repeat()

    def _repeat(self) -> list[Effect]:
        self._blocked = False
        self._exchange += 1
        if self._block_party.targets is None:
            return [Send(self._seat.label_party, ResidualRequest(self._exchange, self._rows))]
        self._own_sum, effects, completed = self._sums.begin(self._rows)
        if self._record is not None:
            effects += self._record.count(self._rows.size)
        return self._go_on(effects, [completed])

    def _block(self) -> list[Effect]:
        """The request failed: repeat it once everybody can be reached."""
        self._blocked = True
        # Others may have known sooner who is away: a timer waits its turn behind that news.
        return [] if self._sums.lost else [SetTimer("repeat", 0.0)]

    def _repeat_if_possible(self) -> list[Effect]:
        may = self._blocked and not self._closed and not self._rests
        return self._repeat() if may and not self._sums.lost else []

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
        return [Send(self._seat.label_party, report)]

    # --- sums that are complete, or will not be ---

    def _complete(self, completed: Completed) -> list[Effect]:
        together = self._requests.end(completed.number)
        if together:
            return self._answer(completed, together)
        if completed.number != self._own_sum or self._closed:
            return []
        self._others = completed.total - completed.own
        effects: list[Effect] = [SetTimer("step", 0.0)]
        if self._record is not None and self._block_party.targets is not None:
            effects += self._record.look_for_an_optimum(
                completed.total, self._block_party.targets[self._rows], self._rows
            )
        return effects

    def _fail(self, number: int) -> list[Effect]:
        together = self._requests.end(number)
        if together:
            abandoned = [Send(one.sender, Abandoned(self._seat.name, one.exchange)) for one in together]
            return [*abandoned, *self._make_sums()]
        return self._block() if number == self._own_sum and not self._closed else []

    def _sum_for(self, sender: str, request: ResidualRequest) -> list[Effect]:
        """Label party: make the sum that a party without labels needs."""
        assert self._record is not None
        if self._record.ending or self._record.recall.is_void(sender, request.exchange):
            return []
        if self._searching is not None and self._searching.under_way:
            return []  # it will ask again after the search
        if self._requests.is_waited_for_by(sender):
            if self._searching is None or not self._searching.may_ask_again(sender):
                raise ProtocolError(f"{sender} asked for residuals again before it was answered.")
            self._requests.give_up(sender)  # a request from before a search, which arrived after it
        self._requests.add(RowRequest(sender, request.exchange, request.rows, self._answers))
        return [*self._make_sums(), *self._record.count(request.rows.size)]

    def _make_sums(self) -> list[Effect]:
        """Label party: begin the sums that may be made now, one after the other, even if one fails at once."""
        effects: list[Effect] = []
        while not self._makes_sums and (together := self._requests.next()):
            number, sent, completed = self._sums.begin(laid_out(together)[0])
            self._requests.begin(number, together)
            self._makes_sums = True
            try:
                effects += self._go_on(sent, [completed])
            finally:
                self._makes_sums = False
        return effects

    def _answer(self, completed: Completed, together: list[RowRequest]) -> list[Effect]:
        """ϑ_i = ∂loss/∂θ_i: all that a party without labels needs for its block's gradient."""
        assert self._record is not None and self._block_party.targets is not None
        if self._record.ending:
            return []
        effects: list[Effect] = []
        for one, place in zip(together, laid_out(together)[1], strict=True):
            targets, weights = self._block_party.targets[one.rows], self._block_party.weights_of(one.rows)
            outputs = completed.total[place]
            residuals, loss = self._block_party.loss.residuals_and_mean_loss(outputs, targets, weights)
            self._record.add_loss(loss)
            self._record.staleness.add(np.array([self._answers - one.answers_then]))
            self._answers += 1
            effects.append(Send(one.sender, ResidualReply(one.exchange, residuals)))
            effects += self._record.look_for_an_optimum(outputs, targets, one.rows)
        return [*effects, *self._make_sums()]

    # --- joint searches ---

    @property
    def _rests(self) -> bool:
        """Whether nothing is asked for: everybody goes back to earlier weights, or a search is under way."""
        return self._paused or (self._searching is not None and self._searching.under_way > 0)

    def _rest(self) -> None:
        """What is under way is of weights that a search may change: it is asked for again."""
        self._exchange += 1  # so that a reply to the last request is one that was given up
        self._own_sum, self._others, self._blocked = 0, None, False
        self._requests.clear()

    def _jump(self, residuals: NDArray[np.float64]) -> None:
        if self._solver.in_pass:
            self._rows = _NO_ROWS
        self._solver.jump(residuals, self._solver.steps)

    def _go_on_after_search(self) -> list[Effect]:
        if self._closed or self._paused or not self._block_party.works:
            return []
        return self._repeat() if self._rows.size else self._request()

    # --- earlier weights ---

    def _restart(self, scale: float) -> None:
        """What is under way is of weights that are gone: answers to it are not taken, and nothing is asked for."""
        self._solver.restart(scale)
        self._exchange += 1  # so that a reply to the last request is one that was given up
        self._own_sum, self._others, self._blocked, self._paused = 0, None, False, True
        self._requests.clear()
        self._losses = []

    def _begin_again(self, returned: str = "") -> list[Effect]:
        record = self._record
        assert record is not None
        if record.ending or not record.recall.all_are_back:
            return []
        if not self._paused:  # since before this one came back
            return record.recall.go_on([returned]) if returned else []
        self._paused = False
        return [*record.recall.go_on(), *(self._request() if self._block_party.works else [])]

    def _extend(self, anew: bool) -> list[Effect]:
        self._solver.extend(anew)
        self._own_sum, self._others, self._blocked, self._paused, self._closed = 0, None, False, False, False
        self._requests.clear()
        return self._request() if self._block_party.works else []

    def _close(self) -> list[Effect]:
        self._closed = True
        self._requests.clear()
        return [Send(peer, LastCall()) for peer in self._block_party.peers]

    # --- the rest of the contract ---

    def counts(self) -> dict[str, Any]:
        return {**super().counts(), **self._solver.counts()}

    def _progress(self) -> tuple[int, int]:
        return self._exchange, self._solver.steps

    def _save_others(self, state: State) -> None:
        state.values["has_others"] = self._others is not None
        state.put("others", _NOTHING if self._others is None else self._others)

    def _load_others(self, state: State) -> None:
        self._others = state.take("others") if state.values["has_others"] else None

    def _save_paused(self, state: State) -> None:
        if self._paused:
            state.values["paused"] = True

    def _load_paused(self, state: State) -> None:
        self._paused = state.values.get("paused", False)

    MEMORY = (
        custom("_paused", save=_save_paused, load=_load_paused),
        value("_exchange", "_own_sum", "_blocked", "_closed", "_answers", underscored=True),
        value("_losses"),
        array("_rows"),
        custom("_others", save=_save_others, load=_load_others),
        included("_requests"),
    )

    def restored(self) -> None:
        super().restored()
        if self._block_party.ready:
            self._solver.prepare()
