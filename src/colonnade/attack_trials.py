"""Attacks, measured: trains small federations, hands each adversary what it saw, and scores what it made of it.

The truth (labels, columns) is used here alone, to score; an attack never gets it. Every trial has a seed of its own:
`seed`, `seed` + 1, …. Deviations are over trials.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from colonnade import algorithms
from colonnade.algorithms.parts.randomness import seed_for
from colonnade.algorithms.parts.synchrony import Synchronous
from colonnade.algorithms.parts.training import Training
from colonnade.attacks.curious_party import CuriousParty, CuriousSeat
from colonnade.attacks.embedding_inversion import Inversion, invert_embeddings
from colonnade.attacks.label_inference import InferredLabels, infer_labels
from colonnade.attacks.model_completion import complete_model
from colonnade.attacks.view import read_party_view, read_wire_view
from colonnade.data.federated import FederatedData
from colonnade.errors import DataError, SettingsError
from colonnade.experiment import build_parties
from colonnade.messages import EmbeddingUpload, Message, PairUpload, PerturbedUpload
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.party import Party
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.noise import PerturbationSettings
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.simulate import Simulate, Simulation

Say = Callable[[str], None]


@dataclass(frozen=True)
class Trials:
    """What all measurements of one command share."""

    count: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise SettingsError(f"The number of trials is {self.count}; it must be at least 1.")
        if self.seed < 0:
            raise SettingsError(f"The seed is {self.seed}; it must be 0 or more.")

    def seeds(self) -> range:
        return range(self.seed, self.seed + self.count)


@dataclass(frozen=True)
class Federated:
    """The federation that is attacked."""

    algorithm: Any  # settings of an algorithm
    training: Training
    bottom: BottomSettings = field(default_factory=BottomSettings)
    top: TopSettings = field(default_factory=TopSettings)
    privacy: PerturbationSettings = field(default_factory=PerturbationSettings)

    @property
    def name(self) -> str:
        return algorithms.name_of(self.algorithm)


@dataclass(frozen=True)
class Measurement:
    """One line of an attack's table: what came out in each trial, and what it is to be compared with."""

    algorithm: str
    adversary: str
    measure: str  # "success": share of rows whose label was found | "R²": 1 − error / error of predicting the mean
    values: tuple[float, ...]
    conditions: Mapping[str, float | int | str] = field(default_factory=dict)
    beside: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        return mean(self.values)

    @property
    def deviation(self) -> float:
        return stdev(self.values) if len(self.values) > 1 else 0.0

    def as_values(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "adversary": self.adversary,
            "conditions": dict(self.conditions),
            "measure": self.measure,
            "mean": self.mean,
            "deviation": self.deviation,
            "values": list(self.values),
            "beside": dict(self.beside),
        }


# --- direct label inference -------------------------------------------------------------------------------------

# What an honest feature party of each algorithm uploads; the replies are told apart by their kind.
UPLOADS: dict[str, type[Message]] = {
    "vafl": EmbeddingUpload,
    "split": EmbeddingUpload,
    "cascaded": PerturbedUpload,
    "zoo": PerturbedUpload,
    "zoo-sync": PerturbedUpload,
    "czofo": PerturbedUpload,
    "dpzv": PairUpload,
}

CURIOUS = "curious party"
EAVESDROPPER = "eavesdropper"
DIFFERENCES = "eavesdropper, embedding differences"


def label_inference(
    data: FederatedData, federated: Federated, trials: Trials, say: Say = lambda line: None
) -> list[Measurement]:
    """Direct label inference on a label party that only sums: a curious party, and somebody on the wire.

    A row counts as found if its label was guessed right; a row that no answer spoke of counts as not found.
    """
    classes = _classes(data)
    federated = replace(federated, top=TopSettings(kind="sum"))
    if federated.name not in UPLOADS:
        raise SettingsError(
            f"Direct label inference reads what crosses between parties, and {federated.name!r} has no upload that it "
            f"knows. Choose one of: {', '.join(UPLOADS)}."
        )
    first_order = UPLOADS[federated.name] is EmbeddingUpload
    found: dict[str, list[float]] = {}
    truth = data.labels.train.numpy()
    for seed in trials.seeds():
        with trained(data, federated, seed, curious=data.feature_parties[0]) as run:
            view = read_party_view(run.trace(data.feature_parties[0]))
            found.setdefault(CURIOUS, []).append(share_found(infer_labels(view), truth))
        with trained(data, federated, seed) as run:
            wire = read_wire_view(run.traces())
            guessed = None if first_order else np.random.default_rng(seed_for(seed, "guessed directions"))
            found.setdefault(EAVESDROPPER, []).append(share_found(infer_labels(wire, guessed), truth))
            if not first_order:
                found.setdefault(DIFFERENCES, []).append(share_found(infer_labels(wire), truth))
        told = ", ".join(f"{adversary} {values[-1]:.3f}" for adversary, values in found.items())
        say(f"{federated.name}, seed {seed}: {told}")
    conditions = {"noise": federated.privacy.noise}
    if hasattr(federated.algorithm, "directions"):
        conditions["directions"] = federated.algorithm.directions
    beside = {"chance": 1 / classes, "majority class": _majority(truth)}
    return [
        Measurement(federated.name, adversary, "success", tuple(values), conditions, beside)
        for adversary, values in found.items()
    ]


