"""summary.json: one object that says what a run was and what came out. Its keys are part of the interface.

What is in it is gathered where runs are started (launch/summary.py); here is its form.
"""

import platform
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Any, NotRequired, TypedDict


class Staleness(TypedDict):
    """How many exchanges ago embeddings had been written when they were used."""

    mean: float
    p95: int
    max: int


class DataSummary(TypedDict):
    """What was trained on: sizes and names."""

    name: str
    rows: int
    test_rows: int
    validation_rows: NotRequired[int]
    task: str
    parties: dict[str, dict[str, int]]  # name → {"columns": how many}
    rows_by_party: dict[str, dict[str, int]]  # of own tables: name → {"held": …, "matched": …, "used": …}


class Summary(TypedDict):
    """Everything that is known at the end of a run, under the names that the documentation gives."""

    algorithm: str
    runtime: str
    seed: int
    status: str  # "finished" | "stopped"
    exchanges: int
    epochs: float
    wall_seconds: float
    virtual_seconds: float | None  # of a simulation
    bytes_up: int
    bytes_down: int
    bytes_by_message: dict[str, int]
    frames_by_message: dict[str, int]
    evaluation_bytes: int
    retransmitted_bytes: int
    train_loss: float | None
    test: dict[str, float]  # metric → value at the last evaluation
    errors: NotRequired[dict[str, Any]]  # of the test rows: confusion matrix, ROC curve, calibration
    baseline: NotRequired[dict[str, float]]  # what one prediction for all rows scores on the test rows
    little_learnt: NotRequired[bool]  # whether the model scores about the same
    validation: NotRequired[dict[str, float]]  # the same of validation rows, at the best evaluation
    kept: NotRequired[dict[str, Any]]  # which model is used, the best or the last, and when the best was scored
    step_cuts: NotRequired[list[float]]  # epochs at which a training did not descend, and went on with shorter steps
    acceptance: NotRequired[Mapping[str, Any]]  # whether the model is better than the one that the training began with
    headline: str
    staleness: Staleness
    counts: dict[str, int]
    parties: dict[str, dict[str, Any]]
    expelled: dict[str, str]  # of a network run: who was put out of it, and why
    privacy: dict[str, Any]
    learnt: list[dict[str, Any]]
    data: DataSummary
    settings: dict[str, Any]
    versions: dict[str, str]


def over_all_senders(counts: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Frames or bytes by kind of message, from those of every party.

    >>> over_all_senders({"a": {"Upload": 2}, "b": {"Upload": 3, "Answer": 1}})
    {'Answer': 1, 'Upload': 5}
    """
    total: dict[str, int] = {}
    for sent in counts.values():
        for kind, count in sent.items():
            total[kind] = total.get(kind, 0) + count
    return dict(sorted(total.items()))


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    return {"python": platform.python_version(), **{name: _version(name) for name in ("colonnade", "torch", "numpy")}}


@cache
def _version(package: str) -> str:
    return metadata.version(package)  # reads and parses a file each time
