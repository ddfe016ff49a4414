"""Optimisers that change a list of tensors in place, with the regularisers of the papers.

Every step minimises the loss plus l2/2 ‖θ‖² + l1 ‖θ‖₁ over all given tensors, biases included. L2 enters
through the gradient; L1 is a proximal step after the update, so weights become exactly zero. Equal to
torch.optim's SGD and Adam with weight_decay = l2, without their bookkeeping. Gradients are only read.

"scale-free" is Adam whose rate follows from how many weights there are and how many steps are planned: it is for
estimates of zeroth order, which are nearly all noise. T such steps are a random walk; `learning_rate` is how far it
carries all d weights together, R. With steps that decrease in a line to zero, step t moves each weight by about
R √(3 / dT) (1 − t/T).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from colonnade.errors import SettingsError, unknown_name

OPTIMISERS = ("sgd", "momentum", "adam", "scale-free")
TINY = 1e-30  # in place of Adam's stabiliser: a step of no scale knows no small gradient, but one of zero
LEAST = 0.05
"""Of its first rate, what a step keeps: a party that makes more steps than planned learns on, slowly."""


LONGEST = 0.1
"""By how much a scale-free step moves a weight at most. Only with few weights and few steps would it be more: then the
walk would end far outside of where weights of a network lie."""


def scale_free_rate(walk: float, weights: int, planned: int, step: int) -> float:
    """By how much step number `step` (from 0) of `planned` ones moves each of so many weights.

    >>> scale_free_rate(5.0, weights=300, planned=100, step=50)  # 5 √(3 / 30,000) / 2
    0.025
    """
    return min(LONGEST, walk * math.sqrt(3 / (weights * planned))) * what_is_left(step, planned)


def what_is_left(step: int, planned: int) -> float:
    """Of a rate that falls in a line over so many steps, at step number `step` (from 0)."""
    return max(1 - step / planned, LEAST)


@dataclass(frozen=True)
class OptimiserSettings:
    name: str = "sgd"
    learning_rate: float = 0.01
    momentum: float = 0.9  # of "momentum"
    beta1: float = 0.9  # of "adam": decay of the mean gradient
    beta2: float = 0.999  # of "adam": decay of the mean squared gradient
    stabiliser: float = 1e-8  # of "adam": added to the root in its denominator
    l2: float = 0.0
    l1: float = 0.0
    planned_steps: int = 0  # T: of "scale-free", and where the rate falls
    falls: bool = False  # whether the rate falls in a line to zero, over the planned steps; "scale-free" always does

    def __post_init__(self) -> None:
        if self.name not in OPTIMISERS:
            raise unknown_name("optimiser", self.name, OPTIMISERS)
        for setting in fields(self)[1:]:
            value = getattr(self, setting.name)
            below = 1 if setting.name in ("momentum", "beta1", "beta2") else math.inf
            if not 0 <= value < below:
                raise SettingsError(
                    f"The optimiser's setting {setting.name!r} is {value}. It must be at least 0 and "
                    f"{'below 1' if below == 1 else 'finite'}."
                )


class Optimiser:
    """Updates `parameters` in place by one step for each list of gradients in their order.

    >>> weight = torch.tensor([1.0, 0.05])
    >>> Optimiser([weight], OptimiserSettings(learning_rate=0.1, l1=1.0)).step([torch.tensor([2.0, 0.0])])
    >>> weight  # 1 − 0.1·2 = 0.8, shrunk by 0.1; 0.05 shrunk to 0
    tensor([0.7000, 0.0000])
    """

    def __init__(self, parameters: list[Tensor], settings: OptimiserSettings) -> None:
        self.parameters = parameters
        self.settings = settings
        self._steps = 0
        self._scale = 1.0  # of what the rate would be: less, after a training that did not descend
        if settings.name == "scale-free" and settings.planned_steps < 1:
            raise SettingsError(
                'training.optimiser = "scale-free" is the step of zeroth-order algorithms, which say how many they '
                'will make. Choose "adam" here, or leave it out.'
            )
        self._weights = sum(one.numel() for one in parameters)
        # Velocities or mean gradients, and mean squared gradients: as many lists as the optimiser needs.
        moments = {"sgd": 0, "momentum": 1, "adam": 2, "scale-free": 2}[settings.name]
        self._moments = [[torch.zeros_like(p, requires_grad=False) for p in parameters] for _ in range(moments)]
        self._counts = moments == 2 or settings.falls  # whether a step depends on how many there were
        self._plain = settings.name == "sgd" and settings.l1 == settings.l2 == 0

    @torch.no_grad()  # the tensors may be leaves of autograd
    def step(self, gradients: list[Tensor]) -> None:
        if not self.parameters:
            return
        rate = self._rate()
        self._steps += 1
        if self._plain:
            torch._foreach_add_(self.parameters, gradients, alpha=-rate)
            return
        if self.settings.l2 > 0:
            gradients = list(torch._foreach_add(gradients, self.parameters, alpha=self.settings.l2))
        if self.settings.name == "sgd":
            torch._foreach_add_(self.parameters, gradients, alpha=-rate)
        elif self.settings.name == "momentum":
            (velocities,) = self._moments
            torch._foreach_mul_(velocities, self.settings.momentum)
            torch._foreach_add_(velocities, gradients)
            torch._foreach_add_(self.parameters, velocities, alpha=-rate)
        else:
            self._adam(gradients, rate)
        if self.settings.l1 > 0:
            # prox of t‖·‖₁: θ − clamp(θ, −t, t), the soft threshold
            threshold = rate * self.settings.l1
            shrinkage = torch._foreach_clamp_max(self.parameters, threshold)
            torch._foreach_clamp_min_(shrinkage, -threshold)
            torch._foreach_sub_(self.parameters, shrinkage)

    def restart(self, scale: float) -> None:
        """Begin anew with steps of that share of their length."""
        self._scale = scale
        self._steps = 0
        for tensors in self._moments:
            for tensor in tensors:
                tensor.zero_()

    def _rate(self) -> float:
        rate = self._scale * self.settings.learning_rate
        if self.settings.name == "scale-free":
            return scale_free_rate(rate, self._weights, self.settings.planned_steps, self._steps)
        return rate * what_is_left(self._steps, self.settings.planned_steps) if self.settings.falls else rate

    def _adam(self, gradients: list[Tensor], rate: float) -> None:
        means, squares = self._moments
        beta1, beta2 = self.settings.beta1, self.settings.beta2
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        # Both means start at zero; dividing by 1 − βᵗ takes that bias away.
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, math.sqrt(1 - beta2**self._steps))
        torch._foreach_add_(roots, TINY if self.settings.name == "scale-free" else self.settings.stabiliser)
        torch._foreach_addcdiv_(self.parameters, means, roots, -rate / (1 - beta1**self._steps))

    def state(self) -> dict[str, Tensor]:
        """Clones of what the next step depends on besides the parameters; empty for plain SGD."""
        state = {
            f"moment{order}.{index}": tensor.clone().cpu()
            for order, tensors in enumerate(self._moments, start=1)
            for index, tensor in enumerate(tensors)
        }
        if self._counts:
            state["steps"] = torch.tensor(self._steps)
        if self._scale != 1.0:
            state["scale"] = torch.tensor(self._scale, dtype=torch.float64)
        return state

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._scale = float(state.get("scale", 1.0))
        expected = self.state()
        misfits = sorted(
            name
            for name in expected.keys() | state.keys()
            if name not in expected or name not in state or state[name].shape != expected[name].shape
        )
        if misfits:
            raise SettingsError(
                f"The saved state does not fit the optimiser {self.settings.name!r} with "
                f"{len(self.parameters)} tensors: {', '.join(misfits)} differ in name or shape. Resume with "
                "the optimiser and the model it was saved from."
            )
        for order, tensors in enumerate(self._moments, start=1):
            for index, tensor in enumerate(tensors):
                tensor.copy_(state[f"moment{order}.{index}"])
        if self._counts:
            self._steps = int(state["steps"])
