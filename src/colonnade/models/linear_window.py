"""Mini-batches that a block of a linear model steps on, one after another, in one call."""

from __future__ import annotations

from dataclasses import dataclass, replace

from colonnade.errors import SettingsError
from colonnade.models.linear_columns import RowNumbers
from colonnade.models.linear_loss import LinearLoss
from colonnade.models.linear_rows import Floats


@dataclass(frozen=True)
class Window:
    """Rows to step on: consecutive mini-batches of `batch_size` rows, of which the last may be shorter.

    With `targets` and `loss`, `values` are the other parties' part of θ and each mini-batch adds this block's part
    at its current weights. Without, `values` are the residuals ϑ, and are used as they are. A row may recur in
    another mini-batch, but not in the same one. Where the targets are known, rows may weigh more or less in the loss.
    """

    rows: RowNumbers  # [m]
    batch_size: int
    values: Floats  # [m, c]
    targets: Floats | None = None  # [m]
    loss: LinearLoss | None = None
    weights: Floats | None = None  # [m]; None: 1

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise SettingsError(f"A window has mini-batches of {self.batch_size} rows. Give at least 1.")
        if (self.targets is None) != (self.loss is None):
            raise SettingsError("A window has targets without a loss, or a loss without targets. Give both or neither.")
        if self.weights is not None and (self.targets is None or self.weights.shape != self.targets.shape):
            raise SettingsError("A window has weights that are not one for each target. Give one per row, or none.")

    def part(self, at: int) -> Window:
        """The mini-batch that begins there."""
        part = slice(at, at + self.batch_size)
        targets = None if self.targets is None else self.targets[part]
        weights = None if self.weights is None else self.weights[part]
        return replace(self, rows=self.rows[part], values=self.values[part], targets=targets, weights=weights)
