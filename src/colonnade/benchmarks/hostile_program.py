"""The hostile side of the benchmark `hostile`: `python -m colonnade.benchmarks.hostile_program FOLDER PORT FLOOD`.

It says `ready` when the flood has begun, and goes on until it is killed. What is refused is tried again at once.
"""

import os
import queue
import resource
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from colonnade.federation.file import read_federation
from colonnade.federation.party_file import read_party_file
from colonnade.launch.join import NetworkLaunch, TrainingMeeting
from colonnade.launch.participant import Participant
from colonnade.launch.party_directory import PartyDirectory
from colonnade.launch.run_options import RunOptions
from colonnade.messages import EmbeddingUpload
from colonnade.models.bottom import BottomSettings
from colonnade.runtimes.network.tls_lines import tls_context
from colonnade.runtimes.recorder import Recorder
from colonnade.wire.codec import encode
from colonnade.wire.handshake import NONCE_BYTES, PACKETS, Hello, say
from colonnade.wire.packets import ACKNOWLEDGE, FRAME, RESUME, header

HOSTILE, LABEL = "party5", "label"
IDLE_CONNECTIONS = 1_500
PACKETS_A_WORD = 64
BATCH = 64


class Visitor:
    """A stream to the label party, with the hostile party's own certificate."""

    def __init__(self, folder: Path, port: int) -> None:
        own = read_party_file(folder / f"{HOSTILE}.toml")
        participant = Participant(read_federation(folder / "federation.toml"), own, folder / f"run-{HOSTILE}")
        launch = NetworkLaunch(participant, TrainingMeeting(participant))
        self._guest = launch.guest(PartyDirectory(participant), Recorder(LABEL), RunOptions())
        self._context = tls_context(participant.credentials(), server=False)
        self._port = port

    def hello(self) -> Hello:
        return self._guest._hello(os.urandom(NONCE_BYTES))

    def stream(self, words: Iterator[bytes]) -> None:
        """Say this on a stream of its own until it ends, however."""
        try:
            link = socket.create_connection(("127.0.0.1", self._port), timeout=10.0)
            with link, self._context.wrap_socket(link) as secure:
                for word in words:
                    secure.settimeout(10.0)
                    secure.sendall(len(word).to_bytes(4, "little") + word)
                    if not _hears(secure):
                        return
        except OSError:
            time.sleep(0.01)

    def repeating(self, packets: bytes) -> Iterator[bytes]:
        """Come in, and then the same packets for ever."""
        yield say(self.hello())
        time.sleep(0.3)  # its answers come meanwhile
        yield bytes([PACKETS]) + header(RESUME, 1 << 32, 0)
        while True:
            yield bytes([PACKETS]) + packets


def _hears(secure: ssl.SSLSocket) -> bool:
    """Take what has come, without a look at it; False: the other side has ended the stream."""
    secure.settimeout(0.0)
    with suppress(ssl.SSLWantReadError):
        while secure.recv(1 << 16):
            pass
        return False
    return True


def visit(folder: Path, port: int) -> None:
    """Come in, and say nothing."""
    visitor, silence = Visitor(folder, port), queue.SimpleQueue[bytes]()

    def words() -> Iterator[bytes]:
        yield say(visitor.hello())
        print("ready", flush=True)
        yield silence.get()

    visitor.stream(words())
    time.sleep(1e6)


def _repeat(folder: Path, port: int, packets: bytes) -> None:
    visitor = Visitor(folder, port)
    print("ready", flush=True)
    while True:
        visitor.stream(visitor.repeating(packets))


def replays(folder: Path, port: int) -> None:
    """A party's first upload, again and again."""
    rows = np.arange(BATCH, dtype=np.uint32)
    body = bytes(encode(EmbeddingUpload(1, rows, np.zeros((BATCH, BottomSettings().embedding), np.float32))))
    _repeat(folder, port, PACKETS_A_WORD * (header(FRAME, 1, 0, len(body)) + body))


def acknowledgements(folder: Path, port: int) -> None:
    _repeat(folder, port, PACKETS_A_WORD * header(ACKNOWLEDGE, 0, 0))


def greetings(folder: Path, port: int) -> None:
    """A new stream with a Hello as soon as the last has begun."""
    visitor = Visitor(folder, port)
    print("ready", flush=True)
    while True:
        visitor.stream(iter([say(visitor.hello())]))


def connections(folder: Path, port: int) -> None:
    """Connections without a word, as many as one thread can make."""
    print("ready", flush=True)
    while True:
        with socket.socket() as knocking:
            knocking.settimeout(1.0)
            try:
                knocking.connect(("127.0.0.1", port))
            except OSError:
                time.sleep(0.001)


def idle_connections(folder: Path, port: int) -> None:
    """Connections that are held, without a word; who is put out comes again."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print("ready", flush=True)
    held: list[socket.socket] = []
    while True:
        try:
            held.append(socket.create_connection(("127.0.0.1", port), timeout=1.0))
        except OSError:
            time.sleep(0.01)
        if len(held) > IDLE_CONNECTIONS:
            held.pop(0).close()
            time.sleep(0.01)


FLOODS = {flood.__name__: flood for flood in (replays, acknowledgements, greetings, connections, idle_connections)}

if __name__ == "__main__":
    os.nice(19)
    folder, port, flood = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    {**FLOODS, "visit": visit}[flood](folder, port)
