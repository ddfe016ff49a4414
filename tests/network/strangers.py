"""Those who mean harm, as tests need them: a caller at the label party's door, and a label party that is none.

Both speak the protocol's own bytes and can say anything at any point of it.
"""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from parties import LABEL, Organisation
from tls_caller import OURS, TlsCaller, show

from colonnade.federation.file import read_federation
from colonnade.federation.party_file import read_party_file
from colonnade.launch.join import NetworkLaunch, TrainingMeeting
from colonnade.launch.participant import Participant
from colonnade.launch.party_directory import PartyDirectory
from colonnade.launch.run_options import RunOptions
from colonnade.messages import Message
from colonnade.runtimes.network.guest import Guest
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
        self._call = TlsCaller.calling(port, authority, certificate, key)

    @classmethod
    def like(cls, one: Organisation, port: int | None = None) -> "Caller":
        own = one.credentials()
        listen = str(one.own["party"]["listen"]).rpartition(":")[2]
        return cls(port or int(listen), own.key_pem, own.certificate_pem, own.authority_pem)

    def say(self, *words: bytes) -> None:
        self._call.say(*words)

    def packets(self, *parts: bytes | bytearray) -> None:
        self.say(bytes([PACKETS]) + b"".join(parts))

    def hear(self) -> bytes | None:
        """The next thing said; None when the stream has ended, however."""
        return self._call.hear()

    def failure(self) -> str:
        """How the stream ended, in TLS's words."""
        while self.hear() is not None:
            pass
        return self._call.ending

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
        self._call.close()


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
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_verify_locations(cadata=own.authority_pem.decode())
        self._context.set_alpn_protocols([OURS])
        show(self._context, own.certificate_pem, own.key_pem)
        self._listener = socket.create_server(("127.0.0.1", port))
        self._links: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._listen)]
        self._threads[0].start()

    def _listen(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            self._links.append(link)
            self._threads.append(threading.Thread(target=self._serve, args=(link,)))
            self._threads[-1].start()

    def _serve(self, link: socket.socket) -> None:
        link.settimeout(PATIENCE_SECONDS)
        with link, suppress(OSError), self._context.wrap_socket(link, server_side=True) as secure:
            self._links.append(secure)
            line = TlsCaller(secure)
            if (hello := line.hear()) is None:
                return
            self.calls += 1
            conversation = Conversation(hello)
            self._script(conversation)
            line.say(*conversation.said)
            while conversation.stays and (data := line.hear()) is not None:
                conversation.heard.append(data)
            line.say(b"")  # the end

    def close(self) -> None:
        for link in (self._listener, *self._links):
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            if link is self._listener:
                link.close()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)


class Conversation:
    """One call of a guest at a fake label party."""

    def __init__(self, hello: bytes) -> None:
        self.hello = heard(hello)
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
