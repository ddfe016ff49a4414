"""DPZV: zeroth order on both sides of the party's parameters, one clipped and noised number back, memory of the model.

J. Zhang et al., "Communication-Efficient and Differentially Private Vertical Federated Learning with Zeroth-Order
Optimization", 2025, arXiv:2502.20565, Algorithm 1; equation numbers are the paper's. Where it is silent or its steps do
not fit together we
(a) divide by 2λ, as eq. 3 does (eq. 7 divides by λ);
(b) clip each row's slope on both sides, to [−C, C]: the sensitivity 2C/B needs it, the printed clip is one-sided;
(c) keep the mean of the pair in the table;
(d) name what the label party's own update does to the guarantee (`server_update`): with "zeroth-order" or
    "first-order", the paper's, its parameters depend on the labels without noise, and nothing holds end to end.
The schedule is in parts/asynchronous.py, the in-place perturbation in parts/seed_replay.py, the noise in
parts/noised_answers.py.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.row import Algorithm, Claim, Conversation, Family, Paper
from colonnade.algorithms.seats import FeatureSeat, LabelSeat
from colonnade.algorithms.split_models.parts.asynchronous import (
    Asynchronous,
    AsynchronousFeatureParty,
    AsynchronousLabelParty,
    Upload,
)
from colonnade.algorithms.split_models.parts.directions import Directions
from colonnade.algorithms.split_models.parts.noised_answers import (
    NoisedAnswerSettings,
    NoisedTop,
    answer_cost,
    count_as_huge,
    pair_slopes,
    release,
)
from colonnade.algorithms.split_models.parts.seed_replay import SeedReplayBottom
from colonnade.algorithms.split_models.parts.steps import DIRECTIONS, SCALE_FREE, StepSettings, optimiser_of_top
from colonnade.algorithms.split_models.parts.table import EmbeddingTable
from colonnade.errors import SettingsError
from colonnade.messages import PairUpload, SlopeReply
from colonnade.party import Effect, Party, Send, Spend
from colonnade.privacy import claims

SERVER_UPDATES = ("zeroth-order", "first-order", "private-zo", "dp-sgd", "frozen")


@dataclass(frozen=True)
class Dpzv(StepSettings, NoisedAnswerSettings, Asynchronous):
    """`[algorithm]` with name = "dpzv"."""

    smoothing_radius: float = 0.001  # λ: how far from its parameters a party looks, on both sides
    distribution: str = "sphere"  # of the directions: sphere (radius √d, the paper's) | gaussian | signs
    server_update: str = "zeroth-order"  # zeroth-order | first-order (the paper's two) | private-zo | dp-sgd | frozen
    server_directions: int = 0  # averaged in "zeroth-order", for which nothing is sent; 0: 1 if plain, 15 if scale-free

    def __post_init__(self) -> None:
        super().__post_init__()
        self.directions_used()
        if self.distribution == "unit-sphere":
            raise SettingsError(
                "algorithm.distribution: dpzv's slopes are clipped for directions of norm √d; use sphere."
            )
        if self.smoothing_radius > 1:
            raise SettingsError(
                f"algorithm.smoothing_radius is {self.smoothing_radius}; dpzv restores weights exactly up to 1 only."
            )
        self.check_step()
        if self.server_directions < 0:
            raise SettingsError(f"algorithm.server_directions is {self.server_directions}; it must not be negative.")
        self.check_noise(SERVER_UPDATES)

    def directions_used(self) -> Directions:
        return Directions(self.distribution, 1, self.smoothing_radius, two_sided=True)


def feature_party(seat: FeatureSeat) -> Party:
    """Lines 4–8 and 10–12."""
    bottom = SeedReplayBottom(seat, seat.settings.directions_used())
    to = seat.label_party

    def upload(exchange: int, rows: NDArray[np.uint32]) -> Sequence[Effect]:
        """h± = h(w ± λu; x_I) (6)"""
        spent, plus, minus = bottom.look_both_ways(exchange, rows)
        return [*spent, Send(to, PairUpload(exchange, rows, plus, minus))]

    def apply(reply: SlopeReply) -> bool:
        """w ← w − η Δ u (9)"""
        return bottom.apply(reply.exchange, reply.slope)

    return AsynchronousFeatureParty(seat, bottom, upload, SlopeReply, apply)


def label_party(seat: LabelSeat) -> Party:
    """Line 9: Δ for the party, then the label party's own update."""
    settings: Dpzv = seat.settings
    scale_free = optimiser_of_top(seat, 1).name == "scale-free"
    count = settings.server_directions or (DIRECTIONS if scale_free else 1)
    top = NoisedTop(seat, settings, replace(settings.directions_used(), count=count))

    def answer(uploads: Sequence[Upload], table: EmbeddingTable) -> tuple[list[float], list[Effect]]:
        losses: list[float] = []
        effects: list[Effect] = []
        rows = [upload.message.rows for upload in uploads]
        read = [(top.batch(own), table.read(own, slot)) for slot, own in enumerate(rows)]
        for upload, (batch, embeddings) in zip(uploads, read, strict=True):
            sent: PairUpload = upload.message
            pair = table.with_party(upload.sender, embeddings, [sent.plus, sent.minus])
            at = top.row_losses(batch, top.outputs(batch, pair)).astype(np.float64)
            if settings.noise > 0:
                count_as_huge(at)
            losses.append(float(at.sum()) / at.size)
            if not math.isfinite(losses[-1]):
                return losses, []  # parts/progress.py tells the user
            # Δ = mean_i clip_C(δ_i) + z, z ~ N(0, σ²) (8)
            slope = top.noised_mean(pair_slopes(at, settings.smoothing_radius), settings.clip, settings.noise)
            if settings.noise > 0:
                effects.append(Spend(release(seat, sent.rows, settings.clip, settings.noise, (upload.sender,))))
            effects.append(Send(upload.sender, SlopeReply(sent.exchange, slope)))
        return losses, [*top.updates(rows, read), *effects]

    def mean_of_pair(upload: PairUpload) -> NDArray[np.float32]:
        mean: NDArray[np.float32] = 0.5 * upload.plus  # halves first: the sum of two large ones is no number
        mean += 0.5 * upload.minus
        return mean

    return AsynchronousLabelParty(seat, top, PairUpload, answer, mean_of_pair, answer_cost(settings, values=1))


ALGORITHM = Algorithm(
    name="dpzv",
    summary="asynchronous, zeroth order on both sides; one clipped, noised number back; memory of the model alone",
    family=Family.SPLIT,
    settings=Dpzv,
    paper=Paper(
        authors="J. Zhang, E. Chen, D.-J. Han, C. Liu, C. G. Brinton",
        title="Communication-Efficient and Differentially Private Vertical Federated Learning with Zeroth-Order "
        "Optimization",
        year=2025,
        arxiv="2502.20565",
    ),
    defaults=replace(SCALE_FREE, least_batch=8, most_batch=32, keep="last"),
    conversation=Conversation(
        upload=PairUpload,
        reply=SlopeReply,
        answers="slopes",
        bottom_needs_gradients=False,
        top_needs_gradients=False,  # unless server_update asks for them
        points=lambda settings: 2,
        radius=lambda settings: settings.smoothing_radius,
        noised_answers=True,
        answers_claim=Claim(claims.dpzv_noise, claims.dpzv_mu),
    ),
    label_party=label_party,
    feature_party=feature_party,
)
