"""Attacks, measured: trains small federations, hands each adversary what it saw, and scores what it made of it.

The truth (labels, columns) is used here alone, to score; an attack never gets it. Every trial has a seed of its own:
`seed`, `seed` + 1, …. Deviations are over trials.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from colonnade import algorithms
from colonnade.algorithms.linear_models.parts.trees import Tree, balanced, different_pair
from colonnade.algorithms.parts.randomness import seed_for
from colonnade.algorithms.row import Algorithm, Family
from colonnade.attacks.curious_party import CuriousParty
from colonnade.attacks.embedding_inversion import Inversion, invert_embeddings
from colonnade.attacks.label_inference import REPLIES_READ, UPLOADS_READ, InferredLabels, infer_labels
from colonnade.attacks.model_completion import complete_model
from colonnade.attacks.product_inference import (
    InferredColumn,
    View,
    column_up_to_a_factor,
    scaled_by_introduction,
    scaled_by_known_rows,
    scaled_by_range,
)
from colonnade.attacks.view import PooledView, read_party_view, read_wire_view
from colonnade.data.federated import FederatedData, PartyColumns
from colonnade.errors import DataError, SettingsError, unknown_name
from colonnade.federation.building import facts_of
from colonnade.messages import EmbeddingUpload
from colonnade.models.top import TopSettings
from colonnade.trials.attacked import Federated, TracedRun, build_untrained, check_attackable, curious_seat, trained

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
class Measurement:
    """One line of an attack's table: what came out in each trial, and what it is to be compared with."""

    algorithm: str
    adversary: str
    measure: str  # "success": share of rows whose secret was found | "R²": 1 − error / error of predicting the mean
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

CURIOUS = "curious party"
EAVESDROPPER = "eavesdropper"
DIFFERENCES = "eavesdropper, embedding differences"


def label_inference(
    data: FederatedData, federated: Federated, trials: Trials, say: Say = lambda line: None
) -> list[Measurement]:
    """Direct label inference on a label party that only sums: a curious party, and somebody on the wire.

    A row counts as found if its label was guessed right; a row that no answer spoke of counts as not found.
    """
    classes = classes_of(data)
    reads = "Direct label inference reads what crosses between parties"
    check_attackable(federated.name, is_read, reads, "has no upload that it knows")
    if not federated.is_own:
        federated = replace(federated, top=TopSettings(kind="sum"))
    elif not federated.top.only_sums:
        raise SettingsError(
            f"Direct label inference reads what a label party that only sums sends back, and this one has top.kind = "
            f"{federated.top.kind!r}: it does not apply. See what --active finds, or colonnade attack "
            "model-completion; or what sums would give away, with --set top.kind=sum."
        )
    first_order = federated.conversation.upload is EmbeddingUpload
    found: dict[str, list[float]] = {}
    truth = data.labels.train.numpy()
    for seed in trials.seeds():
        party = federated.feature_party(data)
        curious = CuriousParty(curious_seat(data, federated, party, seed))
        with trained(data, federated, seed, {party: curious}) as run:
            view = read_party_view(run.trace(party))
            found.setdefault(CURIOUS, []).append(share_found(infer_labels(view), truth))
        with trained(data, federated, seed) as run:
            wire = read_wire_view(run.traces())
            guessed = None if first_order else np.random.default_rng(seed_for(seed, "guessed directions"))
            found.setdefault(EAVESDROPPER, []).append(share_found(infer_labels(wire, guessed), truth))
            if not first_order:
                found.setdefault(DIFFERENCES, []).append(share_found(infer_labels(wire), truth))
        told = ", ".join(f"{adversary} {values[-1]:.3f}" for adversary, values in found.items())
        say(f"{federated.name}, seed {seed}: {told}")
    conditions = _noises(federated)
    if hasattr(federated.algorithm, "directions"):
        conditions["directions"] = federated.algorithm.directions
    beside = {"chance": 1 / classes, "majority class": majority(truth)}
    return [
        Measurement(federated.name, adversary, "success", tuple(values), conditions, beside)
        for adversary, values in found.items()
    ]


