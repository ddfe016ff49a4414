"""Linear algorithms with losses asked for by name against their slow twin: every number of recorded runs, to 1e-9."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from linear_federation import Twin
from test_linear_twin import NAMES, TRAINING, UNEVEN, assert_twin_agrees, settings_of, uneven_data

from colonnade import FederatedData
from colonnade.testing import TinyFederation, tiny_data

LOSSES: list[tuple[str, dict[str, Any]]] = [
    ("binary", {"loss": "smoothed-hinge"}),
    ("regression", {"loss": "robust", "loss_scale": 0.3}),
    ("binary", {"loss": "sigmoid"}),
    ("regression", {"loss": "huber", "loss_scale": 0.4}),
]
TASK = {changes["loss"]: task for task, changes in LOSSES}


def agreed(name: str, data: FederatedData, out: Path, **changes: Any) -> Twin:
    training = replace(TRAINING, epochs=4, learning_rate=0.15)
    return assert_twin_agrees(TinyFederation(data, settings_of(name, **changes), training, simulate=UNEVEN), out)


@pytest.mark.parametrize("place", range(len(NAMES)), ids=NAMES)
def test_every_algorithm_with_one_loss_and_another(place: int, tmp_path: Path) -> None:
    """Every rule has every loss, in one family or another; with labels at one party and at all."""
    task, changes = LOSSES[(place % 3 + place // 3) % 4]
    labels = "everywhere" if place % 2 else "one"
    twin = agreed(NAMES[place], tiny_data(task), tmp_path / "run", labels=labels, arity=3, **changes)
    assert twin.objective.name == changes["loss"]


@pytest.mark.parametrize(
    ("name", "loss", "changes"),
    [
        ("afsaga", "smoothed-hinge", {"precondition": "curvature"}),
        ("fsvrg", "robust", {"precondition": "curvature", "labels": "everywhere"}),
        ("asysqn-saga", "sigmoid", {"precondition": "block"}),
        ("synsqn-svrg", "huber", {"precondition": "columns", "curvature_rows": "same"}),
    ],
)
def test_scaled_steps(name: str, loss: str, changes: dict[str, Any], tmp_path: Path) -> None:
    twin = agreed(name, uneven_data(TASK[loss]), tmp_path / "run", loss=loss, **changes)
    assert not np.allclose(twin.workers["party1"].root, np.eye(3), atol=0.1)
