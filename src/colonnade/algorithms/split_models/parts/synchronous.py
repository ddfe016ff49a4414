"""The synchronous schedule of split models: one batch for all, every party waits for every other.

The label party names the batch; its reply carries the next batch along. It waits for a party that is away, says so,
and goes on without it after `party_timeout_seconds`. An algorithm supplies what is uploaded, how a step's uploads are
answered, and how a reply is applied.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.divergence import DivergedError
from colonnade.algorithms.parts.kept_messages import messages
from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.seats import FeatureSeat, LabelSeat
from colonnade.algorithms.split_models.parts.budget import check_each_once, check_rows
from colonnade.algorithms.split_models.parts.embedder import BottomModel
from colonnade.algorithms.split_models.parts.evaluation import AnswersToEvaluation
from colonnade.algorithms.split_models.parts.record import SplitRecord, TopModel
from colonnade.algorithms.split_models.parts.table import EmbeddingTable
from colonnade.algorithms.split_models.parts.uploads import embeddings_of, entering, not_from
from colonnade.algorithms.split_models.parts.validation import FeatureValidation, heals
from colonnade.data.batches import Batches
from colonnade.errors import ProtocolError, SettingsError
from colonnade.messages import (
    BatchRequest,
    BudgetSpent,
    EvaluationEmbedding,
    EvaluationRequest,
    GoBack,
    Keep,
    Message,
    Stop,
    ValidationEmbedding,
    ValidationRequest,
    WentBack,
)
from colonnade.party import (
    Effect,
    Event,
    Extended,
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
from colonnade.state import Remembering, array, optional_part, part, value

_NO_ROWS: NDArray[np.uint32] = np.zeros(0, np.uint32)
MOST_UNANSWERED = 4
"""Uploads of which a feature party remembers how to apply the reply. One that was given up has two at most."""


@dataclass(frozen=True)
class Synchronous:
    """The schedule settings of every synchronous algorithm."""

    party_timeout_seconds: float = 0.0
    """(seconds) go on without a party that is away for longer; 0: wait"""

    def __post_init__(self) -> None:
        if not 0 <= self.party_timeout_seconds < inf:
            raise SettingsError(
                f"algorithm.party_timeout_seconds is {self.party_timeout_seconds}; it must be finite and not negative, "
                "and 0 waits for ever."
            )


class SynchronousFeatureParty(Remembering):
    """Embeds the batch it is told, applies the reply, embeds the next batch, which came with it."""

    MEMORY = (value("_step"), part("_bottom"), part("_evaluation"), optional_part("_validation"))

    def __init__(
        self,
        seat: FeatureSeat,
        bottom: BottomModel,
        upload: Callable[[int, NDArray[np.uint32]], Sequence[Effect]],
        reply: type[Message],
        apply: Callable[[Any], bool],
    ) -> None:
        self._seat = seat.without_model()
        self._bottom = bottom
        self._send_upload = upload
        self._reply = reply
        self._apply = apply
        self._step = 0  # the latest one that it uploaded for
        self._evaluation = AnswersToEvaluation(bottom.embed_test, len(seat.columns.test))
        apart = seat.columns.validation
        self._validation = None if apart is None and not heals(seat) else FeatureValidation(seat, bottom)

    def handle(self, event: Event) -> Sequence[Effect]:
        match event:
            case Received(sender=sender) if sender != self._seat.label_party:
                raise not_from(sender)
            case Received(message=message) if type(message) is self._reply:
                reply: Any = message
                self._check_rows(reply.next_rows)
                self._apply(reply)
                effects = self._due()
                return [*effects, *self._upload(reply.step, reply.next_rows)]
            case Received(message=BatchRequest() as request):
                self._check_rows(request.rows)
                return self._upload(request.step, request.rows)
            case Received(sender=sender, message=EvaluationRequest() as request):
                self._evaluation.ask(sender, request)
                return self._evaluation.due(self._bottom.steps)
            case Received(sender=sender, message=ValidationRequest() | Keep() | GoBack() as asked) if self._validation:
                effects = self._validation.receive(sender, asked)
                if isinstance(asked, GoBack) and effects:
                    self._evaluation.forget()
                return effects
            case Received(message=Stop()):
                return [Finish()]
            case Started() | Extended() | TimerFired() | PeerLost() | PeerReturned():
                return []
            case Received(sender=sender, message=message):
                raise ProtocolError(
                    f"{sender} sent {type(message).__name__}, which a feature party does not take here."
                )

    def _due(self) -> list[Effect]:
        """Answers to evaluations that waited for a reply to be applied."""
        effects = self._evaluation.due(self._bottom.steps)
        return effects if self._validation is None else [*effects, *self._validation.due()]

    def _check_rows(self, rows: NDArray[np.uint32]) -> None:
        check_rows(rows, len(self._seat.columns.train), self._seat.label_party)
        check_each_once(rows, self._seat.label_party)

    def _upload(self, step: int, rows: NDArray[np.uint32]) -> Sequence[Effect]:
        if step <= self._step or rows.size == 0:
            return []  # asked twice, or of a step that went on without this party, or after the last one
        self._step = step
        self._bottom.forget_all_but(MOST_UNANSWERED - 1)
        if not self._bottom.budget.affordable(rows, self._bottom.upload_cost).all():
            return [Send(self._seat.label_party, BudgetSpent(f"rows of {self._seat.name}"))]
        return self._send_upload(step, rows)

    def model(self) -> dict[str, torch.nn.Module]:
        return {"bottom": self._bottom.module()}

    def counts(self) -> dict[str, Any]:
        return {"exchanges": self._bottom.steps, "steps": self._bottom.steps}


@dataclass(frozen=True)
class Step:
    """A complete step of the label party: everybody's uploads of one batch, and the batch that comes next."""

    number: int
    rows: NDArray[np.uint32]
    uploads: Mapping[str, Any]  # party → its message
    next_number: int
    next_rows: NDArray[np.uint32]


