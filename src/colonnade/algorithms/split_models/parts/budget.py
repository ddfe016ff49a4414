"""What each row's releases have cost, and what they may: the owner of the protected data counts, and refuses.

A Gaussian release of sensitivity s and noise σ costs a row (s/σ)², and costs add up: μ² = Σ (s/σ)² against anybody who
knows which rows were used. A row is affordable while its sum stays within the budget's μ². The counts are part of the
party's state: a restart does not reset them, and an event that is handled again is counted once.
"""

from collections.abc import Sequence
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.privacy.events import PrivacyEvent
from colonnade.privacy.gaussian import mu_of
from colonnade.state import Remembering, State, custom

_ROWS_A_CALL = 1024  # a look at all rows is shared by so many calls that each pays for so few: a microsecond or less
_HEAP_ROWS = 4096  # rows are added up in heaps: one by one, each would be fetched from slow memory in every exchange
_ROUNDING = 1e-9  # relative: a plan that was calibrated to the budget fits into it


def budget_mu(epsilon: float, delta: float, formula: str) -> float:
    """The μ that a target allows; infinite without one, and where a paper's formula was asked for instead."""
    return mu_of(epsilon, delta) if epsilon > 0 and formula == "sound" else inf


def check_each_once(rows: NDArray[np.uint32], sender: str) -> None:
    """Refuse rows of which one is named again: a release counts each of its rows once, and would tell more of that."""
    if len(set(rows.tolist())) != rows.size:
        raise ProtocolError(f"{sender} named a row twice in one message, which would tell more of it than is counted.")


def check_rows(rows: NDArray[np.uint32], count: int, sender: str) -> None:
    """Refuse rows that do not exist."""
    if rows.size and int(rows.max()) >= count:
        raise ProtocolError(f"{sender} named row {int(rows.max())}; there are {count}.")


class RowBudget(Remembering):
    """The costs of one party's rows, of training or of testing. No call names a row twice."""

    def __init__(self, rows: int, mu: float) -> None:
        self._limit = mu * mu * (1 + _ROUNDING)
        self._added_up: NDArray[np.float64] = np.zeros(rows if mu < inf else 0)
        self._waiting: list[tuple[NDArray[np.uint32], float]] = []  # rows and costs that are not in it yet
        self._waiting_rows = 0
        # No row has spent more: while that is far from the limit, nobody need look at the rows of every batch.
        self._most = 0.0
        self._most_is_loose = 0  # calls since it was exact

    def begin_with(self, spent: NDArray[np.float64] | None) -> None:
        """What each row has cost before; None: nothing."""
        if self.bounded and spent is not None:
            held = State()
            held.put("spent", spent)
            self.restore(held)

    @property
    def bounded(self) -> bool:
        """Whether there is anything to keep to."""
        return self._limit < inf

    def affordable(self, rows: NDArray[np.uint32], cost: float) -> NDArray[np.bool_]:
        """Which of these rows can be released once more, at that cost in μ²."""
        if not self.bounded:
            return np.ones(rows.size, np.bool_)
        fits: NDArray[np.bool_] = self._spent().take(rows) <= self._limit - cost
        return fits

    def all_affordable(self, rows: NDArray[np.uint32], cost: float) -> bool:
        """Whether each of these rows can."""
        if self._most + cost <= self._limit:
            return True
        if self._most_is_loose * _ROWS_A_CALL >= self._added_up.size:
            self._most, self._most_is_loose = float(self._spent().max()), 0
            if self._most + cost <= self._limit:
                return True
        return bool(self.affordable(rows, cost).all())

    def left(self, cost: float) -> int:
        """How many rows can be released once more."""
        return int((self._spent() <= self._limit - cost).sum())

    def spend(self, rows: NDArray[np.uint32], cost: float) -> None:
        if cost and self.bounded:
            self._waiting.append((rows.copy(), cost))
            self._waiting_rows += rows.size
            self._most += cost
            self._most_is_loose += 1
            if self._waiting_rows >= _HEAP_ROWS:
                self._spent()

    def _spent(self) -> NDArray[np.float64]:
        """What each row has cost so far."""
        if self._waiting:
            costs = [np.full(rows.size, cost) for rows, cost in self._waiting]
            np.add.at(self._added_up, np.concatenate([rows for rows, _ in self._waiting]), np.concatenate(costs))
            self._waiting.clear()
            self._waiting_rows = 0
        return self._added_up

    def _save_spent(self, state: State) -> None:
        state.put("spent", self._spent())

    def _load_spent(self, state: State) -> None:
        self._waiting.clear()
        self._waiting_rows = 0
        self._added_up[:] = state.take("spent")
        self._most, self._most_is_loose = float(self._added_up.max(initial=0.0)), 0

    MEMORY = (custom("_added_up", "_waiting", save=_save_spent, load=_load_spent),)
    DERIVED = ("_waiting_rows", "_most", "_most_is_loose")


class PartyBudgets(Remembering):
    """The costs of the label party's rows, with the same share of each row's budget for every party that asks.

    A party whose share of a row is used up gets no more of it, so that it cannot take the answers that were planned for
    another. The last one within a share may go beyond it: where a budget holds fewer answers than there are parties,
    some would otherwise be left for nobody. All together keep to the whole.
    """

    DERIVED = ("_whole",)  # the sum of the shares

    def __init__(self, rows: int, mu: float, parties: Sequence[str]) -> None:
        self._whole = RowBudget(rows, mu)
        self._of = {party: RowBudget(rows, mu / sqrt(len(parties))) for party in parties}
        self._left = 3 * _ROUNDING * mu * mu / len(parties) if mu < inf else 0.0  # less of a share is none

    def begin_with(self, spent: NDArray[np.float64] | None) -> None:
        """What each row has cost before, in equal shares; None: nothing."""
        if self.bounded and spent is not None:
            held = State()
            held.put("spent", np.tile(spent / len(self._of), len(self._of)))
            self.restore(held)

    @property
    def bounded(self) -> bool:
        return self._whole.bounded

    def affordable(self, party: str, rows: NDArray[np.uint32], cost: float) -> NDArray[np.bool_]:
        """Which of these rows this party can be answered for once more, at that cost in μ²."""
        return self._whole.affordable(rows, cost) & self._of[party].affordable(rows, self._left)

    def all_affordable(self, party: str, rows: NDArray[np.uint32], cost: float) -> bool:
        return self._whole.all_affordable(rows, cost) and self._of[party].all_affordable(rows, self._left)

    def spend(self, party: str, rows: NDArray[np.uint32], cost: float) -> None:
        self._whole.spend(rows, cost)
        self._of[party].spend(rows, cost)

    def _save_spent(self, state: State) -> None:
        state.put("spent", np.concatenate([share.state().take("spent") for share in self._of.values()]))

    def _load_spent(self, state: State) -> None:
        spent, parties = state.take("spent"), len(self._of)
        if spent.size == self._whole.state().take("spent").size:
            spent = np.tile(spent / parties, parties)  # of a run from before there were shares: as if all had the same
        shares = spent.reshape(parties, -1)
        for budget, own in ((self._whole, shares.sum(0)), *zip(self._of.values(), shares, strict=True)):
            held = State()
            held.put("spent", np.ascontiguousarray(own))
            budget.restore(held)

    MEMORY = (custom("_of", save=_save_spent, load=_load_spent),)


def cost_of(event: PrivacyEvent) -> float:
    """(s/σ)² of one release."""
    return (event.sensitivity / event.noise) ** 2
