"""Bottom models without gradients: zeroth-order algorithms train them, the others refuse them in one sentence.

The problem is one that hard thresholds solve: y is 1 where one party's x is above 0.6, less 1 where the other's is
above −0.3. All thresholds start at 0.1, with a fifth of the rows or more on the wrong side of each.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from colonnade import (
    Cascaded,
    Centralised,
    ColonnadeError,
    Czofo,
    Dpzv,
    FlatModel,
    SettingsError,
    Split,
    TopSettings,
    Training,
    Vafl,
    Zoo,
    ZooSync,
    from_arrays,
    train,
)
from colonnade.data import FederatedData

TRUE = {"party1": 0.6, "party2": -0.3}
START = 0.1


def two_steps(label_party_columns: bool = False) -> FederatedData:
    X = np.random.default_rng(8).uniform(-1, 1, size=(600, 3 if label_party_columns else 2))
    y = (X[:, 0] > TRUE["party1"]).astype(float) - (X[:, 1] > TRUE["party2"])
    how: dict[str, Any] = {
        "task": "regression",
        "parties": 2,
        "standardise": False,
        "label_party_columns": label_party_columns,
    }
    return from_arrays(X[:400], y[:400], X_test=X[400:], y_test=y[400:], **how)


def above(threshold: Tensor, rows: Tensor) -> Tensor:
    return (rows > threshold).float()


def stump() -> FlatModel:
    return FlatModel(torch.tensor([START]), above)


TRAINING = Training(
    epochs=25, batch_size=20, learning_rate=0.02, optimiser="sgd", top_learning_rate=0.1, evaluate_every_epochs=0
)


SETTINGS = [
    Cascaded(smoothing_radius=0.2, directions=4),
    Zoo(smoothing_radius=0.2, directions=4),
    ZooSync(smoothing_radius=0.2, directions=4),
    Dpzv(smoothing_radius=0.2),
]


@pytest.mark.parametrize("algorithm", SETTINGS, ids=lambda settings: type(settings).__name__)
def test_thresholds_are_learnt(algorithm: Any) -> None:
    outcome = train(two_steps(), algorithm, bottom=stump(), top=TopSettings("concat-linear"), training=TRAINING)
    assert outcome.summary["test"]["rmse"] < 0.25
    for party, threshold in TRUE.items():
        learnt = outcome.models[party]["bottom"].vector.item()
        assert abs(learnt - threshold) < 0.1


def test_with_thresholds_that_stay_the_problem_is_not_solved() -> None:
    """Or the test above would say little."""
    still = Training(
        epochs=25, batch_size=20, learning_rate=1e-9, optimiser="sgd", top_learning_rate=0.1, evaluate_every_epochs=0
    )
    top = TopSettings("concat-linear")
    outcome = train(two_steps(), Cascaded(smoothing_radius=0.2), bottom=stump(), top=top, training=still)
    assert outcome.summary["test"]["rmse"] > 0.4


def test_a_gradient_could_not_have_moved_them() -> None:
    """Written as a plain module, the stump passes for one with gradients, and stays where it was."""

    class Stump(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.threshold = nn.Parameter(torch.tensor([START]))

        def forward(self, rows: Tensor) -> Tensor:
            return above(self.threshold, rows)

    outcome = train(two_steps(), Vafl(), bottom=Stump(), top=TopSettings("concat-linear"), training=TRAINING)
    assert all(outcome.models[party]["bottom"].threshold.item() == pytest.approx(START) for party in TRUE)


@pytest.mark.parametrize("algorithm", [Vafl(), Split(), Czofo(), Centralised()], ids=lambda a: type(a).__name__)
def test_algorithms_that_need_gradients_refuse(algorithm: Any) -> None:
    with pytest.raises(SettingsError, match=r"party1 is a FlatModel, which has no gradients.*Choose cascaded, zoo"):
        train(two_steps(), algorithm, bottom=stump())


def test_a_flat_model_of_a_party_is_its_own() -> None:
    """The vector is copied, whatever its shape and type, and the function is called with the copy."""
    given = torch.zeros(2, 1, dtype=torch.float64)
    model = FlatModel(given, lambda w, x: x * w[0] + w[1])
    given.add_(1)
    assert model.vector.tolist() == [0.0, 0.0]
    assert model.vector.dtype == torch.float32
    assert model(torch.ones(3, 1)).tolist() == [[0.0]] * 3


@pytest.mark.parametrize("algorithm", [Cascaded, Zoo, ZooSync, Dpzv])
def test_a_bottom_without_parameters_is_passed_through_or_refused(algorithm: type[Any]) -> None:
    try:
        outcome = train(two_steps(), algorithm(), bottom=nn.Identity(), training=Training(epochs=1, batch_size=20))
    except ColonnadeError as error:
        assert "party1" in str(error)
    else:
        assert outcome.finished


def test_a_label_party_of_first_order_refuses_a_flat_model_of_its_own() -> None:
    with pytest.raises(SettingsError, match=r"label.* FlatModel"):
        train(two_steps(label_party_columns=True), Cascaded(), bottom={"label": stump()})


@pytest.mark.parametrize("server_update", ["first-order", "dp-sgd"])
def test_dpzv_refuses_a_flat_model_where_its_label_party_is_of_first_order(server_update: str) -> None:
    algorithm = Dpzv(server_update=server_update, server_noise=0.1)
    with pytest.raises(SettingsError, match=r"bottom model of label is a FlatModel.*server_update = 'zeroth-order'"):
        train(two_steps(label_party_columns=True), algorithm, bottom={"label": stump()})
    with pytest.raises(SettingsError, match=r"top model is a FlatModel"):
        train(two_steps(), algorithm, top=FlatModel(torch.zeros(1), lambda w, x: x.sum(1, keepdim=True) * w))


@pytest.mark.parametrize("server_update", ["zeroth-order", "private-zo", "frozen"])
def test_dpzv_takes_a_flat_model_where_its_label_party_needs_no_gradient(server_update: str) -> None:
    algorithm = Dpzv(server_update=server_update, server_noise=0.1, smoothing_radius=0.2)
    short = Training(epochs=1, batch_size=20, learning_rate=0.001, optimiser="sgd")
    outcome = train(two_steps(label_party_columns=True), algorithm, bottom={"label": stump()}, training=short)
    assert outcome.finished
