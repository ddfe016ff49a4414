"""Two claims of the VAFL paper, on real data that comes with scikit-learn.

Asynchronous training ends where training in one place ends; and with a straggler it gets there in about half the time
of synchronous training (section 5: "two times speed-up in most cases").
"""

from typing import Any

import pytest
from sklearn.datasets import load_digits

from colonnade import (
    BottomSettings,
    Centralised,
    Simulate,
    SimulatedParty,
    Split,
    TopSettings,
    Training,
    Vafl,
    dataset,
    from_arrays,
    train,
)

LOGISTIC: dict[str, Any] = {"bottom": BottomSettings("linear"), "top": TopSettings("sum")}
NETWORK: dict[str, Any] = {"bottom": BottomSettings(hidden=(), embedding=32), "top": TopSettings(hidden=(32,))}


@pytest.mark.parametrize(
    ("model", "training"),
    [
        (LOGISTIC, Training(epochs=10, batch_size=64, learning_rate=1.0, evaluate_every_epochs=0)),
        (NETWORK, Training(epochs=40, batch_size=64, learning_rate=0.1, evaluate_every_epochs=0)),
    ],
    ids=["logistic", "network"],
)
def test_vafl_is_within_a_point_of_centralised(model: dict[str, Any], training: Training) -> None:
    """Same epochs, batches and learning rates for both; mean over three seeds."""
    digits = dataset("digits", parties=4, split="row-strips")
    accuracy = {
        type(algorithm): [
            train(digits, algorithm, training=training, seed=seed, **model).summary["test"]["accuracy"]
            for seed in range(3)
        ]
        for algorithm in (Vafl(), Centralised())
    }
    asynchronous, together = (sum(accuracy[algorithm]) / 3 for algorithm in (Vafl, Centralised))
    assert together > 0.94
    assert asynchronous > together - 0.01


@pytest.mark.parametrize("seed", [0, 1])
def test_a_straggler_halves_the_speed_of_split_but_not_of_vafl(seed: int) -> None:
    """Virtual time to the same loss of the joint model over all training rows, with fresh embeddings.

    The loss that the label party records is no fair measure, because it holds embeddings of older models. So the
    training rows stand as test rows too, and evaluation, which costs no virtual time, gives the loss.
    """
    X, y = load_digits(return_X_y=True)
    X = X.reshape(-1, 1, 8, 8)[:1200]
    y = y[:1200]
    digits = from_arrays(X, y, X_test=X, y_test=y, parties=4, split="row-strips")
    straggler = Simulate(parties={"party1": SimulatedParty(slowdown=3.0)})
    training = Training(epochs=8, batch_size=64, learning_rate=0.4, evaluate_every_epochs=0.25)
    seconds = {}
    for algorithm in (Vafl(), Split()):
        outcome = train(digits, algorithm, training=training, simulate=straggler, seed=seed, **LOGISTIC)
        scored = [line for line in outcome.metrics if line["metric"]]
        seconds[type(algorithm)] = next(line["virtual_seconds"] for line in scored if line["metric"]["log_loss"] <= 0.4)
    assert seconds[Split] / seconds[Vafl] >= 2
