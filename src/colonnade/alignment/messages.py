"""Everything that may leave an aligning party, declared as in `colonnade/messages.py`; which has `Stop`, its end."""

from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from colonnade.array_fields import ArrayField
from colonnade.messages import Message, declared

Words = Annotated[NDArray[np.uint64], ArrayField("<u8", ("words",))]
"""A key or a digest."""
PointWords = Annotated[NDArray[np.uint64], ArrayField("<u8", ("points", "words"))]
Names = Annotated[NDArray[np.uint64], ArrayField("<u8", ("names", "words"))]


@declared
class AlignmentIntroduction(Message, frozen=True, eq=False):
    """What every party tells every other before an alignment: its share of the common key, and a public key.

    From two feature parties' public keys follows what hides, from the label party, which of the two holds an id.
    """

    free: ClassVar[bool] = True
    share: Words
    public_key: Words


@declared
class BlindedIds(Message, frozen=True, eq=False):
    """The label party's hashed ids from `first` on, of `total`, each times a secret of its own."""

    first: int
    total: int
    points: PointWords


@declared
class EvaluatedIds(Message, frozen=True, eq=False):
    """The points of a BlindedIds, each times the feature party's secret."""

    first: int
    points: PointWords


@declared
class MatchingTable(Message, frozen=True, eq=False):
    """Cells from `first` on of a table that is right for a feature party's ids, so many, and random for others.

    `number`: what the places of the table follow from.
    """

    first: int
    ids: int
    number: int
    cells: Annotated[NDArray[np.uint64], ArrayField("<u8", ("cells", "words"))]


@declared
class SharedIds(Message, frozen=True, eq=False):
    """The ids that all parties hold, from `first` on, of `total`, under names that this receiver knows its own by."""

    first: int
    total: int
    names: Names


@declared
class PlacedIds(Message, frozen=True, eq=False):
    """The label party's rows, from `first` on, of `total`, in the common order, under names that this receiver knows
    its own ids by; a random name for a row that it lacks."""

    first: int
    total: int
    names: Names


@declared
class HashedIds(Message, frozen=True, eq=False):
    """All ids of a feature party, from `first` on, of `total`, hashed with a key that all parties know."""

    first: int
    total: int
    names: Names


@declared
class AlignmentDigest(Message, frozen=True, eq=False):
    """What a feature party's rows, their order and their parts come to: all must come to the same."""

    free: ClassVar[bool] = True
    digest: Words
