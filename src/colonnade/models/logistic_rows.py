"""The compiled loops around NumPy's exponentials in the residuals of many logistic rows: what comes before and after.

NumPy takes several exponentials at a time, a compiled loop here one; of all the rest a loop makes one pass instead of
one for each operation. Nothing here calls a kernel of another file.
"""

import numpy as np
import numpy.typing as npt

from colonnade.models.machine_code import compiled

Numbers = npt.NDArray[np.float64]


@compiled
def fill_distances(outputs: Numbers, targets: Numbers, distances: Numbers, negated: Numbers) -> None:
    """z = θ of the rows with label 0 and −θ of the others, how far they are on the wrong side; and −|z|."""
    for i in range(distances.shape[0]):
        z = -outputs[i] if targets[i] > 0.5 else outputs[i]
        distances[i] = z
        negated[i] = -abs(z)


@compiled
def fill_from_exponentials(targets: Numbers, distances: Numbers, small: Numbers, residuals: Numbers) -> float:
    """±σ(z) with small = exp(−|z|); returns the sum of max(z, 0)."""
    total = 0.0
    for i in range(distances.shape[0]):
        z, s = distances[i], small[i]
        residual = (1.0 if z >= 0.0 else s) / (1.0 + s)
        residuals[i] = -residual if targets[i] > 0.5 else residual
        total += max(z, 0.0)
    return total
