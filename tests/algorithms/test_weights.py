"""Weighted losses: against a row that is there twice, against scikit-learn's optimum, and what must not change."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import colonnade
from colonnade import BottomSettings, Dpzv, Processes, Training
from colonnade.algorithms.parts.divergence import constant_loss
from colonnade.algorithms.parts.losses import Loss, best_threshold, metrics
from colonnade.algorithms.split_models.parts.noised_answers import NoisedTop, pair_slopes
from colonnade.data.federated import FederatedData
from colonnade.federation import building
from colonnade.federation.building import build_federation, facts_of
from colonnade.federation.plan import Plan, decided_training
from colonnade.launch.seat_files import Life, SeatFiles, read_seat, write_seat
from colonnade.models.linear_loss import LinearLoss
from colonnade.privacy.noise import PerturbationSettings
from colonnade.runtimes.endurance import Endurance
from colonnade.testing import TinyFederation, assert_same_bits, tiny_data, weights

FORMS = [
    *(("binary", 1, "auto"), ("multiclass", 3, "auto"), ("regression", 1, "auto")),
    *(
        ("binary", 1, "smoothed-hinge"),
        ("binary", 1, "sigmoid"),
        ("regression", 1, "huber"),
        ("regression", 1, "robust"),
    ),
]
TWICE = np.array([0, 1, 1, 2, 3, 3, 4])  # rows 1 and 3 are there twice
AS_OFTEN = np.array([1.0, 2.0, 1.0, 2.0, 1.0])


def with_weights(data: FederatedData, own: NDArray[np.float64]) -> FederatedData:
    return replace(data, labels=replace(data.labels, weights=torch.from_numpy(own)))


def some_rows(task: str, outputs: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    generator = np.random.default_rng(3)
    targets = {"binary": [0, 1, 1, 0, 1], "multiclass": [0, 2, 1, 1, 0], "regression": [0.5, -2.0, 0.1, 3.0, 1.0]}[task]
    return 2 * generator.normal(size=(5, outputs)), np.array(targets, np.float64)


# --- a row of weight 2 is that row twice ------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "outputs"), [("binary", 1), ("multiclass", 3), ("regression", 1)])
def test_the_loss_of_a_split_model(task: str, outputs: int) -> None:
    theta, targets = (torch.from_numpy(one) for one in some_rows(task, outputs))
    targets = targets.long() if task == "multiclass" else targets
    own, loss = torch.from_numpy(AS_OFTEN), Loss(task)
    value, gradient = loss.value_and_gradient(theta, targets, own)
    twice, by_row = loss.value_and_gradient(theta[TWICE], targets[TWICE])
    assert float(value) * 5 == pytest.approx(float(twice) * 7)
    summed = torch.zeros(5, outputs).double().index_add_(0, torch.from_numpy(TWICE), by_row)
    torch.testing.assert_close(gradient * 5, summed * 7)
    torch.testing.assert_close(loss.per_row(theta, targets, own), own * loss.per_row(theta, targets))
    outputs_of = theta.clone().requires_grad_()
    (loss.per_row(outputs_of, targets) * own).mean().backward()
    torch.testing.assert_close(gradient, outputs_of.grad)


@pytest.mark.parametrize(("task", "outputs", "name"), FORMS)
def test_the_loss_of_a_linear_model(task: str, outputs: int, name: Any) -> None:
    theta, targets = some_rows(task, outputs)
    loss = LinearLoss(task, outputs, name, 0.7 if name in ("huber", "robust") else 1.0, largest_weight=2.0)
    residuals, mean = loss.residuals_and_mean_loss(theta, targets, AS_OFTEN)
    twice, mean_twice = loss.residuals_and_mean_loss(theta[TWICE], targets[TWICE])
    assert mean * 5 == pytest.approx(mean_twice * 7, rel=1e-12)
    summed = np.zeros((5, outputs))
    np.add.at(summed, TWICE, twice)
    np.testing.assert_allclose(residuals, summed, rtol=1e-12)
    assert loss.mean_loss(theta, targets, np.ones(5)) == pytest.approx(loss.mean_loss(theta, targets), rel=1e-12)
    assert np.abs(residuals).max() <= loss.most_residual


@pytest.mark.parametrize(("task", "outputs", "name"), FORMS)
def test_curvature_with_weights_and_without_knowing_them(task: str, outputs: int, name: Any) -> None:
    """Who knows the weights has it exactly; who does not never takes less, and never more than there can be."""
    theta, targets = some_rows(task, outputs)
    own = np.array([0.0, 2.0, 0.3, 1.0, 1.7])
    scale = 0.7 if name in ("huber", "robust") else 1.0
    plain, known = LinearLoss(task, outputs, name, scale), LinearLoss(task, outputs, name, scale, largest_weight=2.0)
    residuals = known.residuals(theta, targets, own)
    directions = np.random.default_rng(4).normal(size=(20, 5, outputs))
    for direction in directions:
        exact = own[:, None] * plain.curvature_times(plain.residuals(theta, targets), direction)
        np.testing.assert_allclose(known.curvature_times(residuals, direction, own), exact, atol=1e-12)
        above = (direction * known.curvature_times(residuals, direction)).sum(1)
        assert (above >= (direction * exact).sum(1) - 1e-12).all()
        assert (above <= known.smoothness * np.square(direction).sum(1) + 1e-12).all()
    assert (
        known.curvatures(residuals) >= own[:, None] * plain.curvatures(plain.residuals(theta, targets)) - 1e-12
    ).all()
    assert (known.curvatures(residuals) <= known.most_curvature_of_an_output + 1e-12).all()
    sure = known.sure_curvature_times(residuals, directions[0], 0.5, own)
    assert (np.abs(sure[0]) == 0).all()


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_the_constant_prediction(task: str) -> None:
    targets = torch.from_numpy(some_rows(task, 1)[1])
    targets = targets if task == "regression" else targets.long()
    own = torch.from_numpy(AS_OFTEN)
    assert constant_loss(task, targets, own) * 5 == pytest.approx(constant_loss(task, targets[TWICE]) * 7)
    assert constant_loss(task, targets, torch.ones(5).double()) == pytest.approx(constant_loss(task, targets))


# --- whole runs -------------------------------------------------------------------------------------------------

RUNS = {
    "vafl": colonnade.Vafl(),
    "dpzv": Dpzv(noise=0.5),
    "afsaga": colonnade.Afsaga(labels="everywhere"),
    "asysqn-svrg": colonnade.AsysqnSvrg(),
}


@pytest.mark.parametrize("name", RUNS)
def test_weights_of_1_give_the_same_bits_as_none(name: str, tmp_path: Path) -> None:
    algorithm: Any = RUNS[name]
    data = tiny_data(label_party_columns=True)
    plain = TinyFederation(data, algorithm)
    # Of noised answers a weight is not divided by the mean: only 1 is 1.
    alike = with_weights(data, np.full(data.rows, 1.0 if name == "dpzv" else 3.0))
    table = {"0": 1.0, "1": 1.0}
    weighted = TinyFederation(alike, algorithm, replace(plain.training, class_weight=table))
    one, other = plain.run(tmp_path / "plain"), weighted.run(tmp_path / "weighted")
    assert_same_bits(weights(one.models), weights(other.models))
    assert one.summary["train_loss"] == other.summary["train_loss"]
    assert one.summary["bytes_up"] == other.summary["bytes_up"]


def skewed_data() -> FederatedData:
    """Two classes, one of which has a seventh of the rows."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(280, 6))
    y = (X @ np.array([1.0, -1.0, 0.5, 0.0, 1.0, 0.3]) + generator.normal(size=280) > 2.1).astype(int)
    return colonnade.from_arrays(X, y, parties=3, test_fraction=0.25, standardise=True)


