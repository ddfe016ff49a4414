"""How a zeroth-order party steps along its estimate: the papers' plain step, or one that knows no scale.

A rate that suits backpropagation cannot suit zeroth order: the estimate's length is that of the gradient times √(d/q).
The scale-free step (algorithms/parts/optimiser.py) has a length that follows from what a party knows anyway: how many
weights it has, how many steps are planned, and the spread of the estimates that it has seen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from colonnade.algorithms.parts.optimiser import OptimiserSettings
from colonnade.algorithms.seats import FeatureSeat, LabelSeat
from colonnade.algorithms.training import Defaults
from colonnade.errors import SettingsError, unknown_name
from colonnade.models.contract import Network
from colonnade.models.dense import DenseNetwork
from colonnade.state import Remembering, value

WALK = 5.0
"""R, how far the noise of all steps may carry a party's weights: as far as they are from zero when they are drawn. A
dense layer's are within ±1/√inputs, so that the norm of all is √(outputs / 3), whatever the inputs: 5 for 64 units."""
FIRST_ORDER_WALK = 2.0
"""The same of a label party with gradients, whose steps agree: they go much farther than a walk's."""
DIRECTIONS = 15
"""q: a row's embedding goes up 16 times for 15 slopes. Fewer than the least batch has rows, so that a reply holds fewer
numbers than labels went into it."""
SCALE_FREE = Defaults(
    optimiser="scale-free",
    rates=MappingProxyType({"sgd": 0.1, "momentum": 0.01, "adam": 0.001, "scale-free": WALK}),
)
STEPS = ("auto", "scale-free", "plain")
PERTURBED = ("auto", "weights", "layers")


@dataclass(frozen=True)
class StepSettings:
    """The step of every algorithm whose feature parties are of zeroth order; their settings extend these."""

    step: str = "auto"
    """`scale-free` or `plain` ([explained](algorithms/cascaded.md#the-step)); `auto`: scale-free, or plain where a
    learning rate is given"""
    perturb: str = "auto"
    """what directions move: the `weights`, or what `layers` give
    ([explained](algorithms/cascaded.md#directions-of-layers)); `auto`: layers where the step is scale-free, models are
    of fully connected layers and embeddings have no noise"""

    def check_step(self) -> None:
        if self.step not in STEPS:
            raise unknown_name("value of algorithm.step", self.step, STEPS)
        if self.perturb not in PERTURBED:
            raise unknown_name("value of algorithm.perturb", self.perturb, PERTURBED)


class SlopeSpread(Remembering):
    """The root of the mean square of a party's slopes, the last hundred or so: a number and a count.

    >>> spread = SlopeSpread()
    >>> spread.relative(3.0), round(spread.relative(3.0), 6), spread.relative(0.0)
    (1.0, 1.0, 0.0)
    """

    MEMORY = (value("_square", "_seen"),)
    DECAY = 0.99

    def __init__(self) -> None:
        self._square = 0.0
        self._seen = 0

    def relative(self, slope: float) -> float:
        """The slope over the spread of all so far, this one among them: at most 10, about 1, and 0 if all were 0."""
        self._seen += 1
        self._square += (1 - self.DECAY) * (slope * slope - self._square)
        mean = self._square / (1 - self.DECAY**self._seen)
        return slope / math.sqrt(mean) if mean > 0 else 0.0


def settings_of_step(step: str, decided: OptimiserSettings) -> OptimiserSettings:
    """The optimiser that `algorithm.step` asks for, given what `[training]` decided."""
    if step == "plain" and decided.name == "scale-free":
        raise SettingsError(
            'algorithm.step = "plain" needs training.learning_rate: which one suits an estimate of zeroth order '
            "depends on the model and on the data. Begin with 0.001, or leave algorithm.step out."
        )
    return replace(decided, name="scale-free") if step == "scale-free" else decided


def moved_layers(
    settings: StepSettings, optimiser: OptimiserSettings, networks: Sequence[Network], owner: str
) -> list[DenseNetwork]:
    """These networks, if directions move what their layers give and not their weights; [] else."""
    dense = [network for network in networks if isinstance(network, DenseNetwork)]
    if len(dense) < len(networks):
        if settings.perturb == "layers":
            raise SettingsError(
                f'algorithm.perturb = "layers" moves what fully connected layers give, and a model of {owner} has '
                "other ones. Leave it out: its weights are moved then."
            )
        return []
    asked = settings.perturb == "layers" or (settings.perturb == "auto" and optimiser.name == "scale-free")
    return dense if asked else []


def optimiser_of_bottom(seat: FeatureSeat) -> OptimiserSettings:
    """A step for each upload, if all parties are equally fast."""
    planned = seat.training.steps(len(seat.columns.train))
    return settings_of_step(seat.settings.step, seat.training.bottom_optimiser(planned))


def optimiser_of_top(seat: LabelSeat, uploads_a_step: int) -> OptimiserSettings:
    """A step for each upload of anybody's, or for so many together."""
    return settings_of_step(seat.settings.step, first_order_top(seat, uploads_a_step))


def first_order_top(seat: LabelSeat, uploads_a_step: int = 1) -> OptimiserSettings:
    """The same of a label party that knows gradients alone."""
    planned = seat.training.steps(len(seat.labels.train)) * len(seat.feature_parties)
    return seat.training.top_optimiser(max(1, planned // uploads_a_step))
