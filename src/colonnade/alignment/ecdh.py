"""Elliptic-curve Diffie–Hellman for two parties or more, in which nobody learns who shares what with whom.

H(x) is the point that the id x was hashed to. The label party has the secret a with its inverse b, the feature party j
the secret k_j; f_j(x) is a hash of k_j·H(x).

    label party                                   feature party j
    BlindedIds(a·H(x))                 →
                                       ←          EvaluatedIds(k_j·a·H(x))
    f_j(x) from b·k_j·a·H(x) = k_j·H(x)           f_j(y) from k_j·H(y), for its own ids y
                                       ←          MatchingTable: y ↦ mask(f_j(y)) ⊕ z_j(y)
    x is shared if ⊕_j (table_j(x) ⊕ mask(f_j(x))) = 0
    SharedIds(name(f_j(x)))            →

z_j(y) = ⊕_i AES_{K_ji}(H(y)) over the other feature parties i, with a key K_ji that only i and j know. Of an id that
all hold, the z_j cancel. Of one that some hold, a random value is left, whoever they are: so the label party learns
which of its ids all hold, and of the others nothing at all. With one feature party, z is 0. With `any_rows` it is 0,
too: the label party looks at each table alone, and learns which of its ids that party holds.
"""

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from numpy.typing import NDArray

from colonnade.alignment.conversation import GO_ON, KEY_WORDS, AligningFeatureParty, AligningLabelParty
from colonnade.alignment.messages import BlindedIds, EvaluatedIds, MatchingTable
from colonnade.alignment.order import blocks_of
from colonnade.alignment.pieces import PIECE, Gathered, pieces_in, starts
from colonnade.alignment.points import POINT_BYTES, Points, hashed_to_curve
from colonnade.alignment.scalars import blinding_pair, clamped, derived
from colonnade.alignment.seat import AlignmentSeat
from colonnade.alignment.settings import MOST_IDS
from colonnade.alignment.tables import Blocks, cells_for, filled, keyed, keystream, one_way, read
from colonnade.errors import ProtocolError
from colonnade.messages import Message
from colonnade.party import Effect, Send, SetTimer
from colonnade.state import array, part, parts, value

WINDOW = 4
"""Pieces that the label party is ahead of the slowest answer: enough that nobody waits, little enough to keep."""


