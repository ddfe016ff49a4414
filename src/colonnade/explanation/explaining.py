"""A model explained where all of it is in one place: what each party and each column is worth, in the loss.

A party's worth is its Shapley value: its embeddings, or their mean in their place, in every coalition of parties. A
column's worth is by how much the loss grows when its owner deals its values out to the rows anew.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from secrets import randbits
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from colonnade.algorithms.parts.randomness import seed_for
from colonnade.data.federated import FederatedData, Labels, PartyColumns
from colonnade.errors import DataError
from colonnade.explanation.account import ReleaseAccount
from colonnade.explanation.ends import ColumnGroup, ColumnOwner, Scorer
from colonnade.explanation.gradients import integrated_gradients
from colonnade.explanation.results import ColumnImportance, Explanation
from colonnade.explanation.settings import ExplainSettings
from colonnade.explanation.shapley import MOST_EXACT, Importance, Values, mean_of, shapley
from colonnade.federation.building import MOST_DENSE_VALUES
from colonnade.models.clipped import with_clip
from colonnade.models.network import network_for
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
    places = _chosen_rows(data.labels, asked)
    owners = {name: _owner(model, name, data, places, asked.part, account) for name in model.order}
    shuffles = {name: min(len(owner.groups), asked.columns) * asked.repeats for name, owner in owners.items()}
    senders = [name for name in owners if name != model.label_party]
    for name in senders:
        account.check(name, 1 + shuffles[name])
    for name in senders:
        account.spend(name, len(places), 1 + shuffles[name])
    scorer = _scorer(model, data.labels, places, asked.part)
    embeddings = {name: owner.embedding() for name, owner in owners.items()}
    full = scorer.losses(embeddings)
    worth, without = _worth_of_parties(embeddings, _stand_ins(model, embeddings, account), scorer, asked)
    steps = asked.steps if asked.columns and not account.noise else 0  # a noised way has no gradient
    walked = integrated_gradients(owners, scorer, scorer.chosen(embeddings), steps) if steps else None
    columns = {
        name: _worth_of_columns(owner, embeddings, scorer, full, asked, None if walked is None else walked[name])
        for name, owner in owners.items()
    }
    everybody = tuple(dict.fromkeys([*model.order, model.label_party]))
    return Explanation(
        label_party=model.label_party,
        task=model.parties[model.label_party].description.task,
        part=asked.part,
        rows=len(places),
        loss=float(full.mean()),
        loss_without=float(without.mean()),
        parties=worth,
        shuffled={name: _worth_shuffled(name, embeddings, scorer, full, asked) for name in owners},
        coalitions=2 ** len(owners) if len(owners) <= MOST_EXACT else 0,
        columns=columns,
        left_out={name: len(owner.groups) - len(columns[name]) for name, owner in owners.items()},
        evaluations=scorer.evaluations,
        learnt={
            name: _learnt(owners[name], model, account, len(columns[name]), walked is not None) for name in senders
        },
        epsilon={name: account.epsilon(name) for name in senders},
        told=(model.label_party,) if account.labels_are_noised else everybody,
    )


# --- what is worth how much ---------------------------------------------------------------------------------------


def _stand_ins(model: JointModel, embeddings: Mapping[str, Tensor], account: ReleaseAccount) -> dict[str, Tensor]:
    """What stands for a party that is not there: what the model learnt for rows that it lacks, else its mean."""
    found = {}
    for name, own in embeddings.items():
        saved = model.parties.get(name)
        learnt = None if saved is None or account.noise else saved.stand_in()
        found[name] = own.double().mean(0).to(own.dtype) if learnt is None else learnt
    return found


def _worth_of_parties(
    embeddings: Mapping[str, Tensor], stand_ins: Mapping[str, Tensor], scorer: Scorer, asked: ExplainSettings
) -> tuple[dict[str, Importance], Values]:
    """Shapley values in what the loss is less by, and the loss of each row without anybody."""
    absent = {name: stand_ins[name][None].expand_as(own) for name, own in embeddings.items()}

    def game(present: frozenset[str]) -> Values:
        return -scorer.losses({name: own if name in present else absent[name] for name, own in embeddings.items()})

    draws = np.random.default_rng(seed_for(asked.seed, "orders"))
    return shapley(list(embeddings), game, asked.orders, draws), -game(frozenset())


def _worth_shuffled(
    name: str, embeddings: Mapping[str, Tensor], scorer: Scorer, full: Values, asked: ExplainSettings
) -> Importance:
    """Of a whole party: the label party deals its embeddings out to the rows anew, and asks nobody."""
    grown: Values = np.zeros_like(full)
    for repeat in range(asked.repeats):
        order = np.random.default_rng(seed_for(asked.seed, name, str(repeat))).permutation(len(full))
        shuffled = scorer.losses({**embeddings, name: embeddings[name][torch.from_numpy(order)]})
        grown += (shuffled - full) / asked.repeats
    return mean_of(grown)


def _worth_of_columns(
    owner: ColumnOwner,
    embeddings: Mapping[str, Tensor],
    scorer: Scorer,
    full: Values,
    asked: ExplainSettings,
    walked: Values | None,
) -> list[ColumnImportance]:
    sizes = None if walked is None else np.abs(walked).mean(0)
    order = range(len(owner.groups)) if sizes is None else np.argsort(-sizes, kind="stable").tolist()
    found = []
    for place in [*order][: asked.columns]:
        group = owner.groups[place]
        grown: Values = np.zeros_like(full)
        for repeat in range(asked.repeats):
            draws = np.random.default_rng(seed_for(asked.seed, owner.name, group.name, str(repeat)))
            shuffled = scorer.losses({**embeddings, owner.name: owner.shuffled(group, draws)})
            grown += (shuffled - full) / asked.repeats
        gradient = None if sizes is None else float(sizes[place])
        found.append(ColumnImportance(group.name, mean_of(grown), gradient))
    return sorted(found, key=lambda one: -one.shuffled.value)


def _learnt(owner: ColumnOwner, model: JointModel, account: ReleaseAccount, columns: int, walked: bool) -> str:
    described = model.parties[model.label_party].description
    what = "embeddings" if described.widths else "products"
    sort = "noisy" if account.noise else "exact"
    told = (
        "nothing"
        if account.labels_are_noised
        else f"{columns + 2 * len(model.order) + 2} mean losses, which tell of labels"
    )
    if walked and not account.labels_are_noised:
        told += ", and sums of the outputs' gradients along its own columns"
    return (
        f"{model.label_party} was given {owner.embeddings_sent:,} {sort} {what} of {account.part} rows of "
        f"{owner.name}; {owner.name} is told {told}."
    )


# --- the two ends, from a model and data in one place -------------------------------------------------------------


def _chosen_rows(labels: Labels, asked: ExplainSettings) -> NDArray[np.int64]:
    held = getattr(labels, asked.part)
    count = 0 if held is None else len(held)
    if count < 2:
        raise DataError(f"There are {count} {asked.part} rows, and an explanation needs two: choose other rows (--on).")
    order = np.random.default_rng(seed_for(asked.seed, "rows")).permutation(count)
    return np.sort(order[: asked.rows])


def _scorer(model: JointModel, labels: Labels, places: NDArray[np.int64], part: str) -> Scorer:
    top = model.parties[model.label_party].modules["top"]
    own = getattr(labels, part)[torch.from_numpy(places)]
    return Scorer(model.order, network_for(top), deepcopy(top).eval(), labels.task, own)


def _owner(
    model: JointModel, name: str, data: FederatedData, places: NDArray[np.int64], part: str, account: ReleaseAccount
) -> ColumnOwner:
    if name not in data.columns:
        raise DataError(f"These data have no columns of {name}, whose model is part of the joint one.")
    held, label = data.columns[name], model.parties[model.label_party]
    if held.shape != label.description.facts.shapes[name]:
        raise DataError(
            f"The rows of {name} have the shape {held.shape}; the model was trained with "
            f"{label.description.facts.shapes[name]}. Give the data that it was trained with."
        )
    alone = label.modules.get(f"bottom of {name}")
    module = model.parties[name].modules["bottom"] if alone is None else alone
    sends = alone is None and name != model.label_party
    clip = label.description.clip if sends else 0.0
    rows = _dense(held, part, places, name)
    return ColumnOwner(
        name,
        rows,
        _groups(held),
        with_clip(deepcopy(module).eval(), clip).eval(),
        _embedder(module, clip, sends, account),
        held.expects_absence,
    )


def _embedder(module: nn.Module, clip: float, sends: bool, account: ReleaseAccount) -> Callable[[Tensor], Tensor]:
    """As the party sends: clipped, and noised if the run was, with noise that nothing else was hidden by."""
    network = network_for(module)
    noise = account.noise if sends else 0.0
    if not clip and not noise:
        return network.embed
    secret = SecretGaussian(randbits(_SECRET_BITS), "explanation") if noise else None
    layers = LayerNoise(PerturbationSettings(noise=noise, clip=clip), torch.Generator(), secret)
    return lambda rows: network.embed(rows, layers)


def _dense(held: PartyColumns, part: str, places: NDArray[np.int64], name: str) -> Tensor:
    own: Any = getattr(held, part)
    if isinstance(own, Tensor):
        return own[torch.from_numpy(places)].float()
    if len(places) * own.shape[1] > MOST_DENSE_VALUES:
        raise DataError(
            f"The sparse rows of {name} are too many to be made dense at once: explain fewer rows (--rows)."
        )
    return torch.from_numpy(own[places].toarray()).float()


def _groups(held: PartyColumns) -> tuple[ColumnGroup, ...]:
    """The columns of a table, each with what it was prepared to; of others, each prepared column; an image is one."""
    width, names = int(np.prod(held.shape)), [str(name) for name in held.names]
    if held.preparation is None:
        if len(names) != width:
            return (ColumnGroup(" ".join(names), tuple(range(width))),)
        return tuple(ColumnGroup(name, (place,)) for place, name in enumerate(names[: width - held.expects_absence]))
    found, place = [], 0
    for column in held.preparation.columns:
        count = len(column.outputs)
        if count:
            found.append(ColumnGroup(column.name, tuple(range(place, place + count))))
        place += count
    return tuple(found)
