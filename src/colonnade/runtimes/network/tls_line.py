"""A line over TLS 1.3 and one socket: messages with their length before them, in the thread of the event loop.

Everything happens when the socket is ready: what has come is deciphered and handed on in the same step, and what is
said goes out in the same step if the socket takes it. So a message costs one call of the system, and nobody waits for
a thread or another turn of the loop. Of a message that is not whole, what has come is kept, and not what it claims.

A message is its length (4 bytes, little-endian) and so many bytes. A length of 0 says that no more will be said.
"""

import asyncio
import fcntl
import socket
import ssl
import struct
import termios
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from colonnade.errors import ProtocolError
from colonnade.runtimes.network import limits
from colonnade.runtimes.network.line import Heard, Line, LineEndedError, UnreachableError

_LENGTH = struct.Struct("<I")
_THE_END = _LENGTH.pack(0)
_CIPHERED_AT_ONCE = 1 << 18
"""More is not enciphered before the socket has taken what was."""
_READ_AT_ONCE = 1 << 18


class _Scratch(threading.local):
    """Where what a socket has is put first: one for all lines of a thread."""

    def __init__(self) -> None:
        self.room = memoryview(bytearray(_READ_AT_ONCE))


_scratch = _Scratch()
_WOULD_BLOCK = (BlockingIOError, InterruptedError)


