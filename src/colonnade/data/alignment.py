"""One order of rows for all parties, and one line between train, validation and test.

Both follow from the ids and a seed alone. So parties that hold the same ids come to the same order and the
same split without telling one another anything else; a label never decides on which side a row lies.
"""

import hashlib
import json
from collections.abc import Mapping

import numpy as np

from colonnade.data.sources import Array
from colonnade.errors import DataError


def common_ids(ids: Mapping[str, Array], rows: str = "same") -> Array:
    """The sorted ids that all parties hold; unless `rows` is "intersection", no party may hold others."""
    parties = list(ids)
    common = np.unique(ids[parties[0]])
    everything = common
    for party in parties[1:]:
        common = np.intersect1d(common, ids[party])
        everything = np.union1d(everything, ids[party])
    if not len(common):
        counts = ", ".join(f"{party!r} holds {len(ids[party])}" for party in parties)
        raise DataError(
            f"No id is held by all parties ({counts}): {_who_shares_none(ids)}. Check that the setting `id` names the "
            "same kind of id for each party."
        )
    if rows == "same" and len(common) < len(everything):
        lacking = ", ".join(f"{party!r} lacks {len(everything) - len(ids[party])}" for party in parties)
        raise DataError(
            f"The parties do not hold the same rows: of the {len(everything)} ids that any party holds, "
            f"{lacking}, and {len(common)} are held by all. Mend the files, or set data.rows = "
            "'intersection' to use only the rows that all hold."
        )
    return common


def _who_shares_none(ids: Mapping[str, Array]) -> str:
    """Whose fault an empty intersection is: one party's, if all others hold some rows in common."""
    alone = []
    for party in ids:
        others = [ids[other] for other in ids if other != party]
        shared = others[0]
        for more in others[1:]:
            shared = np.intersect1d(shared, more)
        if len(shared):
            alone.append(party)
    if len(ids) > 2 and len(alone) == 1:
        return f"party {alone[0]!r} has no row in common with those that the others share"
    return "no row is common to " + " and ".join(map(repr, alone if alone else ids))


def positions(ids: Array, wanted: Array) -> Array:
    """Where each wanted id lies in `ids`; every wanted id must be there.

    >>> positions(np.array(["b", "c", "a"]), np.array(["a", "b"])).tolist()
    [2, 0]
    """
    order = np.argsort(ids)
    found: Array = order[np.searchsorted(ids, wanted, sorter=order)]
    return found


def split_rows(
    rows: int, test_fraction: float, *, seed: int = 0, max_rows: int = 0, groups: Array | None = None
) -> tuple[Array, Array]:
    """The row numbers to train on and to test on, in the seed's random order.

    Rows of one group (the recordings of one person, say) stay on one side, and `test_fraction` is then one of
    groups. A fraction above 0 gives at least one row to test on, and one is always left to train on.
    """
    group = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    place = np.random.default_rng(seed).permutation(int(group.max()) + 1 if rows else 0)[group]
    order = np.argsort(place, kind="stable")
    if max_rows:
        order = order[:max_rows]
    # Places of the groups that max_rows left in; they are 0, 1, … without a gap.
    groups_left = int(place[order].max()) + 1 if len(order) else 0
    groups_to_test = max(1, round(test_fraction * groups_left)) if test_fraction > 0 else 0
    if groups_left < (2 if groups_to_test else 1):
        raise DataError(
            f"There are too few rows: {len(order)} cannot be divided with data.test_fraction = "
            f"{test_fraction} so that some are left to train on. Give more rows, or raise data.max_rows."
        )
    groups_to_test = min(groups_to_test, groups_left - 1)
    is_test = place[order] >= groups_left - groups_to_test
    return order[~is_test], order[is_test]


def set_apart(train: Array, fraction: float, groups: Array | None = None) -> tuple[Array, Array]:
    """Of rows in a random order, those to train on and those to validate with: the last ones.

    `train` is what `split_rows` gave; rows of one group lie together in it, and stay together.

    >>> [part.tolist() for part in set_apart(np.array([4, 0, 3, 1]), 0.25)]
    [[4, 0, 3], [1]]
    """
    if not fraction:
        return train, train[:0]
    first = len(train) - max(1, round(fraction * len(train)))
    if groups is not None and first > 0:
        own = groups[train]
        borders = 1 + np.flatnonzero(own[1:] != own[:-1])  # places at which a group begins
        first = int(borders[np.abs(borders - first).argmin()]) if len(borders) else 0
    if first < 1:
        raise DataError(
            f"There are too few rows: of {len(train)} to train on, a share of data.validation = {fraction} cannot be "
            "kept apart so that some are left. Give more rows, or lower data.validation."
        )
    return train[:first], train[first:]


def row_digest(train_ids: Array, test_ids: Array, validation_ids: Array | None = None) -> str:
    """A sha256 that two parties share exactly when their rows and their split agree, in order."""
    parts = [train_ids, test_ids]
    if validation_ids is not None and len(validation_ids):
        parts.append(validation_ids)
    text = json.dumps([[str(i) for i in part.tolist()] for part in parts])
    return hashlib.sha256(text.encode()).hexdigest()
