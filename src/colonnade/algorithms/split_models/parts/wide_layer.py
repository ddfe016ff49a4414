"""The first layer of a bottom model, where it has more inputs than a batch has rows: moved row by row.

A direction of its weights has a coordinate for every input, and most of what they add to the estimate is noise: all
that such a layer can do to a batch is move what it gives for each row. So each row has a direction of its own, along
its own inputs: (x_i/‖x_i‖) v_iᵀ. It moves what the layer gives for the row by ‖x_i‖ v_i, as far as a direction of all
weights would, and has as many coordinates as the layer has units. Nothing of a row depends on another row.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from colonnade.algorithms.parts.optimiser import OptimiserSettings
from colonnade.algorithms.seats import FeatureSeat
from colonnade.algorithms.split_models.parts.steps import moved_layers
from colonnade.errors import SettingsError
from colonnade.models.contract import Network

AT_ONCE = 1 << 16  # weights: bounds the memory beside them


class WideLayer:
    """How rows move what the first layer gives, and what that means for its weights, [inputs, units]."""

    def __init__(self, weight: Tensor) -> None:
        self.inputs, self.units = weight.shape
        self.weights = weight.numel()

    def numbers(self, rows: int) -> int:
        """How many are drawn for so many rows."""
        return rows * self.units

    def moves(self, inputs: Tensor, drawn: Tensor) -> Tensor:
        """‖x_i‖ v_i of every row: [rows, units]."""
        return drawn.view(-1, self.units) * _lengths(inputs)

    def along(self, inputs: Tensor, drawn: Tensor) -> Iterator[Tensor]:
        """Σ_i (x_i/‖x_i‖) v_iᵀ, the direction of the weights, some inputs at a time; a row of zeros adds nothing."""
        lengths = _lengths(inputs)
        by_row = torch.where(lengths > 0, drawn.view(-1, self.units) / lengths, 0.0)
        for some in torch.split(inputs.flatten(1), max(1, AT_ONCE // self.units), 1):
            yield torch.mm(some.t(), by_row)


def _lengths(inputs: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(inputs.flatten(1), dim=1, keepdim=True)
    return lengths


def wide_layer(seat: FeatureSeat, optimiser: OptimiserSettings, network: Network) -> WideLayer | None:
    """The first layer of a bottom model, if it is wide and directions move what layers give.

    Not under noise on embeddings: weights that follow from answers and from directions alone tell nothing of columns
    but what was sent, and these directions are made of columns.
    """
    if seat.privacy.active:
        if seat.settings.perturb == "layers":
            raise SettingsError(
                f'algorithm.perturb = "layers" lets the weights of {seat.name} depend on its columns beside what noise '
                "covers. Leave it out: weights are moved then."
            )
        return None
    moved = moved_layers(seat.settings, optimiser, [network], seat.name)
    weight = moved[0].first_weight if moved else None
    return WideLayer(weight) if weight is not None and weight.shape[0] > seat.training.batch_size else None
