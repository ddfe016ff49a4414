"""Every party's model in one place, where one person holds them all: what the joint model says of rows.

Between organisations each party has its own model alone, and nobody has this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from colonnade.algorithms.row import Family
from colonnade.data.absence import absent_rows
from colonnade.data.federated import Columns
from colonnade.data.sparse import is_sparse
from colonnade.errors import DataError, unknown_name
from colonnade.federation.building import MOST_DENSE_VALUES
from colonnade.federation.plan import embedding_order
from colonnade.models.network import network_for
from colonnade.prediction.contributions import (
    check_columns,
    clipping,
    embedding_of,
    family_of,
    products_of,
    summed,
)
from colonnade.prediction.meaning import probabilities_of, values_of
from colonnade.prediction.saved_model import LabelUnit, SavedModel, read_model

if TYPE_CHECKING:
    from scipy.sparse import csr_array


_EVERYBODY = (
    "every party with columns must give its own. Only a model that was trained with data.rows = 'any' does without."
)


@dataclass(frozen=True)
class JointModel:
    """The models of all parties of a federation, by name.

    >>> import colonnade
    >>> data = colonnade.dataset("iris", parties=2)
    >>> model = colonnade.train(data, training=colonnade.Training(epochs=1)).model
    >>> model.label_party, model.order
    ('label', ('party1', 'party2'))
    >>> model.predict_proba({party: own.test for party, own in data.columns.items()}).shape
    (38, 3)
    """

    parties: Mapping[str, SavedModel]
    label_party: str

    @property
    def order(self) -> tuple[str, ...]:
        """Whose embeddings the top model takes, in order."""
        return embedding_order(self.parties[self.label_party].description.facts)

    @property
    def expects_absence(self) -> bool:
        """Whether it was trained with rows that some parties lack (data.rows = "any"), and predicts for such."""
        return self.parties[self.label_party].description.expects_absence

    @property
    def unit(self) -> LabelUnit:
        """What its outputs mean."""
        unit = self.parties[self.label_party].description.label
        assert unit is not None
        return unit

    def outputs(self, columns: Mapping[str, Columns | NDArray[Any]]) -> torch.Tensor:
        """The raw outputs (logits or standardised values) for prepared rows of every party, without noise.

        Where parties may lack rows (`expects_absence`), one that lacks them all may be left out.
        """
        self._check_parties(columns)
        own = self.parties[self.label_party]
        tables = {name: _tensor(name, columns[name]) for name in self.order if name in columns}
        for name, table in tables.items():
            check_columns(name, table, own.description)
            if not bool(torch.isfinite(table).all()):
                raise DataError(f"The rows of {name} have values that are missing or infinite: fill them in first.")
        counts = {name: len(table) for name, table in tables.items()}
        if len(set(counts.values())) > 1:
            held = ", ".join(f"{count} of {name}" for name, count in counts.items())
            raise DataError(f"Every party must give the same rows, in the same order; here are {held}.")
        count, shapes = next(iter(counts.values())), own.description.facts.shapes
        whole = {name: tables[name] if name in tables else absent_rows(count, shapes[name]) for name in self.order}
        if family_of(own.description) is Family.LINEAR:
            return torch.from_numpy(self._sum(whole))
        embeddings = [self._embed(name, table) for name, table in whole.items()]
        return network_for(own.modules["top"]).score(torch.cat(embeddings, 1))

    def predict_proba(self, columns: Mapping[str, Columns | NDArray[Any]]) -> NDArray[np.float64]:
        """The probability of each class, [rows, classes], in the order of `unit.classes`."""
        return probabilities_of(self.parties[self.label_party].description.task, self.outputs(columns))

    def predict(self, columns: Mapping[str, Columns | NDArray[Any]]) -> NDArray[Any]:
        """The most probable class of each row (of two, by the threshold), or the value in the label's own unit."""
        return values_of(self.parties[self.label_party].description.task, self.unit, self.outputs(columns))

    def save(self, folder: str | Path) -> Path:
        """One folder per party in this folder: give each party its own, and no other."""
        for name, saved in self.parties.items():
            saved.save(Path(folder) / name)
        return Path(folder)

    def _check_parties(self, columns: Mapping[str, Any]) -> None:
        if not isinstance(columns, Mapping):
            raise DataError(
                f"The rows are a {type(columns).__name__}: give those of every party by its name, "
                f"as {{{self.order[0]!r}: …}}."
            )
        for name in columns:
            if name not in self.order:
                raise unknown_name("party with columns", name, self.order)
        missing = [name for name in self.order if name not in columns]
        if missing and not (self.expects_absence and columns):
            raise DataError(
                f"Rows of {' and '.join(missing)} are missing: "
                + ("one party at least must know them." if self.expects_absence else _EVERYBODY)
            )

    def _embed(self, name: str, table: torch.Tensor) -> torch.Tensor:
        own = self.parties[self.label_party]
        alone = own.modules.get(f"bottom of {name}")
        sent = alone is None and name != self.label_party
        bottom = self.parties[name].modules["bottom"] if alone is None else alone
        return embedding_of(bottom, table, clipping(own.description) if sent else None)

    def _sum(self, tables: Mapping[str, torch.Tensor]) -> NDArray[np.float64]:
        own = self.parties[self.label_party].description
        shape = (len(next(iter(tables.values()))), own.facts.outputs)
        parts = {name: products_of(self.parties[name], table) for name, table in tables.items()}
        first = parts.pop(self.label_party, np.zeros(shape))
        return summed([first, *parts.values()], own)