def is_read(algorithm: Algorithm) -> bool:
    """Whether its messages are those that the attack reads, and its label party can be made to sum and nothing else."""
    said = algorithm.conversation
    return (
        not algorithm.brings_models and said is not None and said.upload in UPLOADS_READ and said.reply in REPLIES_READ
    )


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
    classes = classes_of(data)
    _check_sends_embeddings(federated.name)
    party = federated.feature_party(data)
    truth = data.labels.train.numpy()
    success: dict[int, list[float]] = {k: [] for k in labels_per_class}
    untrained: dict[int, list[float]] = {k: [] for k in labels_per_class}
    alone: dict[int, list[float]] = {k: [] for k in labels_per_class}
    accuracy: list[float] = []
    for seed in trials.seeds():
        columns = data.columns[party].dense().train
        before = build_untrained(data, federated, seed)[party].model()["bottom"]
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
            {**_noises(federated), "labels per class": k},
            {
                "untrained bottom": mean(untrained[k]),
                "no bottom": mean(alone[k]),
                "chance": 1 / classes,
                "majority class": majority(truth),
                **_joint(accuracy),
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
    _check_sends_embeddings(federated.name)
    party = federated.feature_party(data)
    columns = data.columns[party].dense().train.flatten(1).numpy().astype(np.float64)
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
    width = facts_of(data, federated.plan(data, trials.seed)).widths[party]
    conditions = {"noise": federated.privacy.noise, "width": width, "last": inversion.last}
    return [
        Measurement(
            federated.name,
            f"label party, {inversion.inverse}",
            "R²",
            tuple(values[share]),
            {**conditions, "auxiliary rows": share},
            {"predicting the mean": 0.0, **_joint(accuracy)},
        )
        for share in auxiliary
    ]


def explained(predicted: NDArray[np.float64], truth: NDArray[np.float64], guess: NDArray[np.float64]) -> float:
    """R² over all columns together: 1 − ‖predicted − truth‖² / ‖guess − truth‖². At 0 it is no better than `guess`."""
    return 1.0 - float(((predicted - truth) ** 2).sum() / ((guess - truth) ** 2).sum())


# --- inference from products ------------------------------------------------------------------------------------

KNOWLEDGE = {"rows": "", "range": ", knows the range", "introduction": ", knows nothing"}
"""What scales an inferred column, and how an adversary is called that knows it."""


@dataclass(frozen=True)
class ExposedParty:
    """The feature party that is attacked, and what its adversaries know of it."""

    columns: int = 1  # of its own that it keeps, drawn by the seed; the first one is the secret
    padding: int = 0  # columns of zeros that it adds, so that others do not know how many it has
    knows: str = "rows"  # rows | range | introduction: a few rows' values | smallest and largest value | neither
    known_rows: int = 5  # how many, if it knows rows
    tolerance: float = 0.1  # ε of Definition 5, in deviations of the column: a value this near counts as found
    as_it_is: bool = False  # with all of its columns and no others

    def __post_init__(self) -> None:
        if self.knows not in KNOWLEDGE:
            raise unknown_name("knowledge", self.knows, KNOWLEDGE)
        if self.columns < 1 or self.padding < 0 or self.known_rows < 1:
            raise SettingsError(
                f"The attacked party has {self.columns} columns and {self.padding} of zeros, and {self.known_rows} "
                "rows are known; it needs at least 1 column, 0 of zeros and 1 known row."
            )
        if not (math.isfinite(self.tolerance) and self.tolerance > 0):
            raise SettingsError(f"The tolerance is {self.tolerance} deviations of the column; it must be above 0.")


def product_inference(
    data: FederatedData, federated: Federated, exposed: ExposedParty, trials: Trials, say: Say = lambda line: None
) -> list[Measurement]:
    """Somebody who sees a party's products infers its column: the party above it in the tree, somebody on the wire.

    With two trees also the two parties that are above it in one of them each, together. A row counts as found if its
    value was inferred within the tolerance; rows that were known do not count. Chance is the best constant. From an
    introduction alone the sign stays unknown, so the better one counts. "one column" is the share of trials in which
    the answers were those of one column, which tells the adversary that its assumption holds.
    """
    check_sends_products(federated.name)
    trees = _trees(data, federated.algorithm.decided(federated.training.l1))
    party = _alone_in(data, trees, federated.party)
    found: dict[str, list[float]] = {}
    single: dict[str, list[float]] = {}
    chance: list[float] = []
    for seed in trials.seeds():
        narrow = with_columns(data, party, exposed.columns, exposed.padding, seed) if not exposed.as_it_is else data
        truth = _first_varying(narrow.columns[party])
        near = exposed.tolerance * float(truth.std())
        order = np.random.default_rng(seed_for(seed, "known rows")).permutation(truth.size).astype(np.uint32)
        known = np.sort(order[: exposed.known_rows]) if exposed.knows == "rows" else order[:0]
        secret = np.setdiff1d(np.arange(truth.size), known)
        chance.append(best_constant(truth[secret], near))
        with trained(narrow, federated, seed) as run:
            for adversary, view in _onlookers(run, trees, party):
                column = column_up_to_a_factor(view, party, data.label_party)
                single.setdefault(adversary, []).append(float(column.looks_like_one_column))
                if exposed.knows == "rows":
                    column = scaled_by_known_rows(column, known, truth[known])
                elif exposed.knows == "range":
                    column = scaled_by_range(column, float(truth.min()), float(truth.max()))
                else:
                    column = scaled_by_introduction(column, view, party)
                signs = (1, -1) if exposed.knows == "introduction" else (1,)
                share = max(share_near(column, sign * truth, secret, near) for sign in signs)
                found.setdefault(adversary, []).append(share)
        told = ", ".join(f"{adversary} {values[-1]:.3f}" for adversary, values in found.items())
        say(f"{federated.name}, {federated.algorithm.sums} sums, seed {seed}: {told}")
    return [
        Measurement(
            federated.name,
            f"{federated.algorithm.sums} sums: {adversary}{KNOWLEDGE[exposed.knows]}",
            "success",
            tuple(values),
            {
                "columns": len(data.columns[party].names) if exposed.as_it_is else exposed.columns,
                "zeros": exposed.padding,
                "known rows": exposed.known_rows if exposed.knows == "rows" else 0,
                "tolerance": exposed.tolerance,
            },
            {"chance": mean(chance), "one column": mean(single[adversary])},
        )
        for adversary, values in found.items()
    ]


def _first_varying(columns: PartyColumns) -> NDArray[np.float64]:
    """The secret: the first column that is not constant."""
    train = columns.dense().train.flatten(1).double().numpy()
    return train[:, int(np.flatnonzero(train.std(0) > 0)[0])]


def check_sends_products(algorithm: str) -> None:
    """Refuse an algorithm that is none of a linear federation's."""
    reads = "Inference from products needs parties that send products"
    check_attackable(algorithm, lambda row: row.family is Family.LINEAR, reads, "has none")


def _noises(federated: Federated) -> dict[str, float]:
    """On embeddings; and on what comes back, where there is any: of somebody's own federation there may be."""
    answered = federated.algorithm.noise if federated.conversation.noised_answers else 0.0
    return {"noise": federated.privacy.noise, **({"answer noise": answered} if answered else {})}


def _check_sends_embeddings(algorithm: str) -> None:
    if algorithms.find(algorithm).family is Family.LINEAR:
        raise SettingsError(
            f"The parties of {algorithm!r} send products, not embeddings: measure colonnade attack product-inference, "
            f"or another algorithm, such as {algorithms.DEFAULT}."
        )


def share_near(column: InferredColumn, truth: NDArray[np.float64], rows: NDArray[np.intp], near: float) -> float:
    """How many of these rows were inferred no further than `near` from the truth."""
    inferred = np.full(truth.size, np.nan)
    inferred[column.rows] = column.values
    return float((np.abs(inferred[rows] - truth[rows]) <= near).mean())  # NaN is near nothing


def best_constant(truth: NDArray[np.float64], near: float) -> float:
    """The largest share of the values that one guess for all can come near to."""
    ordered = np.sort(truth)
    within = np.searchsorted(ordered, ordered + 2 * near, side="right") - np.arange(ordered.size)
    return float(within.max()) / ordered.size


def with_columns(data: FederatedData, party: str, columns: int, padding: int, seed: int) -> FederatedData:
    """The party keeps so many of its columns, drawn by the seed, and adds so many of zeros; constant ones are none."""
    own = data.columns[party].dense()
    train, test = (part.flatten(1) for part in (own.train, own.test))
    varying = np.flatnonzero(train.double().std(0).numpy() > 0)
    if varying.size < columns:
        raise SettingsError(f"{party!r} has {varying.size} columns that are not constant: it cannot keep {columns}.")
    kept = np.random.default_rng(seed_for(seed, "kept columns")).choice(varying, columns, replace=False)
    names = (*(f"kept {place}" for place in range(columns)), *(f"zeros {place}" for place in range(padding)))
    narrow = [
        torch.cat([part[:, torch.from_numpy(kept)], torch.zeros(len(part), padding)], 1) for part in (train, test)
    ]
    return replace(data, columns={**data.columns, party: PartyColumns(narrow[0], narrow[1], names)})


def _trees(data: FederatedData, settings: Any) -> tuple[Tree, ...]:
    """Along which the label party's sums run, as every party works them out from the settings."""
    parties = (data.label_party, *data.feature_parties)
    if settings.sums == "two-tree":
        return different_pair(parties, data.label_party)
    return (balanced(parties, data.label_party, settings.children_of_a_party(len(parties))),)


def _alone_in(data: FederatedData, trees: tuple[Tree, ...], wanted: str = "") -> str:
    """The feature party that is attacked: it has nobody below it, so that its sums are its own products.

    The first feature party is left out, since its products hold the intercept.
    """
    able = [party for party in data.feature_parties[1:] if not any(tree.children(party) for tree in trees)]
    if wanted and wanted not in able and able:
        raise SettingsError(
            f"The sums of {wanted!r} hold the intercept, or products of others: this attack does not read them. "
            f"Attack another party with --party: {', '.join(able)}."
        )
    if able:
        return wanted or able[0]
    raise SettingsError(
        f"Of {len(data.feature_parties)} feature parties none but the first is at the end of its tree, so none answers "
        "for itself alone. Share the columns among at least 3."
    )


def _onlookers(run: TracedRun, trees: tuple[Tree, ...], party: str) -> list[tuple[str, View]]:
    above = [read_party_view(run.trace(tree.parent[party])) for tree in trees]
    onlookers: list[tuple[str, View]] = [("party above", above[0])]
    if len(above) > 1:
        onlookers.append(("two that collude", PooledView(tuple(above))))
    return [*onlookers, (EAVESDROPPER, read_wire_view(run.traces()))]


# --- what attacks share ------------------------------------------------------------------------------------------


def classes_of(data: FederatedData) -> int:
    if data.labels.task == "regression":
        raise DataError(
            f"The data set {data.name!r} is a regression; this attack infers classes. Choose one with classes, such as "
            "digits."
        )
    return len(data.labels.classes)


def _joint(accuracies: Sequence[float]) -> dict[str, float]:
    """What the model is worth that was attacked; of a regression there is no accuracy."""
    return {} if any(math.isnan(one) for one in accuracies) else {"joint model": mean(accuracies)}


def majority(truth: NDArray[np.int64]) -> float:
    return float(np.bincount(truth).max() / truth.size)
