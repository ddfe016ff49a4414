"""One serving party in real time: requests and answers over the same authenticated links as a training's, not kept.

An answer that comes late is of no use, so nothing is written down and nothing is sent again: every connection begins
anew, and whoever waits for an answer waits for so long. A carrier turns it as it turns a `Station`.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence

from colonnade.errors import ProtocolError
from colonnade.messages import Message
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.links import Links, Peers
from colonnade.runtimes.peer import Link, Peer
from colonnade.wire.codec import Limits, encode

Handle = Callable[[str, Message], Sequence[Message]]
"""Takes a message of a peer, and gives what it is answered. ProtocolError: no honest peer would have sent it."""
Notice = Callable[[str, bool], Sequence[Message]]
"""Is told that a peer has come (True) or gone; gives what a peer that has come is told."""

LIMITS = Limits(frame_bytes=16 << 20, rows=1 << 16)
"""What a serving party takes in one frame."""


class LiveStation:
    """Answers messages as they come."""

    started = True
    finished = False
    restarts = 0

    def __init__(self, name: str, peers: Peers, handle: Handle, notice: Notice, strangers: bool) -> None:
        self.name = name
        self.peers = frozenset(peers.names)
        self.breaches: deque[tuple[str, str]] = deque()
        self.expelled: dict[str, str] = {}
        self.wake: Callable[[], None] = lambda: None  # the carrier's: there is something to send
        self._handle = handle
        self._notice = notice
        self._links = Links(name, peers, Endurance(), LIMITS, time.monotonic, 0, strangers)

    def ask(self, peer: str, message: Message) -> None:
        """Send something to a peer that is there."""
        self._links.send(peer, encode(message), type(message))
        self.wake()

    @property
    def present(self) -> list[str]:
        """Who is connected."""
        return [name for name, peer in self._links.peers.items() if peer.is_connected]

    # --- what the carrier tells ---

    def connected(self, peer: str) -> None:
        """A connection stands; of one before it nothing is left."""
        self._forget(peer)
        self._links.connect(peer)
        for message in self._notice(peer, True):
            self.ask(peer, message)

    def disconnected(self, peer: str) -> None:
        was_there = self._links.peers[peer].is_connected
        self._forget(peer)
        if was_there:
            self._notice(peer, False)

    def _forget(self, peer: str) -> None:
        before = self._links.peers[peer]
        if before in self._links.busy:
            self._links.busy.remove(before)
        self._links.peers[peer] = Peer()

    def leave(self, peer: str) -> None:
        self.disconnected(peer)

    def received(self, peer: str, data: bytes | bytearray | memoryview) -> None:
        self._links.received(peer, data)

    # --- what the carrier asks ---

    def clock(self) -> float:
        return time.monotonic()

    def wants_more(self, peer: str) -> bool:
        return self._links.wants_more(peer)

    def outgoing(self, peer: str) -> list[bytes | bytearray]:
        return self._links.outgoing(peer, frames=True)

    def has_outgoing(self, peer: str) -> bool:
        return self._links.has_outgoing(peer, frames=True)

    @property
    def gathers(self) -> bool:
        return False

    def to_tell(self) -> list[str]:
        return self._links.to_tell(frames=True)

    def idle_until(self) -> float:
        return time.monotonic() if self._links.busy else self._links.acknowledge_at

    def has_work(self) -> bool:
        return bool(self._links.busy)

    def absent(self) -> list[str]:
        return self._links.absent()

    def settled(self) -> bool:
        return False

    def queue_depth(self) -> int:
        return self._links.queue_depth()

    @property
    def links(self) -> dict[str, Link]:
        return self._links.now()

    def turn(self) -> bool:
        """Answer what has come."""
        if time.monotonic() >= self._links.acknowledge_at:
            self._links.acknowledge()
        handled = False
        while self._links.busy:
            item = self._links.next_piece()
            self._links.handled(item.peer)
            handled = True
            try:
                for answer in self._handle(item.peer, item.message):
                    self.ask(item.peer, answer)
            except ProtocolError as error:
                self.breaches.append((item.peer, str(error)))
        return handled
