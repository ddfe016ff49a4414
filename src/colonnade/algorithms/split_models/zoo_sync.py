"""Syn-ZOO-VFL: zeroth order on both sides, synchronous.

G. Wang et al., "Secure and Fast Asynchronous Vertical Federated Learning via Cascaded Hybrid Optimization", 2023,
arXiv:2306.16077, Appendix B, Algorithm 2. Line numbers are the paper's; the schedule is in parts/synchronous.py. Line 9
prints ĥ in the label party's own difference; its first loss is then taken at perturbed embeddings and the difference
mixes two effects. We take both losses at the same embeddings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.row import Algorithm, Conversation, Family
from colonnade.algorithms.seats import FeatureSeat, LabelSeat
from colonnade.algorithms.split_models.cascaded import ALGORITHM as CASCADED
from colonnade.algorithms.split_models.parts.directions import DirectionSettings
from colonnade.algorithms.split_models.parts.steps import DIRECTIONS, SCALE_FREE, StepSettings, optimiser_of_top
from colonnade.algorithms.split_models.parts.synchronous import (
    Step,
    Synchronous,
    SynchronousFeatureParty,
    SynchronousLabelParty,
)
from colonnade.algorithms.split_models.parts.table import EmbeddingTable
from colonnade.algorithms.split_models.parts.top import means
from colonnade.algorithms.split_models.parts.zeroth_bottom import ZerothOrderBottom
from colonnade.algorithms.split_models.parts.zeroth_top import ZerothOrderTop
from colonnade.messages import LossAndBatch, PerturbedUpload
from colonnade.party import Effect, Party, Send


@dataclass(frozen=True)
class ZooSync(StepSettings, Synchronous, DirectionSettings):
    """`[algorithm]` with name = "zoo-sync"."""

    directions: int = DIRECTIONS

    def __post_init__(self) -> None:
        super().__post_init__()
        self.directions_used()
        self.check_step()


def feature_party(seat: FeatureSeat) -> Party:
    """Lines 4, 6 and 7."""
    bottom = ZerothOrderBottom(seat, seat.settings.directions_used())
    to = seat.label_party

    def upload(step: int, rows: NDArray[np.uint32]) -> Sequence[Effect]:
        """Line 4: h = h_m(w; x_I) and ĥ = h_m(w + μu; x_I)."""
        spent, embedding, perturbed = bottom.look_around(step, rows)
        return [*spent, Send(to, PerturbedUpload(step, rows, embedding, perturbed))]

    def apply(reply: LossAndBatch) -> bool:
        """Lines 6–7: w ← w − η φ(d)/μ δ u, with δ the difference of the two losses."""
        return bottom.apply(reply.exchange, reply.losses)

    return SynchronousFeatureParty(seat, bottom, upload, LossAndBatch, apply)


def label_party(seat: LabelSeat) -> Party:
    """Lines 2, 5, 9 and 10."""
    parties, directions = len(seat.feature_parties), seat.settings.directions_used()
    if optimiser_of_top(seat, parties).name == "scale-free":
        # Its one step stands for as many as `zoo` makes, with as many directions; nothing is sent for them.
        directions = replace(directions, count=directions.count * parties)
    top = ZerothOrderTop(seat, directions, per_step=parties)

    def answer(step: Step, table: EmbeddingTable) -> tuple[float, list[Effect]]:
        batch, embeddings = top.batch(step.rows), table.read(step.rows)
        read = [(batch, embeddings)]
        here = top.mean_loss(read)
        replies: list[Effect] = []
        for party, sent in step.uploads.items():
            # Line 5: the loss with this party's perturbed embedding among everybody else's plain ones.
            perturbed = table.with_party(party, embeddings, [*sent.perturbed])
            losses = np.concatenate([[here], means(top.row_losses(batch, top.outputs(batch, perturbed)))])
            replies.append(Send(party, LossAndBatch(step.number, losses, step.next_number, step.next_rows)))
        top.update([top.estimate(read, here)])  # lines 9–10
        return here, replies

    return SynchronousLabelParty(seat, top, PerturbedUpload, answer, seat.settings.directions_used().embedding_of)


ALGORITHM = Algorithm(
    name="zoo-sync",
    summary="synchronous, zeroth order on both sides",
    family=Family.SPLIT,
    settings=ZooSync,
    paper=CASCADED.paper,
    defaults=SCALE_FREE,
    conversation=Conversation(
        upload=PerturbedUpload,
        reply=LossAndBatch,
        answers="mean losses",
        asynchronous=False,
        bottom_needs_gradients=False,
        top_needs_gradients=False,
        points=lambda settings: 1 + settings.directions_used().points,
        radius=lambda settings: settings.smoothing_radius,
    ),
    label_party=label_party,
    feature_party=feature_party,
)
