"""What a model must be better than, by hand."""

from math import log

import pytest
import torch

from colonnade.data.federated import Labels
from colonnade.launch.baseline import one_for_all


def test_of_two_classes_the_more_frequent() -> None:
    # Three of four training rows are of class 1: with one more of each, 4 of 6.
    labels = Labels(torch.tensor([1, 1, 1, 0]), torch.tensor([1, 0, 1, 1, 1]), "binary", ("no", "yes"))
    scored = one_for_all(labels)
    assert scored["accuracy"] == 0.8 and scored["auc"] == 0.5
    assert scored["log_loss"] == pytest.approx(-(4 * log(4 / 6) + log(2 / 6)) / 5)


def test_of_several_classes_the_most_frequent() -> None:
    labels = Labels(torch.tensor([2, 2, 0, 1]), torch.tensor([0, 2]), "multiclass", ("a", "b", "c"))
    assert one_for_all(labels)["accuracy"] == 0.5


def test_of_numbers_the_mean() -> None:
    labels = Labels(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 5.0]), "regression", (), deviation=10.0)
    assert one_for_all(labels)["rmse"] == pytest.approx(10 * (9 / 2) ** 0.5)


def test_without_test_rows_there_is_nothing_to_score() -> None:
    labels = Labels(torch.tensor([1, 0]), torch.tensor([], dtype=torch.int64), "binary", (0, 1))
    assert one_for_all(labels) == {}
