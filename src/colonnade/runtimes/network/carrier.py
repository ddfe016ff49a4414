"""One long-lived gRPC stream a feature party, opened by it, under mutual TLS; the label party is the only one reached.

Who sends is who the certificate names. Packets between the two ends of a stream go through it as they are; what
feature parties send one another goes through the label party as sealed envelopes that it can pass on and not read. A
stream that breaks is opened again after a pause that grows, with jitter; its ends' stations go on where they were.

Everything of one party happens in one thread: a task a stream reads, a task a stream writes (what has gathered
meanwhile goes out together), and one task gives the station its turns. Who sends faster than it is served is not read.
"""

import asyncio
import logging
import os
import random
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn, Protocol

import grpc
import grpc.aio

from colonnade.errors import ColonnadeError, ProtocolError, RunError, SettingsError
from colonnade.runtimes.delivery import ForgottenError
from colonnade.runtimes.station import Station
from colonnade.wire.certificates import Credentials, check_peer
from colonnade.wire.handshake import (
    ENVELOPE,
    NONCE_BYTES,
    PACKETS,
    PROTOCOL,
    WORD,
    Hello,
    Introduced,
    Left,
    Presence,
    Refused,
    Roster,
    Welcome,
    check_welcome,
    heard,
    plain,
    say,
    sign_welcome,
)
from colonnade.wire.sealing import Envelope, SealingKey, check_introduction

SERVICE = "colonnade.Session"
METHOD = "Connect"
_CHUNK_BYTES = 1 << 21
"""Packets go out in pieces of at most this size: a piece is what a receiver must hold at once."""
_LARGEST_PIECE = 2 * _CHUNK_BYTES + (1 << 16)
_RELAY_BYTES = 32 << 20  # envelopes that wait for one party, before those who send them are not read from
_HELLO_SECONDS = 10.0
_FIRST_RETRY_SECONDS = 0.2
_LONGEST_RETRY_SECONDS = 10.0
_EXPIRY_CHECK_SECONDS = 20.0
_PARTING_SECONDS = 5.0
_MOST_KNOCKS = 1 << 16

log = logging.getLogger("colonnade.network")


class Door(Protocol):
    """What the label party's own program decides about who comes in. Refusals are ProtocolErrors: their sentence."""

    def admit(self, name: str, hello: Hello) -> None: ...

    def leave(self, name: str) -> None: ...


@dataclass(frozen=True)
class Keys:
    """A party's credentials, read again whenever they are needed, and its sealing key of this run."""

    read: Callable[[], Credentials]
    sealing: SealingKey
    digest: str  # of what the federation has agreed on


