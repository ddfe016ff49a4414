"""Layers of a bottom model with more inputs than a batch has rows: moved row by row.

A direction of such a layer's weights has a coordinate for every input, and most of what they add to the estimate is
noise: all that the layer can do to a batch is move what it gives for each row. So each row has a direction of its own,
along what goes into the layer for it: (x_i/‖x_i‖) v_iᵀ. It moves what the layer gives for the row by ‖x_i‖ v_i, as far
as a direction of all weights would, and has as many coordinates as the layer has units. A unit that a ReLU silences for
a row learns nothing from it, and is not moved for it. Nothing of a row depends on another row.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from colonnade.algorithms.parts.optimiser import OptimiserSettings
from colonnade.algorithms.seats import FeatureSeat
from colonnade.algorithms.split_models.parts.steps import moved_layers
from colonnade.errors import SettingsError
from colonnade.models.contract import Network
from colonnade.models.dense import DenseNetwork

AT_ONCE = 1 << 16  # weights: bounds the memory beside them


class WideLayer(NamedTuple):
    """One of them."""

    number: int  # among the layers with parameters
    place: int  # of its first weight, [inputs, units], among all parameters
    inputs: int
    units: int


class DirectionPart(NamedTuple):
    """A part of the direction of the weights."""

    place: int  # of its first number among all parameters
    numbers: Tensor
    inputs: int  # of its layer


class WideLayers:
    """How rows move what these layers give, and what that means for their weights."""

    def __init__(self, network: DenseNetwork, batch_size: int) -> None:
        self._network = network
        self._layers: list[WideLayer] = []
        self._others: list[tuple[int, int]] = []  # where all other parameters are: from, to
        place = 0
        for number, layer in enumerate(network.with_parameters):
            sizes = [tensor.numel() for tensor in (layer.weight, layer.bias) if tensor is not None]
            end = place + sum(sizes)
            if layer.weight is not None and layer.weight.shape[0] > batch_size:
                self._layers.append(WideLayer(number, place, *layer.weight.shape))
                place += sizes[0]
            self._others.append((place, end))
            place = end

    def __len__(self) -> int:
        return len(self._layers)

    def numbers(self, rows: int) -> int:
        """How many are drawn for so many rows."""
        return rows * sum(layer.units for layer in self._layers)

    def others(self, vector: Tensor) -> list[Tensor]:
        """Of all parameters, those that are moved by directions of their own."""
        return [vector[start:end] for start, end in self._others if end > start]

    def looked_into(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """What the network gives, and of every row what must be known to find its moves again."""
        given, passed = self._network.looked_into(inputs)
        known = []
        for layer in self._layers:
            entered, after = passed[layer.number]
            assert entered is not None
            known += [] if layer.place == 0 else [entered]
            known += [torch.ones(len(entered), layer.units) if after is None else (after > 0).float()]
        return given, torch.cat(known, 1)

    def _of_layers(self, inputs: Tensor, known: Tensor, drawn: Tensor) -> Iterator[tuple[WideLayer, Tensor, Tensor]]:
        """Of each: what goes into it, and what was drawn for the units that are not silenced.

        `drawn` is [directions, numbers], and what is given of it [directions, rows, units].
        """
        rows, place, start = len(inputs), 0, 0
        for layer in self._layers:
            entered = inputs.flatten(1)
            if layer.place:
                entered = known[:, place : place + layer.inputs]
                place += layer.inputs
            open_units = known[:, place : place + layer.units]
            place += layer.units
            end = start + rows * layer.units
            yield layer, entered, drawn[:, start:end].view(len(drawn), rows, layer.units) * open_units
            start = end

    def moves(self, inputs: Tensor, known: Tensor, drawn: Tensor) -> list[Tensor | None]:
        """‖x_i‖ v_i of every row: [directions, rows, units], for each layer with parameters; None: it is not moved."""
        moves: list[Tensor | None] = [None] * len(self._network.with_parameters)
        for layer, entered, by_row in self._of_layers(inputs, known, drawn):
            moves[layer.number] = by_row.mul_(_lengths(entered))
        return moves

    def along(self, inputs: Tensor, known: Tensor, drawn: Tensor) -> Iterator[DirectionPart]:
        """Σ_i (x_i/‖x_i‖) v_iᵀ, the direction of the weights, some inputs at a time; a row of zeros adds nothing."""
        for layer, entered, by_rows in self._of_layers(inputs, known, drawn[None]):
            lengths, place = _lengths(entered), layer.place
            by_row = torch.where(lengths > 0, by_rows[0] / lengths, 0.0)
            for some in torch.split(entered, max(1, AT_ONCE // layer.units), 1):
                numbers = torch.mm(some.t(), by_row).view(-1)
                yield DirectionPart(place, numbers, layer.inputs)
                place += numbers.numel()


def _lengths(inputs: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(inputs, dim=1, keepdim=True)
    return lengths


def wide_layers(seat: FeatureSeat, optimiser: OptimiserSettings, network: Network) -> WideLayers | None:
    """Of a bottom model, if there are any and directions move what layers give.

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
    wide = WideLayers(moved[0], seat.training.batch_size) if moved else ()
    return wide or None
