"""Everything that may leave a party, and nothing else.

A message is a frozen value whose fields are scalars or arrays declared with their dtype and named dimensions; the
codec checks what arrives against these declarations before it builds anything. Dimensions of the same name agree
within a message. `repr` shows shapes, never values: a message may stand in a log.

Four marks steer the runtimes:
`answered_on_arrival`  the receiver answers even while it computes (a listener beside the worker);
`off_clock`            belongs to evaluation: costs no virtual time, its bytes are counted apart;
`free`                 handled at no modelled cost (control messages);
`masked`               hidden by masks that must never hide anything else: counted on the disk before it leaves.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from colonnade.array_fields import ArrayField

Rows = Annotated[NDArray[np.uint32], ArrayField("<u4", ("rows",))]
"""Positions of rows in the federation's common order."""
Vectors = Annotated[NDArray[np.float32], ArrayField("<f4", ("rows", "width"), finite=True, travels="up")]
"""One finite float32 vector per row."""
Gradients = Annotated[NDArray[np.float32], ArrayField("<f4", ("rows", "width"), finite=True, travels="down")]
Residuals = Annotated[NDArray[np.float64], ArrayField("<f8", ("rows", "width"), finite=True, travels="down")]


@dataclass(frozen=True)
class MessageKind:
    """A message class's declaration, read once: its name on the wire, its scalars and its arrays in order."""

    name: str
    message: "type[Message]"
    scalars: tuple[tuple[str, type], ...]
    arrays: tuple[tuple[str, ArrayField], ...]


KINDS: dict[str, MessageKind] = {}
"""Every message there is, by its name on the wire."""


class Message(msgspec.Struct, frozen=True, eq=False):
    """The root of all messages; a subclass is on the wire under its class name."""

    answered_on_arrival: ClassVar[bool] = False
    off_clock: ClassVar[bool] = False
    free: ClassVar[bool] = False
    masked: ClassVar[bool] = False

    def __repr__(self) -> str:
        shown = [f"{name}={_shown(getattr(self, name))}" for name in self.__struct_fields__]
        return f"{type(self).__name__}({', '.join(shown)})"


M = TypeVar("M", bound=Message)


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"<{value.dtype} {'×'.join(map(str, value.shape))}>"
    return repr(value)


def declared(message: type[M]) -> type[M]:
    """Class decorator: lets a message onto the wire. An undeclared class cannot be encoded."""
    scalars: list[tuple[str, type]] = []
    arrays: list[tuple[str, ArrayField]] = []
    hints = get_type_hints(message, include_extras=True)
    for name in message.__struct_fields__:
        hint: Any = hints[name]
        marks = [mark for mark in get_args(hint)[1:] if isinstance(mark, ArrayField)]
        if marks:
            arrays.append((name, marks[0]))
        elif hint in (int, float, str):
            scalars.append((name, hint))
        else:
            raise TypeError(f"{message.__name__}.{name} is neither int, float, str nor a declared array")
    KINDS[message.__name__] = MessageKind(message.__name__, message, tuple(scalars), tuple(arrays))
    return message


# --- training: one exchange is an upload and its reply ----------------------------------------------------------


@declared
class EmbeddingUpload(Message, frozen=True, eq=False):
    """A feature party's embedding of a batch. `exchange` counts that party's uploads."""

    exchange: int
    rows: Rows
    embedding: Vectors


@declared
class GradientReply(Message, frozen=True, eq=False):
    """∂(mean loss of the batch)/∂embedding, for the upload of the same number."""

    exchange: int
    gradient: Gradients


@declared
class PerturbedUpload(Message, frozen=True, eq=False):
    """A batch's embedding, and others near it: of perturbed parameters, or perturbed itself. How is not said."""

    exchange: int
    rows: Rows
    embedding: Vectors
    perturbed: Annotated[
        NDArray[np.float32],
        ArrayField("<f4", ("points", "rows", "width"), finite=True, travels="up", beside="embedding"),
    ]


@declared
class LossReply(Message, frozen=True, eq=False):
    """The batch's mean loss with the embedding, then with each perturbed one."""

    exchange: int
    losses: Annotated[NDArray[np.float64], ArrayField("<f8", ("values",), finite=True)]


@declared
class RowLossReply(Message, frozen=True, eq=False):
    """Every row's loss with the embedding, then with each perturbed one."""

    exchange: int
    losses: Annotated[NDArray[np.float32], ArrayField("<f4", ("values", "rows"), finite=True)]


