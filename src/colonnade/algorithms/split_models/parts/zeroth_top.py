"""The label party's model without gradients: finite differences along directions of its own."""

from collections.abc import Sequence

import torch

from colonnade.algorithms.parts.optimiser import OptimiserSettings
from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.seats import LabelSeat
from colonnade.algorithms.split_models.parts.directions import Directions
from colonnade.algorithms.split_models.parts.steps import optimiser_of_top
from colonnade.algorithms.split_models.parts.top import Batch, Top
from colonnade.state import generator


class ZerothOrderTop(Top):
    """θ0 in one vector, with estimates of the loss's gradient by it."""

    MEMORY = (generator("looking"),)
    DERIVED = ("near",)

    def __init__(self, seat: LabelSeat, directions: Directions, first_order: bool = False, per_step: int = 1) -> None:
        """`per_step`: how many uploads are answered with one step."""
        super().__init__(seat, flat=True, first_order=first_order, optimiser=optimiser_of_top(seat, per_step))
        # Holds θ0 ± μu while the loss is taken there: θ0 itself is never touched, and this one makes no steps.
        self.near = Top(seat, flat=True, first_order=False, optimiser=OptimiserSettings())
        self.directions = directions
        self.looking = generator_for(seat.secret, seat.name, "directions")

    def estimate(self, read: Sequence[tuple[Batch, torch.Tensor]], here: float) -> torch.Tensor:
        """mean_j φ(d0) slope_j u_j of the mean loss of these batches, each with its embeddings; `here` is it at θ0."""
        directions, vector, near = self.directions, self.vector, self.near
        factor = directions.factor(vector.numel()) / directions.count
        estimates = []
        for _ in range(directions.count):
            direction = directions.draw(vector.numel(), self.looking)
            torch.add(vector, direction, alpha=directions.radius, out=near.vector)
            ahead, behind, apart = near.mean_loss(read), here, directions.radius
            if directions.two_sided:
                torch.sub(vector, direction, alpha=directions.radius, out=near.vector)
                behind, apart = near.mean_loss(read), 2 * directions.radius
            estimates.append(direction.mul_((ahead - behind) / apart * factor))
        return estimates[0] if len(estimates) == 1 else torch.stack(estimates).sum(0)
