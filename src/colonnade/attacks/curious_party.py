"""A feature party that takes part only to learn the labels: it uploads crafted vectors instead of embeddings.

It holds no column and no model. What it uploads is c ~ N(0, 1) for each row and, where the algorithm asks for more than
one embedding, c + μu with u ~ N(0, I) for each row (G. Wang et al. 2023, §VI-B). The messages are the ones that an
honest party would send, so the label party cannot tell. What the answers betray is read afterwards, from its trace.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.errors import ProtocolError, SettingsError
from colonnade.messages import (
    BatchRequest,
    EmbeddingUpload,
    EvaluationEmbedding,
    EvaluationRequest,
    GradientAndBatch,
    GradientReply,
    LossAndBatch,
    LossReply,
    Message,
    PairUpload,
    PerturbedUpload,
    RefreshedEmbedding,
    RefreshRequest,
    RowLossReply,
    SlopeReply,
    SlopesReply,
    Stop,
)
from colonnade.party import Effect, Event, Extended, Finish, PeerLost, PeerReturned, Received, Send, Started, TimerFired
from colonnade.state import Memory, Remembering, array, generator, value


@dataclass(frozen=True)
class CuriousSeat:
    """What the curious party knows: the federation's shared settings, not one column."""

    label_party: str
    rows: int  # in the federation's common order
    width: int  # of an embedding: with a summing label party, the number of outputs
    batch_size: int
    upload: type[Message]  # what an honest party uploads: EmbeddingUpload, PerturbedUpload or PairUpload
    chooses_rows: bool  # whether a party chooses its batches (asynchronous) or is told them (synchronous)
    points: int = 1  # perturbed embeddings in a PerturbedUpload; in a PairUpload, one less than embeddings of a row
    radius: float = 0.001  # μ
    seed: int = 0

    def __post_init__(self) -> None:
        if self.upload not in (EmbeddingUpload, PerturbedUpload, PairUpload):
            raise SettingsError(
                f"The curious party cannot craft a {self.upload.__name__}: it knows how to imitate EmbeddingUpload, "
                "PerturbedUpload and PairUpload. Choose an algorithm that uses one of them."
            )

    @property
    def pairs(self) -> int:
        """Of embeddings of each row in a PairUpload."""
        return (1 + self.points) // 2


class CuriousParty(Remembering):
    """Keeps the schedule of an honest party; every vector it sends is drawn from its generator."""

    MEMORY: ClassVar[tuple[Memory, ...]] = (
        *(array("_order"), generator("_generator"), value("_place", "_exchange", "_replies")),
        value(
            "_asked",
            saved=lambda asked: [
                [sender, *(getattr(one, name) for name in one.__struct_fields__)] for sender, one in asked
            ],
            restored=lambda saved: [(sender, EvaluationRequest(*numbers)) for sender, *numbers in saved],
        ),
    )

    def __init__(self, seat: CuriousSeat) -> None:
        self._seat = seat
        self._generator = torch.Generator().manual_seed(seat.seed)
        self._order: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._place = 0
        self._exchange = 0
        self._replies = 0
        self._asked: list[tuple[str, EvaluationRequest]] = []

    def handle(self, event: Event) -> Sequence[Effect]:
        match event:
            case Started():
                return self._upload(self._exchange, self._next_rows()) if self._seat.chooses_rows else []
            case Received(message=GradientReply() | LossReply() | RowLossReply() | SlopeReply() | SlopesReply()):
                self._replies += 1
                self._exchange += 1
                return [*self._evaluated(), *self._upload(self._exchange, self._next_rows())]
            case Received(message=GradientAndBatch() | LossAndBatch() as reply):
                self._replies += 1
                return [*self._evaluated(), *self._upload(reply.step, reply.next_rows)]
            case Received(message=BatchRequest() as request):
                return self._upload(request.step, request.rows)
            case Received(sender=sender, message=RefreshRequest() as request):
                return [Send(sender, RefreshedEmbedding(request.request, request.rows, self._draw(request.rows.size)))]
            case Received(sender=sender, message=EvaluationRequest() as request):
                self._asked.append((sender, request))
                return self._evaluated()
            case Received(message=Stop()):
                return [Finish()]
            case TimerFired() | PeerLost() | PeerReturned() | Extended():
                return []
            case Received(sender=sender, message=message):
                raise ProtocolError(f"{sender} sent {type(message).__name__}, which a curious party does not take.")

    def _next_rows(self) -> NDArray[np.uint32]:
        """Every row once an epoch, as an honest party would."""
        if self._place >= self._order.size:
            order = torch.randperm(self._seat.rows, generator=self._generator, dtype=torch.int32)
            self._order, self._place = order.numpy().view(np.uint32), 0
        rows = self._order[self._place : self._place + self._seat.batch_size]
        self._place += self._seat.batch_size
        return rows

    def _draw(self, rows: int) -> NDArray[np.float32]:
        drawn: NDArray[np.float32] = torch.randn(rows, self._seat.width, generator=self._generator).numpy()
        return drawn

    def _upload(self, exchange: int, rows: NDArray[np.uint32]) -> list[Effect]:
        if rows.size == 0:
            return []  # after the last synchronous step
        radius = np.float32(self._seat.radius)
        crafted = self._draw(rows.size)
        message: Message
        if self._seat.upload is EmbeddingUpload:
            message = EmbeddingUpload(exchange, rows, crafted)
        elif self._seat.upload is PairUpload:
            here, u = np.tile(crafted, (self._seat.pairs, 1)), self._draw(self._seat.pairs * rows.size)
            message = PairUpload(exchange, rows, here + radius * u, here - radius * u)
        else:
            near = [crafted + radius * self._draw(rows.size) for _ in range(self._seat.points)]
            message = PerturbedUpload(exchange, rows, crafted, np.stack(near))
        return [Send(self._seat.label_party, message)]

    def _evaluated(self) -> list[Effect]:
        """Answers to evaluations, no earlier than an honest party's; test rows tell it nothing, so it sends zeros."""
        due = [(sender, one) for sender, one in self._asked if one.after_replies <= self._replies]
        self._asked = [(sender, one) for sender, one in self._asked if one.after_replies > self._replies]
        width = self._seat.width
        return [
            Send(
                sender, EvaluationEmbedding(one.evaluation, one.first_row, np.zeros((one.row_count, width), np.float32))
            )
            for sender, one in due
        ]

    def model(self) -> dict[str, torch.nn.Module]:
        return {}

    def counts(self) -> dict[str, Any]:
        return {"exchanges": self._replies, "steps": 0}
