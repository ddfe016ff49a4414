"""A module as a matrix and a constant, if its layers make it one."""

import numpy as np
from numpy.typing import NDArray
from torch import nn

from colonnade.models.dense import layers_of
from colonnade.models.layers import Bias, ExactLinear, SumEmbeddings

Matrix = NDArray[np.float64]


def affine(module: nn.Module, inputs: int) -> tuple[Matrix, Matrix] | None:
    """`W` [outputs, inputs] and `b` [outputs] with module(x) = W x + b in exact arithmetic; None: it is no such map.

    >>> layer = nn.Sequential(SumEmbeddings([1, 1]), Bias(1))
    >>> affine(layer, 2)
    (array([[1., 1.]]), array([0.]))
    >>> affine(nn.Sequential(nn.Linear(2, 1), nn.ReLU()), 2) is None
    True
    """
    weight: Matrix | None = None  # None: the identity, which need not be written down
    constant: Matrix = np.zeros(inputs)
    for _, layer in layers_of(module):
        if isinstance(layer, nn.Identity) or (isinstance(layer, nn.Flatten) and weight is None):
            continue
        if isinstance(layer, Bias):
            constant = constant + _numbers(layer.bias)
            continue
        if type(layer) in (nn.Linear, ExactLinear):
            own = _numbers(layer.weight)
            bias = np.zeros(len(own)) if layer.bias is None else _numbers(layer.bias)
        elif isinstance(layer, SumEmbeddings):
            own, bias = np.tile(np.eye(layer.width), layer.parties), np.zeros(layer.width)
        else:
            return None
        weight, constant = own if weight is None else own @ weight, own @ constant + bias
    return np.eye(inputs) if weight is None else weight, constant


def first_bend(module: nn.Module) -> str:
    """The name of the first layer that makes it something else, for people."""
    straight = (nn.Identity, nn.Flatten, Bias, nn.Linear, SumEmbeddings)
    return next((type(layer).__name__ for _, layer in layers_of(module) if not isinstance(layer, straight)), "")


def _numbers(tensor: object) -> Matrix:
    numbers: Matrix = tensor.detach().double().numpy()  # type: ignore[attr-defined]
    return numbers
