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
        """‖g_i‖² of each row i, in double precision: finite wherever the gradients are."""

    def weighted_sum(self, weights: Tensor) -> list[Tensor]:
        """Σ_i w_i g_i, in the order of the network's parameters and in double precision: what one row changes in it
        must not drown in rounding. A row of weight 0 adds nothing, whatever it holds."""


class OuterProducts:
    """The row gradients of a network of dense layers, as factors.

    >>> OuterProducts(2, []).squared_norms()  # of one that has nothing to learn
    tensor([0., 0.], dtype=torch.float64)
    """

    def __init__(self, rows: int, factors: Sequence[Factors]) -> None:
        self._rows = rows
        self._factors = factors

    def squared_norms(self) -> Tensor:
        device = self._factors[0][1].device if self._factors else None
        total = torch.zeros(self._rows, dtype=torch.float64, device=device)
        for inputs, after in self._factors:
            square = _squares(after)
            total += square if inputs is None else square * _squares(inputs)
        return total

    def weighted_sum(self, weights: Tensor) -> list[Tensor]:
        sums = []
        for inputs, after in self._factors:
            if not weights.all():
                inputs, after = inputs if inputs is None else _without(inputs, weights), _without(after, weights)
            weighted = after * weights.unsqueeze(1)
            sums.append(weighted.sum(0) if inputs is None else torch.mm(inputs.t().double(), weighted))
        return sums


class StackedGradients:
    """The row gradients of any network: [rows, …] for each parameter."""

    def __init__(self, rows: int, stacked: Sequence[Tensor]) -> None:
        self._rows = rows
        self._stacked = stacked

    def squared_norms(self) -> Tensor:
        zeros = torch.zeros(self._rows, dtype=torch.float64, device=self._stacked[0].device if self._stacked else None)
        return sum((_squares(own) for own in self._stacked), zeros)

    def weighted_sum(self, weights: Tensor) -> list[Tensor]:
        stacked = self._stacked if weights.all() else [_without(own, weights) for own in self._stacked]
        return [torch.tensordot(weights, own.double(), 1) for own in stacked]


def _squares(rows: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows.flatten(1), dim=1, dtype=torch.float64)
    return norms.square_()


def _without(rows: Tensor, weights: Tensor) -> Tensor:
    """Zeros in rows of weight 0."""
    return torch.where((weights > 0).view(-1, *[1] * (rows.ndim - 1)), rows, 0.0)


def clipped_sum(parts: Sequence[RowGradients], bound: float) -> list[Tensor]:
    """Σ_i g_i · min(1, C/‖g_i‖), where g_i has the parameters of all parts; one row moves it by at most 2C.

    >>> rows = StackedGradients(2, [torch.tensor([[3.0, 4.0], [0.3, 0.4]])])
    >>> clipped_sum([rows], 1.0)  # (0.6, 0.8) + (0.3, 0.4)
    [tensor([0.9000, 1.2000], dtype=torch.float64)]
    """
    squares = torch.stack([part.squared_norms() for part in parts]).sum(0)
    factors = bound / squares.sqrt().clamp_min(bound)
    # A gradient that is not finite has no direction: it counts as none, or one row would be seen through all others.
    weights = factors.nan_to_num(0.0)
    return [summed for part in parts for summed in part.weighted_sum(weights)]


def mixes_rows(module: nn.Module) -> bool:
    """Whether a module lets rows of a batch change one another, as batch normalisation does."""
    return any(
        isinstance(part, _BatchNorm) or getattr(part, "running_mean", None) is not None for part in module.modules()
    )
