"""Unix sockets between the party processes of one machine: one connection per pair, one loop per party, no threads.

A party listens on NAME.sock in a folder that only its user may enter, and connects to the peers that come before it in
the common order; those after it connect to it. A connection begins with the connecting party's name. The loop
alternates between what has arrived and one turn of the station: a party is deaf only while it handles one event.
A socket's path must be short, so the folder is chosen here.
"""

import os
import random
import selectors
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from colonnade.errors import ProtocolError, RunError, SettingsError
from colonnade.runtimes.station import Station

LONGEST_PATH_BYTES = 103
"""Of a Unix socket's path: 107 on Linux, 103 elsewhere."""
_NAME_BYTES = 64
_LOOK_UP_SECONDS = 0.2  # a request to stop is noticed within this time
_FIRST_RETRY_SECONDS = 0.02
_LONGEST_RETRY_SECONDS = 0.5
_BUFFERS_PER_CALL = 64
_TURNS_PER_LOOK = 4  # while work waits, the sockets are looked at after so many turns


def socket_folder(parties: Iterable[str]) -> "tempfile.TemporaryDirectory[str]":
    """A new folder for these parties' sockets, which only this user may enter and which goes with its context.

    It is where temporary files are, unless the paths would be too long there: then directly under /tmp.
    """
    longest = max(len(_socket_path(Path(), name).name.encode()) for name in parties)
    places = [tempfile.gettempdir(), "/tmp"]
    for place in places:
        folder = tempfile.TemporaryDirectory(prefix="colonnade-", dir=place if Path(place).is_dir() else None)
        if len(os.fsencode(folder.name)) + 1 + longest <= LONGEST_PATH_BYTES:
            return folder
        folder.cleanup()
    raise SettingsError(
        f"The parties' sockets need paths of at most {LONGEST_PATH_BYTES} bytes, and neither {' nor '.join(places)} "
        "gives such: set TMPDIR to a folder with a short path, or give the parties shorter names."
    )


def _socket_path(folder: Path, party: str) -> Path:
    return folder / f"{party}.sock"


class _Connection:
    """A connected socket and what it could not take yet."""

    def __init__(self, peer: str, link: socket.socket) -> None:
        self.peer = peer
        self.link = link
        self.unsent: deque[memoryview] = deque()
        self.events = selectors.EVENT_READ


