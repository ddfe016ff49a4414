"""A feature party that reads labels out of mean losses: one number that it gets back tells the labels of many rows.

A reply holds the batch's mean loss at each point of an upload. Where two points differ in some rows only, the
difference of their losses is those rows' alone, however many stand beside them. `Packed` makes it a number whose digits
are labels, for a label party that only sums; `Probing` moves one row and compares with rows whose labels it knows,
whatever the top model. Both send what an honest party could send, but for `Packed` without a bound, and for `repeats`.

What was moved, and how far, stands in the uploads; labels are read from the party's own trace afterwards.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colonnade.attacks.curious_party import CuriousParty, CuriousSeat
from colonnade.attacks.label_inference import Exchange, InferredLabels, exchanges
from colonnade.attacks.view import PartyView
from colonnade.errors import SettingsError
from colonnade.messages import (
    EmbeddingUpload,
    LossAndBatch,
    LossReply,
    Message,
    PairUpload,
    PerturbedUpload,
    SlopeReply,
    SlopesReply,
)
from colonnade.party import Effect, Send
from colonnade.state import Memory, array, value

REPLIES_READ = (LossReply, LossAndBatch, SlopeReply, SlopesReply)
_SURE = 40.0
"""A logit so far above the others that the loss is a difference of two logits: the rest of the softmax is e⁻⁴⁰."""
_UNBOUNDED = 2.0**40
"""The smallest magnitude where nothing bounds them: other parties' embeddings are lost in the rounding."""
_EXACT_BITS = 52  # of a sum in double precision
_ROUNDINGS = 32.0
"""How many times the rounding error of one loss the smallest magnitude is: every row of a sum adds one."""


