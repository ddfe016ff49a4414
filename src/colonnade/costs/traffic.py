"""What a training is going to send: frames and bytes of every kind of message, before anything is sent.

Sizes are those of the codec for messages with the plan's sizes, numbered as in the middle of the training. What nobody
can know before is left out: refreshes, which depend on who is late, and are bounded by `most_refreshes`; an end by
`algorithm.tolerance` or by a budget; what a party's absence changes. How near this comes in asynchronous linear
federations: see `_own_pace`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from math import ceil, inf
from typing import Any

import numpy as np

from colonnade import messages
from colonnade.algorithms.linear_models.parts.searching import next_search
from colonnade.algorithms.linear_models.parts.settings import REMEMBERED
from colonnade.algorithms.linear_models.parts.sum_schemes import check_scheme
from colonnade.algorithms.linear_models.parts.sums import ROWS_A_SUM
from colonnade.algorithms.linear_models.parts.trees import Tree, balanced, different_pair
from colonnade.algorithms.linear_models.parts.windows import ROWS_OF_A_PASS
from colonnade.algorithms.parts.rounding import SHORT_ROWS, in_fewer_bytes
from colonnade.algorithms.row import Conversation, Passes
from colonnade.algorithms.split_models.parts.asynchronous import WARM_UP_ROWS_A_MESSAGE
from colonnade.algorithms.split_models.parts.evaluation import ROWS_A_REQUEST
from colonnade.costs.noise import release_plan
from colonnade.data.batches import batches_per_epoch
from colonnade.errors import SettingsError
from colonnade.federation.plan import Facts, Plan
from colonnade.messages import Message
from colonnade.privacy.plan import ReleasePlan
from colonnade.wire.codec import encode

_SCALARS = 5
"""Rows that are summed beside the products where everybody steps together."""


@dataclass(frozen=True)
class Expected:
    """Messages of one kind from one party to another."""

    sender: str
    receiver: str
    kind: type[Message]
    frames: int
    size_bytes: int


def expected_traffic(plan: Plan, facts: Facts) -> list[Expected]:
    """Everything, if every party makes the exchanges that are planned for it."""
    if plan.is_linear:
        return _linear_traffic(plan, facts)
    if not is_sized(plan.conversation):
        raise SettingsError(f"How much {plan.chosen.name} sends is not estimated; run it in simulate to see.")
    counted = release_plan(plan, facts)
    label, steps = facts.label_party, counted.exchanges_per_party
    asynchronous = plan.conversation.asynchronous
    more = planned_exchanges(plan, facts) - steps * len(facts.feature_parties)  # whoever they fall to
    evaluations = max(1, counted.evaluations)
    found: list[Expected] = []

    def add(sender: str, receiver: str, frames_of_rows: Frames, build: Callable[..., Message]) -> None:
        made = [(frames, build(*rows)) for frames, *rows in frames_of_rows if frames]
        if made:
            size = sum(frames * sent_bytes(plan, facts.rows, message) for frames, message in made)
            found.append(Expected(sender, receiver, type(made[0][1]), sum(frames for frames, _ in made), size))

    for place, party in enumerate(facts.feature_parties):
        width, own = facts.widths[party], _batches(counted, steps + (place < more))
        uploads = [(frames, rows) for rows, frames in Counter(own).items()]
        unanswered = (counted.in_flight, counted.batch_size)
        add(party, label, [*uploads, unanswered], partial(upload_of, plan, steps // 2, width=width))
        # A synchronous reply holds the rows of the next batch too; the last one of none.
        pairs = Counter(zip(own, [*own[1:], 0], strict=True))
        replies = [(frames, *rows) for rows, frames in pairs.items()]
        add(label, party, replies, partial(reply_of, plan, steps // 2, width=width))
        if counted.warm_up:
            add(party, label, _pieces(facts.rows, WARM_UP_ROWS_A_MESSAGE), partial(_warm_up, width=width))
        if not asynchronous:
            add(label, party, [(1, counted.batch_size)], lambda rows: messages.BatchRequest(1, _rows(rows)))
        if facts.validation_rows:
            number = counted.validations
            answers = [(number * frames, rows) for frames, rows in _pieces(facts.validation_rows, ROWS_A_REQUEST)]
            add(label, party, [(number, 0)], lambda rows: messages.ValidationRequest(1, steps))
            add(party, label, answers, partial(_validation, width=width))
            if plan.keeps_best(facts.validation_rows):
                add(label, party, [(number, 0)], lambda rows: messages.Keep(1, 1))
                add(label, party, [(1, 0)], lambda rows: messages.GoBack(1, 1, steps, 0.0))  # if not the last is best
                add(party, label, [(1, 0)], lambda rows: messages.WentBack(1, 1, steps))
        asked = _pieces(facts.test_rows, ROWS_A_REQUEST) or [(1, 0)]
        asked = [(evaluations * frames, rows) for frames, rows in asked]
        add(label, party, asked, lambda rows: messages.EvaluationRequest(1, 0, rows, steps))
        add(party, label, asked, partial(_evaluation, width=width))
        add(label, party, [(1, 0)], lambda rows: messages.Stop("the planned epochs are done"))
    return found


Frames = Sequence[tuple[int, ...]]
"""How many frames of which size: their number, then the sizes."""


def planned_exchanges(plan: Plan, facts: Facts) -> int:
    """Of all feature parties: whole updates, so with `wait_for` the last one may go beyond the epochs."""
    planned = plan.training.steps(facts.rows) * len(facts.feature_parties)
    at_once = 1 if plan.is_linear or not plan.conversation.asynchronous else plan.algorithm.wait_for
    return ceil(planned / at_once) * at_once


def _batches(counted: ReleasePlan, steps: int) -> list[int]:
    """The rows of one party's batches, in order."""
    an_epoch = [counted.batch_size] * (counted.rows // counted.batch_size)
    an_epoch += [counted.short_batch] if counted.short_batch else []
    return (an_epoch * ceil(steps / len(an_epoch)))[:steps]


def most_refreshes(plan: Plan, facts: Facts) -> tuple[int, int] | None:
    """Bytes up and down that bounded delay can add at most; None if embeddings may be of any age.

    Each update asks each party at most once, for rows that others have just uploaded; that every embedding is always
    too old is what makes this a bound, and far from likely.
    """
    settings: Any = plan.algorithm
    if not plan.conversation.asynchronous or settings.max_delay == 0:
        return None
    parties, at_once, batch = len(facts.feature_parties), settings.wait_for, plan.training.batch_size
    updates, width = planned_exchanges(plan, facts) // at_once, max(facts.widths[one] for one in facts.feature_parties)
    up = down = 0
    # An update of so many parties: they are asked for the rows of the others among them, everybody else for all.
    for asked, uploads in ((at_once, at_once - 1), (max(0, parties - at_once), at_once)):
        rows = min(uploads * batch, facts.rows)
        if asked and rows:
            number = updates * parties
            request = messages.RefreshRequest(number, _rows(rows))
            answer = messages.RefreshedEmbedding(number, _rows(rows), _vectors(rows, width))
            down += updates * asked * sent_bytes(plan, facts.rows, request)
            up += updates * asked * sent_bytes(plan, facts.rows, answer)
    return up, down


_UPLOADS: dict[type[Message], Callable[[int, int, int, int], Message]] = {
    messages.EmbeddingUpload: lambda number, rows, width, points: messages.EmbeddingUpload(
        number, _rows(rows), _vectors(rows, width)
    ),
    messages.PairUpload: lambda number, rows, width, points: messages.PairUpload(
        number, _rows(rows), _vectors(points // 2 * rows, width), _vectors(points // 2 * rows, width)
    ),
    messages.PerturbedUpload: lambda number, rows, width, points: messages.PerturbedUpload(
        number, _rows(rows), _vectors(rows, width), np.zeros((points - 1, rows, width), np.float32)
    ),
}
"""All zeros, by kind: of its number, and so many rows, numbers in an embedding, embeddings of a row."""

_REPLIES: dict[type[Message], Callable[[int, int, int, int, int], Message]] = {
    messages.GradientReply: lambda number, rows, following, width, points: messages.GradientReply(
        number, _vectors(rows, width)
    ),
    messages.GradientAndBatch: lambda number, rows, following, width, points: messages.GradientAndBatch(
        number, _vectors(rows, width), number + 1, _rows(following)
    ),
    messages.LossReply: lambda number, rows, following, width, points: messages.LossReply(number, np.zeros(points)),
    messages.LossAndBatch: lambda number, rows, following, width, points: messages.LossAndBatch(
        number, np.zeros(points), number + 1, _rows(following)
    ),
    messages.RowLossReply: lambda number, rows, following, width, points: messages.RowLossReply(
        number, np.zeros((points, rows), np.float32)
    ),
    # Not zero: its size depends on its digits.
    messages.SlopeReply: lambda number, rows, following, width, points: (
        messages.SlopeReply(number, 0.1) if points == 2 else messages.SlopesReply(number, np.zeros(points // 2))
    ),
}
"""The same, with the rows of the next batch, which a synchronous reply names."""


def is_sized(conversation: Conversation) -> bool:
    """Whether the sizes of its uploads and replies are known here."""
    return conversation.upload in _UPLOADS and conversation.reply in _REPLIES


def upload_of(plan: Plan, number: int, rows: int, width: int) -> Message:
    """An upload of the plan's algorithm, all zeros."""
    conversation = plan.conversation
    return _UPLOADS[conversation.upload](number, rows, width, conversation.points(plan.algorithm))


def reply_of(plan: Plan, number: int, rows: int, next_rows: int, width: int) -> Message:
    """The reply to it. `next_rows`: of the next batch, if synchronous."""
    conversation = plan.conversation
    return _REPLIES[conversation.reply](number, rows, next_rows, width, conversation.points(plan.algorithm))


def sent_bytes(plan: Plan, rows: int, message: Message) -> int:
    """The frame of a message, rounded as the plan says, in a federation of so many training rows."""
    if plan.training.rounds:
        message = in_fewer_bytes(message, plan.training.precisions, rows, lambda count: np.zeros(count, np.float32))
    return len(encode(message))


def position_bytes(plan: Plan, rows: int) -> int:
    """What the position of one of so many training rows takes."""
    return 2 if plan.training.rounds and rows <= SHORT_ROWS else 4


def _warm_up(rows: int, width: int) -> Message:
    return messages.WarmUpUpload(_rows(rows), _vectors(rows, width))


def _validation(rows: int, width: int) -> Message:
    return messages.ValidationEmbedding(1, 0, _vectors(rows, width))


def _evaluation(rows: int, width: int) -> Message:
    return messages.EvaluationEmbedding(1, 0, _vectors(rows, width))


# --- linear federations -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Requests:
    """Requests for the products of equally many rows: of all workers in turn, or shared by them all."""

    count: int
    rows: int
    full_pass: bool  # every row once, instead of mini-batches


@dataclass(frozen=True)
class Schedule:
    """What the label party counts until the planned epochs are done."""

    requests: tuple[Requests, ...]  # in order
    exchanges: int
    evaluations: int  # the last one included
    searches: int  # joint ones, of everybody
    ends_with_search: bool

    @property
    def count(self) -> int:
        return sum(one.count for one in self.requests)


def planned_requests(plan: Plan, facts: Facts) -> Schedule:
    """A full pass counts as the mini-batches that it replaces, so it makes no training longer."""
    training, workers = plan.training, len(facts.shapes)
    per_epoch = batches_per_epoch(facts.rows, training.batch_size) * workers
    last = ceil(training.epochs * per_epoch - 1e-9)
    evaluate_every = round(training.evaluate_every_epochs * per_epoch)
    in_turn, together = (1, workers) if _is_shared(plan) else (workers, 1)
    every = _searches_every(plan, facts)
    search_at = next_search(0.0, training.epochs, every) if every else inf
    batches = exchanges = evaluated = searches = 0
    evaluations = 1
    found: list[Requests] = []

    def make(count: int, gain: int) -> None:
        """So many requests, each of which counts as so many mini-batches."""
        nonlocal batches, evaluated, evaluations
        end = batches + count * gain
        # The request that ends the training is followed by the last evaluation, whether or not another is due.
        while evaluate_every:
            due = batches + max(1, -(-(evaluated + evaluate_every - batches) // gain)) * gain
            if due > end or due >= last:
                break
            evaluated = due
            evaluations += 1
        batches = end

    for one in _of_a_worker(plan, facts):
        left, gain = one.count * in_turn, batches_per_epoch(one.rows, training.batch_size) * together
        while left and batches < last:
            until = min(last, ceil(search_at * per_epoch - 1e-9) if search_at < inf else last)
            count = max(0, min(left, -(-(until - batches) // gain)))
            if count:
                make(count, gain)
                left -= count
                exchanges += count * together
                found.append(Requests(count, one.rows, one.full_pass))
            if until <= batches < last:
                make(1, per_epoch)
                exchanges += workers
                searches += 1
                search_at = next_search(batches / per_epoch, training.epochs, every)
                if batches >= last:
                    return Schedule(tuple(found), exchanges, evaluations, searches, ends_with_search=True)
        if batches >= last:
            break
    return Schedule(tuple(found), exchanges, evaluations, searches, ends_with_search=False)


def _searches_every(plan: Plan, facts: Facts) -> float:
    """Epochs between two joint searches; 0: there are none."""
    training = plan.training
    every: float = plan.algorithm.searches_every(facts.rows, facts.outputs, training.l1, training.epochs)
    return every


def _is_shared(plan: Plan) -> bool:
    """Whether one sum is everybody's."""
    return not plan.conversation.asynchronous or getattr(plan.algorithm, "updates", "one") == "everybody"


def _of_a_worker(plan: Plan, facts: Facts) -> Iterator[Requests]:
    """One worker's requests, without end: parts/windows.py and what each estimator says of full passes."""
    settings, batch_size, passes = plan.algorithm, plan.training.batch_size, plan.conversation.passes
    an_epoch = batches_per_epoch(facts.rows, batch_size)
    if passes is Passes.ALWAYS:
        while True:
            yield Requests(1, facts.rows, full_pass=True)
    full_pass = [Requests(count, rows, full_pass=True) for count, rows in _pieces(facts.rows, ROWS_OF_A_PASS)]
    at_once: int = getattr(settings, "batches_per_request", 1)
    window = at_once * batch_size

    def windows(batches: int) -> Requests:
        return Requests(-(-batches // at_once), window, full_pass=False)

    if passes is Passes.FOR_STOPPING:
        while True:
            yield from (Requests(count, rows, full_pass=False) for count, rows in _pieces(facts.rows, window))
            yield from full_pass if settings.tolerance else ()
    if passes is Passes.SNAPSHOTS:
        while 0 < _searches_every(plan, facts) < settings.snapshot_every_epochs:
            yield from full_pass  # once: what a search finds is a snapshot
            yield windows(ceil(plan.training.epochs) * an_epoch)
        while True:
            yield from full_pass
            yield windows(max(1, round(settings.snapshot_every_epochs * an_epoch)))
    yield from full_pass  # once, which fills a table
    while True:
        yield windows(2 * an_epoch)
        yield from full_pass if settings.tolerance else ()


def _linear_traffic(plan: Plan, facts: Facts) -> list[Expected]:
    """Everything, if all parties are there all the time and the planned epochs are made."""
    settings = plan.algorithm
    check_scheme(settings.sums, len(facts.shapes), settings.allow_two_parties)
    schedule = planned_requests(plan, facts)
    sent = _Sent(plan, facts)
    if plan.conversation.tells_columns or settings.sums == "pairwise":
        for sender, receiver in permutations(sent.parties, 2):
            sent.add(sender, receiver, 1, messages.Introduction(0.0, 0.0, np.zeros(4, np.uint64)))
    taught = plan.conversation.asynchronous and _is_shared(plan)
    (_lessons if taught else _LINEAR_SCHEDULES[plan.conversation.reply])(sent, schedule)
    if schedule.searches:
        _searches(sent, schedule)
    if facts.validation_rows:
        _evaluations(sent, schedule.evaluations, facts.validation_rows)
    _evaluations(sent, 1 if facts.validation_rows else schedule.evaluations, facts.test_rows)
    for peer in sent.peers:
        if plan.keeps_best(facts.validation_rows):
            sent.add(sent.label, peer, schedule.evaluations, messages.Keep(1, 1))
            sent.add(sent.label, peer, 1, messages.GoBack(1, 1, 0, 0.0))  # unless the last model is the best
            sent.add(peer, sent.label, 1, messages.WentBack(1, 1, 0))
        sent.add(peer, sent.label, 1, messages.WeightsSettled())
        sent.add(sent.label, peer, 1, messages.Stop("the planned epochs are done"))
    return sent.told()


class _Sent:
    """What will be sent: frames and bytes by sender, receiver and kind; and the trees along which sums run."""

    def __init__(self, plan: Plan, facts: Facts) -> None:
        self.plan, self.facts = plan, facts
        self.settings: Any = plan.algorithm
        self.label = facts.label_party
        self.peers = facts.feature_parties
        self.parties = (self.label, *self.peers)
        self.everywhere = self.settings.labels == "everywhere"
        self._sent: dict[tuple[str, str, type[Message]], tuple[int, int]] = {}

    def add(self, sender: str, receiver: str, frames: int, message: Message) -> None:
        if frames:
            before = self._sent.get((sender, receiver, type(message)), (0, 0))
            size = sent_bytes(self.plan, self.facts.rows, message)
            more = (before[0] + frames, before[1] + frames * size)
            self._sent[sender, receiver, type(message)] = more

    def add_down(self, root: str, frames: int, message: Message) -> None:
        """A request from its root to everybody."""
        for name, parent in self._trees(root)[0].parent.items():
            self.add(parent, name, frames, message)

    def add_up(self, root: str, frames: int, number: int, rows: int, width: int, evaluation: bool = False) -> None:
        """The sums that answer it, one a party and tree."""
        plain = messages.EvaluationProductSum if evaluation else messages.ProductSum
        masked = messages.EvaluationMaskedSum if evaluation else messages.MaskedSum
        for place, tree in enumerate(self._trees(root), 1):
            total: Message = plain(root, number, np.zeros((rows, width)))
            if self.settings.masked:
                total = masked(root, number, place, np.zeros((rows, width), np.uint64))
            for name, parent in tree.parent.items():
                self.add(name, parent, frames, total)

    def _trees(self, root: str) -> tuple[Tree, ...]:
        if self.settings.sums == "two-tree":
            return different_pair(self.parties, root)
        return (balanced(self.parties, root, self.settings.children_of_a_party(len(self.parties))),)

    def told(self) -> list[Expected]:
        return [Expected(*key, frames, size) for key, (frames, size) in self._sent.items()]


def _own_pace(sent: _Sent, schedule: Schedule) -> None:
    """parts/asynchronous.py: everybody asks for itself; who has no labels asks the label party, which makes the sum.

    All workers are taken to go at the same pace. A faster one asks more often, and at the end each may have sent a
    request or an answer more or fewer: a few per cent. A label party with columns asks nobody for residuals and so is
    faster than others; then fewer of these are sent than said here.
    """
    training, outputs, workers = sent.plan.training, sent.facts.outputs, list(sent.facts.shapes)
    asked: Counter[tuple[str, int]] = Counter()  # by worker and rows
    used: Counter[tuple[str, int]] = Counter()
    windows: Counter[str] = Counter()
    for left, one in enumerate(reversed(schedule.requests)):
        for place, worker in enumerate(workers):
            count = len(range(place, one.count, len(workers)))
            asked[worker, one.rows] += count
            count -= left == 0 and count > 0  # the end comes before each one's last sum is used
            used[worker, one.rows] += count
            windows[worker] += 0 if one.full_pass else count
    window = schedule.requests[-1].rows
    for worker in workers:  # what was under way is asked for again after a search
        asked[worker, window] += schedule.searches - schedule.ends_with_search
    own_number = max(1, schedule.count // len(workers) // 2)
    number = own_number if sent.everywhere else max(1, schedule.count // 2)
    for (worker, rows), count in asked.items():
        root = worker if sent.everywhere else sent.label
        sent.add_down(root, count, messages.ProductRequest(root, number, _rows(rows)))
        sent.add_up(root, count, number, rows, outputs)
        if root != worker:
            sent.add(worker, sent.label, count, messages.ResidualRequest(own_number, _rows(rows)))
            reply = messages.ResidualReply(own_number, np.zeros((rows, outputs)))
            sent.add(sent.label, worker, used[worker, rows], reply)
    report_every = max(1, round(training.observe_every_epochs * sent.facts.rows / training.batch_size))
    for peer in sent.peers:
        if sent.everywhere:
            sent.add(peer, sent.label, windows[peer] // report_every, messages.LossReport(report_every, 0.1))
        sent.add(sent.label, peer, 1, messages.LastCall())


def _lessons(sent: _Sent, schedule: Schedule) -> None:
    """parts/everybody.py: the label party asks all, tells all, and is told by each who has stepped.

    All workers are taken to keep pace. Who is slower tells of fewer, and then a few more sums are made than said here;
    as at the end, when others are under way.
    """
    outputs, number = sent.facts.outputs, max(1, schedule.count // 2)
    for one in schedule.requests:
        request = messages.SharedRequest(number, int(one.full_pass), 0, _rows(one.rows))
        residuals = messages.SharedResiduals(number, number, np.zeros((one.rows, outputs)))
        for peer in sent.peers:
            sent.add(sent.label, peer, one.count, request)
            sent.add(sent.label, peer, one.count, residuals)
            sent.add(peer, sent.label, one.count, messages.LessonStep(number, 0))
        sent.add_up(sent.label, one.count, number, one.rows, outputs)
    for peer in sent.peers:
        sent.add(sent.label, peer, 1, messages.LastCall())


def _shared_steps(sent: _Sent, schedule: Schedule) -> None:
    """parts/synchronous.py: the label party tells what came of the last batch together with the rows of the next."""
    outputs, number = sent.facts.outputs, max(1, schedule.count // 2)
    steps: Counter[tuple[int, int]] = Counter()  # by the rows of the last batch and of the next
    summed: Counter[int] = Counter()
    before = 0
    for one in schedule.requests:
        steps[before, one.rows] += 1
        steps[one.rows, one.rows] += one.count - 1
        summed[one.rows] += one.count
        before = one.rows
    # A search is told what came of the batch before it.
    between = schedule.searches - schedule.ends_with_search
    steps[before, before] -= between
    steps[0, before] += between
    steps[0 if schedule.ends_with_search else before, 0] += 1
    for (last, following), count in steps.items():
        step = messages.SharedStep(number, number, np.zeros((last, outputs)), _rows(following))
        for peer in sent.peers:
            sent.add(sent.label, peer, count, step)
    for rows, count in summed.items():
        sent.add_up(sent.label, count, number, rows, outputs)


def _searches(sent: _Sent, schedule: Schedule) -> None:
    """parts/searching.py: a point of everybody, what came of it, and word that all have it."""
    rows, outputs, number = sent.facts.rows, sent.facts.outputs, max(1, schedule.count // 2)
    synchronous = not sent.plan.conversation.asynchronous
    values = np.zeros((sent.plan.training.batch_size if synchronous else 0, outputs))
    sent.add_down(sent.label, schedule.searches, messages.SearchRequest(sent.label, number, 1, values))
    sent.add_up(sent.label, schedule.searches, number, rows + REMEMBERED, outputs)
    for peer in sent.peers:
        for search in range(1, schedule.searches + 1):
            shares = np.zeros(min(2 * search, REMEMBERED))
            sent.add(sent.label, peer, 1, messages.SearchStep(search, number, shares, np.zeros((rows, outputs))))
        sent.add(peer, sent.label, schedule.searches, messages.SearchReply(1))
        sent.add(sent.label, peer, schedule.searches, messages.SearchStop(number))


def _joint_steps(sent: _Sent, schedule: Schedule) -> None:
    """One direction for all: every row's residuals down, its products up; the last step is told, not answered."""
    rows, outputs, number = sent.facts.rows, sent.facts.outputs, max(1, schedule.count // 2)
    for peer in sent.peers:
        step = messages.JointStep(number, 0.1, 0.1, np.zeros((rows, outputs)))
        sent.add(sent.label, peer, schedule.count + 1, step)
    sent.add_up(sent.label, schedule.count, number, rows + _SCALARS, outputs)


_LINEAR_SCHEDULES: dict[type[Message], Callable[[_Sent, Schedule], None]] = {
    messages.ResidualReply: _own_pace,
    messages.SharedStep: _shared_steps,
    messages.JointStep: _joint_steps,
}
"""By what comes back to a party of a linear federation."""


def _evaluations(sent: _Sent, evaluations: int, scored: int) -> None:
    """parts/record.py: two numbers of every block, and the products of so many rows that are scored."""
    asked = [(1, 0), *_pieces(scored, ROWS_A_SUM)]
    for count, rows in asked:
        frames, number = count * evaluations, max(1, evaluations * len(asked) // 2)
        sent.add_down(sent.label, frames, messages.EvaluationProductRequest(sent.label, number, 0, rows))
        shape = (rows, sent.facts.outputs) if rows else (1, 2)
        sent.add_up(sent.label, frames, number, *shape, evaluation=True)


# --- sizes --------------------------------------------------------------------------------------------------------


def _pieces(rows: int, most: int) -> list[tuple[int, int]]:
    """Frames of at most so many rows: how many of which size."""
    whole, rest = divmod(rows, most)
    return [(frames, size) for frames, size in ((whole, most), (1, rest)) if frames and size]


def _rows(count: int) -> messages.Rows:
    return np.zeros(count, np.uint32)


def _vectors(rows: int, width: int) -> messages.Vectors:
    return np.zeros((rows, width), np.float32)
