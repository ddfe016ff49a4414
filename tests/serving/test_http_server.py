"""Who is slow or says nothing is not waited for, and fills no log; everybody else is answered."""

import asyncio
import logging
from typing import Any

import pytest
from fastapi import FastAPI, Request

from colonnade.serving import endpoint, http_server
from colonnade.serving.endpoint import _Asking
from colonnade.serving.http_server import HttpServer, HttpSettings

HEAD = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(http_server, "_BETWEEN_LOOKS_SECONDS", 0.02)
    monkeypatch.setattr(endpoint, "BODY_SECONDS", 0.1)
    http_server._once_a_minute._said.clear()


def served(conversation: Any, most_connections: int = 10) -> Any:
    """What a conversation with a real endpoint, given its port, comes to."""
    app, asking = FastAPI(), _Asking(None, None, 5.0)  # type: ignore[arg-type]

    @app.post("/predict")
    async def predict(request: Request) -> Any:
        return await asking.answered(request)

    @app.get("/")
    async def well() -> str:
        return "well"

    async def talk() -> Any:
        server = HttpServer(app, HttpSettings("127.0.0.1:0", most_connections=most_connections))
        task = asyncio.create_task(server.run())
        try:
            return await asyncio.wait_for(conversation(server.port), 20)
        finally:
            await server.stop(task)

    return asyncio.run(talk())


async def said(port: int, *pieces: bytes) -> bytes:
    """What is answered until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("begun", [b"", b"POST /predict HTTP/1.1\r\nHost:"])
def test_connections_that_ask_nothing_do_not_keep_others_out(begun: bytes) -> None:
    async def conversation(port: int) -> bytes:
        idle = [asyncio.create_task(said(port, begun)) for _ in range(10)]
        await asyncio.gather(*idle)
        return await said(port, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    assert served(conversation).startswith(b"HTTP/1.1 200")


def test_a_body_that_does_not_come_has_its_own_status() -> None:
    answer = served(lambda port: said(port, HEAD + b"\r\n", b'{"id":'))
    assert answer.startswith(b"HTTP/1.1 408") and b"The body was not there within" in answer


def test_who_goes_before_the_body_is_whole_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def conversation(port: int) -> bytes:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b'\r\n{"id":')
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()
        return await said(port, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    with caplog.at_level(logging.DEBUG):
        assert served(conversation).startswith(b"HTTP/1.1 200")
    assert not [record for record in caplog.records if record.exc_info or "Traceback" in record.getMessage()]


def test_garbage_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def conversation(port: int) -> list[bytes]:
        return [await said(port, b"NONSENSE\r\n\r\n") for _ in range(5)]

    assert all(answer.startswith(b"HTTP/1.1 400") for answer in served(conversation))
    assert len([record for record in caplog.records if record.name == "uvicorn.error"]) == 1
