"""What feature parties send one another: sealed envelopes, passed on by the label party, which cannot read them.

An envelope names the generation of the link that it belongs to: how often its two ends have come, together. One of an
earlier connection is dropped. A party believes another's key only if a certificate of the common authority vouches
for it. What waits is kept per sender and receiver: a receiver is given one envelope of each sender in turn, and what a
sender has waiting is bounded, however often it connects anew.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from colonnade.errors import ProtocolError, plain
from colonnade.runtimes.network import limits
from colonnade.runtimes.network.carrier import Keys
from colonnade.runtimes.network.stream import Stream
from colonnade.wire.certificates import Credentials
from colonnade.wire.handshake import ENVELOPE, Introduced, Presence, say
from colonnade.wire.sealing import Envelope, check_introduction

log = logging.getLogger("colonnade.network")


class Relay:
    """The label party's side: tells feature parties of one another, and passes their envelopes on."""

    def __init__(
        self, parties: Sequence[str], streams: Mapping[str, Stream], introduced: Callable[[str], Introduced]
    ) -> None:
        self._streams = streams  # those that are open, which the host keeps
        self._introduced = introduced
        self._lives: dict[str, int] = dict.fromkeys(parties, 0)  # how often each has come
        self._breaks: dict[frozenset[str], int] = {}  # how often two were parted besides
        self._waiting: dict[str, dict[str, deque[bytes]]] = {name: {} for name in parties}  # by receiver, by sender
        self._waiting_bytes: dict[str, int] = dict.fromkeys(parties, 0)  # by sender
        self._parted: dict[str, set[str]] = {name: set() for name in parties}  # who took too little, from whom
        self._refused: dict[str, set[str]] = {name: set() for name in parties}  # who listens no more, to whom
        self.dropped = 0  # envelopes that a receiver did not take in time

    def comes(self, name: str) -> None:
        """A party has come: what waits belongs to connections before this one."""
        self._lives[name] += 1
        self._forget_to(name)
        for receiver in self._waiting:
            self._forget(name, receiver)
            self._parted[receiver].discard(name)
            self._refused[receiver].discard(name)
        self._parted[name].clear()
        self._refused[name].clear()

    def introduce(self, stream: Stream, others: Iterable[Stream]) -> None:
        """Tell a party and those others that they can reach one another."""
        for other in others:
            generation = self._generation(stream.peer, other.peer)
            other.tell_of(stream.peer, say(Presence(stream.peer, generation, self._introduced(stream.peer))))
            stream.tell_of(other.peer, say(Presence(other.peer, generation, self._introduced(other.peer))))

    def goes(self, stream: Stream) -> None:
        """Tell the others that they cannot reach a party any more, after what it still had for them."""
        self._forget_to(stream.peer)
        for theirs in self._streams.values():
            if theirs is not stream:
                self._put(stream.peer, theirs, say(Presence(stream.peer, 0)))

    def refuse(self, receiver: str, sender: str) -> None:
        """A party listens no more to another, until one of the two comes anew."""
        if sender in self._lives:
            self._refused[receiver].add(sender)
            self._forget(sender, receiver)

    def has_waiting(self, receiver: str) -> bool:
        return bool(self._waiting[receiver])

    def next_for(self, receiver: str) -> Iterator[bytes]:
        """One envelope of each sender. Asked for when a receiver has taken what it was given before."""
        for sender in [*self._waiting[receiver]]:
            queue = self._waiting[receiver].get(sender)
            if queue is None:
                continue  # forgotten since
            data = queue.popleft()
            self._waiting_bytes[sender] -= len(data)
            if not queue:
                del self._waiting[receiver][sender]
            yield data
        stream = self._streams.get(receiver)
        while self._parted[receiver] and stream is not None:
            other = self._streams.get(self._parted[receiver].pop())
            if other is not None:
                self.introduce(stream, [other])

    async def pass_on(self, name: str, data: bytes) -> bool:
        """Pass an envelope on, under its sender's true name. False: it is of an earlier connection, or not wanted."""
        to, generation, sealed = unwrap(data)
        if to == name or to not in self._lives:
            raise ProtocolError(
                f"{name} sent an envelope to {plain(to)!r}, who is not another party of the federation."
            )
        envelope = wrap(name, generation, sealed)
        began = time.monotonic()
        if name in self._refused[to]:
            return False
        while (stream := self._streams.get(to)) is not None and generation == self._generation(name, to):
            if self._waiting_bytes[name] + len(envelope) <= limits.RELAY_BYTES:
                self._put(name, stream, envelope)
                return True
            if time.monotonic() - began > limits.RELAY_PATIENCE_SECONDS:
                self._part_with_slowest(name)
            else:
                await asyncio.sleep(0.01)
        return False

    def _part_with_slowest(self, sender: str) -> None:
        """Others are not to wait for the receiver that takes least: with it the sender begins anew, later on."""
        sizes = {to: sum(map(len, queues.get(sender, ()))) for to, queues in self._waiting.items()}
        slowest = max(sizes, key=sizes.__getitem__)
        pair = frozenset((sender, slowest))
        self._breaks[pair] = self._breaks.get(pair, 0) + 1
        self.dropped += len(self._waiting[slowest].get(sender, ()))
        log.warning(
            "%s has taken too little of what %s sends it for %.0f seconds: the two are parted until it has caught up",
            slowest,
            sender,
            limits.RELAY_PATIENCE_SECONDS,
        )
        for one, other in ((sender, slowest), (slowest, sender)):
            self._forget(one, other)
            if (stream := self._streams.get(other)) is not None:
                stream.tell_of(one, say(Presence(one, 0)))
        self._parted[slowest].add(sender)

    def _generation(self, one: str, other: str) -> int:
        if one in self._parted[other] or other in self._parted[one]:
            return -1  # until they are introduced anew
        return self._lives[one] + self._lives[other] + self._breaks.get(frozenset((one, other)), 0)

    def _put(self, sender: str, stream: Stream, data: bytes) -> None:
        self._waiting[stream.peer].setdefault(sender, deque()).append(data)
        self._waiting_bytes[sender] += len(data)
        stream.wake.set()

    def _forget(self, sender: str, receiver: str) -> None:
        self._waiting_bytes[sender] -= sum(map(len, self._waiting[receiver].pop(sender, ())))

    def _forget_to(self, receiver: str) -> None:
        for sender in [*self._waiting[receiver]]:
            self._forget(sender, receiver)


