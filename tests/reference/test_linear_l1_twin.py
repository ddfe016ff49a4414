"""First-order linear algorithms with an L1 penalty against their slow twin, and at their limits, to 1e-9."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from linear_federation import CLOSE, Twin
from scipy.sparse import csr_array
from test_linear_twin import (
    FIRST_ORDER,
    TRAINING,
    UNEVEN,
    assert_twin_agrees,
    batches_named,
    final_weights,
    joined,
    settings_of,
    uneven_data,
)

from colonnade import from_arrays
from colonnade.testing import TinyFederation, tiny_data

L1 = replace(TRAINING, epochs=4, l1=0.08, learning_rate=0.2)
TASKS = ["binary", "multiclass", "regression"]


def some_are_zero(weights: list[Any]) -> bool:
    whole = np.concatenate([one.ravel() for one in weights])
    return bool((whole == 0).any() and (whole != 0).any())


def steady(name: str) -> dict[str, Any]:
    """Steps that stay as long as they are: the last of a line that falls bring few weights to zero."""
    return {"decay": 0.0} if name.endswith("sgd") else {}


@pytest.mark.parametrize("place", range(len(FIRST_ORDER)), ids=FIRST_ORDER)
def test_elastic_net(place: int, tmp_path: Path) -> None:
    """Every algorithm with one task or another, labels at one party or at all; zeros are the same zeros."""
    name, task = FIRST_ORDER[place], TASKS[(place + place // 3) % 3]
    labels = "everywhere" if place % 2 else "one"
    training = replace(L1, epochs=8, l1=0.6 if task == "regression" else 0.15)
    plan = TinyFederation(tiny_data(task), settings_of(name, labels=labels, **steady(name)), training, simulate=UNEVEN)
    twin = assert_twin_agrees(plan, tmp_path / "run")
    assert some_are_zero([worker.w for worker in twin.workers.values() if worker.X.size])
    for party, weights in final_weights(plan, tmp_path / "run").items():
        held = len(twin.workers[party].w) - twin.workers[party].intercept
        assert ((weights[:held] == 0) == (twin.workers[party].w[:held] == 0)).all()


@pytest.mark.parametrize(
    ("name", "precondition", "changes"),
    [
        ("afsaga", "auto", {"batches_per_request": 4}),
        ("fsgd", "auto", {}),
        ("afsvrg", "columns", {"labels": "everywhere"}),
        ("fsaga", "columns", {"intercept": False}),
        ("afsgd", "none", {"batches_per_request": 3, "loss": "smoothed-hinge"}),
    ],
)
def test_scaled_columns(name: str, precondition: str, changes: dict[str, Any], tmp_path: Path) -> None:
    algorithm = settings_of(name, precondition=precondition, **changes)
    plan = TinyFederation(uneven_data("binary"), algorithm, replace(L1, l1=0.05, learning_rate=0.1), simulate=UNEVEN)
    assert_twin_agrees(plan, tmp_path / "run")


@pytest.mark.parametrize("name", ["fsgd", "fsvrg", "fsaga"])
def test_without_delay_it_is_the_textbooks_proximal_algorithm(name: str, tmp_path: Path) -> None:
    plan = TinyFederation(tiny_data(), settings_of(name), L1)
    plan.run(tmp_path / "run")
    objective = Twin(plan, {}).objective
    alone = joined(plan, objective)
    alone.intercept = True
    for rows in batches_named(tmp_path / "run"):
        alone.step(rows, np.zeros((len(rows), 1)), None)
    apart = final_weights(plan, tmp_path / "run")
    together = np.vstack([apart[party][:-1] for party in plan.data.columns])
    assert np.abs(together - alone.w[:-1]).max() <= CLOSE
    assert np.abs(apart["party1"][-1] - alone.w[-1]).max() <= CLOSE


@pytest.mark.parametrize("name", FIRST_ORDER)
def test_sparse_columns_give_the_weights_of_dense_ones(name: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    X = (generator.normal(size=(40, 9)) * (generator.random((40, 9)) < 0.3)).astype(np.float32)
    y = (X @ np.linspace(-1, 1, 9) > 0).astype(int)
    found = []
    for kind, table in (("dense", X), ("sparse", csr_array(X))):
        data = from_arrays(
            table[:30], y[:30], X_test=table[30:], y_test=y[30:], parties=3, task="binary", standardise=False
        )
        plan = TinyFederation(data, settings_of(name, **steady(name)), replace(L1, l1=0.06), simulate=UNEVEN)
        layers: list[Any] = [one["bottom"] for one in plan.run(tmp_path / kind).models.values() if "bottom" in one]
        found.append(torch.cat([layer.weight.ravel() for layer in layers]).double())
    assert torch.allclose(*found, atol=2e-6, rtol=1e-5)
    assert ((found[0] == 0) == (found[1] == 0)).all() and bool((found[0] == 0).any())
