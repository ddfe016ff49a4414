"""What a linear run's summary says: rmse in the label's own unit, a training loss in which every batch counts alike."""

import numpy as np
import pytest

from colonnade import Training, from_arrays, train
from colonnade.algorithms import ALGORITHMS
from colonnade.algorithms.parts.progress import Progress
from colonnade.algorithms.training import DecidedTraining


def test_rmse_is_in_the_labels_own_unit() -> None:
    generator = np.random.default_rng(1)
    X = generator.normal(size=(200, 4))
    y = 5000 + 300 * (X @ np.ones(4)) + 30 * generator.normal(size=200)
    data = from_arrays(X, y, parties=2, task="regression")
    outcome = train(data, ALGORITHMS["fcg"].settings(), training=Training(epochs=5))
    assert 20 < outcome.summary["test"]["rmse"] < 45 and outcome.summary["test"]["r2"] > 0.99


def test_the_training_loss_counts_every_batch_alike() -> None:
    progress = Progress(DecidedTraining(observe_every_epochs=0.5), exchanges_per_epoch=4)
    for loss in (1.0, 1.0, 1.0):
        progress.add_loss(loss)
    progress.observe(2, 2)
    progress.add_loss(5.0)
    progress.observe(4, 4)
    assert progress.train_loss() == pytest.approx(2.0)  # (1 + 1 + 1 + 5)/4, not (1 + 5)/2


def test_what_earlier_versions_kept_is_read() -> None:
    progress = Progress(DecidedTraining(), exchanges_per_epoch=4)
    state = progress.state()
    state.values["_epoch_losses"] = [1.0, 3.0]
    progress.restore(state)
    assert progress.train_loss() == 2.0 and progress.recent_loss() == 3.0
