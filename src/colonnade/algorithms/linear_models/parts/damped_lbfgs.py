"""A damped L-BFGS direction from one party's own block: positive definite whatever the pairs are.

Q. Zhang, B. Gu, C. Deng, S. Gu, L. Bo, J. Pei, H. Huang. "AsySQN: Faster Vertical Federated Learning Algorithms with
Better Computation Resource Utilization", 2021, Algorithm 1; equation numbers are the paper's.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from colonnade.state import Remembering, State, custom, value

Floats = NDArray[np.float64]

TINIEST = 1e-200
"""What is smaller in square, or larger than its inverse, is no pair to learn from: a product would not be finite."""


class DampedLbfgs(Remembering):
    """H of the last `memory` pairs (s, ŷ); `least_curvature` is δ, the least that γ may be.

    >>> curvature = DampedLbfgs(memory=2, least_curvature=0.1)
    >>> curvature.direction(np.array([1.0, 0.0])).tolist()  # no pair yet: γ = 1
    [1.0, 0.0]
    >>> curvature.add(np.array([1.0, 0.0]), np.array([4.0, 0.0]))
    >>> curvature.direction(np.array([1.0, 0.0])).tolist()
    [0.25, 0.0]
    """

    def __init__(self, memory: int, least_curvature: float) -> None:
        self._least = least_curvature
        self.most = 0.0  # the most curvature, if known: assumed where no pair says anything; 0: that of the last pair
        self._pairs: deque[tuple[Floats, Floats, float]] = deque(maxlen=memory)  # s, ŷ, ρ
        self._gamma = 1.0

    def start(self, curvature: float) -> None:
        """The γ to begin with, before any pair is known."""
        self._gamma = max(curvature, self._least, self.most)

    def forget(self) -> None:
        """Begin anew."""
        self._pairs.clear()

    def add(self, s: Floats, y: Floats) -> None:
        """Learn from s = w_k − w_{k−1} and ȳ, the change of the gradient along it."""
        sy, ss, yy = float(s @ y), float(s @ s), float(y @ y)
        if not (TINIEST < ss < 1 / TINIEST and yy < 1 / TINIEST):  # a square is lost, or is not finite
            return
        # γ_k = max(ȳᵀȳ / sᵀȳ, δ), and δ where sᵀȳ ≤ 0.
        gamma = max(yy / sy, self._least) if sy > 0 else self._least
        sigma = gamma * ss
        if sy < 0.3 * sigma:  # (13): pull ȳ towards H₀⁻¹s until sᵀŷ = 0.3 σ > 0
            theta = 0.7 * sigma / (sigma - sy)
            y = theta * y + (1 - theta) * gamma * s  # (12)
            sy = float(s @ y)
        if TINIEST < sy < 1 / TINIEST:
            self._gamma = max(gamma, self.most)
            self._pairs.append((s, y, 1 / sy))

    @property
    def knows(self) -> bool:
        return bool(self._pairs)

    def direction(self, v: Floats) -> Floats:
        """H v by the two-loop recursion, steps 3 to 11; H₀v, and all pairs are forgotten, if it is no descent."""
        u = v.copy()
        weights = []
        for s, y, rho in reversed(self._pairs):
            weight = rho * float(u @ s)
            weights.append(weight)
            u -= weight * y
        u /= self._gamma
        for (s, y, rho), weight in zip(self._pairs, reversed(weights), strict=True):
            u += (weight - rho * float(u @ y)) * s
        # Positive definite on paper; pairs of very different sizes can still round to something else.
        if v.any() and not 0 < float(u @ v) < np.inf:
            self._pairs.clear()
            return v / self._gamma
        return u

    def _save_pairs(self, state: State) -> None:
        state.values["rho"] = [rho for _, _, rho in self._pairs]
        for place, (s, y, _) in enumerate(self._pairs):
            state.put(f"s.{place}", s)
            state.put(f"y.{place}", y)

    def _load_pairs(self, state: State) -> None:
        self._pairs.clear()
        for place, rho in enumerate(state.values["rho"]):
            self._pairs.append((state.take(f"s.{place}"), state.take(f"y.{place}"), rho))

    DERIVED = ("most",)  # whoever knows it says so
    MEMORY = (value("_gamma"), custom("_pairs", save=_save_pairs, load=_load_pairs))
