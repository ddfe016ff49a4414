"""DPZV: zeroth order on both sides of the party's parameters, one clipped and noised number back, memory of the model.

J. Zhang et al., "Communication-Efficient and Differentially Private Vertical Federated Learning with Zeroth-Order
Optimization", 2025, arXiv:2502.20565, Algorithm 1; equation numbers are the paper's. Where it is silent or its steps do
not fit together we
(a) divide by 2λ, as eq. 3 does (eq. 7 divides by λ);
(b) clip each row's slope on both sides, to [−C, C]: the sensitivity 2C/B needs it, the printed clip is one-sided;
(c) keep the mean of the pair in the table;
(d) name what the label party's own update does to the guarantee (`server_update`): with "zeroth-order" or
    "first-order", the paper's, its parameters depend on the labels without noise, and nothing holds end to end.
The schedule is in parts/asynchronous.py, the in-place perturbation in parts/seed_replay.py.
"""

import math
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
from colonnade.algorithms.split_models.parts.directions import Directions
from colonnade.algorithms.split_models.parts.seed_replay import SeedReplayBottom
from colonnade.algorithms.split_models.parts.table import EmbeddingTable
from colonnade.algorithms.split_models.parts.top import Batch
from colonnade.algorithms.split_models.parts.zeroth_top import ZerothOrderTop
from colonnade.errors import SettingsError, unknown_name
from colonnade.messages import PairUpload, SlopeReply
from colonnade.models.row_gradients import clipped_sum, mixes_rows
from colonnade.party import Effect, Party, Send, Spend
from colonnade.privacy import claims
from colonnade.privacy.events import PrivacyEvent
from colonnade.privacy.secret_gaussian import SecretGaussian
from colonnade.state import generator

_HUGE = 1e30
"""In place of a private row's loss that is no number: one row must not decide by itself whether the run goes on."""
SERVER_UPDATES = ("zeroth-order", "first-order", "private-zo", "dp-sgd", "frozen")


