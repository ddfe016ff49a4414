"""Which rows come next: every row once an epoch, in an order drawn from the owner's generator."""

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.errors import SettingsError
from colonnade.state import Remembering, array, generator, value


class Batches(Remembering):
    """Endless batches of row positions; the last batch of an epoch may be smaller.

    >>> batches = Batches(rows=5, batch_size=2, generator=torch.Generator().manual_seed(0))
    >>> [len(batches.next()) for _ in range(4)]
    [2, 2, 1, 2]
    """

    MEMORY = (array("_order"), generator("_generator"), value("_place"))

    def __init__(self, rows: int, batch_size: int, generator: torch.Generator) -> None:
        check_batch_size(rows, batch_size)
        self._rows = rows
        self._batch_size = batch_size
        self._generator = generator
        self._order: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._place = 0

    def next(self) -> NDArray[np.uint32]:
        """The next batch: positions of rows, each at most once."""
        if self._place >= self._order.size:
            order = torch.randperm(self._rows, generator=self._generator, dtype=torch.int32)
            self._order = order.numpy().view(np.uint32)
            self._place = 0
        batch = self._order[self._place : self._place + self._batch_size]
        self._place += self._batch_size
        return batch

    @property
    def at_end(self) -> bool:
        """Whether the next batch begins another epoch."""
        return self._place >= self._order.size


def check_batch_size(rows: int, batch_size: int) -> None:
    """Refuse a batch that the data cannot fill."""
    if not 1 <= batch_size <= rows:
        raise SettingsError(f"training.batch_size is {batch_size}; with {rows} training rows it must be 1 to {rows}.")


def batches_per_epoch(rows: int, batch_size: int) -> int:
    return -(-rows // batch_size)
