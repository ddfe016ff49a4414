"""The label party's end of the network: listens, lets parties in, and keeps one stream per feature party.

A stream does not outlive its certificate. When the training fails here, everybody who is there or comes back soon is
told that it does not go on, and not why. A fault of this machine (a file limit, a full disk, an unreadable certificate)
keeps parties at the door until it is over; what they are told of it is that they may come again.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from colonnade.errors import ColonnadeError, ProtocolError, RunError, SettingsError, plain
from colonnade.runtimes.delivery import ForgottenError
from colonnade.runtimes.network import limits
from colonnade.runtimes.network.carrier import Carrier, Keys, pass_over_interrupts
from colonnade.runtimes.network.greeting import Door, Greeting, StreamLimitError
from colonnade.runtimes.network.line import Heard, Line, LineEndedError, Listener, UnreachableError
from colonnade.runtimes.network.relay import Relay
from colonnade.runtimes.network.stream import Stream, pieces
from colonnade.runtimes.station import Station
from colonnade.wire.certificates import check_peer
from colonnade.wire.handshake import (
    ENVELOPE,
    PACKETS,
    WORD,
    Hello,
    Introduced,
    Left,
    Presence,
    Refused,
    Roster,
    Welcome,
    heard,
    say,
)

log = logging.getLogger("colonnade.network")


class Host(Carrier):
    """The label party's end: lets parties in, passes envelopes on, and carries its own station's packets."""

    def __init__(
        self,
        name: str,
        parties: Sequence[str],
        keys: Keys,
        listener: Listener,
        door: Door,
        *,
        relays: bool,
        begin: Callable[[dict[str, Hello]], tuple[Station, Roster] | None],
        linger_seconds: float,
        stop_requested: Callable[[], bool],
    ) -> None:
        super().__init__(name, parties, linger_seconds, stop_requested)
        self._parties = frozenset(parties)
        self._keys = keys
        self._listener = listener
        self._begin = begin
        self._hellos: dict[str, Hello] = {}
        self._certificates: dict[str, bytes] = {}
        self._streams: dict[str, Stream] = {}
        self._everybody: Roster | None = None
        self._greeting = Greeting(name, parties, keys, door, listener.carrier)
        self._relay = Relay(parties, self._streams, self._introduced) if relays else None
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
        except OSError as error:
            self._greeting.tell_of_fault("the training cannot begin yet, which is tried again: %s", error)
        except ColonnadeError as error:  # as the life before this one may have ended, after which others have come
            failure = error
            self._has_failed = True
            log.error("the training cannot go on, which the others are told now: %s", error)
        own = self._greeting.own() or self._keys.read()
        self.port = await self._listener.start(own, self._greeting, self._serve)
        if not self.port:
            address = self._listener.address
            raise RunError(f"{address} cannot be listened on: is it taken? Choose another with [party] listen.")
        self._greeting.listens_on(self.port)
        log.info("listening on port %d", self.port)
        guards = [asyncio.create_task(self._guard()), asyncio.create_task(self._greeting.attend())]
        asyncio.get_running_loop().set_exception_handler(pass_over_interrupts)
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
            for guard in guards:
                guard.cancel()
            self._greeting.close()
            if not finished:  # at a normal end the parties close their streams themselves
                for stream in [*self._streams.values()]:
                    stream.close()
            await self._listener.stop()

    async def _end_for_all(self) -> None:
        """The training has failed here: tell everybody who is there, or comes back soon, that it does not go on."""
        self._has_failed = True
        for name, stream in self._streams.items():
            if not stream.ends:
                stream.part(Refused(self._failed()))
                self._told.add(name)
        patience = limits.PARTING_SECONDS if self.station is not None else 1.5 * limits.LONGEST_RETRY_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while (self._streams or self._may_come()) and not self._stop_requested():
                    await asyncio.sleep(0.02)
        if missed := self._may_come():
            log.warning(
                "%s could not be told within %.0f seconds that the training does not go on",
                ", ".join(sorted(missed)),
                patience,
            )

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

    async def _guard(self) -> None:
        """Look now and then at what no event tells of."""
        while True:
            await asyncio.sleep(limits.EXPIRY_CHECK_SECONDS)
            self._greeting.tell_of_refusals()
            self._drop_expired()
            if self.station is None:  # as after a fault of the disk
                self._begin_or_fail()

    def _drop_expired(self) -> None:
        """A stream does not outlive its certificate: the party must come again with a renewed one."""
        try:
            own = self._keys.read()
        except (ColonnadeError, OSError):
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
            present: list[Stream] = []
            for stream in self._streams.values():
                self._introduce(stream, present)
                present.append(stream)

    def _introduce(self, stream: Stream, others: Iterable[Stream]) -> None:
        """Let a party take part: tell it of everybody, and it and those others that they can reach one another."""
        assert self.station is not None and self._everybody is not None
        stream.post(say(self._everybody))
        self.station.connected(stream.peer)
        self._wake.set()
        if self._relay is not None:
            self._relay.introduce(stream, others)

    # --- one stream ---

    async def _serve(self, line: Line) -> None:
        """Whatever happens here, its caller is not to be told about it: the words may be about our machine."""
        self._greeting.stream_came()
        try:
            await self._attend(line)
        except (LineEndedError, UnreachableError):
            pass  # whoever called has gone
        except Exception:
            log.exception("a stream ended by a defect of Colonnade")
            await self._refuse(line, Refused(f"{self.name} could not go on with this stream.", final=False))

    async def _attend(self, line: Line) -> None:
        """A feature party's stream, from its Hello to its end."""
        name = "somebody"
        try:
            name = self._greeting.identify(line.certificate)
            with self._greeting.stream_of(name):
                hello = await self._greeting.hello(name, line)
                if hello.leaves:  # also for a party that has lost its run directory: its certificate is enough
                    self._leave(name)
                    await line.write(say(Left()))
                    return
                if self._has_failed:
                    self._told.add(name)
                    raise ProtocolError(self._failed())
                if self._is_expelled(name):
                    raise ProtocolError(f"{name} was expelled from this run.")
                welcome = self._greeting.welcome(name, line.certificate, hello, self._hellos.get(name))
                await self._keep(name, hello, welcome, line)
        except StreamLimitError as error:
            self.refusals += 1
            self._greeting.tell_of_fault("refused %s: %s", name, error)
            await asyncio.sleep(limits.HELLO_SECONDS)  # or it would come again at once
            await self._refuse(line, Refused(str(error), final=False))
        except (ProtocolError, TimeoutError) as error:
            self.refusals += 1
            sentence = plain(str(error)) or f"No Hello came within {limits.HELLO_SECONDS:.0f} seconds."
            log.warning("refused %s: %s", name, sentence)
            await self._refuse(line, Refused(sentence))
        except (SettingsError, OSError) as error:
            self._greeting.tell_of_fault("nobody can be let in: %s", error)
            certificate_fault = isinstance(error, SettingsError)
            what = "no valid certificate of its own" if certificate_fault else "a fault of its own machine"
            await self._refuse(line, Refused(f"{self.name} has {what} at the moment.", final=False))

    def _is_expelled(self, name: str) -> bool:
        return self.station is not None and name in self.station.expelled

    async def _refuse(self, line: Line, word: Refused) -> None:
        with suppress(LineEndedError):
            await line.write(say(word))

    async def _keep(self, name: str, hello: Hello, welcome: Welcome, line: Line) -> None:
        before = self._streams.pop(name, None)
        if before is not None:
            self._end(before)
            before.close()
        task = asyncio.current_task()
        assert task is not None
        stream = Stream(name, line, task.cancel)
        self._hellos[name] = hello
        self._certificates[name] = line.certificate
        if self._relay is not None:
            self._relay.comes(name)
        self._streams[name] = stream
        log.info("%s is connected", name)
        self._announce(stream, welcome)
        writer = asyncio.create_task(self._write(stream))
        line.take = partial(self._take_at_once, name)
        try:
            while (data := await line.read()) is not None:
                await self._room_for(name)
                await self._take(name, data)
        except ProtocolError as error:
            log.warning("the stream of %s is closed: %s", name, error)
            final = isinstance(error, ForgottenError) or self._is_expelled(name)
            stream.part(Refused(str(error), final))
            with suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(limits.PARTING_SECONDS):
                    await writer
        except asyncio.CancelledError:
            pass  # closed by this side: the party may come again
        finally:
            line.take = None
            writer.cancel()
            if self._streams.get(name) is stream:
                del self._streams[name]
                self._end(stream)

    def _announce(self, stream: Stream, welcome: Welcome) -> None:
        absent = tuple(sorted(self._parties - {*self._streams, self.name}))
        stream.post(say(Welcome(absent, welcome.certificate, welcome.signature)))
        if self.station is None:
            self._begin_or_fail()
        else:
            self._introduce(stream, [other for other in self._streams.values() if other is not stream])

    def _begin_or_fail(self) -> None:
        """Begin if everybody is there. A fault of the disk is tried again, any other ends this party's run."""
        try:
            self._try_to_begin()
        except OSError as error:
            self._greeting.tell_of_fault("the training cannot begin yet, which is tried again: %s", error)
        except ColonnadeError as error:
            self._failure = error
            self._wake.set()

    def _end(self, stream: Stream) -> None:
        log.info("%s is no longer connected", stream.peer)
        if self.station is not None:
            self.station.disconnected(stream.peer)
            self._wake.set()
        if self._relay is not None and self.station is not None:
            self._relay.goes(stream)

    def _introduced(self, name: str) -> Introduced:
        """A party's key, as the certificate that it came with last vouches for it."""
        return Introduced(self._certificates[name], self._hellos[name].sealing_key, self._hellos[name].signature)

    def _leave(self, name: str) -> None:
        log.warning("%s leaves for good", name)
        self._greeting.leave(name)
        if self.station is not None:
            self.station.leave(name)
            self._wake.set()
        stream = self._streams.pop(name, None)
        if stream is not None:
            self._end(stream)
            stream.close()

    async def _take(self, name: str, data: Heard) -> None:
        kind = data[0] if data else -1
        if kind == PACKETS and self.station is not None:
            await self._receive(self.station, name, memoryview(data)[1:])
            await self._room_for(name)
        elif kind == ENVELOPE and self._relay is not None and self.station is not None:
            if not await self._relay.pass_on(name, bytes(data)):
                await self._bear(name, limits.MESSAGE_SECONDS)
        elif kind == WORD and self._relay is not None and isinstance(word := heard(bytes(data)), Presence):
            # Whether envelopes are of any use their receiver alone can see.
            self._relay.refuse(name, word.name)
            await self._bear(name, limits.MESSAGE_SECONDS)
        else:
            raise ProtocolError("Something came that is neither packets nor an envelope.")

    # --- writing ---

    def _outgoing(self, stream: Stream) -> Iterator[bytes]:
        if self._relay is not None and self._streams.get(stream.peer) is stream:
            yield from self._relay.next_for(stream.peer)
        if self.station is not None and self._streams.get(stream.peer) is stream:
            yield from pieces(self.station.outgoing(stream.peer), bytes([PACKETS]))

    def _offer(self, station: Station) -> None:
        for name in station.to_tell():
            if (stream := self._streams.get(name)) is not None:
                self._write_soon(stream)

    def _all_written(self, station: Station) -> bool:
        relay = self._relay
        return not any(
            not one.is_clear or station.has_outgoing(name) or (relay is not None and relay.has_waiting(name))
            for name, one in self._streams.items()
        )

    def _waits_for(self) -> tuple[Collection[str], str]:
        station = self.station
        if station is not None and station.started:
            away = [] if station.finished else station.absent()
            return away, "Whoever it is has to start it again; if it will not come back: `colonnade leave`, there."
        here = self._streams if station is None else {*self._parties} - {*station.absent()}
        missing = sorted(self._parties - {*here, self.name})
        return missing, "It begins when all are there: start them. A training may begin without one, by --without."

    def _breach(self, peer: str, sentence: str) -> None:
        sentence = plain(sentence)
        log.warning("%s broke the protocol: %s", peer, sentence)
        stream = self._streams.get(peer)
        if stream is not None:
            stream.part(Refused(sentence))
            asyncio.get_running_loop().call_later(limits.PARTING_SECONDS, stream.close)
