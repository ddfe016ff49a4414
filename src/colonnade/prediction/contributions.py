"""What one party adds to a prediction, and what all of it comes to: to the bit what an evaluation of the training has.

Of a split model an embedding, over which the top model goes; of a linear one its part of a sum, in float64 by the loops
that it was trained with. Where the training's sums were masked, parts are rounded to the same fixed-point numbers.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from colonnade import algorithms
from colonnade.algorithms.row import Family
from colonnade.errors import DataError
from colonnade.models.linear_columns import IN_ORDER, Chosen, DenseColumns
from colonnade.models.network import network_for
from colonnade.prediction.saved_model import ModelDescription, SavedModel
from colonnade.privacy.noise import LayerNoise, PerturbationSettings
from colonnade.privacy.ring import FixedPoint

Floats = NDArray[np.float64]


def family_of(description: ModelDescription) -> Family:
    """What kind of model it is a part of."""
    return algorithms.find(description.algorithm["name"]).family


def check_columns(name: str, rows: torch.Tensor, description: ModelDescription) -> None:
    """Refuse rows of another shape than those of the training."""
    shape = tuple(description.shapes[name])
    if tuple(rows.shape[1:]) != shape:
        raise DataError(
            f"The rows of {name} have the shape {tuple(rows.shape[1:])}; the model was trained with {shape}."
        )


def embedding_of(bottom: nn.Module, rows: torch.Tensor, noise: LayerNoise | None = None) -> torch.Tensor:
    """h = h_m(θ_m; x), clipped and noised if it is to leave the party."""
    return network_for(bottom).score(rows, noise)


def clipping(description: ModelDescription) -> LayerNoise | None:
    """The clip of what feature parties sent, which is a part of the function that was trained; without the noise."""
    clip = description.clip
    return LayerNoise(PerturbationSettings(clip=clip), torch.Generator()) if clip else None


def products_of(saved: SavedModel, rows: torch.Tensor) -> Floats:
    """w_mᵀx_{i,m} and the party's constant, [rows, outputs]."""
    weights, constant = _block(saved)
    columns = DenseColumns(rows.reshape(len(rows), -1).numpy(), np.zeros((0, weights.shape[1])), len(weights), 0.0)
    columns.set_weights(weights.T)
    return columns.products(Chosen(IN_ORDER, 0, len(rows))) + constant


def _block(saved: SavedModel) -> tuple[Floats, Floats]:
    weights, *constant = [parameter.detach().double().numpy() for parameter in saved.modules["bottom"].parameters()]
    return weights, constant[0] if constant else np.zeros(len(weights))


def fixed_point(description: ModelDescription) -> FixedPoint | None:
    """How products are rounded where the training's sums were masked; None: they are added as they are."""
    settings = description.algorithm
    if settings.get("sums", "plain") == "plain":
        return None
    return FixedPoint(settings["fraction_bits"], 1 + len(description.feature_parties))


def summed(parts: Sequence[Floats], description: ModelDescription) -> Floats:
    """The sum of the label party's part, which comes first, and of the feature parties' in their order."""
    point = fixed_point(description)
    if point is not None:
        return point.decode(sum((point.encode(part) for part in parts[1:]), point.encode(parts[0])))
    return sum(parts[1:], parts[0])
