"""How long a step of a linear federation is: told, found, or derived (see smoothness.py)."""

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.block_party import BlockParty, batches_per_request
from colonnade.models.linear import MOST_SCALED_COLUMNS
from colonnade.state import Remembering, State, custom, value

Floats = NDArray[np.float64]

LONGER, SHORTER = 1.1, 0.6  # tried: shortening faster than lengthening keeps alike blocks from swinging
_SEARCHED = 10
"""Requests over which `step = "search"` looks."""


class StepSize(Remembering):
    """The step size of one party, as `algorithm.step` says.

    `auto`: 1 / L_b, from what everybody told of their columns. `fixed`: training.learning_rate. `search`: nothing is
    told; a party takes the largest curvature of its own block that it meets along its first gradients, and divides by
    the number of parties, which may all pull in the same direction at once. A Newton step in a metric of the user's
    choice has its length already: unless fixed, its share is found while stepping (curved_block.py), and nothing need
    be told. In the party's own metric it begins as the first-order step.
    """

    def __init__(self, block_party: BlockParty, newton: bool) -> None:
        self._block_party = block_party
        self._newton = newton
        settings = block_party.seat.settings
        block_party.tells_smoothness = settings.step == "auto" and (not newton or block_party.automatic)
        self._curvature = 0.0
        self._looked = 0
        self.value = 0.0
        self._late = batches_per_request(block_party.seat) - 1  # mini-batches between a product and its use
        self.scale = 1.0  # less, after a training that did not descend
        # Whether a step may grow: of one mini-batch, with reduced noise, all of whose weights can be looked at.
        self._grows = (
            settings.step == "auto"
            and not newton
            and block_party.automatic
            and settings.keeps_residuals
            and batches_per_request(block_party.seat) == 1
            and block_party.block.columns <= MOST_SCALED_COLUMNS
            and not block_party.block.l1
        )
        self._share, self._most_share = 1.0, 1.0  # of `value`
        self._last: Floats | None = None  # the last step, in the variables in which steps are made

    def prepare(self) -> None:
        """Everybody has introduced themselves."""
        seat = self._block_party.seat
        if seat.settings.step == "fixed":
            self.value = seat.training.learning_rate
        elif self._newton and not (self._block_party.automatic and seat.settings.step == "auto"):
            self.value = 1.0
        elif seat.settings.step == "auto":
            self.value = self._block_party.sound_step(self._late)
            longest = self._block_party.sound_step(self._late, alone=True)
            self._most_share = longest / self.value if self.value else 1.0

    def follow_delay(self, late: int) -> None:
        """What steps are made on is so many mini-batches old from now on."""
        if late != self._late:
            self._late = late
            self.prepare()

    @property
    def length(self) -> float:
        return float(self.scale * self.value * self._share)

    def before(self) -> Floats | None:
        """The weights before a step, if it will be looked at."""
        block = self._block_party.block
        return np.vstack([block.weights(), block.intercept()]) if self._grows else None

    def stepped(self, before: Floats | None) -> None:
        """Lengthen the next step if this one went on where the last one led, shorten it if it went back."""
        if before is None:
            return
        block = self._block_party.block
        change, change_b = block.back(block.weights() - before[:-1], block.intercept() - before[-1])
        step = np.append(change.ravel(), change_b)
        if self._last is not None:
            share = self._share * (LONGER if float(step @ self._last) >= 0 else SHORTER)
            self._share = min(self._most_share, max(1.0, share))
        self._last = step

    def jumped(self) -> None:
        """The next step is not from where the last one led."""
        self._last = None

    def begin_anew(self) -> None:
        """The variables of the steps are others."""
        self._share, self._last = 1.0, None

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

    def _save_scale(self, state: State) -> None:
        if self.scale != 1.0:
            state.values["scale"] = self.scale

    def _load_scale(self, state: State) -> None:
        self.scale = state.values.get("scale", 1.0)

    def _save_late(self, state: State) -> None:
        if self._late != batches_per_request(self._block_party.seat) - 1:
            state.values["late"] = self._late

    def _load_late(self, state: State) -> None:
        self._late = state.values.get("late", batches_per_request(self._block_party.seat) - 1)

    def _save_share(self, state: State) -> None:
        if self._share != 1.0 or self._last is not None:
            state.values["share"] = self._share
        if self._last is not None:
            state.put("last", self._last)

    def _load_share(self, state: State) -> None:
        self._share = state.values.get("share", 1.0)
        self._last = state.take("last", np.float64) if "last" in state.tensors else None

    MEMORY = (
        value("_curvature", "_looked", "value"),
        custom("scale", save=_save_scale, load=_load_scale),
        custom("_late", save=_save_late, load=_load_late),
        custom("_share", "_last", save=_save_share, load=_load_share),
    )
    DERIVED = ("_most_share",)
