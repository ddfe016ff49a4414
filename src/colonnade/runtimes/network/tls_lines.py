"""Lines over TLS 1.3: a socket that listens, and one that calls. Both sides show certificates of the common authority.

Keys go to OpenSSL without a file that anybody else could open. What is spoken is settled within TLS, so that who comes
with the other carrier is told so: a caller offers both, a caller of gRPC is answered in its own language.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from cryptography.hazmat.primitives.serialization import Encoding

from colonnade.runtimes.network import limits
from colonnade.runtimes.network.line import Dialler, Line, Listener, Porter, Serve, UnreachableError
from colonnade.runtimes.network.settings import parse_address
from colonnade.runtimes.network.tls_line import TlsLine, said_by_tls
from colonnade.wire.certificate_files import certificates_of
from colonnade.wire.certificates import Credentials, check_peer

log = logging.getLogger("colonnade.network")

OURS, GRPC = "colonnade/1", "h2"
_BACKLOG = 128
_ACCEPTED_AT_ONCE = 16
_NO_FILE_SECONDS = 0.5
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # such as ::1 of `localhost` where there is no IPv6


class TlsListener(Listener):
    """The label party's port: a socket of ours."""

    carrier = "tls"

    async def start(self, own: Credentials, porter: Porter, serve: Serve) -> int:
        self._loop = asyncio.get_running_loop()
        self._porter, self._serve = porter, serve
        self._shown, self._context = own, tls_context(own, server=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._most = limits.connections_at_once()
        self._sockets: list[socket.socket] = []
        try:
            await self._bind()
        except (OSError, UnicodeError):  # the latter of a name that cannot be one
            for one in self._sockets:
                one.close()
            return 0
        for one in self._sockets:
            self._loop.add_reader(one, self._accept, one)
        return int(self._sockets[0].getsockname()[1])

    async def _bind(self) -> None:
        """Listen at every address of this machine that the host's name stands for; OSError if one is taken, or none."""
        host, port = parse_address(self.address, "[party] listen", any_port=True)
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((family, address) for family, *_, address in found):
            both = family == socket.AF_INET6 and host == "::" and socket.has_dualstack_ipv6()
            place = (address[0], self._sockets[0].getsockname()[1] if self._sockets and not port else address[1])
            try:
                one = socket.create_server(place, family=family, backlog=_BACKLOG, dualstack_ipv6=both)
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                log.warning("%s stands for %s too, which is no address of this machine", host, address[0])
                continue
            one.setblocking(False)
            self._sockets.append(one)
        if not self._sockets:
            raise OSError(errno.EADDRNOTAVAIL, "no address of this machine")

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                link, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # such as no file left for it: what waits is taken later
                self._porter.tell_of_fault("a connection cannot be taken: %s", error)
                self._loop.remove_reader(listener)
                self._loop.call_later(_NO_FILE_SECONDS, self._listen_again, listener)
                return
            self._porter.knock()
            if len(self._tasks) >= self._most:
                link.close()
                continue
            task = self._loop.create_task(self._attend(link))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _listen_again(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._accept, listener)

    async def _attend(self, link: socket.socket) -> None:
        """One connection, from TLS to its end."""
        try:
            # Strangers decide how often, and files that are being renewed are waited for.
            context = await self._loop.run_in_executor(None, self._current_context)
            line = TlsLine(link, context, server=True)
        except BaseException as error:
            link.close()
            if not isinstance(error, OSError):
                raise
            self._porter.tell_of_fault("a connection cannot be taken: %s", error)
            return
        task = asyncio.current_task()
        assert task is not None
        try:
            async with asyncio.timeout(limits.HANDSHAKE_SECONDS):
                await line.shake_hands()
                if line.protocol == GRPC:
                    await line.say_raw(_FAREWELL)
        except (ssl.SSLError, OSError) as error:  # also: time is up
            log.debug("a connection ended within TLS: %s", error)
            await line.part(concludes=False)
            return
        except asyncio.CancelledError:
            line.close()
            raise
        if line.protocol == GRPC:
            await line.part(concludes=False)
            return
        try:
            await self._serve(line)
        except asyncio.CancelledError:
            line.close()
            raise
        await line.part()

    def _current_context(self) -> ssl.SSLContext:
        """As our files are now: a renewed certificate is in use without a restart. Called in several threads."""
        own = self._porter.own()
        if own is not None and own is not self._shown:
            self._shown, self._context = own, tls_context(own, server=True)
        return self._context

    async def stop(self) -> None:
        for one in self._sockets:
            self._loop.remove_reader(one)
            one.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=limits.CLOSING_SECONDS)
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class TlsDialler(Dialler):
    """A feature party's way to it: a socket of ours."""

    @asynccontextmanager
    async def line(self, own: Credentials, label_party: str) -> AsyncIterator[Line]:
        line = await self._open(own, label_party)
        try:
            yield line
        finally:
            line.close()

    async def _open(self, own: Credentials, label_party: str) -> TlsLine:
        link = await self._connect()
        try:
            line = TlsLine(link, tls_context(own, server=False), server=False, name=_as_host(label_party))
        except OSError as error:
            link.close()
            raise UnreachableError(error.strerror or str(error)) from None
        try:
            # The other side may be at a long piece of work, which its greeting would also wait for.
            async with asyncio.timeout(limits.WELCOME_SECONDS):
                await line.shake_hands()
            if line.protocol == GRPC:
                raise UnreachableError("it speaks gRPC", speaks="grpc")
            # The label party is who its certificate says, whatever host or address it is reached at.
            if check_peer(line.certificate, own.authority_pem, own.revoked) != label_party:
                raise self.stranger(label_party)
        except BaseException as error:
            line.close()
            if isinstance(error, ssl.SSLCertVerificationError):
                raise self.stranger(label_party) from None
            if isinstance(error, ssl.SSLError):
                raise UnreachableError(f"no TLS connection could be made: {said_by_tls(error)}") from None
            if isinstance(error, TimeoutError):
                raise UnreachableError("nothing was said within the time for a handshake") from None
            if isinstance(error, OSError):
                raise self.refused(own, label_party) from None
            raise
        line.explained = lambda said: UnreachableError(said) if line.has_heard else self.refused(own, label_party)
        return line

    async def _connect(self) -> socket.socket:
        host, port = parse_address(self.address, "[network] address")
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise UnreachableError(f"{host} is not known here: {getattr(error, 'strerror', '') or error}") from None
        said = "it has no address"
        for family, kind, number, _, address in found:
            link = socket.socket(family, kind, number)
            link.setblocking(False)
            try:
                async with asyncio.timeout(limits.HANDSHAKE_SECONDS):
                    await loop.sock_connect(link, address)
            except TimeoutError:
                link.close()
                said = f"nothing answers within {limits.HANDSHAKE_SECONDS:.0f} seconds"
            except OSError as error:
                link.close()
                said = error.strerror or str(error)
            except BaseException:
                link.close()
                raise
            else:
                return link
        raise UnreachableError(said)


