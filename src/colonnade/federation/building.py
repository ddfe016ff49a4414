"""How a party is built: from its own data, from what all parties know of one another, and from the shared plan.

`build_party` is given nothing of another party's, so it is the same for a party of a simulation, of its own process and
of another organisation. `build_parties` does it for a whole federation whose data lie in one place.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import isclose
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from colonnade import algorithms
from colonnade.algorithms.parts.losses import headline
from colonnade.algorithms.parts.randomness import generator_for, seed_for
from colonnade.algorithms.parts.rounding import RoundingParty
from colonnade.algorithms.row import Family
from colonnade.algorithms.seats import FeatureSeat, LabelSeat, LinearSeat
from colonnade.algorithms.training import Training
from colonnade.data.absence import LABELS_OF_ALL_ROWS, drop_once
from colonnade.data.federated import FederatedData, Labels, PartyColumns
from colonnade.data.weights import largest_weight, weighted
from colonnade.errors import SettingsError, unknown_name
from colonnade.federation.plan import Bottoms, Facts, Plan, check_plan, decided_training, embedding_order
from colonnade.federation.start import Start, labels_to_start_with, start_block, start_bottom, start_top
from colonnade.models.bottom import BottomSettings, build_bottom
from colonnade.models.device import CPU_ALONE, check_device, prepared_device
from colonnade.models.layers import SumEmbeddings, linear_bottom
from colonnade.models.network import initialise, output_width
from colonnade.models.pretrained import TextEmbedding, check_tokens
from colonnade.models.randomness import seeded
from colonnade.models.top import TopSettings, build_top
from colonnade.party import Party
from colonnade.privacy.noise import PerturbationSettings

_LOOKED_AT_ROWS = 256


@dataclass(frozen=True)
class PrivateData:
    """What one party alone holds: its columns, its labels if it has any, and the seed of what must stay its secret.

    Noise, directions, masks and first weights follow from `secret`. Where one person runs everybody it is the shared
    seed, so that a run can be repeated; a party of another organisation draws its own.
    """

    name: str
    columns: PartyColumns | None
    labels: Labels | None
    secret: int
    start: Start | None = None  # None: its models begin with fresh weights
    spent: Mapping[str, NDArray[np.float64]] | None = None  # what its rows have cost before, in μ², by part
    device: str = "cpu"  # where its models compute; auto: on an accelerator, if there is one


def build_parties(
    data: FederatedData,
    algorithm: Any,
    training: Training,
    privacy: PerturbationSettings,
    bottom: Bottoms,
    top: TopSettings | nn.Module,
    seed: int,
) -> dict[str, Party]:
    """Every party of a federation, the label party first."""
    decided = decided_training(training, algorithm, data.rows, len(data.feature_parties), privacy.labels_epsilon)
    return build_federation(data, Plan(algorithm, decided, privacy, bottom, top, seed)).parties


@dataclass(frozen=True)
class BuiltFederation:
    """A federation whose data lie in one place, ready to be run."""

    plan: Plan
    facts: Facts
    private_data: tuple[PrivateData, ...]  # everybody's, the label party's first
    parties: dict[str, Party]  # by name, the label party first; it alone, where one party trains on everybody's data

    def seat_of(self, name: str) -> tuple[PrivateData, ...]:
        """What the party of that name is given: its own data, or everybody's where it trains alone."""
        if self.plan.is_alone:
            return self.private_data
        return tuple(private for private in self.private_data if private.name == name)


def build_federation(
    data: FederatedData,
    plan: Plan,
    facts: Facts | None = None,
    starts: Mapping[str, Start] | None = None,
    spent: Mapping[str, Mapping[str, NDArray[np.float64]]] | None = None,
    devices: str | Mapping[str, str] = "cpu",
) -> BuiltFederation:
    """Every party of a plan that is checked, from data that lie in one place; `facts` are theirs, if known already.

    `starts`: what each party's models begin with; `spent`: what its rows have cost before; `devices`: where models
    compute, of everybody or by party.
    """
    check_plan(plan, data.rows, (data.label_party, *data.feature_parties), data.columns, data.validation_rows)
    for name in () if isinstance(devices, str) else devices:
        if name not in (data.label_party, *data.feature_parties):
            raise unknown_name("party to give a device", name, (data.label_party, *data.feature_parties))
    if not plan.is_linear:
        data = all_dense(data)
    facts = facts or facts_of(data, plan)
    if starts is not None:
        data = replace(data, labels=labels_to_start_with(data.labels, starts[data.label_party]))
    private_data = tuple(
        replace(
            private_data_of(data, name, plan),
            start=None if starts is None else starts[name],
            spent=(spent or {}).get(name),
            device=devices if isinstance(devices, str) else devices.get(name, "cpu"),
        )
        for name in (data.label_party, *data.feature_parties)
    )
    federation = BuiltFederation(plan, facts, private_data, {})
    names = [data.label_party] if plan.is_alone else [private.name for private in private_data]
    parties = {name: build_seated(federation.seat_of(name), facts, plan) for name in names}
    return replace(federation, parties=parties)


