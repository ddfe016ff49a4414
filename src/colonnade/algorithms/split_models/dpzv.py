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
    pair_slopes,
    release,
)
from colonnade.algorithms.split_models.parts.seed_replay import SeedReplayBottom
from colonnade.algorithms.split_models.parts.steps import DIRECTIONS, SCALE_FREE, StepSettings, optimiser_of_top
from colonnade.algorithms.split_models.parts.table import EmbeddingTable
from colonnade.errors import ProtocolError, SettingsError
from colonnade.messages import PairUpload, SlopeReply, SlopesReply
from colonnade.models.flat import FlatModel
from colonnade.party import Effect, Party, Send, Spend
from colonnade.privacy import claims

TOP_WALK = 3.0
"""R of the label party. With gradients steps agree: with more, a few hundred rows would be learnt by heart; with less,
several classes are not learnt in 20 epochs, as bottom models follow one slope per exchange."""
SERVER_UPDATES = ("auto", "zeroth-order", "first-order", "private-zo", "dp-sgd", "frozen")


@dataclass(frozen=True)
class Dpzv(StepSettings, NoisedAnswerSettings, Asynchronous):
    """`[algorithm]` with name = "dpzv"."""

    smoothing_radius: float = 0.001
    """λ: how far from its parameters a party looks, on both sides"""
    directions: int = 1
    """(directions) q: how many are drawn and averaged; q pairs of embeddings go up, q slopes come down"""
    distribution: str = "sphere"
    """of the directions: `sphere`, `gaussian` or `signs`"""
    server_update: str = "auto"
    """how the label party updates: `first-order`, `zeroth-order`, `private-zo`, `dp-sgd`, `frozen`; `auto`:
    `first-order`, or `zeroth-order` where its models have no gradient"""
    server_directions: int = 0
    """(directions) how many are averaged in `zeroth-order`, for which nothing is sent; 0: 15 if scale-free, 1
    if plain"""

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
        return Directions(self.distribution, self.directions, self.smoothing_radius, two_sided=True)


def feature_party(seat: FeatureSeat) -> Party:
    """Lines 4–8 and 10–12."""
    bottom = SeedReplayBottom(seat, seat.settings.directions_used())
    to = seat.label_party

    def upload(exchange: int, rows: NDArray[np.uint32]) -> Sequence[Effect]:
        """h± = h(w ± λu_j; x_I), j = 1 … q (6)"""
        spent, plus, minus = bottom.look_both_ways(exchange, rows)
        return [*spent, Send(to, PairUpload(exchange, rows, plus, minus))]

    def apply_one(reply: SlopeReply) -> bool:
        """w ← w − η Δ u (9)"""
        return bottom.apply(reply.exchange, [reply.slope])

    def apply_several(reply: SlopesReply) -> bool:
        """w ← w − η mean_j Δ_j u_j"""
        return bottom.apply(reply.exchange, reply.slopes.tolist())

    if seat.settings.directions == 1:
        return AsynchronousFeatureParty(seat, bottom, upload, SlopeReply, apply_one)
    return AsynchronousFeatureParty(seat, bottom, upload, SlopesReply, apply_several)


def label_party(seat: LabelSeat) -> Party:
    """Line 9: Δ for the party, then the label party's own update."""
    settings: Dpzv = replace(seat.settings, server_update=_update_of(seat))
    scale_free = optimiser_of_top(seat, 1).name == "scale-free"
    count = settings.server_directions or (DIRECTIONS if scale_free else 1)
    top = NoisedTop(seat, settings, replace(settings.directions_used(), count=count))

    radius, pairs = settings.smoothing_radius, settings.directions

    def answer(uploads: Sequence[Upload], table: EmbeddingTable) -> tuple[list[float], list[Effect]]:
        losses: list[float] = []
        effects: list[Effect] = []
        rows = [upload.message.rows for upload in uploads]
        read = [(top.batch(own), table.read(own, slot)) for slot, own in enumerate(rows)]
        for upload, (batch, embeddings) in zip(uploads, read, strict=True):
            sent: PairUpload = upload.message
            sides = [*np.split(sent.plus, pairs), *np.split(sent.minus, pairs)]
            outputs = top.outputs(batch, table.with_party(upload.sender, embeddings, sides))
            # Δ_j = mean_i clip_C(δ_ij) + z_j, z_j ~ N(0, σ²) (8)
            slopes, at = top.answers(batch, outputs, slopes_of, settings.clip, settings.noise)
            losses.append(float(at.sum()) / at.size)
            if not math.isfinite(losses[-1]):
                return losses, []  # parts/progress.py tells the user
            if settings.noise > 0:
                clip = settings.clip_bound * math.sqrt(pairs)
                effects.append(Spend(release(seat, sent.rows, clip, settings.noise, (upload.sender,))))
            reply = SlopeReply(sent.exchange, float(slopes[0])) if pairs == 1 else SlopesReply(sent.exchange, slopes)
            effects.append(Send(upload.sender, reply))
        return losses, [*top.updates(rows, read), *effects]

    def slopes_of(losses: NDArray[np.float64]) -> NDArray[np.float64]:
        """δ_ij = (f(h+) − f(h−)) / 2λ (3)"""
        return pair_slopes(losses, radius)

    def mean_of_pairs(upload: PairUpload) -> NDArray[np.float32]:
        """What enters the table. An upload that asks for more slopes than was agreed is refused."""
        if len(upload.plus) != pairs * upload.rows.size:
            raise ProtocolError(
                f"An upload came with {len(upload.plus)} pairs of embeddings for {upload.rows.size} rows; {pairs} per "
                "row were agreed on."
            )
        share = np.float32(0.5 / pairs)  # first: the sum of two large ones is no number
        mean: NDArray[np.float32] = share * upload.plus
        mean += share * upload.minus
        return mean if pairs == 1 else mean.reshape(pairs, upload.rows.size, -1).sum(0)

    return AsynchronousLabelParty(seat, top, PairUpload, answer, mean_of_pairs, answer_cost(settings, pairs))


def _update_of(seat: LabelSeat) -> str:
    """`server_update`; "auto": by the gradient where the label party's models have one, for which nothing is sent."""
    if seat.settings.server_update != "auto":
        return str(seat.settings.server_update)
    without = any(isinstance(model, FlatModel) for model in (seat.top, seat.bottom))
    return "zeroth-order" if without else "first-order"


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
    defaults=replace(
        SCALE_FREE,
        top_rates={**SCALE_FREE.rates, "scale-free": TOP_WALK},
        least_batch=8,
        most_batch=32,
        batches_per_epoch=512,  # a batch gives one slope: as many slopes cost fewer bytes with fewer rows
        keep="last",
    ),
    conversation=Conversation(
        upload=PairUpload,
        reply=SlopeReply,
        answers="slopes",
        bottom_needs_gradients=False,
        top_needs_gradients=False,  # unless server_update asks for them
        points=lambda settings: settings.directions_used().points,
        radius=lambda settings: settings.smoothing_radius,
        noised_answers=True,
        answered=lambda settings: settings.directions,
        answers_claim=Claim(claims.slopes_noise, claims.slopes_mu),
    ),
    label_party=label_party,
    feature_party=feature_party,
)
