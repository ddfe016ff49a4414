"""The estimator of a quasi-Newton algorithm: the passes and the memory of a first-order one, and steps along H v̂.

Q. Zhang, B. Gu, C. Deng, S. Gu, L. Bo, J. Pei, H. Huang. "AsySQN: Faster Vertical Federated Learning Algorithms with
Better Computation Resource Utilization", 2021, Algorithms 4 and 5, which differ in the gradient alone.
"""

from collections.abc import Callable

from colonnade.algorithms.linear_models.parts.curved_block import CurvedBlock
from colonnade.algorithms.linear_models.parts.solving import Estimator, Floats, Rows
from colonnade.models.linear_window import Window
from colonnade.state import Remembering, included, part


class QuasiNewtonEstimator(Remembering):
    """Steps of `block` along H v̂, v̂ = gradient(rows, ϑ_I), of reduced variance as `first_order` makes it."""

    independent_rows = True

    MEMORY = (included("_first_order"), part("_block"))

    def __init__(self, first_order: Estimator, block: CurvedBlock, gradient: Callable[[Rows, Floats], Floats]) -> None:
        self._first_order = first_order
        self._block = block
        self._gradient = gradient
        self.renewed_every = first_order.renewed_every

    @property
    def fall_backs(self) -> int:
        return self._block.fall_backs

    def pass_is_due(self, steps: int) -> bool:
        return self._first_order.pass_is_due(steps)

    def take_pass(self, residuals: Floats, steps: int) -> None:
        self._first_order.take_pass(residuals, steps)

    def known(self) -> Floats:
        return self._first_order.known()

    def jumped(self) -> None:
        self._block.jumped()

    def step(self, window: Window, step_size: float, steps: int) -> float:
        return self._block.steps(window, self._gradient, lambda batch: step_size)
