"""The asynchronous schedule of split models: everything about an exchange but its equations.

Feature parties upload whenever they like; the label party answers from everybody's last known embeddings. The delay
rules are those of T. Chen et al., "VAFL", 2020, §2.3: uniformly bounded (`max_delay` = D), stochastic
(`activation_seconds`), t-synchronous (`wait_for` = t). An algorithm supplies what is uploaded, how uploads are
answered, and how a reply is applied.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.divergence import DivergedError
from colonnade.algorithms.parts.kept_messages import pack, unpack
from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.seats import FeatureSeat, LabelSeat
from colonnade.algorithms.split_models.parts.budget import (
    PartyBudgets,
    budget_mu,
    check_each_once,
    check_rows,
)
from colonnade.algorithms.split_models.parts.embedder import BottomModel
from colonnade.algorithms.split_models.parts.evaluation import AnswersToEvaluation
from colonnade.algorithms.split_models.parts.record import SplitRecord, TopModel
from colonnade.algorithms.split_models.parts.table import EmbeddingTable
from colonnade.algorithms.split_models.parts.uploads import embeddings_of, entering, not_from
from colonnade.algorithms.split_models.parts.validation import FeatureValidation, heals
from colonnade.data.batches import Batches
from colonnade.errors import ProtocolError, SettingsError, unknown_name
from colonnade.messages import (
    BudgetSpent,
    EvaluationEmbedding,
    EvaluationRequest,
    GoBack,
    Keep,
    Message,
    RefreshedEmbedding,
    RefreshRequest,
    RowsRefused,
    Stop,
    ValidationEmbedding,
    ValidationRequest,
    WarmUpUpload,
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
from colonnade.state import Remembering, State, array, custom, generator, optional_part, part, value

WARM_UP_ROWS_A_MESSAGE = 4096


@dataclass(frozen=True)
class Asynchronous:
    """The schedule settings of every asynchronous algorithm.

    An algorithm's settings extend these, so that a name is the same in `[algorithm]`, on the command line and in
    Python, whichever algorithm it belongs to.
    """

    wait_for: int = 1
    """(parties) t: update once uploads of so many distinct parties are there"""
    max_delay: int = 0
    """(exchanges) D: older embeddings are asked for afresh; 0: no bound"""
    refresh_timeout_seconds: float = 1.0
    """(seconds) how long these are waited for; then on with what is there"""
    activation_seconds: float | Mapping[str, float] = 0.0
    """(seconds) mean gap of a Poisson process; a number, or a table by party; 0: at once"""
    in_flight: int = 1
    """(uploads) that a feature party may have without a reply"""
    warm_up: bool = False
    """every party first uploads all its rows"""
    shared_rows: bool = False
    """every party draws the same batches in the same order"""

    def __post_init__(self) -> None:
        for name, least in (("wait_for", 1), ("in_flight", 1), ("max_delay", 0)):
            value = getattr(self, name)
            if value < least:
                raise SettingsError(f"algorithm.{name} is {value}; it must be at least {least}.")
        if not 0 < self.refresh_timeout_seconds < inf:
            raise SettingsError(
                f"algorithm.refresh_timeout_seconds is {self.refresh_timeout_seconds}; it must be above 0 and finite, "
                "or a party that is down would hang the run."
            )
        if 0 < self.max_delay < self.wait_for:
            raise SettingsError(
                f"algorithm.max_delay is {self.max_delay}, but one update of wait_for = {self.wait_for} parties "
                f"already makes embeddings {self.wait_for} exchanges old; give at least {self.wait_for}."
            )
        gaps = (
            self.activation_seconds.values()
            if isinstance(self.activation_seconds, Mapping)
            else [self.activation_seconds]
        )
        if not all(0 <= gap < inf for gap in gaps):
            raise SettingsError("algorithm.activation_seconds must be finite and not negative.")

    def activation_gap(self, party: str) -> float:
        if isinstance(self.activation_seconds, Mapping):
            return self.activation_seconds.get(party, 0.0)
        return self.activation_seconds


class AsynchronousFeatureParty(Remembering):
    """Uploads its next batch when a reply is in (or when its Poisson process says so), and answers requests.

    The algorithm gives `upload`, which computes and sends an upload of some rows, and `apply`, which updates the model
    from a message of type `reply` (False if no upload of its number waits).
    """

    MEMORY = (
        *(value("_spent"), array("_refused", in_place=True), generator("_activations")),
        *(part("_bottom"), part("_batches"), part("_evaluation"), optional_part("_validation")),
    )
    DERIVED = ("_refuses",)

    def restored(self) -> None:
        self._refuses = bool(self._refused.any())

    def __init__(
        self,
        seat: FeatureSeat,
        bottom: BottomModel,
        upload: Callable[[int, NDArray[np.uint32]], Sequence[Effect]],
        reply: type[Message],
        apply: Callable[[Any], bool],
    ) -> None:
        settings: Asynchronous = seat.settings
        self._seat = seat.without_model()
        self._bottom = bottom
        self._send_upload = upload
        self._reply = reply
        self._apply = apply
        self._settings = settings
        self._gap = settings.activation_gap(seat.name)
        self._evaluation = AnswersToEvaluation(bottom.embed_test, len(seat.columns.test))
        apart = seat.columns.validation
        self._validation = None if apart is None and not heals(seat) else FeatureValidation(seat, bottom)
        owner = "everybody" if settings.shared_rows else seat.name
        rows = len(seat.columns.train)
        self._batches = Batches(rows, seat.training.batch_size, generator_for(seat.seed, owner, "rows"))
        self._activations = generator_for(seat.seed, seat.name, "activations")
        self._refused: NDArray[np.bool_] = np.zeros(rows, np.bool_)  # rows whose labels have no budget left
        self._refuses = False  # whether there are any: looking costs a pass over all rows
        self._spent = False  # the label party knows that no batch can be made any more

    def handle(self, event: Event) -> Sequence[Effect]:
        match event:
            case Received(sender=sender) if sender != self._seat.label_party:
                raise not_from(sender)
            case Received(message=reply) if type(reply) is self._reply:
                if not self._apply(reply):
                    return []
                effects = self._due()
                return effects if self._gap else [*effects, *self._upload()]
            case Started():
                return [*self._warm_up(), *(self._next_activation() if self._gap else self._fill())]
            case Extended():
                return self._next_activation() if self._gap else self._fill()
            case TimerFired():
                # An activation while all uploads are out is void, as in a Poisson process with a busy server.
                return [*(self._upload() if self._room() else []), *self._next_activation()]
            case Received(sender=sender, message=RefreshRequest() as request):
                rows = self._affordable(request.rows)
                spent, embedding = self._bottom.embed(rows)
                return [*spent, Send(sender, RefreshedEmbedding(request.request, rows, embedding))]
            case Received(message=RowsRefused() as refused):
                return self._drop(refused)
            case Received(sender=sender, message=EvaluationRequest() as request):
                self._evaluation.ask(sender, request)
                return self._evaluation.due(self._bottom.steps)
            case Received(sender=sender, message=ValidationRequest() | Keep() | GoBack() as asked) if self._validation:
                return self._look_back(self._validation.receive(sender, asked), asked)
            case Received(message=Stop()):
                self._bottom.forget_uploads()
                return [Finish()]
            case PeerLost() | PeerReturned():
                return []  # the reply comes when the label party is back
            case Received(sender=sender, message=message):
                raise ProtocolError(
                    f"{sender} sent {type(message).__name__}, which a feature party does not take here."
                )

    def _look_back(self, effects: list[Effect], asked: Message) -> list[Effect]:
        """Where this party has gone back to an earlier model, it begins anew."""
        if isinstance(asked, GoBack) and effects:
            self._evaluation.forget()
            effects += self._fill() if asked.step > 0 and not self._gap else []
        return effects

    def _due(self) -> list[Effect]:
        """Answers to evaluations that waited for a reply to be applied."""
        effects = self._evaluation.due(self._bottom.steps)
        return effects if self._validation is None else [*effects, *self._validation.due()]

    def _upload(self) -> Sequence[Effect]:
        """Choose rows and upload them; the upload is the query for its reply."""
        rows = self._next_rows()
        if rows is not None:
            return self._send_upload(self._bottom.uploads, rows)
        if self._spent:
            return []
        self._spent = True
        return [Send(self._seat.label_party, BudgetSpent(f"rows of {self._seat.name}"))]

    def _next_rows(self) -> NDArray[np.uint32] | None:
        """The next batch, without rows that have no budget left; None if too few are left for one."""
        budget, cost = self._bottom.budget, self._bottom.upload_cost
        chosen = self._batches.next()
        if not self._refuses and budget.all_affordable(chosen, cost):
            return chosen
        fits = budget.affordable(chosen, cost) & ~self._refused[chosen]
        if fits.all():
            return chosen
        every = np.arange(self._refused.size, dtype=np.uint32)
        free = budget.affordable(every, cost) & ~self._refused
        size = self._seat.training.batch_size
        if free.sum() < size:
            return None
        chosen = chosen[fits]
        while chosen.size < size:  # of the batches after it, which lose these rows, so that this one is whole
            more = self._batches.next()
            chosen = np.concatenate([chosen, np.setdiff1d(more[free[more]], chosen)])
        return chosen[:size]

    def _drop(self, refused: RowsRefused) -> list[Effect]:
        """The label party cannot answer for these rows any more: leave them out from now on."""
        if refused.rows.size == 0:
            raise ProtocolError(f"{self._seat.label_party} refused an upload for the sake of no row.")
        check_rows(refused.rows, self._refused.size, self._seat.label_party)
        if not self._bottom.forget_upload(refused.exchange):
            return []
        self._refused[refused.rows] = True
        self._refuses = True
        return [] if self._gap else [*self._upload()]

    def _affordable(self, rows: NDArray[np.uint32]) -> NDArray[np.uint32]:
        check_rows(rows, self._refused.size, self._seat.label_party)
        check_each_once(rows, self._seat.label_party)
        return rows[self._bottom.budget.affordable(rows, self._bottom.embedding_cost)]

    def _room(self) -> bool:
        return self._bottom.in_flight < self._settings.in_flight

    def _fill(self) -> list[Effect]:
        effects: list[Effect] = []
        while self._room() and not self._spent:
            effects += self._upload()
        return effects

    def _next_activation(self) -> list[Effect]:
        gap = torch.empty((), dtype=torch.float64).exponential_(1 / self._gap, generator=self._activations)
        return [SetTimer("activate", gap.item())]

    def _warm_up(self) -> list[Effect]:
        effects: list[Effect] = []
        if self._settings.warm_up:
            everything = np.arange(len(self._seat.columns.train), dtype=np.uint32)
            for start in range(0, everything.size, WARM_UP_ROWS_A_MESSAGE):
                rows = self._affordable(everything[start : start + WARM_UP_ROWS_A_MESSAGE])
                spent, embedding = self._bottom.embed(rows)
                effects += [*spent, Send(self._seat.label_party, WarmUpUpload(rows, embedding))]
        return effects

    def model(self) -> dict[str, torch.nn.Module]:
        return {"bottom": self._bottom.module()}

    def counts(self) -> dict[str, Any]:
        return {"exchanges": self._bottom.steps, "steps": self._bottom.steps}


@dataclass
class Upload:
    """An upload that the label party has not answered yet. Its message has `exchange` and `rows`."""

    sender: str
    message: Any
    embedding: NDArray[np.float32]  # what of it enters the table


@dataclass
class Update:
    """Uploads of `wait_for` distinct parties, answered together; and the refreshes it waits for."""

    uploads: list[Upload]
    awaited: dict[int, str] = field(default_factory=dict)  # request number → party


Answer = Callable[[Sequence[Upload], EmbeddingTable], tuple[list[float], list[Effect]]]
"""Mean losses of, and replies to, uploads that are in the table already: all taken at the same θ0, then θ0 updated."""


class AsynchronousLabelParty(Remembering):
    """Answers uploads in the order of arrival, keeps the delay rules, evaluates, and ends the training.

    The algorithm gives `answer`, for messages of type `upload`. `enters_table` says which embedding of an upload the
    table keeps, where it is not the one called `embedding`.
    """

    def __init__(
        self,
        seat: LabelSeat,
        top: TopModel,
        upload: type[Message],
        answer: Answer,
        enters_table: Callable[[Any], NDArray[np.float32]] = attrgetter("embedding"),
        label_cost: Callable[[int], float] = lambda rows: 0.0,
    ) -> None:
        self._label_cost = label_cost
        self._seat = seat
        self._top = top
        self._upload = upload
        self._reply = answer
        self._enters_table = enters_table
        self._settings: Asynchronous = seat.settings
        parties = seat.feature_parties
        if self._settings.wait_for > len(parties):
            raise SettingsError(
                f"algorithm.wait_for is {self._settings.wait_for}; there are {len(parties)} feature parties."
            )
        gaps = self._settings.activation_seconds
        for name in gaps if isinstance(gaps, Mapping) else ():
            if name not in parties:
                raise unknown_name("feature party for algorithm.activation_seconds", name, parties)
        rows = len(seat.labels.train)
        self._record = SplitRecord(seat, top)
        self._table = self._record.table
        batch_size = seat.training.batch_size
        self._batch_sizes = {batch_size, rows % batch_size or batch_size}  # the last of an epoch may be smaller
        self._last_exchange = seat.training.steps(rows) * len(parties)
        self._waiting: list[Upload] = []
        self._update: Update | None = None  # the one that waits for refreshes; the others wait behind it
        self._requests = 0
        self._held: list[Upload] = []  # of parties that have been asked to go back, and have not said yet that they did
        self._void_requests = 0  # refreshes up to this one are of models that are gone
        self._late_rows = 0  # uses of an embedding older than max_delay
        privacy = seat.privacy
        mu = budget_mu(privacy.labels_epsilon, privacy.delta, privacy.formula)
        self._budget = PartyBudgets(rows, mu, parties)
        self._budget.begin_with(None if seat.spent is None else seat.spent["training rows"])
        self._without_budget: set[str] = set()  # parties that can make no batch any more

    def handle(self, event: Event) -> Sequence[Effect]:
        try:
            return self._handle(event)
        except DivergedError as error:
            effects = self._record.heal(error)
            self._waiting.clear()
            self._held.clear()
            self._update, self._void_requests = None, self._requests
            return effects

    def _handle(self, event: Event) -> Sequence[Effect]:
        match event:
            case Received(sender=sender, message=upload) if type(upload) is self._upload:
                return self._take(Upload(sender, upload, entering(self._enters_table, sender, upload)))
            case Received(sender=sender, message=BudgetSpent()):
                return self._go_on_without(sender)
            case Received(sender=sender, message=RefreshedEmbedding() as fresh):
                if not 0 < fresh.request <= self._requests:
                    raise ProtocolError(f"{sender} answered the request {fresh.request}, which was never made.")
                if fresh.request <= self._void_requests:
                    return []
                self._record.check(sender, fresh.rows, fresh.embedding)
                self._table.write(sender, fresh.rows, fresh.embedding, self._record.exchange)
                if self._update is None or self._update.awaited.get(fresh.request) != sender:
                    return []  # too late for its update; the next one has it
                del self._update.awaited[fresh.request]
                return self._go_on()
            case Received(sender=sender, message=WarmUpUpload() as everything):
                if self._record.is_behind(sender):
                    return []
                self._record.check(sender, everything.rows, everything.embedding)
                self._table.write(sender, everything.rows, everything.embedding, self._record.exchange)
                return []
            case Received(sender=sender, message=EvaluationEmbedding() | ValidationEmbedding() | WentBack() as answer):
                effects = self._record.receive(sender, answer)
                held, self._held = self._held, []
                for one in held:
                    effects += self._take(one)
                return effects
            case TimerFired():
                if self._update is not None:
                    self._update.awaited.clear()
                return self._go_on()
            case PeerLost(peer=peer):
                if self._update is not None:
                    awaited = self._update.awaited
                    self._update.awaited = {number: party for number, party in awaited.items() if party != peer}
                return [*self._record.lose(peer), *self._go_on()]
            case PeerReturned(peer=peer):
                self._record.lost.discard(peer)
                return []
            case Started():
                return []
            case Extended():
                return self._extend()
            case Received(sender=sender, message=message):
                raise ProtocolError(f"{sender} sent {type(message).__name__}, which a label party does not take here.")

    def _take(self, upload: Upload) -> list[Effect]:
        """Judge an upload, whole, and answer it if it is its turn."""
        sender, message = upload.sender, upload.message
        if self._record.is_void(sender, message.exchange):
            return []
        if self._record.is_behind(sender):
            return self._hold(upload)
        if message.rows.size not in self._batch_sizes:
            raise ProtocolError(
                f"{sender} uploaded {message.rows.size} rows; {self._seat.training.batch_size} were agreed on. A "
                "mean over fewer would tell more of each."
            )
        self._record.check(sender, message.rows, upload.embedding, embeddings_of(message))
        if self._record.ending:
            return []
        held = [*self._waiting, *(self._update.uploads if self._update else [])]
        if sum(other.sender == sender for other in held) >= self._settings.in_flight:
            raise ProtocolError(
                f"{sender} uploaded without waiting for its replies; at most {self._settings.in_flight} may be in "
                "flight."
            )
        if self._budget.bounded:
            cost = self._label_cost(message.rows.size)
            if not self._budget.all_affordable(sender, message.rows, cost):
                fits = self._budget.affordable(sender, message.rows, cost)
                return [Send(sender, RowsRefused(message.exchange, message.rows[~fits]))]
            self._budget.spend(sender, message.rows, cost)
        self._waiting.append(upload)
        return self._go_on()

    def _hold(self, upload: Upload) -> list[Effect]:
        """Until it is known whether it is of the model that everybody went back to: its sender's word is under way."""
        if sum(other.sender == upload.sender for other in self._held) >= 2 * self._settings.in_flight:
            raise ProtocolError(f"{upload.sender} uploaded without waiting for its replies.")
        self._held.append(upload)
        return []

    def _go_on_without(self, party: str) -> list[Effect]:
        """A party uploads no more, its rows' budgets being spent: when nobody does, the training ends here."""
        if party not in self._seat.feature_parties:
            raise ProtocolError(f"{party!r} is not a feature party of this federation.")
        if party in self._without_budget:
            raise ProtocolError(f"{party} said twice that it has no budget left; once is enough.")
        self._without_budget.add(party)
        note = f"the privacy budget of too many rows is spent: {party} uploads no more"
        effects: list[Effect] = [Observe(self._record.exchange, self._top.steps, self._record.epoch(), note=note)]
        if self._record.ending:
            return effects
        if not self._nobody_has_budget:
            return [*effects, *self._go_on()]  # what waits for enough parties may not have to any more
        return [*effects, *self._end_for_want_of_budget()]

    @property
    def _nobody_has_budget(self) -> bool:
        return self._without_budget >= {*self._seat.feature_parties}

    def _end_for_want_of_budget(self) -> list[Effect]:
        self._record.ending = True
        self._record.reason = "the privacy budget is spent"
        self._waiting.clear()
        self._update = None
        return self._record.observe([])

    def _extend(self) -> list[Effect]:
        """Go on after the end: everybody uploads anew, unless nobody has the budget for it."""
        self._record.extend()
        self._waiting, self._held = [], []
        self._update, self._void_requests = None, self._requests
        return self._end_for_want_of_budget() if self._nobody_has_budget else []

    def _go_on(self) -> list[Effect]:
        """Answer as many updates as are complete, each only after the refreshes it needs."""
        effects: list[Effect] = []
        while not self._record.ending:
            if self._update is None:
                uploads = self._next_uploads()
                if not uploads:
                    break
                self._update = Update(uploads)
                effects += self._ask_for_refreshes(self._update)
            if self._update.awaited:
                break
            effects += self._answer(self._update.uploads)
            self._update = None
        return effects

    def _next_uploads(self) -> list[Upload]:
        """The first uploads of t distinct parties, t being at most the number of parties that can be reached."""
        if not self._waiting:
            return []
        if self._settings.wait_for == 1:
            return [self._waiting.pop(0)]
        chosen: dict[str, Upload] = {}
        for upload in self._waiting:
            chosen.setdefault(upload.sender, upload)
            if len(chosen) == self._settings.wait_for:
                break
        reachable = len({*self._seat.feature_parties} - self._record.lost - self._without_budget | {*chosen})
        if len(chosen) < min(self._settings.wait_for, reachable):
            return []
        uploads = list(chosen.values())
        self._waiting = [upload for upload in self._waiting if not any(upload is one for one in uploads)]
        return uploads

    def _ask_for_refreshes(self, update: Update) -> list[Effect]:
        """§2.3, rule 1: query fresh embeddings of what would be staler than D before going on."""
        if self._settings.max_delay == 0:
            return []
        effects: list[Effect] = []
        as_of = self._record.exchange + len(update.uploads)
        fresh = {upload.sender: upload.message.rows for upload in update.uploads}
        used = np.unique(np.concatenate([upload.message.rows for upload in update.uploads]))
        for party in self._seat.feature_parties:
            old = self._table.older_than(party, used, as_of, self._settings.max_delay)
            if party in fresh:
                old = np.setdiff1d(old, fresh[party])
            if old.size and party not in self._record.lost:
                self._requests += 1
                update.awaited[self._requests] = party
                effects.append(Send(party, RefreshRequest(self._requests, old)))
        if effects:
            effects.append(SetTimer("refresh", self._settings.refresh_timeout_seconds))
        return effects

    def _answer(self, uploads: list[Upload]) -> list[Effect]:
        """Write the table, let the algorithm answer, and see what is due."""
        self._record.exchange += len(uploads)
        for upload in uploads:
            self._table.write(upload.sender, upload.message.rows, upload.embedding, self._record.exchange)
        for upload in uploads:
            self._table.count_staleness(upload.message.rows, self._record.exchange)
            self._count_late(upload)
            self._record.replies[upload.sender] += 1
        losses, effects = self._reply(uploads, self._table)
        if self._record.exchange >= self._last_exchange:
            self._record.ending = True
            self._waiting.clear()
        return [*effects, *self._record.observe(losses)]

    def _count_late(self, upload: Upload) -> None:
        if self._settings.max_delay:
            ages = self._table.ages(upload.message.rows, self._record.exchange)
            self._late_rows += int((ages > self._settings.max_delay).sum())

    def _save_uploads(self, state: State) -> None:
        uploads, awaited = (self._update.uploads, self._update.awaited) if self._update else ([], {})
        state.values.update(in_update=len(uploads), awaited=[*awaited.items()])
        state.add("uploads", pack([(upload.sender, upload.message) for upload in (*uploads, *self._waiting)]))
        if self._void_requests or self._held:
            state.values["void_requests"] = self._void_requests
            state.add("held", pack([(upload.sender, upload.message) for upload in self._held]))

    def _load_uploads(self, state: State) -> None:
        kept = unpack(state.part("uploads"))
        uploads = [Upload(sender, message, self._enters_table(message)) for sender, message in kept]
        held = state.values["in_update"]
        self._update = Update(uploads[:held], dict(map(tuple, state.values["awaited"]))) if held else None
        self._waiting = uploads[held:]
        self._void_requests, self._held = state.values.get("void_requests", 0), []
        if "held" in state.values:
            again = unpack(state.part("held"))
            self._held = [Upload(sender, message, self._enters_table(message)) for sender, message in again]

    MEMORY = (
        value("_requests", "_late_rows"),
        value("_without_budget", restored=set),
        custom("_update", "_waiting", "_held", "_void_requests", save=_save_uploads, load=_load_uploads),
        *(part("_record", "books"), part("_budget")),
    )

    def model(self) -> dict[str, torch.nn.Module]:
        return self._top.models()

    def stand_ins(self) -> dict[str, torch.Tensor]:
        """What stands in for a feature party that is away when rows are served."""
        return self._record.table.means()

    def counts(self) -> dict[str, Any]:
        return {**self._record.counts(), "late_rows": self._late_rows}