class SocketCarrier:
    """Carries one station's bytes until it has finished or is asked to stop."""

    def __init__(
        self,
        station: Station,
        order: Sequence[str],
        folder: Path,
        *,
        linger_seconds: float,
        stop_requested: Callable[[], bool],
        watch: Callable[[], None] = lambda: None,
        parent: int | None = None,
    ) -> None:
        self._station = station
        self._folder = folder
        self._linger_seconds = linger_seconds
        self._stop_requested = stop_requested
        self._watch = watch
        self._connections: dict[str, _Connection] = {}
        self._guests: dict[socket.socket, bytearray] = {}  # accepted, but nameless so far
        self._unread: dict[str, _Connection] = {}  # those that are not read from, for too much of theirs waits
        self._scratch = memoryview(bytearray(1 << 18))
        self._selector = selectors.DefaultSelector()
        self._jitter = random.Random()
        place = order.index(station.name)
        self._known = station.peers
        # Whom this party connects to: when to try again, and how long to wait after that.
        self._calls = {peer: (0.0, _FIRST_RETRY_SECONDS) for peer in order[:place] if peer in station.peers}
        self.parent_is_gone = False
        self._door = self._listen()
        self._selector.register(self._door, selectors.EVENT_READ, self._accept)
        if parent is not None:
            self._selector.register(parent, selectors.EVENT_READ, self._lose_parent)

    def _listen(self) -> socket.socket:
        path = _socket_path(self._folder, self._station.name)
        path.unlink(missing_ok=True)  # of this party's life before
        door = socket.socket(socket.AF_UNIX)
        door.setblocking(False)
        door.bind(str(path))
        door.listen(64)
        return door

    def run(self) -> bool:
        """True when the party has finished and its peers know; False when it was asked to stop."""
        station = self._station
        finished_at: float | None = None
        while True:
            if self._stop_requested() or self.parent_is_gone:
                return False
            if station.finished:
                finished_at = finished_at or time.monotonic()
                self._write_all()
                idle = not any(one.unsent for one in self._connections.values())
                if (station.settled() and idle) or time.monotonic() - finished_at > self._linger_seconds:
                    return True
            self._call_all()
            patience = min(station.idle_until() - station.clock(), _LOOK_UP_SECONDS)
            if self._calls.keys() - self._connections.keys():
                patience = min(patience, _FIRST_RETRY_SECONDS)
            for key, mask in self._selector.select(max(0.0, patience)):
                if isinstance(key.data, _Connection):
                    self._serve(key.data, mask)
                else:
                    key.data()
            for _ in range(_TURNS_PER_LOOK):
                station.turn()
                while station.breaches:
                    raise self._refusal(*station.breaches.popleft())
                self._write_all()
                if not station.has_work():
                    break
            self._watch()

    def _refusal(self, peer: str, why: str) -> RunError:
        # Sent again, it would be refused again; and nobody here is a stranger from whom to protect the others.
        return RunError(f"{self._station.name} refused what {peer} sent, so the training cannot go on: {why}")

    def close(self) -> None:
        for connection in [*self._connections.values()]:
            self._drop(connection)
        for guest in [*self._guests]:
            guest.close()
        self._door.close()
        _socket_path(self._folder, self._station.name).unlink(missing_ok=True)
        self._selector.close()

    # --- connections ---

    def _lose_parent(self) -> None:
        self.parent_is_gone = True  # its end of the pipe is closed: it is gone, however it went

    def _call_all(self) -> None:
        now = time.monotonic()
        for peer, (due, wait) in self._calls.items():
            if peer in self._connections or now < due:
                continue
            link = socket.socket(socket.AF_UNIX)
            try:
                link.connect(str(_socket_path(self._folder, peer)))
                link.sendall(self._station.name.encode().ljust(_NAME_BYTES, b"\0"))
            except OSError:
                link.close()
                longer = min(2 * wait, _LONGEST_RETRY_SECONDS)
                self._calls[peer] = (now + wait * self._jitter.uniform(0.5, 1.5), longer)
                continue
            self._calls[peer] = (now, _FIRST_RETRY_SECONDS)
            self._connect(peer, link)

    def _accept(self) -> None:
        try:
            link, _ = self._door.accept()
        except OSError:
            return  # it has gone again
        link.setblocking(False)
        self._guests[link] = bytearray()
        self._selector.register(link, selectors.EVENT_READ, lambda: self._name_guest(link))

    def _name_guest(self, link: socket.socket) -> None:
        said = self._guests[link]
        try:
            heard = link.recv(_NAME_BYTES - len(said))
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        said += heard
        if heard and len(said) < _NAME_BYTES:
            return
        self._selector.unregister(link)
        del self._guests[link]
        name = said.rstrip(b"\0").decode(errors="replace")
        if len(said) < _NAME_BYTES or name not in self._known:
            link.close()
            return
        if name in self._connections:
            self._drop(self._connections[name])  # of its life before
        self._connect(name, link)

    def _connect(self, peer: str, link: socket.socket) -> None:
        link.setblocking(False)
        connection = self._connections[peer] = _Connection(peer, link)
        self._selector.register(link, selectors.EVENT_READ, connection)
        self._station.connected(peer)

    def _drop(self, connection: _Connection) -> None:
        self._selector.unregister(connection.link)
        connection.link.close()
        del self._connections[connection.peer]
        self._unread.pop(connection.peer, None)
        self._station.disconnected(connection.peer)

    # --- bytes ---

    def _serve(self, connection: _Connection, mask: int) -> None:
        if self._connections.get(connection.peer) is not connection:
            return  # dropped by an event before this one
        try:
            if mask & selectors.EVENT_READ:
                size = connection.link.recv_into(self._scratch)
                if not size:
                    self._drop(connection)
                    return
                self._station.received(connection.peer, self._scratch[:size])
                self._attend(connection)
            if mask & selectors.EVENT_WRITE and connection.unsent:
                self._send(connection)
        except BlockingIOError:
            pass
        except ProtocolError as error:
            raise self._refusal(connection.peer, str(error)) from None
        except OSError:
            self._drop(connection)

    def _write_all(self) -> None:
        for peer in self._station.to_tell():
            connection = self._connections.get(peer)
            if connection is not None and not connection.unsent:
                connection.unsent.extend(map(memoryview, self._station.outgoing(peer)))
                self._send(connection)
        for connection in [*self._unread.values()]:
            self._attend(connection)

    def _send(self, connection: _Connection) -> None:
        if not self._write(connection):
            self._drop(connection)
        elif connection.unsent or connection.events & selectors.EVENT_WRITE:
            self._attend(connection)

    def _attend(self, connection: _Connection) -> None:
        """Wait for what is wanted of a connection: after every change of that."""
        wanted = selectors.EVENT_WRITE if connection.unsent else 0
        if self._station.wants_more(connection.peer):
            wanted |= selectors.EVENT_READ
            self._unread.pop(connection.peer, None)
        else:
            self._unread[connection.peer] = connection
        if wanted != connection.events:
            connection.events = wanted
            # With nothing to wait for, the socket is still watched for its end.
            self._selector.modify(connection.link, wanted or selectors.EVENT_WRITE, connection)

    def _write(self, connection: _Connection) -> bool:
        """Send as much as the socket takes; False if it is broken."""
        unsent = connection.unsent
        try:
            while unsent:
                sent = connection.link.sendmsg([unsent[i] for i in range(min(len(unsent), _BUFFERS_PER_CALL))])
                while sent:
                    part = unsent[0]
                    if sent < len(part):
                        unsent[0] = part[sent:]
                        break
                    sent -= len(part)
                    unsent.popleft()
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True
