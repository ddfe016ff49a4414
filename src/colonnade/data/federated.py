"""Prepared data: what each party holds, in one common row order.

Everything here is already numeric, finite and split into train and test; row i is the same individual for
every party. A representation shows shapes only, so that logging one of these objects never shows a value.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False, repr=False)
class PartyColumns:
    """One party's columns: a row is `(d,)` of a table or a `(channels, height, width)` piece of an image."""

    train: torch.Tensor  # float32 [n_train, *shape], contiguous
    test: torch.Tensor  # float32 [n_test, *shape], contiguous
    names: tuple[str, ...]  # one a column; for an image piece one name that says which pixels it holds

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return tuple(self.train.shape[1:])

    def __repr__(self) -> str:
        return f"PartyColumns(train={list(self.train.shape)}, test={list(self.test.shape)})"


@dataclass(frozen=True, eq=False, repr=False)
class Labels:
    """The label party's secret: a class index (int64) or a number to predict (float32) for each row."""

    train: torch.Tensor
    test: torch.Tensor
    task: str  # "binary" | "multiclass" | "regression"
    classes: tuple[str | int | float, ...]  # the original name of each class index; () for regression
    mean: float = 0.0  # of a standardised regression label: the original one is mean + deviation × label
    deviation: float = 1.0

    def __repr__(self) -> str:
        shapes = f"train={list(self.train.shape)}, test={list(self.test.shape)}"
        return f"Labels({shapes}, task={self.task!r}, {len(self.classes)} classes)"


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

    def __repr__(self) -> str:
        parts = [f"{party}={columns!r}" for party, columns in self.columns.items()]
        return f"FederatedData({self.name!r}, {self.labels!r}, {', '.join(parts)})"