@dataclass(frozen=True)
class Packed:
    """Row j of a group is moved by M_j along (0, −1, …, −(K−1)): its loss grows by M_j times its label.

    M_j are powers of a base of at least K, so the sum over the group is a number whose digits are labels.
    """

    classes: int
    largest: float = math.inf  # what an embedding may differ from another by: infinite means 2^40 and more

    def magnitudes(self) -> NDArray[np.float64]:
        """Of the rows of one group, the smallest first."""
        if math.isinf(self.largest):
            bits = math.ceil(math.log2(self.classes))
            return _UNBOUNDED * np.exp2(bits * np.arange(_EXACT_BITS // bits))
        greatest = self.largest / (self.classes - 1)
        least = _ROUNDINGS * float(np.spacing(np.float32(_SURE + self.largest)))
        count = max(1, 1 + math.floor(math.log(max(1.0, greatest / least), self.classes)))
        return greatest * np.array([float(self.classes) ** -place for place in range(count - 1, -1, -1)])

    def base(self, width: int) -> NDArray[np.float32]:
        """An embedding of which the label party is sure that it means class 0; with one output, class 1."""
        sure = np.zeros(width, np.float32)
        sure[0] = _SURE
        return sure

    def step(self, width: int) -> NDArray[np.float32]:
        """Along which a row is moved."""
        return np.ones(1, np.float32) if width == 1 else -np.arange(width, dtype=np.float32)


@dataclass(frozen=True)
class Probing:
    """One row is moved from nothing to a probe, the same for every row; rows of known labels tell what it means.

    `repeats`: the row is named in every place of the batch, so that the losses are its own.
    """

    known: tuple[int, ...]  # rows whose labels it knows
    size: float = 1000.0  # of the largest entry of the probe
    repeats: bool = False
    known_every: int = 4  # exchanges: the top model changes, so known rows are looked at again and again


class ActiveParty(CuriousParty):
    """Keeps the schedule of an honest party, and moves rows that it has not read yet."""

    MEMORY: ClassVar[tuple[Memory, ...]] = (array("_read", in_place=True), value("_uploads"))

    def __init__(self, seat: CuriousSeat, way: Packed | Probing) -> None:
        if seat.upload is EmbeddingUpload:
            raise SettingsError(
                "An active party reads losses, and here gradients come back: they tell labels to a curious party "
                "already. Choose an algorithm that answers with mean losses."
            )
        if isinstance(way, Probing) and way.repeats and not seat.chooses_rows:
            raise SettingsError("A row can be named again only where a party chooses its rows; here it is told them.")
        super().__init__(seat)
        self._way = way
        self._read: NDArray[np.bool_] = np.zeros(seat.rows, np.bool_)
        self._uploads = 0
        self._probe = self._draw(1)[0]
        self._probe *= np.float32(way.size if isinstance(way, Probing) else 1.0) / np.abs(self._probe).max()

    def _next_rows(self) -> NDArray[np.uint32]:
        if not (isinstance(self._way, Probing) and self._way.repeats):
            return super()._next_rows()
        unread = self._unread(np.arange(self._seat.rows, dtype=np.uint32), 1)
        return np.repeat(unread, self._seat.batch_size)

    def _unread(self, rows: NDArray[np.uint32], count: int) -> NDArray[np.uint32]:
        """Rows to be moved: unread ones first; those of known labels from time to time."""
        if isinstance(self._way, Probing):
            known = rows[np.isin(rows, self._way.known)]
            if known.size and self._uploads % self._way.known_every == 0:
                place = self._uploads // self._way.known_every
                return known[place % known.size : place % known.size + 1]
            rows = rows[~np.isin(rows, self._way.known)]
        return rows[np.argsort(self._read[rows], kind="stable")][:count]

    def _upload(self, exchange: int, rows: NDArray[np.uint32]) -> list[Effect]:
        if rows.size == 0:
            return []
        points = self._seat.pairs if self._seat.upload is PairUpload else self._seat.points
        here = np.zeros((rows.size, self._seat.width), np.float32)
        if isinstance(self._way, Packed):
            here[:] = self._way.base(self._seat.width)
        moved = np.repeat(here[None], points, 0)
        for point in moved:
            self._move(point, rows)
        self._uploads += 1
        message: Message
        if self._seat.upload is PairUpload:
            plus = moved.reshape(points * rows.size, -1)
            message = PairUpload(exchange, rows, plus, np.tile(here, (points, 1)))
        else:
            message = PerturbedUpload(exchange, rows, here, moved)
        return [Send(self._seat.label_party, message)]

    def _move(self, point: NDArray[np.float32], rows: NDArray[np.uint32]) -> None:
        way = self._way
        if isinstance(way, Packed):
            magnitudes = way.magnitudes().astype(np.float32)
            chosen = self._unread(rows, magnitudes.size)
            places = np.searchsorted(rows, chosen, sorter=np.argsort(rows))
            places = np.argsort(rows)[places]
            point[places] += magnitudes[: chosen.size, None] * way.step(self._seat.width)
        else:
            chosen = rows[:1] if way.repeats else self._unread(rows, 1)
            point[np.isin(rows, chosen)] += self._probe
        self._read[chosen] = True


# --- what its trace tells ---------------------------------------------------------------------------------------


def read_packed(view: PartyView, way: Packed, radius: float = 0.0) -> InferredLabels:
    """The labels of all rows that were moved: the digits of the differences.

    `radius`: λ, where a slope comes back instead of losses.
    """
    found: dict[int, int] = {}
    for one in exchanges(view.crossings()):
        for rows, moves, grown in _differences(one, radius):
            magnitudes = np.abs(moves[:, 0] if moves.shape[1] == 1 else moves[:, 1])
            rest = grown + magnitudes.min() / 2  # rounding errors must not turn a digit
            for place in np.argsort(-magnitudes):
                digit = int(np.clip(math.floor(rest / magnitudes[place]), 0, way.classes - 1))
                rest -= digit * magnitudes[place]
                # With one output a row of class 1 is the one whose loss does not grow. The first reading counts: later
                # the others' embeddings may have grown beyond what drowns them.
                found.setdefault(int(rows[place]), 1 - digit if moves.shape[1] == 1 else digit)
    return _inferred(found)


def read_probes(view: PartyView, known: Mapping[int, int], radius: float = 0.0) -> InferredLabels:
    """The labels of all rows that were moved: each that of the known rows, probed about then, that answered most alike.

    The top model changes as it learns, so what each class answers is followed through time.
    """
    times: dict[int, list[int]] = {}
    answers: dict[int, list[float]] = {}
    asked: list[tuple[int, int, float]] = []
    for time, one in enumerate(exchanges(view.crossings())):
        for rows, _, grown in _differences(one, radius):
            row, own = int(rows[0]), grown / rows.size
            if row in known:
                times.setdefault(known[row], []).append(time)
                answers.setdefault(known[row], []).append(own)
            else:
                asked.append((time, row, own))
    if not times:
        return _inferred({})
    classes = sorted(times)
    at = [time for time, _, _ in asked]
    expected = np.stack([np.interp(at, times[label], answers[label]) for label in classes], 1)
    nearest = np.abs(expected - np.array([own for _, _, own in asked])[:, None]).argmin(1)
    return _inferred({row: classes[place] for (_, row, _), place in zip(asked, nearest, strict=True)})


def _differences(exchange: Exchange, radius: float) -> list[tuple[NDArray[np.uint32], NDArray[np.float64], float]]:
    """Of each point: the rows that were moved, by how much, and by how much the sum of their losses grew."""
    upload: Any = exchange.upload
    match exchange.reply:
        case LossReply(losses=losses) | LossAndBatch(losses=losses):
            grown = (losses[1:] - losses[0]) * upload.rows.size
            points = upload.perturbed.astype(np.float64) - upload.embedding
        case SlopeReply() | SlopesReply() as reply:
            slopes = np.array([reply.slope]) if isinstance(reply, SlopeReply) else reply.slopes
            grown = slopes * 2 * radius * upload.rows.size
            points = (upload.plus.astype(np.float64) - upload.minus).reshape(len(slopes), upload.rows.size, -1)
        case _:
            return []
    found = []
    for moves, sum_grown in zip(points, grown, strict=True):
        moved = np.abs(moves).max(1) > 0
        if moved.any():
            found.append((upload.rows[moved], moves[moved], float(sum_grown)))
    return found


def _inferred(found: Mapping[int, int]) -> InferredLabels:
    rows = np.array(sorted(found), np.uint32)
    return InferredLabels(rows, np.array([found[int(row)] for row in rows], np.int64))
