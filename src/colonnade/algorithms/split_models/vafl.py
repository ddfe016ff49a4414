"""VAFL: feature parties upload embeddings of rows they choose, whenever they like; the label party answers each with
the gradient, from everybody's last known embeddings.

T. Chen, X. Jin, Y. Sun, W. Yin. "VAFL: a Method of Vertical Asynchronous Federated Learning", 2020, arXiv:2007.06081.
Algorithm 1 (asynchronous) and Algorithm 2 (`wait_for` = t); the schedule is in parts/asynchronous.py. Equation numbers
below are the paper's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.row import Algorithm, Claim, Conversation, Family, Paper
from colonnade.algorithms.seats import FeatureSeat, LabelSeat
from colonnade.algorithms.split_models.parts.asynchronous import (
    Asynchronous,
    AsynchronousFeatureParty,
    AsynchronousLabelParty,
    Upload,
)
from colonnade.algorithms.split_models.parts.bottom import Bottom
from colonnade.algorithms.split_models.parts.steps import first_order_top
from colonnade.algorithms.split_models.parts.table import EmbeddingTable
from colonnade.algorithms.split_models.parts.top import Top, mean_gradients
from colonnade.algorithms.training import AMONG_SEVERAL, Defaults
from colonnade.messages import EmbeddingUpload, GradientReply
from colonnade.party import Effect, Party, Send
from colonnade.privacy import claims


@dataclass(frozen=True)
class Vafl(Asynchronous):
    """`[algorithm]` with name = "vafl"."""


def feature_party(seat: FeatureSeat) -> Party:
    """Algorithm 1, lines 3–7."""
    bottom = Bottom(seat, several_in_flight=seat.settings.in_flight > 1)
    to = seat.label_party

    def upload(exchange: int, rows: NDArray[np.uint32]) -> Sequence[Effect]:
        """Lines 4–6: upload h_m(θ_m; x_I); the upload is the query for its gradient."""
        spent, embedding = bottom.upload(exchange, rows)
        return [*spent, Send(to, EmbeddingUpload(exchange, rows, embedding))]

    def apply(reply: GradientReply) -> bool:
        """Line 7: θ_m ← θ_m − η ĝ_m − η ∇r(θ_m) (7a), with ĝ_m taken at the θ_m that was uploaded from (4b)."""
        return bottom.apply(reply.exchange, reply.gradient)

    return AsynchronousFeatureParty(seat, bottom, upload, GradientReply, apply)


def label_party(seat: LabelSeat) -> Party:
    """Algorithm 1, lines 8–13; Algorithm 2 with wait_for > 1."""
    top = Top(seat, optimiser=first_order_top(seat, seat.settings.wait_for))

    def answer(uploads: Sequence[Upload], table: EmbeddingTable) -> tuple[list[float], list[Effect]]:
        losses: list[float] = []
        replies: list[Effect] = []
        by_top: list[list[torch.Tensor]] = []
        for upload in uploads:
            sent: EmbeddingUpload = upload.message
            # Both gradients at the same θ0: (4a) for the top model, ∂ℓ/∂h_m of (4b) for the party.
            part = table.slices[upload.sender]
            loss, gradients, by_embedding = top.gradients(sent.rows, table.read(sent.rows), part)
            losses.append(loss)
            by_top.append(gradients)
            replies.append(Send(upload.sender, GradientReply(sent.exchange, by_embedding.numpy())))
        top.update(mean_gradients(by_top))  # θ0 ← θ0 − η0 ĝ_0 (6), once for all of them
        return losses, replies

    return AsynchronousLabelParty(seat, top, EmbeddingUpload, answer)


EMBEDDINGS_CLAIM = Claim(
    claims.embeddings_noise,
    claims.embeddings_mu,
    claims.embeddings_mu_by_samples,
    "Claimed twice, since Theorem 9 of the VAFL paper can be read in two ways: its proof counts uploads (the first "
    "figure), its words count the samples in them (the second).",
)
"""Theorem 9. The DPZV paper (§VII) uses it for its baselines `zoo` and `czofo` too."""

ALGORITHM = Algorithm(
    name="vafl",
    summary="asynchronous split learning, first order on both sides",
    family=Family.SPLIT,
    settings=Vafl,
    # Each party learns from what others embedded up to an epoch ago: the less they still move, the less that is amiss.
    # Who is the only one has nobody to be behind.
    defaults=Defaults(decay=AMONG_SEVERAL),
    paper=Paper(
        authors="T. Chen, X. Jin, Y. Sun, W. Yin",
        title="VAFL: a Method of Vertical Asynchronous Federated Learning",
        year=2020,
        arxiv="2007.06081",
    ),
    conversation=Conversation(
        upload=EmbeddingUpload,
        reply=GradientReply,
        answers="gradients",
        embeddings_claim=EMBEDDINGS_CLAIM,
    ),
    label_party=label_party,
    feature_party=feature_party,
    to_begin_with=True,
)