def share_found(inferred: InferredLabels, truth: NDArray[np.int64]) -> float:
    """How many of all rows got their own label."""
    return float((truth[inferred.rows] == inferred.labels).sum()) / truth.size


# --- model completion -------------------------------------------------------------------------------------------


def model_completion(
    data: FederatedData,
    federated: Federated,
    labels_per_class: Sequence[int],
    trials: Trials,
    say: Say = lambda line: None,
) -> list[Measurement]:
    """A feature party completes its trained bottom model with k labelled rows a class; beside it, an untrained one.

    "no bottom" is a head on the party's own columns: what the labels are worth to somebody who took no part.
    """
    classes = _classes(data)
    party = data.feature_parties[0]
    truth = data.labels.train.numpy()
    success: dict[int, list[float]] = {k: [] for k in labels_per_class}
    untrained: dict[int, list[float]] = {k: [] for k in labels_per_class}
    alone: dict[int, list[float]] = {k: [] for k in labels_per_class}
    accuracy: list[float] = []
    for seed in trials.seeds():
        columns = data.columns[party].train
        before = _built(data, federated, seed)[party].model()["bottom"]
        with trained(data, federated, seed) as run:
            view = read_party_view(run.trace(party), columns, run.models[party]["bottom"])
            accuracy.append(run.accuracy)
            for k in labels_per_class:
                known = labelled_rows(truth, k, seed)
                others = np.setdiff1d(np.arange(truth.size), known)
                for model, values in ((view.model, success[k]), (before, untrained[k]), (nn.Flatten(), alone[k])):
                    predicted = complete_model(replace(view, model=model), known, truth[known], classes, seed=seed)
                    values.append(float((predicted[others] == truth[others]).mean()))
        told = ", ".join(f"{k} a class {success[k][-1]:.3f} (untrained {untrained[k][-1]:.3f})" for k in success)
        say(f"{federated.name}, seed {seed}: {told}")
    return [
        Measurement(
            federated.name,
            "feature party",
            "success",
            tuple(success[k]),
            {"noise": federated.privacy.noise, "labels per class": k},
            {
                "untrained bottom": mean(untrained[k]),
                "no bottom": mean(alone[k]),
                "chance": 1 / classes,
                "majority class": _majority(truth),
                "joint model": mean(accuracy),
            },
        )
        for k in labels_per_class
    ]


def labelled_rows(truth: NDArray[np.int64], per_class: int, seed: int) -> NDArray[np.uint32]:
    """That many rows of each class, drawn by the seed."""
    if per_class < 1:
        raise SettingsError(f"labels-per-class is {per_class}; it must be at least 1.")
    drawn = np.random.default_rng(seed_for(seed, "labelled rows"))
    chosen = []
    for one in np.unique(truth):
        own = np.flatnonzero(truth == one)
        if own.size <= per_class:
            raise SettingsError(
                f"labels-per-class is {per_class}, but the smallest class has {own.size} training rows: give fewer."
            )
        chosen.append(drawn.choice(own, per_class, replace=False))
    return np.sort(np.concatenate(chosen)).astype(np.uint32)


# --- embedding inversion ----------------------------------------------------------------------------------------