@pytest.mark.parametrize(
    ("name", "epochs", "gap"),
    [
        *(("fcg", 20, 1e-6), ("asysqn-saga", 60, 1e-6), ("synsqn-svrg", 60, 1e-6)),
        *(("fsaga", 60, 5e-3), ("afsvrg", 60, 2e-2), ("afsgd", 30, 0.1)),  # whose steps are four times shorter
    ],
)
def test_balanced_classes_come_to_scikit_learns_optimum(name: str, epochs: int, gap: float) -> None:
    data = skewed_data()
    X = np.hstack([np.asarray(own.train) for own in data.columns.values()])
    y = data.labels.train.numpy()
    counts = np.bincount(y)
    own = (len(y) / (2 * counts))[y]
    assert own.max() > 2.5
    theirs = LogisticRegression(C=1.0, class_weight="balanced", tol=1e-10, max_iter=1000).fit(X, y)

    def objective(theta: NDArray[np.float64], w: NDArray[np.float64]) -> float:
        losses = np.logaddexp(0, theta) - y * theta
        return float((own * losses).mean() + np.square(w).sum() / (2 * len(y)))

    best = objective(theirs.decision_function(X), theirs.coef_)
    training = Training(epochs=epochs, class_weight="balanced", evaluate_every_epochs=0)
    outcome = colonnade.train(data, name, training=training)
    theta = outcome.outputs({party: one.train for party, one in data.columns.items()}).double().numpy()[:, 0]
    w = np.concatenate([outcome.models[party]["bottom"].weight.detach().numpy()[0] for party in data.columns])
    found = objective(theta, w)
    assert -1e-6 <= found - best <= gap * best
    plain = LogisticRegression(C=1.0).fit(X, y)
    assert objective(plain.decision_function(X), plain.coef_) > 1.1 * best  # or the test would say nothing of weights


def test_metrics_weigh_no_row() -> None:
    data = skewed_data()
    training = Training(epochs=3, class_weight="balanced", threshold=0.7)
    for name in ("split", "fcg"):
        outcome = colonnade.train(data, name, training=training)
        outputs = outcome.outputs({party: own.test for party, own in data.columns.items()})
        told = metrics("binary", outputs, data.labels.test, threshold=0.7)
        for metric in ("accuracy", "auc", "log_loss"):
            assert outcome.summary["test"][metric] == pytest.approx(told[metric], abs=1e-5), (name, metric)
        at_half = metrics("binary", outputs, data.labels.test)
        assert at_half["accuracy"] != told["accuracy"] and at_half["auc"] == told["auc"]