def private_data_of(data: FederatedData, name: str, plan: Plan) -> PrivateData:
    """One party's own part of data that lie in one place."""
    everywhere = plan.is_linear and plan.algorithm.labels == "everywhere"
    labels = data.labels if name == data.label_party or everywhere else None
    return PrivateData(name, data.columns.get(name), labels, plan.seed)


def facts_of(data: FederatedData, plan: Plan) -> Facts:
    """What the parties of data that lie in one place would tell one another."""
    shapes = {name: columns.shape for name, columns in data.columns.items()}
    facts = Facts(
        data.label_party,
        data.feature_parties,
        data.rows,
        data.test_rows,
        data.labels.task,
        len(data.labels.classes),
        shapes,
        {},
        validation_rows=data.validation_rows,
        expects_absence=data.expects_absence,
    )
    labels = labels_of(data.labels, plan)
    facts = replace(facts, weighted=labels.weights is not None)
    if plan.is_linear:
        return replace(facts, largest_weight=largest_weight(labels))
    return replace(facts, widths={name: width_of(name, facts, plan) for name in shapes})


def labels_of(labels: Labels, plan: Plan) -> Labels:
    """The labels with what each training row weighs by the plan; nothing is hidden where nothing is answered."""
    return weighted(labels, plan.training.class_weight, plan.hides_labels and not plan.is_alone)


def width_of(name: str, facts: Facts, plan: Plan) -> int:
    """How many numbers one row's embedding by that party has."""
    return output_width(_bottom_for(name, facts, plan, 0), facts.shapes[name])


def width_elsewhere(name: str, facts: Facts, plan: Plan) -> int:
    """The same of a party whose columns are elsewhere: nothing is built from what it says of them."""
    bottom = plan.bottom
    if isinstance(bottom, Mapping):
        bottom = bottom.get(name, BottomSettings())
    if plan.chosen.bottom is not None or not isinstance(bottom, BottomSettings):
        return width_of(name, replace(facts, shapes={name: (1,)}), plan)  # the width does not depend on the columns
    only_sums = isinstance(plan.top, TopSettings) and plan.top.only_sums
    return facts.outputs if only_sums else bottom.embedding


def build_seated(private_data: Sequence[PrivateData], facts: Facts, plan: Plan) -> Party:
    """The party of a seat: of its own data, or of everybody's where it trains alone."""
    if plan.is_alone:
        return build_alone(private_data, facts, plan)
    return build_party(private_data[0], facts, plan)


def build_party(private: PrivateData, facts: Facts, plan: Plan) -> Party:
    """One party, whatever its role; it rounds what it sends if that was agreed on."""
    party = _build_party(private, facts, plan)
    if not plan.training.rounds:
        return party
    return RoundingParty(party, plan.training.precisions, facts.rows, private.secret, private.name)


def _build_party(private: PrivateData, facts: Facts, plan: Plan) -> Party:
    chosen = plan.chosen
    if private.device != "cpu":
        check_device(private.device)
    if plan.is_linear:
        if private.device not in CPU_ALONE:
            raise SettingsError(
                f'{chosen.name} computes with compiled loops in main memory: device = "{private.device}" of '
                f"{private.name} has no effect. Leave it out."
            )
        assert chosen.linear_party is not None
        return chosen.linear_party(_linear_seat(private, facts, plan))
    assert chosen.label_party is not None and chosen.feature_party is not None
    if private.name == facts.label_party:
        return chosen.label_party(_label_seat(private, facts, plan))
    return chosen.feature_party(_feature_seat(private, facts, plan))


def build_alone(private_data: Sequence[PrivateData], facts: Facts, plan: Plan) -> Party:
    """The one party of an algorithm that trains on everybody's data, the label party's own coming first."""
    alone = plan.chosen.alone
    assert alone is not None
    plan = replace(plan, privacy=PerturbationSettings())
    return alone(
        _label_seat(private_data[0], facts, plan), [_feature_seat(private, facts, plan) for private in private_data[1:]]
    )