_OPTIONS = [
    ("grpc.max_receive_message_length", _LARGEST_PIECE),
    ("grpc.max_send_message_length", _LARGEST_PIECE),
    # A peer whose machine is gone without a word is noticed by these.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]
_SERVER_OPTIONS = [
    ("grpc.so_reuseport", 0),  # else a second label party would share the port, and the guests, without a word
    ("grpc.server_handshake_timeout_ms", int(1000 * _HELLO_SECONDS)),
]
_ENDED = (grpc.aio.UsageError, grpc.aio.AioRpcError, grpc.aio.BaseError)
"""What writing raises when the stream has ended; its reader knows."""


class _UnreadableError(Exception):
    """The own certificate, key or list of the revoked cannot be used at the moment; they may be about to be renewed."""


class _Stream:
    """One open stream: what is to be written besides packets, and its end."""

    def __init__(self, peer: str, write: Callable[[bytes], Awaitable[Any]], close: Callable[[], Any]) -> None:
        self.peer = peer
        self.write = write
        self.close = close
        self.waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        self.wake = asyncio.Event()
        self.is_writing = False
        self.ends = False  # after what waits

    def part(self, word: Refused) -> None:
        """Say this as the last thing."""
        self.post(say(word))
        self.ends = True

    def post(self, data: bytes) -> None:
        self.waiting.append(data)
        self.waiting_bytes += len(data)
        self.wake.set()


class _Carrier(ABC):
    """What both ends have in common: the station's turns, and writing."""

    def __init__(self, name: str, linger_seconds: float, stop_requested: Callable[[], bool]) -> None:
        self.name = name
        self.station: Station | None = None
        self._linger_seconds = linger_seconds
        self._stop_requested = stop_requested
        self._wake = asyncio.Event()
        self._failure: ColonnadeError | OSError | None = None  # outside the turns: they end by it
        self._served = asyncio.Event()  # set after every turn: whoever waits for room looks again

    async def _turns(self, watch: Callable[[], None]) -> bool:
        """Give the station its turns until it has finished (True) or a stop is asked for (False)."""
        finished_at = 0.0
        while not self._stop_requested():
            if self._failure is not None:
                raise self._failure
            station = self.station
            handled = station is not None and station.turn()
            if station is not None:
                while station.breaches:
                    peer, sentence = station.breaches.popleft()
                    self._breach(peer, sentence)
                self._offer(station)
                if station.finished:
                    finished_at = finished_at or time.monotonic()
                    late = time.monotonic() - finished_at > self._linger_seconds
                    if late or (station.settled() and self._all_written(station)):
                        return True
            watch()
            self._served.set()
            self._served.clear()
            if handled:
                await asyncio.sleep(0)  # what has arrived meanwhile is taken in
                continue
            until = 0.2 if station is None else min(0.2, station.idle_until() - time.monotonic())
            if until > 0 and not self._wake.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(until):
                        await self._wake.wait()
            else:
                await asyncio.sleep(0)
            self._wake.clear()
        return False

    async def _room_for(self, peer: str) -> None:
        """Wait until the station takes more from a peer."""
        while self.station is not None and not self.station.wants_more(peer) and not self.station.finished:
            await self._served.wait()

    @property
    @abstractmethod
    def at_the_door(self) -> dict[str, bool]:
        """Whom this party meets before there is a station, and who of them is connected."""

    @abstractmethod
    def _offer(self, station: Station) -> None:
        """Wake the writers of streams that have something to carry."""

    @abstractmethod
    def _all_written(self, station: Station) -> bool:
        """Whether nothing waits to be written."""

    @abstractmethod
    def _breach(self, peer: str, sentence: str) -> None:
        """Part with a peer that broke the protocol."""


def _pieces(parts: Sequence[bytes | bytearray], prefix: bytes) -> list[bytes]:
    """Packets as messages of a stream: joined while small, cut where large (they are a stream, cut anywhere)."""
    joined = b"".join(parts)
    if len(joined) <= _CHUNK_BYTES:
        return [prefix + joined]
    return [prefix + joined[at : at + _CHUNK_BYTES] for at in range(0, len(joined), _CHUNK_BYTES)]


# --- the label party --------------------------------------------------------------------------------------------


class Host(_Carrier):
    """The label party's end: lets parties in, passes envelopes on, and carries its own station's packets."""

    def __init__(
        self,
        name: str,
        parties: Sequence[str],
        keys: Keys,
        listen: str,
        door: Door,
        *,
        relays: bool,
        begin: Callable[[dict[str, Hello]], tuple[Station, Roster] | None],
        linger_seconds: float,
        stop_requested: Callable[[], bool],
    ) -> None:
        super().__init__(name, linger_seconds, stop_requested)
        self._parties = frozenset(parties)
        self._keys = keys
        self._listen = listen
        self._door = door
        self._relays = relays
        self._begin = begin
        self._hellos: dict[str, Hello] = {}
        self._certificates: dict[str, bytes] = {}
        self._streams: dict[str, _Stream] = {}
        self._lives: dict[str, int] = dict.fromkeys(parties, 0)
        self._everybody: Roster | None = None
        # When connections began that no stream has come over yet. TLS gives no other sign of those that it refuses.
        self._knocks: deque[float] = deque(maxlen=_MOST_KNOCKS)
        self._has_failed = False  # then nobody is let in any more
        self._told: set[str] = set()  # who has heard of that
        self.refusals = 0
        self.port = 0

    @property
    def at_the_door(self) -> dict[str, bool]:
        return {name: name in self._streams for name in sorted(self._parties)}

    async def run(self, watch: Callable[[], None] = lambda: None) -> bool:
        """Serve until the training is over; False if it was stopped."""
        failure: ColonnadeError | None = None
        try:
            self._try_to_begin()
        except ColonnadeError as error:  # as the life before this one may have ended, after which others have come
            failure = error
            self._has_failed = True
            log.error("the training cannot go on, which the others are told now: %s", error)
        streams = ("grpc.max_concurrent_streams", 4 * len(self._parties) + 16)
        server = grpc.aio.server(options=[*_OPTIONS, *_SERVER_OPTIONS, streams])
        handler = grpc.stream_stream_rpc_method_handler(self._serve)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        try:
            self.port = server.add_secure_port(self._listen, self._credentials())
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise RunError(f"{self._listen} cannot be listened on: is it taken? Choose another with [party] listen.")
        await server.start()
        log.info("listening on port %d", self.port)
        guard = asyncio.create_task(self._guard())
        asyncio.get_running_loop().set_exception_handler(_pass_over_interrupts)
        finished = False
        try:
            if failure is not None:
                raise failure
            finished = await self._turns(watch)
            return finished
        except ColonnadeError:  # not an OSError: with room on the disk it goes on
            await self._end_for_all()
            raise
        finally:
            guard.cancel()
            if not finished:  # at a normal end the parties close their streams themselves
                for stream in [*self._streams.values()]:
                    stream.close()
            await server.stop(0.5)

    async def _end_for_all(self) -> None:
        """The training has failed here: tell everybody who is there, or comes back soon, that it does not go on."""
        self._has_failed = True
        for name, stream in self._streams.items():
            if not stream.ends:
                stream.part(Refused(self._failed()))
                self._told.add(name)
        with suppress(TimeoutError):
            async with asyncio.timeout(_PARTING_SECONDS if self.station is not None else 1.5 * _LONGEST_RETRY_SECONDS):
                while (self._streams or self._may_come()) and not self._stop_requested():
                    await asyncio.sleep(0.02)

    def _failed(self) -> str:
        # And not why, which may say something of labels, or of this party's machine.
        return (
            f"The training has failed at {self.name} and does not go on by itself. Why, its log says: ask {self.name}."
        )

    def _may_come(self) -> set[str]:
        """Who has been here, or before the first word anybody, and was not told that it is over."""
        if self.station is None:
            return {*self._parties} - self._told
        return {name for name in self.station.absent() if name in self._hellos} - self._told

    def _credentials(self) -> Any:
        """TLS that asks for a certificate, and takes a renewed one of our own without a restart."""
        last = self._keys.read()

        def configuration(credentials: Credentials) -> Any:
            pair = (credentials.key_pem, credentials.certificate_pem)
            return grpc.ssl_server_certificate_configuration([pair], root_certificates=credentials.authority_pem)

        def renewed() -> Any:
            """Called by gRPC, in a thread of its own, for every connection before its handshake."""
            nonlocal last
            self._knocks.append(time.monotonic())
            try:
                now = self._keys.read()
            except ColonnadeError as error:
                log.error("the own certificate could not be read again: %s", error)
                return None
            if now.certificate_pem == last.certificate_pem and now.authority_pem == last.authority_pem:
                return None
            last = now
            log.info("a renewed certificate is in use, valid until %s", now.expires.date())
            return configuration(now)

        return grpc.dynamic_ssl_server_credentials(configuration(last), renewed, require_client_authentication=True)

    async def _guard(self) -> None:
        """Look now and then at what no event tells of."""
        while True:
            await asyncio.sleep(_EXPIRY_CHECK_SECONDS)
            self._tell_of_refusals()
            self._drop_expired()

    def _tell_of_refusals(self) -> None:
        """Connections that TLS has refused, or that nobody used, all in one line: there may be hundreds a second."""
        in_vain, latest = 0, time.monotonic() - _HELLO_SECONDS
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

    def _drop_expired(self) -> None:
        """A stream does not outlive its certificate: the party must come again with a renewed one."""
        try:
            own = self._keys.read()
        except ColonnadeError:
            return
        for name, stream in [*self._streams.items()]:
            try:
                check_peer(self._certificates[name], own.authority_pem, own.revoked, datetime.now(UTC))
            except ProtocolError as error:
                log.warning("%s is shut out: %s", name, error)
                stream.close()

    def _try_to_begin(self) -> None:
        if self.station is None and (begun := self._begin(self._hellos)) is not None:
            self.station, self._everybody = begun
            present: list[_Stream] = []
            for stream in self._streams.values():
                self._introduce(stream, present)
                present.append(stream)

    def _introduce(self, stream: _Stream, others: Iterable[_Stream]) -> None:
        """Let a party take part: tell it of everybody, and it and those others that they can reach one another."""
        assert self.station is not None and self._everybody is not None
        stream.post(say(self._everybody))
        self.station.connected(stream.peer)
        self._wake.set()
        for other in others if self._relays else ():
            generation = self._lives[stream.peer] + self._lives[other.peer]
            other.post(say(Presence(stream.peer, generation, self._introduced(stream.peer))))
            stream.post(say(Presence(other.peer, generation, self._introduced(other.peer))))

    # --- one stream ---

    async def _serve(self, requests: Any, context: Any) -> None:
        """A feature party's stream, from its Hello to its end."""
        name = "somebody"
        with suppress(IndexError):  # a connection may carry several streams
            self._knocks.popleft()
        try:
            name, certificate = self._identify(context)
            async with asyncio.timeout(_HELLO_SECONDS):
                hello = heard(await self._read(context))
            if not isinstance(hello, Hello):
                raise ProtocolError("The first word on a stream must be Hello.")
            self._check_version(name, hello)
            if hello.leaves:  # also for a party that has lost its run directory: its certificate is enough
                self._leave(name)
                await context.write(say(Left()))
                return
            if self._has_failed:
                self._told.add(name)
                raise ProtocolError(self._failed())
            self._check_token(name, hello)
            self._door.admit(name, hello)  # names what differs, which the signature below would only show
            own = self._keys.read()
            check_introduction(
                certificate, own.authority_pem, own.revoked, self._keys.digest, hello.sealing_key, hello.signature
            )
            signature = sign_welcome(own, self._keys.digest, name, hello.nonce)
        except (ProtocolError, TimeoutError) as error:
            self.refusals += 1
            sentence = str(error) or f"No Hello came within {_HELLO_SECONDS:.0f} seconds."
            log.warning("refused %s: %s", name, sentence)
            await self._refuse(context, Refused(sentence))
            return
        except SettingsError as error:
            log.error("nobody can be let in: %s", error)
            sentence = f"{self.name} has no valid certificate of its own at the moment."
            await self._refuse(context, Refused(sentence, final=False))
            return
        await self._keep(name, certificate, hello, Welcome((), own.certificate_pem, signature), context)

    async def _refuse(self, context: Any, word: Refused) -> None:
        with suppress(*_ENDED):
            await context.write(say(word))

    async def _keep(self, name: str, certificate: bytes, hello: Hello, welcome: Welcome, context: Any) -> None:
        before = self._streams.pop(name, None)
        if before is not None:
            self._end(before)
            before.close()
        task = asyncio.current_task()
        assert task is not None
        stream = _Stream(name, context.write, task.cancel)
        self._hellos[name] = hello
        self._certificates[name] = certificate
        self._lives[name] += 1
        self._streams[name] = stream
        log.info("%s is connected", name)
        self._announce(stream, welcome)
        writer = asyncio.create_task(self._write(stream))
        try:
            while (data := await context.read()) is not grpc.aio.EOF:
                await self._take(name, data)
        except ProtocolError as error:
            log.warning("the stream of %s is closed: %s", name, error)
            stream.part(Refused(str(error), final=isinstance(error, ForgottenError)))
            with suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(_PARTING_SECONDS):
                    await writer
        except asyncio.CancelledError:
            pass  # closed by this side: the party may come again
        finally:
            writer.cancel()
            if self._streams.get(name) is stream:
                del self._streams[name]
                self._end(stream)

    def _announce(self, stream: _Stream, welcome: Welcome) -> None:
        absent = tuple(sorted(self._parties - {*self._streams, self.name}))
        stream.post(say(Welcome(absent, welcome.certificate, welcome.signature)))
        if self.station is None:
            try:
                self._try_to_begin()
            except (ColonnadeError, OSError) as error:  # not into gRPC, which would tell its words to the party
                self._failure = error
                self._wake.set()
        else:
            self._introduce(stream, [other for other in self._streams.values() if other is not stream])

    def _end(self, stream: _Stream) -> None:
        log.info("%s is no longer connected", stream.peer)
        if self.station is not None:
            self.station.disconnected(stream.peer)
            self._wake.set()
        if self._relays and self.station is not None:
            for theirs in self._streams.values():
                if theirs is not stream:
                    theirs.post(say(Presence(stream.peer, 0)))

    def _identify(self, context: Any) -> tuple[str, bytes]:
        shown = context.auth_context().get("x509_pem_cert")
        if not shown:
            raise ProtocolError("No certificate was shown.")
        own = self._keys.read()
        name = check_peer(shown[0], own.authority_pem, own.revoked)
        if name not in self._parties or name == self.name:
            raise ProtocolError(f"{name} has a good certificate, but is not a feature party of this federation.")
        return name, shown[0]

    def _check_version(self, name: str, hello: Hello) -> None:
        if hello.protocol != PROTOCOL:
            raise ProtocolError(
                f"{name} speaks version {hello.protocol} of the protocol, {self.name} version {PROTOCOL}: "
                "install the same version of Colonnade."
            )

    def _check_token(self, name: str, hello: Hello) -> None:
        known = self._hellos.get(name)
        if known is not None and known.token != hello.token:
            raise ProtocolError(another_directory(name))

    def _introduced(self, name: str) -> Introduced:
        """A party's key, as the certificate that it came with last vouches for it."""
        return Introduced(self._certificates[name], self._hellos[name].sealing_key, self._hellos[name].signature)

    def _leave(self, name: str) -> None:
        log.warning("%s leaves for good", name)
        self._door.leave(name)
        if self.station is not None:
            self.station.leave(name)
            self._wake.set()
        stream = self._streams.pop(name, None)
        if stream is not None:
            self._end(stream)
            stream.close()

    async def _read(self, context: Any) -> bytes:
        data = await context.read()
        if data is grpc.aio.EOF:
            raise ProtocolError("The stream ended before its Hello.")
        return bytes(data)

    async def _take(self, name: str, data: bytes) -> None:
        kind = data[0] if data else -1
        if kind == PACKETS and self.station is not None:
            self.station.received(name, memoryview(data)[1:])
            self._wake.set()
            await self._room_for(name)
        elif kind == ENVELOPE and self._relays:
            await self._relay(name, data)
        else:
            raise ProtocolError("Something came that is neither packets nor an envelope.")

    async def _relay(self, name: str, data: bytes) -> None:
        """Pass an envelope on, under its sender's true name; one of an earlier connection is dropped."""
        to, generation, sealed = _unwrap(data)
        stream = self._streams.get(to)
        if to == name or to not in self._parties:
            raise ProtocolError(f"{name} sent an envelope to {to!r}, who is not another party of the federation.")
        if stream is None or generation != self._lives[name] + self._lives[to]:
            return
        stream.post(_wrap(name, generation, sealed))
        while stream.waiting_bytes > _RELAY_BYTES and self._streams.get(to) is stream:
            await asyncio.sleep(0.01)

    # --- writing ---

    async def _write(self, stream: _Stream) -> None:
        prefix = bytes([PACKETS])
        try:
            while True:
                stream.is_writing = True
                while stream.waiting:
                    data = stream.waiting.popleft()
                    stream.waiting_bytes -= len(data)
                    await stream.write(data)
                if stream.ends:
                    stream.close()
                    return
                # What a station gives out it gives once: not to a stream that another has taken the place of.
                current = self.station is not None and self._streams.get(stream.peer) is stream
                if parts := self.station.outgoing(stream.peer) if self.station is not None and current else []:
                    for piece in _pieces(parts, prefix):
                        await stream.write(piece)
                elif not stream.waiting:
                    stream.is_writing = False
                    await stream.wake.wait()
                    stream.wake.clear()
        except _ENDED:
            pass

    def _offer(self, station: Station) -> None:
        for name, stream in self._streams.items():
            if station.has_outgoing(name):
                stream.wake.set()

    def _all_written(self, station: Station) -> bool:
        streams = self._streams.items()
        return not any(one.is_writing or one.waiting or station.has_outgoing(name) for name, one in streams)

    def _breach(self, peer: str, sentence: str) -> None:
        log.warning("%s broke the protocol: %s", peer, sentence)
        stream = self._streams.get(peer)
        if stream is not None:
            stream.part(Refused(sentence))
            asyncio.get_running_loop().call_later(_PARTING_SECONDS, stream.close)


# --- a feature party --------------------------------------------------------------------------------------------


class Guest(_Carrier):
    """A feature party's end: opens its stream to the label party, again and again if need be."""

    def __init__(
        self,
        name: str,
        label_party: str,
        address: str,
        keys: Keys,
        hello: Callable[[bytes], Hello],
        *,
        begin: Callable[[Roster], Station],
        linger_seconds: float,
        stop_requested: Callable[[], bool],
    ) -> None:
        super().__init__(name, linger_seconds, stop_requested)
        self._label_party = label_party
        self._address = address
        self._keys = keys
        self._hello = hello
        self._begin = begin
        self._stream: _Stream | None = None
        self._envelopes: dict[str, Envelope] = {}
        self._sealing_keys: dict[str, bytes] = {}
        self._generations: dict[str, int] = {}  # of feature parties that can be reached now
        self._refused: str | None = None
        self._welcome: Welcome | None = None  # of the stream that is open
        self._outdated = ""  # why it is closed from here
        self._has_met = False  # whether the label party has ever answered as itself
        self._shown_until = datetime.min  # when the certificate ends that was shown last
        self._open_call: Any = None
        self._parting = False
        self._jitter = random.Random()

    @property
    def at_the_door(self) -> dict[str, bool]:
        return {self._label_party: self._welcome is not None}

    async def run(self, watch: Callable[[], None] = lambda: None) -> bool:
        """Take part until the training is over; False if it was stopped."""
        connecting = asyncio.create_task(self._stay_connected())
        guard = asyncio.create_task(self._drop_expired())
        turns = asyncio.create_task(self._turns(watch))
        asyncio.get_running_loop().set_exception_handler(_pass_over_interrupts)
        try:
            await asyncio.wait({connecting, turns}, return_when=asyncio.FIRST_COMPLETED)
            if connecting.done() and not turns.done():
                connecting.result()  # raises what ended it
            finished = await turns
            await self._part(connecting)
            return finished
        finally:
            for task in (connecting, turns, guard):
                task.cancel()
            await asyncio.gather(connecting, turns, guard, return_exceptions=True)

    async def _drop_expired(self) -> None:
        """As the label party's: a stream to it does not outlive its certificate either."""
        while True:
            await asyncio.sleep(_EXPIRY_CHECK_SECONDS)
            if self._welcome is None or self._open_call is None:
                continue
            try:
                own = self._keys.read()
            except ColonnadeError:
                continue
            try:
                check_peer(self._welcome.certificate, own.authority_pem, own.revoked)
            except ProtocolError as error:
                self._outdated = str(error)
                self._open_call.cancel()

    async def _part(self, connecting: "asyncio.Task[None]") -> None:
        """End the stream so that everything written arrives: closing it at once would drop what is on its way."""
        self._parting = True
        if self._open_call is not None:
            with suppress(*_ENDED, TimeoutError):
                await self._open_call.done_writing()
                async with asyncio.timeout(_PARTING_SECONDS):
                    await asyncio.shield(connecting)

    async def leave(self) -> None:
        """Tell the label party that this party leaves for good."""
        async with self._channel() as channel:
            call = self._call(channel)
            try:
                await call.write(say(self._hello(os.urandom(NONCE_BYTES))))
                data = await call.read()
            except grpc.aio.AioRpcError as error:
                raise RunError(
                    f"{self._label_party} cannot be reached at {self._address}, so it was not told: "
                    f"{self._explained(error)}"
                ) from None
        if data is grpc.aio.EOF:
            raise RunError(f"{self._label_party} at {self._address} ended the stream without an answer. Try again.")
        word = heard(data)
        if isinstance(word, Refused):
            raise RunError(f"{self._label_party} answered: {plain(word.sentence)}")

    @contextmanager
    def _reading_own_files(self) -> Iterator[None]:
        """While this holds, files that will not do are an error for good only before the label party was ever met."""
        try:
            yield
        except SettingsError as error:
            if not self._has_met:
                raise
            raise _UnreadableError(str(error)) from None

    def _own(self) -> Credentials:
        with self._reading_own_files():
            return self._keys.read()

    def _channel(self) -> Any:
        own = self._own()
        self._shown_until = own.expires
        credentials = grpc.ssl_channel_credentials(own.authority_pem, own.key_pem, own.certificate_pem)
        # The label party is who its certificate says, whatever host or address it is reached at.
        options = [*_OPTIONS, ("grpc.ssl_target_name_override", self._label_party), ("grpc.enable_retries", 0)]
        return grpc.aio.secure_channel(self._address, credentials, options=options)

    def _call(self, channel: Any) -> Any:
        return channel.stream_stream(f"/{SERVICE}/{METHOD}")()

    async def _stay_connected(self) -> None:
        wait = _FIRST_RETRY_SECONDS
        while True:
            began = time.monotonic()
            was_there = False
            try:
                await self._session()
                was_there = self._welcome is not None
            except _UnreadableError as error:
                log.error("the own certificate could not be read again: %s", error)
            except grpc.aio.AioRpcError as error:
                was_there = self._welcome is not None
                details = self._explained(error)
                if _is_of_a_stranger(error) and not self._has_met:
                    raise RunError(details) from None  # later on somebody else may have the address for a while
                log.warning("%s cannot be reached at %s: %s", self._label_party, self._address, details)
            except ForgottenError as error:
                # The label party is believed in this: without it there is nothing to do here. Itself it only shuts out
                # a party that says so, for else every feature party could end it by a claim.
                raise RunError(str(error)) from None
            except ProtocolError as error:
                log.warning("the stream to %s is closed: %s", self._label_party, error)
            finally:
                self._open_call = self._welcome = None
                self._lose()
            if self._parting:
                return
            if self._refused is not None:
                raise RunError(f"{self._label_party} refused {self.name}: {self._refused}")
            # Only who refuses, or does not answer at all, is asked less and less often.
            if was_there or time.monotonic() - began > 10 * _FIRST_RETRY_SECONDS:
                wait = _FIRST_RETRY_SECONDS
            await asyncio.sleep(wait * self._jitter.uniform(0.5, 1.5))
            wait = min(2 * wait, _LONGEST_RETRY_SECONDS)

    def _explained(self, error: Any) -> str:
        """What gRPC says of a connection that failed; and where TLS has refused one, what it does not say."""
        said = str(error.details() or error.code().name)
        if _is_of_a_stranger(error):
            return (
                f"What answers at {self._address} could not show a certificate of {self._label_party} from our "
                "authority. Check the address, and that both parties' certificates are of the same authority."
            )
        if "failed to connect" in said and "Socket closed" in said:
            # Our own certificate was found good when it was read: ours and theirs are of two minds about it.
            return (
                f"What answers there closes the connection before a word. If it is {self._label_party}, its TLS does "
                f"not accept the certificate of {self.name}, which by our clock is valid until "
                f"{self._shown_until:%Y-%m-%d %H:%M} UTC: compare authority.pem, and the clock, with those of "
                f"{self._label_party}."
            )
        return plain(said)

    async def _session(self) -> None:
        async with self._channel() as channel:
            call = self._open_call = self._call(channel)
            nonce = os.urandom(NONCE_BYTES)
            with self._reading_own_files():
                hello = self._hello(nonce)
            await call.write(say(hello))
            stream = _Stream(self._label_party, call.write, call.cancel)
            writer: asyncio.Task[None] | None = None
            try:
                while (data := await call.read()) is not grpc.aio.EOF:
                    if self._welcome is None:
                        self._recognise(heard(data), nonce)
                    if writer is None and data[:1] == bytes([WORD]) and isinstance(heard(data), Roster):
                        writer = asyncio.create_task(self._write(stream))
                    await self._take(stream, data)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                raise ProtocolError(self._outdated or "It was cancelled.") from None  # the stream, not this task
            finally:
                self._outdated = ""
                if writer is not None:
                    writer.cancel()

    def _recognise(self, word: Any, nonce: bytes) -> None:
        """Make sure that what answers is the label party, before anything else that it says is taken."""
        if isinstance(word, Refused):
            self._hear_refusal(word)
        if not isinstance(word, Welcome):
            raise ProtocolError(f"{self._label_party} said {type(word).__name__} before Welcome.")
        check_welcome(word, self._own(), self._label_party, self._keys.digest, nonce)
        self._welcome, self._has_met = word, True

    def _hear_refusal(self, word: Refused) -> NoReturn:
        sentence = plain(word.sentence)
        if word.final:
            self._refused = sentence
        raise ProtocolError(sentence)

    def _lose(self) -> None:
        self._stream = None
        if self.station is not None:
            for peer in (self._label_party, *self._generations):
                self.station.disconnected(peer)
            self._wake.set()
        self._generations.clear()

    async def _take(self, stream: _Stream, data: bytes) -> None:
        kind = data[0] if data else -1
        if kind == PACKETS and self.station is not None:
            self.station.received(self._label_party, memoryview(data)[1:])
            self._wake.set()
            await self._room_for(self._label_party)
        elif kind == ENVELOPE and self.station is not None:
            sender, generation, sealed = _unwrap(data)
            if self._generations.get(sender) == generation:
                opened = self._envelopes[sender].open(sealed)  # who passes on what cannot be opened is the label party
                try:
                    self.station.received(sender, opened)
                except ProtocolError as error:
                    self._breach(sender, str(error))
                self._wake.set()
                await self._room_for(sender)
        else:
            self._hear(stream, heard(data))

    def _hear(self, stream: _Stream, word: Any) -> None:
        match word:
            case Refused():
                self._hear_refusal(word)
            case Welcome(waits_for):
                others = [plain(name) for name in waits_for if name != self.name]
                log.info(
                    "connected to %s%s", self._label_party, f"; it waits for {', '.join(others)}" if others else ""
                )
            case Roster():
                if self.station is None:
                    self.station = self._begin(word)
                self._stream = stream
                self.station.connected(self._label_party)
            case Presence(name, generation, introduced):
                if self.station is None or name == self.name or name not in self.station.peers:
                    return
                if self._generations.pop(name, 0):
                    self.station.disconnected(name)
                if generation and introduced is not None and self._meets(name, introduced):
                    self._generations[name] = generation
                    self.station.connected(name)
            case _:
                raise ProtocolError(f"{self._label_party} said {type(word).__name__}, which it may not here.")
        self._wake.set()

    def _meets(self, name: str, other: Introduced) -> bool:
        """Believe another's key only if its certificate, of our authority, vouches for it; and only its first one."""
        own = self._own()
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
            if name not in self._envelopes:
                key = self._keys
                self._envelopes[name] = Envelope(key.sealing, self.name, other.sealing_key, name, key.digest)
        except ProtocolError as error:
            log.warning("nothing is exchanged with %s: %s", name, error)
            return False
        return True

    # --- writing ---

    async def _write(self, stream: _Stream) -> None:
        prefix = bytes([PACKETS])
        try:
            while True:
                wrote, stream.is_writing = False, True
                station = self.station
                if station is not None and self._stream is stream:
                    # The others' first: the label party, who passes them on, may end when it has its own last word.
                    for name, generation in [*self._generations.items()]:
                        if self._generations.get(name) != generation or self._stream is not stream:
                            continue  # since the last write: what is given out now belongs to another connection
                        if parts := station.outgoing(name):
                            for piece in _pieces(parts, b""):
                                sealed = self._envelopes[name].seal(piece)
                                await stream.write(_wrap(name, generation, sealed))
                            wrote = True
                    if self._stream is stream and (parts := station.outgoing(self._label_party)):
                        for piece in _pieces(parts, prefix):
                            await stream.write(piece)
                        wrote = True
                if not wrote:
                    stream.is_writing = False
                    await stream.wake.wait()
                    stream.wake.clear()
        except _ENDED:
            pass

    def _offer(self, station: Station) -> None:
        if self._stream is not None and any(map(station.has_outgoing, (self._label_party, *self._generations))):
            self._stream.wake.set()

    def _all_written(self, station: Station) -> bool:
        stream = self._stream
        return stream is None or not (
            stream.is_writing or any(map(station.has_outgoing, (self._label_party, *self._generations)))
        )

    def _breach(self, peer: str, sentence: str) -> None:
        if peer == self._label_party:  # without it there is nothing to do here
            raise RunError(f"{peer} broke the protocol: {sentence}")
        log.warning(
            "nothing more is taken from %s until it connects anew, for it broke the protocol: %s", peer, sentence
        )
        self._generations.pop(peer, None)
        if self.station is not None:
            self.station.disconnected(peer)


def _pass_over_interrupts(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A second Ctrl-C ends whatever task it meets; that is no news to whoever gave it."""
    if not isinstance(context.get("exception"), KeyboardInterrupt):
        loop.default_exception_handler(context)


def _is_of_a_stranger(error: Any) -> bool:
    """Whether a connection failed because of the certificate that the other side showed."""
    said = str(error.details())
    return "CERTIFICATE_VERIFY_FAILED" in said or "Hostname Verification" in said


def another_directory(name: str) -> str:
    """Why a second process of the same name is not let in."""
    return (
        f"Another process takes part as {name} already, from another run directory. If that one is gone for good, its "
        "directory is needed to go on in its place."
    )


# --- envelopes on a stream --------------------------------------------------------------------------------------


def _wrap(name: str, generation: int, sealed: bytes) -> bytes:
    encoded = name.encode()
    return b"".join((bytes([ENVELOPE, len(encoded)]), encoded, generation.to_bytes(8, "little"), sealed))


def _unwrap(data: bytes) -> tuple[str, int, bytes]:
    if len(data) < 2 or len(data) < 10 + data[1]:
        raise ProtocolError("An envelope is truncated.")
    end = 2 + data[1]
    name = data[2:end].decode(errors="replace")
    return name, int.from_bytes(data[end : end + 8], "little"), data[end + 8 :]
