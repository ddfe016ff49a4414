"""A link that is far and narrow: how much several uploads in flight gain over waiting for every reply.

Between the parties' programs stands a proxy that passes their encrypted bytes on later, and no faster than the link
would. It is a link's time that is measured, so the model is small.
"""

import asyncio
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from colonnade.benchmarks.party_programs import (
    free_port,
    joined,
    random_data,
    training_lines,
    wait_for_all,
    write_federation,
)

DELAY_SECONDS = 0.025  # one way, so a round trip takes 50 ms
BYTES_PER_SECOND = 10e6 / 8  # 10 Mbit/s, each way
BATCH, RATE = 64, 0.01
_PIECE_BYTES = 1 << 14
_PIECES_UNDER_WAY = 64  # more than fit on the link at once; then the sender must wait, as with a router's buffer


class SlowLink:
    """Listens on `port` and passes on to `target`, both on this machine; each connection is a link of its own."""

    def __init__(
        self, target: int, delay_seconds: float = DELAY_SECONDS, bytes_per_second: float = BYTES_PER_SECOND
    ) -> None:
        self._target = target
        self._delay_seconds = delay_seconds
        self._bytes_per_second = bytes_per_second
        self.port = free_port()
        self.passed_bytes = 0

    @contextmanager
    def standing(self) -> Iterator["SlowLink"]:
        """While this holds, the link is there."""
        loop = asyncio.new_event_loop()
        ready = threading.Event()
        thread = threading.Thread(target=self._run, args=(loop, ready), daemon=True)
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _run(self, loop: asyncio.AbstractEventLoop, ready: threading.Event) -> None:
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(asyncio.start_server(self._connect, "127.0.0.1", self.port))
        ready.set()
        loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(self._carry(reader, there_writer), self._carry(there_reader, writer))
        finally:
            for end in (writer, there_writer):
                end.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction: what is read is written when it would have arrived."""
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_PIECES_UNDER_WAY)

        async def deliver() -> None:
            while True:
                arrives, data = await under_way.get()
                await asyncio.sleep(max(0.0, arrives - loop.time()))
                if not data:
                    writer.write_eof()  # the other direction may go on
                    return
                writer.write(data)
                await writer.drain()

        delivering = asyncio.create_task(deliver())
        sent_at = 0.0  # when the last byte has left
        with suppress(OSError):
            while data := await reader.read(_PIECE_BYTES):
                sent_at = max(sent_at, loop.time()) + len(data) / self._bytes_per_second
                self.passed_bytes += len(data)
                await under_way.put((sent_at + self._delay_seconds, data))
        await under_way.put((loop.time() + self._delay_seconds, b""))
        with suppress(OSError):
            await delivering


def in_flight_gain(in_flight: int = 4, seconds: float = 15.0) -> dict[str, float]:
    """Exchanges a second over slow links with so many uploads in flight and with one, and the one over the other."""
    rates = {number: link_rate(number, seconds) for number in (1, in_flight)}
    return {
        "exchanges_per_second_1_in_flight": rates[1],
        f"exchanges_per_second_{in_flight}_in_flight": rates[in_flight],
        "in_flight_gain": rates[in_flight] / rates[1],
    }


def link_rate(in_flight: int, seconds: float) -> float:
    """Exchanges a second of two feature parties' `vafl` over a slow link each."""
    parties, rows, batch = 2, 2048, BATCH
    exchanges = seconds * parties * in_flight / (2 * DELAY_SECONDS)
    data = random_data(parties, rows)
    settings: Mapping[str, object] = {
        "algorithm": {"name": "vafl", "in_flight": in_flight},
        "training": {
            "epochs": exchanges * batch / (parties * rows),
            "batch_size": batch,
            "learning_rate": RATE,
            "evaluate_every_epochs": 0.0,
            "observe_every_epochs": 0.1,
        },
    }
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as name:
        folder, port = Path(name), free_port()
        files = write_federation(folder, data, settings, port)
        with SlowLink(port).standing() as link:
            shared = folder / "federation.toml"
            text = shared.read_text(encoding="utf-8")
            shared.write_text(text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{link.port}"), encoding="utf-8")
            with joined(folder, files) as children:
                wait_for_all(folder, children, 20 * seconds + 60)
        steady = training_lines(folder)
    first, last = steady[len(steady) // 5], steady[-1]
    return float((last["exchange"] - first["exchange"]) / (last["wall_seconds"] - first["wall_seconds"]))
