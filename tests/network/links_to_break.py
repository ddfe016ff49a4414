"""A link between two parties that a test cuts, slows and heals: it passes their encrypted bytes on, or does not."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from parties import free_port

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Link:
    """Listens on `port` and passes on to `target`. Everything may be changed while it stands."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = free_port()
        self.delay_seconds = 0.0  # of every piece, one after the other: slow
        self._is_cut = False
        self._loop = asyncio.new_event_loop()
        self._callers: set[asyncio.StreamWriter] = set()  # the ends of who called
        self._called: set[asyncio.StreamWriter] = set()

    @contextmanager
    def standing(self) -> Iterator["Link"]:
        ready = threading.Event()
        thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        thread.start()
        assert ready.wait(30)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()

    # --- what a test does to it ---

    def cut(self) -> None:
        """Both ends notice, and nobody gets through any more."""
        self._is_cut = True
        self._do(lambda: [end.transport.abort() for end in (*self._callers, *self._called)])

    def heal(self) -> None:
        self._is_cut = False
        self.delay_seconds = 0.0

    def forget_callers(self) -> None:
        """Who called notices, and who was called does not: its end stays open, and silent."""
        self._do(lambda: [end.transport.abort() for end in self._callers])

    def _do(self, what: Callable[[], object]) -> None:
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (what(), done.set()))
        assert done.wait(30)

    # --- its thread ---

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connect, "127.0.0.1", self.port))
        ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        for end in (*self._callers, *self._called):
            end.transport.abort()
        self._loop.run_until_complete(asyncio.sleep(0))  # they are closed in the next turn
        self._loop.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            there: Streams = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._callers.add(writer)
        self._called.add(there[1])
        await asyncio.gather(self._carry(reader, there[1]), self._carry(there[0], writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 14):
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                writer.write(data)
                await writer.drain()
            if writer in self._callers:  # the label party has closed it; what a caller's loss means is a test's to say
                writer.close()
