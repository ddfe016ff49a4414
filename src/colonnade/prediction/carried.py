"""What rows have cost across trainings: one that begins with the model of another goes on from what that has released.

Rows are known by their ids, in the account that lies beside a party's model (`account.py`): the columns of a feature
party's rows, the labels of the label party's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.prediction.account import RowAccount, account_names
from colonnade.prediction.saved_model import SavedModel

Costs = Mapping[str, NDArray[np.float64]]
"""μ² of each row, by part: "training rows", "validation rows", "test rows"."""
INCLUDED = "What the model to start from had released of the same rows is included."


def spent_before(model: SavedModel, ids: Mapping[str, Sequence[str]]) -> Costs | None:
    """What these rows have cost by now, by the account of a party's model; None: it has none."""
    known = model.spent
    if known is None and model.folder is not None and (account := RowAccount(model.folder)).exists:
        known = account.totals()
    if known is None:
        return None
    found = {
        part: np.array(
            [known.get(name, 0.0) if one else 0.0 for name, one in zip(account_names(own), own, strict=True)]
        )
        for part, own in ids.items()
    }
    return found if any(bool(costs.any()) for costs in found.values()) else None


def has_account(model: SavedModel) -> bool:
    """Whether anything says what its rows have cost."""
    return model.spent is not None or (model.folder is not None and RowAccount(model.folder).exists)


def costs_of(party: str, released: Sequence[Mapping[str, Any]], ids: Mapping[str, Sequence[str]]) -> Costs:
    """What a training has cost each row of one party, by what its ledger has counted."""
    costs = {part: np.zeros(len(own)) for part, own in ids.items()}
    for kind in released:
        whose, _, part = kind["protects"].partition(", ")
        if whose not in (f"columns of {party}", f"labels of {party}") or kind["sensitivity"] is None:
            continue
        own = costs[part]
        counts = kind["per_row"][: len(own)]
        own[: len(counts)] += counts * (kind["sensitivity"] / kind["noise"]) ** 2
    return costs


def by_name(ids: Mapping[str, Sequence[str]], *costs: Costs | None) -> dict[bytes, float]:
    """What each row has cost in all, as accounts have it; a row that a party lacks costs nothing."""
    found: dict[bytes, float] = {}
    for part, own in ids.items():
        total = sum((one[part] for one in costs if one is not None), np.zeros(len(own)))
        each = zip(account_names(own), own, total.tolist(), strict=True)
        found |= {name: cost for name, one, cost in each if one}
    return found


def as_released(party: str, label_party: str, viewers: Sequence[str], spent: Costs) -> list[dict[str, Any]]:
    """Earlier costs as lines of a ledger, for the figures of a run: seen by everybody who may have."""
    whose = f"labels of {party}" if party == label_party else f"columns of {party}"
    return [
        {
            "party": party,
            "mechanism": "gaussian",
            "sensitivity": 1.0,
            "noise": 1.0,
            "rows": len(costs),
            "protects": f"{whose}, {part}",
            "viewers": list(viewers),
            "releases": 1,
            "costs": costs,
        }
        for part, costs in spent.items()
        if costs.any()
    ]
