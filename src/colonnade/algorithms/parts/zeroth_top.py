"""The label party's model without gradients: finite differences along directions of its own."""

from collections.abc import Callable

import torch

from colonnade.algorithms.parts.directions import Directions
from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.parts.seats import LabelSeat
from colonnade.algorithms.parts.top import Top
from colonnade.party import State


class ZerothOrderTop(Top):
    """θ0 in one vector, with estimates of the loss's gradient by it."""

    def __init__(self, seat: LabelSeat, directions: Directions) -> None:
        super().__init__(seat, flat=True)
        self._directions = directions
        self._looking = generator_for(seat.seed, seat.name, "directions")

    def estimate(self, loss: Callable[[], float], here: float) -> torch.Tensor:
        """mean_j φ(d0) slope_j u_j, from the loss `here` (at θ0) and near it; θ0 is left as it was, bit for bit."""
        vector, directions = self.vector, self._directions
        before = vector.clone()
        total = torch.zeros_like(before)
        for _ in range(directions.count):
            direction = directions.draw(vector.numel(), self._looking)
            torch.add(before, direction, alpha=directions.radius, out=vector)
            points = [here, loss()]
            if directions.two_sided:
                torch.sub(before, direction, alpha=directions.radius, out=vector)
                points.append(loss())
            slope = self.slope(points)
            total.add_(direction, alpha=slope * directions.factor(vector.numel()) / directions.count)
        vector.copy_(before)
        return total

    def slope(self, points: list[float]) -> float:
        return float(self._directions.slopes(torch.tensor(points, dtype=torch.float64)))

    def state(self) -> State:
        state = super().state()
        state.tensors["looking"] = self._looking.get_state()
        return state

    def restore(self, state: State) -> None:
        super().restore(state)
        self._looking.set_state(state.tensors["looking"])
