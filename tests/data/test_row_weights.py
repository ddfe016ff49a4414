"""What rows weigh: where the weights come from, what they are divided by, and what is refused, in one sentence each."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.utils.class_weight import compute_sample_weight

import colonnade
from colonnade import Dpzv, PerturbationSettings, Training
from colonnade.data.federated import FederatedData, Labels, data_digest
from colonnade.data.loading import load, load_own
from colonnade.data.settings import DataSettings, PartyData
from colonnade.data.weights import checked_weights, largest_weight, weighted
from colonnade.errors import DataError, SettingsError
from colonnade.federation.file import parse_federation, read_federation

BANK = pd.DataFrame({"id": range(8), "income": range(8), "late": [0, 1] * 4, "w": [1, 2, 3, 4, 5, 6, 7, 8]})
SHOP = pd.DataFrame({"id": range(7, -1, -1), "orders": [9, 7, 5, 3, 1, 4, 6, 8]})
NAMES = ("no", "perhaps", "yes")


def labels(own: Any = None, task: str = "multiclass") -> Labels:
    train = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2])
    given = None if own is None else torch.tensor(own, dtype=torch.float64)
    return Labels(train, train[:0], task, NAMES, weights=given)


def two_parties(**changes: Any) -> FederatedData:
    frames = {"bank": BANK, "shop": SHOP}
    return colonnade.from_frames(frames, label_party="bank", label="late", **{"test_fraction": 0.25, **changes})


# --- what rows weigh --------------------------------------------------------------------------------------------


def test_balanced_is_scikit_learns_and_the_mean_is_1() -> None:
    theirs = compute_sample_weight("balanced", labels().train.numpy())
    ours = weighted(labels(), "balanced").weights
    assert ours is not None
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-12)
    assert float(ours.mean()) == pytest.approx(1.0, abs=1e-12)


def test_a_table_and_the_rows_own_are_multiplied() -> None:
    found = weighted(labels([1.0, 2, 1, 1, 1, 1, 1, 1, 0]), {"yes": 3.0, "no": 0.5})
    raw = np.array([0.5, 1, 0.5, 0.5, 1, 1, 3, 3, 0])
    assert found.weights is not None
    np.testing.assert_allclose(found.weights.numpy(), raw / raw.mean(), rtol=1e-12)
    assert largest_weight(found) == pytest.approx(3 / raw.mean())


@pytest.mark.parametrize("own", [None, [1.0] * 9, [7.0] * 9])
def test_rows_that_all_weigh_the_same_weigh_1(own: Any) -> None:
    assert weighted(labels(own), "none").weights is None
    assert weighted(labels(own), {"no": 2.0, "perhaps": 2.0, "yes": 2.0}).weights is None


def test_huge_and_tiny_weights_have_mean_1_too() -> None:
    for size in (1e300, 1e-300):
        found = weighted(labels([size] * 8 + [size / 2]), "none").weights
        assert found is not None and float(found.mean()) == pytest.approx(1.0)


def test_where_answers_are_noised_a_row_weighs_what_it_weighs_whatever_the_others_do() -> None:
    one = weighted(labels([1.0, 2, 3, 4, 5, 6, 7, 8, 9]), {"yes": 3.0}, private=True).weights
    other = weighted(labels([9.0, 2, 3, 4, 5, 6, 7, 8, 9]), {"yes": 3.0}, private=True).weights
    assert one is not None and other is not None
    assert (one[1:] == other[1:]).all() and one[8] == 27
    assert weighted(labels([1.0] * 9), "none", private=True).weights is None


def test_classes_that_are_numbers_go_by_their_text() -> None:
    numbers = replace(labels(), classes=(0, 1.0, 2))
    for name in ("1", "1.0", 1, 1.0):
        found = weighted(numbers, {name: 2.0}).weights
        assert found is not None and found[4] == 2 * found[0]


# --- where they come from ---------------------------------------------------------------------------------------


def test_a_column_of_the_label_party_weighs_the_rows_and_is_no_feature(tmp_path: Path) -> None:
    data = two_parties(weight="w", standardise=False)
    assert data.columns["bank"].names == ("income",)
    assert data.labels.weights is not None
    own = data.columns["bank"].train  # the income of a row is its weight less 1
    assert isinstance(own, torch.Tensor) and torch.equal(data.labels.weights, own[:, 0].double() + 1)
    assert data_digest(data.labels) != data_digest(two_parties(standardise=False).labels)

    BANK.to_csv(tmp_path / "bank.csv", index=False)
    SHOP.to_csv(tmp_path / "shop.csv", index=False)
    settings = DataSettings(label="late", test_fraction=0.25, standardise=False)
    files = {"bank": PartyData("bank.csv", weight="w"), "shop": PartyData("shop.csv")}
    from_files = load(settings, files, "bank", tmp_path)
    assert torch.equal(from_files.labels.weights, data.labels.weights)  # type: ignore[arg-type]
    alone = load_own(settings, files["bank"], "bank", ("shop",), "bank", tmp_path)
    assert alone.labels is not None and torch.equal(alone.labels.weights, data.labels.weights)  # type: ignore[arg-type]
    named = load_own(replace(settings, weight="w"), files["shop"], "shop", ("shop",), "bank", tmp_path)
    assert named.labels is None


def test_arrays_bring_theirs_in_the_order_of_their_rows() -> None:
    X = np.arange(40.0).reshape(20, 2)
    data = colonnade.from_arrays(X, np.arange(20) % 2, parties=2, sample_weight=X[:, 0], standardise=False)
    own = data.columns["party1"].train
    assert isinstance(own, torch.Tensor) and data.labels.weights is not None
    assert torch.equal(data.labels.weights, own[:, 0].double())
    kept = data.held_out(0.2)
    assert kept.labels.weights is not None and isinstance(kept.columns["party1"].train, torch.Tensor)
    assert torch.equal(kept.labels.weights, kept.columns["party1"].train[:, 0].double())


def test_a_federation_toml_says_it_all(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(
        '[data]\nset = "iris"\nparties = 2\n[training]\nthreshold = 0.3\n[training.class_weight]\n2 = 3\n'
    )
    federation = read_federation(tmp_path / "federation.toml")
    assert federation.training.class_weight == {"2": 3.0} and federation.training.threshold == 0.3
    changed = read_federation(
        tmp_path / "federation.toml", ["training.class_weight=balanced", "training.threshold=auto"]
    )
    assert changed.training.class_weight == "balanced" and changed.training.threshold == "auto"
    one = read_federation(tmp_path / "federation.toml", ["training.class_weight.1=4"])
    assert one.training.class_weight == {"2": 3.0, "1": 4.0}
    parsed = parse_federation({"data": {"label": "y", "weight": "w"}, "parties": {"bank": {"weight": "v"}}})
    assert parsed.data.weight == "w" and parsed.party_data()["bank"].weight == "v"


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1, -1, 2], "negative in 1 of the 3 training rows"),
        ([1, np.nan, np.nan], "missing in 2 of the 3 training rows"),
        (pd.Series([1, None, 2], dtype="Int64"), "missing in 1 of the 3 training rows"),
        ([np.inf, 1, 1], "infinite in 1 of the 3"),
        ([0, 0, 0], "0 in all 3 training rows"),
        (["a", "b", "c"], "not numeric"),
        ([1, 2], "has shape \\[2\\], but there are 3 rows"),
    ],
)
def test_weights_that_cannot_be(values: Any, words: str) -> None:
    with pytest.raises(DataError, match=f"The column 'w'.* {words}") as caught:
        checked_weights(values, 3, "The column 'w'")
    assert str(caught.value).count(". ") == 0  # one sentence


def test_a_weight_column_that_is_not_the_label_partys(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"'bank' has no column 'orders', which `weight` names. 'shop' has, but only the"
    ):
        two_parties(weight="orders")
    with pytest.raises(DataError, match=r"'bank' has no column 'ww', which `weight` names. Did you mean 'w'?"):
        two_parties(weight="ww")
    with pytest.raises(DataError, match="lists 'w' among its columns, but that is the weight"):
        two_parties(weight="w", columns={"bank": ["income", "w"]})
    files = {"bank": PartyData("bank.csv"), "shop": PartyData("shop.csv", weight="orders")}
    refused = "'shop' names a weight column 'orders', but only the label party 'bank' weighs rows"
    with pytest.raises(SettingsError, match=refused):
        load(DataSettings(label="late"), files, "bank", tmp_path)
    with pytest.raises(SettingsError, match=refused):
        load_own(DataSettings(label="late"), files["shop"], "shop", ("shop",), "bank", tmp_path)
    with pytest.raises(SettingsError, match="the data set 'iris' has none"):
        colonnade.dataset("iris", weight="w")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"class_weight": "balance"}, "no value of training.class_weight 'balance'. Did you mean 'balanced'"),
        ({"class_weight": {"0": -1.0}}, "class '0' is -1.0; it must be a number of 0 or more"),
        ({"class_weight": {"0": float("nan")}}, "class '0' is nan"),
        ({"class_weight": {"0": True}}, "class '0' is True"),
        ({"threshold": 1.0}, "training.threshold is 1.0; it must lie between 0 and 1"),
    ],
)
def test_settings_that_cannot_be(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        Training(**changes)


def test_classes_that_the_labels_do_not_have() -> None:
    with pytest.raises(SettingsError, match="names a class 'maybe', which none of the 3 classes"):
        weighted(labels(), {"maybe": 2.0})
    with pytest.raises(SettingsError, match="a regression has none"):
        weighted(replace(labels(), task="regression"), "balanced")
    with pytest.raises(DataError, match="Every training row weighs 0"):
        weighted(labels([1.0] * 4 + [0.0] * 5), {"no": 0.0})


def test_balanced_classes_cannot_be_hidden() -> None:
    data = two_parties()
    for algorithm, privacy in (
        (Dpzv(noise=1.0), PerturbationSettings()),
        (Dpzv(server_update="private-zo"), PerturbationSettings(labels_epsilon=1.0)),
    ):
        with pytest.raises(SettingsError, match='"balanced" follows from all labels at once'):
            colonnade.train(data, algorithm, training=Training(class_weight="balanced"), privacy=privacy)


def test_a_threshold_needs_two_classes() -> None:
    for algorithm in ("vafl", "fsgd"):
        with pytest.raises(SettingsError, match=r"decides between two classes, and the task is multiclass"):
            colonnade.train(colonnade.dataset("iris"), algorithm, training=Training(epochs=1, threshold=0.4))
