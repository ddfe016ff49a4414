"""What a predicting party is given when it is built: its own model and rows, and who takes part."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.prediction.saved_model import SavedModel
from colonnade.seat import Seat

MOST_ROWS = 8_000_000
"""Of one prediction: what of it a party keeps is bounded by that."""
Names = NDArray[np.uint64]
"""Hashed ids, [rows, 2]."""


@dataclass(frozen=True)
class AskedRows:
    """The rows that the label party wants to predict, as its seat has them."""

    names: Names | None  # their ids, hashed; None: the parties have an alignment
    places: NDArray[np.uint32] | None  # in that alignment
    own_rows: NDArray[np.int64]  # the label party's own row of each, −1 where it has none

    def __len__(self) -> int:
        return len(self.own_rows)


@dataclass(frozen=True)
class PredictionSeat(Seat):
    """One party's own; the rest is the same for all."""

    model: SavedModel
    secret: int  # what its noise and its masks follow from, new for every prediction
    columns: torch.Tensor | None = None  # its prepared rows; None: it holds no columns
    names: Names | None = None  # a feature party's: of its rows; None: they lie in the order of an alignment
    spent: NDArray[np.float64] | None = None  # what its rows have cost before, in μ²; None: nothing
    asked: AskedRows | None = None  # the label party's
