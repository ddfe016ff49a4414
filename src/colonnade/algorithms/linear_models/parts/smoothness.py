"""How smooth the objective of a linear federation is along a mini-batch, from three numbers of every party.

The loss has curvature at most `bound` in each output, so the whole objective is L-smooth with L = bound·Λ + λ,
Λ = λ_max(XᵀX/n). A step on b rows also sees their chance; it stays stable in the mean square while it is short against
bound·R²/b, where E[‖x‖² xxᵀ] ≼ R² E[xxᵀ] (F. Bach, E. Moulines, 2013); R² = E‖x‖⁴/E‖x‖² is what the traces of the two
sides say. That is a bound in the mean of all directions only. A column that is rare and was scaled to variance 1 makes
its few rows long, and along it R² is the length of these rows: there a step of 1/L_b can diverge, ridge regression
above all, whose curvature never lets up. So no party's step is longer than its longest row allows (`of_longest_row`).

A party knows its own columns alone. As λ_max(XᵀX) ≤ Σ_m λ_max(X_mᵀX_m) and, by Minkowski's inequality,
√E‖x‖⁴ ≤ Σ_m √E‖x_m‖⁴, the parties' numbers bound both:

    L_b = bound · (Λ + 3 R²/b) + λ        Λ ≤ Σ_m Λ_m        R² ≤ (Σ_m √E‖x_m‖⁴)² / Σ_m E‖x_m‖²

The factor 3 makes it, for single rows of equal length, the 1/(3L) of SAGA (A. Defazio et al., 2014).

For the longest row nothing need be told. With step sizes η_m of the parties' own, the noise of a batch stays below
Σ_m η_m · bound · max_i‖x_{i,m}‖²/b times what the step gains, and steps are stable while that and η_m·bound·Λ_m, summed
over the parties, are below 2. 1/L_b leaves 1 of it; a party takes no more than its q-th of a half.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple


class ColumnsTold(NamedTuple):
    """What one party tells of its columns."""

    mean_square: float  # E‖x_m‖²
    mean_fourth: float  # E‖x_m‖⁴
    largest_eigenvalue: float  # Λ_m


@dataclass(frozen=True)
class Smoothness:
    """Λ and R² of the joined columns, or bounds on them."""

    whole: float
    rows: float

    @classmethod
    def joined(cls, told: Iterable[ColumnsTold]) -> "Smoothness":
        parties = list(told)
        square = sum(one.mean_square for one in parties)
        fourth = sum(sqrt(one.mean_fourth) for one in parties) ** 2
        return cls(sum(one.largest_eigenvalue for one in parties), fourth / square if square else 0.0)

    def of_batches(self, bound: float, l2: float, batch_size: int) -> float:
        """L_b.

        >>> Smoothness(whole=4.0, rows=8.0).of_batches(bound=0.25, l2=0.0, batch_size=1)
        7.0
        >>> Smoothness(whole=4.0, rows=8.0).of_batches(bound=0.25, l2=0.0, batch_size=6)
        2.0
        """
        return bound * (self.whole + 3 * self.rows / batch_size) + l2


def of_longest_row(bound: float, longest: float, batch_size: int, parties: int) -> float:
    """What 1/η_m is at least, for a party whose longest row has this square.

    >>> of_longest_row(bound=2.0, longest=640.0, batch_size=64, parties=4)  # 2 · 4 · 2 · 640/64
    160.0
    """
    return 2 * parties * bound * longest / batch_size
