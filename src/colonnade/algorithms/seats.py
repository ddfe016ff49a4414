"""What a party is given when it is built: its own data and model, the names of its peers, the shared settings.

A seat holds nothing of another party's. (`centralised` is the exception by definition: it is given all seats.)
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from colonnade.algorithms.training import DecidedTraining
from colonnade.data.federated import Labels, PartyColumns
from colonnade.models.device import CPU
from colonnade.privacy.noise import PerturbationSettings


@dataclass(frozen=True)
class FeatureSeat:
    """A feature party: columns, a bottom model that embeds them, and how its uploads are perturbed."""

    name: str
    label_party: str
    columns: PartyColumns
    bottom: nn.Module
    width: int  # numbers in one row's embedding
    training: DecidedTraining
    settings: Any  # the algorithm's own
    privacy: PerturbationSettings
    seed: int
    secret: int  # the seed of what no other party may know: noise, directions, first weights
    spent: Mapping[str, NDArray[np.float64]] | None = None  # what its rows have cost before, in μ², by part
    device: torch.device = CPU  # where its model computes

    def without_model(self) -> "FeatureSeat":
        """What a party keeps: its network has copied the module, and a second copy would be dead weight."""
        return replace(self, bottom=nn.Identity())


@dataclass(frozen=True)
class LabelSeat:
    """The label party: labels, the top model, and perhaps columns and a bottom model of its own."""

    name: str
    feature_parties: tuple[str, ...]
    widths: dict[str, int]  # of every feature party's embedding, and its own if it has columns
    labels: Labels
    columns: PartyColumns | None
    bottom: nn.Module | None
    top: nn.Module
    training: DecidedTraining
    settings: Any
    privacy: PerturbationSettings
    seed: int
    secret: int
    spent: Mapping[str, NDArray[np.float64]] | None = None  # what its labels have cost before, in μ², by part
    device: torch.device = CPU  # where its models compute


@dataclass(frozen=True)
class LinearSeat:
    """A party of a linear federation, whatever its role: its block of columns, and the labels if it has them."""

    name: str
    parties: tuple[str, ...]  # everybody, in the order that all agree on
    label_party: str
    workers: int  # parties with something to learn
    columns: PartyColumns | None
    rows: int
    test_rows: int
    validation_rows: int
    task: str
    outputs: int
    labels: Labels | None
    intercept: bool  # whether this party holds it
    training: DecidedTraining
    settings: Any
    seed: int
    secret: int  # also of the masks
    largest_weight: float = 1.0  # of a training row, their mean being 1; the weights themselves are with the labels
    # The weights to begin with, [columns, outputs], and their constant; None: zeros.
    start: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    @property
    def is_label_party(self) -> bool:
        return self.name == self.label_party
