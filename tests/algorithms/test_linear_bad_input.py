"""A user's mistake with a linear federation is one clear sentence; what only people can judge is a note, once."""

from typing import Any

import numpy as np
import pytest
import torch

from colonnade import BottomSettings, SettingsError, TopSettings, Training, from_arrays, train
from colonnade.algorithms import ALGORITHMS
from colonnade.federation.file import parse_federation
from colonnade.privacy.noise import PerturbationSettings
from colonnade.testing import tiny_data

NAMES = [name for name, row in ALGORITHMS.items() if row.linear_party is not None]
TRAINING = Training(epochs=1, batch_size=8)


@pytest.mark.parametrize("name", [*NAMES, "fdml"])
@pytest.mark.parametrize(
    "models",
    [
        {"bottom": BottomSettings("lstm", hidden=(3,))},
        {"top": TopSettings("concat-linear")},
        {"bottom": torch.nn.Linear(2, 1)},
        {"top": torch.nn.Linear(3, 1)},
    ],
    ids=["bottom", "top", "a module below", "a module above"],
)
def test_models_that_would_not_be_used_are_refused(name: str, models: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=rf"{name} trains a linear model.*Leave them out"):
        train(tiny_data(), name, training=TRAINING, **models)


@pytest.mark.parametrize("name", NAMES)
def test_noise_and_optimisers_that_would_not_be_used_are_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=rf"{name} sends exact sums.*\[privacy\] has no effect"):
        train(tiny_data(), name, training=TRAINING, privacy=PerturbationSettings(noise=1.0, clip=1.0))
    changes: list[tuple[str, Any]] = [("optimiser", "adam"), ("top_learning_rate", 0.5), ("top_l2", 0.1)]
    changes += [("decay", "linear"), ("top_decay", "linear")]
    for setting, value in changes:
        with pytest.raises(SettingsError, match=rf"{name} does not use training.{setting}\. Leave it out"):
            train(tiny_data(), name, training=Training(epochs=1, batch_size=8, **{setting: value}))


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("sums", "pairwize", r"no value of algorithm\.sums 'pairwize'.*Known: "),
        ("labels", "nobody", r"no value of algorithm\.labels 'nobody'.*Known: "),
        ("step", "long", r"no value of algorithm\.step 'long'.*Known: "),
        ("sumz", "plain", r"no setting in \[algorithm\] named 'sumz'\. Did you mean 'sums'"),
        ("arity", 0, r"algorithm\.arity is 0; a party of the tree has at least 1 child"),
        ("arity", 1.5, r"algorithm\.arity is wrong: expected a whole number"),
        ("fraction_bits", 60, r"fraction_bits is 60; it must lie between 8 and 52"),
        ("tolerance", -1.0, r"algorithm\.tolerance is -1\.0"),
        ("tolerance", float("nan"), r"algorithm\.tolerance is nan"),
        ("max_product_age_epochs", -1.0, r"algorithm\.max_product_age_epochs is -1\.0"),
        ("batches_per_request", 0, r"algorithm\.batches_per_request is 0; at least 1"),
        ("memory", 0, r"algorithm\.memory is 0"),
        ("least_curvature", 0.0, r"algorithm\.least_curvature is 0\.0; it must be above 0"),
        ("curvature_rows", "old", r"no value of algorithm\.curvature_rows 'old'.*Known: "),
        ("decay", -0.1, r"algorithm\.decay is -0\.1"),
        ("loss", "hinge", r"no value of algorithm\.loss 'hinge'.*Known: "),
        ("loss_scale", 0.0, r"algorithm\.loss_scale is 0\.0; it must be above 0"),
        ("loss_scale", 0.5, r"algorithm\.loss_scale is 0\.5, and algorithm\.loss = 'auto' has no scale"),
    ],
)
def test_a_wrong_setting_is_named(setting: str, value: Any, sentence: str) -> None:
    values = {"algorithm": {"name": "asysqn-sgd", setting: value}, "data": {"set": "iris", "parties": 2}}
    with pytest.raises(SettingsError, match=sentence):
        parse_federation(values)


def test_settings_of_the_other_schedule_are_unknown() -> None:
    for name, setting in (("fsgd", "batches_per_request"), ("afsgd", "party_timeout_seconds"), ("afsgd", "memory")):
        with pytest.raises(SettingsError, match=f"no setting in .algorithm. named '{setting}'"):
            parse_federation({"algorithm": {"name": name, setting: 1}, "data": {"set": "iris", "parties": 2}})


def separable(noise: bool) -> Any:
    """One column tells the label; with `noise`, one row is on the wrong side."""
    X = np.linspace(-1, 1, 24)[:, None] * np.ones(2)
    y = (X[:, 0] > 0).astype(int)
    if noise:
        y[0] = 1
    return from_arrays(X, y, X_test=X, y_test=y, parties=2, task="binary", standardise=False)


@pytest.mark.parametrize("name", ["afsgd", "afsaga", "fsvrg"])
def test_separable_rows_without_a_penalty_are_pointed_out_once(name: str) -> None:
    training: dict[str, Any] = {"epochs": 40, "batch_size": 8}

    def notes(noise: bool, l2: float) -> list[str]:
        outcome = train(separable(noise), name, training=Training(**training, l2=l2))
        return [line["note"] for line in outcome.metrics if line.get("note")]

    (note,) = notes(noise=False, l2=0.0)
    assert "training.l2 is 0" in note and "Set training.l2 above 0" in note
    assert notes(noise=False, l2=0.01) == notes(noise=True, l2=0.0) == []
