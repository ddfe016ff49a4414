"""A feature party's model that needs no memory but its own: no second copy of the weights, no stored direction.

A direction is a seed. Perturbing, looking the other way, restoring and updating each draw it again, piece by piece,
and move the weights in place (S. Malladi et al., "Fine-Tuning Language Models with Just Forward Passes", 2023). What
wide layers give is moved in place of their weights (parts/wide_layer.py).

Adding and subtracting floats drifts; here it does not. Weights and moves are whole multiples of 2⁻²⁰, and float32
adds such numbers exactly while they stay below 2⁴: its significand has 24 bits. So w + r − 2r + r is w, bit for bit.
A weight beyond ±8 is refused, or kept at ±8 where steps are scale-free, which leaves room for any move while λ is at
most 1. Rounding changes λu ≈ 10⁻³ by at most 5·10⁻⁷, and a step by as much.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.bounds import MOST_TOLD, check_magnitude
from colonnade.algorithms.parts.optimiser import scale_free_rate, what_is_left
from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.seats import FeatureSeat
from colonnade.algorithms.split_models.parts.directions import Directions
from colonnade.algorithms.split_models.parts.embedder import Embedder
from colonnade.algorithms.split_models.parts.steps import SlopeSpread, optimiser_of_bottom
from colonnade.algorithms.split_models.parts.wide_layer import DirectionPart, wide_layers
from colonnade.errors import ProtocolError, SettingsError, TrainingError
from colonnade.models.flat import flatten
from colonnade.models.network import network_for
from colonnade.party import Effect
from colonnade.state import State, custom, generator, rows_by_number, tensors_by_number, value

GRID = 2.0**-20
LIMIT = 8.0
PIECE = 1 << 16  # numbers drawn at a time: bounds the memory beside the weights to a few hundred kilobytes


class SeedReplayBottom(Embedder):
    """w of one feature party on the grid, and the seeds of its uploads that await a reply."""

    def _save_spread(self, state: State) -> None:
        if self._chosen.name == "scale-free":
            state.add("spread", self._spread.state())
        if self._scale != 1.0:
            state.values["scale"] = self._scale

    def _load_spread(self, state: State) -> None:
        if self._chosen.name == "scale-free":
            self._spread.restore(state.part("spread"))
        self._scale = state.values.get("scale", 1.0)

    MEMORY = (
        generator("_seeds"),
        custom("_spread", "_scale", save=_save_spread, load=_load_spread),
        value("uploads", "steps"),
        rows_by_number("_looked_at"),
        tensors_by_number("_passed"),
        value(
            "_pending",
            saved=lambda pending: [
                [exchange, *(number for one in drawn for number in one)] for exchange, drawn in pending.items()
            ],
            restored=lambda saved: {
                exchange: [*zip(drawn[::2], drawn[1::2], strict=True)] for exchange, *drawn in saved
            },
        ),
    )
    DERIVED = ("_vector", "_pieces", "_moved_pieces", "_room", "_replay")

    def restored(self) -> None:
        self._check_range()

    def __init__(self, seat: FeatureSeat, directions: Directions) -> None:
        super().__init__(seat, network_for(seat.bottom, device=seat.device, compiled=seat.training.compile))
        training, chosen = seat.training, optimiser_of_bottom(seat)
        if chosen.name not in ("sgd", "scale-free"):
            raise SettingsError(
                f"training.optimiser is {training.optimiser!r}, but dpzv holds nothing beside the weights: use "
                "'sgd' or 'scale-free'."
            )
        self._directions = directions
        # A sphere is drawn as Gaussian and brought to its radius, which only the whole direction knows.
        drawn = "gaussian" if directions.distribution == "sphere" else directions.distribution
        self._drawn = replace(directions, distribution=drawn)
        self._chosen, self._l2, self._l1 = chosen, training.l2, training.l1
        # An honest slope is clipped, then noised. A plain step by more than twice LIMIT would carry nearly all weights
        # out; the length of a scale-free one does not depend on the slope's.
        largest_slope = seat.settings.largest_slope + 100 * seat.settings.noise
        if chosen.name == "sgd":
            farthest = 2 * LIMIT / chosen.learning_rate
            self._most_slope = max(farthest, largest_slope if math.isfinite(largest_slope) else 0.0)
        else:
            self._most_slope = min(largest_slope, MOST_TOLD)
        self._spread = SlopeSpread()
        self._scale = 1.0
        self._vector = flatten([self.network], seat.name)
        self._vector.div_(GRID).round_().mul_(GRID)
        self._pieces = torch.split(self._vector, PIECE)
        self._wide = wide_layers(seat, chosen, self.network)
        by_rows, others = 0, [self._vector]
        if self._wide is not None:
            by_rows, others = self._wide.numbers(training.batch_size), self._wide.others(self._vector)
        # The best step along a direction is as long as its cosine with the gradient, 1/√d among d coordinates: among
        # those that are drawn, where they are fewer than the weights.
        self._coordinates = by_rows + sum(one.numel() for one in others)
        self._moved_pieces = [piece for one in others for piece in torch.split(one, PIECE)]
        # No coordinate of a direction is larger than this, rounding included. Nothing is known of a Gaussian one, nor
        # of what l2 does if the learning rate is absurd: then the range is looked at after every step.
        largest = {"sphere": 1.01 * math.sqrt(self._vector.numel()), "signs": 1.01}
        known = not training.l2 and self._wide is None
        self._largest = largest.get(directions.distribution, math.inf) if known else math.inf
        self._room = 0.0  # by how much every weight may still move before one could be beyond LIMIT
        self._check_range()
        self._seeds = generator_for(seat.secret, seat.name, "directions")
        self._replay = torch.Generator()
        # exchange → of each direction its seed, and the factor that makes its norm √d
        self._pending: dict[int, list[tuple[int, float]]] = {}
        self._looked_at: dict[int, NDArray[np.uint32]] = {}  # exchange → rows, where layers are wide
        self._passed: dict[int, torch.Tensor] = {}  # and what their moves follow from
        self.uploads = 0
        self.steps = 0

    @property
    def upload_cost(self) -> float:
        """What one upload costs each of its rows."""
        return self._directions.points * self.row_cost

    @property
    def embedding_cost(self) -> float:
        return self.row_cost

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def look_both_ways(
        self, exchange: int, rows: NDArray[np.uint32]
    ) -> tuple[list[Effect], NDArray[np.float32], NDArray[np.float32]]:
        """F(w + λu_j; x_I) and F(w − λu_j; x_I) of each direction in turn; afterwards w has the bits it had."""
        inputs = self.batch(rows)
        if self._wide is not None:
            self._looked_at[exchange], self._passed[exchange] = rows, self._wide.looked_into(inputs)[1]
        drawn, plus, minus = [], [], []
        for _ in range(self._directions.count):
            seed = int(torch.randint(2**62, (), generator=self._seeds))
            factor = self._factor(seed, rows.size)
            radius = self._directions.radius * factor
            ahead = self._moves(exchange, inputs, seed, radius)
            self._move(seed, radius, 1)
            plus.append(self.network.embed(inputs, self.noise, ahead))
            self._move(seed, radius, -2)
            minus.append(self.network.embed(inputs, self.noise, [one if one is None else one.neg() for one in ahead]))
            self._move(seed, radius, 1)
            drawn.append((seed, factor))
        self._pending[exchange] = drawn
        self.uploads += 1
        spent = [effect for _ in range(self._directions.points) for effect in self.spent(rows)]
        if len(drawn) == 1:
            return spent, plus[0].numpy(), minus[0].numpy()
        return spent, torch.cat(plus).numpy(), torch.cat(minus).numpy()

    def apply(self, exchange: int, slopes: Sequence[float]) -> bool:
        """w ← w − η (mean_j Δ_j u_j + ∇r(w)), rounded to the grid. False if no upload of that number waits.

        The scale-free step has Δ_j over the spread of all Δ so far in the place of Δ_j, and their sum over √q: one
        number is remembered.
        """
        pending = self._pending.get(exchange)
        if pending is None:
            return False
        if len(slopes) != len(pending):
            raise ProtocolError(
                f"{self._seat.label_party} sent {len(slopes)} slopes for exchange {exchange}; {len(pending)} pairs "
                "were sent to it."
            )
        for slope in slopes:
            check_magnitude(self._seat.label_party, "a slope", slope, self._most_slope)
        del self._pending[exchange]
        if self._wide is not None and exchange not in self._passed:
            self.steps += 1  # made by an earlier version, which moved other things: nothing is learnt from it
            return True
        share = 1 / len(slopes)
        rate = self._scale * self._chosen.learning_rate
        if self._chosen.name == "scale-free":
            rate = scale_free_rate(rate, self._coordinates, self._chosen.planned_steps, self.steps)
            slopes, share = [self._spread.relative(slope) for slope in slopes], math.sqrt(share)
        elif self._chosen.falls:
            rate *= what_is_left(self.steps, self._chosen.planned_steps)
        wide = self._wide
        if wide is not None:
            inputs, passed = self.batch(self._looked_at.pop(exchange)), self._passed.pop(exchange)
        if self._l2:
            decay = 1 - rate * self._l2
            self._vector.mul_(decay).div_(GRID).round_().mul_(GRID)
        for (seed, factor), slope in zip(pending, slopes, strict=True):
            self._move(seed, rate * share * slope * factor, -1)
            if wide is not None:
                self._step_along(
                    wide.along(inputs, passed, self._by_rows(seed, len(inputs))),
                    len(inputs),
                    rate * share * slope * factor,
                )
            self._room -= abs(rate * share * slope) * self._largest + GRID
        if self._l1:
            threshold = round(rate * self._l1 / GRID) * GRID
            for piece in self._pieces:
                piece.sub_(piece.clamp(-threshold, threshold))
        if not self._room > 0:
            if self._chosen.name == "scale-free":
                self._vector.clamp_(-LIMIT, LIMIT)  # its length says nothing of the slope's: no sign of divergence
            self._check_range()
        self.steps += 1
        return True

    def _move(self, seed: int, scale: float, times: int) -> None:
        """w ← w + times · r, where r is scale · u rounded to the grid."""
        replay = self._replay.manual_seed(seed)
        steps = abs(scale) / GRID
        step = math.copysign(times, times * scale) * GRID
        for piece in self._moved_pieces:
            piece.add_(self._drawn.draw_scaled(piece.numel(), replay, steps).round_().to(piece.device), alpha=step)

    def _by_rows(self, seed: int, rows: int) -> torch.Tensor:
        """What is drawn for the rows of a batch, in the place of wide layers' weights."""
        assert self._wide is not None
        return self._drawn.draw(self._wide.numbers(rows), self._replay.manual_seed(seed + 1))

    def _moves(self, exchange: int, inputs: torch.Tensor, seed: int, radius: float) -> list[torch.Tensor | None]:
        """Of what wide layers give."""
        if self._wide is None:
            return []
        moves = self._wide.moves(inputs, self._passed[exchange], self._by_rows(seed, len(inputs))[None])
        return [None if move is None else move[0].mul_(radius) for move in moves]

    def _step_along(self, directions: Iterator[DirectionPart], rows: int, scale: float) -> None:
        """A wide layer's w ← w − scale · Σ_i (x_i/‖x_i‖) v_iᵀ, rounded to the grid.

        A scale-free step is as long as that of a direction of all its weights: √(inputs / rows) times this.
        """
        for place, numbers, inputs in directions:
            stretch = math.sqrt(inputs / rows) if self._chosen.name == "scale-free" else 1.0
            piece = self._vector[place : place + numbers.numel()]
            piece.sub_(numbers.mul_(scale * stretch / GRID).round_().to(piece.device), alpha=GRID)

    def _factor(self, seed: int, rows: int) -> float:
        """What brings the drawn direction to the sphere of radius √d; needs a pass of its own."""
        if self._directions.distribution != "sphere":
            return 1.0
        square, numbers = 0.0, 0
        if self._wide is not None:
            drawn = self._by_rows(seed, rows)
            square, numbers = float(torch.dot(drawn, drawn)), drawn.numel()
        replay = self._replay.manual_seed(seed)
        for piece in self._moved_pieces:
            direction = self._drawn.draw(piece.numel(), replay)
            square += float(torch.dot(direction, direction))
            numbers += piece.numel()
        return math.sqrt(numbers / square)

    def _check_range(self) -> None:
        low, high = torch.aminmax(self._vector)  # abs() would be a copy
        self._room = LIMIT - max(-float(low), float(high))
        if not self._room >= 0:  # so NaN is refused as well
            raise TrainingError(
                f"A weight of {self._seat.name} went beyond ±{LIMIT:g}, where its restoration would no longer be "
                "exact: the training has most likely diverged. Lower training.learning_rate."
            )

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

    def go_back(self, weights: Mapping[str, torch.Tensor]) -> None:
        super().go_back(weights)
        self._check_range()

    def restart(self, scale: float) -> None:
        """Begin anew with steps of that share of their length."""
        self._scale = scale
        self._spread = SlopeSpread()

    def module(self) -> torch.nn.Module:
        return self.network.module()