class LabelParty(AligningLabelParty):
    """Blinds its ids, takes its secret off the answers, and reads the tables."""

    MEMORY = (value("_sent", "_sizes"), parts("_answers", "answers.{}"), parts("_tables", "tables.{}"))

    def __init__(self, seat: AlignmentSeat) -> None:
        super().__init__(seat)
        self._blind, self._unblind = blinding_pair(seat.secret)
        filler = [derived(seat.secret, "filler", str(i)) for i in range(seat.told() - len(seat.points))]
        self._everything = seat.points
        if filler:
            self._everything = np.concatenate([seat.points, hashed_to_curve(filler, seat.domain + b" filler")])
        # A secret order: the places of what is sent say nothing.
        self._order = _shuffled(self._everything, derived(seat.secret, "order"))
        self._sent = 0  # pieces
        self._sizes: dict[str, int] = {}  # how many ids others say they have
        self._answers = {name: Gathered(2, len(self._order)) for name in seat.feature_parties}
        self._tables = {name: Gathered(2) for name in seat.feature_parties}

    def told_sizes(self) -> dict[str, int]:
        return dict(self._sizes)

    def share_done(self) -> float:
        pieces = pieces_in(len(self._order))
        arrived = sum(answers.arrived for answers in self._answers.values())
        return (self._sent + arrived) / (pieces * (1 + len(self._answers)))

    def _begin(self) -> Sequence[Effect]:
        return [SetTimer(GO_ON, 0.0)]

    def _go_on(self) -> Sequence[Effect]:
        if not self._may_send():
            return []
        first = self._sent * PIECE
        points = self.seat.multiply(self._blind, self._everything[self._order[first : first + PIECE]].tobytes())
        self._sent += 1
        self._operations += len(points) // POINT_BYTES
        told = BlindedIds(first, len(self._order), _as_words(points))
        return [*(Send(name, told) for name in self.seat.others), *self._next()]

    def _may_send(self) -> bool:
        slowest = min(answers.arrived for answers in self._answers.values())
        return self._sent < pieces_in(len(self._order)) and self._sent < slowest + WINDOW

    def _next(self) -> list[Effect]:
        return [SetTimer(GO_ON, 0.0)] if self._may_send() else []

    def _hear(self, sender: str, message: Message) -> Sequence[Effect]:
        match message:
            case EvaluatedIds():
                return self._unblinded(sender, message)
            case MatchingTable():
                return self._take(sender, message)
        return super()._hear(sender, message)

    def _unblinded(self, sender: str, message: EvaluatedIds) -> Sequence[Effect]:
        answers = self._answers[sender]
        answers.check(sender, message.first, len(self._order), message.points, KEY_WORDS)
        if message.first >= self._sent * PIECE:
            raise ProtocolError(f"{sender} answered what it was not asked.")
        points = _multiplied(self.seat, self._unblind, message.points.tobytes(), sender)
        answers.put(message.first, len(self._order), _fingerprints(points))
        self._operations += len(message.points)
        return [self._observe(), *self._next(), *self._match()]

    def _take(self, sender: str, message: MatchingTable) -> Sequence[Effect]:
        table, ids = self._tables[sender], message.ids
        if ids > MOST_IDS or (self.seat.pad_to and ids != self.seat.pad_to):
            raise ProtocolError(f"{sender} sent a table of {ids} ids, which is not what was agreed on.")
        table.check(sender, message.first, cells_for(ids), message.cells, 2, message.number)
        table.put(message.first, cells_for(ids), message.cells, message.number)
        self._sizes[sender] = ids
        return self._match()

    def _acquainted(self) -> Sequence[Effect]:
        return self._match()

    def _match(self) -> list[Effect]:
        """Once all is there: whose values come to 0, and what the others call them."""
        there = all(one.complete for one in (*self._answers.values(), *self._tables.values()))
        if not there or not self.is_acquainted or self._digest:
            return []
        if self.seat.any_rows:
            return self._tell_places(*self._held_by_each())
        own = (self._order < len(self.seat.points)) & ~self.leftovers().any(axis=1)
        self._settle(self._order[own])  # before names are made: both take much memory
        return self._tell({name: one_way("name", answers.rows[own]) for name, answers in self._answers.items()})

    def _held_by_each(self) -> tuple[dict[str, NDArray[np.bool_]], dict[str, Blocks]]:
        """Of each of its own points, in their order: whether a feature party holds it, and what it would call it."""
        count = len(self.seat.points)
        own = self._order < count
        held: dict[str, NDArray[np.bool_]] = {}
        names: dict[str, Blocks] = {}
        for name, answers in self._answers.items():
            held[name], names[name] = np.zeros(count, np.bool_), np.zeros((count, 2), np.uint64)
            held[name][self._order[own]] = ~self.leftovers(name)[own].any(axis=1)
            names[name][self._order[own]] = one_way("name", answers.rows[own])
        return held, names

    def leftovers(self, *of: str) -> Blocks:
        """⊕_j (table_j(x) ⊕ mask(f_j(x))) of everything it sent: 0 of an id that all hold, else random."""
        total: Blocks = np.zeros((len(self._order), 2), np.uint64)
        for name in of or self.seat.feature_parties:
            table = self._tables[name]
            for first in starts(len(total)):  # a piece at a time: what is in between takes five times the memory
                prints = self._answers[name].rows[first : first + PIECE]
                total[first : first + PIECE] ^= read(table.rows, table.number, prints) ^ one_way("mask", prints)
        return total