@declared
class PairUpload(Message, frozen=True, eq=False):
    """A batch's embeddings on both sides of the party's parameters; along several directions, one after the other."""

    exchange: int
    rows: Rows
    plus: Annotated[NDArray[np.float32], ArrayField("<f4", ("points", "width"), True, "up")]  # directions × rows
    minus: Annotated[NDArray[np.float32], ArrayField("<f4", ("points", "width"), True, "up", beside="plus")]


@declared
class SlopeReply(Message, frozen=True, eq=False):
    """One number: how the loss changes from minus to plus, clipped row by row and noised."""

    exchange: int
    slope: float


@declared
class SlopesReply(Message, frozen=True, eq=False):
    """The same along several directions, one number each."""

    exchange: int
    slopes: Annotated[NDArray[np.float64], ArrayField("<f8", ("values",), finite=True)]


@declared
class WarmUpUpload(Message, frozen=True, eq=False):
    """Embeddings of rows outside any batch, sent once at the start to fill the table."""

    rows: Rows
    embedding: Vectors


# --- budgets: the owner of protected data refuses what it cannot afford ------------------------------------------


@declared
class RowsRefused(Message, frozen=True, eq=False):
    """The label party gives no answer to the upload of that number: these rows' labels have no budget left."""

    exchange: int
    rows: Rows


@declared
class BudgetSpent(Message, frozen=True, eq=False):
    """A feature party uploads no more: too few of its rows have budget left for a batch."""

    free: ClassVar[bool] = True
    protects: str


# --- bounded delay: the label party asks for what has grown too old ---------------------------------------------


@declared
class RefreshRequest(Message, frozen=True, eq=False):
    """The label party wants fresh embeddings of these rows before it goes on."""

    answered_on_arrival: ClassVar[bool] = True
    request: int
    rows: Rows


@declared
class RefreshedEmbedding(Message, frozen=True, eq=False):
    """The answer to a RefreshRequest."""

    request: int
    rows: Rows
    embedding: Vectors


# --- synchronous schedule: the label party names the batch ------------------------------------------------------


@declared
class BatchRequest(Message, frozen=True, eq=False):
    """The label party asks for the embedding of one shared batch."""

    step: int
    rows: Rows


@declared
class GradientAndBatch(Message, frozen=True, eq=False):
    """The reply of a synchronous step, and the next batch with it: one message instead of two."""

    exchange: int
    gradient: Gradients
    step: int
    next_rows: Annotated[NDArray[np.uint32], ArrayField("<u4", ("next_rows",))]


@declared
class LossAndBatch(Message, frozen=True, eq=False):
    """As LossReply, with the next batch."""

    exchange: int
    losses: Annotated[NDArray[np.float64], ArrayField("<f8", ("values",), finite=True)]
    step: int
    next_rows: Annotated[NDArray[np.uint32], ArrayField("<u4", ("next_rows",))]


# --- linear federations: sums of products, and what follows from them --------------------------------------------


@declared
class Introduction(Message, frozen=True, eq=False):
    """What every party of a linear federation tells every other before the training.

    Two numbers about its columns from which a step size follows (0 where none is wanted): how long rows are, ‖x‖²,
    along the column that has the longest, and the largest eigenvalue of XᵀX/n. And the key of which pairwise masks are
    derived (zeros where none are).
    """

    free: ClassVar[bool] = True
    longest_rows: float
    largest_eigenvalue: float
    public_key: Annotated[NDArray[np.uint64], ArrayField("<u8", ("key",))]


@declared
class ProductRequest(Message, frozen=True, eq=False):
    """`root` wants the sum over all parties of their products w_mᵀx_{i,m}. Goes down the root's tree."""

    answered_on_arrival: ClassVar[bool] = True
    root: str
    number: int
    rows: Rows


@declared
class ProductSum(Message, frozen=True, eq=False):
    """The products of a party and of everybody below it, as they are."""

    answered_on_arrival: ClassVar[bool] = True
    root: str
    number: int
    total: Annotated[NDArray[np.float64], ArrayField("<f8", ("rows", "width"), finite=True, travels="up")]


