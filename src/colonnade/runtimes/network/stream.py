"""One gRPC stream, whichever end: what is to be written besides packets, its end, and how packets are cut for it."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import grpc.aio

from colonnade.runtimes.network import limits
from colonnade.wire.handshake import Refused, say

SERVICE = "colonnade.Session"
METHOD = "Connect"
ENDED = (grpc.aio.UsageError, grpc.aio.AioRpcError, grpc.aio.BaseError)
"""What writing raises when the stream has ended; its reader knows."""


class Stream:
    """One open stream: what is to be written besides packets, and its end."""

    def __init__(self, peer: str, write: Callable[[bytes], Awaitable[Any]], close: Callable[[], Any]) -> None:
        self.peer = peer
        self.write = write
        self.close = close
        self.waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        self.wake = asyncio.Event()
        self.is_writing = False
        self.ends = False  # after what waits

    def part(self, word: Refused) -> None:
        """Say this as the last thing."""
        self.post(say(word))
        self.ends = True

    def post(self, data: bytes) -> None:
        self.waiting.append(data)
        self.waiting_bytes += len(data)
        self.wake.set()

    async def write_waiting(self) -> None:
        """Write what was posted, also meanwhile."""
        while self.waiting:
            data = self.waiting.popleft()
            self.waiting_bytes -= len(data)
            await self.write(data)


def pieces(parts: Sequence[bytes | bytearray], prefix: bytes) -> Iterator[bytes]:
    """Packets as messages of a stream: joined while small, cut where large (they are a stream, cut anywhere)."""
    joined = b"".join(parts)
    for at in range(0, len(joined), limits.CHUNK_BYTES):
        yield prefix + joined[at : at + limits.CHUNK_BYTES]
