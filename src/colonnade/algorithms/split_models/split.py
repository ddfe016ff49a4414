"""Split learning, synchronous: one batch for all, every party waits for every other.

P. Vepakomma, O. Gupta, T. Swedish, R. Raskar. "Split learning for health: Distributed deep learning without sharing raw
patient data", 2018, arXiv:1812.00564; the baseline of the VAFL and cascaded papers. Block-wise stochastic gradient
descent, equations (2) and (3) of T. Chen et al., "VAFL", 2020. The schedule is in parts/synchronous.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.row import Algorithm, Conversation, Family, Paper
from colonnade.algorithms.seats import FeatureSeat, LabelSeat
from colonnade.algorithms.split_models.parts.bottom import Bottom
from colonnade.algorithms.split_models.parts.steps import first_order_top
from colonnade.algorithms.split_models.parts.synchronous import (
    Step,
    Synchronous,
    SynchronousFeatureParty,
    SynchronousLabelParty,
)
from colonnade.algorithms.split_models.parts.table import EmbeddingTable
from colonnade.algorithms.split_models.parts.top import Top
from colonnade.messages import EmbeddingUpload, GradientAndBatch
from colonnade.party import Effect, Party, Send


@dataclass(frozen=True)
class Split(Synchronous):
    """`[algorithm]` with name = "split"."""


def feature_party(seat: FeatureSeat) -> Party:
    """Embeds the batch it is told, applies the gradient, embeds the next."""
    # A party that was given up may have a reply under way and be asked for the next batch: two uploads wait then.
    bottom = Bottom(seat, several_in_flight=seat.settings.party_timeout_seconds > 0)
    to = seat.label_party

    def upload(step: int, rows: NDArray[np.uint32]) -> Sequence[Effect]:
        spent, embedding = bottom.upload(step, rows)
        return [*spent, Send(to, EmbeddingUpload(step, rows, embedding))]

    def apply(reply: GradientAndBatch) -> bool:
        """θ_m ← θ_m − η (∂h/∂θ_m)ᵀ ∂ℓ/∂h − η ∇r(θ_m) (3)"""
        return bottom.apply(reply.exchange, reply.gradient)

    return SynchronousFeatureParty(seat, bottom, upload, GradientAndBatch, apply)


def label_party(seat: LabelSeat) -> Party:
    """Waits for everybody's embedding of a batch, answers everybody, and names the next."""
    top = Top(seat, optimiser=first_order_top(seat, len(seat.feature_parties)))

    def answer(step: Step, table: EmbeddingTable) -> tuple[float, list[Effect]]:
        # All gradients at the same θ0: (2) for the top model, ∂ℓ/∂h_m for every party's (3).
        loss, gradients, by_embeddings = top.gradients(step.rows, table.read(step.rows))
        top.update(gradients)
        replies: list[Effect] = []
        for party in step.uploads:
            gradient = np.ascontiguousarray(by_embeddings[:, table.slices[party]].numpy())
            replies.append(Send(party, GradientAndBatch(step.number, gradient, step.next_number, step.next_rows)))
        return loss, replies

    return SynchronousLabelParty(seat, top, EmbeddingUpload, answer)


ALGORITHM = Algorithm(
    name="split",
    summary="synchronous split learning: one shared batch, everybody waits for everybody",
    family=Family.SPLIT,
    settings=Split,
    paper=Paper(
        authors="P. Vepakomma, O. Gupta, T. Swedish, R. Raskar",
        title="Split learning for health: Distributed deep learning without sharing raw patient data",
        year=2018,
        arxiv="1812.00564",
    ),
    conversation=Conversation(EmbeddingUpload, GradientAndBatch, answers="gradients", asynchronous=False),
    label_party=label_party,
    feature_party=feature_party,
)
