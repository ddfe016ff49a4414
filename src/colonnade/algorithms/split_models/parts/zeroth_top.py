"""The label party's model without gradients: finite differences along directions of its own.

Along a direction of all weights there is one slope, and the estimate's noise grows with their number. A label party
knows the loss of every row, though. So where its layers are fully connected, each row looks along a direction of its
own from what each layer gives for it: as many slopes as rows, each among as many coordinates as there are units. The
gradient by a layer's weights follows from those by what it gives, row by row, and from what went into it. Nothing but
losses is looked at ("node perturbation": B. Flower, M. Jabri, "Summed Weight Neuron Perturbation", NIPS 1992).
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.optimiser import OptimiserSettings
from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.seats import LabelSeat
from colonnade.algorithms.split_models.parts.directions import Directions
from colonnade.algorithms.split_models.parts.steps import moved_layers, optimiser_of_top
from colonnade.algorithms.split_models.parts.top import Batch, Top
from colonnade.state import generator


class ZerothOrderTop(Top):
    """θ0 in one vector, with estimates of the loss's gradient by it."""

    MEMORY = (generator("looking"),)
    DERIVED = ("near", "_layered")

    def __init__(self, seat: LabelSeat, directions: Directions, first_order: bool = False, per_step: int = 1) -> None:
        """`per_step`: how many uploads are answered with one step."""
        chosen = optimiser_of_top(seat, per_step)
        super().__init__(seat, flat=True, first_order=first_order, optimiser=chosen)
        # Holds θ0 ± μu while the loss is taken there: θ0 itself is never touched, and this one makes no steps.
        self.near = Top(seat, flat=True, first_order=False, optimiser=OptimiserSettings())
        self.directions = directions
        networks = [self.network] if self.own is None else [self.network, self.own]
        self._layered = moved_layers(seat.settings, chosen, networks, seat.name)
        looks = getattr(seat.settings, "server_update", "zeroth-order") == "zeroth-order"
        if looks and self._layered and chosen.name == "scale-free":
            # So good an estimate is no random walk: steps agree, and fewer of them must be longer to go as far.
            self._optimiser.settings = replace(chosen, learning_rate=math.sqrt(per_step) * chosen.learning_rate)
        self.looking = generator_for(seat.secret, seat.name, "directions")

    def estimate(self, read: Sequence[tuple[Batch, torch.Tensor]], here: float) -> torch.Tensor:
        """The gradient of the mean loss of these batches, each with its embeddings; `here` is that loss at θ0."""
        if self._layered:
            several = [self._by_layers(batch, embeddings) for batch, embeddings in read]
            return several[0] if len(several) == 1 else torch.stack(several).mean(0)
        return self._by_weights(read, here)

    def _by_layers(self, batch: Batch, embeddings: torch.Tensor) -> torch.Tensor:
        """x_lᵀ g_l of every layer l: g_l of row i is mean_j φ slope_ij u_ijl / rows, where u_ij runs over all units."""
        directions, count = self.directions, self.directions.count
        outputs, *kept = self.forward(batch, embeddings)  # of the top model, and of its own bottom model or None
        units = [size for network in self._layered for size in network.units]
        looked = directions.draw_rows(count * batch.rows, sum(units), self.looking)

        def losses_at(radius: float) -> NDArray[np.float32]:
            return self.row_losses(batch, self._moved(batch, embeddings, torch.split(looked * radius, units, 1)))

        if directions.two_sided:
            behind, apart = losses_at(-directions.radius), 2 * directions.radius
        else:
            behind, apart = self.row_losses(batch, outputs), directions.radius
        slopes = torch.from_numpy(losses_at(directions.radius) - behind)  # [q, rows]
        slopes *= directions.factor(looked.shape[1]) / (apart * count * batch.rows)
        by_row = (looked * slopes.view(-1, 1)).view(count, batch.rows, -1).sum(0)
        by_units = torch.split(by_row, units, 1)
        gradients, place = [], 0
        for network, passed in zip(self._layered, kept, strict=False):
            assert passed is not None
            layers = len(network.units)
            gradients += network.gradients_by_layers(passed, by_units[place : place + layers])
            place += layers
        return torch.cat([gradient.reshape(-1) for gradient in gradients])

    def _moved(self, batch: Batch, embeddings: torch.Tensor, moves: Sequence[torch.Tensor]) -> torch.Tensor:
        """Outputs of so many copies of the rows as there are moves for, the layers of the top model moved first."""
        copies = len(moves[0]) // batch.rows
        inputs = embeddings.repeat(copies, 1)
        top, *own = self._layered
        if own and batch.columns is not None:
            columns = batch.columns.flatten(1).repeat(copies, 1).view(-1, *batch.columns.shape[1:])
            inputs = torch.cat([inputs, own[0].embed(columns, moves=moves[len(top.units) :])], 1)
        return top.embed(inputs, moves=moves[: len(top.units)])

    def _by_weights(self, read: Sequence[tuple[Batch, torch.Tensor]], here: float) -> torch.Tensor:
        """mean_j φ(d0) slope_j u_j"""
        directions, vector, near = self.directions, self.vector, self.near
        factor = directions.factor(vector.numel()) / directions.count
        estimates = []
        for _ in range(directions.count):
            direction = directions.draw(vector.numel(), self.looking).to(vector.device)
            torch.add(vector, direction, alpha=directions.radius, out=near.vector)
            ahead, behind, apart = near.mean_loss(read), here, directions.radius
            if directions.two_sided:
                torch.sub(vector, direction, alpha=directions.radius, out=near.vector)
                behind, apart = near.mean_loss(read), 2 * directions.radius
            estimates.append(direction.mul_((ahead - behind) / apart * factor))
        return estimates[0] if len(estimates) == 1 else torch.stack(estimates).sum(0)
