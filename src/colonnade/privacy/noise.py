"""Perturbed embeddings (VAFL, section 4.1): u_l = σ_l(W_l u_{l−1} + b_l + Z_l) for the layers l = 1, …, L.

Z_L is Gaussian with deviation c and is added after each row of the last pre-activation has been clipped to
norm C. The inner Z_l are uniform on [−√3 c_l, √3 c_l], which has deviation c_l: they smooth the loss and are
not counted as privacy. Networks call `inner` and `last`; whoever sends the result also takes its `event`. The
uniform noise comes from the given generator, the Gaussian, on which privacy rests, from secret_gaussian.py.

Reference: Chen, Jin, Sun, Yin, "VAFL: a method of vertical asynchronous federated learning",
2020, eq. 19 and 20.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import SettingsError, unknown_name
from colonnade.privacy.events import PrivacyEvent
from colonnade.privacy.secret_gaussian import SecretGaussian

FORMULAS = ("sound", "paper")
BOTTOM_UPDATES = ("plain", "dp-sgd", "frozen")


@dataclass(frozen=True)
class PerturbationSettings:
    """How much privacy is wanted, and how a party perturbs what it sends; the defaults mean none, and not at all.

    A target without a noise: the noise that keeps it is found before the run (private_plan.py). A noise without a
    clip: the sensitivity of a noised row is infinite, and its event says so; no guarantee follows from it.

    >>> PerturbationSettings(columns_epsilon=8.0, clip=0.5, bottom_update="dp-sgd").delta
    1e-05
    """

    noise: float = 0.0
    """standard deviation of the Gaussian on each coordinate of the last layer"""
    inner_noise: float = 0.0
    """standard deviation of the uniform noise on each inner layer"""
    clip: float = 0.0
    """norm bound of each row before the Gaussian; 0: no bound"""
    labels_epsilon: float = 0.0
    """what one label may cost against all feature parties; 0: no target, no budget"""
    columns_epsilon: float = 0.0
    """what one row's columns at one party may cost against everybody else; needs `clip`"""
    delta: float = 1e-5
    """δ of every ε, of labels and of columns"""
    formula: str = "sound"
    """how noise follows from a target: `sound`, or `paper`, which keeps less than it says"""
    bottom_update: str = "plain"
    """how a bottom model that is sent gradients learns from raw columns: `plain`, `dp-sgd` or `frozen`"""
    update_clip: float = 1.0
    """of `dp-sgd`: norm bound of each row's gradient"""
    update_noise: float = 0.0
    """of `dp-sgd`: standard deviation of the Gaussian on each coordinate of the mean gradient"""
    update_share: float = 0.0
    """of a target's μ², for private updates, the rest being for what is sent; 0: 0.1 for bottom models, 0.9 for a top
    model by `dp-sgd`, 0.5 by `private-zo`"""

    def __post_init__(self) -> None:
        if self.formula not in FORMULAS:
            raise unknown_name("formula of [privacy]", self.formula, FORMULAS)
        if self.bottom_update not in BOTTOM_UPDATES:
            raise unknown_name("bottom_update of [privacy]", self.bottom_update, BOTTOM_UPDATES)
        for setting in fields(self):
            value = getattr(self, setting.name)
            if not isinstance(value, str) and not 0 <= value < math.inf:
                raise SettingsError(
                    f"The perturbation setting {setting.name!r} is {value}. It must be a finite number of at "
                    "least 0; 0 switches it off."
                )
        if not 0 < self.delta < 1:
            raise SettingsError(
                f"privacy.delta is {self.delta}; it must lie strictly between 0 and 1, and well below 1 / rows."
            )
        if self.columns_epsilon > 0 and self.clip == 0:
            raise SettingsError(
                "privacy.columns_epsilon without privacy.clip cannot be kept: nothing bounds what one row may change. "
                "Give a clip above 0."
            )
        if self.update_share >= 1:
            raise SettingsError(
                f"privacy.update_share is {self.update_share}; it must be below 1, since what is sent needs the rest."
            )
        self._check_update()

    def _check_update(self) -> None:
        if self.bottom_update != "dp-sgd":
            if self.update_noise > 0:
                raise SettingsError(
                    f"privacy.update_noise has no effect with bottom_update = {self.bottom_update!r}: leave it out, or "
                    'choose "dp-sgd".'
                )
            return
        if self.update_clip == 0:
            raise SettingsError('privacy.bottom_update = "dp-sgd" needs an update_clip above 0.')
        if self.columns_epsilon == 0 and not (self.noise > 0 and self.update_noise > 0):
            raise SettingsError(
                'privacy.bottom_update = "dp-sgd" needs privacy.noise and update_noise above 0, or a columns_epsilon '
                "that both follow from: a private update protects nothing while embeddings leave without noise."
            )

    @property
    def sensitivity(self) -> float:
        """L2 distance between any two clipped rows: 2C; infinite without a clip."""
        return 2 * self.clip if self.clip > 0 else math.inf

    @property
    def active(self) -> bool:
        return self.noise > 0 or self.inner_noise > 0 or self.clip > 0


