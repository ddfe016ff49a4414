"""Prepared data: what each party holds, in one common row order.

Everything here is already numeric, finite and split into train and test; row i is the same individual for
every party. A representation shows shapes only, so that logging one of these objects never shows a value.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.data.sparse import is_canonical
from colonnade.errors import DataError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from colonnade.data.prepared import Preparation

Columns: TypeAlias = "torch.Tensor | csr_array"
"""Rows of float32: a contiguous tensor, or a sparse table in the form that `sparse` promises."""
PARTS = ("train", "test", "validation")
"""Into what a party's rows are divided."""


class RowCounts(NamedTuple):
    """How many rows one party holds, how many of them all parties hold, and how many are used for anything."""

    held: int
    matched: int
    used: int


@dataclass(frozen=True, eq=False, repr=False)
class PartyColumns:
    """One party's columns: a row is `(d,)` of a table or a `(channels, height, width)` piece of an image."""

    train: Columns  # float32 [n_train, *shape]
    test: Columns  # float32 [n_test, *shape], sparse if `train` is
    names: tuple[str, ...]  # one a column; for an image piece one name that says which pixels it holds
    validation: "Columns | None" = None  # as `test`: what evaluations score during a training; None: nothing
    preparation: "Preparation | None" = None  # of a party's own table: what was learnt from its train rows
    drop_share: float | None = None  # where rows may be absent, as the last column tells: of how many training rows
    # the party drops at random, so that a model expects it; None: every row is here

    def __post_init__(self) -> None:
        held = {what: getattr(self, what) for what in PARTS if getattr(self, what) is not None}
        if all(isinstance(part, torch.Tensor) for part in held.values()):
            return
        for what, part in held.items():
            if not is_canonical(part):
                raise DataError(
                    f"The {what} part of sparse columns must be a csr_array of float32 with int32 indices, sorted, "
                    "without duplicates or stored zeros, as its other part: give both to "
                    "colonnade.data.sparse.canonical first."
                )

    @property
    def expects_absence(self) -> bool:
        """Whether some rows may be absent, as the last column tells (absence.py)."""
        return self.drop_share is not None

    @property
    def sparse(self) -> bool:
        """Whether only the non-zeros are held."""
        return not isinstance(self.train, torch.Tensor)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return tuple(self.train.shape[1:])

    @property
    def scored(self) -> Columns:
        """The rows to validate with and then those to test on, together."""
        if self.validation is None:
            return self.test
        if isinstance(self.validation, torch.Tensor) and isinstance(self.test, torch.Tensor):
            return torch.cat([self.validation, self.test])
        return _below(self.validation, self.test)

    def dense(self) -> "PartyColumns":
        """The same columns as tensors."""
        validation = None if self.validation is None else _tensor(self.validation)
        return replace(self, train=_tensor(self.train), test=_tensor(self.test), validation=validation)

    def __repr__(self) -> str:
        shapes = _shapes(self)
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
    validation: torch.Tensor | None = None  # of the rows that evaluations score during a training

    def __repr__(self) -> str:
        shapes = _shapes(self)
        return f"Labels({shapes}, task={self.task!r}, {len(self.classes)} classes)"


Part = TypeVar("Part", PartyColumns, Labels)


@dataclass(frozen=True, eq=False)
class OwnData:
    """What one organisation has of a federation's rows: its columns and its labels, if it has any."""

    columns: PartyColumns | None
    labels: Labels | None
    row_digest: str  # as in FederatedData
    rows: int
    test_rows: int
    validation_rows: int = 0
    row_counts: RowCounts | None = None  # of its own table
    expects_absence: bool = False  # as in FederatedData


def data_digest(held: "PartyColumns | Labels") -> str:
    """Whether values are those of another time, without keeping them."""
    total = hashlib.sha256()
    for what in (*PARTS, "weights"):  # which labels alone may have
        part: Columns | None = getattr(held, what, None)
        if part is None:
            continue
        if isinstance(part, torch.Tensor):
            total.update(part.contiguous().numpy().data)
        else:
            total.update(repr(part.shape).encode())
            for array in (part.indptr, part.indices, part.data):
                total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


