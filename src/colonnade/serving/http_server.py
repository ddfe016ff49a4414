"""uvicorn in an event loop that is somebody else's: it installs no signal handlers, and ends when it is told to.

Who connects and asks nothing is not waited for: as many such connections as are allowed would keep everybody else out.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from colonnade.errors import SettingsError
from colonnade.runtimes.network.settings import parse_address

log = logging.getLogger("colonnade.serving")

REQUEST_SECONDS = 10.0
"""How long is waited for the head of a connection's first request."""
IDLE_SECONDS = 30
"""How long for the next request of one that was answered."""
_BETWEEN_LOOKS_SECONDS = 1.0
_BETWEEN_WORDS_SECONDS = 60.0


@dataclass(frozen=True)
class HttpSettings:
    """Where the endpoint listens, and as whom."""

    address: str = "127.0.0.1:8080"
    certificate: Path | None = None  # TLS, with its key
    key: Path | None = None
    most_connections: int = 1000
    option: str = "--http"  # which says the address


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _OnceAMinute(logging.Filter):
    """Lets each sentence through once a minute: strangers decide how often uvicorn has reason to say one."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now, sentence = time.monotonic(), str(record.msg)
        if now - self._said.get(sentence, -_BETWEEN_WORDS_SECONDS) < _BETWEEN_WORDS_SECONDS:
            return False
        self._said[sentence] = now
        return True


_once_a_minute = _OnceAMinute()


class HttpServer:
    """The endpoint while it listens."""

    def __init__(self, app: Any, settings: HttpSettings) -> None:
        host, port = parse_address(settings.address, settings.option, any_port=True)
        self._listener = _bound(host, port, settings)
        self.port = int(self._listener.getsockname()[1])
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=settings.most_connections,
            timeout_keep_alive=IDLE_SECONDS,
            h11_max_incomplete_event_size=1 << 16,
            ssl_certfile=None if settings.certificate is None else str(settings.certificate),
            ssl_keyfile=None if settings.key is None else str(settings.key),
        )
        self._server = _Server(config)
        self._scheme = "http" if settings.certificate is None else "https"

    async def run(self) -> None:
        log.info("serving on %s port %d", self._scheme, self.port)
        logging.getLogger("uvicorn.error").addFilter(_once_a_minute)
        looking = asyncio.create_task(self._close_who_asks_nothing())
        try:
            await self._server.serve([self._listener])
        finally:
            looking.cancel()

    async def _close_who_asks_nothing(self) -> None:
        """uvicorn waits for the head of a request for ever, once a byte of it has come or before any has."""
        waiting: dict[Any, tuple[Any, float]] = {}  # the request before, and since when there is no other
        while True:
            await asyncio.sleep(_BETWEEN_LOOKS_SECONDS)
            now, before, waiting = time.monotonic(), waiting, {}
            connections: list[Any] = [*self._server.server_state.connections]
            for connection in connections:
                asked = connection.cycle
                if asked is not None and not asked.response_complete:
                    continue
                last, since = before.get(connection, (asked, now))
                since = since if last is asked else now
                if now - since > (REQUEST_SECONDS if asked is None else IDLE_SECONDS):
                    connection.transport.close()
                else:
                    waiting[connection] = (asked, since)

    async def stop(self, task: "asyncio.Task[None]") -> None:
        """Take no more requests, answer those that are here, and end."""
        self._server.should_exit = True
        await asyncio.wait([task], timeout=10)


def _bound(host: str, port: int, settings: HttpSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"{settings.address} cannot be listened on: {error.strerror}. Choose another with {settings.option}."
        ) from None
    listener.setblocking(False)
    return listener
