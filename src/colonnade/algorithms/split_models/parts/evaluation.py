"""Scoring without a leak: feature parties embed test rows on request, the label party scores them.

A request names how many replies the party must have applied first, so an evaluation holds every update the label
party knows of. A party that is away is scored with its last known embeddings (zeros before any).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from msgspec.structs import astuple
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.messages import EvaluationEmbedding, EvaluationRequest, ValidationEmbedding
from colonnade.models.contract import SCORED_AT_ONCE
from colonnade.party import Effect, Send
from colonnade.state import Remembering, array, value

ROWS_A_REQUEST = SCORED_AT_ONCE
"""Bounds a frame's size; an evaluation of more rows takes several requests."""


MOST_WAITING = 64
"""Requests that a feature party keeps until their replies are applied, beside those of four whole evaluations."""


class AnswersToEvaluation(Remembering):
    """The feature party's side: requests that wait for replies to be applied."""

    MEMORY = (
        value(
            "_waiting",
            saved=lambda waiting: [[sender, *astuple(request)] for sender, request in waiting],
            restored=lambda saved: [(sender, EvaluationRequest(*numbers)) for sender, *numbers in saved],
        ),
    )

    def __init__(
        self, embed_test: Callable[[int, int], tuple[list[Effect], NDArray[np.float32]]], test_rows: int
    ) -> None:
        self._embed_test = embed_test
        self._rows = test_rows
        self._most_waiting = MOST_WAITING + 4 * -(-test_rows // ROWS_A_REQUEST)
        self._waiting: list[tuple[str, EvaluationRequest]] = []

    def ask(self, sender: str, request: EvaluationRequest) -> None:
        end = request.first_row + request.row_count
        if end > self._rows:
            raise ProtocolError(
                f"{sender} asked for the test rows {request.first_row} to {end}; there are {self._rows}."
            )
        if len(self._waiting) >= self._most_waiting:
            raise ProtocolError(
                f"{sender} has {len(self._waiting)} evaluations waiting here already, and asks for more; an honest "
                "label party makes one at a time."
            )
        self._waiting.append((sender, request))

    def forget(self) -> None:
        """Requests of the time before this party went back to an earlier model: nobody waits for answers."""
        self._waiting.clear()

    def due(self, replies_applied: int) -> list[Effect]:
        """Answers to the requests whose condition is met now."""
        if not self._waiting:
            return []
        effects: list[Effect] = []
        still: list[tuple[str, EvaluationRequest]] = []
        for sender, request in self._waiting:
            if request.after_replies > replies_applied:
                still.append((sender, request))
                continue
            spent, embedding = self._embed_test(request.first_row, request.row_count)
            answer = EvaluationEmbedding(request.evaluation, request.first_row, embedding)
            effects += [*spent, Send(sender, answer)]
        self._waiting = still
        return effects


class Evaluation(Remembering):
    """The label party's side: one evaluation at a time, and the last known test embeddings."""

    MEMORY = (array("_embeddings", in_place=True), value("number", "_awaited"))

    def __init__(self, test_rows: int, slices: Mapping[str, slice]) -> None:
        self._rows = test_rows
        self._slices = slices
        width = max((part.stop for part in slices.values()), default=0)
        self._embeddings: NDArray[np.float32] = np.zeros((test_rows, width), np.float32)
        self.number = 0
        self._awaited: dict[str, int] = {}  # answers still to come, by party

    @property
    def under_way(self) -> bool:
        return bool(self._awaited)

    def begin(self, parties: Iterable[str], replies_sent: Mapping[str, int]) -> Sequence[Effect]:
        """Ask these parties to embed the test rows."""
        self.number += 1
        starts = range(0, max(self._rows, 1), ROWS_A_REQUEST)
        self._awaited = {party: len(starts) for party in parties}
        return [
            Send(
                party,
                EvaluationRequest(self.number, start, min(ROWS_A_REQUEST, self._rows - start), replies),
            )
            for party in self._awaited
            for replies in [replies_sent[party]]
            for start in starts
        ]

    def receive(self, sender: str, answer: EvaluationEmbedding | ValidationEmbedding) -> bool:
        """Take an answer; True if it was the last one that this evaluation waited for."""
        part = self._slices.get(sender)
        rows, width = answer.embedding.shape
        if part is None or width != part.stop - part.start or answer.first_row + rows > self._rows:
            raise ProtocolError(f"{sender} answered an evaluation with rows or a width that were not asked for.")
        if not 0 < answer.evaluation <= self.number:
            raise ProtocolError(f"{sender} answered the evaluation {answer.evaluation}; {self.number} were made.")
        self._embeddings[answer.first_row : answer.first_row + rows, part] = answer.embedding
        if answer.evaluation != self.number or sender not in self._awaited:
            return False  # late, of a party that was given up
        self._awaited[sender] -= 1
        if self._awaited[sender] == 0:
            del self._awaited[sender]
        return not self._awaited

    def give_up(self, party: str) -> bool:
        """Go on without a party's answers; True if the evaluation waited for nobody else."""
        return self._awaited.pop(party, None) is not None and not self._awaited

    def abandon(self) -> None:
        """Nobody is waited for any more."""
        self._awaited = {}

    def embeddings(self) -> torch.Tensor:
        return torch.from_numpy(self._embeddings)
