"""One party's end of an explanation from its model and its prepared rows: which rows, which columns, what it sends."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from colonnade.algorithms.parts.randomness import seed_for
from colonnade.data.federated import PartyColumns
from colonnade.errors import DataError
from colonnade.explanation.ends import ColumnGroup, ColumnOwner, Scorer
from colonnade.explanation.settings import ExplainSettings
from colonnade.federation.building import MOST_DENSE_VALUES
from colonnade.models.clipped import with_clip
from colonnade.models.network import network_for
from colonnade.privacy.noise import LayerNoise


def chosen_rows(count: int, asked: ExplainSettings) -> NDArray[np.int64]:
    """Which of so many rows are looked at: the same at all parties."""
    if count < 2:
        raise DataError(f"There are {count} {asked.part} rows, and an explanation needs two: choose other rows (--on).")
    order = np.random.default_rng(seed_for(asked.seed, "rows")).permutation(count)
    return np.sort(order[: asked.rows])


def column_owner(
    name: str,
    rows: Tensor,
    groups: tuple[ColumnGroup, ...],
    module: nn.Module,
    noise: LayerNoise | None,
    expects_absence: bool,
) -> ColumnOwner:
    """A party with columns. `noise`: the clip and the noise of what leaves it; None: nothing does, or as it is."""
    clip = noise.settings.clip if noise is not None else 0.0
    walked = with_clip(deepcopy(module).eval(), clip).eval()
    return ColumnOwner(name, rows, groups, walked, _embedder(module, noise), expects_absence)


def scorer_of(order: tuple[str, ...], top: nn.Module, task: str, labels: Tensor) -> Scorer:
    """The label party's end."""
    return Scorer(order, network_for(top), deepcopy(top).eval(), task, labels)


def _embedder(module: nn.Module, noise: LayerNoise | None) -> Callable[[Tensor], Tensor]:
    network = network_for(module)
    return network.score if noise is None else lambda rows: network.score(rows, noise)


def dense_rows(held: PartyColumns, part: str, places: NDArray[np.int64], name: str) -> Tensor:
    """Those rows of a party, prepared."""
    own: Any = getattr(held, part)
    if isinstance(own, Tensor):
        return own[torch.from_numpy(places)].float()
    if len(places) * own.shape[1] > MOST_DENSE_VALUES:
        raise DataError(
            f"The sparse rows of {name} are too many to be made dense at once: explain fewer rows (--rows)."
        )
    return torch.from_numpy(own[places].toarray()).float()


def groups_of(held: PartyColumns) -> tuple[ColumnGroup, ...]:
    """The columns of a table, each with what it was prepared to; of others, each prepared column; an image is one."""
    width, names = int(np.prod(held.shape)), [str(name) for name in held.names]
    if held.preparation is None:
        if len(names) != width:
            return (ColumnGroup(" ".join(names), tuple(range(width))),)
        return tuple(ColumnGroup(name, (place,)) for place, name in enumerate(names[: width - held.expects_absence]))
    found, place = [], 0
    for column in held.preparation.columns:
        count = len(column.outputs)
        if count:
            found.append(ColumnGroup(column.name, tuple(range(place, place + count))))
        place += count
    return tuple(found)
