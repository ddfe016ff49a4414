"""Exactly-once effect over at-least-once delivery: what one link between two parties has sent and taken.

What is sent gets a number and is kept until the other side says that it has written it down; after every reconnect
everything kept is sent again. What arrives is taken once, in order: a number seen before is dropped, a gap is a
breach of protocol. All of it is part of a party's checkpoint, so the numbers go on after a crash. Both sides begin a
connection by saying how far they are: whoever has lost a part of its past since is found out there.
"""

from collections import deque
from typing import Any

from colonnade.errors import ProtocolError
from colonnade.wire.packets import FRAME, RESUME, header


class ForgottenError(ProtocolError):
    """One side of a link remembers less of it than the other has been told: coming again will not help."""


class Delivery:
    """One peer's link: what it still has to get, and what has come from it."""

    def __init__(self) -> None:
        self.sent = 0  # the number of the last frame given to `send`
        self.kept: deque[tuple[int, bytearray]] = deque()  # not acknowledged yet, in order
        self.kept_bytes = 0
        self.taken = 0  # the number of the last frame taken from the peer
        self.told = 0  # what the peer was last told of `taken`
        self.last_word = b""  # a packet that follows the last frame, on every connection
        self.parted = False  # whether any connection was given the last word, also in a life before this one
        self._said_last_word = False
        self._next = 0  # position in `kept` of the first frame that this connection has not been given

    def send(self, frame: bytearray) -> None:
        """Keep a frame until the peer has it."""
        self.sent += 1
        self.kept.append((self.sent, frame))
        self.kept_bytes += len(frame)

    def keeps_more_than(self, frames: int, size_bytes: int) -> bool:
        return len(self.kept) > frames or self.kept_bytes > size_bytes

    def has_outgoing(self) -> bool:
        """Whether this connection has not been given everything."""
        return self._next < len(self.kept) or bool(self.last_word and not self._said_last_word)

    def outgoing(self) -> list[bytes | bytearray]:
        """Headers and frames that this connection has not been given yet, in order."""
        if not self.has_outgoing():
            return []
        parts: list[bytes | bytearray] = []
        for position in range(self._next, len(self.kept)):
            number, frame = self.kept[position]
            parts.append(header(FRAME, number, self.taken, len(frame)))
            parts.append(frame)
        self._next = len(self.kept)
        self.told = self.taken
        if self.last_word and not self._said_last_word:
            parts.append(self.last_word)
            self._said_last_word = self.parted = True
        return parts

    def resume(self) -> bytes:
        """The first packet on a new connection."""
        self._said_last_word = False
        self._next = len(self.kept)  # nothing goes out before the peer has said what it holds
        self.told = self.taken
        return header(RESUME, self.sent, self.taken)

    def resumed(self, held: int) -> None:
        """The peer has told what it holds: go on after it."""
        self.acknowledged(held)
        self._next = 0

    def acknowledged(self, number: int) -> None:
        """The peer has written down everything up to this number."""
        if number > self.sent:
            raise ProtocolError(f"The frame {number} was acknowledged; only {self.sent} were sent.")
        while self.kept and self.kept[0][0] <= number:
            self.kept_bytes -= len(self.kept.popleft()[1])
            if self._next:
                self._next -= 1

    # --- checkpoints ---

    def state(self, frames: list[bytes | bytearray]) -> dict[str, Any]:
        """What a checkpoint keeps; the frames themselves are added to `frames`."""
        frames.extend(frame for _, frame in self.kept)
        return {"sent": self.sent, "kept": len(self.kept), "taken": self.taken, "parted": self.parted}

    def restore(self, state: dict[str, Any], frames: list[bytearray]) -> None:
        """Become the link of a checkpoint, taking its frames from the front of `frames`."""
        self.sent, self.taken, self.parted = state["sent"], state["taken"], state["parted"]
        first = self.sent - state["kept"] + 1
        own = [frames.pop(0) for _ in range(state["kept"])]
        self.kept = deque((first + place, frame) for place, frame in enumerate(own))
        self.kept_bytes = sum(len(frame) for frame in own)
        self.told = 0
        self._next = len(self.kept)
