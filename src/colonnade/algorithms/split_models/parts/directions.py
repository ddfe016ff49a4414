"""Random directions and the gradient estimates along them: the one part that all zeroth-order algorithms share.

The estimate of ∇f(w) along a direction u is φ(d) · slope · u, where slope is (f(w + μu) − f(w)) / μ, or two-sided
(f(w + μu) − f(w − μu)) / 2μ. It is unbiased for the smoothed function E f(w + μv): φ = 1 where E[u uᵀ] = I (gaussian,
sphere, signs), and φ = d on the unit sphere, where E[u uᵀ] = I/d. q directions are averaged.

A direction never leaves its party; neither does the generator that it came from.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.errors import ProtocolError, SettingsError, unknown_name
from colonnade.messages import PerturbedUpload

Losses = TypeVar("Losses", Tensor, NDArray[np.float64])


def _gaussian(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator)


def _on_sphere(shape: tuple[int, ...], generator: torch.Generator, radius: float) -> Tensor:
    directions = torch.randn(shape, generator=generator)
    norms = torch.linalg.vector_norm(directions, dim=-1, keepdim=True)
    return directions.mul_(norms.reciprocal_().mul_(radius))


def _unit_sphere(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return _on_sphere(shape, generator, 1.0)


def _sphere(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return _on_sphere(shape, generator, math.sqrt(shape[-1]))


# Eight signs for each byte: a table look-up costs a seventh of drawing a normal for each.
_SIGNS_OF_BYTE = torch.from_numpy(((np.arange(256)[:, None] >> np.arange(8)) & 1).astype(np.float32) * 2 - 1)


def _signs(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    count = math.prod(shape)
    words = torch.empty(-(-count // 32), dtype=torch.int32).random_(-(2**31), 2**31, generator=generator)
    signs = _SIGNS_OF_BYTE.index_select(0, words.view(torch.uint8).int())
    return signs.view(-1)[:count].view(shape)


_DRAW: dict[str, Callable[[tuple[int, ...], torch.Generator], Tensor]] = {
    "gaussian": _gaussian,  # N(0, I)
    "unit-sphere": _unit_sphere,  # uniform, radius 1
    "sphere": _sphere,  # uniform, radius √d
    "signs": _signs,  # every coordinate −1 or +1
}


@dataclass(frozen=True)
class Directions:
    """How a party looks around: which directions, how many, how far."""

    distribution: str
    count: int  # q
    radius: float  # μ
    two_sided: bool

    def __post_init__(self) -> None:
        if self.distribution not in _DRAW:
            raise unknown_name("distribution of directions", self.distribution, _DRAW)
        if self.count < 1:
            raise SettingsError(f"algorithm.directions is {self.count}; it must be at least 1.")
        if not 0 < self.radius < math.inf:
            raise SettingsError(f"algorithm.smoothing_radius is {self.radius}; it must be above 0 and finite.")

    def draw(self, dimension: int, generator: torch.Generator) -> Tensor:
        """One direction of that dimension."""
        return _DRAW[self.distribution]((dimension,), generator)

    def draw_scaled(self, dimension: int, generator: torch.Generator, scale: float) -> Tensor:
        """`scale` ≥ 0 times one direction; of a Gaussian one, without another pass over its numbers."""
        if self.distribution == "gaussian":
            return torch.empty(dimension).normal_(0.0, scale, generator=generator)
        return self.draw(dimension, generator).mul_(scale)

    def draw_rows(self, rows: int, dimension: int, generator: torch.Generator) -> Tensor:
        """A direction of its own for each row."""
        return _DRAW[self.distribution]((rows, dimension), generator)

    def factor(self, dimension: int) -> float:
        """φ(d)."""
        return float(dimension) if self.distribution == "unit-sphere" else 1.0

    def slopes(self, losses: Losses) -> Losses:
        """Of each direction, from the losses at (w, w + μu_1, …) or, two-sided, at (w, w + μu_1, w − μu_1, …).

        The first dimension of `losses` runs over these points; further ones (rows) are kept.

        >>> Directions("gaussian", 1, 0.5, two_sided=False).slopes(torch.tensor([1.0, 2.0]))
        tensor([2.])
        """
        if self.two_sided:
            return (losses[1::2] - losses[2::2]) / (2 * self.radius)
        return (losses[1:] - losses[:1]) / self.radius

    def losses_with(self, slopes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Losses that have just these slopes, and nothing else to tell: `slopes` gives them back.

        >>> Directions("gaussian", 1, 0.5, two_sided=True).losses_with(np.array([2.0]))
        array([ 0.,  1., -1.])
        """
        beside = self.radius * slopes
        if self.two_sided:
            beside = np.stack([beside, -beside], 1).ravel()
        return np.concatenate([[0.0], beside])

    @property
    def points(self) -> int:
        """How many points besides w itself are looked at."""
        return self.count * (2 if self.two_sided else 1)

    def embedding_of(self, upload: PerturbedUpload) -> NDArray[np.float32]:
        """The embedding that enters the table; an upload that asks for more losses than was agreed is refused.

        Every further point tells its sender more: with hundreds of them the labels could be solved for.
        """
        if len(upload.perturbed) != self.points:
            raise ProtocolError(
                f"An upload came with {len(upload.perturbed)} perturbed embeddings; {self.points} were agreed on."
            )
        return upload.embedding


@dataclass(frozen=True)
class DirectionSettings:
    """The settings of every algorithm that looks around by directions; an algorithm's settings extend these."""

    smoothing_radius: float = 0.001
    """μ: how far from its parameters a party looks"""
    directions: int = 1
    """(directions) q: how many are averaged; q + 1 embeddings go up, q + 1 losses come down"""
    distribution: str = "gaussian"
    """of the directions: `gaussian`, `unit-sphere`, `sphere` (radius √d) or `signs`"""
    two_sided: bool = False
    """look at w − μu as well: 2q + 1 embeddings and losses"""

    def directions_used(self) -> Directions:
        return Directions(self.distribution, self.directions, self.smoothing_radius, self.two_sided)
