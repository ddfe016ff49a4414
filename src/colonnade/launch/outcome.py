"""What a training gives back in Python: its summary, its curve, and every party's models, which can predict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from colonnade.data.federated import Columns
from colonnade.prediction.joint_model import JointModel
from colonnade.reports.outcome_view import as_html, in_one_line
from colonnade.reports.summary import Summary


@dataclass(repr=False)
class Outcome:
    """What a run gave: its summary, its curve, and every party's models. A notebook shows it as a table and a curve.

    >>> import colonnade
    >>> short = colonnade.Training(epochs=1, batch_size=16)
    >>> outcome = colonnade.train(colonnade.dataset("iris", parties=2), training=short)
    >>> outcome.finished, outcome.summary["exchanges"], sorted(outcome.models)
    (True, 14, ['label', 'party1', 'party2'])
    """

    summary: Summary
    metrics: list[dict[str, Any]]
    model: JointModel
    directory: Path | None
    finished: bool

    def __repr__(self) -> str:
        where = "" if self.directory is None else f", in {self.directory}"
        return f"<Outcome of {in_one_line(self.summary)}{where}>"

    def _repr_html_(self) -> str:
        return as_html(self.summary, self.metrics)

    @property
    def models(self) -> dict[str, dict[str, nn.Module]]:
        """Every party's modules, by its name and theirs."""
        return {name: saved.modules for name, saved in self.model.parties.items()}

    @property
    def label_party(self) -> str:
        return self.model.label_party

    @property
    def order(self) -> tuple[str, ...]:
        """Whose embeddings the top model takes, in order."""
        return self.model.order

    def outputs(self, columns: Mapping[str, Columns | NDArray[Any]]) -> torch.Tensor:
        """The joint model's raw outputs (logits or values) for prepared rows of every party, without noise."""
        return self.model.outputs(columns)

    def predict(self, columns: Mapping[str, Columns | NDArray[Any]]) -> NDArray[Any]:
        """The class of each row, or its value in the label's own unit; see `JointModel`."""
        return self.model.predict(columns)

    def predict_proba(self, columns: Mapping[str, Columns | NDArray[Any]]) -> NDArray[np.float64]:
        """The probability of each class, [rows, classes]."""
        return self.model.predict_proba(columns)

    def save(self, folder: str | Path) -> Path:
        """Write every party's model as a folder of its own, for `colonnade.load_model`."""
        return self.model.save(folder)