def clip_factors(rows: Tensor, bound: float) -> Tensor:
    """min(1, C / ‖z‖) for each row z, shaped to multiply `rows`; differentiable."""
    norms = torch.linalg.vector_norm(rows, dim=tuple(range(1, rows.ndim)), keepdim=True)
    factors: Tensor = bound / norms.clamp_min(bound)
    return factors


def clip_backward(gradient: Tensor, clipped: Tensor, factors: Tensor, bound: float) -> Tensor:
    """The gradient before the clip from the one after it, for rows of one dimension.

    Of y = C z/‖z‖ it is (C/‖z‖)(g − ŷ ŷᵀg) with ŷ = y/C: the clip hides every change of length. Rows that
    were short enough keep g.
    """
    along = (gradient * clipped).sum(1, keepdim=True)
    along.div_(bound * bound).mul_(factors < 1)
    return (gradient - along * clipped).mul_(factors)


class _PassedOn(torch.autograd.Function):
    """What was noised, with the gradient of what it was before: adding the two up anew would undo the rounding."""

    @staticmethod
    def forward(ctx: Any, clipped: Tensor, noised: Tensor) -> Tensor:
        return noised.view_as(noised)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None


class LayerNoise:
    """Draws the noise of one party's network. A network asks once per layer, in the order of the layers.

    >>> settings = PerturbationSettings(noise=3.0, clip=1.0)
    >>> noise = LayerNoise(settings, torch.Generator().manual_seed(1), SecretGaussian(1))
    >>> noise.event(64, protects="row", viewers=("label",)).sensitivity
    2.0
    """

    def __init__(
        self, settings: PerturbationSettings, generator: torch.Generator, gaussian: SecretGaussian | None = None
    ) -> None:
        self.settings = settings
        self.generator = generator
        self._gaussian = gaussian

    def inner(self, pre_activation: Tensor) -> Tensor:
        """pre_activation + Z_l of an inner layer; the very same tensor if there is no inner noise."""
        c = self.settings.inner_noise
        if c == 0:
            return pre_activation
        uniform = torch.rand(pre_activation.shape, generator=self.generator, dtype=pre_activation.dtype)
        return pre_activation + uniform.sub_(0.5).mul_(2 * math.sqrt(3) * c).to(pre_activation.device)

    def last(self, clipped: Tensor) -> Tensor:
        """clipped + Z_L; the very same tensor if there is no noise."""
        if self.settings.noise == 0:
            return clipped
        if self._gaussian is None:
            raise SettingsError("Gaussian noise needs a secret to be drawn from: give LayerNoise a SecretGaussian.")
        # In main memory, whose arithmetic of the grid is known to the bit.
        noised = self._gaussian.added_to(
            clipped.cpu(), self.settings.noise, self.settings.sensitivity, clipped.shape[1:].numel()
        ).to(clipped.device)
        if clipped.requires_grad:
            noised = _PassedOn.apply(clipped, noised)  # type: ignore[no-untyped-call]
        return noised

    def event(
        self, rows: int, protects: str, viewers: Sequence[str], row_ids: np.ndarray | None = None
    ) -> PrivacyEvent | None:
        """What the release of so many noised rows is; None without Gaussian noise: it is non-private then."""
        if self.settings.noise == 0:
            return None
        return PrivacyEvent(
            mechanism="gaussian",
            sensitivity=self.settings.sensitivity,
            noise=self.settings.noise,
            rows=rows,
            row_ids=row_ids,
            protects=protects,
            viewers=tuple(viewers),
        )
