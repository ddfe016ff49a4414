"""Model completion: by hand, where it must fail, and on digits against an untrained model."""

import numpy as np
import pytest
import torch
from small_views import party_view
from torch import nn

import colonnade
from colonnade import algorithms
from colonnade.algorithms.training import Training
from colonnade.attacks.model_completion import Completion, complete_model
from colonnade.attacks.view import PartyView
from colonnade.errors import SettingsError
from colonnade.trials.attack import Trials, labelled_rows, model_completion
from colonnade.trials.attacked import Federated


def view_of(columns: torch.Tensor, model: nn.Module | None) -> PartyView:
    return PartyView("party1", party_view("party1", []).records, columns, model)


def test_two_known_rows_suffice_where_classes_lie_apart() -> None:
    columns = torch.tensor([[-1.0, 0.0], [-1.1, 0.1], [-0.9, 0.0], [1.0, 0.0], [1.1, -0.1], [0.9, 0.1]])
    known = np.array([0, 3], np.uint32)
    predicted = complete_model(view_of(columns, nn.Linear(2, 2)), known, np.array([0, 1]), classes=2)
    assert predicted.tolist() == [0, 0, 0, 1, 1, 1]


def test_columns_that_know_nothing_give_chance() -> None:
    """1,000 rows of two classes: 50 % with a deviation of 1.6 %; five deviations are allowed."""
    generator = torch.Generator().manual_seed(0)
    columns = torch.randn(1000, 5, generator=generator)
    truth = torch.randint(0, 2, (1000,), generator=generator).numpy()
    known = labelled_rows(truth, 4, seed=0)
    predicted = complete_model(view_of(columns, nn.Linear(5, 4)), known, truth[known], classes=2)
    others = np.setdiff1d(np.arange(1000), known)
    assert 0.42 < (predicted[others] == truth[others]).mean() < 0.58


def test_the_partys_own_model_is_left_as_it_was() -> None:
    model = nn.Linear(2, 2)
    before = model.weight.detach().clone()
    complete_model(view_of(torch.randn(6, 2), model), np.array([0, 3], np.uint32), np.array([0, 1]), classes=2)
    assert torch.equal(model.weight, before)


def test_a_view_of_the_wire_is_not_enough() -> None:
    known = np.array([0], np.uint32)
    with pytest.raises(SettingsError, match="no columns or no model"):
        complete_model(view_of(torch.zeros(3, 2), None), known, np.array([0]), classes=2)


def test_wrong_grants_are_refused() -> None:
    view = view_of(torch.zeros(3, 2), nn.Linear(2, 2))
    with pytest.raises(SettingsError, match="one label per row"):
        complete_model(view, np.zeros(0, np.uint32), np.zeros(0, np.int64), classes=2)
    with pytest.raises(SettingsError, match="above 0"):
        Completion(steps=0)
    with pytest.raises(SettingsError, match="smallest class has 2"):
        labelled_rows(np.array([0, 0, 1, 1, 1]), 2, seed=0)


def test_labelled_rows_are_so_many_of_each_class() -> None:
    truth = np.array([0, 1, 0, 1, 0, 1, 2, 2, 2])
    assert sorted(truth[labelled_rows(truth, 2, seed=3)].tolist()) == [0, 0, 1, 1, 2, 2]


def test_taking_part_teaches_a_party_to_classify() -> None:
    data = colonnade.dataset("digits", parties=2)
    training = Training(epochs=25, batch_size=32, learning_rate=0.1, evaluate_every_epochs=0)
    federated = Federated(algorithms.find("vafl").settings(), training)
    (line,) = model_completion(data, federated, [4], Trials(1))
    assert line.mean > line.beside["untrained bottom"] + 0.05
    assert line.mean > 4 * line.beside["chance"]
