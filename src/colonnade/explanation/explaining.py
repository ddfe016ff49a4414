"""A model explained where all of it is in one place: what each party and each column is worth, in the loss.

A party's worth is its Shapley value: its embeddings, or their mean in their place, in every coalition of parties. A
column's worth is by how much the loss grows when its owner deals its values out to the rows anew.
"""

from collections.abc import Mapping
from secrets import randbits

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.data.federated import FederatedData, PartyColumns
from colonnade.errors import DataError
from colonnade.explanation.account import ReleaseAccount
from colonnade.explanation.ends import ColumnGroup, ColumnOwner, Scorer
from colonnade.explanation.gradients import integrated_gradients
from colonnade.explanation.own_columns import chosen_rows, column_owner, dense_rows, groups_of, scorer_of
from colonnade.explanation.results import ColumnImportance, Explanation, ExplanationDisclosure, learnt_by_explaining
from colonnade.explanation.settings import ExplainSettings
from colonnade.explanation.shapley import Importance, Values
from colonnade.prediction.joint_model import JointModel
from colonnade.privacy.noise import LayerNoise, PerturbationSettings
from colonnade.privacy.secret_gaussian import SecretGaussian

_SECRET_BITS = 256


def explain_model(
    model: JointModel,
    data: FederatedData,
    settings: ExplainSettings | None = None,
    account: ReleaseAccount | None = None,
) -> Explanation:
    """Which parties and columns the model's answers rest on, by some rows of the data it was trained and tested with.

    `account`: of a run whose embeddings were noised; default: nothing was.
    """
    asked, account = settings or ExplainSettings(), account or ReleaseAccount()
    held = getattr(data.labels, asked.part)
    places = chosen_rows(0 if held is None else len(held), asked)
    owners = {name: owner_in(model, name, data, places, asked.part, account) for name in model.order}
    shuffles = {name: min(len(owner.groups), asked.columns) * asked.repeats for name, owner in owners.items()}
    senders = [name for name in owners if name != model.label_party]
    for name in senders:
        account.check(name, 1 + shuffles[name])
    for name in senders:
        account.spend(name, len(places), 1 + shuffles[name])
    scorer = scorer_in(model, data, places, asked.part)
    embeddings = {name: owner.embedding() for name, owner in owners.items()}
    scorer.take(embeddings)
    totals = scorer.totals(_stand_ins(model, embeddings, account), asked)
    steps = asked.steps if asked.columns and not account.noise else 0  # a noised way has no gradient
    walked = integrated_gradients(owners, scorer, steps) if steps else None
    columns = {}
    for name, owner in owners.items():
        sizes = None if walked is None else sizes_of(walked[name])
        chosen = chosen_columns(owner.groups, sizes, asked.columns)
        found = [scorer.grown(name, owner.variants(owner.groups[place], asked, asked.seed)) for place in chosen]
        columns[name] = importances(owner.groups, chosen, found, sizes)
    everybody = tuple(dict.fromkeys([*model.order, model.label_party]))
    described = model.parties[model.label_party].description
    taken = ExplanationDisclosure(
        model.label_party,
        asked,
        len(places),
        parties=len(model.order),
        walked=walked is not None,
        noised=account.noise > 0,
        products=not described.widths,
        tells=not account.labels_are_noised,
    )
    return Explanation(
        label_party=model.label_party,
        task=described.task,
        part=asked.part,
        rows=len(places),
        totals=totals,
        columns=columns,
        left_out={name: len(owner.groups) - len(columns[name]) for name, owner in owners.items()},
        evaluations=scorer.evaluations,
        learnt={name: learnt_by_explaining(name, len(columns[name]), taken) for name in senders},
        epsilon={name: account.epsilon(name) for name in senders},
        told=everybody if taken.tells else (model.label_party,),
        tells=taken.tells,
    )


def _stand_ins(model: JointModel, embeddings: Mapping[str, Tensor], account: ReleaseAccount) -> dict[str, Tensor]:
    """What stands for a party that is not there: what the model learnt for rows that it lacks, else its mean."""
    found = {}
    for name, own in embeddings.items():
        saved = model.parties.get(name)
        learnt = None if saved is None or account.noise else saved.stand_in()
        found[name] = mean_embedding(own) if learnt is None else learnt
    return found


def mean_embedding(own: Tensor) -> Tensor:
    """What stands for a party where the model has learnt nothing for that."""
    return own.double().mean(0).to(own.dtype)


# --- columns --------------------------------------------------------------------------------------------------------


def sizes_of(walked: Values) -> Values:
    """Mean |integrated gradient| of each column, from that of each row."""
    found: Values = np.abs(walked).mean(0)
    return found


def chosen_columns(groups: tuple[ColumnGroup, ...], sizes: Values | None, most: int) -> list[int]:
    """Places of the columns that are shuffled: the largest first, where sizes are known."""
    order = range(len(groups)) if sizes is None else np.argsort(-sizes, kind="stable").tolist()
    return [*order][:most]


def importances(
    groups: tuple[ColumnGroup, ...], chosen: list[int], found: list[Importance], sizes: Values | None
) -> list[ColumnImportance]:
    """What was found of a party's columns, the most important first."""
    each = [
        ColumnImportance(groups[place].name, one, None if sizes is None else float(sizes[place]))
        for place, one in zip(chosen, found, strict=True)
    ]
    return sorted(each, key=lambda one: -one.shuffled.value)


# --- the two ends, from a model and data in one place -------------------------------------------------------------


def scorer_in(model: JointModel, data: FederatedData, places: NDArray[np.int64], part: str) -> Scorer:
    """The label party's end."""
    top = model.parties[model.label_party].modules["top"]
    return scorer_of(model.order, top, data.labels.task, getattr(data.labels, part)[torch.from_numpy(places)])


def owner_in(
    model: JointModel, name: str, data: FederatedData, places: NDArray[np.int64], part: str, account: ReleaseAccount
) -> ColumnOwner:
    """A party's end."""
    held = columns_in(model, name, data)
    label = model.parties[model.label_party]
    alone = label.modules.get(f"bottom of {name}")
    module = model.parties[name].modules["bottom"] if alone is None else alone
    noise = None
    if alone is None and name != model.label_party:
        noise = _noise(label.description.clip, account)
    return column_owner(
        name, dense_rows(held, part, places, name), groups_of(held), module, noise, held.expects_absence
    )


def columns_in(model: JointModel, name: str, data: FederatedData) -> PartyColumns:
    """A party's columns, if they are such as its model takes."""
    if name not in data.columns:
        raise DataError(f"These data have no columns of {name}, whose model is part of the joint one.")
    held, shape = data.columns[name], model.parties[model.label_party].description.facts.shapes[name]
    if held.shape != shape:
        raise DataError(
            f"The rows of {name} have the shape {held.shape}; the model was trained with {shape}. Give the data that "
            "it was trained with."
        )
    return held


def _noise(clip: float, account: ReleaseAccount) -> LayerNoise | None:
    """As the party sends: clipped, and noised if the run was, with noise that nothing else was hidden by."""
    if not clip and not account.noise:
        return None
    secret = SecretGaussian(randbits(_SECRET_BITS), "explanation") if account.noise else None
    return LayerNoise(PerturbationSettings(noise=account.noise, clip=clip), torch.Generator(), secret)