class TlsLine(Line):
    """One connection: first `shake_hands`, then messages."""

    is_direct = True
    has_heard = False  # whether any message has come

    def __init__(self, link: socket.socket, context: ssl.SSLContext, server: bool, name: str | None = None) -> None:
        link.setblocking(False)
        _tune(link)
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server, server_hostname=name)
        self._read_into: Callable[[int, memoryview], int] = cast(Any, self._tls.read)  # its type forgets this form
        self._longest = limits.LARGEST_HELLO_BYTES
        self._head = bytearray(_LENGTH.size)
        self._body = bytearray()
        self._length = -1  # of the message that is coming; before that is known, -1
        self._filled = 0  # of head or body
        self._heard: deque[Heard] = deque()  # whole, for `read`
        self._reader: asyncio.Future[None] | None = None  # who waits for a message
        self._failure: Exception | None = None  # which the reader is told
        self._break: UnreachableError | None = None  # the same, after what came before it
        self._has_ended = False  # the other side says no more
        self._listens = False  # to the socket
        self._rests = False  # as `take` asked
        self._unsaid: deque[memoryview] = deque()  # not enciphered yet
        self._unsent = memoryview(b"")  # enciphered, and not taken by the socket
        self._writers: deque[asyncio.Future[None]] = deque()  # who wait for room
        self._is_closed = False
        self.explained: Callable[[str], UnreachableError] = UnreachableError
        self._loop.call_later(limits.KEEPALIVE_PATIENCE_SECONDS, self._look)

    # --- the beginning ---

    async def shake_hands(self) -> None:
        """To the end of the handshake, with the other side's certificate. An ssl.SSLError or OSError if it fails."""
        while True:
            try:
                self._tls.do_handshake()
                await self._send_all()
                break
            except ssl.SSLWantReadError:
                await self._send_all()
                data = await self._loop.sock_recv(self._link, 1 << 14)
                if not data:
                    raise ConnectionResetError("The connection was closed.") from None
                self._incoming.write(data)
            except ssl.SSLError:
                with suppress(OSError):
                    await self._send_all()  # why not, in TLS's own words
                raise
        shown = self._tls.getpeercert(binary_form=True)
        self.certificate = ssl.DER_cert_to_PEM_cert(shown).encode() if shown else b""

    async def _send_all(self) -> None:
        if said := self._outgoing.read():
            await self._loop.sock_sendall(self._link, said)

    @property
    def protocol(self) -> str | None:
        """What both sides are going to speak, as TLS has settled it."""
        return self._tls.selected_alpn_protocol()

    async def say_raw(self, data: bytes) -> None:
        """Bytes that are no message, to somebody who speaks another language."""
        self._tls.write(data)
        await self._send_all()

    def greeted(self) -> None:
        self._longest = limits.LARGEST_PIECE_BYTES

    # --- hearing ---

    async def read(self) -> Heard | None:
        while not self._heard:
            if self._failure is not None:
                raise self._failure
            if self._has_ended or self._is_closed:
                return None
            self._reader = self._loop.create_future()
            try:
                self._hear(b"")  # what came together with what was taken last
                if self._reader is not None and not self._reader.done():
                    self._listen()
                    await self._reader
            except BaseException:  # such as a time that is up
                self._pause()
                raise
            finally:
                self._reader = None
        return self._heard.popleft()

    def _listen(self) -> None:
        if not self._listens and not self._is_closed and not self._rests:
            self._listens = True
            self._loop.add_reader(self._link, self._on_readable)

    def _pause(self) -> None:
        if self._listens:
            self._listens = False
            self._loop.remove_reader(self._link)

    def _on_readable(self) -> None:
        try:
            size = self._link.recv_into(_scratch.room)
        except _WOULD_BLOCK:
            return
        except OSError as error:
            self._fail(self.explained(f"the connection broke: {error.strerror or error}"))
            return
        if size:
            self._hear(_scratch.room[:size])
        else:
            self._hang_up()

    def _hear(self, data: bytes | memoryview) -> None:
        """Decipher, and hand on what is whole: to whoever takes it at once, else to the reader, who is then busy."""
        try:
            if data:
                self._incoming.write(data)
            while self._reader is not None and not self._reader.done() and not self._rests:
                if not (self._incoming.pending or self._tls.pending()):
                    return  # sooner told than by an exception
                message = self._next_message()
                if message is None:
                    return
                if not self._is_taken(message):
                    self._heard.append(message)
                    self._wake_reader()
        except ssl.SSLWantReadError:
            return
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._hang_up()
        except Exception as error:  # of TLS, or of who takes: the reader's to judge
            self._fail(error)

    def _is_taken(self, message: Heard) -> bool:
        rest = None if self.take is None else self.take(message)
        if rest:
            self._rests = True
            self._pause()
            self._loop.call_later(rest, self._go_on)
        return rest is not None

    def _go_on(self) -> None:
        self._rests = False
        if self._reader is not None and not self._reader.done():
            self._hear(b"")
            if self._reader is not None and not self._reader.done():
                self._listen()

    def _next_message(self) -> Heard | None:
        """The next that is whole; None at the end. ssl.SSLWantReadError: more must come first."""
        if self._length < 0:
            while self._filled < _LENGTH.size:
                self._filled += self._decipher(memoryview(self._head)[self._filled :])
            (length,) = _LENGTH.unpack(self._head)
            if not length:
                self._end()
                return None
            if length > self._longest:
                raise ProtocolError(f"A message of {length} bytes came; {self._longest} are the most.")
            self._length, self._filled = length, 0
            self._body = bytearray(min(length, limits.SLICE_BYTES))
        while self._filled < self._length:
            if self._filled == len(self._body):
                self._body += bytes(min(self._length, 2 * len(self._body)) - len(self._body))
            self._filled += self._decipher(memoryview(self._body)[self._filled :])
        self.has_heard = True
        message, self._body = self._body, bytearray()
        self._length, self._filled = -1, 0
        return message

    def _decipher(self, room: memoryview) -> int:
        if size := self._read_into(len(room), room):
            return size
        raise ssl.SSLZeroReturnError  # the other side has ended TLS, which Python says by reading nothing

    def _hang_up(self) -> None:
        """The other side has, without a last word."""
        if self._break is not None:
            self._fail(self._break)
        elif self.has_heard:
            self._end()
        else:
            self._fail(self.explained("the connection was closed"))

    def _end(self) -> None:
        self._has_ended = True
        self._wake_reader()

    def _fail(self, error: Exception) -> None:
        if isinstance(error, ssl.SSLError):
            error = self.explained(f"TLS ended: {said_by_tls(error)}")
        if self._failure is None:
            self._failure = error
        self._wake_reader()
        self._wake_writers()

    def _wake_reader(self) -> None:
        self._pause()
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # --- saying ---

    @property
    def is_clear(self) -> bool:
        return not self._unsaid and not self._unsent

    def put(self, message: bytes) -> None:
        self._unsaid.append(memoryview(_LENGTH.pack(len(message)) + message))  # in one record of TLS, if it is short
        if not self._unsent:
            self._send()

    async def write(self, message: bytes) -> None:
        while not self.is_clear:
            self._check_open()
            room = self._loop.create_future()
            self._writers.append(room)
            await room
        self._check_open()
        self.put(message)
        self._check_open()

    def _check_open(self) -> None:
        # Who broke a rule can still be told so.
        if self._is_closed or self._break is not None or isinstance(self._failure, UnreachableError):
            raise LineEndedError

    def _send(self) -> None:
        """As much as the socket takes, a few records at a time; the rest when it takes more."""
        try:
            while True:
                if not self._unsent:
                    self._encipher()
                    self._unsent = memoryview(self._outgoing.read())
                    if not self._unsent:
                        break
                sent = self._link.send(self._unsent)
                self._unsent = self._unsent[sent:]
                if self._unsent:
                    self._loop.add_writer(self._link, self._on_writable)
                    return
        except _WOULD_BLOCK:
            self._loop.add_writer(self._link, self._on_writable)
            return
        except (OSError, ssl.SSLError) as error:
            if not self._is_closed:
                self._loop.remove_writer(self._link)
            self._unsaid.clear()
            self._unsent = memoryview(b"")
            self._break = UnreachableError(f"the connection broke: {error.strerror or error}")
            with suppress(OSError):  # so that the reader comes to an end, after what has arrived: perhaps it tells why
                self._link.shutdown(socket.SHUT_RDWR)
        self._wake_writers()

    def _encipher(self) -> None:
        while self._unsaid and self._outgoing.pending < _CIPHERED_AT_ONCE:
            part = self._unsaid[0][: 1 << 14]
            written = self._tls.write(part)
            if written < len(self._unsaid[0]):
                self._unsaid[0] = self._unsaid[0][written:]
            else:
                self._unsaid.popleft()

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._link)
        self._send()

    def _wake_writers(self) -> None:
        while self._writers:
            room = self._writers.popleft()
            if not room.done():
                room.set_result(None)

    # --- the end ---

    async def conclude(self) -> None:
        self._check_open()
        self._unsaid.append(memoryview(_THE_END))
        if not self._unsent:
            self._send()
        while not self.is_clear:
            self._check_open()
            room = self._loop.create_future()
            self._writers.append(room)
            await room

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._pause()
        self._loop.remove_writer(self._link)
        self._link.close()
        self._unsaid.clear()
        self._unsent = memoryview(b"")
        self._wake_reader()
        self._wake_writers()

    async def part(self, concludes: bool = True) -> None:
        """Close, once the other side has heard what was said; what it still says is thrown away meanwhile.

        A socket that is closed with something unread tells its other end of a fault, which then forgets what came.
        """
        self.take = None
        try:
            if concludes:
                async with asyncio.timeout(limits.PARTING_SECONDS):
                    await self.conclude()
            self._pause()
            self._link.shutdown(socket.SHUT_WR)
            left = limits.LARGEST_PIECE_BYTES
            async with asyncio.timeout(limits.LAST_WORD_SECONDS):
                while left > 0 and (data := await self._loop.sock_recv(self._link, 1 << 16)):
                    left -= len(data)
        except (OSError, LineEndedError):  # such as time that is up
            pass
        finally:
            self.close()

    def _look(self) -> None:
        """Now and then: is the other machine still there?"""
        if self._is_closed:
            return
        self._loop.call_later(limits.KEEPALIVE_PATIENCE_SECONDS, self._look)
        if self.is_dead():
            self._fail(UnreachableError("the other machine is silent"))

    def is_dead(self) -> bool:
        """Whether the other end's machine has confirmed nothing for too long, though something is on its way to it.

        While nothing is, the kernel asks by itself. So it does while the other end has no room, but less and less
        often: there a silence is none before it has asked twice in vain.
        """
        try:
            waits = fcntl.ioctl(self._link, termios.TIOCOUTQ, bytes(4))
            asked, under_way, silent_milliseconds = _SILENCE.unpack(
                self._link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SILENCE.size)
            )
        except (OSError, AttributeError, struct.error):  # not on every system: there the kernel's own patience holds
            return False
        most = 1000 * (limits.KEEPALIVE_SECONDS + limits.KEEPALIVE_PATIENCE_SECONDS)
        return any(waits) and (under_way > 0 or asked > 1) and bool(silent_milliseconds > most)


# Of Linux's struct tcp_info the numbers `tcpi_probes`, `tcpi_unacked` and `tcpi_last_ack_recv`.
_SILENCE = struct.Struct("=3xB20xI28xI")


def _tune(link: socket.socket) -> None:
    """Small words go at once; and the kernel asks now and then whether the other machine is still there."""
    for level, option, value in (
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", max(1, round(limits.KEEPALIVE_SECONDS))),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", max(1, round(limits.KEEPALIVE_PATIENCE_SECONDS / 2))),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 2),
    ):
        with suppress(OSError, AttributeError):  # not on every system
            link.setsockopt(level, getattr(socket, option), value)


def said_by_tls(error: ssl.SSLError) -> str:
    """TLS's own word for what went wrong."""
    return str(error.reason or error.strerror or error).lower().replace("_", " ")
