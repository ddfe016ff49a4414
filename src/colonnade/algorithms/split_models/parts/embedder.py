"""A feature party's rows, embedded: whatever leaves has passed the perturbation.

Training, warm-up, refresh and evaluation alike; a noised value comes with the privacy event that must be spent first.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.seats import FeatureSeat
from colonnade.algorithms.split_models.parts.budget import RowBudget, budget_mu, cost_of
from colonnade.data.absence import drop
from colonnade.errors import ProtocolError, SettingsError
from colonnade.models.contract import Network
from colonnade.models.network import rows_mix
from colonnade.party import Effect, Spend
from colonnade.privacy.noise import LayerNoise
from colonnade.privacy.secret_gaussian import SecretGaussian
from colonnade.state import Memory, Remembering, Remembers, generator, group, optional_part, part, weights

_LOOKED_AT_ROWS, _TRIED_ROWS = 256, 8


class Embedder(Remembering):
    """One party's columns, a network to embed them with, and the noise on what comes out."""

    MEMORY: ClassVar[tuple[Memory, ...]] = (
        weights("network", "model"),
        generator("generator"),
        generator("gaussian"),
        group(
            "budget",
            part("budget", "train"),
            part("_test_budget", "test"),
            optional_part("_validation_budget", "validation"),
        ),
    )

    def __init__(self, seat: FeatureSeat, network: Network) -> None:
        self._seat = seat.without_model()
        self.network = network
        # Of random layers, of noise inside, and of rows that are dropped.
        self.generator = generator_for(seat.secret, seat.name, "noise")
        self.gaussian = SecretGaussian(seat.secret, seat.name, "embeddings")
        self.network.generator = self.generator
        self.noise = LayerNoise(seat.privacy, self.generator, self.gaussian) if seat.privacy.active else None
        self.check_rows_apart(seat, training=False)
        privacy = seat.privacy
        mu = budget_mu(privacy.columns_epsilon, privacy.delta, privacy.formula)
        self.budget = RowBudget(len(seat.columns.train), mu)
        self._test_budget = RowBudget(len(seat.columns.test), mu)
        apart = seat.columns.validation
        self._validation_budget = None if apart is None else RowBudget(len(apart), mu)
        self._begin_with(seat.spent)
        # What one embedding of a row costs it.
        self.row_cost = (privacy.sensitivity / privacy.noise) ** 2 if privacy.noise > 0 else inf

    def _begin_with(self, spent: Mapping[str, NDArray[np.float64]] | None) -> None:
        """What rows have cost in trainings before this one."""
        if spent is None:
            return
        self.budget.begin_with(spent["training rows"])
        self._test_budget.begin_with(spent["test rows"])
        if self._validation_budget is not None:
            self._validation_budget.begin_with(spent["validation rows"])

    def check_rows_apart(self, seat: FeatureSeat, training: bool) -> None:
        """Refuse noise on the outputs of a module in which one row moves the others': it covers one row's."""
        if seat.privacy.noise > 0 and not self.network.trains_as_it_embeds:  # those of dense layers never do
            spread = seat.columns.train[:: max(1, len(seat.columns.train) // _LOOKED_AT_ROWS)]
            different = torch.unique(spread, dim=0)[:_TRIED_ROWS]
            if rows_mix(seat.bottom, different, training):
                raise SettingsError(
                    f"privacy.noise is for rows that do not depend on one another, but in the bottom model of "
                    f"{seat.name} a row's embedding depends on the others of its batch, as with batch normalisation. "
                    'Use layer or group normalisation; batch normalisation also does with bottom_update = "frozen".'
                )

    @property
    def drops_rows(self) -> bool:
        """Whether it takes rows that it has as absent, at random, so that all models learn what absence is like."""
        return bool(self._seat.columns.drop_share)

    def batch(self, rows: NDArray[np.uint32]) -> torch.Tensor:
        """The columns of these training rows, some of which are dropped."""
        train = self._seat.columns.train
        if rows.size and int(rows.max()) >= len(train):
            raise ProtocolError(
                f"{self._seat.label_party} asked {self._seat.name} for row {int(rows.max())}; it has {len(train)}."
            )
        chosen = train.index_select(0, torch.from_numpy(rows.view(np.int32)))
        share = self._seat.columns.drop_share
        return drop(chosen, share, self.generator) if share else chosen

    def spent(self, rows: NDArray[np.uint32], which: str = "training rows") -> list[Effect]:
        """What must be spent before one embedding of each of these rows is sent."""
        if self.noise is None:
            return []
        protects = f"columns of {self._seat.name}, {which}"
        event = self.noise.event(rows.size, protects, (self._seat.label_party,), rows)
        if event is None:
            return []
        budgets = {"training rows": self.budget, "test rows": self._test_budget}
        budget = budgets.get(which, self._validation_budget)
        assert budget is not None
        budget.spend(rows, cost_of(event))
        return [Spend(event)]

    def embed(self, rows: NDArray[np.uint32]) -> tuple[list[Effect], NDArray[np.float32]]:
        """Embeddings of training rows outside an exchange: warm-up and refresh. Of rows that can be afforded."""
        outputs = self.network.embed(self.batch(rows), self.noise)
        return self.spent(rows), outputs.numpy()

    def embed_test(self, first_row: int, row_count: int) -> tuple[list[Effect], NDArray[np.float32]]:
        """Embeddings of test rows, for scoring; of none, once their budget is spent: the last known ones serve."""
        return self._embed_scored(self._seat.columns.test, self._test_budget, first_row, row_count, "test rows")

    def embed_validation(self, first_row: int, row_count: int) -> tuple[list[Effect], NDArray[np.float32]]:
        """The same of validation rows."""
        rows, budget = self._seat.columns.validation, self._validation_budget
        assert rows is not None and budget is not None
        return self._embed_scored(rows, budget, first_row, row_count, "validation rows")

    def _embed_scored(
        self, columns: Any, budget: RowBudget, first_row: int, row_count: int, which: str
    ) -> tuple[list[Effect], NDArray[np.float32]]:
        if first_row + row_count > len(columns):
            raise ProtocolError(
                f"{self._seat.label_party} asked for the {which} {first_row} to {first_row + row_count}; there are "
                f"{len(columns)}."
            )
        rows = np.arange(first_row, first_row + row_count, dtype=np.uint32)
        if row_count == 0 or not budget.affordable(rows, self.row_cost).all():
            return [], np.zeros((0, self._seat.width), np.float32)
        outputs = self.network.score(columns[first_row : first_row + row_count], self.noise)
        return self.spent(rows, which), outputs.numpy()

    def go_back(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take up the weights that the network had when `network.state()` gave these."""
        self.network.load(weights)


class WaitingUploads:
    """What a bottom model keeps of its uploads, by exchange, until their replies are there; the oldest first."""

    def _kept_of_uploads(self) -> Sequence[dict[int, Any]]:
        """The first has every upload that waits."""
        raise NotImplementedError

    @property
    def in_flight(self) -> int:
        return len(self._kept_of_uploads()[0])

    def forget_uploads(self) -> None:
        """Drop uploads that will get no reply."""
        for kept in self._kept_of_uploads():
            kept.clear()

    def forget_upload(self, exchange: int) -> bool:
        """Drop one of them; False if there is none of that number."""
        waiting, *others = self._kept_of_uploads()
        for kept in others:
            kept.pop(exchange, None)
        return waiting.pop(exchange, None) is not None

    def forget_all_but(self, newest: int) -> None:
        """Drop uploads that have waited longest, so that so many are left."""
        waiting = self._kept_of_uploads()[0]
        for exchange in [*waiting][: max(0, len(waiting) - newest)]:
            self.forget_upload(exchange)


class BottomModel(Remembers, Protocol):
    """A feature party's model and its uploads that await a reply (parts/bottom.py, parts/zeroth_bottom.py)."""

    uploads: int  # made so far: the next upload's number
    steps: int  # replies applied so far

    @property
    def in_flight(self) -> int: ...

    @property
    def budget(self) -> RowBudget: ...

    @property
    def upload_cost(self) -> float: ...

    @property
    def embedding_cost(self) -> float: ...

    def embed(self, rows: NDArray[np.uint32]) -> tuple[list[Effect], NDArray[np.float32]]: ...

    def embed_test(self, first_row: int, row_count: int) -> tuple[list[Effect], NDArray[np.float32]]: ...

    def embed_validation(self, first_row: int, row_count: int) -> tuple[list[Effect], NDArray[np.float32]]: ...

    def go_back(self, weights: Mapping[str, torch.Tensor]) -> None: ...

    def restart(self, scale: float) -> None: ...

    def forget_uploads(self) -> None: ...

    def forget_upload(self, exchange: int) -> bool: ...

    def forget_all_but(self, newest: int) -> None: ...

    def module(self) -> torch.nn.Module: ...