def load_model(
    folder: str | Path, modules: Mapping[str, Mapping[str, nn.Module]] | None = None
) -> JointModel | SavedModel:
    """What a training saved: of one party if `folder` is that of one, of all if it holds one folder per party.

    `modules`: the modules of your own that it was trained with, by party and name, such as `{"shop": {"bottom": …}}`.
    Their weights are loaded into them.

    >>> import colonnade, tempfile
    >>> outcome = colonnade.train(colonnade.dataset("iris", parties=2), training=colonnade.Training(epochs=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     whole, of_one_party = load_model(outcome.save(folder)), load_model(f"{folder}/party1")
    >>> type(whole).__name__, type(of_one_party).__name__
    ('JointModel', 'SavedModel')
    """
    folder = Path(folder)
    given = modules or {}
    if (folder / "model" / "model.json").exists() or _folders(folder / "model"):
        folder = folder / "model"  # a run directory was named
    if (folder / "model.json").exists():
        return read_model(folder, given.get(folder.name))
    found = _folders(folder)
    torn = sorted(path.parent for path in folder.glob("*/weights.safetensors") if path.parent not in found)
    if torn:
        raise DataError(
            f"{torn[0]} has weights and no model.json, which is written last: it is not whole. Take it from a copy, or "
            "from its run again."
        )
    if not found:
        raise DataError(f"{folder} holds no model: neither a model.json nor folders of parties with one.")
    parties = {path.name: read_model(path, given.get(path.name)) for path in found}
    first = next(iter(parties.values()))
    missing = _missing(parties, first.description.label_party)
    if missing and len(parties) == 1:  # an organisation's own run directory
        return first
    if missing:
        raise DataError(f"{folder} holds the models of some parties; {' and '.join(missing)} are missing.")
    return JointModel(parties, first.description.label_party)


def _missing(parties: Mapping[str, SavedModel], label_party: str) -> list[str]:
    """Who is needed for the joint model, and is not there."""
    if label_party not in parties:
        return [label_party]
    own = parties[label_party]
    bottoms = {*parties, *(name.removeprefix("bottom of ") for name in own.modules)}
    return [name for name in embedding_order(own.description.facts) if name not in bottoms]


def _folders(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("*/model.json"))


def _tensor(name: str, rows: Columns | NDArray[Any]) -> torch.Tensor:
    if isinstance(rows, torch.Tensor):
        return rows.float()
    if isinstance(rows, np.ndarray):
        if rows.dtype.kind not in "fiub":
            raise DataError(f"The rows of {name} are an array of {rows.dtype}, not of numbers: give prepared columns.")
        return torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32))
    if not is_sparse(rows):
        raise DataError(
            f"The rows of {name} are a {type(rows).__name__}: give prepared columns, as a tensor or a NumPy array. A "
            "table of raw columns is prepared by PartyColumns.preparation."
        )
    return _dense(name, rows)


def _dense(name: str, rows: csr_array) -> torch.Tensor:
    if rows.shape[0] * rows.shape[1] > MOST_DENSE_VALUES:
        raise DataError(f"The sparse rows of {name} are too many to be made dense at once: predict for fewer rows.")
    return torch.from_numpy(rows.toarray())