@dataclass(frozen=True)
class Dpzv(Asynchronous):
    """`[algorithm]` with name = "dpzv"."""

    smoothing_radius: float = 0.001  # λ: how far from its parameters a party looks, on both sides
    distribution: str = "sphere"  # of the directions: sphere (radius √d, the paper's) | gaussian | signs
    clip: float = 10.0  # C: bound of each row's slope, on both sides; 0: none
    noise: float = 0.0  # σ: deviation of the Gaussian noise on a batch's mean slope
    server_update: str = "zeroth-order"  # zeroth-order | first-order (the paper's two) | private-zo | dp-sgd | frozen
    server_clip: float = 1.0  # of the label party's private update: a row's slope or gradient norm
    server_noise: float = 0.0  # deviation of the noise on its mean slope, or on each coordinate of the mean gradient

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
        for name in ("clip", "noise", "server_clip", "server_noise"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise SettingsError(f"algorithm.{name} is {value}; it must be finite and not negative.")
        if self.noise > 0 and self.clip == 0:
            raise SettingsError("algorithm.noise without algorithm.clip protects nothing: give a clip above 0.")
        if self.server_update not in SERVER_UPDATES:
            raise unknown_name("server_update", self.server_update, SERVER_UPDATES)
        if self.private_update and self.server_clip == 0:
            raise SettingsError(f"algorithm.server_update = {self.server_update!r} needs a server_clip above 0.")

    @property
    def private_update(self) -> bool:
        """Whether the label party's own update is a noised release."""
        return self.server_update in ("private-zo", "dp-sgd")

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
    top = NoisedTop(seat, settings)

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
                np.nan_to_num(at, copy=False, nan=_HUGE, posinf=_HUGE)
            losses.append(float(at.sum()) / at.size)
            if not math.isfinite(losses[-1]):
                return losses, []  # parts/progress.py tells the user
            # Δ = mean_i clip_C(δ_i) + z, z ~ N(0, σ²) (8)
            slope = top.noised_mean(_slopes(at, settings.smoothing_radius), settings.clip, settings.noise)
            if settings.noise > 0:
                effects.append(Spend(_release(seat, sent.rows, settings.clip, settings.noise, (upload.sender,))))
            effects.append(Send(upload.sender, SlopeReply(sent.exchange, slope)))
        for own, (batch, embeddings) in zip(rows, read, strict=True):
            if settings.private_update:
                # Every later answer depends on w0, so everybody sees this release.
                clip, noise = settings.server_clip, settings.server_noise
                effects.insert(0, Spend(_release(seat, own, clip, noise, seat.feature_parties)))
            top.update_by(settings.server_update, batch, embeddings)
        return losses, effects

    def mean_of_pair(upload: PairUpload) -> NDArray[np.float32]:
        mean: NDArray[np.float32] = 0.5 * upload.plus  # halves first: the sum of two large ones is no number
        mean += 0.5 * upload.minus
        return mean

    def cost(rows: int) -> float:
        """What an answer and the update with it cost each label of a batch."""
        own = (2 * settings.server_clip / (rows * settings.server_noise)) ** 2 if settings.private_update else 0.0
        return own + ((2 * settings.clip / (rows * settings.noise)) ** 2 if settings.noise > 0 else math.inf)

    return AsynchronousLabelParty(seat, top, PairUpload, answer, mean_of_pair, cost)


def _slopes(at: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """δ_i = (f(h+) − f(h−)) / 2λ for every row (3)."""
    slopes: NDArray[np.float64] = (at[0] - at[1]) / (2 * radius)
    return slopes


def _release(
    seat: LabelSeat, rows: NDArray[np.uint32], clip: float, noise: float, viewers: Sequence[str]
) -> PrivacyEvent:
    """One row moves the mean of the clipped values by at most 2C/B."""
    return PrivacyEvent(
        mechanism="gaussian",
        sensitivity=2 * clip / rows.size,
        noise=noise,
        rows=rows.size,
        row_ids=rows,
        protects=f"labels of {seat.name}, training rows",
        viewers=tuple(viewers),
    )


class NoisedTop(ZerothOrderTop):
    """The label party's model, with the noise on what it answers and on how it updates itself."""

    MEMORY = (generator("_noise"),)

    def __init__(self, seat: LabelSeat, settings: Dpzv) -> None:
        super().__init__(
            seat, settings.directions_used(), first_order=settings.server_update in ("first-order", "dp-sgd")
        )
        if settings.private_update and settings.server_noise == 0:
            raise SettingsError(
                f"algorithm.server_update = {settings.server_update!r} needs server_noise above 0, or "
                "privacy.labels_epsilon, from which it follows."
            )
        if settings.server_update == "dp-sgd" and any(
            mixes_rows(model) for model in (seat.top, seat.bottom) if model is not None
        ):
            raise SettingsError(
                'algorithm.server_update = "dp-sgd" clips the gradient of each row, which a model with batch '
                "normalisation does not have. Use layer or group normalisation, or private-zo."
            )
        self._settings = settings
        self._noise = SecretGaussian(seat.secret, seat.name, "labels")

    def noised_mean(self, slopes: NDArray[np.float64], clip: float, noise: float) -> float:
        if clip > 0:
            slopes = slopes.clip(-clip, clip)
        mean = float(slopes.sum()) / slopes.size
        return self._noise.added_to_number(mean, noise, 2 * clip / slopes.size) if noise > 0 else mean

    def update_by(self, how: str, batch: Batch, embeddings: torch.Tensor) -> None:
        """w0 ← w0 − η0 g, with g as `server_update` says."""
        if how == "frozen":
            return
        if how == "zeroth-order":
            gradient = self.estimate([(batch, embeddings)], here=0.0)  # two-sided: the loss at w0 is not looked at
        elif how == "first-order":
            gradient = _flat(self.own_gradients(batch, embeddings))
        elif how == "private-zo":
            gradient = self._private_estimate(batch, embeddings)
        else:
            gradient = self._noised_gradient(batch, embeddings)
        self.update([gradient])

    def _private_estimate(self, batch: Batch, embeddings: torch.Tensor) -> torch.Tensor:
        """A second clipped, noised slope, along a direction of the label party's own."""
        direction = self.directions.draw(self.vector.numel(), self.looking)
        radius = self.directions.radius
        torch.add(self.vector, direction, alpha=radius, out=self.near.vector)
        plus = self.near.outputs(batch, embeddings)
        torch.sub(self.vector, direction, alpha=radius, out=self.near.vector)
        minus = self.near.outputs(batch, embeddings)
        at = self.row_losses(batch, torch.cat([plus, minus])).astype(np.float64)
        np.nan_to_num(at, copy=False, nan=_HUGE, posinf=_HUGE)
        slope = self.noised_mean(_slopes(at, radius), self._settings.server_clip, self._settings.server_noise)
        return direction * slope

    def _noised_gradient(self, batch: Batch, embeddings: torch.Tensor) -> torch.Tensor:
        """DP-SGD: every row's gradient clipped to norm C, their mean, noise on every coordinate."""
        clip, noise = self._settings.server_clip, self._settings.server_noise
        total = _flat(clipped_sum(self.row_gradients(batch, embeddings), clip))
        return self._noise.added_to(total.div_(batch.rows), noise, 2 * clip / batch.rows, total.numel()).float()


def _flat(gradients: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


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
