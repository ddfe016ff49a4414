"""What a training gives back in Python: its summary, its curve, and every party's models, which can predict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from colonnade.data.federated import Columns
from colonnade.errors import DataError
from colonnade.federation.building import MOST_DENSE_VALUES
from colonnade.models.network import network_for
from colonnade.privacy.noise import LayerNoise, PerturbationSettings
from colonnade.reports.summary import Summary

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass
class Outcome:
    """What a run gave: its summary, its curve, and every party's models."""

    summary: Summary
    metrics: list[dict[str, Any]]
    models: dict[str, dict[str, nn.Module]]
    order: tuple[str, ...]  # whose embeddings the top model takes, in order
    label_party: str
    directory: Path | None
    finished: bool
    clip: float = 0.0  # of what feature parties sent: a part of the function that was trained, unlike the noise

    def outputs(self, columns: Mapping[str, Columns]) -> torch.Tensor:
        """The joint model's raw outputs (logits or values) for prepared rows of every party, without noise."""
        embeddings = [self._embed(name, columns[name]) for name in self.order]
        return network_for(self.models[self.label_party]["top"]).embed(torch.cat(embeddings, 1))

    def _embed(self, name: str, rows: Columns) -> torch.Tensor:
        if not isinstance(rows, torch.Tensor):
            rows = _dense(name, rows)
        alone = self.models[self.label_party].get(f"bottom of {name}")
        network = network_for(self.models[name]["bottom"] if alone is None else alone)
        sent = alone is None and name != self.label_party
        clipped = LayerNoise(PerturbationSettings(clip=self.clip), torch.Generator()) if sent and self.clip else None
        return network.embed(rows, clipped)


def _dense(name: str, rows: csr_array) -> torch.Tensor:
    if rows.shape[0] * rows.shape[1] > MOST_DENSE_VALUES:
        raise DataError(f"The sparse rows of {name} are too many to be made dense at once: predict for fewer rows.")
    return torch.from_numpy(rows.toarray())
