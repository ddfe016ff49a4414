"""What aligning parties do whatever the method: they introduce themselves, and end with the same rows in one order.

everybody                                     everybody
AlignmentIntroduction(share, key)  →          the common key follows from all shares
feature party                                 label party
… the method: the label party comes to know which of its own rows all others hold …
                                   ←          SharedIds(names that the receiver knows its own ids by)
order, parts and digest follow from the rows' points and the common key
AlignmentDigest(digest)            →          compares it with its own
                                   ←          Stop

With `any_rows` the label party comes to know which of its rows each feature party holds, and `PlacedIds` goes in the
place of `SharedIds`: one name for each of its rows, in an order of its own, a random one where the receiver lacks the
row.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from colonnade.alignment.lookup import Lookup
from colonnade.alignment.messages import AlignmentDigest, AlignmentIntroduction, PlacedIds, SharedIds
from colonnade.alignment.order import common_key, digest_of, digest_of_places, in_order, parts_of, parts_of_places
from colonnade.alignment.pieces import PIECE, Gathered, starts
from colonnade.alignment.scalars import derived
from colonnade.alignment.seat import AlignmentSeat
from colonnade.alignment.settings import MOST_IDS
from colonnade.alignment.tables import Blocks, keystream
from colonnade.data.absence import NOWHERE
from colonnade.errors import ProtocolError
from colonnade.messages import Message, Stop
from colonnade.party import (
    Checkpoint,
    Effect,
    Event,
    Extended,
    Finish,
    Observe,
    PeerLost,
    PeerReturned,
    Received,
    Send,
    Started,
    TimerFired,
)
from colonnade.state import Memory, Remembering, State, array_or_none, part, value

GO_ON = "go on"
"""The timer of a party that has work left and need not wait for anybody: a piece of it per turn."""
KEY_WORDS = 4


class AligningParty(Remembering):
    """What both roles of every method have."""

    MEMORY: ClassVar[tuple[Memory, ...]] = (
        value("_shares", "_public_keys", "_operations", "_digest"),
        array_or_none("_rows", dtype=np.int64),
        array_or_none("_parts", dtype=np.uint8),
    )

    def __init__(self, seat: AlignmentSeat) -> None:
        self.seat = seat
        own = X25519PrivateKey.from_private_bytes(derived(seat.secret, "pairs"))
        self._shares: dict[str, str] = {seat.name: derived(seat.secret, "share").hex()}
        self._public_keys: dict[str, str] = {seat.name: own.public_key().public_bytes_raw().hex()}
        self._pair_key = own
        self._operations = 0  # multiplications
        self._rows: NDArray[np.int64] | None = None
        self._parts: NDArray[np.uint8] | None = None
        self._digest = ""

    # --- what is asked of every party ---

    def handle(self, event: Event) -> Sequence[Effect]:
        match event:
            case Started():
                return [*self._introduce(), *self._begin()]
            case TimerFired():
                return self._go_on()
            case Received(_, sender, AlignmentIntroduction() as message):
                return self._meet(sender, message)
            case Received(_, sender, message):
                return self._hear(sender, message)
            case PeerLost() | PeerReturned() | Extended():
                return []  # what was sent to it is kept; an alignment has no epochs

    def model(self) -> dict[str, torch.nn.Module]:
        return {}

    def counts(self) -> dict[str, Any]:
        return {"exchanges": self._operations, "steps": self._operations, "share": self.share_done()}

    # --- its result ---

    @property
    def digest(self) -> str:
        """Of the alignment; "" until it is known."""
        return self._digest

    def aligned(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """The places of the shared rows in the points it was given, in the common order, and each one's part."""
        assert self._rows is not None and self._parts is not None, "the alignment is not done"
        return self._rows, self._parts

    def told_sizes(self) -> dict[str, int]:
        """How many ids others have said they have, as far as this party has heard."""
        raise NotImplementedError

    # --- what a method and a role bring ---

    def share_done(self) -> float:
        """How much of its work is done."""
        raise NotImplementedError

    def _begin(self) -> Sequence[Effect]:
        return []

    def _go_on(self) -> Sequence[Effect]:
        return []

    def _hear(self, sender: str, message: Message) -> Sequence[Effect]:
        raise ProtocolError(f"{sender} sent {type(message).__name__}, which is no part of an alignment.")

    def _acquainted(self) -> Sequence[Effect]:
        """Everybody has introduced themselves."""
        return []

    # --- introductions ---

    def _introduce(self) -> list[Effect]:
        own = self.seat.name
        told = AlignmentIntroduction(_words(self._shares[own]), _words(self._public_keys[own]))
        return [Send(name, told) for name in self.seat.others]

    def _meet(self, sender: str, message: AlignmentIntroduction) -> Sequence[Effect]:
        if sender in self._shares or len(message.share) != KEY_WORDS:
            raise ProtocolError(f"{sender} introduced itself twice, or with a key of another size.")
        self._shares[sender] = message.share.tobytes().hex()
        self._public_keys[sender] = message.public_key.tobytes().hex()
        return self._acquainted() if self.is_acquainted else []

    @property
    def is_acquainted(self) -> bool:
        return len(self._shares) == len(self.seat.parties)

    def common_key(self) -> bytes:
        return common_key({name: bytes.fromhex(share) for name, share in self._shares.items()})

    # --- the end ---

    def _settle(self, places: NDArray[np.int64]) -> None:
        """The rows that all hold are known: everything else follows."""
        key = self.common_key()
        points = self.seat.points
        self._rows = in_order(points, places, key)
        self._parts = parts_of(points, self._rows, key, self.seat.fractions)
        self._digest = digest_of(points, self._rows, key, self._parts).hex()

    def _settle_any(self, places: NDArray[np.int64]) -> None:
        """Where it has each row of the common order is known; NOWHERE: it lacks the row."""
        key = self.common_key()
        self._rows = places
        self._parts = parts_of_places(len(places), key, self.seat.fractions)
        self._digest = digest_of_places(key, self._parts).hex()