@declared
class MaskedSum(Message, frozen=True, eq=False):
    """The masked products of a party and of everybody below it (tree 1), or their masks (tree 2), in Z_2^64."""

    answered_on_arrival: ClassVar[bool] = True
    masked: ClassVar[bool] = True
    root: str
    number: int
    tree: int
    total: Annotated[NDArray[np.uint64], ArrayField("<u8", ("rows", "width"))]


@declared
class ResidualRequest(Message, frozen=True, eq=False):
    """A party without labels asks the label party for ∂loss/∂θ of these rows. `exchange` counts its requests."""

    answered_on_arrival: ClassVar[bool] = True
    exchange: int
    rows: Rows


@declared
class ResidualReply(Message, frozen=True, eq=False):
    """∂loss/∂θ of every row of the request of that number. Its sign tells a row's label."""

    exchange: int
    residuals: Residuals


@declared
class Abandoned(Message, frozen=True, eq=False):
    """The sum of that number cannot be completed now, because a party cannot be reached."""

    answered_on_arrival: ClassVar[bool] = True
    root: str
    number: int


@declared
class SharedStep(Message, frozen=True, eq=False):
    """A synchronous step: what came of the batch before (residuals, or sums where everybody has labels), and the next.

    The products of `next_rows` are the answer; they go up the label party's tree as the sum `number`.
    """

    step: int
    number: int
    values: Residuals
    next_rows: Annotated[NDArray[np.uint32], ArrayField("<u4", ("next_rows",))]


@declared
class JointStep(Message, frozen=True, eq=False):
    """A step of all parties together: how far along the directions told of last, and every row's residuals after it.

    The answer is the products of the next direction, as the sum `number`; 0: there is none, the training ends.
    """

    number: int
    along: float
    conjugate: float
    residuals: Annotated[NDArray[np.float64], ArrayField("<f8", ("rows", "width"), finite=True)]


@declared
class SharedRequest(Message, frozen=True, eq=False):
    """The label party wants the sum of these rows' products, from which everybody is going to learn.

    It goes to everybody at once; the products go up the label party's tree as the sum `number`. `full_pass` is 1 for a
    piece of a pass over all rows, 0 for mini-batches. `instead_of`: an earlier sum that was abandoned; 0: none.
    """

    answered_on_arrival: ClassVar[bool] = True
    number: int
    full_pass: int
    instead_of: int
    rows: Rows


@declared
class SharedResiduals(Message, frozen=True, eq=False):
    """What came of the sum `number`, for everybody: ∂loss/∂θ of its rows, or θ where everybody has labels.

    `lesson` counts them. Without a row, it is for one who was away: it learns nothing from that sum.
    """

    answered_on_arrival: ClassVar[bool] = True
    lesson: int
    number: int
    values: Residuals


@declared
class LessonStep(Message, frozen=True, eq=False):
    """A party has made its steps on the lesson of that number. Earlier ones that it never tells of it left out.

    `waiting`: how many more it has been told and has not come to.
    """

    answered_on_arrival: ClassVar[bool] = True
    free: ClassVar[bool] = True
    lesson: int
    waiting: int


@declared
class SearchRequest(Message, frozen=True, eq=False):
    """The label party wants every party's point, for the joint search after so many; goes down its tree.

    The answer, as the sum `number`: every row's products, and the point's with those before. `values`: in a synchronous
    schedule, what came of the batch before.
    """

    root: str
    number: int
    after: int
    values: Annotated[NDArray[np.float64], ArrayField("<f8", ("rows", "width"), finite=True)]


@declared
class SearchStep(Message, frozen=True, eq=False):
    """What a search, by its sum's number, found: the points' shares in the best weights, and the residuals there."""

    search: int
    number: int
    shares: Annotated[NDArray[np.float64], ArrayField("<f8", ("points",), finite=True)]
    residuals: Annotated[NDArray[np.float64], ArrayField("<f8", ("rows", "width"), finite=True)]


@declared
class SearchReply(Message, frozen=True, eq=False):
    """A party has taken up the weights that the search of that number found."""

    free: ClassVar[bool] = True
    search: int


@declared
class SearchStop(Message, frozen=True, eq=False):
    """Everybody has, or the search with that sum was given up: parties may ask for sums again."""

    free: ClassVar[bool] = True
    number: int


@declared
class LossReport(Message, frozen=True, eq=False):
    """The mean loss of so many mini-batches of a party that has labels itself: for the label party's record."""

    free: ClassVar[bool] = True
    batches: int
    loss: float


