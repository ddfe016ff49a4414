"""What a split training is going to send: frames and bytes of every kind of message, before anything is sent.

Sizes are those of the codec for messages with the plan's sizes. Refreshes are left out: how many there will be depends
on who is late. The linear federations are not estimated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from colonnade import messages
from colonnade.algorithms.dpzv import Dpzv
from colonnade.algorithms.parts.asynchrony import WARM_UP_ROWS_A_MESSAGE, Asynchronous
from colonnade.algorithms.parts.directions import Looking
from colonnade.algorithms.parts.evaluation import ROWS_A_REQUEST
from colonnade.errors import SettingsError
from colonnade.messages import Message
from colonnade.private_plan import EXACT_ANSWERS, release_plan
from colonnade.seating import Facts, Plan
from colonnade.wire.codec import encode


@dataclass(frozen=True)
class Expected:
    """Messages of one kind from one party to another."""

    sender: str
    receiver: str
    kind: type[Message]
    frames: int
    size_bytes: int


def expected_traffic(plan: Plan, facts: Facts) -> list[Expected]:
    """Everything but refreshes, if every party makes the exchanges that are planned for it."""
    name, algorithm = plan.chosen.name, plan.algorithm
    if name not in EXACT_ANSWERS and not isinstance(algorithm, Dpzv):
        raise SettingsError(f"How much {name} sends is not estimated; run it in simulate to see.")
    counted = release_plan(plan, facts)
    label, steps = facts.label_party, counted.exchanges_per_party
    short = steps // int(counted.batches_per_epoch) if counted.short_batch else 0
    batches = [(steps - short, counted.batch_size), (short, counted.short_batch)]
    asynchronous = isinstance(algorithm, Asynchronous)
    evaluations = max(1, counted.evaluations)
    found: list[Expected] = []

    def add(sender: str, receiver: str, frames_of_rows: list[tuple[int, int]], build: Callable[[int], Message]) -> None:
        made = [(frames, build(rows)) for frames, rows in frames_of_rows if frames]
        if made:
            size = sum(frames * len(encode(message)) for frames, message in made)
            found.append(Expected(sender, receiver, type(made[0][1]), sum(frames for frames, _ in made), size))

    for party in facts.feature_parties:
        width = facts.widths[party]
        unanswered = (counted.in_flight, counted.batch_size)
        add(party, label, [*batches, unanswered], partial(upload_of, plan, steps // 2, width=width))
        add(label, party, batches, partial(reply_of, plan, steps // 2, width=width))
        if counted.warm_up:
            add(party, label, _pieces(facts.rows, WARM_UP_ROWS_A_MESSAGE), partial(_warm_up, width=width))
        if not asynchronous:
            add(label, party, [(1, counted.batch_size)], lambda rows: messages.BatchRequest(1, _rows(rows)))
        asked = _pieces(facts.test_rows, ROWS_A_REQUEST) or [(1, 0)]
        pieces = [(evaluations * frames, rows) for frames, rows in asked]
        add(label, party, pieces, lambda rows: messages.EvaluationRequest(1, 0, rows, steps))
        add(party, label, pieces, partial(_evaluation, width=width))
        add(label, party, [(1, 0)], lambda rows: messages.Stop("the planned epochs are done"))
    return found


def upload_of(plan: Plan, number: int, rows: int, width: int) -> Message:
    """An upload of the plan's algorithm, all zeros."""
    if isinstance(plan.algorithm, Dpzv):
        return messages.PairUpload(number, _rows(rows), _vectors(rows, width), _vectors(rows, width))
    if isinstance(plan.algorithm, Looking):
        around = np.zeros((plan.algorithm.looks().points, rows, width), np.float32)
        return messages.PerturbedUpload(number, _rows(rows), _vectors(rows, width), around)
    return messages.EmbeddingUpload(number, _rows(rows), _vectors(rows, width))


def reply_of(plan: Plan, number: int, rows: int, width: int) -> Message:
    """The reply to it, all zeros but for a slope, whose size depends on its digits."""
    algorithm: Any = plan.algorithm
    if isinstance(algorithm, Dpzv):
        return messages.SlopeReply(number, 0.1)
    asynchronous = isinstance(algorithm, Asynchronous)
    if not isinstance(algorithm, Looking):
        gradient = _vectors(rows, width)
        if asynchronous:
            return messages.GradientReply(number, gradient)
        return messages.GradientAndBatch(number, gradient, number + 1, _rows(rows))
    points = 1 + algorithm.looks().points
    if plan.chosen.name == "czofo":
        return messages.RowLossReply(number, np.zeros((points, rows), np.float32))
    losses = np.zeros(points)
    if asynchronous:
        return messages.LossReply(number, losses)
    return messages.LossAndBatch(number, losses, number + 1, _rows(rows))


def _warm_up(rows: int, width: int) -> Message:
    return messages.WarmUpUpload(_rows(rows), _vectors(rows, width))


def _evaluation(rows: int, width: int) -> Message:
    return messages.EvaluationEmbedding(1, 0, _vectors(rows, width))


def _pieces(rows: int, most: int) -> list[tuple[int, int]]:
    """Frames of at most so many rows: how many of which size."""
    whole, rest = divmod(rows, most)
    return [(frames, size) for frames, size in ((whole, most), (1, rest)) if frames and size]


def _rows(count: int) -> messages.Rows:
    return np.zeros(count, np.uint32)


def _vectors(rows: int, width: int) -> messages.Vectors:
    return np.zeros((rows, width), np.float32)