@dataclass(frozen=True, eq=False, repr=False)
class FederatedData:
    """All parties' columns and the labels, as one experiment on one machine sees them.

    >>> import colonnade
    >>> data = colonnade.dataset("iris", parties=2)
    >>> data.rows, data.test_rows, data.feature_parties, data.columns["party1"].train.shape
    (112, 38, ('party1', 'party2'), torch.Size([112, 2]))
    """

    name: str
    label_party: str
    labels: Labels
    columns: dict[str, PartyColumns]  # feature parties in order, then the label party if it holds columns
    row_digest: str  # sha256 over the ordered row ids; parties compare it to know that their rows agree
    row_counts: Mapping[str, RowCounts] = field(default_factory=dict)  # of parties with tables of their own
    notes: tuple[str, ...] = ()  # what a person should know about these data before the training begins
    # The ids of a party's rows, by part, read again where they are needed; None: rows have none, or are others now.
    ids_of: Callable[[str], dict[str, list[str]]] | None = field(default=None, repr=False, compare=False)

    def ids(self, party: str) -> dict[str, list[str]]:
        """Of a party's rows to train, to validate and to test with; of arrays and data sets, their places."""
        if self.ids_of is not None:
            return self.ids_of(party)
        counts = {"training rows": self.rows, "validation rows": self.validation_rows, "test rows": self.test_rows}
        return {part: [f"{self.row_digest} {part} {row}" for row in range(count)] for part, count in counts.items()}

    @property
    def feature_parties(self) -> tuple[str, ...]:
        """The parties other than the label party, in order."""
        return tuple(party for party in self.columns if party != self.label_party)

    @property
    def expects_absence(self) -> bool:
        """Whether parties may lack rows: data.rows = "any"."""
        return any(held.expects_absence for held in self.columns.values())

    @property
    def rows(self) -> int:
        """How many rows to train on."""
        return len(self.labels.train)

    @property
    def test_rows(self) -> int:
        """How many rows to test on; may be 0."""
        return len(self.labels.test)

    @property
    def validation_rows(self) -> int:
        """How many rows evaluations score while a training lasts; may be 0."""
        return 0 if self.labels.validation is None else len(self.labels.validation)

    def held_out(self, fraction: float) -> "FederatedData":
        """The training rows alone, so large a part of them in place of the test rows: to choose settings by.

        Which ones follows from the order of the rows, so that every choice is made on the same.

        >>> from colonnade import dataset
        >>> dataset("iris", parties=2).held_out(0.25).labels
        Labels(train=[84], test=[28], task='multiclass', 3 classes)
        """
        kept, out = self._parted(fraction, 0)
        columns = {name: replace(own, train=own.train[kept], test=own.train[out]) for name, own in self.columns.items()}
        weights = None if self.labels.weights is None else self.labels.weights[kept]
        labels = replace(self.labels, train=self.labels.train[kept], test=self.labels.train[out], weights=weights)
        digest = hashlib.sha256(f"{self.row_digest}, {fraction} held out".encode()).hexdigest()
        return FederatedData(f"{self.name}, validation rows", self.label_party, labels, columns, digest)

    def with_validation(self, fraction: float, seed: int = 0) -> "FederatedData":
        """The same with so large a part of the training rows as validation rows; which ones follows from the seed.

        Data that a loader has read have such rows already, if `data.validation` asks for them.

        >>> from colonnade import dataset
        >>> dataset("iris", parties=2).with_validation(0.25).labels
        Labels(train=[84], test=[38], validation=[28], task='multiclass', 3 classes)
        """
        if self.validation_rows:
            raise DataError(
                f"There are {self.validation_rows} validation rows already; they cannot be set apart twice."
            )
        kept, out = self._parted(fraction, seed)
        columns = {
            name: replace(own, train=own.train[kept], validation=own.train[out]) for name, own in self.columns.items()
        }
        held = self.labels
        weights = None if held.weights is None else held.weights[kept]
        labels = replace(held, train=held.train[kept], validation=held.train[out], weights=weights)
        digest = hashlib.sha256(f"{self.row_digest}, {fraction} set apart by {seed}".encode()).hexdigest()
        return replace(self, labels=labels, columns=columns, row_digest=digest, ids_of=None)

    def _parted(self, fraction: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Training rows that stay, and such a share of them that does not."""
        if not 0 < fraction < 1:
            raise DataError(f"A share of {fraction} of the training rows cannot be held out: give one between 0 and 1.")
        count = round(fraction * self.rows)
        if not 0 < count < self.rows:
            raise DataError(f"{self.rows} training rows are too few to hold out a share of {fraction} of them.")
        order = np.random.default_rng(seed).permutation(self.rows)
        return np.sort(order[count:]), np.sort(order[:count])

    def __repr__(self) -> str:
        parts = [f"{party}={columns!r}" for party, columns in self.columns.items()]
        return f"FederatedData({self.name!r}, {self.labels!r}, {', '.join(parts)})"


def first_to_validate(held: Part, count: int) -> Part:
    """The same with the first `count` of its test rows as the ones to validate with."""
    return replace(held, test=held.test[count:], validation=held.test[:count]) if count else held


def _shapes(held: "PartyColumns | Labels") -> str:
    parts = {what: getattr(held, what) for what in PARTS if getattr(held, what) is not None}
    return ", ".join(f"{what}={list(part.shape)}" for what, part in parts.items())


def _below(first: Columns, second: Columns) -> "csr_array":
    from scipy.sparse import vstack

    stacked: csr_array = vstack([first, second], format="csr")
    return stacked


def _tensor(part: Columns) -> torch.Tensor:
    return part if isinstance(part, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(part.toarray()))