@declared
class LastCall(Message, frozen=True, eq=False):
    """The label party ends the training: no more requests; sums for the last evaluation are still answered."""

    free: ClassVar[bool] = True


@declared
class WeightsSettled(Message, frozen=True, eq=False):
    """The answer to LastCall: this party's weights will not change any more."""

    free: ClassVar[bool] = True


@declared
class EvaluationProductRequest(Message, frozen=True, eq=False):
    """As ProductRequest, for `row_count` test rows from `first_row` on.

    With no rows: every party's penalty and the squared norm of its part of the gradient, as one row of two numbers.
    """

    off_clock: ClassVar[bool] = True
    root: str
    number: int
    first_row: int
    row_count: int


@declared
class EvaluationProductSum(Message, frozen=True, eq=False):
    """As ProductSum, for scoring only."""

    off_clock: ClassVar[bool] = True
    root: str
    number: int
    total: Annotated[NDArray[np.float64], ArrayField("<f8", ("rows", "width"), finite=True)]


@declared
class EvaluationMaskedSum(Message, frozen=True, eq=False):
    """As MaskedSum, for scoring only."""

    off_clock: ClassVar[bool] = True
    masked: ClassVar[bool] = True
    root: str
    number: int
    tree: int
    total: Annotated[NDArray[np.uint64], ArrayField("<u8", ("rows", "width"))]


@declared
class EvaluationAbandoned(Message, frozen=True, eq=False):
    """As Abandoned, of a sum for scoring."""

    off_clock: ClassVar[bool] = True
    root: str
    number: int


# --- evaluation -------------------------------------------------------------------------------------------------


@declared
class EvaluationRequest(Message, frozen=True, eq=False):
    """The label party wants embeddings of `row_count` test rows from `first_row` on.

    `after_replies`: the party answers once it has applied that many replies, so that what is scored holds every
    update that the label party knows of. With no rows it is a plain barrier.
    """

    off_clock: ClassVar[bool] = True
    evaluation: int
    first_row: int
    row_count: int
    after_replies: int


@declared
class EvaluationEmbedding(Message, frozen=True, eq=False):
    """Embeddings of test rows, for scoring only."""

    off_clock: ClassVar[bool] = True
    evaluation: int
    first_row: int
    embedding: Vectors


@declared
class ValidationRequest(Message, frozen=True, eq=False):
    """The label party wants embeddings of all validation rows, once the party has applied so many replies.

    With them the party takes a copy of its model: what is scored is what may be kept.
    """

    off_clock: ClassVar[bool] = True
    evaluation: int
    after_replies: int


@declared
class ValidationEmbedding(Message, frozen=True, eq=False):
    """Embeddings of validation rows from `first_row` on, for scoring only."""

    off_clock: ClassVar[bool] = True
    evaluation: int
    first_row: int
    embedding: Vectors


# --- a model that was scored before ------------------------------------------------------------------------------


@declared
class Keep(Message, frozen=True, eq=False):
    """Of the evaluations up to `judged`, `best` was the best: copies of the model from the others are not needed."""

    off_clock: ClassVar[bool] = True
    best: int
    judged: int


@declared
class GoBack(Message, frozen=True, eq=False):
    """The label party asks for the model of the evaluation `version` (0: the first weights) to be taken up again.

    `number` counts these requests. `replies`: how many the receiver was sent before (in a linear federation: for how
    many sums it was asked); those that it has not applied, it never will. From then on its steps are `step` times as
    long as the settings say; 0: the training is over.
    """

    free: ClassVar[bool] = True
    number: int
    version: int
    replies: int
    step: float


@declared
class WentBack(Message, frozen=True, eq=False):
    """The answer: which version the party has now (2⁶³ − 1: it had none of that number, and keeps its last).

    `uploads`: how many it made before; those that were under way are of no use any more.
    """

    free: ClassVar[bool] = True
    number: int
    version: int
    uploads: int


@declared
class GoOn(Message, frozen=True, eq=False):
    """Everybody who can be reached has gone back: parties of a linear federation may ask for sums again."""

    free: ClassVar[bool] = True
    number: int


# --- the end ----------------------------------------------------------------------------------------------------


@declared
class Stop(Message, frozen=True, eq=False):
    """The label party ends the training, the alignment or the prediction; the reason is for people."""

    free: ClassVar[bool] = True
    reason: str