def _feature_seat(private: PrivateData, facts: Facts, plan: Plan) -> FeatureSeat:
    assert private.columns is not None
    return FeatureSeat(
        name=private.name,
        label_party=facts.label_party,
        columns=private.columns,
        bottom=_bottom_of(private, facts, plan),
        width=facts.widths[private.name],
        training=plan.training,
        settings=plan.algorithm,
        privacy=plan.privacy,
        seed=plan.seed,
        secret=private.secret,
        spent=private.spent,
        device=prepared_device(private.device),
    )


def _label_seat(private: PrivateData, facts: Facts, plan: Plan) -> LabelSeat:
    assert private.labels is not None
    headline(facts.task, plan.training.metric)  # refuses one that is none of this task
    order = embedding_order(facts)
    return LabelSeat(
        name=private.name,
        feature_parties=facts.feature_parties,
        widths={name: facts.widths[name] for name in facts.shapes},
        labels=labels_of(private.labels, plan),
        columns=private.columns,
        bottom=None if private.columns is None else _bottom_of(private, facts, plan),
        top=_top_of(private, facts, plan, [facts.widths[name] for name in order]),
        training=plan.training,
        settings=plan.algorithm,
        privacy=plan.privacy,
        seed=plan.seed,
        secret=private.secret,
        spent=private.spent,
        device=prepared_device(private.device),
    )


def _linear_seat(private: PrivateData, facts: Facts, plan: Plan) -> LinearSeat:
    # The intercept needs one owner: the label party if it learns anything at all.
    owner = facts.label_party if facts.label_party in facts.shapes else facts.feature_parties[0]
    headline(facts.task, plan.training.metric)  # refuses one that is none of this task
    if facts.expects_absence and plan.algorithm.labels == "everywhere":
        raise SettingsError(LABELS_OF_ALL_ROWS)
    labels = None if private.labels is None else labels_of(private.labels, plan)
    if labels is not None and not isclose(largest_weight(labels), facts.largest_weight, rel_tol=1e-6):
        raise SettingsError(
            f'algorithm.labels is "everywhere", so a row must weigh the same for all, but the largest weight of '
            f"{private.name} is not that of {facts.label_party}: give both the same weight column, or none."
        )
    return LinearSeat(
        name=private.name,
        parties=(facts.label_party, *facts.feature_parties),
        label_party=facts.label_party,
        workers=len(facts.shapes),
        columns=_dropped_once(private),
        rows=facts.rows,
        test_rows=facts.test_rows,
        validation_rows=facts.validation_rows,
        task=facts.task,
        outputs=facts.outputs,
        labels=labels,
        largest_weight=facts.largest_weight,
        intercept=plan.algorithm.intercept and private.name == owner,
        training=plan.training,
        settings=plan.algorithm,
        seed=plan.seed,
        secret=private.secret,
        start=None if private.start is None else start_block(private.start, _column_names(private), private.name),
    )


def _dropped_once(private: PrivateData) -> PartyColumns | None:
    """A linear training has one objective throughout, which reduced variance rests on: what is dropped stays so."""
    columns = private.columns
    if columns is None or not columns.drop_share:
        return columns
    generator = generator_for(private.secret, private.name, "absence")
    return replace(columns, train=drop_once(columns.train, columns.drop_share, generator))


MOST_DENSE_VALUES = 500_000_000
"""Sparse columns are made dense, for models that need that, up to this many values (2 GB)."""


LARGE_BYTES = 500_000_000
"""Dense copies of sparse columns that take more than this are told of before the training."""


def notes_on_size(data: FederatedData, plan: Plan) -> list[str]:
    """What to know before sparse columns are made dense."""
    if plan.is_linear:
        return []
    sizes = {name: _dense_values(held) * 4 for name, held in data.columns.items() if held.sparse}
    if sum(sizes.values()) < LARGE_BYTES:
        return []
    each = ", ".join(f"{name} {size / 1e9:.1f} GB" for name, size in sizes.items())
    total = sum(sizes.values()) / 1e9
    return [
        f"{plan.chosen.name} needs dense columns, and the sparse ones of these data take {total:.1f} GB of memory when "
        f"they are made dense ({each}). A linear algorithm, such as "
        f"{algorithms.to_begin_with(Family.LINEAR)}, keeps them sparse."
    ]


def _dense_values(columns: PartyColumns) -> int:
    return (columns.train.shape[0] + columns.scored.shape[0]) * int(np.prod(columns.shape))


