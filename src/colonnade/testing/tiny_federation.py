"""Federations of a few rows, run in virtual time: small enough to run hundreds of them in a test.

The same `TinyFederation` gives the same run, message for message, so two of its runs can be compared bit for bit.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from colonnade.algorithms import find, name_of
from colonnade.algorithms.training import Training
from colonnade.data.absence import ABSENT, with_absent
from colonnade.data.federated import FederatedData
from colonnade.data.loading import from_arrays
from colonnade.federation.building import build_parties
from colonnade.launch.experiment import train
from colonnade.launch.outcome import Outcome
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.party import Party
from colonnade.privacy.noise import PerturbationSettings
from colonnade.runtimes.simulate.settings import Simulate

LINEAR = BottomSettings("linear", embedding=2)
CONCAT = TopSettings("concat-linear")
TWO_EPOCHS = Training(epochs=2, batch_size=8, learning_rate=0.1, observe_every_epochs=0)
NO_NOISE = PerturbationSettings()
DEFAULT_WORLD = Simulate()


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


def lacking(data: FederatedData, drop_share: float = 0.25) -> FederatedData:
    """The same where every party lacks some rows, each others, and drops this share of those that it has in training.

    >>> lacking(tiny_data(parties=3)).columns["party2"].train[:3, -1]
    tensor([0., 1., 0.])
    """

    def absent(columns: Any, place: int) -> Any:
        present = np.arange(columns.shape[0]) % 3 != place
        return with_absent(columns[present], present)

    columns = {
        name: replace(
            held,
            train=absent(held.train, place),
            test=absent(held.test, place),
            validation=None if held.validation is None else absent(held.validation, place),
            names=(*held.names, ABSENT),
            drop_share=drop_share,
        )
        for place, (name, held) in enumerate(data.columns.items())
    }
    return replace(data, columns=columns)


@dataclass(frozen=True)
class TinyFederation:
    """Everything that a run is given; the same one gives the same run."""

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
        row = find(name_of(self.algorithm))
        own = row.brings_models
        return (BottomSettings(), TopSettings()) if own else (self.bottom, self.top)

    def run(self, out: Path, *, trace: bool = True, **how: Any) -> Outcome:
        """Train; `how` is what does not change a result (stop_requested, resume, …)."""
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
            trace=trace,
            **how,
        )

    def parties(self) -> dict[str, Party]:
        """The parties as they are before the first event."""
        bottom, top = self.models()
        return build_parties(self.data, self.algorithm, self.training, self.privacy, bottom, top, self.seed)

    def training_with(self, **changes: Any) -> "TinyFederation":
        return replace(self, training=replace(self.training, **changes))

    @property
    def names(self) -> list[str]:
        """Every party, the label party first."""
        return [self.data.label_party, *self.data.feature_parties]


class StopAfter:
    """A `stop_requested` that says yes when it is asked for the k-th time; it also counts."""

    def __init__(self, events: float = float("inf")) -> None:
        self.events = events
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.asked > self.events


def weights(models: dict[str, dict[str, torch.nn.Module]]) -> dict[str, torch.Tensor]:
    """Every tensor of every party's models, by party, model and name."""
    return {
        f"{party} {model} {name}": tensor
        for party, own in models.items()
        for model, module in own.items()
        for name, tensor in module.state_dict().items()
    }


def assert_same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    """Both have the same tensors under the same names, to the last bit."""
    only = sorted(one.keys() ^ other.keys())
    if only:
        raise AssertionError(f"These tensors are on one side alone: {', '.join(only)}.")
    different = [name for name, tensor in one.items() if not torch.equal(tensor, other[name])]
    if different:
        raise AssertionError(f"These tensors differ: {', '.join(different)}.")