# --- what OpenSSL is told -----------------------------------------------------------------------------------------


def tls_context(own: Credentials, server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # parties' names are compared here: not all of them are names of hosts
    context.verify_mode = ssl.CERT_REQUIRED
    authorities = certificates_of(own.authority_pem, "the authority's certificate")  # words beside them left out
    context.load_verify_locations(cadata=b"".join(one.public_bytes(Encoding.DER) for one in authorities))
    with _as_file(own.key_pem + b"\n" + own.certificate_pem) as path:
        context.load_cert_chain(path)
    context.set_alpn_protocols([OURS, GRPC])
    if server:
        context.num_tickets = 0  # every connection shows its certificate
    return context


@contextmanager
def _as_file(secret: bytes) -> Iterator[str]:
    """A file for OpenSSL, which takes keys from nowhere else: in memory, or its owner's alone for a moment."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("key")
        try:
            os.write(handle, secret)
            yield f"/proc/self/fd/{handle}"
        finally:
            os.close(handle)
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(secret)
        file.flush()
        yield file.name


def _as_host(name: str) -> str | None:
    """What a proxy may route by, if the name can be a host's."""
    with suppress(UnicodeError):
        name.encode("idna")
        return name
    return None


def _http_frame(kind: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind]) + bytes(5) + body


# To who speaks HTTP/2: its settings (kind 4), and that it is to go away (kind 7) and why.
_FAREWELL = _http_frame(4, b"") + _http_frame(7, bytes(8) + limits.OTHER_CARRIER.encode())
