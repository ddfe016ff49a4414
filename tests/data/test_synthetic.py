"""Generated sparse rows: exact shapes, a seed that decides, fair blocks, labels that a good model nearly learns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from colonnade.data import dataset, synthetic_sparse
from colonnade.data.partition import spread_out
from colonnade.data.sparse import is_canonical
from colonnade.data.synthetic import sparse_rows
from colonnade.errors import SettingsError


@given(st.integers(1, 40), st.integers(2, 60), st.integers(0, 3), st.data())
def test_each_row_has_as_many_different_columns_as_asked_for(rows: int, columns: int, seed: int, data) -> None:
    count = data.draw(st.integers(1, columns // 2))
    X, y = sparse_rows(rows, columns, count, seed)
    assert X.shape == (rows, columns)
    assert is_canonical(X)
    assert np.diff(X.indptr).tolist() == [count] * rows
    assert set(y.tolist()) <= {-1, 1}


def test_blocks_of_rows_are_drawn_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.data.synthetic.ROWS_A_BLOCK", 7)
    X, y = sparse_rows(20, 30, 3, seed=0)
    assert np.diff(X.indptr).tolist() == [3] * 20
    assert (X.data >= 0.5).all() and (X.data < 1.5).all()
    assert 7 <= (y == 1).sum() <= 13


def test_the_named_set_is_the_function_with_its_defaults() -> None:
    named, made = dataset("synthetic_sparse", parties=3), synthetic_sparse(parties=3)
    assert named.row_digest == made.row_digest
    assert named.labels.train.equal(made.labels.train)
    for party in made.columns:
        assert (named.columns[party].train != made.columns[party].train).nnz == 0


def test_the_seed_decides() -> None:
    first, again, other = (sparse_rows(50, 40, 4, seed) for seed in (1, 1, 2))
    assert (first[0] != again[0]).nnz == 0
    assert first[1].tolist() == again[1].tolist()
    assert (first[0] != other[0]).nnz > 0


def test_a_good_model_gets_most_labels_right_but_not_all() -> None:
    data = synthetic_sparse(rows=4_000, columns=100, nonzeros_per_row=10, parties=2)
    train, test = (sparse.hstack([getattr(own, part) for own in data.columns.values()]) for part in ("train", "test"))
    model = LogisticRegression(C=10).fit(train, data.labels.train.numpy())
    assert 0.85 < model.score(test, data.labels.test.numpy()) < 0.97
    assert 0.45 < data.labels.train.double().mean() < 0.55


@pytest.mark.parametrize("parties", [2, 3, 8, 16])
def test_parties_hold_about_as_many_values_though_popularity_is_like_that_of_words(parties: int) -> None:
    data = synthetic_sparse(rows=1_000, columns=400, nonzeros_per_row=10, parties=parties)
    held = [columns.train.nnz for columns in data.columns.values()]
    assert max(held) < 3 * min(held)
    popular = np.sort(np.concatenate([np.diff(own.train.tocsc().indptr) for own in data.columns.values()]))[::-1]
    assert popular[0] > 20 * np.median(popular)


@given(st.integers(1, 200))
def test_spreading_out_is_a_permutation(columns: int) -> None:
    assert sorted(spread_out(columns).tolist()) == list(range(columns))


def test_the_most_popular_columns_lie_in_different_blocks() -> None:
    # Of 12 columns, the first 4 by popularity go to 4 different quarters, of 3 columns each.
    assert sorted((spread_out(12)[:4] // 3).tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"rows": 0}, "asked for 0 rows"),
        ({"columns": 1}, "and 1 columns"),
        ({"seed": -1}, "data.seed is -1"),
        ({"columns": 10, "nonzeros_per_row": 6}, "6 non-zeros per row; with 10 columns give 1 to 5"),
        ({"nonzeros_per_row": 0}, "0 non-zeros per row"),
        ({"rows": 2**31}, "ask for fewer rows"),
        ({"parties": 0}, "no feature party"),
        ({"sede": 1}, "Did you mean 'seed'"),
    ],
)
def test_wrong_sizes_are_refused(asked, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        synthetic_sparse(**asked)
