"""uvicorn in an event loop that is somebody else's: it installs no signal handlers, and ends when it is told to."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from colonnade.errors import SettingsError
from colonnade.runtimes.network.settings import parse_address

log = logging.getLogger("colonnade.serving")


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
            timeout_keep_alive=30,
            h11_max_incomplete_event_size=1 << 16,
            ssl_certfile=None if settings.certificate is None else str(settings.certificate),
            ssl_keyfile=None if settings.key is None else str(settings.key),
        )
        self._server = _Server(config)
        self._scheme = "http" if settings.certificate is None else "https"

    async def run(self) -> None:
        log.info("serving on %s port %d", self._scheme, self.port)
        await self._server.serve([self._listener])

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