Answer = Callable[[Step, EmbeddingTable], tuple[float, list[Effect]]]
"""The mean loss of a step whose embeddings are in the table already, and a reply to each party; updates θ0."""


class SynchronousLabelParty(Remembering):
    """Names a batch, waits for everybody's embedding of it, answers everybody, and names the next."""

    MEMORY = (
        value("_step"),
        value("_given_up", restored=set),
        array("_rows"),
        messages("_uploaded", restored=dict),
        *(part("_record", "books"), part("_batches")),
    )

    def __init__(
        self,
        seat: LabelSeat,
        top: TopModel,
        upload: type[Message],
        answer: Answer,
        enters_table: Callable[[Any], NDArray[np.float32]] = attrgetter("embedding"),
    ) -> None:
        self._seat = seat
        self._top = top
        self._upload = upload
        self._answer = answer
        self._enters_table = enters_table
        self._settings: Synchronous = seat.settings
        rows = len(seat.labels.train)
        self._record = SplitRecord(seat, top)
        self._table = self._record.table  # serves for a party that is away
        self._batches = Batches(rows, seat.training.batch_size, generator_for(seat.seed, "everybody", "rows"))
        self._last_step = seat.training.steps(rows)
        self._step = 0
        self._rows = _NO_ROWS
        self._uploaded: dict[str, Any] = {}  # uploads of the current batch, by party
        self._given_up: set[str] = set()  # lost for longer than the time-out: steps go on without them

    def handle(self, event: Event) -> Sequence[Effect]:
        try:
            return [*self._handle(event), *self._begin_again()]
        except DivergedError as error:
            effects = self._record.heal(error)
            self._rows, self._uploaded = _NO_ROWS, {}  # no batch is under way
            return [*effects, *self._begin_again()]

    def _begin_again(self) -> list[Effect]:
        """Everybody has gone back to a good model: name the next batch."""
        is_between = self._step > 0 and self._rows.size == 0 and not self._record.ending
        if not is_between or self._record.waits_for_return:
            return []
        self._step, self._rows = self._step + 1, self._batches.next()
        return [Send(party, BatchRequest(self._step, self._rows)) for party in self._seat.feature_parties]

    def _handle(self, event: Event) -> Sequence[Effect]:
        match event:
            case Received(sender=sender, message=message) if type(message) is self._upload:
                upload: Any = message
                if self._record.is_behind(sender):
                    return []  # of a step before it was asked to go back
                embedding = entering(self._enters_table, sender, upload)
                self._record.check(sender, upload.rows, embedding, embeddings_of(upload))
                if self._record.ending or upload.exchange != self._step or sender in self._uploaded:
                    return []  # of a step that went on without it
                if not np.array_equal(upload.rows, self._rows):
                    raise ProtocolError(f"{sender} answered step {self._step} with other rows than were asked for.")
                self._uploaded[sender] = upload
                return self._step_if_complete()
            case Received(sender=sender, message=EvaluationEmbedding() | ValidationEmbedding() | WentBack() as answer):
                return self._record.receive(sender, answer)
            case Received(sender=sender, message=BudgetSpent()):
                return self._end_for(sender)
            case Started():
                self._step, self._rows = 1, self._batches.next()
                request = BatchRequest(self._step, self._rows)
                return [Send(party, request) for party in self._seat.feature_parties]
            case Extended():
                self._record.extend()
                self._rows, self._uploaded = self._batches.next(), {}
                return [Send(party, BatchRequest(self._step, self._rows)) for party in self._seat.feature_parties]
            case PeerLost(peer=peer):
                effects: list[Effect] = self._record.lose(peer)
                if not self._record.ending:
                    note = f"waiting for {peer}, which cannot be reached"
                    effects.append(Observe(self._record.exchange, self._step, self._record.epoch(), note=note))
                    if self._settings.party_timeout_seconds:
                        effects.append(SetTimer("party", self._settings.party_timeout_seconds))
                return effects
            case TimerFired():
                self._given_up |= self._record.lost
                return self._step_if_complete()
            case PeerReturned(peer=peer):
                self._record.lost.discard(peer)
                if peer in self._given_up:
                    self._given_up.discard(peer)
                    if not self._record.ending and peer not in self._uploaded:
                        return [Send(peer, BatchRequest(self._step, self._rows))]
                return []
            case Received(sender=sender, message=message):
                raise ProtocolError(f"{sender} sent {type(message).__name__}, which a label party does not take here.")

    def _end_for(self, party: str) -> list[Effect]:
        """A party's rows of this batch have no budget left. Everybody is needed, so the training ends here."""
        if party not in self._seat.feature_parties:
            raise ProtocolError(f"{party!r} is not a feature party of this federation.")
        if self._record.ending:
            return []
        self._record.ending = True
        self._record.reason = "the privacy budget is spent"
        note = f"the privacy budget of rows of {party} is spent"
        observed = Observe(self._record.exchange, self._step, self._record.epoch(), note=note)
        return [observed, *self._record.observe([])]

    def _step_if_complete(self) -> list[Effect]:
        present = {*self._seat.feature_parties} - self._given_up
        if self._record.ending or not self._uploaded or not present <= self._uploaded.keys():
            return []
        rows, number, uploads = self._rows, self._step, self._uploaded
        self._record.exchange += len(uploads)
        for party, upload in uploads.items():
            self._table.write(party, rows, self._enters_table(upload), self._record.exchange)
            self._record.replies[party] += 1
        self._table.count_staleness(rows, self._record.exchange)
        self._record.ending = number >= self._last_step
        self._step += 1
        self._rows = _NO_ROWS if self._record.ending else self._batches.next()
        self._uploaded = {}
        loss, effects = self._answer(Step(number, rows, uploads, self._step, self._rows), self._table)
        return [*effects, *self._record.observe([loss])]

    def model(self) -> dict[str, torch.nn.Module]:
        return self._top.models()

    def stand_ins(self) -> dict[str, torch.Tensor]:
        """What stands in for a feature party that is away when rows are served."""
        return self._record.table.means()

    def counts(self) -> dict[str, Any]:
        return {**self._record.counts(), "late_rows": 0}
