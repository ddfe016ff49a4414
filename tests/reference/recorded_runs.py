"""Tiny federations, and runs of them that a test can read back message by message.

A trace holds what one party saw, in its order; `Item` is one record of it with the frame decoded.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from colonnade import (
    BottomSettings,
    FederatedData,
    Outcome,
    Simulate,
    TopSettings,
    Training,
    algorithms,
    from_arrays,
    train,
)
from colonnade.federation.building import build_parties
from colonnade.messages import Message
from colonnade.party import Party
from colonnade.privacy.noise import PerturbationSettings
from colonnade.trace import read_trace
from colonnade.wire.codec import decode

LINEAR = BottomSettings("linear", embedding=2)
CONCAT = TopSettings("concat-linear")
TWO_EPOCHS = Training(epochs=2, batch_size=8, observe_every_epochs=0)
NO_NOISE = PerturbationSettings()
DEFAULT_WORLD = Simulate()
NO_TIME = Simulate(compute_seconds=0.0, label_compute_seconds=0.0, latency_seconds=0.0)


def tiny_data(task: str = "binary", parties: int = 3, label_party_columns: bool = False) -> FederatedData:
    """24 training rows, 8 test rows, 6 columns; every column matters."""
    generator = np.random.default_rng(5)
    X = generator.normal(size=(32, 6))
    score = X @ np.array([1.0, -1.0, 0.5, 1.5, -0.5, 1.0])
    y = {"binary": (score > 0).astype(int), "multiclass": np.digitize(score, [-1.0, 1.0]), "regression": score}[task]
    return from_arrays(
        X[:24],
        y[:24],
        X_test=X[24:],
        y_test=y[24:],
        parties=parties,
        task=task,
        label_party_columns=label_party_columns,
        standardise=False,
    )


class Item(NamedTuple):
    """One record of a trace: `peer` and `message` for what was sent or received, `fields` for the rest."""

    type: str
    peer: str
    message: Message | None
    fields: tuple[Any, ...]


def read_items(path: Path) -> list[Item]:
    items = []
    for record in read_trace(path):
        if record.type == "Received":
            items.append(Item(record.type, record.fields[1], decode(bytearray(record.fields[2])), record.fields))
        elif record.type == "Send":
            items.append(Item(record.type, record.fields[0], decode(bytearray(record.fields[1])), record.fields))
        else:
            items.append(Item(record.type, "", None, record.fields))
    return items


@dataclass(frozen=True)
class Plan:
    """Everything that a run is given; the same plan gives the same run."""

    data: FederatedData = field(repr=False)
    algorithm: Any
    training: Training = TWO_EPOCHS
    bottom: Any = LINEAR
    top: Any = CONCAT
    privacy: PerturbationSettings = NO_NOISE
    simulate: Simulate = DEFAULT_WORLD
    seed: int = 0

    def models(self) -> tuple[Any, Any]:
        """Bottom and top; those of an algorithm that defines its models itself are not asked for."""
        row = algorithms.find(algorithms.name_of(self.algorithm))
        own = row.brings_models
        return (BottomSettings(), TopSettings()) if own else (self.bottom, self.top)

    def run(self, out: Path, **how: Any) -> Outcome:
        """Train with a trace; `how` is what does not change a result (stop_requested, resume, …)."""
        bottom, top = self.models()
        return train(
            self.data,
            self.algorithm,
            training=self.training,
            bottom=bottom,
            top=top,
            privacy=self.privacy,
            simulate=self.simulate,
            seed=self.seed,
            out=out,
            trace=True,
            **how,
        )

    def parties(self) -> dict[str, Party]:
        """The parties as they are before the first event."""
        bottom, top = self.models()
        return build_parties(self.data, self.algorithm, self.training, self.privacy, bottom, top, self.seed)

    def training_with(self, **changes: Any) -> "Plan":
        return replace(self, training=replace(self.training, **changes))

    @property
    def names(self) -> list[str]:
        """Every party, the label party first."""
        return [self.data.label_party, *self.data.feature_parties]


def read_run(out: Path) -> dict[str, list[Item]]:
    """The traces of a run, by party."""
    return {path.stem: read_items(path) for path in sorted((out / "trace").glob("*.trace"))}


def weights(models: dict[str, dict[str, torch.nn.Module]]) -> dict[str, torch.Tensor]:
    """Every tensor of every party's models, by party, model and name."""
    return {
        f"{party} {model} {name}": tensor
        for party, own in models.items()
        for model, module in own.items()
        for name, tensor in module.state_dict().items()
    }


def assert_same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    different = [name for name, tensor in one.items() if not torch.equal(tensor, other[name])]
    assert different == []


class StopAfter:
    """A `stop_requested` that says yes when it is asked for the k-th time; it also counts."""

    def __init__(self, events: float = float("inf")) -> None:
        self.events = events
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.asked > self.events


Kinds = type[Message] | tuple[type[Message], ...]


def sends(items: list[Item], kind: Kinds, to: str | None = None) -> list[Item]:
    return _of("Send", items, kind, to)


def receipts(items: list[Item], kind: Kinds, sender: str | None = None) -> list[Item]:
    return _of("Received", items, kind, sender)


def _of(what: str, items: list[Item], kind: Kinds, peer: str | None) -> list[Item]:
    fits: Callable[[Item], bool] = lambda item: peer is None or item.peer == peer  # noqa: E731
    return [item for item in items if item.type == what and isinstance(item.message, kind) and fits(item)]
