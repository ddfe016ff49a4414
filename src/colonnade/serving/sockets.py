"""The label party's end of Unix sockets to feature parties of one machine, in the event loop that its endpoint has.

Feature parties connect as those of a training do (`runtimes/processes/sockets.py`): a name, then packets.
"""

import asyncio
import logging
from pathlib import Path

from colonnade.errors import ProtocolError
from colonnade.serving.station import LiveStation

log = logging.getLogger("colonnade.serving")

_NAME_BYTES = 64
_READ_BYTES = 1 << 18


class SocketHost:
    """Carries a label party's station until it is closed."""

    def __init__(self, station: LiveStation, folder: Path) -> None:
        self._station = station
        self._path = folder / f"{station.name}.sock"
        self._writers: dict[str, asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        station.wake = self.stir

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self._path)

    def stir(self) -> None:
        """Write what there is to be written."""
        for name in self._station.to_tell():
            if (writer := self._writers.get(name)) is not None:
                writer.write(b"".join(self._station.outgoing(name)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name, task = "", asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            name = (await reader.readexactly(_NAME_BYTES)).rstrip(b"\0").decode(errors="replace")
            if name not in self._station.peers:
                return
            if name in self._writers:
                self._writers.pop(name).close()  # of its life before
                self._station.disconnected(name)
            self._writers[name] = writer
            self._station.connected(name)
            self.stir()
            while data := await reader.read(_READ_BYTES):
                if self._writers.get(name) is not writer:
                    return
                self._station.received(name, data)
                self._station.turn()
                self.stir()
                if self._station.breaches:
                    peer, sentence = self._station.breaches.popleft()
                    log.error("%s broke the protocol: %s", peer, sentence)
                    return
        except (OSError, asyncio.IncompleteReadError):
            pass
        except ProtocolError as error:
            log.error("the connection of %s is closed: %s", name, error)
        finally:
            if self._writers.get(name) is writer:
                del self._writers[name]
                self._station.disconnected(name)
            writer.close()
            self._tasks.discard(task)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in [*self._writers.values()]:
            writer.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        self._path.unlink(missing_ok=True)
