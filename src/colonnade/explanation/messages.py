"""Everything that may leave an explaining party, declared as in `colonnade/messages.py`; which has `Stop`, its end.

Rows are not named: all parties know which ones are looked at, in which order.
"""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from colonnade.array_fields import ArrayField
from colonnade.messages import Message, declared

Numbers = Annotated[NDArray[np.float64], ArrayField("<f8", ("rows", "width"), finite=True)]
"""One vector per row: products of linear models are float64, and what is compared in the end are small differences."""


@declared
class ExplainedRows(Message, frozen=True, eq=False):
    """A feature party's embeddings of the rows as they are."""

    embedding: Numbers
    # One, which is what it answers for a row that it lacks; none, where the model has learnt no such.
    stand_in: Annotated[NDArray[np.float64], ArrayField("<f8", ("stand_ins", "width"), finite=True)]
    columns: int  # how many it will shuffle
    differentiable: int  # 1: its model has gradients


@declared
class ExplanationStarted(Message, frozen=True, eq=False):
    """The label party has everybody's embeddings."""

    walks: int  # 1: integrated gradients are computed
    tells: int  # 1: feature parties are told what their columns are worth; 0: labels are protected


@declared
class PathEmbedding(Message, frozen=True, eq=False):
    """The same rows, so many steps on the way from the sender's mean row to each of them."""

    step: int
    embedding: Numbers


@declared
class OutputGradient(Message, frozen=True, eq=False):
    """Of each row's predicted output at that step, by the receiver's embedding of it."""

    step: int
    gradient: Numbers


@declared
class ShuffledColumn(Message, frozen=True, eq=False):
    """The rows again, as often as is asked for, with one column's values dealt out anew. Which column is not said."""

    number: int
    embedding: Numbers


@declared
class ColumnWorth(Message, frozen=True, eq=False):
    """By how much the loss has grown by that, in the mean over rows; a row's loss stays with the label party."""

    number: int
    growth: float
    standard_error: float


@declared
class ExplanationTotals(Message, frozen=True, eq=False):
    """What every party with columns is worth as a whole, in the order in which the top model takes them."""

    loss: float
    loss_without: float
    coalitions: int
    worths: Annotated[NDArray[np.float64], ArrayField("<f8", ("parties", "figures"), finite=True)]
