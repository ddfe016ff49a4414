"""Which rows a worker of a linear federation asks for: several mini-batches at a time, or every row once."""

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.seats import LinearSeat
from colonnade.data.batches import Batches
from colonnade.state import Remembering, generator, part

ROWS_OF_A_PASS = 65_536
"""How many rows a request of a full pass asks for: bounds a frame's size."""


class Windows(Remembering):
    """Mini-batches of the owner's choice, `per_request` of them at a time; only the last of a window may be short.

    With `independent`, every mini-batch is drawn afresh from all rows, as the unbiasedness of SVRG and SAGA needs: rows
    taken in turn, each once an epoch, are those whose entries in SAGA's table are the oldest. Otherwise every row comes
    once an epoch, and a window ends with the epoch.
    """

    MEMORY = (generator("_generator"), part("_batches"))

    def __init__(self, seat: LinearSeat, per_request: int, shared: bool, independent: bool) -> None:
        owner = "everybody" if shared else seat.name
        self._batch_size = seat.training.batch_size
        self._per_request = per_request
        self._rows = seat.rows
        self._independent = independent
        self._batches = Batches(seat.rows, self._batch_size, generator_for(seat.seed, owner, "rows"))
        self._generator = generator_for(seat.seed, owner, "independent rows")

    def next(self) -> NDArray[np.uint32]:
        if self._independent:
            return self._drawn()
        batches = [self._batches.next()]
        while len(batches) < self._per_request and batches[-1].size == self._batch_size and not self._batches.at_end:
            batches.append(self._batches.next())
        return batches[0] if len(batches) == 1 else np.concatenate(batches)

    def _drawn(self) -> NDArray[np.uint32]:
        """Every mini-batch uniform among those without a repeated row."""
        count, size = self._per_request, self._batch_size
        if size * size > 2 * self._rows:  # repetitions are the rule: draw without them
            orders = [torch.randperm(self._rows, generator=self._generator, dtype=torch.int32) for _ in range(count)]
            return torch.cat([order[:size] for order in orders]).numpy().view(np.uint32)
        rows = self._numbers(count, size)
        again = _repeats(rows)
        while again.any():  # rejection leaves the rest uniform
            rows[again] = self._numbers(int(again.sum()), size)
            again = _repeats(rows)
        return rows.ravel()

    def _numbers(self, count: int, size: int) -> NDArray[np.uint32]:
        drawn = torch.randint(self._rows, (count, size), generator=self._generator, dtype=torch.int32)
        return drawn.numpy().view(np.uint32)


def _repeats(rows: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Which of these mini-batches, one a line, hold a row twice."""
    ordered = np.sort(rows, axis=1)
    found: NDArray[np.bool_] = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    return found


class FullPass:
    """One value per row, filled by requests for all rows in order: SVRG's snapshot, SAGA's table."""

    def __init__(self, rows: int, outputs: int) -> None:
        self.residuals: NDArray[np.float64] = np.zeros((rows, outputs))
        self.place = 0  # rows asked for and filled so far

    @property
    def complete(self) -> bool:
        return self.place == len(self.residuals)

    def next_rows(self) -> NDArray[np.uint32]:
        return np.arange(self.place, min(self.place + ROWS_OF_A_PASS, len(self.residuals)), dtype=np.uint32)

    def fill(self, residuals: NDArray[np.float64]) -> None:
        self.residuals[self.place : self.place + len(residuals)] = residuals
        self.place += len(residuals)