class AligningLabelParty(AligningParty):
    """Finds out, tells the others, and compares digests."""

    MEMORY: ClassVar[tuple[Memory, ...]] = (value("_agreed", restored=set), value("held_by"))

    def __init__(self, seat: AlignmentSeat) -> None:
        super().__init__(seat)
        self._agreed: set[str] = set()
        self.held_by: dict[str, int] = {}  # with any_rows: how many of its rows each feature party holds

    def _tell(self, names: dict[str, Blocks]) -> list[Effect]:
        """Every feature party learns its rows, which are settled, in an order that says nothing."""
        effects: list[Effect] = []
        for party, own in names.items():
            ordered = own[np.lexsort((own[:, 1], own[:, 0]))]
            effects += [
                Send(party, SharedIds(first, len(ordered), ordered[first : first + PIECE]))
                for first in starts(len(ordered))
            ]
        return [*effects, self._observe(), Checkpoint()]

    def _tell_places(self, held: dict[str, NDArray[np.bool_]], names: dict[str, Blocks]) -> list[Effect]:
        """Every feature party learns which of the label party's rows it holds, and where they are in the order.

        `held`, `names`: of each of its own points.
        """
        # By the common key a receiver could tell where an id that it guesses would lie, and that it is not there.
        order = in_order(self.seat.points, np.arange(len(self.seat.points)), derived(self.seat.secret, "places"))
        self._settle_any(order)
        effects: list[Effect] = []
        for party, own in names.items():
            # The name of an id that the receiver lacks would tell it the id, if it can guess it.
            random = keystream(derived(self.seat.secret, "lacking", party), len(order))
            told = np.where(held[party][order, None], own[order], random)
            self.held_by[party] = int(held[party].sum())
            effects += [
                Send(party, PlacedIds(first, len(told), told[first : first + PIECE])) for first in starts(len(told))
            ]
        return [*effects, self._observe(), Checkpoint()]

    def _hear(self, sender: str, message: Message) -> Sequence[Effect]:
        if isinstance(message, AlignmentDigest):
            return self._compare(sender, message)
        return super()._hear(sender, message)

    def _compare(self, sender: str, message: AlignmentDigest) -> Sequence[Effect]:
        if sender in self._agreed or not self._digest:
            raise ProtocolError(f"{sender} sent its digest twice, or before there was anything to compare.")
        if message.digest.tobytes().hex() != self._digest:
            raise ProtocolError(f"{sender} came to other rows, or to the same in another order.")
        self._agreed.add(sender)
        if len(self._agreed) < len(self.seat.others):
            return []
        stops: list[Effect] = [Send(name, Stop("All parties have the same rows.")) for name in self.seat.others]
        return [*stops, Checkpoint(), Finish()]

    def _observe(self) -> Observe:
        return Observe(self._operations, self._operations, self.share_done())


