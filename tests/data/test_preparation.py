"""Preparation: by the party's own train rows only, exact on small numbers, and strict about gaps and text."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from colonnade.data.preparation import numeric_matrix, prepare_image, prepare_labels, prepare_table
from colonnade.errors import DataError

NAN, INF = float("nan"), float("inf")


def table(train, test=((0.0, 0.0),), *, standardise: bool = True, missing: str = "refuse"):
    return prepare_table(
        np.array(train), np.array(test), ["a", "b"], party="shop", standardise=standardise, missing=missing
    )


def test_columns_are_standardised_by_the_train_rows() -> None:
    # Column a: mean 2, deviation 1. Column b: constant, so 0 everywhere.
    columns = table([[1.0, 0.1], [3.0, 0.1], [1.0, 0.1], [3.0, 0.1]], [[5.0, 7.0]])
    assert columns.train.tolist() == [[-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]]
    assert columns.test.tolist() == [[3.0, 0.0]]
    assert columns.train.dtype == torch.float32
    assert columns.train.is_contiguous()


def test_standardising_can_be_left_out() -> None:
    assert table([[1.0, 5.0], [3.0, 5.0]], standardise=False).train.tolist() == [[1.0, 5.0], [3.0, 5.0]]


def test_gaps_are_filled_with_the_train_mean() -> None:
    columns = table([[1.0, 4.0], [NAN, 6.0], [3.0, NAN]], [[NAN, NAN]], standardise=False, missing="mean")
    assert columns.train.tolist() == [[1.0, 4.0], [2.0, 6.0], [3.0, 5.0]]
    assert columns.test.tolist() == [[2.0, 5.0]]


def test_gaps_are_filled_with_the_train_median() -> None:
    columns = table(
        [[1.0, 4.0], [NAN, 6.0], [3.0, 5.0], [11.0, NAN]], [[NAN, NAN]], standardise=False, missing="median"
    )
    assert columns.train[1, 0] == 3.0
    assert columns.test.tolist() == [[3.0, 5.0]]


@pytest.mark.parametrize(
    ("train", "test", "missing", "words"),
    [
        (
            [[1.0, NAN], [2.0, 1.0]],
            [[NAN, NAN]],
            "refuse",
            "'shop': 2 rows miss a value in the columns 'a', 'b'",
        ),
        ([[1.0, INF], [2.0, 1.0]], [[0.0, 0.0]], "mean", "'shop': the columns 'b' hold infinite values"),
        ([[1.0, 2.0], [2.0, 1.0]], [[-INF, 0.0]], "mean", "'shop': the columns 'a' hold infinite values"),
        ([[1.0, 1e300], [2.0, 1.0]], [[0.0, 0.0]], "mean", "too large for a 32-bit float"),
        ([[1.0, NAN], [2.0, NAN]], [[0.0, 0.0]], "mean", "'b' have no value in any train row"),
        ([[0.0, 1.0], [1e-30, 2.0]], [[1e30, 0.0]], "refuse", "'a' hold .* too large"),
        ([[0.1, 1.0], [0.1, 1.0]], [[5.0, 6.0]], "refuse", "each of its 2 columns is constant in the 2 train rows"),
    ],
)
def test_values_that_cannot_be_learnt_from_are_refused(train, test, missing: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        table(train, test, missing=missing)


def test_a_message_names_five_columns_at_most() -> None:
    gaps = np.full((2, 7), [[1.0], [NAN]])
    with pytest.raises(DataError, match="'c4' and 2 more"):
        prepare_table(gaps, gaps, [f"c{j}" for j in range(7)], party="shop", standardise=True, missing="refuse")


@given(hnp.arrays(np.float64, st.tuples(st.integers(2, 8), st.integers(1, 4)), elements=st.floats(-1e6, 1e6)))
def test_standardised_train_columns_have_mean_0_and_deviation_1_or_0(raw: np.ndarray) -> None:
    names = [f"c{j}" for j in range(raw.shape[1])]
    raw[0, 0], raw[1, 0] = 0, 1  # a party all of whose columns are constant is refused
    # Adjacent floats round; a relative spread of 1e-6 or more, or none at all, is what the promise is about.
    spread = raw.max(axis=0) - raw.min(axis=0)
    raw[:, spread < 1e-6 * (1 + np.abs(raw).max(axis=0))] = 0.1
    train = prepare_table(raw, raw[:0], names, party="p", standardise=True, missing="refuse").train.double()
    assert torch.allclose(train.mean(0), torch.zeros(len(names), dtype=torch.float64), atol=1e-5)
    expected = [float(raw[:, j].max() > raw[:, j].min()) for j in range(len(names))]
    assert train.std(0, unbiased=False).tolist() == pytest.approx(expected, abs=1e-5)


def test_numbers_and_booleans_become_a_matrix() -> None:
    frame = pd.DataFrame(
        {
            "whole": [1, 2],
            "flag": [True, False],
            "gap": pd.array([3, None], dtype="Int64"),
            "mixed": pd.Series([True, None], dtype=object),
        }
    )
    np.testing.assert_array_equal(numeric_matrix(frame, party="p"), [[1, 1, 3, 1], [2, 0, NAN, NAN]])


@pytest.mark.parametrize(
    "column", [["red", "blue"], pd.to_datetime(["2020-01-01", "2020-01-02"]), pd.Categorical(["1", "2"])]
)
def test_columns_that_are_not_numeric_are_refused_by_name(column) -> None:
    frame = pd.DataFrame({"colour": column, "age": [1, 2], "shape": ["round", "flat"]})
    with pytest.raises(DataError, match=r"these columns are not numeric: 'colour' \(.*\), 'shape' \(str\)") as caught:
        numeric_matrix(frame, party="X")
    assert "red" not in str(caught.value)


def test_images_are_scaled_by_the_largest_train_pixel() -> None:
    train, test = np.array([[[[0, 8]]], [[[4, 2]]]], dtype=np.uint8), np.array([[[[16, 4]]]], dtype=np.uint8)
    columns = prepare_image(train, test, ["pixels"], party="p", standardise=True)
    assert columns.train.flatten().tolist() == [0.0, 1.0, 0.5, 0.25]
    assert columns.test.flatten().tolist() == [2.0, 0.5]
    assert columns.shape == (1, 1, 2)


def test_dark_images_stay_dark_and_broken_ones_are_refused() -> None:
    dark = np.zeros((2, 1, 2, 2))
    assert prepare_image(dark, dark, ["pixels"], party="p", standardise=True).train.abs().sum() == 0
    with pytest.raises(DataError, match="'p': its images have missing or infinite pixels"):
        prepare_image(dark, dark + NAN, ["pixels"], party="p", standardise=True)


@pytest.mark.parametrize(
    ("train", "test", "task", "classes", "indices"),
    [
        ([-1, 1, 1], [-1], "binary", (-1, 1), [0, 1, 1, 0]),
        ([True, False], [True], "binary", (0, 1), [1, 0, 1]),
        (["no", "yes"], ["yes"], "binary", ("no", "yes"), [0, 1, 1]),
        ([2.0, 0.0, 1.0], [], "multiclass", (0.0, 1.0, 2.0), [2, 0, 1]),
        ([3, 5], [7], "multiclass", (3, 5, 7), [0, 1, 2]),
    ],
)
def test_classes_become_indices_in_sorted_order(train, test, task: str, classes, indices: list[int]) -> None:
    labels = prepare_labels(np.array(train), np.array(test, dtype=np.array(train).dtype), task="", party="bank")
    assert (labels.task, labels.classes) == (task, classes)
    assert labels.train.tolist() + labels.test.tolist() == indices
    assert labels.train.dtype == torch.int64
    assert len(labels.train) == len(train)


def test_fractions_mean_regression() -> None:
    labels = prepare_labels(np.array([0.5, 1.0]), np.array([2.25]), task="", party="bank")
    assert (labels.task, labels.classes) == ("regression", ())
    assert labels.train.tolist() == [0.5, 1.0]
    assert labels.test.dtype == torch.float32


def test_whole_numbers_can_be_declared_regression() -> None:
    assert prepare_labels(np.arange(200), np.arange(0), task="regression", party="b").train.dtype == torch.float32


@pytest.mark.parametrize(
    ("train", "task", "words"),
    [
        ([1.0, NAN, 0.0], "", "label is missing in 1 of the 3 rows"),
        ([1.0, INF, 0.0], "", "infinite"),
        (["a", None, "b"], "", "label is missing in 1 of the 3 rows"),
        ([1, 1, 1], "", "3 train rows are all of one class"),
        ([0.5, 1.0, 0.0], "binary", "the task is binary, but some labels are not whole numbers"),
        ([0, 1, 2], "binary", "the task is binary, but the labels have 3 classes"),
        (["a", "b"], "regression", "the labels are text"),
        (list(range(101)), "", "101 distinct values, too many to guess the task"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(train, task: str, words: str) -> None:
    with pytest.raises(DataError, match=f"'bank': .*{words}"):
        prepare_labels(pd.Series(train), pd.Series(train[:0]), task=task, party="bank")


def test_a_hundred_classes_are_still_classes() -> None:
    assert prepare_labels(np.arange(100), np.arange(0), task="", party="bank").task == "multiclass"
