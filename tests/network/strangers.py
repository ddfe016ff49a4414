"""Those who mean harm, as tests need them: a caller at the label party's door, and a label party that is none.

Both speak the protocol's own bytes and can say anything at any point of it.
"""

import queue
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import msgspec
from parties import LABEL, Organisation

from colonnade.federation.file import read_federation
from colonnade.federation.party_file import read_party_file
from colonnade.launch.join import NetworkLaunch, TrainingMeeting
from colonnade.launch.participant import Participant
from colonnade.launch.party_directory import PartyDirectory
from colonnade.launch.run_options import RunOptions
from colonnade.messages import Message
from colonnade.runtimes.network.guest import Guest
from colonnade.runtimes.network.stream import METHOD, SERVICE
from colonnade.runtimes.recorder import Recorder
from colonnade.wire.codec import encode
from colonnade.wire.handshake import PACKETS, WORD, Hello, Refused, Roster, Welcome, heard, say, sign_welcome
from colonnade.wire.packets import FRAME, RESUME, header

NONCE = bytes(16)
PATIENCE_SECONDS = 30.0


def membership_of(one: Organisation, out: Path | None = None) -> Participant:
    own = read_party_file(one.folder / "party.toml")
    return Participant(read_federation(one.folder / "federation.toml"), own, out or one.folder / "elsewhere")


def guest_of(one: Organisation, out: Path | None = None) -> Guest:
    """What that party's own program would say, for somebody who has its files."""
    participant = membership_of(one, out)
    return NetworkLaunch(participant, TrainingMeeting(participant)).guest(
        PartyDirectory(participant), Recorder(LABEL), RunOptions()
    )


def hello_of(one: Organisation, out: Path | None = None, **changes: Any) -> Hello:
    return msgspec.structs.replace(guest_of(one, out)._hello(NONCE), **changes)


class Caller:
    """A stream to the label party, with the certificate of one's choice."""

    def __init__(self, port: int, key: bytes | None, certificate: bytes | None, authority: bytes) -> None:
        credentials = grpc.ssl_channel_credentials(authority, key, certificate)
        options = [("grpc.ssl_target_name_override", LABEL), ("grpc.enable_retries", 0)]
        self._channel = grpc.secure_channel(f"127.0.0.1:{port}", credentials, options)
        self._words: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        connect = self._channel.stream_stream(f"/{SERVICE}/{METHOD}")
        self._call = connect(iter(self._words.get, None), timeout=PATIENCE_SECONDS)

    @classmethod
    def like(cls, one: Organisation, port: int | None = None) -> "Caller":
        own = one.credentials()
        listen = str(one.own["party"]["listen"]).rpartition(":")[2]
        return cls(port or int(listen), own.key_pem, own.certificate_pem, own.authority_pem)

    def say(self, *words: bytes) -> None:
        for word in words:
            self._words.put(word)

    def packets(self, *parts: bytes | bytearray) -> None:
        self.say(bytes([PACKETS]) + b"".join(parts))

    def hear(self) -> bytes | None:
        """The next thing said; None when the stream has ended, however."""
        try:
            return bytes(next(self._call))
        except (StopIteration, grpc.RpcError):
            return None

    def failure(self) -> str:
        """How the stream ended, in gRPC's words."""
        while self.hear() is not None:
            pass
        return f"{self._call.code()}: {self._call.details()}"

    def refusal(self) -> str:
        """The sentence with which the label party ends the stream, or nothing if it ends without one."""
        while (data := self.hear()) is not None:
            if data[:1] == bytes([WORD]) and isinstance(word := heard(data), Refused):
                return word.sentence
        return ""

    def enter(self, hello: Hello) -> Welcome:
        """Be let in."""
        self.say(say(hello))
        data = self.hear()
        assert data is not None
        word = heard(data)
        assert isinstance(word, Welcome), word
        return word

    def close(self) -> None:
        self._words.put(None)
        self._call.cancel()
        self._channel.close()


@contextmanager
def calling(one: Organisation) -> Iterator[Caller]:
    caller = Caller.like(one)
    try:
        yield caller
    finally:
        caller.close()


def frame(number: int, message: Message, acknowledged: int = 0) -> bytes:
    body = bytes(encode(message))
    return header(FRAME, number, acknowledged, len(body)) + body


def resume(held: int = 0, sent: int = 1 << 32) -> bytes:
    return header(RESUME, sent, held)


# --- a label party that is none ----------------------------------------------------------------------------------


class FakeLabelParty:
    """Answers at an address with a script, which is given the Hello and says what it likes."""

    def __init__(self, one: Organisation, port: int, script: Callable[["Conversation"], None]) -> None:
        own = one.credentials()
        self._script = script
        self.calls = 0
        self._server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        handler = grpc.stream_stream_rpc_method_handler(self._serve)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        credentials = grpc.ssl_server_credentials(
            [(own.key_pem, own.certificate_pem)], own.authority_pem, require_client_auth=True
        )
        assert self._server.add_secure_port(f"127.0.0.1:{port}", credentials) == port
        self._server.start()

    def _serve(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        self.calls += 1
        conversation = Conversation(requests)
        self._script(conversation)
        yield from conversation.said
        while conversation.stays and context.is_active():
            try:
                conversation.heard.append(next(requests))
            except (StopIteration, grpc.RpcError):
                return

    def close(self) -> None:
        self._server.stop(0).wait()


class Conversation:
    """One call of a guest at a fake label party."""

    def __init__(self, requests: Iterator[bytes]) -> None:
        self.hello = heard(next(requests))
        self.said: list[bytes] = []
        self.heard: list[bytes] = []
        self.stays = False  # whether the stream stays open after the script

    def say(self, *words: bytes) -> None:
        self.said.extend(words)


def welcome(label: Organisation, guest: Organisation, hello: Any, signer: Organisation | None = None) -> bytes:
    """What the true label party would answer, or somebody else would sign."""
    own = label.credentials()
    digest = membership_of(guest).digest
    signature = sign_welcome((signer or label).credentials(), digest, guest.name, hello.nonce)
    return say(Welcome((), own.certificate_pem, signature))


def roster(parties: Sequence[str], columns: int = 2, width: int = 16, **changes: Any) -> Roster:
    word = Roster("multiclass", 3, dict.fromkeys(parties, (columns,)), dict.fromkeys(parties, width))
    return msgspec.structs.replace(word, **changes)


@contextmanager
def plain_socket(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as link:
        yield link
