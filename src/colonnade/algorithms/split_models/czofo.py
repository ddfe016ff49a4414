"""CZOFO: the feature party perturbs its *embedding*, gets every row's loss back, estimates the gradient by the
embedding from finite differences, and back-propagates it locally; the label party is of first order.

G. Wang, B. Gu, Q. Zhang, X. Li, B. Wang, C. X. Ling. "A Unified Solution for Privacy and Communication Efficiency in
Vertical Federated Learning", NeurIPS 2023; written from what the DPZV paper says of its baseline "VFL-CZOFO". Per row,
directions are as wide as the embedding, not as the model, so the estimate is far less noisy than that of `cascaded`;
the price is a differentiable bottom model, and losses per row, which say more about the labels than their mean. The
schedule is in parts/asynchronous.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.row import Algorithm, Conversation, Family, Paper
from colonnade.algorithms.seats import FeatureSeat, LabelSeat
from colonnade.algorithms.split_models.parts.asynchronous import (
    Asynchronous,
    AsynchronousFeatureParty,
    AsynchronousLabelParty,
    Upload,
)
from colonnade.algorithms.split_models.parts.bottom import Bottom
from colonnade.algorithms.split_models.parts.directions import Directions, DirectionSettings
from colonnade.algorithms.split_models.parts.steps import first_order_top
from colonnade.algorithms.split_models.parts.table import EmbeddingTable
from colonnade.algorithms.split_models.parts.top import Top, mean_gradients, means
from colonnade.algorithms.split_models.vafl import EMBEDDINGS_CLAIM
from colonnade.algorithms.training import Defaults
from colonnade.errors import ProtocolError
from colonnade.messages import PerturbedUpload, RowLossReply
from colonnade.models.dense import DenseNetwork
from colonnade.party import Effect, Party, Send
from colonnade.state import generator, tensors_by_number


@dataclass(frozen=True)
class Czofo(Asynchronous, DirectionSettings):
    """`[algorithm]` with name = "czofo"; directions are in the space of the embedding."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.directions_used()


class PerturbingBottom(Bottom):
    """A bottom model of first order whose gradient comes from finite differences around its embedding."""

    MEMORY = (generator("_looking"), tensors_by_number("_looked"))

    def __init__(self, seat: FeatureSeat) -> None:
        super().__init__(seat, several_in_flight=seat.settings.in_flight > 1)
        self._directions: Directions = seat.settings.directions_used()
        self._looking = generator_for(seat.secret, seat.name, "directions")
        self._ends_in_relu = isinstance(self.network, DenseNetwork) and self.network.ends_in_relu
        self._looked: dict[int, torch.Tensor] = {}  # exchange → directions [q, rows, width]

    def look_around(
        self, exchange: int, rows: NDArray[np.uint32]
    ) -> tuple[list[Effect], NDArray[np.float32], NDArray[np.float32]]:
        """h and h + μu_j (two-sided: also h − μu_j).

        The perturbed ones are computed from the h that is sent, noise included, and from directions that depend on no
        data: they release nothing more.
        """
        spent, embedding = self.upload(exchange, rows)
        here = torch.from_numpy(embedding)
        count, width = here.shape
        radius = self._directions.radius
        looked = [self._directions.draw_rows(count, width, self._looking) for _ in range(self._directions.count)]
        if self._ends_in_relu:  # a unit that gives 0 learns nothing from this row: moving it would add noise alone
            looked = [direction.mul_(here != 0) for direction in looked]
        around = []
        for direction in looked:
            around.append(torch.add(here, direction, alpha=radius))
            if self._directions.two_sided:
                around.append(torch.sub(here, direction, alpha=radius))
        self._looked[exchange] = torch.stack(looked)
        return spent, embedding, torch.stack(around).numpy()

    def apply_losses(self, exchange: int, losses: NDArray[np.float32]) -> bool:
        """∂ℓ_i/∂h_i ≈ mean_j φ(width) slope_ij u_ij for each row; then the chain rule, for the mean of the rows."""
        looked = self._looked.get(exchange)
        if looked is None:
            return False
        if losses.shape != (1 + self._directions.points, looked.shape[1]):
            raise ProtocolError(
                f"{self._seat.label_party} sent losses of shape {losses.shape} for exchange {exchange}; it was "
                f"sent {1 + self._directions.points} embeddings of {looked.shape[1]} rows."
            )
        del self._looked[exchange]
        slopes = self._directions.slopes(torch.from_numpy(losses))  # [q, rows]
        factor = self._directions.factor(looked.shape[2]) / (len(looked) * looked.shape[1])
        gradient = torch.einsum("qr,qrw->rw", slopes * factor, looked)
        return self.apply(exchange, gradient.numpy())

    def _kept_of_uploads(self) -> Sequence[dict[int, Any]]:
        return *super()._kept_of_uploads(), self._looked


def feature_party(seat: FeatureSeat) -> Party:
    """Embeds, looks around the embedding, back-propagates the estimate."""
    bottom = PerturbingBottom(seat)
    to = seat.label_party

    def upload(exchange: int, rows: NDArray[np.uint32]) -> Sequence[Effect]:
        spent, embedding, perturbed = bottom.look_around(exchange, rows)
        return [*spent, Send(to, PerturbedUpload(exchange, rows, embedding, perturbed))]

    def apply(reply: RowLossReply) -> bool:
        return bottom.apply_losses(reply.exchange, reply.losses)

    return AsynchronousFeatureParty(seat, bottom, upload, RowLossReply, apply)


def label_party(seat: LabelSeat) -> Party:
    """Answers with every row's losses; updates w0 by its gradient."""
    top = Top(seat, optimiser=first_order_top(seat, seat.settings.wait_for))

    def answer(uploads: Sequence[Upload], table: EmbeddingTable) -> tuple[list[float], list[Effect]]:
        losses: list[float] = []
        replies: list[Effect] = []
        by_top: list[list[torch.Tensor]] = []
        for upload in uploads:
            sent: PerturbedUpload = upload.message
            batch, embeddings = top.batch(sent.rows), table.read(sent.rows)
            points = table.with_party(upload.sender, embeddings, [sent.embedding, *sent.perturbed])
            at = top.row_losses(batch, top.outputs(batch, points))
            replies.append(Send(upload.sender, RowLossReply(sent.exchange, at)))
            losses.append(means(at[:1]).item())
            by_top.append(top.own_gradients(batch, embeddings))
        top.update(mean_gradients(by_top))
        return losses, replies

    return AsynchronousLabelParty(seat, top, PerturbedUpload, answer, seat.settings.directions_used().embedding_of)


ALGORITHM = Algorithm(
    name="czofo",
    summary="asynchronous; zeroth order at the embedding, first order below and above it",
    family=Family.SPLIT,
    settings=Czofo,
    defaults=Defaults(
        decay="linear"
    ),  # the noise of directions does not shrink towards the end; a rate that falls does
    paper=Paper(
        authors="G. Wang, B. Gu, Q. Zhang, X. Li, B. Wang, C. X. Ling",
        title="A Unified Solution for Privacy and Communication Efficiency in Vertical Federated Learning",
        year=2023,
        venue="NeurIPS 2023",
    ),
    conversation=Conversation(
        upload=PerturbedUpload,
        reply=RowLossReply,
        answers="losses of single rows",
        points=lambda settings: 1 + settings.directions_used().points,
        radius=lambda settings: settings.smoothing_radius,
        derived_points=True,
        embeddings_claim=EMBEDDINGS_CLAIM,  # as a baseline of the DPZV paper, §VII
    ),
    label_party=label_party,
    feature_party=feature_party,
)
