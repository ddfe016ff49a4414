"""What a federation has agreed on, and what all its parties know of one another."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from torch import nn

from colonnade import algorithms
from colonnade.algorithms.parts.losses import Loss
from colonnade.algorithms.row import Algorithm, Conversation, Family, NoisedAnswers, Passes
from colonnade.algorithms.training import AUTO, DecidedTraining, Training
from colonnade.array_fields import PRECISIONS
from colonnade.data.batches import check_batch_size
from colonnade.errors import SettingsError, unknown_name
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.names import check_party_name
from colonnade.privacy.noise import PerturbationSettings

Bottoms = BottomSettings | nn.Module | Mapping[str, BottomSettings | nn.Module]


@dataclass(frozen=True)
class Plan:
    """What a federation has agreed on: the settings that every party shares."""

    algorithm: Any
    training: DecidedTraining
    privacy: PerturbationSettings
    bottom: Bottoms
    top: TopSettings | nn.Module
    seed: int

    def __post_init__(self) -> None:
        if self.is_linear:
            object.__setattr__(self, "algorithm", self.algorithm.decided(self.training.l1))

    @property
    def chosen(self) -> Algorithm:
        return algorithms.find(algorithms.name_of(self.algorithm))

    @property
    def is_linear(self) -> bool:
        """Whether every party updates a block of one linear model."""
        return self.chosen.family is Family.LINEAR

    @property
    def is_alone(self) -> bool:
        """Whether one party trains on everybody's data in one place."""
        return self.chosen.family is Family.ALONE

    @property
    def conversation(self) -> Conversation:
        """What its parties send one another. There is none where one party trains alone: ask that first."""
        conversation = self.chosen.conversation
        assert conversation is not None, f"{self.chosen.name} sends nothing"
        return conversation

    @property
    def noised_answers(self) -> NoisedAnswers | None:
        """The settings of the noise on answers; None: the algorithm answers exactly, or nobody."""
        noised: NoisedAnswers | None = self.algorithm if self.chosen.noises_answers else None
        return noised

    @property
    def hides_labels(self) -> bool:
        """Whether what the label party answers is noised, or going to be: then nothing that others notice may depend on
        labels without that noise."""
        noised = self.noised_answers
        return self.privacy.labels_epsilon > 0 or (noised is not None and noised.noise > 0)

    def keeps_best(self, validation_rows: int) -> bool:
        """Whether the best model that was scored is used in the end, and not the last one."""
        return validation_rows > 0 and self.training.keep != "last" and not self.hides_labels

    @property
    def answer_clip(self) -> float:
        """What one label may move an answer by, at most, is twice this over the batch: C √q of q noised numbers."""
        answers = self.noised_answers
        clip = 0.0 if answers is None else answers.clip_bound
        return float(clip * self.conversation.answered(self.algorithm) ** 0.5)


@dataclass(frozen=True)
class Facts:
    """What all parties of a federation know of one another: sizes and names, no data."""

    label_party: str
    feature_parties: tuple[str, ...]
    rows: int
    test_rows: int
    task: str
    classes: int
    shapes: Mapping[str, tuple[int, ...]]  # of one row, of everybody who holds columns: feature parties first
    widths: Mapping[str, int]  # of everybody's embeddings; empty where the algorithm sends none
    largest_weight: float = 1.0  # of a training row, their mean being 1; told in linear federations alone
    weighted: bool = False  # whether training rows weigh differently; known where the labels are
    validation_rows: int = 0
    expects_absence: bool = False  # whether parties may lack rows; the last column of each party tells which

    @property
    def outputs(self) -> int:
        return Loss.outputs(self.task, self.classes)


def embedding_order(facts: Facts) -> tuple[str, ...]:
    """Whose embeddings the top model takes, in order."""
    own = (facts.label_party,) if facts.label_party in facts.shapes else ()
    return (*facts.feature_parties, *own)


# --- what can be wrong with a plan ------------------------------------------------------------------------------


def check_plan(
    plan: Plan, rows: int, parties: tuple[str, ...], holders: Mapping[str, Any], validation_rows: int
) -> None:
    """Refuse what cannot be trained; `holders` are the parties with columns."""
    chosen = plan.chosen
    _check_choice(plan, validation_rows)
    check_batch_size(rows, plan.training.batch_size)
    for name in parties:
        check_party_name(name)
    if isinstance(plan.bottom, Mapping):
        for given in plan.bottom:
            if given not in holders:
                raise unknown_name("party with columns", given, holders)
    if chosen.brings_models:
        _refuse_models(chosen.name, plan.bottom, plan.top)
    if plan.is_linear:
        _refuse_unused_privacy(chosen.name, plan.privacy)
    if plan.training.rounds:
        _check_precision(plan)


