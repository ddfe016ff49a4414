"""The stranger's kit: everything that can come to the label party's port, from raw bytes to a good certificate.

Also a door to try it on: the label party's end of the network in this process, with nobody behind it. It lets in whom
its certificates say and begins no training.
"""

import asyncio
import queue
import socket
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import grpc
from tls_caller import TlsCaller

from colonnade.runtimes.network.carrier import Keys
from colonnade.runtimes.network.carriers import dialler, listener
from colonnade.runtimes.network.grpc_lines import METHOD, SERVICE
from colonnade.runtimes.network.guest import Guest
from colonnade.runtimes.network.host import Host
from colonnade.runtimes.station import Station
from colonnade.wire.authority import issue, make_authority
from colonnade.wire.certificates import CredentialFiles, Credentials
from colonnade.wire.handshake import PROTOCOL, VERSION, WORD, Hello, Refused, Welcome, heard, say
from colonnade.wire.sealing import SealingKey, sign_introduction

LABEL, PARTIES = "label", ("shop", "clinic")
DIGEST = "a federation"
PATIENCE_SECONDS = 30.0


# --- from nothing to TLS ------------------------------------------------------------------------------------------


def connect(port: int) -> socket.socket:
    """A connection over which nothing is said."""
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)


def first_words_of_tls() -> bytes:
    """What a client of TLS says first, whoever it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=LABEL).do_handshake()
    return outgoing.read()


def through_tls(port: int, authority: Path, certificate: Path | None = None, key: Path | None = None) -> bytes:
    """Shake hands as far as TLS goes, then speak no HTTP/2. What is heard until the connection ends."""
    context = ssl.create_default_context(cafile=str(authority))
    context.set_alpn_protocols(["h2"])
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    said = b""
    link = connect(port)
    with link, suppress(OSError), context.wrap_socket(link, server_hostname=LABEL) as secure:
        secure.sendall(b"no word of HTTP/2\r\n\r\n")  # an OSError: refused, by an alert or by closing the connection
        while data := secure.recv(1 << 16):
            said += data
    return said


# --- with a certificate -------------------------------------------------------------------------------------------


class Caller(ABC):
    """A stream to the label party with somebody's certificate."""

    @abstractmethod
    def say(self, *words: bytes) -> None: ...

    @abstractmethod
    def listen(self) -> bytes | None:
        """The next message; None when the stream has ended."""

    @abstractmethod
    def details(self) -> str:
        """What a caller is told of how the stream ended."""

    @abstractmethod
    def close(self) -> None: ...

    def hear(self) -> Any:
        """The next word; None when the stream has ended."""
        data = self.listen()
        return None if data is None else heard(data)

    def refusal(self) -> Refused:
        while (word := self.hear()) is not None:
            if isinstance(word, Refused):
                return word
        raise AssertionError(f"the stream ended without a refusal: {self.details()}")

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class GrpcCaller(Caller):
    """Over gRPC."""

    def __init__(self, port: int, own: Credentials) -> None:
        credentials = grpc.ssl_channel_credentials(own.authority_pem, own.key_pem, own.certificate_pem)
        options = [("grpc.ssl_target_name_override", LABEL), ("grpc.enable_retries", 0)]
        self._channel = grpc.secure_channel(f"127.0.0.1:{port}", credentials, options)
        self._words: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        stream = self._channel.stream_stream(f"/{SERVICE}/{METHOD}")
        self._call = stream(iter(self._words.get, None), timeout=PATIENCE_SECONDS)

    def say(self, *words: bytes) -> None:
        for word in words:
            self._words.put(word)

    def listen(self) -> bytes | None:
        try:
            return bytes(next(self._call))
        except (StopIteration, grpc.RpcError):
            return None

    def details(self) -> str:
        while self.hear() is not None:
            pass
        return str(self._call.details())

    def close(self) -> None:
        self._words.put(None)
        self._call.cancel()
        self._channel.close()


class TlsCall(Caller):
    """Over a socket with TLS."""

    def __init__(self, port: int, own: Credentials) -> None:
        self._call = TlsCaller.calling(port, own.authority_pem, own.certificate_pem, own.key_pem)

    def say(self, *words: bytes) -> None:
        self._call.say(*words)

    def listen(self) -> bytes | None:
        return self._call.hear()

    def details(self) -> str:
        while self.hear() is not None:
            pass
        return self._call.ending

    def close(self) -> None:
        self._call.close()


