"""What the slow zeroth-order twins look along: random directions, weights as one vector, what layers give.

Coordinates of a direction run over the weights as they are computed with: a Linear layer's as (in, out), which is
torch's transposed.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

# --- directions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Looks:
    """Which directions u, how many (q), how far (μ), and whether the other way too."""

    distribution: str = "gaussian"
    q: int = 1
    mu: float = 0.001
    two_sided: bool = False

    def draw(self, generator: torch.Generator, rows: int, d: int) -> Tensor:
        if self.distribution == "signs":
            return _signs(generator, rows * d).view(rows, d)
        normal = torch.randn(rows, d, generator=generator).double()
        if self.distribution == "gaussian":
            return normal
        unit = torch.stack([row / row.square().sum().sqrt() for row in normal])
        return unit if self.distribution == "unit-sphere" else unit * math.sqrt(d)

    def phi(self, d: int) -> float:
        return d if self.distribution == "unit-sphere" else 1.0

    def around(self, u: Tensor) -> list[Tensor]:
        """What is added to the place from which this direction is looked along."""
        return [self.mu * u, -self.mu * u] if self.two_sided else [self.mu * u]

    def slope(self, here: Tensor, near: Sequence[Tensor]) -> Tensor:
        if self.two_sided:
            plus, minus = near
            return (plus - minus) / (2 * self.mu)
        (plus,) = near
        return (plus - here) / self.mu

    def estimate(self, here: Tensor, near: Sequence[Tensor], directions: Sequence[Tensor]) -> Tensor:
        """1/q Σ_j φ(d) slope_j u_j; `near` holds the points of the first direction, then of the second, …"""
        sides = 2 if self.two_sided else 1
        total = torch.zeros_like(directions[0])
        for j, u in enumerate(directions):
            slope = self.slope(here, near[sides * j : sides * (j + 1)])
            total += self.phi(u.shape[-1]) * slope.unsqueeze(-1) * u / self.q
        return total


def _signs(generator: torch.Generator, count: int) -> Tensor:
    """From the bits of random 32-bit words, lowest bit first: 1 is +1, 0 is −1."""
    words = torch.empty(math.ceil(count / 32), dtype=torch.int32).random_(-(2**31), 2**31, generator=generator)
    bits = [(word >> place) & 1 for word in words.tolist() for place in range(32)]
    return torch.tensor(bits[:count], dtype=torch.float64) * 2 - 1


# --- weights as one vector --------------------------------------------------------------------------------------


def _laid_out(tensor: Tensor) -> Tensor:
    return tensor.t() if tensor.ndim == 2 else tensor


def vector_of(parameters: Sequence[Tensor]) -> Tensor:
    return torch.cat([_laid_out(parameter.detach()).reshape(-1) for parameter in parameters])


def put_vector(parameters: Sequence[Tensor], vector: Tensor) -> None:
    place = 0
    with torch.no_grad():
        for parameter in parameters:
            size = parameter.numel()
            laid_out = vector[place : place + size].view(_laid_out(parameter).shape)
            parameter.copy_(_laid_out(laid_out))
            place += size
    assert place == vector.numel()


# --- what layers give, moved ------------------------------------------------------------------------------------


def layers_of(*models: nn.Module | None) -> list[nn.Linear]:
    return [layer for model in models if model for layer in model.modules() if isinstance(layer, nn.Linear)]


@contextmanager
def moved(layers: Sequence[nn.Linear], moves: Sequence[Tensor]) -> Iterator[None]:
    """While this lasts, so much is added to what each layer gives."""

    def moving(move: Tensor) -> Callable[[nn.Module, Any, Tensor], Tensor]:
        return lambda module, inputs, output: output + move

    hooks = [layer.register_forward_hook(moving(move)) for layer, move in zip(layers, moves, strict=True)]
    yield
    for hook in hooks:
        hook.remove()
