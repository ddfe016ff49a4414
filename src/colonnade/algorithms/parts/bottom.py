"""A feature party's model of first order: columns in, embeddings out, gradients back in."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.embedder import Embedder
from colonnade.algorithms.parts.optimiser import Optimiser
from colonnade.algorithms.parts.seats import FeatureSeat
from colonnade.errors import ProtocolError, SettingsError
from colonnade.models.flat import FlatModel
from colonnade.models.network import Network, Pass, network_for
from colonnade.models.randomness import is_random
from colonnade.party import Effect, State


class Bottom:
    """The bottom model of one feature party, and its uploads that await a reply."""

    def __init__(self, seat: FeatureSeat, several_in_flight: bool = False) -> None:
        if isinstance(seat.bottom, FlatModel):
            raise SettingsError(
                f"The bottom model of {seat.name} is a FlatModel, which has no gradients, but this algorithm needs "
                "them. Choose cascaded, zoo, zoo-sync or dpzv, or give a torch module."
            )
        self._seat = seat.without_model()
        self._several = several_in_flight
        self.network = network_for(seat.bottom, snapshots=several_in_flight)
        self._embedder = Embedder(seat, self.network)
        self._generator = self._embedder.generator
        self._optimiser = Optimiser(self.network.parameters, seat.training.bottom_optimiser())
        self._random = seat.privacy.active or is_random(seat.bottom)
        self._pending: dict[int, _Pending] = {}
        self.uploads = 0
        self.steps = 0

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def upload(self, exchange: int, rows: NDArray[np.uint32]) -> tuple[list[Effect], NDArray[np.float32]]:
        """h = h_m(θ_m; x_I), kept until its gradient comes; with what must be spent before it is sent."""
        before = self._remembered()
        outputs, kept = self.network.forward(self._embedder.batch(rows), self._embedder.noise)
        self._pending[exchange] = _Pending(rows, kept, before, self.network)
        self.uploads += 1
        return self._embedder.spent(rows), outputs.numpy()

    def apply(self, exchange: int, gradient: NDArray[np.float32]) -> bool:
        """θ_m ← θ_m − η (∂h_m/∂θ_mᵀ · gradient) − η ∇r, at the parameters the upload was made with.

        False if no upload of that number waits: a reply is applied once or not at all.
        """
        pending = self._pending.pop(exchange, None)
        if pending is None:
            return False
        if gradient.shape != (pending.rows.size, self._seat.width):
            self._pending[exchange] = pending
            raise ProtocolError(
                f"The gradient for exchange {exchange} has shape {gradient.shape}; "
                f"uploaded was {(pending.rows.size, self._seat.width)}."
            )
        gradients, _ = pending.network.backward(pending.kept, torch.from_numpy(gradient))
        self._optimiser.step(gradients)
        self.steps += 1
        return True

    def forget_uploads(self) -> None:
        """Drop uploads that will get no reply."""
        self._pending.clear()

    def embed(self, rows: NDArray[np.uint32]) -> tuple[list[Effect], NDArray[np.float32]]:
        return self._embedder.embed(rows)

    def embed_test(self, first_row: int, row_count: int) -> tuple[list[Effect], NDArray[np.float32]]:
        return self._embedder.embed_test(first_row, row_count)

    def module(self) -> torch.nn.Module:
        return self.network.module()

    # --- state: an upload in flight is saved as what it was computed from, and computed again ---

    def _remembered(self) -> "_Before":
        """What is needed to repeat a forward pass, as cheap as the settings allow."""
        weights = self.network.state() if self._several else None
        return _Before(self._generator.get_state() if self._random else None, weights)

    def state(self) -> State:
        tensors = {f"model.{name}": tensor for name, tensor in self.network.state().items()}
        tensors.update({f"optimiser.{name}": tensor for name, tensor in self._optimiser.state().items()})
        tensors["generator"] = self._generator.get_state()
        pending: list[dict[str, Any]] = []
        for exchange, waiting in self._pending.items():
            pending.append({"exchange": exchange})
            tensors[f"pending.{exchange}.rows"] = torch.from_numpy(waiting.rows.view(np.int32).copy())
            if waiting.before.generator is not None:
                tensors[f"pending.{exchange}.generator"] = waiting.before.generator
            for name, tensor in (waiting.before.weights or {}).items():
                tensors[f"pending.{exchange}.model.{name}"] = tensor
        return State(tensors, {"uploads": self.uploads, "steps": self.steps, "pending": pending})

    def restore(self, state: State) -> None:
        weights = state.part("model").tensors
        self.uploads = state.values["uploads"]
        self.steps = state.values["steps"]
        self._pending.clear()
        for entry in state.values["pending"]:
            exchange: int = entry["exchange"]
            saved = state.part(f"pending.{exchange}").tensors
            rows = saved["rows"].numpy().view(np.uint32)
            before = State(saved).part("model").tensors or None
            # A network of its own: what a forward pass kept must not be touched by loading weights afterwards.
            again = network_for(self.network.module(), snapshots=self._several)
            again.generator = self._generator
            again.load(before or weights)
            if "generator" in saved:
                self._generator.set_state(saved["generator"])
            _, kept = again.forward(self._embedder.batch(rows), self._embedder.noise)
            self._pending[exchange] = _Pending(rows, kept, _Before(saved.get("generator"), before), again)
        self.network.load(weights)
        self._optimiser.load(state.part("optimiser").tensors)
        self._generator.set_state(state.tensors["generator"])


class _Before:
    """What a forward pass was computed from, besides its rows."""

    __slots__ = ("generator", "weights")

    def __init__(self, generator: torch.Tensor | None, weights: dict[str, torch.Tensor] | None) -> None:
        self.generator = generator
        self.weights = weights


class _Pending:
    """An upload that awaits its reply."""

    __slots__ = ("before", "kept", "network", "rows")

    def __init__(self, rows: NDArray[np.uint32], kept: Pass, before: _Before, network: Network) -> None:
        self.rows = rows
        self.kept = kept
        self.before = before
        self.network = network
