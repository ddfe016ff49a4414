"""Rows of all parties in one order: same ids and seed, same order and split, whatever the files' order."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.data import alignment
from colonnade.data.alignment import ChosenIds, Rows, match_rows, row_digest, split_rows
from colonnade.data.ids import RowIds
from colonnade.errors import DataError


def ids(*names: str) -> RowIds:
    return RowIds.of(names)


def digest(train: list[str], test: list[str]) -> str:
    text = pa.array([*test, *train], pa.string())
    rows = np.arange(len(text))
    return row_digest(ChosenIds(text, rows[len(test) :]), ChosenIds(text, rows[: len(test)]))


def test_same_ids_in_any_order_are_common() -> None:
    matched = match_rows({"a": ids("3", "1", "2"), "b": ids("2", "3", "1")})
    assert matched.ids.to_pylist() == ["1", "2", "3"]
    assert {party: at.tolist() for party, at in matched.at.items()} == {"a": [1, 2, 0], "b": [2, 0, 1]}


def test_rows_that_do_not_match_are_counted_for_each_party() -> None:
    words = "of the 4 ids that any party holds, 'a' lacks 1, 'b' lacks 2, and 1 are held by all.*intersection"
    with pytest.raises(DataError, match=words):
        match_rows({"a": ids("1", "2", "3"), "b": ids("3", "4")})


def test_intersection_keeps_the_ids_that_all_hold() -> None:
    parties = {"a": ids("1", "2", "3"), "b": ids("3", "4", "2"), "c": ids("9", "3", "2")}
    matched = match_rows(parties, "intersection")
    assert matched.ids.to_pylist() == ["2", "3"]
    assert matched.at["c"].tolist() == [2, 1]
    used = Rows(np.array([1]), np.array([], int), np.array([0]))
    assert matched.counts(used)["a"] == (3, 2, 2)


@pytest.mark.parametrize("rows", ["same", "intersection"])
def test_an_empty_intersection_is_refused(rows: str) -> None:
    words = "No id is held by all parties \\('a' holds 1, 'b' holds 2\\): no row is common to 'a' and 'b'"
    with pytest.raises(DataError, match=words):
        match_rows({"a": ids("1"), "b": ids("2", "3")}, rows)


def test_a_table_without_rows_is_named() -> None:
    with pytest.raises(DataError, match="the table of 'b' has no rows"):
        match_rows({"a": ids("1"), "b": ids()}, "intersection")


def test_the_one_party_that_shares_no_row_is_named() -> None:
    with pytest.raises(DataError, match="party 'b' has no row in common with those that the others share"):
        match_rows({"a": ids("1", "2"), "b": ids("8", "9"), "c": ids("2", "1")}, "intersection")


def test_when_no_party_alone_is_to_blame_all_are_named() -> None:
    with pytest.raises(DataError, match="no row is common to 'a' and 'b' and 'c'"):
        match_rows({"a": ids("1", "2"), "b": ids("2", "3"), "c": ids("3", "1")}, "intersection")


LETTERS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)


@given(st.lists(LETTERS | LETTERS.map("customer-".__add__), unique=True), st.integers(0, 2))
def test_ids_are_sorted_as_texts_are(names: list[str], first: int) -> None:
    some = pa.array(names, pa.string())[first:]
    assert RowIds(some).order.tolist() == sorted(range(len(some)), key=some.to_pylist().__getitem__)


@given(st.sets(st.integers(0, 30), min_size=1), st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_rows_that_all_hold_are_found_at_every_party(shared: set[int], one: set[int], other: set[int]) -> None:
    held = {"a": [str(i) for i in shared | one], "b": [str(i) for i in shared | other]}
    matched = match_rows({party: ids(*names) for party, names in held.items()}, "intersection")
    assert matched.ids.to_pylist() == sorted(set(held["a"]) & set(held["b"]))
    for party, names in held.items():
        assert [names[place] for place in matched.at[party]] == matched.ids.to_pylist()


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (lambda i: str(i), "101 would be if leading zeros are ignored"),
        (lambda i: f"A{i:04d}X".lower(), "capital and small letters"),
        (lambda i: f"{i:04d} - 7", "spaces and hyphens"),
        (lambda i: f"{i:04d}.0", "7.0 are read as 7"),
    ],
)
def test_a_poor_match_is_told_with_its_likely_cause(form, words: str) -> None:
    first = {"capital and small letters": "A{:04d}X", "spaces and hyphens": "{:04d}-7"}.get(words, "{:04d}")
    parties = {
        "bank": ids(*(first.format(i) for i in range(100)), "common"),
        "shop": ids(*(form(i) for i in range(100)), "common"),
    }
    (note,) = match_rows(parties, "intersection").notes
    assert "Fewer than half of the rows match: 1 of the 101 rows of 'bank'" in note
    assert words in note
    with pytest.raises(DataError, match=words):
        match_rows(parties)


def test_half_of_the_rows_are_enough_to_say_nothing() -> None:
    assert match_rows({"a": ids("1", "2"), "b": ids("2")}, "intersection").notes == ()


@given(st.lists(LETTERS), st.lists(st.integers(0, 99)))
def test_a_digest_is_of_what_json_writes(texts: list[str], numbers: list[int]) -> None:
    def plain(train: list[str], test: list[str]) -> str:
        return hashlib.sha256(json.dumps([train, test]).encode()).hexdigest()

    digits = [str(number) for number in numbers]
    assert digest(texts, digits) == plain(texts, digits)
    assert row_digest(np.array(numbers, dtype=np.int64), np.arange(2)) == plain(digits, ["0", "1"])


def test_long_lists_of_ids_are_digested_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = digest(["1", "2", "3", "ü"], ["4", "5"])
    monkeypatch.setattr(alignment, "IDS_AT_ONCE", 2)
    assert digest(["1", "2", "3", "ü"], ["4", "5"]) == whole


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
        digest(["1", "2"], ["3"]),
        digest(["2", "1"], ["3"]),
        digest(["1"], ["2", "3"]),
        digest(["1", "23"], []),
        digest(["12", "3"], []),
    }
    assert len(digests) == 5
    assert digest(["1", "2"], ["3"]) in digests
