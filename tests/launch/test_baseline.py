"""What a model must be better than, by hand."""

from math import log

import pytest
import torch

from colonnade.algorithms.parts.divergence import LONG
from colonnade.data.federated import Labels
from colonnade.launch.baseline import FEW, beside_one_for_all, learnt_little, one_for_all


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


TWO = Labels(torch.tensor([0, 1]), torch.tensor([0] * 90 + [1] * 10), "binary", (0, 1))
BEFORE = {"accuracy": 0.9, "auc": 0.5}


@pytest.mark.parametrize(
    ("test", "little"),
    [
        ({"accuracy": 0.9, "auc": 0.6}, True),  # 0.5 + 2 √(101 / (12 · 10 · 90)) is 0.69
        ({"accuracy": 0.9, "auc": 0.7}, False),  # nothing is predicted but the other class, in the right order
        ({"accuracy": 0.99, "auc": 0.5}, True),  # 0.9 + 2 √(0.25 / 100) is 1
        ({}, False),
    ],
)
def test_classes_are_known_by_right_answers_or_by_the_order(test: dict[str, float], little: bool) -> None:
    assert learnt_little(TWO, test, BEFORE) is little


def test_numbers_are_known_by_a_twentieth_of_their_variance() -> None:
    labels = Labels(torch.zeros(2), torch.zeros(FEW), "regression", ())
    assert learnt_little(labels, {"rmse": 0.98}, {"rmse": 1.0}) and not learnt_little(
        labels, {"rmse": 0.97}, {"rmse": 1.0}
    )
    few = Labels(torch.zeros(2), torch.zeros(FEW - 1), "regression", ())
    assert not learnt_little(few, {"rmse": 1.0}, {"rmse": 1.0})


@pytest.mark.parametrize("epochs", [LONG, LONG - 1])
def test_a_long_training_that_learnt_nothing_says_so(epochs: float) -> None:
    summary = beside_one_for_all(TWO, {"epochs": epochs, "test": one_for_all(TWO)})
    assert summary["baseline"] == one_for_all(TWO)
    assert summary.get("little_learnt", False) is (epochs == LONG)
