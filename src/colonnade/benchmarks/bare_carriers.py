"""What a label party could do in real time if carrying messages cost nothing but what the system asks for it.

Its own step of the MNIST-shaped `vafl` with the codec, and between two steps the bare calls that no program which
survives its own death can leave out: wait, read the upload, checksum and write it to a file, send the reply. There is
no station, no numbers, no event loop, and nobody is waited for. So this bounds what `processes` and `network` reach on
the machine at hand with one thread a party, whatever the other cores do.
"""

import os
import select
import socket
import ssl
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from colonnade.algorithms.split_models.vafl import Vafl
from colonnade.algorithms.training import Training
from colonnade.benchmarks.mnist_shaped import BATCH, PARTIES, RATE, WIDTH, Simulated, Timed
from colonnade.data.federated import FederatedData
from colonnade.federation.building import build_parties
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.party import Event, Party, Received, Started
from colonnade.privacy.noise import PerturbationSettings
from colonnade.runtimes.driver import encoded
from colonnade.runtimes.network.tls_lines import tls_context
from colonnade.wire.authority import issue, make_authority
from colonnade.wire.certificates import read_credentials
from colonnade.wire.codec import decode

TURNS, EXCHANGES_A_TURN = 10, 200
_RECORD_BYTES = 1 << 14
_SCRATCH_BYTES = 1 << 18


class _Sockets:
    """A Unix socket in this process: its second end is the label party's."""

    def __init__(self) -> None:
        self.ends: tuple[socket.socket, ...] = socket.socketpair()
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))

    def send(self, end: int, frame: bytearray) -> None:
        self.ends[end].sendall(frame)

    def receive(self, end: int, size_bytes: int) -> bytearray:
        frame = bytearray()
        while len(frame) < size_bytes:
            frame += self._scratch[: self.ends[end].recv_into(self._scratch)]
        return frame


class _Tls:
    """The same with TLS 1.3 over loopback."""

    def __init__(self, folder: Path) -> None:
        make_authority(folder / "authority", "benchmark", 2)
        with socket.create_server(("127.0.0.1", 0)) as door:
            caller = socket.create_connection(door.getsockname())
            self.ends: tuple[socket.socket, ...] = caller, door.accept()[0]
        self._bios = [(ssl.MemoryBIO(), ssl.MemoryBIO()) for _ in self.ends]
        self._tls: list[ssl.SSLObject] = []
        for end, name in enumerate(("caller", "called")):
            self.ends[end].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            issue(folder / "authority", name, folder / name, [], 1)
            files = folder / name / f"{name}.key", folder / name / f"{name}.pem", folder / name / "authority.pem"
            context = tls_context(read_credentials(*files, None), server=end == 1)
            self._tls.append(context.wrap_bio(*self._bios[end], server_side=end == 1))
        for _ in range(4):
            for end in (0, 1):
                with suppress(ssl.SSLWantReadError):
                    self._tls[end].do_handshake()
                self._bios[1 - end][0].write(self._bios[end][1].read())
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))

    def send(self, end: int, frame: bytearray) -> None:
        for at in range(0, len(frame), _RECORD_BYTES):
            self._tls[end].write(memoryview(frame)[at : at + _RECORD_BYTES])
        self.ends[end].sendall(self._bios[end][1].read())

    def receive(self, end: int, size_bytes: int) -> bytearray:
        frame, filled = bytearray(size_bytes), 0
        read: Any = self._tls[end].read  # its type forgets this form
        while filled < size_bytes:
            self._bios[end][0].write(self._scratch[: self.ends[end].recv_into(self._scratch)])
            with suppress(ssl.SSLWantReadError):
                while filled < size_bytes:
                    filled += read(size_bytes - filled, memoryview(frame)[filled:])
        return frame


class _Bare:
    """The label party and its feature parties in one process, with a journal, over one of these."""

    def __init__(self, data: FederatedData, carrier: _Sockets | _Tls, journal: int) -> None:
        training = Training(epochs=1000, batch_size=BATCH, learning_rate=RATE, optimiser="sgd", evaluate_every_epochs=0)
        models = BottomSettings(embedding=WIDTH, hidden=()), TopSettings(hidden=(128,))
        self._parties: dict[str, Party] = dict(
            build_parties(data, Vafl(), training, PerturbationSettings(), *models, seed=0)
        )
        self._label = self._parties.pop(data.label_party)
        self._carrier, self._journal = carrier, journal
        self._poll = select.epoll()
        self._poll.register(carrier.ends[1], select.EPOLLIN)
        self._label.handle(Started(0.0))
        self._uploads = {name: _frame_of(party, Started(0.0)) for name, party in self._parties.items()}

    def seconds(self) -> list[float]:
        """What each exchange of a turn took the label party."""
        taken = []
        for _ in range(EXCHANGES_A_TURN // PARTIES):
            for name, party in self._parties.items():
                upload = self._uploads[name]
                self._carrier.send(0, upload)
                began = time.perf_counter()
                self._poll.poll()
                frame = self._carrier.receive(1, len(upload))
                reply = _frame_of(self._label, Received(0.0, name, decode(frame)))
                os.writev(self._journal, [crc32(frame).to_bytes(4, "little"), frame])
                self._carrier.send(1, reply)
                taken.append(time.perf_counter() - began)
                answer = self._carrier.receive(0, len(reply))
                self._uploads[name] = _frame_of(party, Received(0.0, "label", decode(answer)))
        os.ftruncate(self._journal, 0)
        return taken


def _frame_of(party: Party, event: Event) -> bytearray:
    return next(frame for _, frame in encoded(party.handle(event)) if frame is not None)


def bare_over_alone(data: FederatedData) -> dict[str, float]:
    """The label party's rate so, over that of its step alone: of the quick quarter of both, so that what else this
    machine does decides little."""
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as name:
        folder = Path(name)
        journal = os.open(folder / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            simulated = Simulated(data, Vafl())
            sides = {"sockets": _Bare(data, _Sockets(), journal), "tls": _Bare(data, _Tls(folder), journal)}
            for begin in (simulated.turn, *(side.seconds for side in sides.values())):
                begin()  # once, not counted
            alone = Timed(simulated.label_seat())
            taken: dict[str, list[float]] = {side: [] for side in sides}
            for _ in range(TURNS):
                simulated.turn()
                for side, bare in sides.items():
                    taken[side] += bare.seconds()
        finally:
            os.close(journal)
    own = float(np.quantile(alone.taken, 0.25))
    return {f"bare_{side}_over_in_process": own / float(np.quantile(taken[side], 0.25)) for side in sides}
