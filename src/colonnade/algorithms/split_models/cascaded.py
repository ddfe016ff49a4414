"""Cascaded hybrid optimisation: feature parties of zeroth order, a label party of first order.

G. Wang, Q. Zhang, X. Li, B. Wang, B. Gu, C. Ling. "Secure and Fast Asynchronous Vertical Federated Learning via
Cascaded Hybrid Optimization", 2023, arXiv:2306.16077, Algorithm 1. Embeddings go up, mean losses come down, and nothing
else: a feature party needs no gradient, so its model may be anything, and its directions never leave it. Line and
equation numbers are the paper's; the schedule is in parts/asynchronous.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.row import Algorithm, Conversation, Family, Paper
from colonnade.algorithms.seats import FeatureSeat, LabelSeat
from colonnade.algorithms.split_models.parts.asynchronous import (
    Asynchronous,
    AsynchronousFeatureParty,
    AsynchronousLabelParty,
    Upload,
)
from colonnade.algorithms.split_models.parts.directions import DirectionSettings
from colonnade.algorithms.split_models.parts.noised_answers import (
    NoisedAnswerSettings,
    check_update_is_used,
    noised_losses_party,
)
from colonnade.algorithms.split_models.parts.steps import (
    DIRECTIONS,
    FIRST_ORDER_WALK,
    SCALE_FREE,
    StepSettings,
    optimiser_of_top,
)
from colonnade.algorithms.split_models.parts.table import EmbeddingTable
from colonnade.algorithms.split_models.parts.top import Top, mean_gradients
from colonnade.algorithms.split_models.parts.zeroth_bottom import ZerothOrderBottom
from colonnade.messages import LossReply, PerturbedUpload
from colonnade.party import Effect, Party, Send


@dataclass(frozen=True)
class Cascaded(StepSettings, NoisedAnswerSettings, Asynchronous, DirectionSettings):
    """`[algorithm]` with name = "cascaded". The paper has no noise; with `noise`, losses are those of noised slopes."""

    directions: int = DIRECTIONS
    server_update: str = "first-order"  # first-order (the paper's); with noise also dp-sgd | frozen

    def __post_init__(self) -> None:
        super().__post_init__()
        self.directions_used()
        self.check_step()
        self.check_noise(("first-order", "dp-sgd", "frozen"))


def feature_party(seat: FeatureSeat) -> Party:
    """Lines 2–7."""
    bottom = ZerothOrderBottom(seat, seat.settings.directions_used())
    to = seat.label_party

    def upload(exchange: int, rows: NDArray[np.uint32]) -> Sequence[Effect]:
        """Lines 3–4: c = F(w; x_I) and ĉ = F(w + μu; x_I)."""
        spent, embedding, perturbed = bottom.look_around(exchange, rows)
        return [*spent, Send(to, PerturbedUpload(exchange, rows, embedding, perturbed))]

    def apply(reply: LossReply) -> bool:
        """Lines 5–7: w ← w − η φ(d)/μ (ĥ − h) u (3)."""
        return bottom.apply(reply.exchange, reply.losses)

    return AsynchronousFeatureParty(seat, bottom, upload, LossReply, apply)


def label_party(seat: LabelSeat) -> Party:
    """Lines 8–11."""
    if seat.settings.noise > 0:
        return noised_losses_party(seat)
    check_update_is_used(seat.settings, "first-order")
    top = Top(seat, optimiser=optimiser_of_top(seat, seat.settings.wait_for))

    def answer(uploads: Sequence[Upload], table: EmbeddingTable) -> tuple[list[float], list[Effect]]:
        losses: list[float] = []
        replies: list[Effect] = []
        by_top: list[list[torch.Tensor]] = []
        for upload in uploads:
            sent: PerturbedUpload = upload.message
            embeddings = table.read(sent.rows)
            perturbed = table.with_party(upload.sender, embeddings, [*sent.perturbed])
            # Line 9: h and ĥ, at the same w0. Line 10: the gradient of h by w0, at the embedding that is in the table.
            answered, gradients = top.losses_and_own_gradients(top.batch(sent.rows), embeddings, perturbed)
            losses.append(float(answered[0]))
            by_top.append(gradients)
            replies.append(Send(upload.sender, LossReply(sent.exchange, answered)))
        top.update(mean_gradients(by_top))  # line 11: w0 ← w0 − η0 ∇f (4)
        return losses, replies

    return AsynchronousLabelParty(seat, top, PerturbedUpload, answer, seat.settings.directions_used().embedding_of)


ALGORITHM = Algorithm(
    name="cascaded",
    summary="asynchronous; zeroth order at the feature parties, first order at the label party",
    family=Family.SPLIT,
    settings=Cascaded,
    paper=Paper(
        authors="G. Wang, Q. Zhang, X. Li, B. Wang, B. Gu, C. Ling",
        title="Secure and Fast Asynchronous Vertical Federated Learning via Cascaded Hybrid Optimization",
        year=2023,
        arxiv="2306.16077",
    ),
    defaults=replace(SCALE_FREE, top_rates={**SCALE_FREE.rates, "scale-free": FIRST_ORDER_WALK}),
    conversation=Conversation(
        upload=PerturbedUpload,
        reply=LossReply,
        answers="mean losses",
        bottom_needs_gradients=False,
        points=lambda settings: 1 + settings.directions_used().points,
        radius=lambda settings: settings.smoothing_radius,
        noised_answers=True,
        answered=lambda settings: settings.directions,
    ),
    label_party=label_party,
    feature_party=feature_party,
)
