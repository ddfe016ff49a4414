"""A training that goes the wrong way ends as a failed run, in words, long before its loss is no number."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch

import colonnade
from colonnade.algorithms.parts.divergence import DivergenceWatch, constant_loss
from colonnade.errors import RunError
from colonnade.state import State

LABELS = torch.tensor([0, 1] * 10)


def watched(losses: list[float], per_epoch: int = 4) -> DivergenceWatch:
    watch = DivergenceWatch("binary", LABELS)
    for number, loss in enumerate(losses):
        watch.add(loss, (1 + number) / per_epoch)
    return watch


def test_the_constant_prediction_is_the_best_constant() -> None:
    shares = torch.tensor([0.25, 0.75])
    assert constant_loss("binary", torch.tensor([0, 1, 1, 1])) == pytest.approx(float(-(shares * shares.log()).sum()))
    assert constant_loss("multiclass", torch.tensor([0, 1, 2])) == pytest.approx(math.log(3))
    assert constant_loss("regression", torch.tensor([1.0, 3.0, 5.0])) == pytest.approx(8 / 3)


def test_a_loss_that_grows_above_the_constant_prediction_ends_the_run() -> None:
    with pytest.raises(RunError, match=r"diverged: .* its loss is 90 and does not fall.* would have 0.693"):
        watched([20.0, 30.0, 30.0, 90.0, 90.0, 90.0, 90.0])


@pytest.mark.parametrize(
    "losses",
    [
        [90.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0, 20.0, 15.0, 14.0, 13.0, 12.0],  # high, and falling
        [0.7, 0.8, 0.9, 0.7, 0.9, 0.8, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0],  # noise may keep it there
        [0.1, 0.1, 0.1, 40.0, 40.0, 0.1, 0.1, 40.0, 40.0, 0.1, 0.1, 0.1],  # swings
    ],
)
def test_what_is_slow_noisy_or_swings_is_not_ended(losses: list[float]) -> None:
    watched(losses)


def test_what_it_remembers_is_enough() -> None:
    watch, fresh = watched([20.0, 20.0, 30.0, 30.0, 90.0]), DivergenceWatch("binary", LABELS)
    fresh.restore(watch.state())
    with pytest.raises(RunError, match="diverged"):
        for number in range(6, 9):
            fresh.add(90.0, number / 4)


@pytest.mark.parametrize(
    ("task", "targets", "allowed", "refused"),
    [
        ("binary", LABELS, 0.83, 0.84),  # ln 2
        ("binary", torch.tensor([0] * 49 + [1]), 0.83, 0.84),  # a constant has 0.098, but training begins at ln 2
        ("multiclass", torch.tensor([0, 1, 2]), 1.31, 1.32),
        ("regression", torch.tensor([1.0, 3.0, 5.0]), 3.19, 3.21),  # of the variance
    ],
)
def test_a_training_that_falls_and_ends_far_above_the_constant_prediction_has_failed(
    task: str, targets: torch.Tensor, allowed: float, refused: float
) -> None:
    watch = DivergenceWatch(task, targets)
    watch.judge_the_end(allowed, 20.0)
    watch.judge_the_end(None, 20.0)  # nothing was recorded
    watch.judge_the_end(2 * refused, 9.0)  # it was short
    with pytest.raises(RunError, match=r"learnt nothing: after 20 epochs .* Scale columns"):
        watch.judge_the_end(refused, 20.0)
    DivergenceWatch(task, targets, looks=False).judge_the_end(refused, 20.0)


@pytest.mark.parametrize("algorithm", ["centralised", "split", "vafl"])
def test_a_training_that_has_not_arrived_is_told(algorithm: str) -> None:
    """With so small a rate it falls all the way, and is still above one prediction for all rows at the end."""
    random = np.random.default_rng(0)
    X = random.normal(size=(64, 4))
    data = colonnade.from_arrays(X * 100, (X[:, 0] > 0).astype(int), parties=2, standardise=False)
    with pytest.raises(RunError, match="learnt nothing"):
        colonnade.train(data, algorithm, training=colonnade.Training(epochs=10, learning_rate=1e-5, heal=False))


@pytest.mark.parametrize("ends", [True, False])
def test_it_can_be_told_to_go_on(ends: bool) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 8))
    data = colonnade.from_arrays(X, X @ random.normal(size=8), parties=2, task="regression")
    training = colonnade.Training(epochs=3, batch_size=16, learning_rate=0.9, end_when_diverged=ends, heal=False)
    settings = colonnade.algorithms.find("afsgd").settings(step="fixed", decay=0.0, precondition="none")
    with pytest.raises(RunError, match="diverged") if ends else nullcontext():
        assert colonnade.train(data, settings, training=training).summary["train_loss"] > 100


def test_a_run_of_an_earlier_version_is_watched_from_here_on() -> None:
    watch = DivergenceWatch("binary", LABELS)
    watch.restore(State({}, {}))
    watch.add(1.0, 0.1)


@pytest.mark.parametrize(
    ("algorithm", "rate"), [("vafl", 300.0), ("split", 300.0), ("centralised", 300.0), ("cascaded", 3.0), ("zoo", 3.0)]
)
def test_rates_out_of_all_reason(algorithm: str, rate: float) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 8))
    data = colonnade.from_arrays(X, (X[:, 0] + X[:, 5] > 0).astype(int), parties=2)
    training = colonnade.Training(epochs=20, batch_size=16, learning_rate=rate, embedding_bound=0, heal=False)
    with pytest.raises(RunError, match="diverged"):
        colonnade.train(data, algorithm, training=training)


def test_a_linear_training_that_diverges() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 8))
    data = colonnade.from_arrays(X, X @ random.normal(size=8), parties=2, task="regression")
    training = colonnade.Training(epochs=20, batch_size=16, learning_rate=2.0, heal=False)
    with pytest.raises(RunError, match="diverged"):
        colonnade.train(
            data,
            colonnade.algorithms.find("afsgd").settings(step="fixed", decay=0.0, precondition="none"),
            training=training,
        )
