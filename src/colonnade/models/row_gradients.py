"""Each row's own gradient, and their clipped sum: what DP-SGD needs, without a gradient held for each row.

Of a linear layer the gradient of row i is the outer product a_i δ_iᵀ of its input and the gradient after it. Its
squared norm is ‖a_i‖²‖δ_i‖², and a weighted sum over the rows is one product of matrices (I. Goodfellow, "Efficient
Per-Example Gradient Computations", 2015). Modules of other kinds hold a gradient for each row.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Factors = tuple[Tensor | None, Tensor]
"""(a, δ) of a weight laid out as (in, out); (None, δ) of a bias. Both have one row for each row of the batch."""


class RowGradients(Protocol):
    """The gradients of a batch's rows by one network's parameters."""

    def squared_norms(self) -> Tensor:
        """‖g_i‖² of each row i."""

    def weighted_sum(self, weights: Tensor) -> list[Tensor]:
        """Σ_i w_i g_i, in the order of the network's parameters."""


class OuterProducts:
    """The row gradients of a network of dense layers, as factors."""

    def __init__(self, rows: int, factors: Sequence[Factors]) -> None:
        self._rows = rows
        self._factors = factors

    def squared_norms(self) -> Tensor:
        total = torch.zeros(self._rows)
        for inputs, after in self._factors:
            square = after.square().sum(1)
            total = total + (square if inputs is None else square * inputs.square().sum(1))
        return total

    def weighted_sum(self, weights: Tensor) -> list[Tensor]:
        sums = []
        for inputs, after in self._factors:
            weighted = after * weights.unsqueeze(1)
            sums.append(weighted.sum(0) if inputs is None else torch.mm(inputs.t(), weighted))
        return sums


class StackedGradients:
    """The row gradients of any network: [rows, …] for each parameter."""

    def __init__(self, rows: int, stacked: Sequence[Tensor]) -> None:
        self._rows = rows
        self._stacked = stacked

    def squared_norms(self) -> Tensor:
        return sum((own.square().flatten(1).sum(1) for own in self._stacked), torch.zeros(self._rows))

    def weighted_sum(self, weights: Tensor) -> list[Tensor]:
        return [torch.tensordot(weights, own, 1) for own in self._stacked]


def clipped_sum(parts: Sequence[RowGradients], bound: float) -> list[Tensor]:
    """Σ_i g_i · min(1, C/‖g_i‖), where g_i has the parameters of all parts; one row moves it by at most 2C.

    >>> rows = StackedGradients(2, [torch.tensor([[3.0, 4.0], [0.3, 0.4]])])
    >>> clipped_sum([rows], 1.0)  # (0.6, 0.8) + (0.3, 0.4)
    [tensor([0.9000, 1.2000])]
    """
    squares = torch.stack([part.squared_norms() for part in parts]).sum(0)
    factors = bound / squares.sqrt().clamp_min(bound)
    return [summed for part in parts for summed in part.weighted_sum(factors)]


def mixes_rows(module: nn.Module) -> bool:
    """Whether a module lets rows of a batch change one another, as batch normalisation does."""
    return any(
        isinstance(part, _BatchNorm) or getattr(part, "running_mean", None) is not None for part in module.modules()
    )
