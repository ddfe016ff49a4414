"""Lines over gRPC: one bidirectional stream each, for where a proxy wants HTTP/2.

gRPC's own threads hold the connections, shake hands, answer pings and keep what has come for us.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from colonnade.errors import plain
from colonnade.runtimes.network import limits
from colonnade.runtimes.network.line import (
    Dialler,
    Heard,
    Line,
    LineEndedError,
    Listener,
    Porter,
    Serve,
    UnreachableError,
)
from colonnade.wire.certificates import Credentials

SERVICE = "colonnade.Session"
METHOD = "Connect"
_ENDED = (grpc.aio.UsageError, grpc.aio.AioRpcError, grpc.aio.BaseError)
"""What writing raises when the stream has ended; its reader knows."""


class GrpcLine(Line):
    """One stream, whichever end."""

    def __init__(self, call: Any, certificate: bytes, close: Callable[[], Any]) -> None:
        self.certificate = certificate
        self._call = call
        self._close = close
        self.explained: Callable[[Any], UnreachableError] = lambda error: UnreachableError(plain(str(error.details())))

    async def read(self) -> Heard | None:
        try:
            data = await self._call.read()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return None  # the stream was closed here, not this task
        except grpc.aio.AioRpcError as error:
            raise self.explained(error) from None
        except _ENDED as error:
            raise UnreachableError(plain(str(error)) or "the stream has ended") from None
        return None if data is grpc.aio.EOF else bytes(data)

    async def write(self, message: bytes) -> None:
        await self._or_ended(self._call.write(message))

    async def conclude(self) -> None:
        if hasattr(self._call, "done_writing"):
            await self._or_ended(self._call.done_writing())

    async def _or_ended(self, said: Awaitable[Any]) -> None:
        try:
            await said
        except _ENDED:
            raise LineEndedError from None

    def close(self) -> None:
        self._close()


class GrpcListener(Listener):
    """gRPC's server."""

    carrier = "grpc"

    async def start(self, own: Credentials, porter: Porter, serve: Serve) -> int:
        at_once = ("grpc.max_allowed_incoming_connections", limits.connections_at_once())
        self._server = grpc.aio.server(options=[*limits.OPTIONS, *limits.SERVER_OPTIONS, at_once])

        async def attend(requests: Any, context: Any) -> None:
            shown = context.auth_context().get("x509_pem_cert")
            task = asyncio.current_task()
            assert task is not None
            await serve(GrpcLine(context, shown[0] if shown else b"", task.cancel))

        handler = grpc.stream_stream_rpc_method_handler(attend)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        try:
            port = self._server.add_secure_port(self.address, _credentials(own, porter))
        except RuntimeError:
            return 0
        if port:
            await self._server.start()
        return int(port)

    async def stop(self) -> None:
        await self._server.stop(0.5)


def _credentials(own: Credentials, porter: Porter) -> Any:
    """TLS that asks for a certificate, and takes a renewed one of our own without a restart."""
    last = own

    def configuration(credentials: Credentials) -> Any:
        pair = (credentials.key_pem, credentials.certificate_pem)
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=credentials.authority_pem)

    def renewed() -> Any:
        """Called by gRPC, in a thread of its own, for every connection before its handshake."""
        nonlocal last
        porter.knock()
        now = porter.own()
        if now is None or (now.certificate_pem == last.certificate_pem and now.authority_pem == last.authority_pem):
            return None
        last = now
        return configuration(now)

    return grpc.dynamic_ssl_server_credentials(configuration(last), renewed, require_client_authentication=True)


class GrpcDialler(Dialler):
    """gRPC's client."""

    @asynccontextmanager
    async def line(self, own: Credentials, label_party: str) -> AsyncIterator[Line]:
        credentials = grpc.ssl_channel_credentials(own.authority_pem, own.key_pem, own.certificate_pem)
        # The label party is who its certificate says, whatever host or address it is reached at.
        options = [*limits.OPTIONS, ("grpc.ssl_target_name_override", label_party), ("grpc.enable_retries", 0)]
        async with grpc.aio.secure_channel(self.address, credentials, options=options) as channel:
            call = channel.stream_stream(f"/{SERVICE}/{METHOD}")()
            line = GrpcLine(call, b"", call.cancel)
            line.explained = lambda error: self._explained(error, own, label_party)
            yield line

    def _explained(self, error: Any, own: Credentials, label_party: str) -> UnreachableError:
        """What gRPC says of a connection that failed; and where TLS has refused one, what it does not say."""
        said = str(error.details() or error.code().name)
        if "CERTIFICATE_VERIFY_FAILED" in said or "Hostname Verification" in said:
            return self.stranger(label_party)
        if limits.OTHER_CARRIER in said:
            return UnreachableError("it speaks no gRPC", speaks="tls")
        if "failed to connect" in said and "Socket closed" in said:
            return self.refused(own, label_party)
        return UnreachableError(plain(said))
