"""Shapley values against games that can be solved by hand; drawn orders against all coalitions."""

import numpy as np
import pytest

from colonnade.explanation.shapley import Values, shapley

ROWS = 6
DRAWS = np.random.default_rng(0)


def additive(worth: dict[str, float]) -> object:
    return lambda present: np.full(ROWS, sum(worth[name] for name in present))


def test_who_adds_the_same_to_everybody_is_worth_that() -> None:
    found = shapley(["a", "b", "c"], additive({"a": 1.0, "b": 0.0, "c": -2.0}), 0, DRAWS)  # type: ignore[arg-type]
    assert {name: round(one.value, 12) for name, one in found.items()} == {"a": 1.0, "b": 0.0, "c": -2.0}
    assert all(one.standard_error < 1e-12 for one in found.values())


def test_gloves() -> None:
    """One left glove, two right ones; a pair is worth 1. By hand: 2/3, 1/6, 1/6."""

    def game(present: frozenset[str]) -> Values:
        return np.full(ROWS, float("left" in present and bool(present & {"right", "other"})))

    found = shapley(["left", "right", "other"], game, 0, DRAWS)
    assert [found[name].value for name in ("left", "right", "other")] == pytest.approx([2 / 3, 1 / 6, 1 / 6])


@pytest.mark.parametrize("players", [1, 3, 6, 8])
def test_they_add_up_to_what_everybody_is_worth(players: int) -> None:
    names = [f"p{place}" for place in range(players)]
    table = np.random.default_rng(players).normal(size=(2**players, ROWS))

    def game(present: frozenset[str]) -> Values:
        value: Values = table[sum(1 << place for place, name in enumerate(names) if name in present)]
        return value

    found = shapley(names, game, 10, np.random.default_rng(1))
    total = game(frozenset(names)).mean() - game(frozenset()).mean()
    assert sum(one.value for one in found.values()) == pytest.approx(total, abs=1e-12)


def test_drawn_orders_come_near_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a", "b", "c", "d"]
    table = np.random.default_rng(5).normal(size=16)

    def game(present: frozenset[str]) -> Values:
        return np.full(ROWS, table[sum(1 << place for place, name in enumerate(names) if name in present)])

    exact = shapley(names, game, 0, DRAWS)
    monkeypatch.setattr("colonnade.explanation.shapley.MOST_EXACT", 0)
    drawn = shapley(names, game, 400, np.random.default_rng(3))
    for name in names:
        assert drawn[name].standard_error > 0
        assert abs(drawn[name].value - exact[name].value) < 4 * drawn[name].standard_error
