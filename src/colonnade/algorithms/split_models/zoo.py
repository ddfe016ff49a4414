"""ZOO-VFL: zeroth order on both sides. The feature party is that of `cascaded`; the label party estimates the gradient
by its own parameters from one more loss, along a direction of its own.

Q. Zhang, B. Gu, Z. Dang, C. Deng, H. Huang. "Desirable Companion for Vertical Federated Learning: New Zeroth-Order
Gradient Based Algorithm", CIKM 2021; written as the asynchronous baseline of G. Wang et al., "Cascaded Hybrid
Optimization", 2023, and of the DPZV paper: Algorithm 2 of the former's Appendix B without the barrier.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.algorithms.row import Algorithm, Conversation, Family, Paper
from colonnade.algorithms.seats import LabelSeat
from colonnade.algorithms.split_models.cascaded import Cascaded, feature_party
from colonnade.algorithms.split_models.parts.asynchronous import AsynchronousLabelParty, Upload
from colonnade.algorithms.split_models.parts.noised_answers import check_update_is_used, noised_losses_party
from colonnade.algorithms.split_models.parts.steps import SCALE_FREE
from colonnade.algorithms.split_models.parts.table import EmbeddingTable
from colonnade.algorithms.split_models.parts.top import means
from colonnade.algorithms.split_models.parts.zeroth_top import ZerothOrderTop
from colonnade.algorithms.split_models.vafl import EMBEDDINGS_CLAIM
from colonnade.messages import LossReply, PerturbedUpload
from colonnade.party import Effect, Party, Send

__all__ = ["ALGORITHM", "Zoo", "feature_party", "label_party"]


@dataclass(frozen=True)
class Zoo(Cascaded):
    """`[algorithm]` with name = "zoo"; the directions' settings hold for the label party too."""

    server_update: str = "zeroth-order"  # zeroth-order; with noise also private-zo | dp-sgd | frozen

    def check_noise(self, updates: Sequence[str]) -> None:
        super().check_noise(("zeroth-order", "private-zo", "dp-sgd", "frozen"))


def label_party(seat: LabelSeat) -> Party:
    """Answers with losses; updates w0 along a direction of its own."""
    if seat.settings.noise > 0:
        return noised_losses_party(seat)
    check_update_is_used(seat.settings, "zeroth-order")
    top = ZerothOrderTop(seat, seat.settings.directions_used(), per_step=seat.settings.wait_for)

    def answer(uploads: Sequence[Upload], table: EmbeddingTable) -> tuple[list[float], list[Effect]]:
        losses: list[float] = []
        replies: list[Effect] = []
        rows = [upload.message.rows for upload in uploads]
        read = [(top.batch(own), table.read(own, slot)) for slot, own in enumerate(rows)]
        for upload, (batch, embeddings) in zip(uploads, read, strict=True):
            sent: PerturbedUpload = upload.message
            points = table.with_party(upload.sender, embeddings, [sent.embedding, *sent.perturbed])
            answered = means(top.row_losses(batch, top.outputs(batch, points)))
            losses.append(float(answered[0]))
            replies.append(Send(upload.sender, LossReply(sent.exchange, answered)))
        # w0 ← w0 − η0 φ(d0)/μ [f(w0 + μu0) − f(w0)] u0
        top.update([top.estimate(read, here=sum(losses) / len(losses))])
        return losses, replies

    return AsynchronousLabelParty(seat, top, PerturbedUpload, answer, seat.settings.directions_used().embedding_of)


ALGORITHM = Algorithm(
    name="zoo",
    summary="asynchronous, zeroth order on both sides",
    family=Family.SPLIT,
    settings=Zoo,
    paper=Paper(
        authors="Q. Zhang, B. Gu, Z. Dang, C. Deng, H. Huang",
        title="Desirable Companion for Vertical Federated Learning: New Zeroth-Order Gradient Based Algorithm",
        year=2021,
        venue="CIKM 2021",
    ),
    defaults=SCALE_FREE,
    conversation=Conversation(
        upload=PerturbedUpload,
        reply=LossReply,
        answers="mean losses",
        bottom_needs_gradients=False,
        top_needs_gradients=False,
        points=lambda settings: 1 + settings.directions_used().points,
        radius=lambda settings: settings.smoothing_radius,
        noised_answers=True,
        answered=lambda settings: settings.directions,
        embeddings_claim=EMBEDDINGS_CLAIM,  # as a baseline of the DPZV paper, §VII
    ),
    label_party=label_party,
    feature_party=feature_party,
)
