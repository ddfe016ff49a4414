"""Matching by salted hashes: cheap, and no secret from the label party.

    feature party                                 label party
    HashedIds(AES_key(H(y)))           →          compares them with its own and with one another
                                       ←          SharedIds

The key is one that all parties know, and nobody else. So whoever compares can hash any id that it can think of, and
knows whether a party holds it; and it sees what each two parties share.
"""

from collections.abc import Sequence

import numpy as np

from colonnade.alignment.conversation import AligningFeatureParty, AligningLabelParty
from colonnade.alignment.messages import HashedIds
from colonnade.alignment.order import blocks_of
from colonnade.alignment.pieces import PIECE, Gathered, starts
from colonnade.alignment.scalars import derived
from colonnade.alignment.seat import AlignmentSeat
from colonnade.alignment.tables import Blocks, keyed, keystream
from colonnade.errors import ProtocolError
from colonnade.messages import Message
from colonnade.party import Effect, Send
from colonnade.state import parts, value


class LabelParty(AligningLabelParty):
    """Compares everybody's hashes."""

    MEMORY = (parts("_hashes", "hashes.{}"),)

    def __init__(self, seat: AlignmentSeat) -> None:
        super().__init__(seat)
        self._hashes = {name: Gathered(2) for name in seat.feature_parties}

    def told_sizes(self) -> dict[str, int]:
        return {name: hashes.total for name, hashes in self._hashes.items() if hashes.total >= 0}

    def share_done(self) -> float:
        return sum(hashes.complete for hashes in self._hashes.values()) / len(self._hashes)

    def _hear(self, sender: str, message: Message) -> Sequence[Effect]:
        return self._take(sender, message) if isinstance(message, HashedIds) else super()._hear(sender, message)

    def _take(self, sender: str, message: HashedIds) -> Sequence[Effect]:
        if self.seat.pad_to and message.total != self.seat.pad_to:
            raise ProtocolError(f"{sender} sent {message.total} ids, which is not what was agreed on.")
        hashes = self._hashes[sender]
        hashes.check(sender, message.first, message.total, message.names, 2)
        hashes.put(message.first, message.total, message.names)
        return self._match()

    def _acquainted(self) -> Sequence[Effect]:
        return self._match()

    def _match(self) -> Sequence[Effect]:
        if not self.is_acquainted or self._digest or not all(one.complete for one in self._hashes.values()):
            return []
        own = salted(self)
        if self.seat.any_rows:
            held = {name: np.isin(_numbers(own), _numbers(hashes.rows)) for name, hashes in self._hashes.items()}
            return self._tell_places(held, dict.fromkeys(self._hashes, own))
        shared = np.ones(len(own), np.bool_)
        for hashes in self._hashes.values():
            shared &= np.isin(_numbers(own), _numbers(hashes.rows))
        places = np.flatnonzero(shared)
        self._settle(places)
        return self._tell(dict.fromkeys(self._hashes, own[places]))


class FeatureParty(AligningFeatureParty):
    """Sends all its hashes."""

    MEMORY = (value("_told"),)

    def __init__(self, seat: AlignmentSeat) -> None:
        super().__init__(seat)
        self._told = False

    def told_sizes(self) -> dict[str, int]:
        return {}

    def share_done(self) -> float:
        return float(self._told)

    def _acquainted(self) -> Sequence[Effect]:
        if self._told:
            return []
        self._told = True
        filler = keystream(derived(self.seat.secret, "filler"), self.seat.told() - len(self.seat.points))
        names = np.concatenate([salted(self), filler])
        names = names[np.lexsort((names[:, 1], names[:, 0]))]
        return [
            Send(self.seat.label_party, HashedIds(first, len(names), names[first : first + PIECE]))
            for first in starts(len(names))
        ]

    def _names(self) -> Blocks | None:
        return salted(self) if self._told else None


def salted(party: LabelParty | FeatureParty) -> Blocks:
    """Its ids, hashed with the common key."""
    return keyed(party.common_key(), blocks_of(party.seat.points))


def _numbers(blocks: Blocks) -> np.ndarray:
    """Blocks as one value each, to be compared whole."""
    return np.ascontiguousarray(blocks).view([("low", "<u8"), ("high", "<u8")]).reshape(-1)
