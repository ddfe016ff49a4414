"""What a plan costs, before anything is sent: exchanges, bytes, noise, ε, and what to change for a wanted ε.

Everything follows from the settings and from sizes; no value of the data is looked at.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any

from colonnade.costs.guarantees import overall, planned_guarantees
from colonnade.costs.noise import bottom_share, calibrated, release_plan, top_share
from colonnade.costs.traffic import (
    Expected,
    expected_traffic,
    most_refreshes,
    planned_exchanges,
    planned_requests,
)
from colonnade.federation.plan import Facts, Plan
from colonnade.privacy.accounting import SECRET, Guarantee
from colonnade.privacy.calibration import (
    Suggestion,
    embedding_clip,
    slope_clip,
    suggest_for_embeddings,
    suggest_for_slopes,
)
from colonnade.privacy.gaussian import epsilon_of, mu_of

_ROUNDING = 1e-6  # relative: noise that was computed for a target keeps it


@dataclass(frozen=True)
class Noise:
    """One kind of noised values: the deviation of the noise, the bound of the value, and where both are set."""

    values: str
    setting: str
    noise: float
    clip: float

    @property
    def ratio(self) -> float:
        """Noise to signal: above 1 the noise of a single value is larger than the value can be."""
        return self.noise / self.clip if self.clip > 0 else 0.0


@dataclass(frozen=True)
class Advice:
    """How to come to a wanted ratio of noise to signal with a wanted ε; any one of the changes does."""

    values: str
    epsilon: float
    suggestion: Suggestion
    clip: float | None  # the largest with which a noise that was given keeps ε; None: noise follows the clip


@dataclass(frozen=True)
class Missed:
    """A target that the noise which was set does not keep over the planned epochs."""

    direction: str
    epsilon: float  # of the plan
    target: float


@dataclass(frozen=True)
class Price:
    """What `colonnade account` tells."""

    plan: Plan  # with its noise
    label_party: str
    exchanges: int
    traffic: list[Expected]
    noises: list[Noise]
    figures: list[Guarantee]
    advice: list[Advice]
    missed: list[Missed]
    refresh_bytes: tuple[int, int] | None  # with max_delay: up and down, at most, and in none of the others

    @property
    def bytes_up(self) -> int:
        """Sent by feature parties, be it to one another; as a run counts it."""
        return sum(one.size_bytes for one in self._of(evaluation=False) if one.sender != self.label_party)

    @property
    def bytes_down(self) -> int:
        return sum(one.size_bytes for one in self._of(evaluation=False) if one.sender == self.label_party)

    @property
    def evaluation_bytes(self) -> int:
        return sum(one.size_bytes for one in self._of(evaluation=True))

    def _of(self, evaluation: bool) -> list[Expected]:
        return [one for one in self.traffic if one.kind.off_clock == evaluation]

    def as_values(self) -> dict[str, Any]:
        """For JSON, in which a `sound` of null is ε = ∞."""
        by_message: dict[str, dict[str, int]] = {}
        for one in self.traffic:
            kind = by_message.setdefault(one.kind.__name__, {"frames": 0, "bytes": 0})
            kind["frames"] += one.frames
            kind["bytes"] += one.size_bytes
        worst = overall(self.figures)
        return {
            "algorithm": self.plan.chosen.name,
            "exchanges": self.exchanges,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "evaluation_bytes": self.evaluation_bytes,
            "refresh_bytes_at_most": None
            if self.refresh_bytes is None
            else {"up": self.refresh_bytes[0], "down": self.refresh_bytes[1]},
            "messages": by_message,
            "noise": [
                {
                    "values": one.values,
                    "setting": one.setting,
                    "noise": one.noise,
                    "clip": one.clip,
                    "noise_to_signal": one.ratio,
                }
                for one in self.noises
            ],
            "delta": self.plan.privacy.delta,
            "formula": self.plan.privacy.formula,
            "claimed": None if worst is None else worst.as_values()["claimed"],
            "claimed_otherwise": None if worst is None else worst.as_values()["claimed_otherwise"],
            "sound": None if worst is None else worst.as_values()["sound"],
            "figures": [figure.as_values() for figure in self.figures],
            "missed_targets": [asdict(one) for one in self.missed],
            "suggestions": [
                {
                    "values": one.values,
                    "epsilon": one.epsilon,
                    "noise_to_signal": one.suggestion.noise_to_signal,
                    "epochs": one.suggestion.epochs,
                    "batch_size": one.suggestion.batch_size,
                    "clip": one.clip,
                }
                for one in self.advice
            ],
        }


def price(
    plan: Plan, facts: Facts, epsilon: float = 0.0, noise_to_signal: float = 0.25, randomness: str = SECRET
) -> Price:
    """`epsilon`: what is wanted where the plan names no target; 0: nothing. `randomness`: of the noise."""
    noised = calibrated(plan, facts)
    alone, linear = plan.is_alone, plan.is_linear
    exchanges = 0 if alone else planned_exchanges(noised, facts)
    exchanges = planned_requests(noised, facts).exchanges if linear else exchanges
    traffic = [] if alone else expected_traffic(noised, facts)
    advice = [] if alone or linear else _advice(plan, noised, facts, epsilon, noise_to_signal)
    figures = planned_guarantees(noised, facts, randomness)
    return Price(
        noised,
        facts.label_party,
        exchanges,
        traffic,
        _noises(noised),
        figures,
        advice,
        _missed(noised, figures),
        None if alone or linear else most_refreshes(noised, facts),
    )


def _missed(plan: Plan, figures: Sequence[Guarantee]) -> list[Missed]:
    """The worst adversary of each direction whose target the plan goes beyond. A paper's formula promises nothing."""
    if plan.privacy.formula != "sound":
        return []
    found: dict[str, Missed] = {}
    for figure in figures:
        of_labels = figure.direction.startswith("labels")
        target = plan.privacy.labels_epsilon if of_labels else plan.privacy.columns_epsilon
        # What a model keeps in hidden state is said beside the figure; here it is about the releases.
        epsilon = figure.sound if figure.conditional is None else figure.conditional
        before = found.get(figure.direction)
        if 0 < target * (1 + _ROUNDING) < epsilon < inf and (before is None or before.epsilon < epsilon):
            found[figure.direction] = Missed(figure.direction, epsilon, target)
    return list(found.values())