def embedding_inversion(
    data: FederatedData,
    federated: Federated,
    auxiliary: Sequence[float],
    inversion: Inversion,
    trials: Trials,
    say: Say = lambda line: None,
) -> list[Measurement]:
    """The label party reconstructs a feature party's columns; `auxiliary` are shares of rows that it knows whole."""
    for share in auxiliary:
        if not 0 < share < 1:
            raise SettingsError(f"The share of auxiliary rows is {share}; it must lie between 0 and 1.")
    party = data.feature_parties[0]
    columns = data.columns[party].train.flatten(1).numpy().astype(np.float64)
    values: dict[float, list[float]] = {share: [] for share in auxiliary}
    accuracy: list[float] = []
    for seed in trials.seeds():
        with trained(data, federated, seed) as run:
            view = read_party_view(run.trace(data.label_party))
            accuracy.append(run.accuracy)
            drawn = np.random.default_rng(seed_for(seed, "auxiliary rows"))
            order = drawn.permutation(len(columns)).astype(np.uint32)
            for share in auxiliary:
                known = np.sort(order[: max(2, round(share * len(columns)))])
                found = invert_embeddings(view, party, known, columns[known], inversion, seed)
                values[share].append(explained(found.columns, columns[found.rows], columns[known].mean(0)))
        told = ", ".join(f"{share:g} known R² {own[-1]:.3f}" for share, own in values.items())
        say(f"{federated.name}, seed {seed}: {told}")
    conditions = {"noise": federated.privacy.noise, "width": federated.bottom.embedding, "last": inversion.last}
    return [
        Measurement(
            federated.name,
            f"label party, {inversion.inverse}",
            "R²",
            tuple(values[share]),
            {**conditions, "auxiliary rows": share},
            {"predicting the mean": 0.0, "joint model": mean(accuracy)},
        )
        for share in auxiliary
    ]


def explained(predicted: NDArray[np.float64], truth: NDArray[np.float64], guess: NDArray[np.float64]) -> float:
    """R² over all columns together: 1 − ‖predicted − truth‖² / ‖guess − truth‖². At 0 it is no better than `guess`."""
    return 1.0 - float(((predicted - truth) ** 2).sum() / ((guess - truth) ** 2).sum())


# --- running a federation that somebody looks at ----------------------------------------------------------------


@dataclass(frozen=True)
class TracedRun:
    """A finished training and the folder with its parties' traces, which is gone afterwards."""

    folder: Path
    models: dict[str, dict[str, nn.Module]]
    accuracy: float  # of the joint model on test rows; NaN without any

    def traces(self) -> list[Path]:
        return sorted((self.folder / "trace").glob("*.trace"))

    def trace(self, party: str) -> Path:
        return self.folder / "trace" / f"{party}.trace"


@contextmanager
def trained(data: FederatedData, federated: Federated, seed: int, curious: str = "") -> Iterator[TracedRun]:
    """Train with every party traced; `curious` names a feature party whose place a CuriousParty takes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory(prefix="colonnade-attack-") as name:
            folder = Path(name)
            parties = _built(data, federated, seed)
            if curious:
                parties[curious] = CuriousParty(_curious_seat(data, federated, curious, seed))
            recorder = Recorder(data.label_party, folder)
            simulation = Simulation(
                parties,
                data.label_party,
                Simulate(),
                seed,
                recorder,
                Ledger(),
                directory=folder,
                trace=True,
                checkpoint_seconds=math.inf,
            )
            try:
                simulation.run()
            finally:
                simulation.close()
                recorder.close()
            scored = [line["metric"] for line in recorder.metrics if line["metric"]]
            accuracy = scored[-1].get("accuracy", math.nan) if scored else math.nan
            yield TracedRun(folder, {party: own.model() for party, own in parties.items()}, accuracy)
    finally:
        torch.set_num_threads(threads)


def _built(data: FederatedData, federated: Federated, seed: int) -> dict[str, Party]:
    chosen = (federated.algorithm, federated.training, federated.privacy, federated.bottom, federated.top)
    return build_parties(data, *chosen, seed)


def _curious_seat(data: FederatedData, federated: Federated, party: str, seed: int) -> CuriousSeat:
    settings = federated.algorithm
    looks = settings.looks() if hasattr(settings, "looks") else None
    return CuriousSeat(
        label_party=data.label_party,
        rows=data.rows,
        width=len(data.labels.classes) if data.labels.task == "multiclass" else 1,
        batch_size=federated.training.batch_size,
        upload=UPLOADS[federated.name],
        chooses_rows=not isinstance(settings, Synchronous),
        points=looks.points if looks else 1,
        radius=looks.radius if looks else 0.0,
        seed=seed_for(seed, party, "crafted"),
    )


def _classes(data: FederatedData) -> int:
    if data.labels.task == "regression":
        raise DataError(
            f"The data set {data.name!r} is a regression; this attack infers classes. Choose one with classes, such as "
            "digits."
        )
    return len(data.labels.classes)


def _majority(truth: NDArray[np.int64]) -> float:
    return float(np.bincount(truth).max() / truth.size)
