"""Shapley values of a game: what each player adds, averaged over all orders in which players may come.

φ_m = Σ_S |S|! (M − |S| − 1)! / M! · (v(S ∪ m) − v(S)) over the coalitions S without m; so Σ_m φ_m = v(all) − v(nobody),
exactly. A value is one number per row, and the standard error is that of the mean over rows. With many players orders
are drawn instead, each with its reverse, and how much they differ counts in the standard error too.

Reference: L. S. Shapley, "A value for n-person games", 1953; orders in pairs: R. Mitchell, J. Cooper, E. Frank,
G. Holmes, "Sampling permutations for Shapley value estimation", 2022.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Game = Callable[[frozenset[str]], Values]
"""What a coalition is worth, row by row."""
MOST_EXACT = 6
"""Players whose coalitions, 2⁶ at most, are all tried."""


@dataclass(frozen=True)
class Importance:
    """A mean over rows, and how far it may be off by the choice of rows (and of orders): one standard error."""

    value: float
    standard_error: float


def shapley(players: Sequence[str], game: Game, orders: int, draws: np.random.Generator) -> dict[str, Importance]:
    """What each player is worth; by all coalitions, or by so many orders where there are too many."""
    known: dict[frozenset[str], Values] = {}

    def value(coalition: frozenset[str]) -> Values:
        if coalition not in known:
            known[coalition] = game(coalition)
        return known[coalition]

    if len(players) <= MOST_EXACT:
        return {player: mean_of(_exact(player, players, value)) for player in players}
    return _sampled(players, game, orders, draws)


def mean_of(by_row: Values) -> Importance:
    """The mean of independent rows.

    >>> mean_of(np.array([1.0, 3.0]))
    Importance(value=2.0, standard_error=1.0)
    """
    return Importance(float(by_row.mean()), float(by_row.std(ddof=1) / sqrt(len(by_row))) if len(by_row) > 1 else 0.0)


def _exact(player: str, players: Sequence[str], value: Game) -> Values:
    others, count = [one for one in players if one != player], len(players)
    total: Any = 0.0
    for size in range(count):
        weight = factorial(size) * factorial(count - size - 1) / factorial(count)
        for chosen in combinations(others, size):
            before = frozenset(chosen)
            total = total + weight * (value(before | {player}) - value(before))
    return np.asarray(total, dtype=np.float64)


def _sampled(players: Sequence[str], game: Game, orders: int, draws: np.random.Generator) -> dict[str, Importance]:
    pairs = max(2, orders // 2)
    nobody, everybody = game(frozenset()), game(frozenset(players))
    by_row = {player: np.zeros_like(nobody) for player in players}
    means: dict[str, list[float]] = {player: [] for player in players}
    for _ in range(pairs):
        order = [players[place] for place in draws.permutation(len(players))]
        added = {player: np.zeros_like(nobody) for player in players}
        for one in (order, order[::-1]):
            before, present = nobody, frozenset[str]()
            for player in one:
                present = present | {player}
                now = everybody if len(present) == len(players) else game(present)
                added[player] += (now - before) / 2
                before = now
        for player in players:
            by_row[player] += added[player] / pairs
            means[player].append(float(added[player].mean()))
    found = {}
    for player in players:
        over_rows = mean_of(by_row[player])
        over_orders = float(np.std(means[player], ddof=1) / sqrt(pairs))
        found[player] = Importance(over_rows.value, sqrt(over_rows.standard_error**2 + over_orders**2))
    return found
