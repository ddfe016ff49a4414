"""One party's line, whichever end: what is to be written besides packets, its end, and how packets are cut for it."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from colonnade.runtimes.network import limits
from colonnade.runtimes.network.line import Line
from colonnade.wire.handshake import Refused, say


class Stream:
    """One open stream: what is to be written besides packets, and its end."""

    def __init__(self, peer: str, line: Line, close: Callable[[], Any]) -> None:
        self.peer = peer
        self.line = line
        self.write: Callable[[bytes], Awaitable[Any]] = line.write
        self.put = line.put if line.is_direct else None
        self.close = close
        self.waiting: deque[bytes] = deque()
        self.news: dict[str, bytes] = {}  # what is to be told of others; of each only the latest
        self.wake = asyncio.Event()
        self.is_writing = False
        self.ends = False  # after what waits

    @property
    def is_clear(self) -> bool:
        """Whether everything that was to be written is on its way."""
        return not (self.is_writing or self.waiting or self.news) and self.line.is_clear

    def part(self, word: Refused) -> None:
        """Say this as the last thing."""
        self.post(say(word))
        self.ends = True

    def post(self, data: bytes) -> None:
        self.waiting.append(data)
        self.wake.set()

    def tell_of(self, name: str, data: bytes) -> None:
        """Say this of another party, in place of what has not been said of it yet."""
        self.news.pop(name, None)
        self.news[name] = data
        self.wake.set()

    def next_word(self) -> bytes:
        """What was posted first, then news."""
        return self.waiting.popleft() if self.waiting else self.news.pop(next(iter(self.news)))

    async def write_waiting(self) -> None:
        """Write what was posted, also meanwhile."""
        while self.waiting or self.news:
            await self.write(self.next_word())


def pieces(parts: Sequence[bytes | bytearray], prefix: bytes) -> Iterator[bytes]:
    """Packets as messages of a stream: joined while small, cut where large (they are a stream, cut anywhere)."""
    if not parts:
        return
    if sum(map(len, parts)) <= limits.CHUNK_BYTES:
        yield b"".join((prefix, *parts))
        return
    joined = b"".join(parts)
    for at in range(0, len(joined), limits.CHUNK_BYTES):
        yield prefix + joined[at : at + limits.CHUNK_BYTES]