NOISED_ANSWERS = "mean slopes"
"""What the noise on answers is on, also where slopes are sent as losses."""


def _noises(plan: Plan) -> list[Noise]:
    answers, privacy = plan.noised_answers, plan.privacy
    found = []
    if answers is not None:
        found.append(Noise(NOISED_ANSWERS, "algorithm.noise", answers.noise, answers.clip_bound))
        if answers.private_update:
            values = "updates of the top model"
            found.append(Noise(values, "algorithm.server_noise", answers.server_noise, answers.server_clip_bound))
    found.append(Noise("embeddings", "privacy.noise", privacy.noise, privacy.clip))
    found.append(Noise("updates of bottom models", "privacy.update_noise", privacy.update_noise, privacy.update_clip))
    return [one for one in found if one.noise > 0]


def _advice(plan: Plan, noised: Plan, facts: Facts, epsilon: float, ratio: float) -> list[Advice]:
    counted, answers, privacy = release_plan(noised, facts), plan.noised_answers, plan.privacy
    found: list[Advice] = []
    wanted = privacy.labels_epsilon or epsilon
    if answers is not None and wanted > 0 and answers.clip_bound > 0:
        share, several = (
            top_share(plan),
            plan.answer_clip / answers.clip_bound,
        )  # √q numbers in an answer need √q the noise
        suggestion = suggest_for_slopes(wanted, privacy.delta, counted, ratio / several, update_share=share)
        suggestion = replace(suggestion, noise_to_signal=suggestion.noise_to_signal * several)
        clip = None
        if answers.noise > 0:
            clip = slope_clip(wanted, privacy.delta, counted, answers.noise, update_share=share) / several
        found.append(Advice(NOISED_ANSWERS, wanted, suggestion, clip))
    wanted = privacy.columns_epsilon or (epsilon if noised.privacy.noise > 0 else 0.0)
    if wanted > 0 and privacy.clip > 0:
        left = epsilon_of(mu_of(wanted, privacy.delta) * (1 - bottom_share(plan)) ** 0.5, privacy.delta)
        suggestion = suggest_for_embeddings(left, privacy.delta, counted, ratio)
        clip = embedding_clip(left, privacy.delta, counted, privacy.noise) if privacy.noise > 0 else None
        found.append(Advice("embeddings", wanted, suggestion, clip))
    return found


def with_delta(plan: Plan, delta: float) -> Plan:
    return replace(plan, privacy=replace(plan.privacy, delta=delta))


def epochs_to_draw(planned: float, points: int = 24) -> Sequence[float]:
    """From one epoch to twice the plan."""
    last = max(2.0, 2 * planned)
    return sorted({max(1.0, float(round(1 + (last - 1) * place / (points - 1)))) for place in range(points)})