class Neighbours:
    """A feature party's side: whom it can reach through the label party, and what their envelopes are sealed with."""

    def __init__(self, name: str, keys: Keys) -> None:
        self._name = name
        self._keys = keys
        self._sealing_keys: dict[str, bytes] = {}
        self.envelopes: dict[str, Envelope] = {}
        self.generations: dict[str, int] = {}  # of those who can be reached now

    def seal(self, name: str, generation: int, piece: bytes) -> bytes:
        """Packets for another party, as what the label party is given."""
        return wrap(name, generation, self.envelopes[name].seal(piece))

    def open(self, sender: str, sealed: bytes) -> bytes:
        """The packets in an envelope."""
        return self.envelopes[sender].open(sealed)

    def meets(self, name: str, other: Introduced, own: Credentials) -> bool:
        """Believe another's key only if its certificate, of our authority, vouches for it; and only its first one."""
        try:
            vouched = check_introduction(
                other.certificate,
                own.authority_pem,
                own.revoked,
                self._keys.digest,
                other.sealing_key,
                other.signature,
            )
            if vouched != name:
                raise ProtocolError(f"The certificate of {vouched} was given for {name}.")
            if self._sealing_keys.setdefault(name, other.sealing_key) != other.sealing_key:
                raise ProtocolError(
                    f"{name} has another sealing key than before: it takes part from another directory."
                )
            if name not in self.envelopes:
                key = self._keys
                self.envelopes[name] = Envelope(key.sealing, self._name, other.sealing_key, name, key.digest)
        except ProtocolError as error:
            log.warning("nothing is exchanged with %s: %s", name, plain(str(error)))
            return False
        return True


def wrap(name: str, generation: int, sealed: bytes) -> bytes:
    """An envelope, as a message of a stream."""
    encoded = name.encode()
    return b"".join((bytes([ENVELOPE, len(encoded)]), encoded, generation.to_bytes(8, "little"), sealed))


def unwrap(data: bytes) -> tuple[str, int, bytes]:
    """A name, a generation, and what is sealed."""
    if len(data) < 2 or len(data) < 10 + data[1]:
        raise ProtocolError("An envelope is truncated.")
    end = 2 + data[1]
    name = data[2:end].decode(errors="replace")
    return name, int.from_bytes(data[end : end + 8], "little"), data[end + 8 :]