# --- what other parties, processes and organisations are given --------------------------------------------------


def built(algorithm: Any, data: FederatedData, **changes: Any) -> Any:
    training = decided_training(Training(epochs=1, **changes), algorithm, data.rows, len(data.feature_parties))
    plan = Plan(algorithm, training, PerturbationSettings(), BottomSettings(), colonnade.TopSettings(), 0)
    return build_federation(data, plan, facts_of(data, plan))


def test_a_seat_of_its_own_holds_the_label_partys_weights_and_nobody_elses(tmp_path: Path) -> None:
    data = with_weights(tiny_data(), np.linspace(0.5, 2, 24))
    federation = built(colonnade.Afsaga(), data, class_weight={"1": 2.0}, threshold="auto")
    life = Life("", (), Endurance())
    for name in ("label", "party1"):
        write_seat(tmp_path / name, SeatFiles(federation.seat_of(name), federation.facts, federation.plan, life))
        seat = read_seat(tmp_path / name)
        assert seat.plan.training == federation.plan.training and seat.facts == federation.facts
        labels = seat.private_data[0].labels
        assert (labels is None) == (name == "party1")
        if labels is not None:
            assert torch.equal(labels.weights, data.labels.weights)
    assert federation.facts.largest_weight > 1.5 and federation.facts.weighted
    assert built(colonnade.Vafl(), data).facts.largest_weight == 1.0  # nobody needs it


def test_processes_train_with_weights() -> None:
    data = with_weights(tiny_data(), np.linspace(0.5, 2, 24))
    training = Training(epochs=4, batch_size=8, class_weight="balanced", threshold="auto")
    outcome = colonnade.train(data, "fcg", training=training, runtime=Processes())
    same = colonnade.train(data, "fcg", training=training)
    assert outcome.summary["train_loss"] == pytest.approx(same.summary["train_loss"], rel=1e-9)
    assert outcome.summary["test"]["threshold"] == pytest.approx(same.summary["test"]["threshold"], rel=1e-9)


# --- privacy ----------------------------------------------------------------------------------------------------


def test_one_row_moves_a_noised_answer_by_no_more_than_without_weights() -> None:
    """The clip is on the weighted slope; another label and another weight of one row change that row's part alone."""
    clip, rows = 0.01, np.arange(8, dtype=np.uint32)
    found = []
    for own, label in ((1.0, 0), (500.0, 1)):
        data = tiny_data()
        labels, given = data.labels.train.clone(), np.linspace(0.5, 50.0, data.rows)
        labels[2], given[2] = label, own
        data = with_weights(replace(data, labels=replace(data.labels, train=labels)), given)
        federation = built(Dpzv(clip=clip, noise=1.0), data, class_weight={"1": 4.0})
        seat = building._label_seat(federation.private_data[0], federation.facts, federation.plan)
        top = NoisedTop(seat, seat.settings, seat.settings.directions_used())
        batch = top.batch(rows)
        width = sum(seat.widths.values())
        around = torch.linspace(-3, 3, 16 * width).reshape(16, width)
        at = top.row_losses(batch, top.outputs(batch, around)).astype(np.float64)
        slopes = pair_slopes(at, 0.001)
        assert np.abs(slopes).max() > 100 * clip
        found.append((top.noised_means(slopes, clip, 0.0)[0], slopes[0]))
    (one, slopes), (other, changed) = found
    assert 0 < abs(one - other) <= 2 * clip / 8 + 1e-15
    assert (np.delete(slopes, 2) == np.delete(changed, 2)).all()


# --- the threshold ----------------------------------------------------------------------------------------------


def test_the_best_threshold_is_the_best() -> None:
    generator = np.random.default_rng(2)
    for _ in range(30):
        scores = torch.from_numpy(generator.normal(size=12).round(1))  # with ties
        labels = torch.from_numpy(generator.integers(0, 2, 12))
        chosen = metrics("binary", scores[:, None], labels, threshold=best_threshold(scores, labels))["accuracy"]
        cuts = [-10.0, *((scores[:, None] + scores[None]) / 2).ravel().tolist(), 10.0]
        assert chosen == max(float(((scores > cut) == (labels > 0)).double().mean()) for cut in cuts)
    assert best_threshold(torch.tensor([-1.0, 1.0]), torch.tensor([0, 1])) == 0.5


@pytest.mark.parametrize("name", ["vafl", "centralised", "afsaga", "fsgd"])
def test_auto_is_told_and_beats_one_half_on_training_rows(name: str) -> None:
    """Classes that weigh a hundred times more or less move all probabilities; the threshold makes up for it."""
    data = skewed_data()
    plain = Training(epochs=15, class_weight={"1": 100.0})
    found = colonnade.train(data, name, training=replace(plain, threshold="auto")).summary["test"]
    at_half = colonnade.train(data, name, training=plain).summary["test"]
    assert "threshold" not in at_half and found["threshold"] > 0.6
    assert found["accuracy"] > at_half["accuracy"] + 0.1 and found["auc"] == at_half["auc"]
