"""A feature party's model without gradients: embeddings at w and near w go up, losses come down.

Directions stay here. They are stored while an upload awaits its reply, which is cheaper than drawing them again
(`dpzv` draws them again, for memory). They move the weights, or what wide layers give (parts/wide_layer.py).
Whatever leaves has passed the perturbation of parts/embedder.py.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.bounds import MOST_TOLD, check_magnitude
from colonnade.algorithms.parts.optimiser import Optimiser
from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.seats import FeatureSeat
from colonnade.algorithms.split_models.parts.directions import Directions
from colonnade.algorithms.split_models.parts.embedder import Embedder
from colonnade.algorithms.split_models.parts.steps import optimiser_of_bottom
from colonnade.algorithms.split_models.parts.wide_layer import wide_layers
from colonnade.errors import ProtocolError
from colonnade.models.flat import flatten
from colonnade.models.network import network_for
from colonnade.party import Effect
from colonnade.state import generator, rows_by_number, tensors_by_number, value, weights


class ZerothOrderBottom(Embedder):
    """w_m of one feature party, and the directions of its uploads that await a reply."""

    MEMORY = (
        weights("_optimiser"),
        generator("_looking"),
        tensors_by_number("_pending"),
        rows_by_number("_looked_at"),
        tensors_by_number("_passed"),
        value("uploads", "steps"),
    )
    DERIVED = ("_vector", "_near", "_near_vector")  # the network's parameters, and those beside them

    def __init__(self, seat: FeatureSeat, directions: Directions) -> None:
        super().__init__(seat, network_for(seat.bottom, device=seat.device, compiled=seat.training.compile))
        self._directions = directions
        self._vector = flatten([self.network], seat.name)
        # A second network holds the perturbed parameters, so that the party's own are never touched.
        self._near = network_for(seat.bottom, device=seat.device, compiled=seat.training.compile)
        self._near.generator = self.generator
        self._near_vector = flatten([self._near], seat.name)
        self._looking = generator_for(seat.secret, seat.name, "directions")
        self._optimiser = Optimiser([self._vector], optimiser_of_bottom(seat))
        self._wide = wide_layers(seat, self._optimiser.settings, self.network)
        self._pending: dict[int, torch.Tensor] = {}  # exchange → directions [q, d]
        self._looked_at: dict[int, NDArray[np.uint32]] = {}  # exchange → rows, where layers are wide
        self._passed: dict[int, torch.Tensor] = {}  # and what their moves follow from
        self.uploads = 0
        self.steps = 0

    @property
    def upload_cost(self) -> float:
        """What one upload costs each of its rows."""
        return (1 + self._directions.points) * self.row_cost

    @property
    def embedding_cost(self) -> float:
        return self.row_cost

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def look_around(
        self, exchange: int, rows: NDArray[np.uint32]
    ) -> tuple[list[Effect], NDArray[np.float32], NDArray[np.float32]]:
        """c = F(w; x_I) and ĉ_j = F(w + μu_j; x_I) (two-sided: also at w − μu_j), and what must be spent first."""
        inputs = self.batch(rows)
        directions, wide = self._directions, self._wide
        by_rows = (
            0 if wide is None else wide.numbers(rows.size)
        )  # those of wide layers; then those of all other weights
        here_others, near_others = self._others_of(self._vector), self._others_of(self._near_vector)
        sizes = [one.numel() for one in here_others]
        looked = directions.draw_rows(directions.count, by_rows + sum(sizes), self._looking)
        own = torch.split(looked[:, by_rows:].to(self._vector.device), sizes, 1)
        moves: list[torch.Tensor | None] = []
        if wide is None:
            here = self.network.embed(inputs, self.noise)
        else:
            here, passed = wide.looked_into(inputs)
            moves = wide.moves(inputs, passed, looked[:, :by_rows])
            self._near_vector.copy_(self._vector)
        around = []
        for number in range(directions.count):
            for side in (1, -1) if directions.two_sided else (1,):
                radius = side * directions.radius
                for at, near, one in zip(here_others, near_others, own, strict=True):
                    torch.add(at, one[number], alpha=radius, out=near)
                moved = [None if move is None else move[number] * radius for move in moves]
                around.append(self._near.embed(inputs, self.noise, moved))
        if wide is not None:
            self._looked_at[exchange], self._passed[exchange] = rows, passed
        self._pending[exchange] = looked
        self.uploads += 1
        spent = [effect for _ in range(1 + len(around)) for effect in self.spent(rows)]
        perturbed = around[0].numpy()[None] if len(around) == 1 else torch.stack(around).numpy()
        return spent, here.numpy(), perturbed

    def apply(self, exchange: int, losses: NDArray[np.float64]) -> bool:
        """w ← w − η · mean_j φ(d) slope_j u_j, or a scale-free step. False if no upload of that number waits."""
        looked = self._pending.get(exchange)
        if looked is None:
            return False
        if losses.shape != (1 + self._directions.points,):
            raise ProtocolError(
                f"{self._seat.label_party} sent {losses.size} losses for exchange {exchange}; "
                f"{1 + self._directions.points} embeddings were sent to it."
            )
        slopes = self._directions.slopes(losses)
        slopes = slopes * (self._directions.factor(looked.shape[1]) / len(slopes))
        check_magnitude(self._seat.label_party, "losses with slopes", slopes, MOST_TOLD)
        del self._pending[exchange]
        if self._wide is not None and exchange not in self._passed:
            self.steps += 1  # made by an earlier version, which moved other things: nothing is learnt from it
            return True
        if len(slopes) == 1:  # the direction is not needed any more
            estimate = looked.view(-1).mul_(slopes.item())
        else:
            estimate = torch.from_numpy(slopes.astype(np.float32)) @ looked
        if self._wide is not None:
            rows, passed = self._looked_at.pop(exchange), self._passed.pop(exchange)
            by_rows, drawn = estimate.tensor_split([self._wide.numbers(rows.size)])
            estimate = torch.empty_like(self._vector)
            for some in self._wide.along(self.batch(rows), passed, by_rows):
                estimate[some.place : some.place + some.numbers.numel()] = some.numbers
            others = self._others_of(estimate)
            for own, found in zip(others, torch.split(drawn, [one.numel() for one in others]), strict=True):
                own.copy_(found)
        self._optimiser.step([estimate.to(self._vector.device)])
        self.steps += 1
        return True

    def _others_of(self, vector: torch.Tensor) -> list[torch.Tensor]:
        """Of all weights, those that directions move themselves."""
        return [vector] if self._wide is None else self._wide.others(vector)

    def forget_uploads(self) -> None:
        self._pending.clear()
        self._looked_at.clear()
        self._passed.clear()

    def forget_upload(self, exchange: int) -> bool:
        self._looked_at.pop(exchange, None)
        self._passed.pop(exchange, None)
        return self._pending.pop(exchange, None) is not None

    def forget_all_but(self, newest: int) -> None:
        """Drop uploads that have waited longest, so that so many are left."""
        for exchange in [*self._pending][: max(0, len(self._pending) - newest)]:
            self.forget_upload(exchange)

    def restart(self, scale: float) -> None:
        """Begin anew with steps of that share of their length."""
        self._optimiser.restart(scale)

    def module(self) -> torch.nn.Module:
        return self.network.module()
