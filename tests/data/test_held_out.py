"""Rows that are held out of the training rows, to choose settings by."""

import numpy as np
import pytest
from scipy import sparse

from colonnade import from_arrays
from colonnade.errors import DataError

X = np.arange(1, 81, dtype=float).reshape(40, 2)


@pytest.mark.parametrize("stored", ["dense", "sparse"])
def test_they_are_training_rows_and_no_row_is_in_both(stored: str) -> None:
    table = X if stored == "dense" else sparse.csr_array(X)
    data = from_arrays(table, X[:, 0] * 2, parties=2, task="regression", test_fraction=0.25, standardise=False)
    part = data.held_out(0.2)
    assert (part.rows, part.test_rows, part.label_party) == (24, 6, data.label_party)
    kept, out = part.labels.train.tolist(), part.labels.test.tolist()
    assert sorted(kept + out) == sorted(data.labels.train.tolist())
    for name, own in part.columns.items():
        assert own.names == data.columns[name].names
        train, test = (one.toarray() if stored == "sparse" else one.numpy() for one in (own.train, own.test))
        if name == "party1":  # the first column, of which the label is twice
            assert (2 * train[:, 0] == kept).all() and (2 * test[:, 0] == out).all()
    again = data.held_out(0.2)
    assert again.labels.test.tolist() == out and again.row_digest == part.row_digest != data.row_digest


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 0.001, 0.999])
def test_a_share_that_leaves_nothing(share: float) -> None:
    data = from_arrays(X, X[:, 0], parties=2, task="regression")
    with pytest.raises(DataError, match=r"held out|hold out"):
        data.held_out(share)
