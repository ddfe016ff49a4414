"""How long a step of a linear federation may be, from two numbers of every party.

The loss has curvature at most `bound` in each output, so the whole objective is L-smooth with L = bound·Λ + λ,
Λ = λ_max(XᵀX/n). A step on b rows also sees their chance; it stays stable in the mean square while it is short against
bound·R²/b, where E[‖x‖² xxᵀ] ≼ R² E[xxᵀ] (F. Bach, E. Moulines, 2013). We take R² column by column, max_j E‖x‖²x_j² /
E x_j²: a column that is rare and was scaled to variance 1 makes its few rows long, and along it R² is their length.

A party knows its own columns alone. As λ_max(XᵀX) ≤ Σ_m λ_max(X_mᵀX_m), and as the noise of all blocks together is the
sum of theirs,

    L_b = bound · (Λ + R²/b) + λ        Λ ≤ Σ_m Λ_m        R² ≤ Σ_m R_m²

Snapshots and tables ask for more. Between two visits of a row, n/b steps apart in the mean and often twice as many, its
kept residual pushes the weights along it, by η · bound · ‖x‖²/b in all. Beyond a third that swings up; SAGA's 1/(3L)
(A. Defazio et al., 2014) is the same bound. So such steps are also below 1/(4 · bound · max_m R_m²/b).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

REVISITS = 4.0


class ColumnsTold(NamedTuple):
    """What one party tells of its columns."""

    longest_rows: float  # R_m²
    largest_eigenvalue: float  # Λ_m


@dataclass(frozen=True)
class Smoothness:
    """Bounds on Λ and R² of the joined columns, and the largest R_m² of one party."""

    whole: float
    rows: float
    longest: float

    @classmethod
    def joined(cls, told: Iterable[ColumnsTold]) -> "Smoothness":
        parties = list(told)
        rows = [one.longest_rows for one in parties]
        return cls(sum(one.largest_eigenvalue for one in parties), sum(rows), max(rows, default=0.0))

    def of_batches(
        self, bound: float, l2: float, batch_size: int, late: int = 0, keeps_residuals: bool = False
    ) -> float:
        """What 1/η is at least.

        `late`: mini-batches that are asked for together see the others' weights, and without labels also their own, as
        they were: the whole objective's curvature counts once more for each of them.

        >>> one = Smoothness(whole=4.0, rows=8.0, longest=6.0)
        >>> one.of_batches(bound=0.25, l2=0.0, batch_size=2), one.of_batches(0.25, 0.0, 2, keeps_residuals=True)
        (2.0, 3.0)
        """
        plain = bound * ((1 + late) * self.whole + self.rows / batch_size) + (1 + late) * l2
        return max(plain, REVISITS * bound * self.longest / batch_size) if keeps_residuals else plain
