"""A feature party's end of the network: opens its stream to the label party, again and again if need be.

Nothing that answers is believed before it has shown the label party's certificate and signed our nonce. Our own files
may be renewed at any time: while they, or our disk, cannot be used, the party waits for them.
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NoReturn

from colonnade.errors import ColonnadeError, ProtocolError, RunError, SettingsError, plain
from colonnade.runtimes.delivery import ForgottenError
from colonnade.runtimes.network import limits
from colonnade.runtimes.network.carrier import Carrier, Keys, pass_over_interrupts
from colonnade.runtimes.network.carriers import dialler
from colonnade.runtimes.network.line import Dialler, Heard, Line, LineEndedError, UnreachableError
from colonnade.runtimes.network.relay import Neighbours, unwrap
from colonnade.runtimes.network.stream import Stream, pieces
from colonnade.runtimes.station import Station
from colonnade.wire.certificates import Credentials, check_peer
from colonnade.wire.handshake import (
    ENVELOPE,
    NONCE_BYTES,
    PACKETS,
    WORD,
    Hello,
    Introduced,
    Presence,
    Refused,
    Roster,
    Welcome,
    check_welcome,
    heard,
    say,
)

log = logging.getLogger("colonnade.network")


class _LocalFaultError(Exception):
    """Something of our own cannot be used at the moment: our certificate, which may be about to be renewed; a disk."""


class Guest(Carrier):
    """A feature party's end: opens its stream to the label party, again and again if need be."""

    def __init__(
        self,
        name: str,
        label_party: str,
        dialler: Dialler,
        keys: Keys,
        hello: Callable[[bytes], Hello],
        *,
        neighbours: Collection[str],
        begin: Callable[[Roster], Station],
        linger_seconds: float,
        stop_requested: Callable[[], bool],
    ) -> None:
        super().__init__(name, (label_party, *neighbours), linger_seconds, stop_requested)
        self._label_party = label_party
        self._dialler = dialler
        self._address = dialler.address
        self._keys = keys
        self._hello = hello
        self._begin = begin
        self._stream: Stream | None = None
        self._neighbours = Neighbours(name, keys)
        self._refused: str | None = None
        self._welcome: Welcome | None = None  # of the stream that is open
        self._outdated = ""  # why it is closed from here
        self._has_met = False  # whether the label party has ever answered as itself
        self._line: Line | None = None  # that is open
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
        asyncio.get_running_loop().set_exception_handler(pass_over_interrupts)
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
            await asyncio.sleep(limits.EXPIRY_CHECK_SECONDS)
            if self._welcome is None or self._line is None:
                continue
            try:
                own = self._keys.read()
            except (ColonnadeError, OSError):
                continue
            try:
                check_peer(self._welcome.certificate, own.authority_pem, own.revoked)
            except ProtocolError as error:
                self._outdated = str(error)
                self._line.close()

    async def _part(self, connecting: "asyncio.Task[None]") -> None:
        """End the stream so that everything written arrives: closing it at once would drop what is on its way."""
        self._parting = True
        if self._line is not None:
            with suppress(LineEndedError):
                try:
                    async with asyncio.timeout(limits.PARTING_SECONDS):
                        await self._line.conclude()
                        await asyncio.shield(connecting)
                except TimeoutError:
                    log.warning(
                        "%s has not closed the stream within %.0f seconds; it is closed here",
                        self._label_party,
                        limits.PARTING_SECONDS,
                    )

    async def leave(self) -> None:
        """Tell the label party that this party leaves for good."""
        try:
            try:
                data = await self._answer_to_leaving()
            except UnreachableError as error:
                if not error.speaks:
                    raise
                self._speak(error.speaks)
                data = await self._answer_to_leaving()
        except TimeoutError:
            raise RunError(
                f"{self._label_party} at {self._address} has not answered within {limits.WELCOME_SECONDS:.0f} "
                "seconds, so nobody knows whether it was told. Try again."
            ) from None
        except UnreachableError as error:
            raise RunError(
                f"{self._label_party} cannot be reached at {self._address}, so it was not told: {error}"
            ) from None
        if data is None:
            raise RunError(f"{self._label_party} at {self._address} ended the stream without an answer. Try again.")
        word = heard(bytes(data))
        if isinstance(word, Refused):
            raise RunError(f"{self._label_party} answered: {plain(word.sentence)}")

    async def _answer_to_leaving(self) -> Heard | None:
        async with self._dialler.line(self._own(), self._label_party) as line, asyncio.timeout(limits.WELCOME_SECONDS):
            with suppress(LineEndedError):  # reading tells why
                await line.write(say(self._hello(os.urandom(NONCE_BYTES))))
            return await line.read()

    def _speak(self, carrier: str) -> None:
        """The label party has another carrier: greet it in its own, and be refused with its sentence."""
        self._dialler = dialler(carrier, self._address)

    @contextmanager
    def _reading_own_files(self) -> Iterator[None]:
        """While this holds, files that will not do are waited for: when this process began, they did."""
        try:
            yield
        except (SettingsError, OSError) as error:
            raise _LocalFaultError(f"our certificate could not be re-read: {error}") from None

    def _own(self) -> Credentials:
        with self._reading_own_files():
            return self._keys.read()

    async def _stay_connected(self) -> None:
        wait = limits.FIRST_RETRY_SECONDS
        while True:
            began = time.monotonic()
            was_there = False
            try:
                await self._session()
                was_there = self._welcome is not None
            except _LocalFaultError as error:
                log.error("%s. It is tried again", str(error).removesuffix("."))
            except UnreachableError as error:
                was_there = self._welcome is not None
                if error.is_stranger and not self._has_met:
                    raise RunError(str(error)) from None  # later on somebody else may have the address for a while
                if error.speaks:
                    self._speak(error.speaks)
                log.warning("%s cannot be reached at %s: %s", self._label_party, self._address, error)
            except OSError as error:
                log.error("no connection can be made: %s. It is tried again", error)
            except ForgottenError as error:
                # The label party is believed in this: without it there is nothing to do here. Itself it only shuts out
                # a party that says so, for else every feature party could end it by a claim.
                raise RunError(str(error)) from None
            except ProtocolError as error:
                log.warning("the stream to %s is closed: %s", self._label_party, error)
            finally:
                self._line = self._welcome = None
                self._lose()
            if self._parting:
                return
            if self._refused is not None:
                raise RunError(f"{self._label_party} refused {self.name}: {self._refused}")
            # Only who refuses, or does not answer at all, is asked less and less often.
            if was_there or time.monotonic() - began > 10 * limits.FIRST_RETRY_SECONDS:
                wait = limits.FIRST_RETRY_SECONDS
            await asyncio.sleep(wait * self._jitter.uniform(0.5, 1.5))
            wait = min(2 * wait, limits.LONGEST_RETRY_SECONDS)

    async def _session(self) -> None:
        async with self._dialler.line(self._own(), self._label_party) as line:
            self._line = line
            nonce = os.urandom(NONCE_BYTES)
            with self._reading_own_files():
                hello = self._hello(nonce)
            stream = Stream(self._label_party, line, line.close)
            writer: asyncio.Task[None] | None = None
            try:
                data = await self._greeted(line, hello)
                while data is not None:
                    if self._welcome is None:
                        self._recognise(heard(bytes(data)), nonce)
                        line.greeted()
                    if writer is None and data[:1] == bytes([WORD]) and isinstance(heard(bytes(data)), Roster):
                        writer = asyncio.create_task(self._write(stream))
                    await self._take(stream, data)
                    line.take = partial(self._take_at_once, self._label_party)
                    data = await line.read()
                if self._outdated:
                    raise ProtocolError(self._outdated)
            finally:
                self._outdated = ""
                line.take = None
                if writer is not None:
                    writer.cancel()

    async def _greeted(self, line: Line, hello: Hello) -> Heard | None:
        """Say Hello; the first thing that is answered."""
        try:
            async with asyncio.timeout(limits.WELCOME_SECONDS):
                with suppress(LineEndedError):  # reading tells why
                    await line.write(say(hello))
                return await line.read()
        except TimeoutError:
            raise ProtocolError(
                f"{self._label_party} has not answered our greeting within {limits.WELCOME_SECONDS:.0f} seconds: it is "
                "at a long piece of work, or it hangs. It is greeted again."
            ) from None

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

    def _reached(self) -> tuple[str, ...]:
        """Whom this party has a connection to: the label party, and others through it."""
        return (self._label_party, *self._neighbours.generations)

    def _lose(self) -> None:
        self._stream = None
        if self.station is not None:
            for peer in self._reached():
                self.station.disconnected(peer)
            self._wake.set()
        self._neighbours.generations.clear()

    async def _take(self, stream: Stream, data: Heard) -> None:
        kind = data[0] if data else -1
        if kind == PACKETS and self.station is not None:
            await self._room_for(self._label_party)
            await self._receive(self.station, self._label_party, memoryview(data)[1:])
            await self._room_for(self._label_party)
        elif kind == ENVELOPE and self.station is not None:
            sender, generation, sealed = unwrap(bytes(data))
            if self._neighbours.generations.get(sender) != generation:
                return  # of an earlier connection
            try:
                # Who sent it has sealed it so, or who passed it on has spoilt it: either way these two go on alone.
                await self._receive(self.station, sender, self._neighbours.open(sender, sealed))
            except ProtocolError as error:
                self._breach(sender, str(error))
            await self._room_for(sender)
        else:
            self._hear(stream, heard(bytes(data)))

    async def _bear(self, peer: str, vain_seconds: float) -> None:
        if peer == self._label_party:
            await super()._bear(peer, vain_seconds)
        elif self._in_vain[peer].take(vain_seconds) > limits.NEIGHBOURLY_SECONDS:
            # Not to be waited for: what others send comes over the same stream.
            raise ProtocolError(f"{peer} sends too much that brings nothing new.")

    def _hear(self, stream: Stream, word: Any) -> None:
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
                    self.station = self._begun(word)
                self._stream = stream
                self.station.connected(self._label_party)
                self._write_soon(stream)  # what we hold, before what they hold may end this
            case Presence(name, generation, introduced):
                if self.station is None or name == self.name or name not in self.station.peers:
                    return
                self._hear_of(self.station, name, generation, introduced)
            case _:
                raise ProtocolError(f"{self._label_party} said {type(word).__name__}, which it may not here.")
        self._wake.set()

    def _begun(self, roster: Roster) -> Station:
        try:
            return self._begin(roster)
        except OSError as error:
            raise _LocalFaultError(f"this party cannot begin: {error}") from None

    def _hear_of(self, station: Station, name: str, generation: int, introduced: Introduced | None) -> None:
        """Another feature party has come, or gone (generation 0)."""
        if self._neighbours.generations.pop(name, 0):
            station.disconnected(name)
        if generation and introduced is not None and self._neighbours.meets(name, introduced, self._own()):
            self._neighbours.generations[name] = generation
            station.connected(name)

    # --- writing ---

    def _outgoing(self, stream: Stream) -> Iterator[bytes]:
        station, generations = self.station, self._neighbours.generations
        if station is None or self._stream is not stream:
            return
        # The others' first: the label party, who passes them on, may end when it has its own last word.
        for name, generation in [*generations.items()]:
            if generations.get(name) != generation or self._stream is not stream:
                continue  # since the last write: what is given out now belongs to another connection
            for piece in pieces(station.outgoing(name), b""):
                yield self._neighbours.seal(name, generation, piece)
        if self._stream is stream:
            yield from pieces(station.outgoing(self._label_party), bytes([PACKETS]))

    def _offer(self, station: Station) -> None:
        if self._stream is not None and (told := station.to_tell()) and not {*told}.isdisjoint(self._reached()):
            self._write_soon(self._stream)

    def _all_written(self, station: Station) -> bool:
        stream = self._stream
        return stream is None or (stream.is_clear and not any(map(station.has_outgoing, self._reached())))

    def _waits_for(self) -> tuple[Collection[str], str]:
        station = self.station
        if station is None and self._welcome is not None:
            return [self._label_party], "It begins when all parties are there; ask it for whom it waits."
        if station is not None and station.finished:
            return [], ""
        if self._welcome is None:
            return [self._label_party], f"It is called at {self._address} again and again; is it running?"
        return [] if station is None else station.absent(), "Whoever it is has to start it again."

    def _breach(self, peer: str, sentence: str) -> None:
        sentence = plain(sentence)
        if peer == self._label_party:  # without it there is nothing to do here
            raise RunError(f"{peer} broke the protocol: {sentence}")
        log.warning(
            "nothing more is taken from %s until it connects anew, for it broke the protocol: %s", peer, sentence
        )
        self._neighbours.generations.pop(peer, None)
        if self._stream is not None:
            self._stream.tell_of(peer, say(Presence(peer, 0)))  # so that no more of it is passed on
        if self.station is not None:
            self.station.disconnected(peer)
