"""What feature parties send one another: sealed envelopes, passed on by the label party, which cannot read them.

An envelope names the generation of the link that it belongs to: how often its two ends have come, together. One of an
earlier connection is dropped. A party believes another's key only if a certificate of the common authority vouches
for it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from colonnade.errors import ProtocolError
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

    def comes(self, name: str) -> None:
        self._lives[name] += 1

    def introduce(self, stream: Stream, others: Iterable[Stream]) -> None:
        """Tell a party and those others that they can reach one another."""
        for other in others:
            generation = self._lives[stream.peer] + self._lives[other.peer]
            other.post(say(Presence(stream.peer, generation, self._introduced(stream.peer))))
            stream.post(say(Presence(other.peer, generation, self._introduced(other.peer))))

    def goes(self, stream: Stream) -> None:
        """Tell the others that they cannot reach a party any more."""
        for theirs in self._streams.values():
            if theirs is not stream:
                theirs.post(say(Presence(stream.peer, 0)))

    async def pass_on(self, name: str, data: bytes) -> None:
        """Pass an envelope on, under its sender's true name; one of an earlier connection is dropped."""
        to, generation, sealed = unwrap(data)
        stream = self._streams.get(to)
        if to == name or to not in self._lives:
            raise ProtocolError(f"{name} sent an envelope to {to!r}, who is not another party of the federation.")
        if stream is None or generation != self._lives[name] + self._lives[to]:
            return
        stream.post(wrap(name, generation, sealed))
        while stream.waiting_bytes > limits.RELAY_BYTES and self._streams.get(to) is stream:
            await asyncio.sleep(0.01)


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

    def open(self, data: bytes) -> tuple[str, bytes] | None:
        """Who sent an envelope, and the packets in it; None if it is of an earlier connection."""
        sender, generation, sealed = unwrap(data)
        if self.generations.get(sender) != generation:
            return None
        return sender, self.envelopes[sender].open(sealed)  # who passes on what cannot be opened is the label party

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
            log.warning("nothing is exchanged with %s: %s", name, error)
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
