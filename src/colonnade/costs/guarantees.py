"""What a federation costs in ε: for every direction and adversary, of a plan or of what a ledger has recorded.

A direction is whose data are protected; what carries them without noise makes it infinite, and the words say what. The
arithmetic is in privacy/accounting.py.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from colonnade.algorithms.training import AUTO
from colonnade.costs.noise import bottom_update_of, planned_releases, release_plan
from colonnade.federation.plan import Facts, Plan
from colonnade.privacy.accounting import (
    SECRET,
    ClaimedPrivacy,
    Direction,
    Guarantee,
    Release,
    account,
    columns_hidden_state,
    labels_hidden_state,
    recorded_releases,
    worst_row_mu,
)
from colonnade.privacy.gaussian import epsilon_of
from colonnade.privacy.plan import ReleasePlan

EVERY_OTHER = "every other party"


def planned_guarantees(plan: Plan, facts: Facts, randomness: str = SECRET) -> list[Guarantee]:
    """ε of a calibrated plan, for every direction and adversary, before anything is sent."""
    if plan.is_alone:
        return []
    conditions = [] if plan.is_linear else release_plan(plan, facts).conditions()
    releases = [] if plan.is_linear else planned_releases(plan, facts)
    return _guarantees(plan, facts, releases, conditions, randomness)


def guarantees(
    plan: Plan, facts: Facts, released: Iterable[Mapping[str, Any]], randomness: str = SECRET
) -> list[Guarantee]:
    """ε of what a ledger has recorded: its `by_row()`, exact, or its `summary()`, from above.

    A direction that was to be noised and of which nothing was released is left out: it cost nothing, or it is
    another party's to say.
    """
    if plan.is_alone:
        return []
    return _guarantees(plan, facts, recorded_releases(released), [], randomness)


@dataclass(frozen=True)
class _Way:
    """A direction, what its paper claims of it, and what must be said with its figures."""

    direction: Direction
    claimed: ClaimedPrivacy | None
    conditions: tuple[str, ...]


def _guarantees(
    plan: Plan, facts: Facts, releases: Sequence[Release], conditions: Sequence[str], randomness: str
) -> list[Guarantee]:
    found: list[Guarantee] = []
    for way in _ways(plan, facts):
        direction = way.direction
        if direction.unnoised is not None:
            words = (f"No guarantee: {direction.unnoised} carry these data without noise.",)
            delta = plan.privacy.delta
            found.append(Guarantee(direction.protects, EVERY_OTHER, None, None, math.inf, None, delta, words))
            continue
        if not any(release.protects == direction.protects and release.mu > 0 for release in releases):
            continue
        each = account(
            direction,
            releases,
            plan.privacy.delta,
            facts.label_party,
            facts.feature_parties,
            claimed=way.claimed,
            # Columns are released row by row: how batches are cut is of no matter to them.
            conditions=[*(conditions if direction.owner == facts.label_party else conditions[:1]), *way.conditions],
            randomness=randomness,
        )
        found += _merged(each)
    return found


def _ways(plan: Plan, facts: Facts) -> list[_Way]:
    if plan.is_linear:
        return _linear_ways(plan, facts)
    counted, privacy = release_plan(plan, facts), plan.privacy
    ways = [_labels_way(plan, facts, counted)]
    exact = ways[0].direction.unnoised
    if plan.noised_answers is not None and plan.noised_answers.clip == AUTO:
        exact = exact or "the clips of its answers"
    if facts.label_party in facts.shapes and exact is not None:
        # What comes back is computed from the label party's own columns too.
        ways.append(_Way(Direction(f"columns of {facts.label_party}", facts.label_party, exact), None, ()))
    for party in facts.feature_parties:
        if privacy.noise == 0:
            ways.append(_Way(Direction(f"columns of {party}", party, "embeddings"), None, ()))
            continue
        said = (_SCALED, *_marks(plan, privacy.columns_epsilon))
        claimed, claim = None, plan.conversation.embeddings_claim
        if claim is not None and privacy.clip > 0:
            queries = counted.exchanges_per_party
            claimed = claim.of(privacy.noise, privacy.clip, queries, counted.batch_size, counted.rows)
        hidden = columns_hidden_state(party, bottom_update_of(plan))
        ways.append(_Way(Direction(counted.columns(party), party, None, hidden), claimed, said))
        if facts.test_rows:  # no model learns from test rows
            ways.append(_Way(Direction(counted.columns(party, "test rows"), party), None, said))
        if facts.validation_rows:  # a model is chosen by them, from embeddings that are noised already
            ways.append(_Way(Direction(counted.columns(party, "validation rows"), party), None, said))
    return ways


def _labels_way(plan: Plan, facts: Facts, counted: ReleasePlan) -> _Way:
    answers, conversation, owner = plan.noised_answers, plan.conversation, facts.label_party
    if answers is None or answers.noise == 0:
        return _Way(Direction(counted.labels, owner, conversation.answers), None, ())
    said = [*([_SCALED_LABEL] if facts.task == "regression" else []), *_marks(plan, plan.privacy.labels_epsilon)]
    if owner in facts.shapes:
        said.append(_OWN_COLUMNS if answers.clip != AUTO else _NOT_OWN_COLUMNS)
    claim = conversation.answers_claim
    claimed = None if claim is None else claim.of(answers.noise, answers.clip_bound, counted.exchanges, counted.rows)
    hidden = labels_hidden_state(owner, answers.server_update)
    return _Way(Direction(counted.labels, owner, None, hidden), claimed, tuple(said))


def _linear_ways(plan: Plan, facts: Facts) -> list[_Way]:
    everywhere = plan.algorithm.labels == "everywhere"
    carry = "the labels themselves, which every party was given," if everywhere else plan.conversation.answers
    directions = [Direction(f"labels of {facts.label_party}", facts.label_party, carry)]
    directions += [Direction(f"columns of {party}", party, "exact sums of products") for party in facts.shapes]
    return [_Way(direction, None, ()) for direction in directions]


def _marks(plan: Plan, target: float) -> list[str]:
    """What must be said of the noise: that a paper's formula chose it, or that a budget is kept."""
    if target == 0:
        return []
    if plan.privacy.formula == "paper":
        return [_PAPER.format(target)]
    return [_BUDGET.format(target)]


