"""How long a step of a linear federation is: told, found, or derived (see smoothness.py)."""

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.block_party import BlockParty, batches_per_request
from colonnade.algorithms.linear_models.parts.smoothness import of_longest_row
from colonnade.state import Remembering, value

_SEARCHED = 10
"""Requests over which `step = "search"` looks."""


class StepSize(Remembering):
    """The step size of one party, as `algorithm.step` says.

    `auto`: 1 / L_b, from what everybody told of their columns, and no longer than a party's own longest row allows.
    `fixed`: training.learning_rate. `search`: nothing is told; a party takes the largest curvature of its own block
    that it meets along its first gradients, and divides by the number of parties, which may all pull in the same
    direction at once. A Newton step has its length already: unless fixed, its share is found while stepping
    (curved_block.py), and nothing need be told. Nor need it where a party chooses its own metric
    (`precondition = "auto"`), in which alone it could take steps of nearly 1: with q parties, a q-th of that.
    """

    MEMORY = (value("_curvature", "_looked", "value"),)

    def __init__(self, block_party: BlockParty, newton: bool) -> None:
        self._block_party = block_party
        self._newton = newton
        settings = block_party.seat.settings
        block_party.tells_smoothness = settings.step == "auto" and not newton and not block_party.guarded
        self._curvature = 0.0
        self._looked = 0
        self.value = 0.0

    def prepare(self) -> None:
        """Everybody has introduced themselves."""
        seat = self._block_party.seat
        if seat.settings.step == "fixed":
            self.value = seat.training.learning_rate
        elif self._newton:
            self.value = 1.0
        elif seat.settings.step == "auto" and self._block_party.guarded:
            self.value = self._block_party.sound_step()
        elif seat.settings.step == "auto":
            bound = self._block_party.loss.smoothness
            smoothness = self._block_party.smoothness()
            batches = smoothness.of_batches(bound, seat.training.l2, seat.training.batch_size)
            # Mini-batches that are asked for together see the others' weights, and without labels also their own, as
            # they were: the whole objective's curvature counts once for each of them.
            late = batches_per_request(seat) - 1
            batches += late * (bound * smoothness.whole + seat.training.l2)
            longest = self._block_party.block.largest_row()
            least = of_longest_row(bound, longest, seat.training.batch_size, seat.workers)
            self.value = 1 / max(batches, least) if batches > 0 else 0.0

    @property
    def searching(self) -> bool:
        return self._block_party.seat.settings.step == "search" and not self._newton and self._looked < _SEARCHED

    def look(self, rows: NDArray[np.uint32], residuals: NDArray[np.float64]) -> None:
        """Learn from residuals at the current weights, while a search lasts."""
        seat = self._block_party.seat
        self._looked += 1
        block, loss = self._block_party.block, self._block_party.loss
        inward, inward_b = block.inward(*block.gradient(rows, residuals))
        square = float(np.square(inward).sum() + np.square(inward_b).sum() * seat.intercept)
        if square == 0:
            return
        outward, outward_b = block.outward(inward, inward_b)
        along = block.times(rows, outward, outward_b)
        curved = float((along * loss.sure_curvature_times(residuals, along)).sum()) / len(rows)
        curved += seat.training.l2 * float(np.square(outward).sum())
        self._curvature = max(self._curvature, curved / square)
        if self._curvature > 0:
            self.value = 1 / (seat.workers * self._curvature)
