"""Rows that a party lacks: how they look among its own, and how rows it has are taken as lacking in training.

A row that is absent has 0 in every column, and 1 in one more, the last, that tells so. What a model makes of it is the
party's stand-in: learnt like everything else, and the same for all such rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.data.sparse import canonical
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = on_demand("scipy.sparse")

ABSENT = "row is absent"
"""What the last column is called."""

NOWHERE = -1
"""The position of a row that the table does not have."""

LABELS_OF_ALL_ROWS = (
    'algorithm.labels = "everywhere" needs every party to have the label of every row, and here parties may lack rows: '
    'leave algorithm.labels at "one", or use the rows that all hold.'
)
"""The complaint about two settings that do not go together."""


def absent_rows(count: int, shape: tuple[int, ...]) -> torch.Tensor:
    """So many of them, `shape` being that of a row with its last column.

    >>> absent_rows(1, (3,))
    tensor([[0., 0., 1.]])
    """
    rows = torch.zeros(count, *shape)
    rows[..., -1] = 1.0
    return rows


def with_absent(held: torch.Tensor | sparse.csr_array, present: NDArray[np.bool_]) -> torch.Tensor | sparse.csr_array:
    """Columns of the rows that are present, between those that are not, with the column that tells.

    >>> with_absent(torch.tensor([[5.0], [7.0]]), np.array([True, False, True]))
    tensor([[5., 0.],
            [0., 1.],
            [7., 0.]])
    """
    count, width = len(present), held.shape[1]
    places = np.flatnonzero(present)
    if isinstance(held, torch.Tensor):
        rows = torch.zeros(count, width + 1)
        rows[torch.from_numpy(places), :width] = held
        rows[:, width] = torch.from_numpy(~present)
        return rows
    ones = np.ones(len(places), np.float32)
    spread = sparse.csr_array((ones, (places, np.arange(len(places)))), shape=(count, len(places)))
    tells = sparse.csr_array((~present).astype(np.float32)[:, None])
    return canonical(sparse.hstack([spread @ held, tells], format="csr"))


def share_to_drop(lacking: float, wanted: float) -> float:
    """How many of the rows that a party has it must drop, to be absent in so large a share of all.

    >>> share_to_drop(0.0, 0.1), share_to_drop(0.5, 0.75), share_to_drop(0.3, 0.1)
    (0.1, 0.5, 0.0)
    """
    return max(0.0, (wanted - lacking) / (1 - lacking)) if lacking < 1 else 0.0


def drop_once(
    rows: torch.Tensor | sparse.csr_array, share: float, generator: torch.Generator
) -> torch.Tensor | sparse.csr_array:
    """A copy in which about this share of the rows that are there is absent: for a training whose rows do not vary."""
    told = rows[:, -1].numpy() if isinstance(rows, torch.Tensor) else rows[:, [-1]].toarray()[:, 0]
    present = (told == 0) & (torch.rand(rows.shape[0], generator=generator).numpy() >= share)
    return with_absent(rows[present][:, :-1], present)


def drop(rows: torch.Tensor, share: float, generator: torch.Generator) -> torch.Tensor:
    """The same rows, about this share of which are taken as absent; `rows` is changed in place."""
    gone = torch.rand(len(rows), generator=generator) < share
    rows[gone] = absent_rows(1, tuple(rows.shape[1:]))
    return rows