_SCALED = (
    "How columns are scaled and gaps filled is taken as public: with data.standardise or data.missing it is learnt "
    "from all training rows without noise."
)
_SCALED_LABEL = (
    "How the label is scaled is taken as public: with data.standardise it is learnt from all training rows without "
    "noise."
)
_OWN_COLUMNS = "What is said of a label holds for the label party's own columns of that row together with it."
_NOT_OWN_COLUMNS = (
    "It does not hold for the label party's own columns: with algorithm.clip = auto the clip follows from them. Give a "
    "number for it, and it holds for them together with the label."
)
_PAPER = (
    "By privacy.formula = paper: the noise is what the paper asks for at ε = {:g}; the sound figure is what it keeps."
)
_BUDGET = "Enforced: a row is refused when its releases would cost more than ε = {:g}."


@dataclass(frozen=True)
class Curve:
    """What one row's data cost after so many epochs, with the plan's noise; None: not claimed."""

    direction: str
    conditional: bool  # on a model that is updated without noise
    claimed: tuple[float | None, ...]
    claimed_otherwise: tuple[float | None, ...]
    sound: tuple[float, ...]


def epsilon_curves(plan: Plan, facts: Facts, epochs: Sequence[float]) -> list[Curve]:
    """For labels, and for columns of the first feature party, as far as they are noised."""
    claimed: dict[str, list[tuple[float | None, float | None]]] = {}
    sound: dict[str, list[float]] = {}
    hidden: dict[str, bool] = {}
    for count in epochs:
        changed = replace(plan, training=replace(plan.training, epochs=count))
        releases = planned_releases(changed, facts)
        for way in _ways(changed, facts):
            own = [release for release in releases if release.protects == way.direction.protects]
            first = way.direction.owner in (facts.label_party, facts.feature_parties[0])
            if own and first and not way.direction.protects.endswith("test rows"):
                name, delta = way.direction.protects, plan.privacy.delta
                by_paper = (None, None) if way.claimed is None else way.claimed.epsilons(delta)
                claimed.setdefault(name, []).append(by_paper)
                sound.setdefault(name, []).append(epsilon_of(worst_row_mu(own), delta))
                hidden[name] = way.direction.hidden_state is not None
    return [
        Curve(
            name,
            hidden[name],
            tuple(one for one, _ in claimed[name]),
            tuple(other for _, other in claimed[name]),
            tuple(sound[name]),
        )
        for name in sound
    ]


def _merged(each: Sequence[Guarantee]) -> list[Guarantee]:
    """Adversaries with the same figures under the same conditions, in one."""
    merged: dict[tuple[Any, ...], list[Guarantee]] = {}
    for figure in each:
        merged.setdefault((figure.claimed, figure.sound, figure.conditional, figure.conditions), []).append(figure)
    return [replace(same[0], adversary="; ".join(one.adversary for one in same)) for same in merged.values()]


def overall(found: Sequence[Guarantee]) -> Guarantee | None:
    """The figure to name if only one is named: the worst of all directions in which anything was noised."""

    def badness(figure: Guarantee) -> tuple[float, float, bool]:
        """Where the sound figure is infinite the conditional one decides; else one that needs none tells more."""
        infinite = math.isinf(figure.sound)
        return figure.sound, (figure.conditional or 0.0) if infinite else 0.0, figure.conditional is None

    return max((figure for figure in found if figure.adversary != EVERY_OTHER), key=badness, default=None)


def unprotected(found: Sequence[Guarantee]) -> list[str]:
    """Directions of which something leaves without noise: whatever else a run keeps, it does not keep these."""
    open_ways = (one.direction for one in found if math.isinf(one.sound) and one.conditional is None)
    return list(dict.fromkeys(open_ways))


def privacy_summary(plan: Plan, found: Sequence[Guarantee], events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The `privacy` of summary.json. JSON has no infinity: a `sound` of None is ε = ∞."""
    worst = overall(found)
    if worst is not None:
        conditions = list(worst.conditions)
    elif plan.is_alone:
        conditions = ["Nothing was sent to anybody, and nothing was noised: the model itself is not private (ε = ∞)."]
    else:
        conditions = ["No value was noised: nothing in this run is differentially private (ε = ∞)."]
    told = None if worst is None else worst.as_values()
    return {
        "claimed": None if told is None else told["claimed"],
        "claimed_otherwise": None if told is None else told["claimed_otherwise"],
        "sound": None if told is None else told["sound"],
        "conditional": None if told is None else told["conditional"],
        "observed": None,
        "delta": plan.privacy.delta,
        "formula": plan.privacy.formula,
        "direction": None if worst is None else worst.direction,
        "adversary": None if worst is None else worst.adversary,
        "conditions": conditions,
        "unprotected": unprotected(found),
        "figures": [figure.as_values() for figure in found],
        "events": list(events),
    }