class AligningFeatureParty(AligningParty):
    """Is told which rows all hold, and says what they come to."""

    MEMORY: ClassVar[tuple[Memory, ...]] = (part("_shared"),)
    DERIVED = ("_lookup",)

    def __init__(self, seat: AlignmentSeat) -> None:
        super().__init__(seat)
        self._shared = Gathered(2)
        self._lookup: Lookup | None = None  # of its names, once it has them all

    def restore(self, state: State) -> None:
        super().restore(state)
        self._lookup = None

    def _names(self) -> Blocks | None:
        """By what it knows its own ids in `SharedIds`; None before it can be told."""
        raise NotImplementedError

    def _hear(self, sender: str, message: Message) -> Sequence[Effect]:
        match message:
            case SharedIds():
                return self._learn(sender, message)
            case PlacedIds():
                return self._learn_places(sender, message)
            case Stop():
                return self._end(sender)
        return super()._hear(sender, message)

    def _learn(self, sender: str, message: SharedIds) -> Sequence[Effect]:
        names = self._names_for(sender, any_rows=False)
        if message.total > len(names):
            raise ProtocolError(f"{sender} says that {self.seat.name} shares more rows than it has.")
        self._shared.check(sender, message.first, message.total, message.names, 2)
        places = names.places(message.names)
        if (places == NOWHERE).any() or len(np.unique(places)) < len(places):
            raise ProtocolError(f"{sender} sent rows to {self.seat.name} that are not among its own, or one twice.")
        self._shared.put(message.first, message.total, message.names)
        if not self._shared.complete:
            return []
        places = names.places(self._shared.rows)
        del names
        self._lookup = None  # its memory is needed
        self._settle(places)
        return self._settled()

    def _learn_places(self, sender: str, message: PlacedIds) -> Sequence[Effect]:
        names = self._names_for(sender, any_rows=True)
        if message.total > self.told_sizes().get(sender, MOST_IDS):
            raise ProtocolError(
                f"{sender} says that it has more rows than it said before, or than are aligned at once."
            )
        self._shared.check(sender, message.first, message.total, message.names, 2)
        if self._shared.lacks_one_piece(message.total):
            places = names.places(self._shared.with_piece(message.first, message.total, message.names))
            here = places[places != NOWHERE]
            if len(np.unique(here)) < len(here):
                raise ProtocolError(f"{sender} told {self.seat.name} twice that one of its rows is shared.")
            self._settle_any(places)
        self._shared.put(message.first, message.total, message.names)
        return self._settled() if self._shared.complete else []

    def _names_for(self, sender: str, any_rows: bool) -> Lookup:
        if self._lookup is None:
            names = self._names()
            self._lookup = None if names is None else Lookup(names)
        known = self._lookup is not None and self.is_acquainted and self.seat.any_rows == any_rows
        if sender != self.seat.label_party or self._lookup is None or not known:
            raise ProtocolError(f"{sender} said which rows are shared, which it cannot know yet.")
        return self._lookup

    def _settled(self) -> Sequence[Effect]:
        self._lookup = None
        told = AlignmentDigest(_words(self._digest))
        return [Send(self.seat.label_party, told), Checkpoint()]

    def _end(self, sender: str) -> Sequence[Effect]:
        if sender != self.seat.label_party or not self._digest:
            raise ProtocolError(f"{sender} ended the alignment before it was done.")
        return [Checkpoint(), Finish()]


def _words(text: str) -> NDArray[np.uint64]:
    """32 bytes in hexadecimal, as a message carries them."""
    return np.frombuffer(bytes.fromhex(text), "<u8")
