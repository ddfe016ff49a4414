"""A feature party's model of first order: columns in, embeddings out, gradients back in.

How it learns from its columns is `privacy.bottom_update`: by the plain gradient; by DP-SGD, whose every step is a
release, spent before anything that depends on it leaves; or not at all ("frozen").
"""

from collections.abc import Mapping
from math import inf
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.optimiser import Optimiser
from colonnade.algorithms.seats import FeatureSeat
from colonnade.algorithms.split_models.parts.budget import RowBudget
from colonnade.algorithms.split_models.parts.embedder import Embedder
from colonnade.errors import ProtocolError, SettingsError
from colonnade.models.contract import Network, Pass
from colonnade.models.device import check_has_doubles
from colonnade.models.flat import FlatModel
from colonnade.models.network import network_for
from colonnade.models.randomness import is_random
from colonnade.models.row_gradients import clipped_sum
from colonnade.party import Effect, Spend
from colonnade.privacy.events import PrivacyEvent
from colonnade.privacy.secret_gaussian import SecretGaussian
from colonnade.state import Memory, Remembering, State, arrays, custom, generator, included, value, weights


class Bottom(Remembering):
    """The bottom model of one feature party, and its uploads that await a reply."""

    def __init__(self, seat: FeatureSeat, several_in_flight: bool = False) -> None:
        if isinstance(seat.bottom, FlatModel):
            raise SettingsError(
                f"The bottom model of {seat.name} is a FlatModel, which has no gradients, but this algorithm needs "
                "them. Choose cascaded, zoo, zoo-sync or dpzv, or give a torch module."
            )
        self._seat = seat.without_model()
        self._several = several_in_flight
        self.network = network_for(seat.bottom, several_in_flight, seat.device, seat.training.compile)
        self._embedder = Embedder(seat, self.network)
        self._generator = self._embedder.generator
        self._optimiser = Optimiser(
            self.network.parameters, seat.training.bottom_optimiser(seat.training.steps(len(seat.columns.train)))
        )
        self._random = seat.privacy.inner_noise > 0 or is_random(seat.bottom) or self._embedder.drops_rows
        self._update = seat.privacy.bottom_update
        if self._update == "dp-sgd":
            check_has_doubles(seat.device, seat.name)
        if self._update != "frozen":
            self._embedder.check_rows_apart(seat, training=True)
        self._update_noise = SecretGaussian(seat.secret, seat.name, "updates")
        self._owed: list[NDArray[np.uint32]] = []  # rows of DP-SGD steps that nothing has been sent after
        self._pending: dict[int, _Pending] = {}
        self.uploads = 0
        self.steps = 0

    @property
    def budget(self) -> RowBudget:
        return self._embedder.budget

    @property
    def upload_cost(self) -> float:
        """What one upload costs each of its rows, with the step that follows from its reply."""
        return self._embedder.row_cost + self._update_cost

    @property
    def _update_cost(self) -> float:
        privacy = self._seat.privacy
        if self._update != "dp-sgd":
            return 0.0
        return (self._update_sensitivity / privacy.update_noise) ** 2 if privacy.update_noise > 0 else inf

    @property
    def _update_sensitivity(self) -> float:
        """2C/B. The sum of clipped gradients is divided by B even in a short batch, so that one costs no more."""
        return 2 * self._seat.privacy.update_clip / self._seat.training.batch_size

    @property
    def embedding_cost(self) -> float:
        return self._embedder.row_cost

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def upload(self, exchange: int, rows: NDArray[np.uint32]) -> tuple[list[Effect], NDArray[np.float32]]:
        """h = h_m(θ_m; x_I), kept until its gradient comes; with what must be spent before it is sent."""
        before = self._remembered()
        outputs, kept = self._forward(self.network, rows)
        self._pending[exchange] = _Pending(rows, kept, before, self.network)
        self.uploads += 1
        self.budget.spend(rows, self._update_cost)  # now, so that it is there when the reply comes
        return [*self._pay(), *self._embedder.spent(rows)], outputs.numpy()

    def _forward(self, network: Network, rows: NDArray[np.uint32]) -> tuple[torch.Tensor, Pass]:
        inputs = self._embedder.batch(rows)
        if self._update == "frozen":
            return network.embed(inputs, self._embedder.noise), Pass()
        return network.forward(inputs, self._embedder.noise)

    def apply(self, exchange: int, gradient: NDArray[np.float32]) -> bool:
        """θ_m ← θ_m − η (∂h_m/∂θ_mᵀ · gradient) − η ∇r, at the parameters the upload was made with.

        False if no upload of that number waits: a reply is applied once or not at all.
        """
        pending = self._pending.get(exchange)
        if pending is None:
            return False
        if gradient.shape != (pending.rows.size, self._seat.width):
            raise ProtocolError(
                f"{self._seat.label_party} answered exchange {exchange} with a gradient of shape {gradient.shape}; "
                f"uploaded was {(pending.rows.size, self._seat.width)}."
            )
        del self._pending[exchange]
        self.steps += 1
        if self._update == "frozen":
            return True
        by_outputs = torch.from_numpy(gradient)
        if self._update == "dp-sgd":
            gradients = self._noised_gradients(pending, by_outputs)
        else:
            gradients, _ = pending.network.backward(pending.kept, by_outputs)
        self._optimiser.step(gradients)
        return True

    def _noised_gradients(self, pending: "_Pending", by_outputs: torch.Tensor) -> list[torch.Tensor]:
        """DP-SGD: every row's gradient clipped to norm C, their sum over B, noise on every coordinate.

        What came back is the gradient of a mean; a row's own is as many times larger as there are rows. It depends on
        no other row's columns but through what was sent, so changing one row changes one term.
        """
        privacy = self._seat.privacy
        by_row, _ = pending.network.row_gradients(pending.kept, by_outputs * float(pending.rows.size))
        sums = clipped_sum([by_row], privacy.update_clip)
        self._owed.append(pending.rows)
        release = privacy.update_noise, self._update_sensitivity, sum(one.numel() for one in sums)
        means = [one.div_(self._seat.training.batch_size).cpu() for one in sums]
        return [self._update_noise.added_to(one, *release).float().to(self._seat.device) for one in means]

    def _pay(self) -> list[Effect]:
        """What must be spent before anything computed with this model leaves: the steps that went into it."""
        owed, self._owed = self._owed, []
        return [
            Spend(
                PrivacyEvent(
                    mechanism="gaussian",
                    sensitivity=self._update_sensitivity,
                    noise=self._seat.privacy.update_noise,
                    rows=rows.size,
                    row_ids=rows,
                    protects=f"columns of {self._seat.name}, training rows",
                    viewers=(self._seat.label_party,),
                )
            )
            for rows in owed
        ]

    def forget_uploads(self) -> None:
        """Drop uploads that will get no reply."""
        self._pending.clear()

    def forget_upload(self, exchange: int) -> bool:
        """Drop one of them; False if there is none of that number."""
        return self._pending.pop(exchange, None) is not None

    def forget_all_but(self, newest: int) -> None:
        """Drop uploads that have waited longest, so that so many are left."""
        for exchange in [*self._pending][: max(0, len(self._pending) - newest)]:
            self.forget_upload(exchange)

    def embed(self, rows: NDArray[np.uint32]) -> tuple[list[Effect], NDArray[np.float32]]:
        spent, embedding = self._embedder.embed(rows)
        return [*self._pay(), *spent], embedding

    def embed_test(self, first_row: int, row_count: int) -> tuple[list[Effect], NDArray[np.float32]]:
        spent, embedding = self._embedder.embed_test(first_row, row_count)
        return [*self._pay(), *spent], embedding

    def embed_validation(self, first_row: int, row_count: int) -> tuple[list[Effect], NDArray[np.float32]]:
        spent, embedding = self._embedder.embed_validation(first_row, row_count)
        return [*self._pay(), *spent], embedding

    def go_back(self, weights: Mapping[str, torch.Tensor]) -> None:
        self._embedder.go_back(weights)

    def restart(self, scale: float) -> None:
        """Begin anew with steps of that share of their length."""
        self._optimiser.restart(scale)

    def module(self) -> torch.nn.Module:
        return self.network.module()

    # --- state: an upload in flight is saved as what it was computed from, and computed again ---

    def _remembered(self) -> "_Before":
        """What is needed to repeat a forward pass, as cheap as the settings allow."""
        weights = self.network.state() if self._several else None
        generator = self._generator.get_state() if self._random else None
        gaussian = self._embedder.gaussian.get_state() if self._seat.privacy.noise > 0 else None
        return _Before(generator, gaussian, weights)

    def _save_pending(self, state: State) -> None:
        state.values["pending"] = [{"exchange": exchange} for exchange in self._pending]
        for exchange, waiting in self._pending.items():
            key, before = f"pending.{exchange}", waiting.before
            state.put(f"{key}.rows", waiting.rows)
            drawn_from = {"gaussian": before.gaussian, "generator": before.generator}
            state.tensors.update({f"{key}.{name}": held for name, held in drawn_from.items() if held is not None})
            state.tensors.update({f"{key}.model.{name}": held for name, held in (before.weights or {}).items()})

    def _load_pending(self, state: State) -> None:
        self._pending.clear()
        for entry in state.values["pending"]:
            saved = state.part(f"pending.{entry['exchange']}")
            older = saved.part("model").tensors or None
            # A network of its own: what a forward pass kept must not be touched by loading weights afterwards.
            again = network_for(self.network.module(), self._several, self._seat.device, self._seat.training.compile)
            again.generator = self._generator
            again.load(older or state.part("model").tensors)
            before = _Before(saved.tensors.get("generator"), saved.tensors.get("gaussian"), older)
            if before.gaussian is not None:
                self._embedder.gaussian.set_state(before.gaussian)
            if before.generator is not None:
                self._generator.set_state(before.generator)
            rows = saved.take("rows", np.uint32)
            self._pending[entry["exchange"]] = _Pending(rows, self._forward(again, rows)[1], before, again)

    MEMORY: ClassVar[tuple[Memory, ...]] = (
        # First: to repeat a forward pass, it sets the sources of randomness back, and they are restored afterwards.
        custom("_pending", save=_save_pending, load=_load_pending),
        included("_embedder"),
        *(weights("_optimiser"), generator("_update_noise"), arrays("_owed", dtype=np.uint32)),
        value("uploads", "steps"),
    )


class _Before:
    """What a forward pass was computed from, besides its rows."""

    __slots__ = ("gaussian", "generator", "weights")

    def __init__(
        self,
        generator: torch.Tensor | None,
        gaussian: torch.Tensor | None,
        weights: dict[str, torch.Tensor] | None,
    ) -> None:
        self.generator = generator
        self.gaussian = gaussian
        self.weights = weights


class _Pending:
    """An upload that awaits its reply."""

    __slots__ = ("before", "kept", "network", "rows")

    def __init__(self, rows: NDArray[np.uint32], kept: Pass, before: _Before, network: Network) -> None:
        self.rows = rows
        self.kept = kept
        self.before = before
        self.network = network
