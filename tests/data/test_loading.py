"""From a configuration, frames, arrays or a name to a federation, and the mistakes each way can hold."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.data import DataSettings, PartyData, dataset, from_arrays, from_frames, load
from colonnade.errors import ColonnadeError, DataError, SettingsError

# Ten people; the shop's column is 10 times the id, the bank's 100 times, the label is the id's parity.
IDS = np.arange(10)
SHOP = pd.DataFrame({"id": IDS, "orders": 10.0 * IDS, "returns": -10.0 * IDS})
BANK = pd.DataFrame({"id": IDS, "income": 100.0 * IDS, "churn": IDS % 2})
TABLE = np.arange(40.0).reshape(10, 4)
PARITY = IDS % 2


def frames(shop: pd.DataFrame = SHOP, bank: pd.DataFrame = BANK, **settings):
    asked = {"label_party": "bank", "label": "churn", "standardise": False, **settings}
    return from_frames({"bank": bank, "shop": shop}, **asked)


@given(st.permutations(range(10)), st.permutations(range(10)), st.integers(0, 3))
def test_rows_meet_whatever_order_each_party_has_them_in(first: list[int], second: list[int], seed: int) -> None:
    data = frames(SHOP.iloc[first], BANK.iloc[second], seed=seed)
    people = data.columns["shop"].train[:, 0] / 10
    assert (data.columns["bank"].train[:, 0] / 100).tolist() == people.tolist()
    assert (people % 2).tolist() == data.labels.train.tolist()
    assert data.row_digest == frames(seed=seed).row_digest
    assert data.columns["shop"].test.tolist() == frames(seed=seed).columns["shop"].test.tolist()


def test_the_label_party_keeps_its_other_columns_and_comes_last() -> None:
    data = frames()
    assert list(data.columns) == ["shop", "bank"]
    assert data.feature_parties == ("shop",)
    assert data.columns["bank"].names == ("income",)
    assert (data.rows, data.test_rows) == (8, 2)


def test_the_label_party_may_hold_no_columns() -> None:
    assert list(frames(bank=BANK[["id", "churn"]]).columns) == ["shop"]


def test_a_feature_party_never_gets_the_label_by_default() -> None:
    assert frames(SHOP.assign(churn=1)).columns["shop"].names == ("orders", "returns")


def test_intersection_uses_the_rows_that_all_hold() -> None:
    data = frames(SHOP.iloc[2:], BANK.iloc[:8], rows="intersection", test_fraction=0)
    assert sorted((data.columns["shop"].train[:, 0] / 10).tolist()) == [2, 3, 4, 5, 6, 7]


def test_files_and_frames_give_the_same_federation(tmp_path: Path) -> None:
    SHOP.rename(columns={"id": "customer"}).to_csv(tmp_path / "shop.csv", index=False)
    BANK.to_parquet(tmp_path / "bank.parquet")
    data = load(
        DataSettings(label="churn", standardise=False),
        {
            "shop": PartyData(file="shop.csv", columns=("orders",), id="customer"),
            "bank": PartyData(file="bank.parquet"),
        },
        "bank",
        tmp_path,
    )
    same = frames(columns={"shop": ["orders"]})
    assert data.row_digest == same.row_digest
    for party in ("shop", "bank"):
        assert data.columns[party].names == same.columns[party].names
        assert data.columns[party].train.equal(same.columns[party].train)
        assert data.columns[party].test.equal(same.columns[party].test)
    assert data.labels.train.equal(same.labels.train)


def test_sparse_and_dense_files_meet_in_one_federation(tmp_path: Path) -> None:
    # The i-th line has the id i, counted from 1: the shop's column 3 is 10 times the id, the label the id's parity.
    lines = [f"{i % 2} {'2:1 ' if i == 4 else ''}3:{10 * i}" for i in range(1, 9)]
    (tmp_path / "shop.svm").write_text("\n".join(lines))
    (tmp_path / "web.svm").write_text("\n".join(lines))
    pd.DataFrame({"id": range(8, 0, -1), "income": range(800, 0, -100)}).to_csv(tmp_path / "bank.csv", index=False)
    parties = {
        "shop": PartyData(file="shop.svm"),
        "web": PartyData(file="web.svm", columns=("web_3",)),
        "bank": PartyData(file="bank.csv"),
    }
    data = load(DataSettings(label="churn", standardise=False), parties, "shop", tmp_path)
    shop, web, bank = (data.columns[party] for party in ("shop", "web", "bank"))
    assert (shop.sparse, web.sparse, bank.sparse) == (True, True, False)
    assert (shop.names, web.names) == (("shop_1", "shop_2", "shop_3"), ("web_3",))
    people = bank.train[:, 0] / 100
    assert (shop.dense().train[:, 2] / 10).tolist() == people.tolist()
    assert (web.dense().train[:, 0] / 10).tolist() == people.tolist()
    assert (people % 2).tolist() == data.labels.train.tolist()


def test_a_configuration_names_the_parties_of_a_set() -> None:
    data = load(DataSettings(set="iris"), {"a": PartyData(), "l": PartyData(), "b": PartyData()}, "l", Path())
    assert data.feature_parties == ("a", "b")
    assert data.columns["a"].names == ("sepal length (cm)", "sepal width (cm)")


def test_named_columns_of_a_set_may_go_to_the_label_party_too() -> None:
    columns = {"label": ["proline"], "lab": ["hue", "ash"]}
    data = dataset("wine", split="named-columns", columns=columns)
    assert {party: held.names for party, held in data.columns.items()} == {
        "lab": ("hue", "ash"),
        "label": ("proline",),
    }
    assert list(data.columns) == ["lab", "label"]


def test_the_label_party_can_get_a_share() -> None:
    data = from_arrays(TABLE, PARITY, parties=3, label_party_columns=True)
    assert {party: held.names for party, held in data.columns.items()} == {
        "party1": ("x1",),
        "party2": ("x2",),
        "party3": ("x3",),
        "label": ("x4",),
    }


def test_arrays_are_cut_by_columns_and_shuffled_with_their_labels() -> None:
    data = from_arrays(TABLE, PARITY, parties=2, standardise=False, test_fraction=0.3)
    assert (data.rows, data.test_rows) == (7, 3)
    for part in ("train", "test"):
        left, right = (getattr(data.columns[party], part) for party in data.feature_parties)
        row = left[:, 0] / 4
        assert left.tolist() == [[4 * i, 4 * i + 1] for i in row.tolist()]
        assert right.tolist() == [[4 * i + 2, 4 * i + 3] for i in row.tolist()]
        assert (row % 2).tolist() == getattr(data.labels, part).tolist()


def test_arrays_with_their_own_test_part_keep_it() -> None:
    data = from_arrays(TABLE, PARITY, parties=2, X_test=-TABLE[:3], y_test=PARITY[:3], standardise=False)
    assert (data.rows, data.test_rows) == (10, 3)
    assert (data.columns["party1"].test <= 0).all()


@pytest.mark.parametrize(
    ("split", "shapes"),
    [
        ("patches", [(1, 3, 2), (1, 3, 2), (1, 2, 2), (1, 2, 2)]),
        ("row-strips", [(1, 2, 4), (1, 1, 4), (1, 1, 4), (1, 1, 4)]),
        ("equal-columns", [(5,), (5,), (5,), (5,)]),
    ],
)
def test_images_are_cut_into_pieces_that_together_are_the_image(split: str, shapes) -> None:
    images = np.arange(200).reshape(10, 5, 4)
    data = from_arrays(images, PARITY, split=split, standardise=False, test_fraction=0)
    assert [held.shape for held in data.columns.values()] == shapes
    pixels = np.concatenate([held.train.flatten(1).numpy() for held in data.columns.values()], axis=1)
    assert sorted(pixels.flatten().tolist()) == list(range(200))
    assert all(held.train.is_contiguous() for held in data.columns.values())


def test_flattened_pixels_have_names_and_one_scale() -> None:
    data = from_arrays(np.full((10, 2, 2), 4), PARITY, parties=2, test_fraction=0)
    assert data.columns["party2"].names == ("pixel_1_0", "pixel_1_1")
    assert data.columns["party2"].train.unique().tolist() == [1.0]


def test_a_frame_of_columns_keeps_its_names() -> None:
    data = from_arrays(pd.DataFrame(TABLE, columns=list("abcd")), pd.Series(PARITY), parties=2)
    assert data.columns["party2"].names == ("c", "d")


def test_the_same_seed_gives_the_same_federation_and_another_does_not() -> None:
    first, again, other = (from_arrays(TABLE, PARITY, seed=seed) for seed in (1, 1, 2))
    assert first.row_digest == again.row_digest != other.row_digest
    assert first.columns["party1"].train.equal(again.columns["party1"].train)


def test_nothing_shows_a_value() -> None:
    data = from_frames(
        {
            "bank": pd.DataFrame({"id": [1, 2, 3], "churn": ["secret-a", "secret-b", "secret-a"]}),
            "shop": pd.DataFrame({"id": [1, 2, 3], "orders": [987.0, 988.0, 989.0]}),
        },
        label_party="bank",
        label="churn",
        test_fraction=0,
        standardise=False,
    )
    assert repr(data) == (
        "FederatedData('frames', Labels(train=[3], test=[0], task='binary', 2 classes), "
        "shop=PartyColumns(train=[3, 1], test=[0, 1]))"
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: frames(label="chrn"), "label party 'bank' has no column 'chrn'. Did you mean 'churn'"),
        (
            lambda: frames(SHOP.rename(columns={"orders": "income"})),
            "'income' is held by both 'shop' and 'bank'",
        ),
        (lambda: frames(columns={"shop": ["churn"]}), "'shop' lists 'churn' .* that is the label"),
        (lambda: frames(SHOP[["id"]]), "'shop' holds no column besides the id"),
        (lambda: frames(SHOP.iloc[1:]), "'shop' lacks 1, 'bank' lacks 0"),
        (lambda: frames(bank=BANK.assign(churn=None)), "label is missing in 10 of the 10 rows"),
        (lambda: from_arrays(TABLE, PARITY[:9]), "y has shape \\[9\\], but there are 10 rows"),
        (lambda: from_arrays(TABLE[:, 0], PARITY), "X has shape \\[10\\]"),
        (lambda: from_arrays(TABLE.astype(str), PARITY), "must be a numeric array"),
        (lambda: from_arrays(TABLE, PARITY, X_test=TABLE[:, :3], y_test=PARITY), "rows must look alike"),
        (lambda: from_arrays(TABLE, PARITY, names=["a"]), "1 names for X"),
        (lambda: from_arrays(TABLE[:0], PARITY[:0]), "too few rows"),
        (lambda: from_arrays(TABLE, PARITY * 0), "all of one class"),
        (lambda: from_arrays(TABLE * [1, 1, 0, 0], PARITY, parties=2), "'party2': each of its 2 columns is constant"),
        (lambda: from_arrays(TABLE, IDS % 3, task="binary"), "binary, but the labels have 3 classes instead of two"),
        (lambda: frames(SHOP.assign(id=IDS + 50), rows="intersection"), "no row is common to 'shop' and 'bank'"),
    ],
)
def test_data_that_do_not_fit_are_refused(call, words: str) -> None:
    with pytest.raises(DataError, match=words):
        call()


def settings_only(**values):
    return load(DataSettings(**{"set": "iris", **values}), {}, "label", Path())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: from_arrays(TABLE, PARITY, sede=3), "no data setting 'sede'. Did you mean 'seed'"),
        (lambda: from_arrays(TABLE, PARITY, split="equal-colums"), "Did you mean 'equal-columns'"),
        (lambda: from_arrays(TABLE, PARITY, missing="means"), "Did you mean 'mean'"),
        (lambda: from_arrays(TABLE, PARITY, rows="intersect"), "Did you mean 'intersection'"),
        (lambda: from_arrays(TABLE, PARITY, task="regresion"), "Did you mean 'regression'"),
        (lambda: from_arrays(TABLE, PARITY, test_fraction=1.0), "test_fraction is 1.0"),
        (lambda: from_arrays(TABLE, PARITY, test_fraction=float("nan")), "test_fraction is nan"),
        (lambda: from_arrays(TABLE, PARITY, max_rows=-1), "data.max_rows is -1"),
        (lambda: from_arrays(TABLE, PARITY, parties=5), "5 parties cannot share 4 columns"),
        (lambda: from_arrays(TABLE, PARITY, split="patches"), "'patches' cuts images"),
        (lambda: from_arrays(TABLE, PARITY, split="row-strips"), "'row-strips' cuts images"),
        (lambda: from_arrays(TABLE, PARITY, split="named-columns", parties=2), "'party1' names no `columns`"),
        (lambda: from_arrays(TABLE, PARITY, columns={"a": ["x1"]}), "set data.split = 'named-columns'"),
        (lambda: from_arrays(TABLE, PARITY, X_test=TABLE), "Only one of X_test and y_test"),
        (
            lambda: from_arrays(TABLE, PARITY, X_test=TABLE, y_test=PARITY, test_fraction=0.1),
            "leave one of them",
        ),
        (lambda: from_arrays(TABLE, PARITY, label_party="party2"), "called 'party2', as a feature party is"),
        (
            lambda: dataset("digits", split="patches", label_party_columns=True),
            "works with split = 'equal-columns'",
        ),
        (lambda: dataset("iris", label="species"), "brings its own label"),
        (lambda: frames(label_party="banc"), "'banc' has no data.*Did you mean 'bank'"),
        (lambda: frames(columns={"shopp": ["orders"]}), "Did you mean 'shop'"),
        (lambda: frames(split="patches"), "'patches' shares out images"),
        (lambda: frames(label=""), "data.label is not set"),
        (lambda: frames(parties=3), "data.parties is 3, but 1 feature parties"),
        (lambda: from_frames({"bank": BANK}, label_party="bank", label="churn"), "Only the label party"),
        (lambda: settings_only(), "There is no feature party"),
        (lambda: load(DataSettings(), {"a": PartyData()}, "a", Path()), "'a' names no file"),
        (
            lambda: load(DataSettings(set="iris"), {"a": PartyData(file="a.csv")}, "l", Path()),
            "names a file or a query, but",
        ),
        (
            lambda: load(DataSettings(set="iris", parties=2), {"a": PartyData()}, "l", Path()),
            "parties is 2, but 1",
        ),
    ],
)
def test_wrong_calls_are_refused(call, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        call()
    assert isinstance(caught.value, ColonnadeError)
    assert caught.value.exit_code == 2
