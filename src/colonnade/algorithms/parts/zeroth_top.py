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
        self.near = Top(seat, flat=True)  # holds θ0 ± μu while the loss is taken there: θ0 itself is never touched
        self.directions = directions
        self.looking = generator_for(seat.seed, seat.name, "directions")

    def estimate(self, loss: Callable[[Top], float], here: float) -> torch.Tensor:
        """mean_j φ(d0) slope_j u_j, from the loss `here` (at θ0) and near it."""
        directions, vector, near = self.directions, self.vector, self.near
        factor = directions.factor(vector.numel()) / directions.count
        estimates = []
        for _ in range(directions.count):
            direction = directions.draw(vector.numel(), self.looking)
            torch.add(vector, direction, alpha=directions.radius, out=near.vector)
            points = [here, loss(near)]
            if directions.two_sided:
                torch.sub(vector, direction, alpha=directions.radius, out=near.vector)
                points.append(loss(near))
            slope = float(directions.slopes(torch.tensor(points, dtype=torch.float64)))
            estimates.append(direction.mul_(slope * factor))
        return estimates[0] if len(estimates) == 1 else torch.stack(estimates).sum(0)

    def state(self) -> State:
        state = super().state()
        state.tensors["looking"] = self.looking.get_state()
        return state

    def restore(self, state: State) -> None:
        super().restore(state)
        self.looking.set_state(state.tensors["looking"])
