"""Everything that may leave a serving party, declared as in `colonnade/messages.py`."""

from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from colonnade.array_fields import ArrayField
from colonnade.messages import Message, Rows, Vectors, declared

Refused = Annotated[NDArray[np.uint32], ArrayField("<u4", ("refused",))]
"""Places of rows whose budget is spent."""


@declared
class ServedVersions(Message, frozen=True, eq=False):
    """Which versions of the model the sender can answer with, the newest last, with a space between them."""

    free: ClassVar[bool] = True
    versions: str


@declared
class ServedStandIn(Message, frozen=True, eq=False):
    """What the sender's model of that version has learnt to answer for every row that it lacks (data.rows = "any")."""

    free: ClassVar[bool] = True
    version: str
    values: Annotated[NDArray[np.float64], ArrayField("<f8", ("width",), finite=True)]


@declared
class ServingRequest(Message, frozen=True, eq=False):
    """The label party wants what the receiver's model of that version makes of these rows: their ids, hashed."""

    answered_on_arrival: ClassVar[bool] = True
    number: int
    version: str
    names: Annotated[NDArray[np.uint64], ArrayField("<u8", ("asked", "words"))]


@declared
class ServedEmbedding(Message, frozen=True, eq=False):
    """The embeddings of those rows of a request that the sender holds, by their places in it."""

    number: int
    rows: Rows
    refused: Refused
    embedding: Vectors


@declared
class ServedProduct(Message, frozen=True, eq=False):
    """The same of a linear model: products w_mᵀx_{i,m}, as they are."""

    number: int
    rows: Rows
    products: Annotated[NDArray[np.float64], ArrayField("<f8", ("rows", "width"), finite=True)]
