"""Answers that hide labels: every row's slope clipped, their mean noised, and what the label party's own update costs.

One row moves a mean over B slopes in [−C, C] by at most 2C/B. An answer of q slopes, one for each direction, moves by
at most √q times as much. The label party's own model must not carry labels either: `server_update` says how it learns,
and with which of these ways a guarantee holds end to end (privacy/accounting.py).

With `clip = "auto"` C follows from the batch. What a row's slope would be with every label there is depends on no
label: the middle m_i between the least and the largest is sent without noise, and half of what is between them, on the
mean of all rows, is C. So (δ_i − m_i)/C is clipped to ±1 and noised, and noise is in units of C.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.seats import LabelSeat
from colonnade.algorithms.split_models.parts.asynchronous import AsynchronousLabelParty, Upload
from colonnade.algorithms.split_models.parts.directions import Directions
from colonnade.algorithms.split_models.parts.table import EmbeddingTable
from colonnade.algorithms.split_models.parts.top import Batch, mean_gradients
from colonnade.algorithms.split_models.parts.zeroth_top import ZerothOrderTop
from colonnade.algorithms.training import AUTO, Auto
from colonnade.errors import SettingsError, unknown_name
from colonnade.messages import LossReply, PerturbedUpload
from colonnade.models.device import check_has_doubles
from colonnade.models.row_gradients import clipped_sum, mixes_rows
from colonnade.party import Effect, Party, Send, Spend
from colonnade.privacy.events import PrivacyEvent
from colonnade.privacy.secret_gaussian import SecretGaussian
from colonnade.state import generator

CLIP_OF_EXACT_ANSWERS = 10.0
"""With `clip = "auto"` where nothing is noised: beyond what a slope is in a training that goes well."""
FARTHEST_LABEL = 2.0
"""Of a regression, in deviations: labels farther from the mean count as these where the clip follows from the batch."""
_HUGE = 1e30
"""In place of a private row's loss that is no number: one row must not decide by itself whether the run goes on."""


