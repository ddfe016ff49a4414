"""Vertical splits: every column goes to exactly one party, in blocks as equal as they can be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.data.partition import equal_columns, named_columns, patches, row_strips
from colonnade.errors import DataError, SettingsError


def test_seven_columns_for_three_parties_go_three_two_two() -> None:
    assert equal_columns(7, 3) == (slice(0, 3), slice(3, 5), slice(5, 7))


@given(st.integers(1, 40), st.integers(0, 200))
def test_equal_columns_covers_every_column_once_with_sizes_that_differ_by_at_most_one(parties: int, more: int) -> None:
    columns = parties + more
    blocks = equal_columns(columns, parties)
    assert [j for block in blocks for j in range(columns)[block]] == list(range(columns))
    sizes = [len(range(columns)[block]) for block in blocks]
    assert len(sizes) == parties
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 4), st.integers(4, 12), st.integers(4, 12))
def test_patches_cover_every_pixel_once(side: int, height: int, width: int) -> None:
    pixels = [
        (r, c)
        for rows, columns in patches(height, width, side**2)
        for r in range(height)[rows]
        for c in range(width)[columns]
    ]
    assert sorted(pixels) == [(r, c) for r in range(height) for c in range(width)]


def test_patches_come_in_reading_order() -> None:
    top, bottom, left, right = slice(0, 2), slice(2, 4), slice(0, 3), slice(3, 5)
    assert patches(4, 5, 4) == ((top, left), (top, right), (bottom, left), (bottom, right))


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (lambda: equal_columns(3, 4), "4 parties cannot share 3 columns"),
        (lambda: equal_columns(3, 0), "number of parties is 0"),
        (lambda: row_strips(8, 9), "9 parties cannot share 8 rows of pixels"),
        (lambda: patches(8, 8, 6), "square number of parties"),
        (lambda: patches(8, 1, 4), "2 parties cannot share 1 columns of pixels"),
    ],
)
def test_impossible_shares_are_refused(cut, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        cut()


def test_named_columns_gives_the_numbers_in_the_order_asked_for() -> None:
    assert named_columns(["a", "b", "c"], {"shop": ["c", "a"], "bank": ["b"]}) == {
        "shop": (2, 0),
        "bank": (1,),
    }


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"shop": ["age"], "bank": ["age"]}, "'age' is held by both 'shop' and 'bank'"),
        ({"shop": ["age", "age"]}, "'age' is held by 'shop' twice"),
        ({"shop": ["incone"]}, "'shop' asks for the column 'incone'.*Did you mean 'income'"),
        ({"shop": ["churn"]}, "that is the label"),
    ],
)
def test_wrong_names_are_refused(wanted: dict[str, list[str]], words: str) -> None:
    with pytest.raises(DataError, match=words):
        named_columns(["age", "income"], wanted, label="churn")
