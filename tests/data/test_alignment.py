"""Rows of all parties in one order: same ids and seed, same order and split, whatever the files' order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.data.alignment import common_ids, positions, row_digest, split_rows
from colonnade.errors import DataError


def ids(*names: str) -> np.ndarray:
    return np.array(names, dtype=np.str_)


def test_same_ids_in_any_order_are_common() -> None:
    assert common_ids({"a": ids("3", "1", "2"), "b": ids("2", "3", "1")}).tolist() == ["1", "2", "3"]


def test_rows_that_do_not_match_are_counted_for_each_party() -> None:
    words = "of the 4 ids that any party holds, 'a' lacks 1, 'b' lacks 2, and 1 are held by all.*intersection"
    with pytest.raises(DataError, match=words):
        common_ids({"a": ids("1", "2", "3"), "b": ids("3", "4")})


def test_intersection_keeps_the_ids_that_all_hold() -> None:
    parties = {"a": ids("1", "2", "3"), "b": ids("3", "4", "2"), "c": ids("9", "3", "2")}
    assert common_ids(parties, "intersection").tolist() == ["2", "3"]


@pytest.mark.parametrize("rows", ["same", "intersection"])
def test_an_empty_intersection_is_refused(rows: str) -> None:
    words = "No id is held by all parties \\('a' holds 1, 'b' holds 2\\): no row is common to 'a' and 'b'"
    with pytest.raises(DataError, match=words):
        common_ids({"a": ids("1"), "b": ids("2", "3")}, rows)


def test_the_one_party_that_shares_no_row_is_named() -> None:
    with pytest.raises(DataError, match="party 'b' has no row in common with those that the others share"):
        common_ids({"a": ids("1", "2"), "b": ids("8", "9"), "c": ids("2", "1")}, "intersection")


def test_when_no_party_alone_is_to_blame_all_are_named() -> None:
    with pytest.raises(DataError, match="no row is common to 'a' and 'b' and 'c'"):
        common_ids({"a": ids("1", "2"), "b": ids("2", "3"), "c": ids("3", "1")}, "intersection")


@given(st.lists(st.text(max_size=4), unique=True, min_size=1), st.randoms(use_true_random=False))
def test_positions_find_every_id(names: list[str], random) -> None:
    held = ids(*(f"<{name}>" for name in names))
    wanted = held.tolist()
    random.shuffle(wanted)
    assert held[positions(held, ids(*wanted))].tolist() == wanted


@given(st.integers(2, 60), st.floats(0, 0.9), st.integers(0, 5), st.integers(0, 80))
def test_train_and_test_divide_the_rows_kept(rows: int, fraction: float, seed: int, more: int) -> None:
    max_rows = 0 if more == 0 else more + 9
    train, test = split_rows(rows, fraction, seed=seed, max_rows=max_rows)
    kept = min(rows, max_rows or rows)
    assert len(set(train) | set(test)) == len(train) + len(test) == kept
    assert len(train) >= 1
    assert len(test) == (0 if fraction == 0 else min(max(1, round(fraction * kept)), kept - 1))


def test_the_seed_decides_the_order() -> None:
    first, again, other = (split_rows(50, 0.2, seed=seed)[0].tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_max_rows_takes_the_first_rows_of_the_same_shuffle() -> None:
    whole, _ = split_rows(20, 0)
    some, _ = split_rows(20, 0, max_rows=7)
    assert some.tolist() == whole[:7].tolist()


@given(st.lists(st.integers(0, 6), min_size=8, max_size=30), st.integers(0, 30))
def test_a_group_stays_on_one_side(groups: list[int], max_rows: int) -> None:
    group = np.array([*groups, 7, 8])
    try:
        train, test = split_rows(len(group), 0.3, max_rows=max_rows, groups=group)
    except DataError:
        # Legitimate only when max_rows leaves a single group, which cannot lie on two sides.
        order, _ = split_rows(len(group), 0, max_rows=max_rows, groups=group)
        assert len(set(group[order])) == 1
        return
    assert not set(group[train]) & set(group[test])
    assert len(set(group[test])) == max(1, round(0.3 * len(set(group[train]) | set(group[test]))))


def test_one_row_cannot_be_split() -> None:
    with pytest.raises(DataError, match="too few rows: 1 cannot be divided"):
        split_rows(1, 0.5)


def test_the_digest_tells_orders_splits_and_ids_apart() -> None:
    digests = {
        row_digest(ids("1", "2"), ids("3")),
        row_digest(ids("2", "1"), ids("3")),
        row_digest(ids("1"), ids("2", "3")),
        row_digest(ids("1", "23"), ids()),
        row_digest(ids("12", "3"), ids()),
    }
    assert len(digests) == 5
    assert row_digest(ids("1", "2"), ids("3")) in digests
