"""Who may come in: TLS that asks for a certificate, the first word on a stream, and the label party's answer to it."""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from colonnade.errors import ColonnadeError, ProtocolError, plain
from colonnade.runtimes.network import limits
from colonnade.runtimes.network.allowance import Allowance
from colonnade.runtimes.network.carrier import Keys
from colonnade.runtimes.network.doorstep import Doorstep
from colonnade.runtimes.network.line import Line
from colonnade.wire.certificates import Credentials, check_peer
from colonnade.wire.handshake import PROTOCOL, VERSION, Hello, Welcome, heard, sign_welcome
from colonnade.wire.sealing import check_introduction

log = logging.getLogger("colonnade.network")

_MOST_KNOCKS = 1 << 16
_BETWEEN_LOOKS_SECONDS = 0.2
_BETWEEN_FAULTS_SECONDS = 10.0
_RECOGNISED_SECONDS = 1.0


class StreamLimitError(ProtocolError):
    """More streams than a party may have at once."""


class Door(Protocol):
    """What the label party's own program decides about who comes in. Refusals are ProtocolErrors: their sentence."""

    def admit(self, name: str, hello: Hello) -> None: ...

    def leave(self, name: str) -> None: ...


class Greeting:
    """What the label party does before it takes a stream for a party's. Refusals are ProtocolErrors."""

    def __init__(self, name: str, parties: Sequence[str], keys: Keys, door: Door, carrier: str) -> None:
        self.name = name
        self._carrier = carrier
        self._parties = frozenset(parties)
        self._keys = keys
        self._door = door
        self._doorstep = Doorstep(limits.KNOCKS_PER_SECOND + 2 * len(parties))
        # When connections began that no stream has come over yet. TLS gives no other sign of those that it refuses.
        self._knocks: deque[float] = deque(maxlen=_MOST_KNOCKS)
        self._streams: Counter[str] = Counter()  # by name
        self._allowances = {
            name: Allowance(limits.GREETINGS_PER_SECOND, limits.GREETINGS_AT_ONCE) for name in self._parties
        }
        # Who certificates were found to name a moment ago, by our files as they are: one party may open many streams.
        self._recognised: dict[bytes, tuple[Credentials, str, float]] = {}
        self._faults_told_at = -_BETWEEN_FAULTS_SECONDS
        self._shown: Credentials | None = None

    def knock(self) -> None:
        """A connection has come; said in any thread."""
        self._doorstep.knock()
        self._knocks.append(time.monotonic())

    def own(self) -> Credentials | None:
        """What to show to those who come now, renewed without a restart; None if it cannot be read."""
        try:
            now = self._keys.read()
        except (ColonnadeError, OSError) as error:
            self.tell_of_fault("our certificate could not be re-read: %s", error)
            return None
        if self._shown is not None and now.certificate_pem != self._shown.certificate_pem:
            log.info("a renewed certificate is in use, valid until %s", now.expires.date())
        self._shown = now
        return now

    def listens_on(self, port: int) -> None:
        """There is a port now."""
        self._doorstep.guard(port)

    def close(self) -> None:
        self._doorstep.close()

    async def attend(self) -> None:
        """Look at the port as often as it needs while it is flooded, for ever."""
        while True:
            self._doorstep.look()
            await asyncio.sleep(_BETWEEN_LOOKS_SECONDS)

    def tell_of_fault(self, sentence: str, *values: object) -> None:
        """Log a fault of our own; strangers may make it happen hundreds of times a second, so not every time."""
        if time.monotonic() - self._faults_told_at >= _BETWEEN_FAULTS_SECONDS:
            self._faults_told_at = time.monotonic()
            log.error(sentence, *values)

    def stream_came(self) -> None:
        """A connection was not in vain."""
        with suppress(IndexError):  # a connection may carry several streams
            self._knocks.popleft()

    def tell_of_refusals(self) -> None:
        """Connections that TLS has refused, or that nobody used, all in one line: there may be hundreds per second."""
        if self._doorstep.is_flooded:
            log.warning(
                "more than %d connections a second came: for now new ones are taken from a part of all addresses "
                "alone, those that the flood does not come from. Whose stream is open notices nothing. If only the "
                "parties' addresses can reach the port (a firewall), this does not happen",
                self._doorstep.most_per_second,
            )
        in_vain, latest = 0, time.monotonic() - limits.HANDSHAKE_SECONDS
        while self._knocks and self._knocks[0] < latest:
            self._knocks.popleft()
            in_vain += 1
        if in_vain:
            log.warning(
                "%d connections ended without a stream: TLS refused their certificates (of another authority, expired, "
                "or none), or it was no party that came. If a party is missing, compare its authority.pem and its "
                "clock with ours",
                in_vain,
            )

    def identify(self, shown: bytes) -> str:
        """Whose certificate was shown."""
        if not shown:
            raise ProtocolError("No certificate was shown.")
        own = self._keys.read()
        known = self._recognised.get(shown)
        if known is not None and known[0] is own and time.monotonic() < known[2]:
            return known[1]
        name = check_peer(shown, own.authority_pem, own.revoked)
        if name not in self._parties or name == self.name:
            raise ProtocolError(f"{name} has a good certificate, but is not a feature party of this federation.")
        while len(self._recognised) >= 4 * len(self._parties):
            del self._recognised[next(iter(self._recognised))]
        self._recognised[shown] = own, name, time.monotonic() + _RECOGNISED_SECONDS
        return name

    @contextmanager
    def stream_of(self, name: str) -> Iterator[None]:
        """While this holds, a stream of that party is open. ProtocolError: it has too many."""
        if self._streams[name] >= limits.STREAMS_PER_PARTY:
            raise StreamLimitError(
                f"{name} has {limits.STREAMS_PER_PARTY} streams open already; one is enough. Let the others end first."
            )
        self._streams[name] += 1
        try:
            yield
        finally:
            self._streams[name] -= 1

    async def hello(self, name: str, line: Line) -> Hello:
        """The first word on a stream; TimeoutError if none comes. Who says it too often is heard later and later."""
        await asyncio.sleep(self._allowances[name].take(1.0))
        async with asyncio.timeout(limits.HELLO_SECONDS):
            data = await line.read()
        if data is None:
            raise ProtocolError("The stream ended before its Hello.")
        if len(data) > limits.LARGEST_HELLO_BYTES:
            raise ProtocolError(f"A Hello of {len(data)} bytes came; {limits.LARGEST_HELLO_BYTES} are the most.")
        hello = heard(bytes(data))
        if not isinstance(hello, Hello):
            raise ProtocolError("The first word on a stream must be Hello.")
        if hello.protocol != PROTOCOL:
            raise ProtocolError(
                f"{name} speaks version {hello.protocol} of the protocol, {self.name} version {PROTOCOL}: "
                "install the same version of Colonnade."
            )
        if _generation_of(hello.version) != _generation_of(VERSION):
            theirs = plain(hello.version)[:40] or "of an older version"
            raise ProtocolError(
                f"{name} has Colonnade {theirs}, {self.name} has {VERSION}: the first two numbers must be the same at "
                "all parties, the third may differ."
            )
        if hello.carrier and hello.carrier != self._carrier:
            raise ProtocolError(
                f'The federation.toml of {name} has [network] carrier = "{plain(hello.carrier)[:10]}", and that of '
                f'{self.name} "{self._carrier}": use the same file.'
            )
        line.greeted()
        return hello

    def welcome(self, name: str, certificate: bytes, hello: Hello, known: Hello | None) -> Welcome:
        """Let a party in, which may have said another Hello before; what it is answered."""
        if known is not None and known.token != hello.token:
            raise ProtocolError(another_directory(name))
        self._door.admit(name, hello)  # names what differs, which the signature below would only show
        own = self._keys.read()
        check_introduction(
            certificate, own.authority_pem, own.revoked, self._keys.digest, hello.sealing_key, hello.signature
        )
        return Welcome((), own.certificate_pem, sign_welcome(own, self._keys.digest, name, hello.nonce))

    def leave(self, name: str) -> None:
        """A party is let in no more."""
        self._door.leave(name)


def _generation_of(version: str) -> list[str]:
    """What must be the same at all parties: the first two numbers."""
    return version.split(".")[:2]


def another_directory(name: str) -> str:
    """Why a second process of the same name is not let in."""
    return (
        f"Another process takes part as {name} already, from another run directory. If that one is gone for good, its "
        "directory is needed to go on in its place."
    )
