"""Rows that some parties lack: where they are, how they look, and what is learnt of the rows that are there."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import colonnade
from colonnade.data.absence import ABSENT, NOWHERE, absent_rows, drop, share_to_drop, with_absent
from colonnade.data.alignment import Rows, match_any
from colonnade.data.ids import RowIds
from colonnade.data.prepared import Preparation
from colonnade.data.settings import DataSettings
from colonnade.data.sources import read_table
from colonnade.errors import DataError, SettingsError

IDS = st.lists(st.integers(0, 20).map(str), min_size=1, max_size=12, unique=True)


@given(IDS, IDS, st.booleans())
def test_rows_are_found_wherever_they_are(bank: list[str], shop: list[str], union: bool) -> None:
    ids = {"bank": RowIds.of(bank), "shop": RowIds.of(shop)}
    if not union and not {*bank} & {*shop}:
        with pytest.raises(DataError, match=r"'shop' holds none of the \d+ rows of the label party 'bank'"):
            match_any(ids, "bank")
        return
    matched = match_any(ids) if union else match_any(ids, "bank")
    common = sorted({*bank, *shop} if union else {*bank})
    assert matched.ids.to_pylist() == common
    for party, own in (("bank", bank), ("shop", shop)):
        found = [None if place == NOWHERE else own[place] for place in matched.at[party]]
        assert found == [one if one in own else None for one in common]
    everything = Rows(np.arange(len(common)), np.array([], int), np.array([], int))
    held = len({*shop} & {*common})
    assert matched.counts(everything)["shop"] == (len(shop), held, held)


def test_hardly_any_match_is_told_with_its_cause() -> None:
    ids = {
        "bank": RowIds.of([f"{n:04}" for n in range(40)]),
        "shop": RowIds.of([str(n) for n in range(1, 30)] + ["0039"]),
    }
    (note,) = match_any(ids, "bank").notes
    assert "Of the 30 rows of 'shop', 1 are among those of 'bank'" in note and "leading zeros" in note
    # That a party simply has few rows is what rows = "any" is for.
    assert match_any({"bank": ids["bank"], "shop": RowIds.of(["0001", "0002"])}, "bank").notes == ()


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(1, 3))
def test_sparse_and_dense_rows_look_alike(present: list[bool], width: int) -> None:
    here = np.array(present)
    held = np.arange(1, 1 + here.sum() * width, dtype=np.float32).reshape(-1, width)
    dense = with_absent(torch.from_numpy(held), here)
    spread = with_absent(sparse.csr_array(held), here)
    assert isinstance(dense, torch.Tensor)
    assert np.array_equal(spread.toarray(), dense.numpy())
    assert np.array_equal(dense.numpy()[here, :width], held)
    assert torch.equal(dense[torch.from_numpy(~here)], absent_rows(int((~here).sum()), (width + 1,)))


def test_so_many_rows_are_dropped_that_the_share_is_reached() -> None:
    assert share_to_drop(0.2, 0.2) == share_to_drop(1.0, 0.5) == 0.0
    rows = with_absent(torch.ones(20_000, 1), np.ones(20_000, bool))
    assert isinstance(rows, torch.Tensor)
    dropped = drop(rows, 0.1, torch.Generator().manual_seed(1))[:, 1] == 1
    assert dropped.double().mean() == pytest.approx(0.1, abs=0.01)
    assert torch.equal(rows[~dropped], torch.tensor([[1.0, 0.0]]).expand(int((~dropped).sum()), 2))


# --- tables ------------------------------------------------------------------------------------------------------

BANK = pd.DataFrame({"id": list("abcdefgh"), "age": [1.0, 2, 3, 4, 5, 6, 7, 8], "y": [0, 1] * 4})
SHOP = pd.DataFrame({"id": list("hzca"), "orders": [10.0, 999.0, 20.0, 60.0]})


def read(shop: Any = SHOP, **settings: Any) -> colonnade.FederatedData:
    asked = {"rows": "any", "test_fraction": 0.25, **settings}
    return colonnade.from_frames({"bank": BANK, "shop": shop}, label_party="bank", label="y", **asked)


def test_all_rows_of_the_label_party_are_used_and_others_teach_what_they_have() -> None:
    data = read(test_fraction=0)
    assert data.rows == 8 and data.expects_absence
    shop = data.columns["shop"]
    assert shop.names == ("orders", ABSENT)
    assert int(shop.train[:, 1].sum()) == 5
    present = shop.train[shop.train[:, 1] == 0, 0]
    # Standardised by the three rows that are used: z, which the bank does not know, counts for nothing.
    values = np.array([10.0, 20.0, 60.0])
    assert np.allclose(np.sort(present.numpy()), np.sort((values - values.mean()) / values.std()), atol=1e-6)
    assert not shop.train[shop.train[:, 1] == 1, 0].any()
    assert data.row_counts["shop"] == (4, 3, 3) and data.row_counts["bank"] == (8, 8, 8)
    # Who lacks more than data.absence drops nothing; who lacks nothing drops that share.
    assert (shop.drop_share, data.columns["bank"].drop_share) == (0.0, 0.1)
    assert read(test_fraction=0, absence=0.8).columns["shop"].drop_share == pytest.approx((0.8 - 5 / 8) / (3 / 8))
    assert read(test_fraction=0, absence=0.0).columns["bank"].drop_share == 0.0


def test_a_prepared_row_is_absent_or_as_it_was() -> None:
    preparation = read(test_fraction=0).columns["shop"].preparation
    assert preparation is not None
    again = Preparation.from_values(preparation.to_values())
    assert again == preparation and again.names == ("orders", ABSENT)
    rows = again.apply(read_table(SHOP, party="shop", id="id"), np.array([0, NOWHERE, 3]), party="shop")
    assert rows[:, 1].tolist() == [0.0, 1.0, 0.0]
    assert rows[1, 0] == 0.0 and rows[0, 0] < rows[2, 0]


def test_sparse_tables_may_lack_rows_too(tmp_path: Any) -> None:
    matrix = sparse.csr_array(np.array([[0.0, 3.0], [2.0, 0.0], [1.0, 1.0]]))
    path = tmp_path / "shop.npz"
    np.savez(
        path,
        format="csr",
        shape=matrix.shape,
        data=matrix.data,
        indices=matrix.indices,
        indptr=matrix.indptr,
        ids=np.array(["h", "c", "a"]),
    )
    data = read(path, test_fraction=0)
    shop = data.columns["shop"]
    assert shop.sparse and shop.shape == (3,)
    assert shop.train.toarray()[:, 2].sum() == 5
    outcome = colonnade.train(data, "afsgd", training=colonnade.Training(epochs=1, batch_size=4))
    assert outcome.model.parties["shop"].stand_in() is not None


def test_a_party_may_lack_all_rows_to_validate_with() -> None:
    one = SHOP[SHOP["id"] == "a"]
    other = pd.DataFrame({"id": list("ab"), "orders": [1.0, 2.0]})
    for seed in range(20):
        try:
            data = read(other, seed=seed, validation=0.4)
        except DataError as error:
            assert "holds none of the" in str(error) or "constant" in str(error)
            continue
        apart = data.columns["shop"].validation
        assert apart is not None and apart.shape == (data.validation_rows, 2)
        if apart[:, 1].all():
            break
    else:
        raise AssertionError("no seed left the validation rows to the bank alone")
    with pytest.raises(DataError, match=r"'shop' holds none of the 6 training rows|constant in the 1 train rows"):
        read(one)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"absence": 1.0}, "data.absence is 1.0; it must be at least 0 and less than 1"),
        ({"absence": float("nan")}, "data.absence is nan"),
        ({"rows": "intersection", "absence": 0.3}, "data.absence is for rows that parties may lack"),
        ({"rows": "anny"}, "'anny'.*any"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        DataSettings(**{"rows": "any", **settings})


def test_labels_are_not_everywhere_where_rows_are_not() -> None:
    with pytest.raises(SettingsError, match="needs every party to have the label of every row"):
        colonnade.train(read(test_fraction=0), colonnade.Afsgd(labels="everywhere"))


def test_rows_in_one_place_lack_nothing() -> None:
    with pytest.raises(SettingsError, match="'any' is for tables of the parties' own"):
        colonnade.dataset("iris", parties=2, rows="any")
    with pytest.raises(SettingsError, match="'any' is for tables of the parties' own"):
        colonnade.from_arrays(np.eye(4), np.arange(4) % 2, parties=2, rows="any")
