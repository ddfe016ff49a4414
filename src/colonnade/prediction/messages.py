"""Everything that may leave a predicting party, declared as in `colonnade/messages.py`; which has `Stop`, its end."""

from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from colonnade.array_fields import ArrayField
from colonnade.messages import Message, Rows, Vectors, declared


@declared
class PredictionKey(Message, frozen=True, eq=False):
    """What every party of a masked prediction tells every other: the key that masks of the two are derived from."""

    free: ClassVar[bool] = True
    public_key: Annotated[NDArray[np.uint64], ArrayField("<u8", ("words",))]


@declared
class RowsNamed(Message, frozen=True, eq=False):
    """Rows that the label party wants to predict, from `first` on, of `total`: their ids, hashed.

    All parties know how, so whoever can guess an id can test whether it is asked for.
    """

    first: int
    total: int
    names: Annotated[NDArray[np.uint64], ArrayField("<u8", ("rows", "words"))]


@declared
class RowsPlaced(Message, frozen=True, eq=False):
    """The same by their places in an alignment that all parties have: nobody hears of an id that is not its own."""

    first: int
    total: int
    places: Rows


@declared
class RowsHeld(Message, frozen=True, eq=False):
    """Which rows the sender holds of those that were named from `first` on: places among them."""

    first: int
    rows: Rows


@declared
class ScoreRequest(Message, frozen=True, eq=False):
    """The label party wants what the receiver's model makes of these rows, by their places among all that it named."""

    number: int
    rows: Rows


@declared
class PredictionEmbedding(Message, frozen=True, eq=False):
    """The embeddings of those of the rows asked for whose budget is not spent."""

    number: int
    rows: Rows
    embedding: Vectors


@declared
class PredictionProduct(Message, frozen=True, eq=False):
    """The products w_mᵀx_{i,m} of the rows asked for, as they are."""

    number: int
    products: Annotated[NDArray[np.float64], ArrayField("<f8", ("rows", "width"), finite=True)]


@declared
class MaskedProduct(Message, frozen=True, eq=False):
    """The same in Z_2^64, hidden by masks that cancel in the sum over all parties."""

    masked: ClassVar[bool] = True
    number: int
    products: Annotated[NDArray[np.uint64], ArrayField("<u8", ("rows", "width"))]