CALLERS: Mapping[str, Callable[[int, Credentials], Caller]] = {"tls": TlsCall, "grpc": GrpcCaller}


def hello(own: Credentials, sealing: SealingKey, **changes: Any) -> Hello:
    """A greeting as an honest party says it."""
    key = sealing.public_bytes()
    said: dict[str, Any] = {
        "protocol": PROTOCOL,
        "settings": "{}",
        "row_digest": "",
        "rows": 1,
        "test_rows": 1,
        "shape": (1,),
        "width": 1,
        "token": "a token",
        "sealing_key": key,
        "signature": sign_introduction(own, DIGEST, key),
        "nonce": bytes(16),
        "version": VERSION,
        **changes,
    }
    return Hello(**said)


NONSENSE: Mapping[str, bytes] = {
    "nothing": b"",
    "no word": b"nonsense",
    "no message": bytes([WORD]) + b"\xc1",
    "deep brackets": bytes([WORD]) + b"\x91" * 100_000,
    "a word of the label party's": say(Welcome((), b"", b"")),
    "a huge greeting": bytes([WORD]) + bytes(1 << 19),
}


# --- a door -------------------------------------------------------------------------------------------------------


class OpenDoor:
    """Lets in whoever has got so far; `admits` may say otherwise."""

    def __init__(self) -> None:
        self.admits: Callable[[str, Hello], None] = lambda name, hello: None

    def admit(self, name: str, hello: Hello) -> None:
        self.admits(name, hello)

    def leave(self, name: str) -> None:
        pass


class Place:
    """Certificates of a federation, and a label party that listens."""

    def __init__(self, folder: Path, carrier: str = "tls") -> None:
        self.folder = folder
        self.carrier = carrier
        self.authority = folder / "authority"
        make_authority(self.authority, "a test", 2)
        self.sealing = {name: SealingKey.generate() for name in (LABEL, *PARTIES)}
        for name in (LABEL, *PARTIES):
            issue(self.authority, name, folder / name, [], 1)
        self.door = OpenDoor()
        self.port = 0
        self.host: Host | None = None

    def files(self, name: str) -> CredentialFiles:
        folder = self.folder / name
        return CredentialFiles(folder / f"{name}.key", folder / f"{name}.pem", folder / "authority.pem", None)

    def caller(self, name: str) -> Caller:
        return CALLERS[self.carrier](self.port, self.files(name).read())

    def hello(self, name: str, **changes: Any) -> Hello:
        return hello(self.files(name).read(), self.sealing[name], **changes)

    def guest(self, name: str, carrier: str) -> Guest:
        """That party's own end, by a file that names a carrier."""
        return Guest(
            *(name, LABEL, dialler(carrier, f"127.0.0.1:{self.port}")),
            Keys(self.files(name).read, self.sealing[name], DIGEST),
            lambda nonce: self.hello(name, nonce=nonce, carrier=carrier),
            neighbours=(),
            begin=lambda roster: cast(Station, None),
            linger_seconds=1.0,
            stop_requested=lambda: False,
        )

    def greets(self, name: str) -> bool:
        """Whether a party that is who it says is let in now."""
        with self.caller(name) as caller:
            caller.say(say(self.hello(name)))
            return isinstance(caller.hear(), Welcome)

    @contextmanager
    def listening(self) -> Iterator["Place"]:
        """While this holds, the label party listens, in a thread of its own."""
        ends, ready = threading.Event(), threading.Event()
        keys = Keys(self.files(LABEL).read, self.sealing[LABEL], DIGEST)

        async def serve() -> None:
            self.host = Host(
                *(LABEL, PARTIES, keys, listener(self.carrier, "127.0.0.1:0"), self.door),
                relays=False,
                begin=lambda hellos: None,
                linger_seconds=1.0,
                stop_requested=ends.is_set,
            )
            await self.host.run(ready.set)

        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        try:
            assert ready.wait(PATIENCE_SECONDS)
            assert self.host is not None
            self.port = self.host.port
            yield self
        finally:
            ends.set()
            thread.join()
