"""The asynchronous schedule in which one sum teaches everybody: the label party asks for sums, tells all parties what
came of each, and every party steps at its own pace.

A sum's residuals are a lesson. `in_flight` of them are under way: asked for, or told and not yet learnt by half of the
parties that are there. So the fast half sets the pace, and nobody steps on products that are more than so many lessons
old. Who is slower leaves lessons out, the oldest first; who is away misses those that are told meanwhile. Neither
biases an estimator: which lesson is missed does not depend on its rows, and SAGA's table and SVRG's snapshot keep, with
their own mean, what the party was told last. A full pass is everybody's: it is told to those who are away, too, and
never left out.

Q. Zhang, B. Gu, C. Deng, H. Huang. "Secure Bilevel Asynchronous Vertical Federated Learning with Backward Updating",
AAAI 2021, arXiv:2103.00958: the party with labels computes ∂loss/∂θ once, and sends it to all. That every party may
leave lessons out, and the pace, are ours.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.asynchronous import AsynchronousLinearParty
from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.linear_party import LinearParty
from colonnade.algorithms.linear_models.parts.patience import TIMER
from colonnade.algorithms.linear_models.parts.searching import searching_of
from colonnade.algorithms.linear_models.parts.settings import IN_FLIGHT, MOST_IN_FLIGHT
from colonnade.algorithms.linear_models.parts.solving import Descent
from colonnade.algorithms.linear_models.parts.sums import Completed
from colonnade.algorithms.parts.divergence import DivergedError
from colonnade.algorithms.training import AUTO
from colonnade.errors import ProtocolError
from colonnade.messages import (
    Abandoned,
    GoBack,
    Keep,
    LastCall,
    LessonStep,
    MaskedSum,
    ProductSum,
    SearchRequest,
    SharedRequest,
    SharedResiduals,
    Stop,
    WeightsSettled,
)
from colonnade.party import Effect, Send, SetTimer
from colonnade.state import State, custom, value

MOST_UNTOLD = 4096
"""Lessons whose rows the label party remembers for parties that are there and say nothing of them."""


@dataclass
class Lesson:
    """What came of one sum, until the block has stepped on it."""

    number: int
    rows: NDArray[np.uint32]
    residuals: NDArray[np.float64]
    in_pass: bool
    late: int  # lessons before it that the block had not come to when it gave its products


@dataclass
class SumRequest:
    """A sum of which nothing was told so far."""

    rows: NDArray[np.uint32]
    in_pass: bool
    past: int  # the last lesson that this party had done with when it gave its products


def asynchronous_party(block_party: BlockParty, solver: Descent) -> LinearParty:
    """A party of the schedule that `algorithm.updates` names."""
    everybody = block_party.seat.settings.updates == "everybody"
    return (LessonLinearParty if everybody else AsynchronousLinearParty)(block_party, solver)


class LessonLinearParty(LinearParty):
    """One party: it answers requests at once, and steps on lessons when it comes to them. The label party leads."""

    LABEL_PARTYS = (SharedRequest, SharedResiduals, LastCall, Stop)
    TAKES = (SharedRequest, SharedResiduals, LessonStep, Abandoned, LastCall)

    def __init__(self, block_party: BlockParty, solver: Descent) -> None:
        super().__init__(block_party, searching_of(block_party, solver.known), solver=solver)
        self._solver = solver
        self._in_flight: int = self._seat.settings.sums_in_flight
        self._everywhere = self._seat.settings.labels == "everywhere"
        self._sums.patience.timeout_seconds = self._seat.settings.request_timeout_seconds
        self._sums.let_parts_overtake()
        self._asked: dict[int, SumRequest] = {}
        self._last_asked = 0
        self._lessons: deque[Lesson] = deque()  # to step on
        self._told = 0  # lessons so far
        self._learnt = 0  # of them, stepped on here
        self._missed = 0  # and left out, or told while this party was away
        self._void = 0  # the last sum from before everybody went back to earlier weights: nobody learns from these
        self._closed = False  # no more requests, no more steps
        # --- of the label party ---
        self._clock = 0  # mini-batches asked for
        self._again: deque[int] = deque()  # sums that were abandoned, and are asked for again
        self._asked_at: dict[int, int] = {}  # lessons told when each sum was asked for
        self._learnt_by: dict[str, int] = dict.fromkeys(block_party.peers, 0)  # each worker's last lesson
        if block_party.works:
            self._learnt_by[self._seat.name] = 0
        self._reports: list[int] = []  # how many lessons waited when one was learnt, of those after:
        self._judged_from = 0  # the last lesson of a pass, or asked for before `_in_flight` was changed
        self._excused: dict[str, int] = {}  # the last lesson that each was not told, because it was away
        self._rows_of: dict[int, int] = {}  # of lessons that somebody may still tell of

    # --- events ---

    def _begin(self) -> list[Effect]:
        self._solver.prepare()
        return self._ask()

    def _wake(self, timer: str) -> list[Effect]:
        if timer == "step":
            return self._step()
        return self._go_on(*self._sums.look_at_the_time()) if timer == TIMER else self._ask()

    def _lose(self, peer: str) -> list[Effect]:
        return [*self._go_on(*self._sums.lose(peer)), *self._ask()]  # fewer are waited for

    def _welcome_back(self) -> list[Effect]:
        return self._ask()

    def _hear(self, sender: str, message: Any) -> list[Effect]:
        was_silent = sender in self._sums.patience.silent
        effects = super()._hear(sender, message)
        return [*effects, *self._ask()] if was_silent else effects  # while all are silent, nobody is asked

    def _take(self, sender: str, message: Any) -> list[Effect]:
        match message:
            case ProductSum() | MaskedSum() | Abandoned():
                return self._take_part(sender, message)
            case SharedRequest():
                return self._take_request(sender, message)
            case SharedResiduals():
                return self._take_lesson(sender, message)
            case LessonStep():
                return self._note_learnt(sender, message.lesson, message.waiting)
            case LastCall():
                self._closed = True
                self._asked.clear()
                self._lessons.clear()
                return [Send(sender, WeightsSettled())]
        return super()._take(sender, message)

    def _check_message(self, sender: str, message: Any) -> None:
        super()._check_message(sender, message)
        match message:
            case ProductSum() | MaskedSum() if message.root != self._seat.label_party:
                raise ProtocolError(f"{sender} sent a part of a sum of {message.root}; only the label party asks here.")
            case SharedRequest():
                self._sums.check_rows(sender, message.rows)
                if message.rows.size == 0 or message.number < 1:
                    raise ProtocolError(f"{sender} asked for the sum {message.number} of {message.rows.size} rows.")
            case SharedResiduals():
                rows, width = message.values.shape
                if rows > self._sums.bounds.rows or width != self._seat.outputs or message.lesson < 1:
                    raise ProtocolError(f"{sender} sent the lesson {message.lesson} of shape {message.values.shape}.")
                self._check_residuals(sender, message.values, are_outputs=self._everywhere)
            case LessonStep() if self._record is None:
                raise ProtocolError(f"{sender} told {self._seat.name}, which tells no lessons, of what it learnt.")

    # --- the label party leads ---

    def _ask(self) -> list[Effect]:
        """Label party: ask for sums as long as there may be more of them under way."""
        effects: list[Effect] = []
        searches_next = self._search_is_due()
        if searches_next and not self._again:  # once nothing is under way
            return [] if self._asked or not self._have_learnt() else self._begin_search()
        while self._record is not None and (self._again or not searches_next) and self._may_ask():
            instead_of = self._again.popleft() if self._again else 0
            if instead_of:
                again = self._asked.pop(instead_of)
                rows, in_pass = again.rows, again.in_pass
            else:
                rows, in_pass = self._solver.lead(self._clock)
                self._clock += 0 if in_pass else -(-rows.size // self._seat.training.batch_size)
            number = self._last_asked = self._sums.next_number()
            self._asked[number] = SumRequest(rows, in_pass, self._told - len(self._lessons))
            self._asked_at[number] = self._told
            request = SharedRequest(number, int(in_pass), instead_of, rows)
            effects += [Send(peer, request) for peer in self._block_party.peers]
            sent, completed = self._sums.contribute(self._seat.name, number, rows)
            effects += self._go_on(sent, [completed])
        return effects

    def _may_ask(self) -> bool:
        if len(self._asked) >= self._in_flight and not self._again:
            return False  # whatever has been learnt
        if self._searching is not None and self._searching.under_way:
            return False
        past = self._lessons_past()
        assert self._record is not None
        if self._closed or not self._block_party.ready or not self._record.recall.all_are_back or not past:
            return False
        if self._again:  # repeated once everybody can be reached
            return not self._sums.lost
        done = past[len(past) // 2]  # by half of those who are there, or more
        under_way = len(self._asked) + self._told - done
        if under_way and self._solver.pass_is_next(self._clock):
            return False  # one piece after the other, at weights that rest
        return under_way < self._in_flight and not any(one.in_pass for one in self._lessons)

    def _lessons_past(self) -> list[int]:
        """The last lesson that each of those who are there has done with, the least first."""
        away = self._sums.lost | self._sums.patience.silent
        return sorted(max(last, self._excused.get(one, 0)) for one, last in self._learnt_by.items() if one not in away)

    def _have_learnt(self) -> bool:
        """Whether half of those who are there have done with every lesson."""
        past = self._lessons_past()
        return bool(past) and past[len(past) // 2] == self._told and not any(one.in_pass for one in self._lessons)

    def _complete(self, completed: Completed) -> list[Effect]:
        """∂loss/∂θ of the rows goes to everybody; who is away is told that there was a lesson, unless of a pass."""
        asked, record, targets = self._asked.pop(completed.number, None), self._record, self._block_party.targets
        if asked is None or self._closed:
            return []
        assert record is not None and targets is not None
        rows, in_pass = asked.rows, asked.in_pass
        weights = self._block_party.weights_of(rows)
        residuals, loss = self._block_party.loss.residuals_and_mean_loss(completed.total, targets[rows], weights)
        try:
            record.add_loss(loss)
        except DivergedError as error:  # here: what others of these sums have taught is told before
            return self._heal(error)
        record.staleness.add(np.array([self._told - self._asked_at.pop(completed.number)]))
        self._told += 1
        self._rows_of[self._told] = rows.size
        self._judged_from = max(self._judged_from, self._told if in_pass else 0)
        whole = SharedResiduals(self._told, completed.number, completed.total if self._everywhere else residuals)
        nothing = SharedResiduals(self._told, completed.number, residuals[:0])
        away = set() if in_pass else self._sums.lost
        self._excused |= dict.fromkeys(away, self._told)
        effects: list[Effect] = [Send(peer, nothing if peer in away else whole) for peer in self._block_party.peers]
        effects += self._put_off(Lesson(self._told, rows, residuals, in_pass, self._told - 1 - asked.past))
        return [*effects, *record.look_for_an_optimum(completed.total, targets[rows], rows)]

    def _fail(self, number: int) -> list[Effect]:
        if number not in self._asked or self._closed:
            return []
        self._again.append(number)
        del self._asked_at[number]
        # Others may have known sooner who is away: a timer waits its turn behind that news.
        return [] if self._sums.lost else [SetTimer("repeat", 0.0)]

    def _note_learnt(self, party: str, lesson: int, waiting: int) -> list[Effect]:
        """Label party: a party has stepped on a lesson. What it was told before that, it will not step on any more."""
        assert self._record is not None
        before = self._learnt_by.get(party)
        if before is None or not 0 < lesson <= self._told:
            raise ProtocolError(f"{party} learnt from the lesson {lesson}, which it was not told.")
        if lesson <= before:
            return []  # overtaken on its way by word of a later one
        self._learnt_by[party] = lesson
        if self._seat.settings.in_flight == AUTO:
            self._adjust(lesson, waiting)
        effects = self._record.count(self._rows_of.get(lesson, 0))
        if len(self._rows_of) > 2 * self._in_flight:
            self._forget_rows(party)
        return [*effects, *self._ask()]

    def _adjust(self, lesson: int, waiting: int) -> None:
        """Let more sums be under way if parties mostly have nothing to do after a lesson, and fewer if several wait.

        A change is judged by lessons that were asked for after it. The slower half says less, and counts for less.
        """
        if lesson <= self._judged_from:
            return
        self._reports = [*self._reports, min(waiting, 2)]
        if len(self._reports) < 2 * len(self._learnt_by):
            return
        idle, busy = (self._reports.count(waiting) * 2 > len(self._reports) for waiting in (0, 2))
        self._reports = []
        if idle or busy:
            self._in_flight = min(MOST_IN_FLIGHT, max(1, self._in_flight + idle - busy))
            self._judged_from = self._told + len(self._asked)

    def _forget_rows(self, party: str) -> None:
        """Of lessons that all have learnt from, or left out; who is away will not tell of them. This one is there."""
        settled = min(last for one, last in self._learnt_by.items() if one not in self._sums.lost or one == party)
        for old in [*self._rows_of]:
            if old > settled and len(self._rows_of) <= MOST_UNTOLD:
                break
            del self._rows_of[old]

    def _extend(self, anew: bool) -> list[Effect]:
        self._solver.extend(anew)
        self._closed = False
        for gone in (self._asked, self._lessons, self._again, self._asked_at, self._rows_of):
            gone.clear()
        self._excused = dict.fromkeys(self._learnt_by, self._told)  # nobody will learn of these any more
        return self._ask()

    def _close(self) -> list[Effect]:
        self._closed = True
        self._asked.clear()
        self._lessons.clear()
        return [Send(peer, LastCall()) for peer in self._block_party.peers]

    # --- everybody else follows ---

    def _take_request(self, sender: str, request: SharedRequest) -> list[Effect]:
        if self._closed:
            self._last_asked = max(self._last_asked, request.number)  # the numbers go on if the training does
            return []
        if request.number <= self._last_asked:
            raise ProtocolError(f"{sender} asked for the sum {request.number} after the sum {self._last_asked}.")
        if request.number > self._last_asked + 1:  # it overtook another
            self._keep_early(sender, request)
            return []
        held = sum(one.rows.nbytes for one in self._asked.values())
        if held > self._sums.bounds.kept_bytes:
            raise ProtocolError(f"{sender} asked for more sums before it told what came of {len(self._asked)} others.")
        self._sums.check_turn(sender, sender, request.number, request.rows.size * self._seat.outputs)
        self._last_asked = request.number
        self._asked.pop(request.instead_of, None)
        if request.number > self._void:
            past = self._told - len(self._lessons)
            self._asked[request.number] = SumRequest(request.rows, bool(request.full_pass), past)
        effects, _ = self._sums.contribute(sender, request.number, request.rows)
        return [*effects, *(self._receive_early() if self._early else [])]

    def _take_lesson(self, sender: str, told: SharedResiduals) -> list[Effect]:
        if self._closed:
            self._told = max(self._told, told.lesson)
            return []
        if told.lesson <= self._told:
            raise ProtocolError(f"{sender} told the lesson {told.lesson} after the lesson {self._told}.")
        if told.lesson > self._told + 1 or told.number > self._last_asked:  # it overtook another, or its request
            self._keep_early(sender, told)
            return []
        if told.number <= self._void:  # GoBack overtook it
            self._told = told.lesson
            return self._receive_early() if self._early else []
        if told.number not in self._asked:
            raise ProtocolError(f"{sender} told what came of the sum {told.number}, for which it has not asked.")
        asked = self._asked[told.number]
        rows, in_pass = asked.rows, asked.in_pass
        if len(told.values) != rows.size and (in_pass or len(told.values)):
            raise ProtocolError(f"{sender} told the lesson {told.lesson} of shape {told.values.shape}.")
        self._told = told.lesson
        del self._asked[told.number]
        if not len(told.values):
            self._missed += 1
            return self._receive_early() if self._early else []
        residuals, targets = told.values, self._block_party.targets
        if targets is not None:
            weights = self._block_party.weights_of(rows)
            residuals = self._block_party.loss.residuals(residuals, targets[rows], weights)
        effects = self._put_off(Lesson(told.lesson, rows, residuals, in_pass, told.lesson - 1 - asked.past))
        return [*effects, *(self._receive_early() if self._early else [])]

    # --- joint searches ---

    def _learn_before_search(self, sender: str, request: SearchRequest) -> None:
        super()._learn_before_search(sender, request)
        if request.number <= self._last_asked:
            raise ProtocolError(f"{sender} asked for a search by the sum {request.number}, after {self._last_asked}.")

    def _note_search(self, number: int) -> None:
        self._last_asked = number

    def _jump(self, residuals: NDArray[np.float64]) -> None:
        """Lessons that wait are of other weights: they are left out."""
        self._missed += len(self._lessons)
        self._lessons.clear()
        self._excused |= dict.fromkeys(self._learnt_by, self._told)
        self._solver.jump(residuals, self._clock)

    def _go_on_after_search(self) -> list[Effect]:
        return self._ask()

    # --- earlier weights ---

    def _choose(self, sender: str, message: Keep | GoBack) -> list[Effect]:
        effects = super()._choose(sender, message)
        if isinstance(message, GoBack) and message.step > 0:
            self._learn_no_more_from(message.replies)
        return effects

    def _restart(self, scale: float) -> None:
        self._solver.restart(scale)
        self._lessons.clear()
        if self._record is not None:
            self._learn_no_more_from(self._last_asked)
            self._again.clear()
            self._asked_at.clear()
            self._rows_of.clear()
            self._learnt_by = dict.fromkeys(self._learnt_by, self._told)

    def _learn_no_more_from(self, last: int) -> None:
        """The sums up to this one are of weights that are gone. They are answered, so that nobody waits for a part."""
        self._void = max(self._void, last)
        self._asked = {number: asked for number, asked in self._asked.items() if number > self._void}

    def _begin_again(self, returned: str = "") -> list[Effect]:
        return self._ask()

    # --- the steps ---

    def _put_off(self, lesson: Lesson) -> list[Effect]:
        """Step on it later, by a timer, so that it takes its time; of too many, the oldest is left out."""
        idle = not self._lessons
        self._lessons.append(lesson)
        # As many may wait as are on their way: over links that bring several at a time, more.
        auto = self._seat.settings.in_flight == AUTO
        if len(self._lessons) > (max(IN_FLIGHT, len(self._asked)) if auto else self._in_flight):
            oldest = next((one for one in self._lessons if not one.in_pass), None)
            if oldest is not None:
                self._lessons.remove(oldest)
                self._missed += 1
        return [SetTimer("step", 0.0)] if idle else []

    def _step(self) -> list[Effect]:
        if self._closed or not self._lessons:
            return []
        lesson = self._lessons.popleft()
        self._solver.learn(lesson.rows, lesson.residuals, lesson.in_pass, self._clock, lesson.late)
        self._learnt += 1
        effects: list[Effect] = [SetTimer("step", 0.0)] if self._lessons else []
        if self._record is None:
            return [*effects, Send(self._seat.label_party, LessonStep(lesson.number, len(self._lessons)))]
        if not self._block_party.works:
            return [*effects, *self._ask()]
        return [*effects, *self._note_learnt(self._seat.name, lesson.number, len(self._lessons))]

    # --- the rest of the contract ---

    def _progress(self) -> tuple[int, int]:
        return self._told if self._record else self._learnt, self._solver.steps

    def counts(self) -> dict[str, Any]:
        return {**super().counts(), "missed_lessons": self._missed}

    def _save_asked(self, state: State) -> None:
        state.values["asked"] = [[number, one.in_pass, one.past] for number, one in self._asked.items()]
        for number, one in self._asked.items():
            state.put(f"asked.{number}", one.rows)

    def _load_asked(self, state: State) -> None:
        self._asked = {
            number: SumRequest(state.take(f"asked.{number}", np.uint32), in_pass, past)
            for number, in_pass, past in state.values["asked"]
        }

    def _save_lessons(self, state: State) -> None:
        state.values["lessons"] = [[one.number, one.in_pass, one.late] for one in self._lessons]
        for one in self._lessons:
            state.put(f"lesson.{one.number}.rows", one.rows)
            state.put(f"lesson.{one.number}.residuals", one.residuals)

    def _load_lessons(self, state: State) -> None:
        self._lessons = deque(
            Lesson(
                number,
                state.take(f"lesson.{number}.rows", np.uint32),
                state.take(f"lesson.{number}.residuals"),
                in_pass,
                late,
            )
            for number, in_pass, late in state.values["lessons"]
        )

    def _save_void(self, state: State) -> None:
        if self._void:
            state.values["void"] = self._void

    def _load_void(self, state: State) -> None:
        self._void = state.values.get("void", 0)

    MEMORY = (
        custom("_void", save=_save_void, load=_load_void),
        value("_last_asked", "_told", "_learnt", "_missed", "_closed", "_clock", underscored=True),
        value("_again", saved=list, restored=deque),
        value("_learnt_by", "_excused", "_in_flight", "_reports", "_judged_from"),
        value("_asked_at", "_rows_of", saved=lambda held: [[*pair] for pair in held.items()], restored=dict),
        custom("_asked", save=_save_asked, load=_load_asked),
        custom("_lessons", save=_save_lessons, load=_load_lessons),
    )

    def restored(self) -> None:
        super().restored()
        if self._block_party.ready:
            self._solver.prepare()