class FeatureParty(AligningFeatureParty):
    """Multiplies what it is sent and its own ids by its secret, and fills a table."""

    MEMORY = (array("_fingerprints"), value("_evaluated", "_told"), part("_answered"))

    def __init__(self, seat: AlignmentSeat) -> None:
        super().__init__(seat)
        self._scalar = clamped(derived(seat.secret, "evaluation"))
        self._fingerprints: Blocks = np.zeros((len(seat.points), 2), np.uint64)
        self._evaluated = 0  # of its own ids
        self._told = False  # its table is sent
        self._answered = Gathered(0)  # which pieces were; nothing of them is kept

    def told_sizes(self) -> dict[str, int]:
        known = self._answered.total >= 0
        return {self.seat.label_party: self._answered.total} if known else {}

    def share_done(self) -> float:
        theirs = self._answered.arrived / max(1, pieces_in(self._answered.total)) if self._answered.total >= 0 else 0.0
        return (theirs + self._evaluated / max(1, len(self.seat.points))) / 2

    def _hear(self, sender: str, message: Message) -> Sequence[Effect]:
        return self._answer(sender, message) if isinstance(message, BlindedIds) else super()._hear(sender, message)

    def _answer(self, sender: str, message: BlindedIds) -> Sequence[Effect]:
        if sender != self.seat.label_party or (self.seat.pad_to and message.total != self.seat.pad_to):
            raise ProtocolError(f"{sender} sent {message.total} ids, which is not what was agreed on.")
        nothing = message.points[:, :0]
        self._answered.check(sender, message.first, message.total, message.points, KEY_WORDS)
        points = _multiplied(self.seat, self._scalar, message.points.tobytes(), sender)
        self._answered.put(message.first, message.total, nothing)
        self._operations += len(message.points)
        return [Send(sender, EvaluatedIds(message.first, _as_words(points)))]

    def _begin(self) -> Sequence[Effect]:
        return [SetTimer(GO_ON, 0.0)]

    def _go_on(self) -> Sequence[Effect]:
        points = self.seat.points[self._evaluated : self._evaluated + PIECE]
        found = self.seat.multiply(self._scalar, points.tobytes())
        self._fingerprints[self._evaluated : self._evaluated + PIECE] = _fingerprints(found)
        self._evaluated += len(points)
        self._operations += len(points)
        if self._evaluated < len(self.seat.points):
            return [SetTimer(GO_ON, 0.0)]
        return self._acquainted() if self.is_acquainted else []

    def _acquainted(self) -> Sequence[Effect]:
        if self._evaluated < len(self.seat.points) or self._told:
            return []
        self._told = True
        own, secret = self._fingerprints, self.seat.secret
        missing = self.seat.told() - len(own)
        values = one_way("mask", own) ^ self._zero_shares()
        if missing:
            filler = keystream(derived(secret, "filler"), 2 * missing)
            own, values = np.concatenate([own, filler[:missing]]), np.concatenate([values, filler[missing:]])
        number, cells = filled(own, values, derived(secret, "table"))
        return [
            Send(self.seat.label_party, MatchingTable(first, self.seat.told(), number, cells[first : first + PIECE]))
            for first in starts(len(cells))
        ]

    def _zero_shares(self) -> Blocks:
        """z_j of its ids: what cancels against that of all other feature parties, where they hold them too."""
        blocks = blocks_of(self.seat.points)
        shares: Blocks = np.zeros_like(blocks)
        if self.seat.any_rows:  # the label party is to know who holds which of its ids
            return shares
        for peer in self.seat.feature_parties:
            if peer != self.seat.name:
                shares = shares ^ keyed(self._key_with(peer), blocks)
        return shares

    def _key_with(self, peer: str) -> bytes:
        try:
            agreed = self._pair_key.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(self._public_keys[peer])))
        except ValueError:
            raise ProtocolError(f"{peer} introduced itself with something that is no public key.") from None
        both = sorted(self._public_keys[name] for name in (self.seat.name, peer))
        return sha256(b"colonnade alignment pair 1" + agreed + "".join(both).encode()).digest()

    def _names(self) -> Blocks | None:
        return one_way("name", self._fingerprints) if self._told else None


def _multiplied(seat: AlignmentSeat, scalar: bytes, points: bytes, sender: str) -> bytes:
    try:
        return seat.multiply(scalar, points)
    except ValueError:
        raise ProtocolError(f"{sender} sent a point of small order, which no id is hashed to.") from None


def _fingerprints(points: bytes) -> Blocks:
    """f: 16 bytes of a hash of each point."""
    found = b"".join(
        [
            sha256(b"colonnade alignment fingerprint 1" + points[place : place + POINT_BYTES]).digest()[:16]
            for place in range(0, len(points), POINT_BYTES)
        ]
    )
    return np.frombuffer(found, "<u8").reshape(-1, 2)


def _as_words(points: bytes) -> NDArray[np.uint64]:
    return np.frombuffer(points, "<u8").reshape(-1, KEY_WORDS)


def _shuffled(points: Points, key: bytes) -> NDArray[np.int64]:
    random = keyed(key, blocks_of(points))
    return np.lexsort((random[:, 1], random[:, 0]))
