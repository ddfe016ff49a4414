"""Sparse columns: one form, scaled but never centred, and cut like dense ones."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from colonnade.data import from_arrays
from colonnade.data.federated import PartyColumns
from colonnade.data.preparation import prepare_sparse
from colonnade.data.sparse import canonical, is_canonical
from colonnade.errors import DataError

NAN, INF = float("nan"), float("inf")
# Few enough different numbers that zeros and repeats occur.
MATRICES = hnp.arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(2, 6)), elements=st.integers(-2, 2))
PARITY = np.arange(10) % 2
TABLE = np.arange(40.0).reshape(10, 4) * (np.arange(40).reshape(10, 4) % 3 == 0)


def prepared(train, test=((0.0, 0.0),), *, standardise: bool = True, missing: str = "refuse") -> PartyColumns:
    parts = (sparse.csr_array(np.array(part)) for part in (train, test))
    return prepare_sparse(*parts, ["a", "b"], party="shop", standardise=standardise, missing=missing)


@given(MATRICES, st.sampled_from(["csr", "csc", "coo", "lil"]))
def test_every_matrix_has_one_form(dense: np.ndarray, form: str) -> None:
    made = canonical(sparse.csr_array(dense).asformat(form))
    assert is_canonical(made)
    assert made.toarray().tolist() == dense.tolist()


def test_duplicates_are_summed_zeros_left_out_and_the_original_is_kept() -> None:
    rows, columns, values = [0, 0, 0, 1], [1, 0, 1, 0], [2.0, 0.0, 3.0, 1e-60]
    untidy = sparse.csr_array((values, columns, [0, 3, 4]), shape=(2, 2))
    tidy = canonical(untidy)
    assert (tidy.indices.tolist(), tidy.data.tolist(), tidy.indptr.tolist()) == ([1], [5.0], [0, 1, 1])
    assert (tidy.indices.dtype, tidy.indptr.dtype, tidy.dtype) == (np.int32, np.int32, np.float32)
    assert (untidy.indices.tolist(), untidy.data.tolist()) == (columns, values)
    assert canonical(sparse.coo_array((values, (rows, columns)))).nnz == 1


@pytest.mark.parametrize(
    "spoilt",
    [
        np.eye(2, dtype=np.float32),
        sparse.csr_array(np.eye(2)),
        sparse.csc_array(np.eye(2, dtype=np.float32)),
        sparse.csr_array((np.ones(1, np.float32), np.zeros(1, np.int64), np.array([0, 1, 1])), shape=(2, 2)),
        sparse.csr_array((np.zeros(1, np.float32), np.zeros(1, np.int32), np.array([0, 1, 1], np.int32)), shape=(2, 2)),
        sparse.csr_array(
            (np.ones(2, np.float32), np.array([1, 0], np.int32), np.array([0, 2, 2], np.int32)), shape=(2, 2)
        ),
        sparse.csr_array(
            (np.ones(2, np.float32), np.array([1, 1], np.int32), np.array([0, 2, 2], np.int32)), shape=(2, 2)
        ),
    ],
    ids=["dense", "float64", "csc", "long-indices", "stored-zero", "unsorted", "duplicate"],
)
def test_another_form_is_refused(spoilt) -> None:
    good = canonical(np.eye(2))
    assert not is_canonical(spoilt)
    with pytest.raises(DataError, match="The test part of sparse columns must be a csr_array"):
        PartyColumns(good, spoilt, ("a", "b"))


def test_indices_that_lead_outside_are_refused() -> None:
    wrong = canonical(np.eye(2))
    wrong.indices[0] = 7
    assert not is_canonical(wrong)


def test_sparse_columns_show_their_shape_and_become_dense() -> None:
    columns = PartyColumns(canonical([[0, 3, 0, 0], [0, 0, 0, 0]]), canonical(np.zeros((1, 4))), tuple("abcd"))
    assert columns.sparse
    assert columns.shape == (4,)
    assert repr(columns) == "PartyColumns(train=[2, 4], test=[1, 4], 0.125 of train non-zero)"
    dense = columns.dense()
    assert not dense.sparse
    assert dense.train.tolist() == [[0, 3, 0, 0], [0, 0, 0, 0]]
    assert (dense.train.dtype, dense.names, dense.test.shape) == (torch.float32, columns.names, (1, 4))
    assert dense.dense().train is dense.train


def test_columns_are_divided_by_their_largest_train_value_and_not_centred() -> None:
    # Column a: the largest is |−4|. Column b: nothing in the train rows, so 0 in the test rows too.
    columns = prepared([[2.0, 0.0], [-4.0, 0.0], [0.0, 0.0]], [[8.0, 9.0], [0.0, 0.0]])
    assert columns.train.toarray().tolist() == [[0.5, 0.0], [-1.0, 0.0], [0.0, 0.0]]
    assert columns.test.toarray().tolist() == [[2.0, 0.0], [0.0, 0.0]]
    assert columns.test.nnz == 1
    raw = prepared([[2.0, 0.0], [-4.0, 0.0]], [[8.0, 9.0]], standardise=False)
    assert raw.test.toarray().tolist() == [[8.0, 9.0]]


@given(MATRICES)
def test_scaled_train_columns_reach_one_and_keep_their_zeros(dense: np.ndarray) -> None:
    dense[0], dense[1] = 1, 2  # not all constant
    names = [f"c{j}" for j in range(dense.shape[1])]
    whole = sparse.csr_array(dense)
    train = prepare_sparse(whole, whole[:0], names, party="p", standardise=True, missing="refuse").train.toarray()
    assert np.abs(train).max(axis=0).tolist() == [1.0] * len(names)
    assert ((train == 0) == (dense == 0)).all()


@pytest.mark.parametrize(
    ("train", "test", "missing", "words"),
    [
        (
            [[1.0, NAN], [2.0, 1.0]],
            [[NAN, NAN]],
            "refuse",
            "'shop': 3 values are missing in the columns 'a', 'b': fill",
        ),
        ([[1.0, NAN], [2.0, 1.0]], [[0.0, 0.0]], "mean", "data.missing = 'mean' cannot fill gaps of sparse columns"),
        ([[1.0, INF], [2.0, 1.0]], [[0.0, 0.0]], "refuse", "'shop': the columns 'b' hold infinite values"),
        ([[1.0, 2.0], [2.0, 1.0]], [[-1e300, 0.0]], "refuse", "the columns 'a' hold .* too large for a 32-bit float"),
        ([[1e-30, 0.0], [0.0, 1.0]], [[1e30, 0.0]], "refuse", "the columns 'a' hold .* too large"),
        ([[0.0, 3.0], [0.0, 3.0]], [[1.0, 4.0]], "refuse", "each of its 2 columns is constant in the 2 train rows"),
    ],
)
def test_values_that_cannot_be_learnt_from_are_refused(train, test, missing: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        prepared(train, test, missing=missing)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sparse_arrays_are_shared_out_as_dense_ones_are(form: str) -> None:
    settings = {"parties": 3, "test_fraction": 0.3, "standardise": False, "label_party_columns": True, "max_rows": 9}
    dense = from_arrays(TABLE, PARITY, **settings)
    cut = from_arrays(sparse.csr_array(TABLE).asformat(form), PARITY, **settings)
    assert cut.row_digest == dense.row_digest
    assert list(cut.columns) == list(dense.columns)
    for party, columns in cut.columns.items():
        assert columns.sparse
        assert columns.names == dense.columns[party].names
        assert columns.dense().train.equal(dense.columns[party].train)
        assert columns.dense().test.equal(dense.columns[party].test)
    assert cut.labels.train.equal(dense.labels.train)


def test_a_sparse_test_part_is_kept_or_pooled() -> None:
    X = sparse.csr_array(TABLE)
    own = from_arrays(X, PARITY, parties=2, X_test=X[:3], y_test=PARITY[:3])
    assert (own.rows, own.test_rows) == (10, 3)
    with pytest.raises(DataError, match="Only one of X and X_test is sparse"):
        from_arrays(X, PARITY, X_test=TABLE[:3], y_test=PARITY[:3])


def test_named_columns_of_a_sparse_array() -> None:
    data = from_arrays(
        sparse.csr_array(TABLE), PARITY, split="named-columns", columns={"shop": ["x4", "x1"]}, standardise=False
    )
    assert data.columns["shop"].names == ("x4", "x1")
    whole = from_arrays(TABLE, PARITY, parties=1, standardise=False).columns["party1"].train
    assert data.columns["shop"].dense().train.equal(whole[:, [3, 0]])


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="must be a numeric array"):
        from_arrays(sparse.csr_array(TABLE * 1j), PARITY)
