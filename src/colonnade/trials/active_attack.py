"""Active label inference, measured: a feature party that chooses its uploads reads labels out of mean losses.

Four adversaries, two of which the label party refuses: embeddings without a bound, and a row that is named again and
again. The other two stay within what an honest party could send. What they find is what is left.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.row import Algorithm
from colonnade.attacks.active_party import REPLIES_READ, ActiveParty, Packed, Probing, read_packed, read_probes
from colonnade.attacks.view import read_party_view
from colonnade.costs.noise import calibrated
from colonnade.data.federated import FederatedData
from colonnade.errors import ProtocolError
from colonnade.federation.building import facts_of
from colonnade.federation.plan import Plan, decided_training
from colonnade.messages import PairUpload
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.trials.attack import Measurement, Say, Trials, classes_of, labelled_rows, majority, share_found
from colonnade.trials.attacked import Federated, check_attackable, curious_seat, trained

UNBOUNDED = "digits of a loss, unbounded"
BOUNDED = "digits of a loss, within the bound"
REPEATED = "one row named again and again"
MOVED = "one row moved"
_WIDTH = 16  # of embeddings, where the top model is the default one
_PROBE = 1000.0
_PAIR_PROBE = 0.05
"""A slope is clipped: what is moved further is seen as far as the clip."""


@dataclass(frozen=True)
class _Trial:
    """What one adversary found of all rows, in how many exchanges; or that it was refused."""

    found: float
    labels_an_exchange: float
    refused: bool


def is_active_target(algorithm: Algorithm) -> bool:
    """Whether mean losses, or a slope, come back."""
    said = algorithm.conversation
    return not algorithm.brings_models and said is not None and said.reply in REPLIES_READ


def active_label_inference(
    data: FederatedData,
    federated: Federated,
    trials: Trials,
    say: Say = lambda line: None,
    labels_per_class: int = 4,
    adversaries: Sequence[str] = (UNBOUNDED, BOUNDED, REPEATED, MOVED),
) -> list[Measurement]:
    """How many labels an active party finds in as many exchanges as the training has.

    Digits of a loss need a label party that only sums. Probes are tried on the default top model, by a party that knows
    the labels of a few rows of each class. With `privacy.labels_epsilon` the noise that keeps it is on the answers.
    Somebody's own federation stays as it is, and meets the adversaries that fit it.
    """
    classes = classes_of(data)
    reads = "Active label inference reads mean losses"
    check_attackable(federated.name, is_active_target, reads, "answers with something else")
    if not federated.conversation.asynchronous:  # rows are named by the label party
        adversaries = [one for one in adversaries if one != REPEATED]
    if federated.is_own:
        reading_digits = federated.top.only_sums
        adversaries = [one for one in adversaries if (one in (UNBOUNDED, BOUNDED)) == reading_digits]
    truth = data.labels.train.numpy()
    beside = {"chance": 1 / classes, "majority class": majority(truth)}
    lines = []
    for adversary in adversaries:
        attacked = _attacked(data, federated, sums=adversary in (UNBOUNDED, BOUNDED))
        results = []
        for seed in trials.seeds():
            results.append(_tried(data, attacked, adversary, labels_per_class, seed))
            one = results[-1]
            told = "refused" if one.refused else f"{one.found:.3f}, {one.labels_an_exchange:.2f} labels an exchange"
            say(f"{federated.name}, {adversary}, seed {seed}: {told}")
        conditions: dict[str, float | int | str] = {
            "epochs": federated.training.epochs,
            "answer noise": getattr(attacked.algorithm, "noise", 0.0),
            "refused": "yes" if any(one.refused for one in results) else "no",
            "labels an exchange": round(mean(one.labels_an_exchange for one in results), 2),
        }
        values = tuple(one.found for one in results)
        lines.append(Measurement(federated.name, adversary, "success", values, conditions, beside))
    return lines


def _attacked(data: FederatedData, federated: Federated, sums: bool) -> Federated:
    """The federation with the models that this adversary is measured on, and the noise that its target asks for."""
    if federated.is_own:
        return federated  # its noise follows from its own file
    if sums:
        chosen = replace(federated, bottom=BottomSettings(kind="linear"), top=TopSettings(kind="sum"))
    else:
        chosen = replace(federated, bottom=BottomSettings(embedding=_WIDTH), top=TopSettings())
    if chosen.privacy.labels_epsilon == 0:
        return chosen
    training = decided_training(
        chosen.training, chosen.algorithm, data.rows, len(data.feature_parties), chosen.privacy.labels_epsilon
    )
    plan = Plan(chosen.algorithm, training, chosen.privacy, chosen.bottom, chosen.top, seed=0)
    return replace(chosen, algorithm=calibrated(plan, facts_of(data, plan)).algorithm)


def _tried(data: FederatedData, federated: Federated, adversary: str, labels_per_class: int, seed: int) -> _Trial:
    truth = data.labels.train.numpy()
    party = federated.feature_party(data)
    known = labelled_rows(truth, labels_per_class, seed)
    way = _way(federated, adversary, classes_of(data), known)
    seat = curious_seat(data, federated, party, seed)
    try:
        with trained(data, federated, seed, {party: ActiveParty(seat, way)}) as run:
            view = read_party_view(run.trace(party))
    except ProtocolError:
        return _Trial(0.0, 0.0, refused=True)
    if isinstance(way, Packed):
        inferred = read_packed(view, way, seat.radius)
    else:
        inferred = read_probes(view, {int(row): int(truth[row]) for row in known}, seat.radius)
    exchanged = sum(isinstance(crossing.message, REPLIES_READ) for crossing in view.crossings())
    right = share_found(inferred, truth) * truth.size
    unknown = truth.size - (known.size if isinstance(way, Probing) else 0)  # what it knew is nothing found
    return _Trial(right / unknown, right / max(1, exchanged), refused=False)


def _way(federated: Federated, adversary: str, classes: int, known: NDArray[np.uint32]) -> Packed | Probing:
    bound = federated.training.embedding_bound or math.inf
    pair = federated.conversation.upload is PairUpload
    if adversary == UNBOUNDED:
        return Packed(classes)
    if adversary == BOUNDED:
        largest = 0.99 * min(bound, 1e5)
        if pair:  # beyond the clip on slopes nothing is seen
            largest = min(largest, 1.9 * federated.algorithm.largest_slope * federated.algorithm.smoothing_radius)
        return Packed(classes, largest)
    size = _PAIR_PROBE if pair else min(_PROBE, 0.9 * bound)
    return Probing(tuple(known.tolist()), size, repeats=adversary == REPEATED)
