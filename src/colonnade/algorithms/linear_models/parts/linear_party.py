"""What a party of a linear federation does whatever its schedule: it introduces itself, keeps messages that come before
their time, refuses what is not the sender's to send, passes evaluations on, and ends when it is told to.

A schedule extends it with what happens when all have met, with its own messages, and with how its training closes.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.record import LinearRecord
from colonnade.algorithms.linear_models.parts.searching import OF_A_SEARCH, SearchSchedule
from colonnade.algorithms.linear_models.parts.sums import Completed
from colonnade.algorithms.parts.bounds import MOST_TOLD, check_magnitude, size_bytes
from colonnade.algorithms.parts.divergence import DivergedError
from colonnade.algorithms.parts.kept_messages import messages
from colonnade.errors import ProtocolError
from colonnade.messages import (
    EvaluationAbandoned,
    EvaluationMaskedSum,
    EvaluationProductRequest,
    EvaluationProductSum,
    GoBack,
    Introduction,
    Keep,
    MaskedSum,
    Message,
    ProductRequest,
    ProductSum,
    SearchReply,
    SearchRequest,
    SearchStep,
    SearchStop,
    Stop,
    WeightsSettled,
    WentBack,
)
from colonnade.models import row_bounds
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
    Started,
    TimerFired,
)
from colonnade.state import Memory, Remembering, Remembers, State, custom, parts

MOST_EARLY = 1 << 16
"""Messages of one sender that are kept for later: more than come while a party catches up on two epochs."""
_EVALUATIONS = (EvaluationProductRequest, EvaluationProductSum, EvaluationMaskedSum, EvaluationAbandoned)
_EVERYBODYS = (*_EVALUATIONS, Introduction, WeightsSettled, Keep, GoBack, WentBack, Stop, ProductSum, MaskedSum)
_OF_SUMS = frozenset((*_EVALUATIONS, ProductRequest, ProductSum, MaskedSum, SearchRequest))


def _save_breaches(party: "LinearParty", state: State) -> None:
    if party._breaches:
        state.values["breaches"] = dict(party._breaches)


def _load_breaches(party: "LinearParty", state: State) -> None:
    party._breaches = dict(state.values.get("breaches", {}))


def _save_went_back(party: "LinearParty", state: State) -> None:
    if party._went_back:
        state.values["went_back"] = True


def _load_went_back(party: "LinearParty", state: State) -> None:
    party._went_back = state.values.get("went_back", False)


def _save_searching(party: "LinearParty", state: State) -> None:
    if party._searching is not None:
        state.add("searching", party._searching.state())


def _load_searching(party: "LinearParty", state: State) -> None:
    """Runs of earlier versions made no joint search, and go on without."""
    if party._searching is not None and "searching" in state.values:
        party._searching.restore(state.part("searching"))
    else:
        party._searching = None


class LinearParty(Remembering, ABC):
    """One party of a linear federation; that with the labels has the record besides.

    `learner`: what learns, under the names that checkpoints have for it.
    """

    LABEL_PARTYS: ClassVar[tuple[type[Message], ...]] = (Stop,)  # messages that only the label party may send
    TAKES: ClassVar[tuple[type[Message], ...]] = ()  # messages of the schedule's own
    HEALS: ClassVar[bool] = True  # whether a training that does not descend can begin anew with shorter steps

    MEMORY: ClassVar[tuple[Memory, ...]] = (
        messages("_early"),
        custom("_breaches", save=_save_breaches, load=_load_breaches),
        custom("_went_back", save=_save_went_back, load=_load_went_back),
        custom("_searching", save=_save_searching, load=_load_searching),
        parts("_parts"),
    )
    DERIVED = ("_early_bytes",)

    def __init__(self, block_party: BlockParty, searching: SearchSchedule | None = None, **learner: Remembers) -> None:
        self._block_party = block_party
        self._seat = block_party.seat
        self._sums = block_party.sums
        training = self._seat.training
        self._heals = self.HEALS and training.heal and training.end_when_diverged
        is_label_party = self._seat.is_label_party
        self._record = LinearRecord(block_party, self._close, self._heals) if is_label_party else None
        self._early: list[tuple[str, Any]] = []  # messages before their time
        self._early_bytes: Counter[str] = Counter()  # how much of them is whose
        self._breaches: dict[str, str] = {}  # what was found, by sender, when such a message's time had come
        self._went_back = False  # the training ended with earlier weights than its last
        self._parts: dict[str, Remembers] = {"member": block_party, **learner}
        self._searching = searching  # joint searches, if there are any
        self._taken = frozenset((*_EVERYBODYS, *self.TAKES))
        self._schedules_own = self._taken - {*_EVERYBODYS} | {ProductSum, MaskedSum}
        if searching is not None:
            self._taken |= {*OF_A_SEARCH}
        self._label_partys = frozenset((*self.LABEL_PARTYS, Keep, GoBack, SearchStep, SearchStop))
        if self._record is not None:
            self._parts["registrar"] = self._record

    def handle(self, event: Event) -> Sequence[Effect]:
        self._sums.patience.now = event.now
        try:
            return self._handle(event)
        except DivergedError as error:
            return self._heal(error)

    def _handle(self, event: Event) -> Sequence[Effect]:
        match event:
            case Received(sender=sender, message=message):
                return self._hear(sender, message)
            case TimerFired(name=name):
                return self._wake(name)
            case Started():
                effects = self._block_party.introduce()
                return [*effects, *self._begin_all()] if self._block_party.ready else effects
            case Extended():
                return self._extend_all()
            case PeerLost(peer=peer):
                effects = self._lose(peer)
                if self._record:
                    effects += self._note_taken(peer)
                    effects += [*self._record.evaluate_if_settled(), *self._begin_again()]
                return effects
            case PeerReturned(peer=peer):
                self._sums.lost.discard(peer)
                self._sums.patience.hear(peer)
                return self._welcome_back()

    # --- what a schedule adds ---

    @abstractmethod
    def _begin(self) -> list[Effect]:
        """Everybody has introduced themselves."""

    def _take(self, sender: str, message: Any) -> list[Effect]:
        """A message of the schedule's own."""
        raise ProtocolError(f"{sender} sent {type(message).__name__}, which a party of this schedule does not take.")

    @abstractmethod
    def _wake(self, timer: str) -> list[Effect]:
        """A timer has run out."""

    @abstractmethod
    def _complete(self, completed: Completed) -> list[Effect]:
        """A sum for training is there, of which this party is the root."""

    def _fail(self, number: int) -> list[Effect]:
        """A sum for training, of which this party is the root, was abandoned."""
        return []

    @abstractmethod
    def _lose(self, peer: str) -> list[Effect]:
        """A peer cannot be reached."""

    def _welcome_back(self) -> list[Effect]:
        """A lost peer can be reached again."""
        return []

    @abstractmethod
    def _close(self) -> list[Effect]:
        """The label party's record ends the training."""

    def _restart(self, scale: float) -> None:
        """This party's weights are those of an earlier time: begin anew, with steps of that share of their length."""
        raise NotImplementedError

    @abstractmethod
    def _extend(self, anew: bool) -> list[Effect]:
        """Go on after the end of the training. `anew`: with other weights than the last ones."""

    def _extend_all(self) -> list[Effect]:
        self._sums.extend()
        self._early, anew = [], self._went_back
        self._early_bytes.clear()
        if self._record is not None:
            # Asked before the record goes on, which then has chosen nothing.
            anew = self._record.has_gone_back
            self._record.extend()
        self._went_back = False
        if anew:
            self._sums.forget_last_known()
        if self._searching is not None:
            self._searching.extend(self._record.epoch if self._record else 0.0)
        return self._extend(anew)

    def _begin_again(self, returned: str = "") -> list[Effect]:
        """Label party: go on after everybody has gone back, if that is so; `returned`: who has, just now."""
        return []

    def _heal(self, error: DivergedError) -> list[Effect]:
        """Label party: everybody goes back to a good model and takes shorter steps; or the error, if that cannot be."""
        if self._record is None:
            raise error
        version, step, effects = self._record.heal(error)
        self._go_back(version, step, self._sums.asked)
        return [*effects, *self._begin_again()]

    def _go_back(self, version: int, step: float, void: int) -> int:
        found = self._block_party.go_back(version)
        if step > 0:
            self._sums.forget_last_known()
            if self._searching is not None:
                self._searching.forget(void, self._record.epoch if self._record else 0.0)
            self._restart(step)
        return found

    # --- messages ---

    def _hear(self, sender: str, message: Any) -> list[Effect]:
        if sender in self._breaches:
            raise ProtocolError(self._breaches[sender])
        self._check_message(sender, message)
        silent = sender in self._sums.patience.silent
        self._sums.patience.hear(sender)
        try:
            return self._receive(sender, message)
        except ProtocolError:
            if silent:  # whoever breaks the protocol has not answered by that
                self._sums.patience.silent.add(sender)
            raise

    def _receive(self, sender: str, message: Any) -> list[Effect]:
        if not self._block_party.ready and not isinstance(message, Introduction):
            self._keep_early(sender, message)  # of one who was ready sooner
            return []
        if type(message) in self._schedules_own:  # nearly all are
            return self._take(sender, message)
        match message:
            case EvaluationProductRequest() | EvaluationProductSum() | EvaluationMaskedSum() | EvaluationAbandoned():
                return self._take_part(sender, message)
            case Introduction():
                return self._begin_all() if self._block_party.meet(sender, message) else []
            case WeightsSettled() if self._record is not None:
                return self._record.settle(sender)
            case WentBack() if self._record is not None:
                return [*self._record.went_back(sender, message), *self._begin_again(sender)]
            case Keep() | GoBack():
                return self._choose(sender, message)
            case Stop():
                return [Finish()]
            case SearchRequest() | SearchStep() | SearchReply() | SearchStop():
                return self._take_search(sender, message)
        return self._take(sender, message)

    def _check_message(self, sender: str, message: Any) -> None:
        """Refuse what could not be right at any time: another schedule's, another role's, of a shape that cannot be."""
        label_party, kind = self._seat.label_party, type(message)
        if kind not in self._taken:
            raise ProtocolError(f"{sender} sent {type(message).__name__}, which no party of this schedule takes.")
        if kind in self._label_partys and sender != label_party:
            raise ProtocolError(f"{sender} sent {type(message).__name__}, which is the label party's to send.")
        if kind is EvaluationProductRequest and message.root != label_party:
            raise ProtocolError(f"{sender} asked for an evaluation of {message.root}; only the label party makes any.")
        if kind in _OF_SUMS:
            self._sums.check(sender, message)
        if kind in OF_A_SEARCH:
            self._check_search(sender, message)

    def _check_residuals(self, sender: str, residuals: NDArray[np.float64], are_outputs: bool = False) -> None:
        """Refuse what ∂loss/∂θ cannot be, or the outputs θ: of classes it lies within ±1, of some losses in less."""
        most = MOST_TOLD if are_outputs else min(MOST_TOLD, (1 + 1e-9) * self._block_party.loss.most_residual)
        if not row_bounds.are_within(residuals, most):
            check_magnitude(sender, "residuals", residuals, most)

    def _choose(self, sender: str, message: Keep | GoBack) -> list[Effect]:
        """The label party says which of this block's versions to keep, or to take up again."""
        versions = self._block_party.versions
        if self._record is not None or (versions is None and not self._heals):
            raise ProtocolError(f"{sender} spoke of an earlier model; none is kept here for it.")
        if isinstance(message, Keep):
            if versions is None:
                raise ProtocolError(f"{sender} said which model to keep; none is kept in this training.")
            versions.judge(sender, message)
            return []
        if message.number < 1 or message.version < 0 or not 0 <= message.step <= (1 if self._heals else 0):
            raise ProtocolError(
                f"{sender} asked to go back to version {message.version} as request {message.number}, with steps of "
                f"{message.step:g}, which cannot be."
            )
        asked_for = self._progress()[0]
        self._went_back = message.step == 0
        version = self._go_back(message.version, message.step, message.replies)
        return [Send(sender, WentBack(message.number, version, asked_for))]

    def _begin_all(self) -> list[Effect]:
        return [*self._begin(), *self._receive_early()]

    def _keep_early(self, sender: str, message: Any) -> None:
        if len(self._early) >= MOST_EARLY and sum(other == sender for other, _ in self._early) >= MOST_EARLY:
            raise ProtocolError(f"{sender} has sent {MOST_EARLY} messages before their time.")
        size, most = size_bytes(message), self._sums.bounds.kept_bytes
        if self._early_bytes[sender] + size > most:
            raise ProtocolError(
                f"{sender} has sent {self._early_bytes[sender]} bytes before their time, and sends more; at most "
                f"{most} are kept."
            )
        self._early_bytes[sender] += size
        self._early.append((sender, message))

    def _receive_early(self) -> list[Effect]:
        """Take what came early. What breaks the protocol is left out, and held against its sender when it speaks again:
        who spoke last is not to blame for it."""
        early, self._early = self._early, []
        self._early_bytes.clear()
        effects: list[Effect] = []
        for sender, message in early:
            try:
                effects += self._receive(sender, message)
            except ProtocolError as error:
                self._breaches.setdefault(sender, str(error))
        return effects

    def restored(self) -> None:
        self._early_bytes.clear()
        for sender, message in self._early:
            self._early_bytes[sender] += size_bytes(message)

    # --- sums ---

    def _take_part(self, sender: str, message: Any) -> list[Effect]:
        """A message of a sum: a request, a part, or word that there will be none."""
        effects, completed = self._sums.receive(sender, message)
        return self._go_on(effects, [completed])

    def _go_on(self, effects: list[Effect], completed: Sequence[Completed | None]) -> list[Effect]:
        """Sums may be complete, or have gone on without a party, or were abandoned for want of it."""
        effects = [*effects, *self._complete_all(completed)]
        return [*effects, *self._after_failures()] if self._sums.has_failures else effects

    def _complete_all(self, completed: Sequence[Completed | None]) -> list[Effect]:
        effects: list[Effect] = []
        for one in completed:
            if one is None:
                continue
            if self._record is not None and self._record.awaits(one.number):
                effects += self._record.receive(one)
            elif self._searching is not None and self._searching.awaits(one.number):
                effects += self._find(one)
            else:
                effects += self._complete(one)
        return effects

    def _after_failures(self) -> list[Effect]:
        """Sums of which this party is the root that were abandoned."""
        effects: list[Effect] = []
        for number in self._sums.failed():
            if self._searching is not None and self._searching.awaits(number):
                effects += self._end_search()
            else:
                effects += self._fail(number)
        given_up = self._sums.failed(evaluations=True)
        return [*effects, *(self._record.abandon(given_up) if self._record else [])]

    # --- joint searches ---

    def _search_is_due(self) -> bool:
        """Label party: whether the next thing is a joint search."""
        record, searching = self._record, self._searching
        if record is None or searching is None or record.ending or not record.recall.all_are_back:
            return False
        return searching.is_due(record.epoch)

    def _begin_search(self, values: NDArray[np.float64] | None = None) -> list[Effect]:
        """Label party: ask everybody for a point. `values`: what came of the batch before, if nobody was told yet."""
        assert self._searching is not None and self._record is not None
        nothing = np.zeros((0, self._seat.outputs))
        effects, completed = self._searching.begin(nothing if values is None else values, self._record.epoch)
        self._note_search(self._searching.under_way)
        self._rest()
        return self._go_on(effects, [completed])

    def _find(self, completed: Completed) -> list[Effect]:
        """Label party: everybody's points are there. Tell all what is best."""
        searching, record, targets = self._searching, self._record, self._block_party.targets
        assert searching is not None and record is not None and targets is not None
        if record.ending:
            return []
        step, outputs, loss = searching.find(completed.total)
        record.add_loss(loss)
        effects: list[Effect] = [Send(peer, step) for peer in self._block_party.peers]
        effects += record.look_for_an_optimum(outputs, targets)
        self._take_step(self._seat.name, step)
        return effects if searching.waits else [*effects, *self._end_search(found=True)]

    def _note_taken(self, party: str) -> list[Effect]:
        """Label party: that one has taken the step, or cannot be reached any more."""
        over = self._searching is not None and self._searching.taken(party)
        return self._end_search(found=True) if over else []

    def _end_search(self, found: bool = False) -> list[Effect]:
        """Label party: all have taken the step; or the search is given up, and everybody goes on from where it is."""
        record, searching = self._record, self._searching
        assert record is not None and searching is not None
        effects = searching.end(record.epoch + found, found)
        effects += record.count(self._seat.rows, self._seat.workers) if found else []
        return effects if record.ending else [*effects, *self._go_on_after_search()]

    def _take_search(self, sender: str, message: Any) -> list[Effect]:
        searching = self._searching
        assert searching is not None
        if isinstance(message, SearchReply):
            return self._note_taken(sender)
        if isinstance(message, SearchStop):
            return self._go_on_after_search() if searching.is_over(message.number) else []
        if searching.is_early(message):
            self._keep_early(sender, message)
            return []
        if isinstance(message, SearchStep):
            self._take_step(sender, message)
            return [Send(sender, SearchReply(message.search)), *(self._receive_early() if self._early else [])]
        self._learn_before_search(sender, message)
        effects, _ = self._sums.receive(sender, message)
        self._note_search(message.number)  # given up meanwhile or not: the numbers of sums go on after it
        if searching.offered(message):
            self._rest()
        return [*effects, *(self._receive_early() if self._early else [])]

    def _take_step(self, sender: str, step: SearchStep) -> None:
        assert self._searching is not None
        residuals = self._searching.take(sender, step)
        if residuals is not None:
            self._sums.forget_last_known()
            self._jump(residuals)

    def _check_search(self, sender: str, message: Any) -> None:
        assert self._searching is not None
        self._searching.check(sender, message)
        if isinstance(message, SearchStep):
            self._check_residuals(sender, message.residuals)

    def _learn_before_search(self, sender: str, request: SearchRequest) -> None:
        """Step on what came of the batch before, if the schedule tells it with the next."""
        if len(request.values):
            raise ProtocolError(f"{sender} sent values of shape {request.values.shape} with a search.")

    def _note_search(self, number: int) -> None:
        """That sum is of a joint search."""

    def _rest(self) -> None:
        """A point was offered: the weights stay what they are until the search is over."""

    def _jump(self, residuals: NDArray[np.float64]) -> None:
        """The weights are what a search found, and every row's residuals these."""
        raise NotImplementedError

    def _go_on_after_search(self) -> list[Effect]:
        """A search is over, or was given up."""
        return []

    def _note_waiting(self, peer: str) -> list[Effect]:
        """Label party of a schedule that waits: say for whom, beside the record's own counts."""
        if self._record is None or self._record.ending:
            return []
        counts, (_, steps) = self._record.counts(), self._progress()
        note = f"waiting for {peer}, which cannot be reached"
        return [Observe(counts["exchanges"], steps, counts["epochs"], note=note)]

    # --- the rest of the contract ---

    def model(self) -> dict[str, torch.nn.Module]:
        return self._block_party.models()

    @abstractmethod
    def _progress(self) -> tuple[int, int]:
        """Exchanges and steps so far."""

    def counts(self) -> dict[str, Any]:
        exchanges, steps = self._progress()
        own = {"exchanges": exchanges, "steps": steps, **self._sums.counts()}
        return {**own, **self._record.counts()} if self._record else own
