"""Prepared data: what each party holds, in one common row order.

Everything here is already numeric, finite and split into train and test; row i is the same individual for
every party. A representation shows shapes only, so that logging one of these objects never shows a value.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch

from colonnade.data.sparse import is_canonical
from colonnade.errors import DataError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Columns: TypeAlias = "torch.Tensor | csr_array"
"""Rows of float32: a contiguous tensor, or a sparse table in the form that `sparse` promises."""


@dataclass(frozen=True, eq=False, repr=False)
class PartyColumns:
    """One party's columns: a row is `(d,)` of a table or a `(channels, height, width)` piece of an image."""

    train: Columns  # float32 [n_train, *shape]
    test: Columns  # float32 [n_test, *shape], sparse if `train` is
    names: tuple[str, ...]  # one a column; for an image piece one name that says which pixels it holds

    def __post_init__(self) -> None:
        if isinstance(self.train, torch.Tensor) and isinstance(self.test, torch.Tensor):
            return
        for what, part in (("train", self.train), ("test", self.test)):
            if not is_canonical(part):
                raise DataError(
                    f"The {what} part of sparse columns must be a csr_array of float32 with int32 indices, sorted, "
                    "without duplicates or stored zeros, as its other part: give both to "
                    "colonnade.data.sparse.canonical first."
                )

    @property
    def sparse(self) -> bool:
        """Whether only the non-zeros are held."""
        return not isinstance(self.train, torch.Tensor)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return tuple(self.train.shape[1:])

    def dense(self) -> "PartyColumns":
        """The same columns as tensors."""
        return PartyColumns(_tensor(self.train), _tensor(self.test), self.names)

    def __repr__(self) -> str:
        shapes = f"train={list(self.train.shape)}, test={list(self.test.shape)}"
        if isinstance(self.train, torch.Tensor):
            return f"PartyColumns({shapes})"
        share = self.train.nnz / max(1, self.train.shape[0] * self.train.shape[1])
        return f"PartyColumns({shapes}, {share:.3g} of train non-zero)"


@dataclass(frozen=True, eq=False, repr=False)
class Labels:
    """The label party's secret: a class index (int64) or a number to predict (float32) for each row."""

    train: torch.Tensor
    test: torch.Tensor
    task: str  # "binary" | "multiclass" | "regression"
    classes: tuple[str | int | float, ...]  # the original name of each class index; () for regression
    mean: float = 0.0  # of a standardised regression label: the original one is mean + deviation × label
    deviation: float = 1.0
    weights: torch.Tensor | None = None  # float64, one per train row: what it counts for in the loss; None: all alike

    def digest(self) -> str:
        """Of everything that answers are computed from."""
        return data_digest(self.train, self.test, *(() if self.weights is None else (self.weights,)))

    def __repr__(self) -> str:
        shapes = f"train={list(self.train.shape)}, test={list(self.test.shape)}"
        return f"Labels({shapes}, task={self.task!r}, {len(self.classes)} classes)"


@dataclass(frozen=True, eq=False)
class OwnData:
    """What one organisation has of a federation's rows: its columns and its labels, if it has any."""

    columns: PartyColumns | None
    labels: Labels | None
    row_digest: str  # as in FederatedData
    rows: int
    test_rows: int


def data_digest(*parts: Columns) -> str:
    """Whether values are those of another time, without keeping them."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, torch.Tensor):
            total.update(part.numpy().data)
        else:
            total.update(repr(part.shape).encode())
            for array in (part.indptr, part.indices, part.data):
                total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


@dataclass(frozen=True, eq=False, repr=False)
class FederatedData:
    """All parties' columns and the labels, as one experiment on one machine sees them."""

    name: str
    label_party: str
    labels: Labels
    columns: dict[str, PartyColumns]  # feature parties in order, then the label party if it holds columns
    row_digest: str  # sha256 over the ordered row ids; parties compare it to know that their rows agree

    @property
    def feature_parties(self) -> tuple[str, ...]:
        """The parties other than the label party, in order."""
        return tuple(party for party in self.columns if party != self.label_party)

    @property
    def rows(self) -> int:
        """How many rows to train on."""
        return len(self.labels.train)

    @property
    def test_rows(self) -> int:
        """How many rows to test on; may be 0."""
        return len(self.labels.test)

    def held_out(self, fraction: float) -> "FederatedData":
        """The training rows alone, so large a part of them in the place of the test rows: to choose settings by.

        Which ones follows from the order of the rows, so that every choice is made on the same.

        >>> from colonnade import dataset
        >>> dataset("iris", parties=2).held_out(0.25).labels
        Labels(train=[84], test=[28], task='multiclass', 3 classes)
        """
        if not 0 < fraction < 1:
            raise DataError(f"A share of {fraction} of the training rows cannot be held out: give one between 0 and 1.")
        count = round(fraction * self.rows)
        if not 0 < count < self.rows:
            raise DataError(f"{self.rows} training rows are too few to hold out a share of {fraction} of them.")
        order = np.random.default_rng(0).permutation(self.rows)
        kept, out = np.sort(order[count:]), np.sort(order[:count])
        columns = {name: replace(own, train=own.train[kept], test=own.train[out]) for name, own in self.columns.items()}
        weights = None if self.labels.weights is None else self.labels.weights[kept]
        labels = replace(self.labels, train=self.labels.train[kept], test=self.labels.train[out], weights=weights)
        digest = hashlib.sha256(f"{self.row_digest}, {fraction} held out".encode()).hexdigest()
        return FederatedData(f"{self.name}, validation rows", self.label_party, labels, columns, digest)

    def __repr__(self) -> str:
        parts = [f"{party}={columns!r}" for party, columns in self.columns.items()]
        return f"FederatedData({self.name!r}, {self.labels!r}, {', '.join(parts)})"


def _tensor(part: Columns) -> torch.Tensor:
    return part if isinstance(part, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(part.toarray()))
