"""What a run's rows may cost: the limits of its privacy settings, and a table from μ² to ε for the page to look up.

The page never computes an ε: it takes the next higher one of this table, so that what it shows is not too small.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Any

_TABLE = 600
_LEAST_MU2, _MOST_MU2 = 1e-4, 1e3


def budget_facts(privacy: Mapping[str, Any]) -> dict[str, Any] | None:
    """For `labels` and `columns` the target and its μ²; the table; None where nothing is noised."""
    targets = {what: _number(privacy.get(f"{what}_epsilon")) for what in ("labels", "columns")}
    if not any(targets.values()) and not _number(privacy.get("noise")):
        return None
    # numpy and scipy take a quarter of a second to load, for runs that need them
    import numpy as np

    from colonnade.privacy.gaussian import epsilon_of, mu_of

    delta = _number(privacy.get("delta")) or 1e-5
    if not 0 < delta < 1:
        return None
    keeps = privacy.get("formula", "sound") == "sound"
    limits = {
        what: {"epsilon": epsilon, "mu2": mu_of(epsilon, delta) ** 2 if keeps else None}
        for what, epsilon in targets.items()
        if epsilon > 0
    }
    mu2 = np.geomspace(_LEAST_MU2, _MOST_MU2, _TABLE)
    epsilons = epsilon_of(np.sqrt(mu2), delta)
    table = [[float(f"{cost:.4g}"), float(f"{one:.5g}")] for cost, one in zip(mu2, epsilons, strict=True)]
    return {"delta": delta, "limits": limits, "epsilon_of_mu2": table}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and isfinite(value) else 0.0