_STEEPEST = 1e4
"""Of a slope with any label, where the clip follows from the batch: one party's embeddings must not ruin the model."""
_TINY = 1e-300
Slopes = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""From losses [points, rows] to slopes [q, rows]."""


@dataclass(frozen=True)
class NoisedAnswerSettings:
    """The noise on what the label party answers; without any, answers are exact and tell of the labels."""

    clip: float | Auto = AUTO
    """(slope) C: bound of each row's slope, on both sides; 0: none. `auto`: 10 while answers are exact, and with
    `noise` [from the batch](algorithms/dpzv.md#the-clip)"""
    noise: float = 0.0
    """(as `clip`; of `auto`, C) σ: deviation of the Gaussian on a batch's mean slopes; 0: losses are exact, and tell of
    the labels"""
    server_update: str = "first-order"
    """how the label party's own model is updated; with `noise` also `dp-sgd` or `frozen`, in `zoo` also `private-zo`"""
    server_clip: float | Auto = AUTO
    """(slope, or norm) of a private update: bound of each row; `auto`: as `clip`, of `dp-sgd` 1"""
    server_noise: float = 0.0
    """(as `server_clip`) of a private update: deviation of its noise"""

    def check_noise(self, updates: Sequence[str]) -> None:
        """SettingsError for a noise that could protect nothing; `updates`: what `server_update` may be."""
        for name in ("clip", "noise", "server_clip", "server_noise"):
            value = getattr(self, name)
            if value != AUTO and not 0 <= value < math.inf:
                raise SettingsError(f"algorithm.{name} is {value}; it must be finite and not negative.")
        if self.noise > 0 and self.clip == 0:
            raise SettingsError("algorithm.noise without algorithm.clip protects nothing: give a clip above 0.")
        if self.server_update not in updates:
            raise unknown_name("server_update", self.server_update, updates)
        if self.private_update and self.server_clip == 0:
            raise SettingsError(f"algorithm.server_update = {self.server_update!r} needs a server_clip above 0.")

    @property
    def private_update(self) -> bool:
        """Whether the label party's own update is a noised release."""
        return self.server_update in ("private-zo", "dp-sgd")

    @property
    def clip_bound(self) -> float:
        """What noised values are within, in the units of the noise."""
        return 1.0 if self.clip == AUTO else self.clip

    @property
    def largest_slope(self) -> float:
        """Beyond this a slope is clipped, in its own unit; infinite without a clip, and where C is the batch's."""
        if self.clip == AUTO:
            return math.inf if self.noise > 0 else CLIP_OF_EXACT_ANSWERS
        return self.clip or math.inf

    @property
    def server_clip_bound(self) -> float:
        return 1.0 if self.server_clip == AUTO else self.server_clip


def answer_cost(settings: NoisedAnswerSettings, values: int) -> Callable[[int], float]:
    """What an answer of so many numbers, and the update with it, cost each label of a batch, in μ²."""

    def cost(rows: int) -> float:
        clip, own_clip = settings.clip_bound, settings.server_clip_bound
        own = (2 * own_clip / (rows * settings.server_noise)) ** 2 if settings.private_update else 0.0
        return own + (values * (2 * clip / (rows * settings.noise)) ** 2 if settings.noise > 0 else math.inf)

    return cost


def pair_slopes(at: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """δ_i = (f(h+) − f(h−)) / 2λ for every row and pair: [2q, rows] → [q, rows], all pluses first."""
    pairs = len(at) // 2
    slopes: NDArray[np.float64] = (at[:pairs] - at[pairs:]) / (2 * radius)
    return slopes


def count_as_huge(losses: NDArray[np.float64]) -> None:
    """In place: what is no number counts as a huge one."""
    np.nan_to_num(losses, copy=False, nan=_HUGE, posinf=_HUGE)


def release(
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

    def __init__(self, seat: LabelSeat, settings: NoisedAnswerSettings, directions: Directions) -> None:
        by_gradient = settings.server_update in ("first-order", "dp-sgd")
        super().__init__(seat, directions, first_order=by_gradient, per_step=seat.settings.wait_for)
        if settings.private_update and settings.server_noise == 0:
            raise SettingsError(
                f"algorithm.server_update = {settings.server_update!r} needs server_noise above 0, or "
                "privacy.labels_epsilon, from which it follows."
            )
        if settings.server_update == "dp-sgd":
            check_has_doubles(seat.device, seat.name)
        if settings.server_update == "dp-sgd" and any(
            mixes_rows(model) for model in (seat.top, seat.bottom) if model is not None
        ):
            raise SettingsError(
                'algorithm.server_update = "dp-sgd" clips the gradient of each row, which a model with batch '
                "normalisation does not have. Use layer or group normalisation, or private-zo."
            )
        self._seat = seat
        self._settings = settings
        self._noise = SecretGaussian(seat.secret, seat.name, "labels")

    def answers(
        self, batch: Batch, outputs: torch.Tensor, slopes: Slopes, clip: float | Auto, noise: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The batch's mean slope along each direction, clipped row by row and noised; and the losses [points, rows]."""
        at = self._losses(batch, outputs, noise)
        if not np.isfinite(at).all():  # only without noise: parts/progress.py tells the user
            return np.full(1, np.nan), at
        if noise == 0 or clip != AUTO:
            bound = CLIP_OF_EXACT_ANSWERS if clip == AUTO else clip
            return self.noised_means(slopes(at), bound, noise), at
        possible = np.stack([slopes(self._losses(other, outputs, noise)) for other in self._as_if(batch)])
        possible = possible.clip(-_STEEPEST, _STEEPEST)
        least, largest = possible.min(0), possible.max(0)  # of no label: [q, rows]
        middle = (least + largest) / 2
        unit = np.maximum((largest - least).mean(1, keepdims=True) / 2, _TINY)
        noised = self.noised_means((slopes(at) - middle) / unit, 1.0, noise)
        return middle.mean(1) + unit[:, 0] * noised, at

    def _losses(self, batch: Batch, outputs: torch.Tensor, noise: float) -> NDArray[np.float64]:
        at = self.row_losses(batch, outputs).astype(np.float64)
        if noise > 0:
            count_as_huge(at)
        return at

    def _as_if(self, batch: Batch) -> list[Batch]:
        """The same rows, with each label that there is for all of them; of a regression, with those at the ends.

        Without weights: those of classes tell the labels.
        """
        labels = self._seat.labels
        ends = (-FARTHEST_LABEL, FARTHEST_LABEL)
        every = ends if labels.task == "regression" else range(len(labels.classes))
        return [batch._replace(targets=torch.full_like(batch.targets, one), weights=None) for one in every]

    def noised_means(self, slopes: NDArray[np.float64], clip: float, noise: float) -> NDArray[np.float64]:
        """Of one or several slopes of each row, [q, rows] → [q]: the noise hides a change of all of them."""
        if clip > 0:
            slopes = slopes.clip(-clip, clip)
        means: NDArray[np.float64] = slopes.sum(1) / slopes.shape[1]
        if noise == 0:
            return means
        sensitivity = 2 * clip * math.sqrt(len(slopes)) / slopes.shape[1]
        noised: NDArray[np.float64] = self._noise.added_to(
            torch.from_numpy(means), noise, sensitivity, len(slopes)
        ).numpy()
        return noised

    def updates(self, rows: Sequence[NDArray[np.uint32]], read: Sequence[tuple[Batch, torch.Tensor]]) -> list[Effect]:
        """Update w0 once for these batches; what that releases is spent before anything is sent."""
        settings, seat, spent = self._settings, self._seat, []
        if settings.private_update:
            # Every later answer depends on w0, so everybody sees this release. Each batch has noise of its own: their
            # mean tells no more than all of them.
            clip, noise = settings.server_clip_bound, settings.server_noise
            spent = [Spend(release(seat, own, clip, noise, seat.feature_parties)) for own in rows]
        self.update_by(settings.server_update, read)
        return [*spent]

    def update_by(self, how: str, read: Sequence[tuple[Batch, torch.Tensor]]) -> None:
        """w0 ← w0 − η0 g, g the mean over the batches of what `server_update` says, all at the same w0."""
        if how == "frozen":
            return
        if how == "zeroth-order":  # on two sides, the loss at w0 is not looked at
            self.update([self.estimate(read, here=0.0 if self.directions.two_sided else self.mean_loss(read))])
            return
        of_batch = {
            "first-order": lambda *batch: _flat(self.own_gradients(*batch)),
            "private-zo": self._private_estimate,
            "dp-sgd": self._noised_gradient,
        }[how]
        self.update(mean_gradients([[of_batch(batch, embeddings)] for batch, embeddings in read]))

    def _private_estimate(self, batch: Batch, embeddings: torch.Tensor) -> torch.Tensor:
        """A second clipped, noised slope, along a direction of the label party's own."""
        direction = self.directions.draw(self.vector.numel(), self.looking).to(self.vector.device)
        radius = self.directions.radius
        torch.add(self.vector, direction, alpha=radius, out=self.near.vector)
        plus = self.near.outputs(batch, embeddings)
        torch.sub(self.vector, direction, alpha=radius, out=self.near.vector)
        minus = self.near.outputs(batch, embeddings)
        clip, noise = self._settings.server_clip, self._settings.server_noise
        (slope,), _ = self.answers(batch, torch.cat([plus, minus]), lambda at: pair_slopes(at, radius), clip, noise)
        return direction * float(slope)

    def _noised_gradient(self, batch: Batch, embeddings: torch.Tensor) -> torch.Tensor:
        """DP-SGD: every row's gradient clipped to norm C, their mean, noise on every coordinate."""
        clip, noise = self._settings.server_clip_bound, self._settings.server_noise
        mean = _flat(clipped_sum(self.row_gradients(batch, embeddings), clip)).div_(batch.rows).cpu()
        noised = self._noise.added_to(mean, noise, 2 * clip / batch.rows, mean.numel()).float()
        return noised.to(self.vector.device)


def _flat(gradients: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def check_update_is_used(settings: NoisedAnswerSettings, plain: str) -> None:
    """Refuse a private update of the label party's model where answers are exact: it would protect nothing."""
    if settings.server_update != plain:
        raise SettingsError(
            f"algorithm.server_update = {settings.server_update!r} protects nothing while answers leave without noise. "
            "Give algorithm.noise, or privacy.labels_epsilon, from which it follows; or leave it out."
        )


def noised_losses_party(seat: LabelSeat) -> Party:
    """A label party that answers with losses which follow from noised slopes, and from nothing else.

    Noise on a loss itself would be divided by μ. So each row's slope along each direction is clipped, their means are
    noised, and the reply holds losses that give just these slopes: 0 at the embedding, μ times the slope beside it.
    """
    settings = seat.settings
    directions: Directions = settings.directions_used()
    top = NoisedTop(seat, settings, directions)
    cost = answer_cost(settings, directions.count)

    def answer(uploads: Sequence[Upload], table: EmbeddingTable) -> tuple[list[float], list[Effect]]:
        losses: list[float] = []
        effects: list[Effect] = []
        rows = [upload.message.rows for upload in uploads]
        read = [(top.batch(own), table.read(own, slot)) for slot, own in enumerate(rows)]
        for upload, (batch, embeddings) in zip(uploads, read, strict=True):
            sent: PerturbedUpload = upload.message
            points = table.with_party(upload.sender, embeddings, [sent.embedding, *sent.perturbed])
            outputs = top.outputs(batch, points)
            slopes, at = top.answers(batch, outputs, directions.slopes, settings.clip, settings.noise)
            losses.append(float(at[0].sum()) / batch.rows)
            clip = settings.clip_bound * math.sqrt(directions.count)
            effects.append(Spend(release(seat, sent.rows, clip, settings.noise, (upload.sender,))))
            effects.append(Send(upload.sender, LossReply(sent.exchange, directions.losses_with(slopes))))
        return losses, [*top.updates(rows, read), *effects]

    return AsynchronousLabelParty(seat, top, PerturbedUpload, answer, directions.embedding_of, cost)