def _check_precision(plan: Plan) -> None:
    """Refuse to round where nothing is sent, or what must be exact."""
    name, precisions = plan.chosen.name, plan.training.precisions
    if plan.is_alone:
        raise SettingsError(f"{name} trains in one place and sends nothing: leave training.precision out.")
    if not plan.is_linear:
        return
    if plan.conversation.passes is Passes.ALWAYS:
        raise SettingsError(
            f"{name} derives each step from exact sums over all rows, which are not rounded: leave training.precision "
            "out, or choose an algorithm with mini-batches."
        )
    if plan.algorithm.masked and precisions["up"] != PRECISIONS[0]:
        raise SettingsError(
            f"training.precision: {name} would send products as {precisions['up']}, but algorithm.sums = "
            f'"{plan.algorithm.sums}" hides them by masks, which cancel in exact sums alone. Give '
            f'training.precision_up = "{PRECISIONS[0]}", which rounds residuals only, or algorithm.sums = "plain".'
        )


def _check_choice(plan: Plan, validation_rows: int) -> None:
    """Refuse to stop or to choose by validation rows where there are none, or where their labels must not show."""
    training = plan.training
    asked = {'training.keep = "best"': training.keep == "best", "training.early_stopping": training.early_stopping > 0}
    for setting in (name for name, is_asked in asked.items() if is_asked):
        if not validation_rows:
            raise SettingsError(
                f"{setting} chooses by validation rows, and there are none. Give data.validation = 0.1."
            )
        if plan.hides_labels:
            raise SettingsError(
                f"{setting} would tell everybody what follows from labels, which noise protects here. Leave it out; "
                "validation rows are still scored, for the label party alone."
            )


def _refuse_models(name: str, bottom: Bottoms, top: TopSettings | nn.Module) -> None:
    """An algorithm with models of its own: others cannot be asked for."""
    bottoms = bottom.values() if isinstance(bottom, Mapping) else [bottom]
    linear = all(
        isinstance(one, BottomSettings) and (one == BottomSettings() or one.kind == "linear") for one in bottoms
    )
    summed = isinstance(top, TopSettings) and (top.only_sums or top == TopSettings())
    if not (linear and summed):
        raise SettingsError(
            f"{name} trains a linear model, one block per party: the models given as bottom or top would not be used. "
            f"Leave them out, or choose another algorithm, such as {algorithms.DEFAULT}."
        )


def _refuse_unused_privacy(name: str, privacy: PerturbationSettings) -> None:
    if privacy != PerturbationSettings():
        raise SettingsError(f"{name} sends exact sums and no embeddings: [privacy] has no effect. Leave it out.")


def decided_training(
    training: Training, algorithm: Any, rows: int, feature_parties: int, labels_epsilon: float = 0.0
) -> DecidedTraining:
    """`[training]` with nothing left open, as the algorithm of these settings wants it for such data."""
    if isinstance(training, DecidedTraining):
        return training
    chosen = algorithms.find(algorithms.name_of(algorithm))
    if chosen.family is Family.LINEAR:
        _refuse_unused_training(chosen.name, training)
        if training.l1:
            algorithm.check_l1(chosen.name)
        # The rate is that of algorithm.step = "fixed". Without a penalty, the optimum of classes that a line parts is
        # infinitely far away; 1/rows is scikit-learn's default, too.
        penalty = (0.0 if training.l1 else 1 / max(1, rows)) if training.l2 == AUTO else training.l2
        training = replace(training, optimiser="sgd", l2=penalty)
    if labels_epsilon > 0 and chosen.noises_answers and training.batch_size == AUTO:
        training = replace(training, batch_size=private_batch(rows))
    said = chosen.conversation
    alternates = said is not None and said.asynchronous and chosen.family is Family.SPLIT
    updates = feature_parties / getattr(algorithm, "wait_for", 1) if alternates else 1.0
    return chosen.defaults.decided(training, rows, max(1.0, updates))


PRIVATE_BATCH = 128
"""Rows per noised answer, about: one label moves a mean over B by 1/B, so that a larger batch needs less noise."""


def private_batch(rows: int) -> int:
    """Equal batches. A short one at the end of an epoch would cost its rows far more than a whole one.

    >>> private_batch(1_348), private_batch(2_250), private_batch(60)
    (123, 125, 60)
    """
    return max(1, ceil(rows / max(1, round(rows / PRIVATE_BATCH))))


def _refuse_unused_training(name: str, training: Training) -> None:
    used = {
        "optimiser": (AUTO, "sgd"),
        "top_learning_rate": (AUTO, training.learning_rate),
        "decay": (AUTO, "none"),
        "top_decay": (AUTO, "none"),
        "top_l2": (0.0,),
    }
    for setting, values in used.items():
        if getattr(training, setting) not in values:
            raise SettingsError(f"{name} does not use training.{setting}. Leave it out.")
    if training.embedding_bound != Training.embedding_bound:
        raise SettingsError(f"{name} does not use training.embedding_bound. Leave it out.")
