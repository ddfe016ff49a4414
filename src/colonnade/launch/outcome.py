"""What a training gives back in Python: its summary, its curve, and every party's models, which can predict."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from colonnade.data.federated import Columns
from colonnade.errors import DataError
from colonnade.files import json_of, json_text, read_whole, write_atomically
from colonnade.prediction.joint_model import JointModel, load_model
from colonnade.reports.outcome_view import as_html, in_one_line
from colonnade.reports.rundir import json_lines
from colonnade.reports.summary import Summary

SUMMARY, METRICS = "summary.json", "metrics.jsonl"


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
        """Write every party's model as a folder of its own, and beside them the summary and the curve.

        `Outcome.load` has all of it again, `colonnade.load_model` the models.
        """
        place = self.model.save(folder)
        write_atomically(place / SUMMARY, json_text(self.summary))
        write_atomically(place / METRICS, b"".join(json.dumps(line).encode() + b"\n" for line in self.metrics))
        return place

    @classmethod
    def load(cls, folder: str | Path, modules: Mapping[str, Mapping[str, nn.Module]] | None = None) -> Outcome:
        """What `save` wrote, or a run's directory. `modules`: those of your own, as `load_model` takes them.

        >>> import colonnade, tempfile
        >>> outcome = colonnade.train(colonnade.dataset("iris", parties=2), training=colonnade.Training(epochs=1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = Outcome.load(outcome.save(folder))
        >>> again.summary == outcome.summary, again.finished
        (True, True)
        """
        folder = Path(folder)
        model = load_model(folder, modules)
        if not isinstance(model, JointModel):
            raise DataError(
                f"{folder} holds the model of {model.description.party} alone, and an outcome is of all parties: "
                "colonnade.load_model loads it."
            )
        try:
            summary = json_of(read_whole(folder / SUMMARY))
        except (OSError, ValueError):
            raise DataError(
                f"{folder} holds models and no {SUMMARY} that can be read: colonnade.load_model loads the models."
            ) from None
        metrics = [dict(line) for _, line in json_lines(folder / METRICS)] if (folder / METRICS).exists() else []
        is_run = (folder / "federation.toml").exists()
        return cls(summary, metrics, model, folder if is_run else None, summary.get("status") == "finished")