def all_dense(data: FederatedData) -> FederatedData:
    """The same data with every party's columns dense."""
    if not any(columns.sparse for columns in data.columns.values()):
        return data
    return replace(data, columns={name: all_dense_columns(name, held) for name, held in data.columns.items()})


def all_dense_columns(name: str, columns: PartyColumns) -> PartyColumns:
    """One party's columns, dense; refused where they would not fit into memory."""
    values = _dense_values(columns)
    if columns.sparse and values > MOST_DENSE_VALUES:
        raise SettingsError(
            f"The sparse columns of {name} would have {values} values when made dense, as this algorithm needs "
            f"them; at most {MOST_DENSE_VALUES} are. Choose a linear algorithm, such as "
            f"{algorithms.to_begin_with(Family.LINEAR)}, or fewer columns."
        )
    return columns.dense() if columns.sparse else columns


# --- models -----------------------------------------------------------------------------------------------------


def _column_names(private: PrivateData) -> tuple[str, ...]:
    return () if private.columns is None else tuple(str(name) for name in private.columns.names)


def _bottom_of(private: PrivateData, facts: Facts, plan: Plan) -> nn.Module:
    """A party's bottom model with the weights that it begins with."""
    module = _bottom_for(private.name, facts, plan, private.secret)
    if private.columns is not None and any(isinstance(part, TextEmbedding) for part in module.modules()):
        check_tokens(private.columns.train[:_LOOKED_AT_ROWS], private.name)
    if private.start is not None:
        only_sums = plan.chosen.top is not None or (isinstance(plan.top, TopSettings) and plan.top.only_sums)
        start_bottom(module, private.start, _column_names(private), private.name, only_sums)
    return module


def _top_of(private: PrivateData, facts: Facts, plan: Plan, widths: list[int]) -> nn.Module:
    module = _top_for(facts, plan, widths, private.secret)
    if private.start is not None:
        start_top(module, private.start, facts)
    return module


def _bottom_for(name: str, facts: Facts, plan: Plan, secret: int) -> nn.Module:
    """A party's bottom model with its first weights."""
    chosen = plan.chosen
    shape = facts.shapes[name]
    if chosen.bottom is not None:
        sizes = {party: int(np.prod(own)) for party, own in facts.shapes.items()}
        with seeded(0):
            module = chosen.bottom(shape, sizes[name] / sum(sizes.values()), facts.task, facts.outputs)
        initialise(module, seed_for(secret, name, "bottom"))
        return module
    bottom = plan.bottom
    if isinstance(bottom, Mapping):
        bottom = bottom.get(name, BottomSettings())
    if isinstance(bottom, nn.Module):
        return deepcopy(bottom)
    only_sums = isinstance(plan.top, TopSettings) and plan.top.only_sums
    with seeded(0):  # building a torch layer draws from the global generator, which is the user's
        module = build_bottom(bottom, shape, facts.outputs if only_sums else None)
    initialise(module, seed_for(secret, name, "bottom"))
    return module


def _top_for(facts: Facts, plan: Plan, widths: list[int], secret: int) -> nn.Module:
    outputs, top = facts.outputs, plan.top
    if plan.chosen.top is not None:
        with seeded(0):
            return plan.chosen.top(len(facts.shapes), facts.task, outputs)
    if isinstance(top, nn.Module):
        given = output_width(top, (sum(widths),))
        if given != outputs:
            raise SettingsError(f"The top model gives {given} outputs; this task needs {outputs}.")
        return deepcopy(top)
    with seeded(0):
        module = build_top(top, widths, outputs)
    initialise(module, seed_for(secret, "top"))
    return module


def empty_models(name: str, facts: Facts, plan: Plan, weights: Mapping[str, torch.Tensor]) -> dict[str, nn.Module]:
    """The modules that a party ends with, without what it learnt: for the weights of a saved model, by their names."""
    models: dict[str, nn.Module] = {}
    is_label_party = name == facts.label_party
    if plan.is_linear:
        if name in facts.shapes:
            has_constant = any(key.endswith(".bias") for key in weights)
            models["bottom"] = linear_bottom(facts.shapes[name], facts.outputs, has_constant)
        if is_label_party:
            models["top"] = SumEmbeddings([facts.outputs] * len(facts.shapes))
        return models
    if plan.is_alone:
        models = {f"bottom of {party}": _bottom_for(party, facts, plan, 0) for party in facts.feature_parties}
    if name in facts.shapes:
        models["bottom"] = _bottom_for(name, facts, plan, 0)
    if is_label_party:
        models["top"] = _top_for(facts, plan, [facts.widths[party] for party in embedding_order(facts)], 0)
    return models
