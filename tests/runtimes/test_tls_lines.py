"""How lines over TLS come about: where a listener listens, and what OpenSSL is told of whom to believe."""

import asyncio
import dataclasses
import socket
import threading
from typing import Any

import pytest

from colonnade.runtimes.network.line import Line, UnreachableError
from colonnade.runtimes.network.tls_lines import TlsDialler, TlsListener, tls_context
from colonnade.wire.authority import issue, make_authority
from colonnade.wire.certificates import Credentials, read_credentials


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    folder = tmp_path_factory.mktemp("keys")
    make_authority(folder / "authority", "a test", 2)
    issue(folder / "authority", "shop", folder / "shop", [], 1)
    paths = [folder / "shop" / name for name in ("shop.key", "shop.pem", "authority.pem")]
    return read_credentials(*paths, None)


def listened_at(own: Credentials, monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Where a listener listens whose host stands for these addresses."""

    async def story() -> list[str]:
        async def found(host: str, port: int, **_: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
        listener = TlsListener("shop.example:0")
        if not await listener.start(own, None, None):  # type: ignore[arg-type]
            return []
        places = [one.getsockname()[0] for one in listener._sockets]
        await listener.stop()
        return places

    return asyncio.run(story())


def test_an_address_that_is_none_of_this_machine_is_left_out(own: Credentials, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = "192.0.2.1"  # nobody's
    assert listened_at(own, monkeypatch, elsewhere, "127.0.0.1") == ["127.0.0.1"]
    assert listened_at(own, monkeypatch, elsewhere) == []


@pytest.mark.parametrize("host", ["bank..example", "a" * 64 + ".example"])
def test_a_name_that_cannot_be_one_is_told_as_such(own: Credentials, host: str) -> None:
    async def story() -> None:
        assert await TlsListener(f"{host}:0").start(own, None, None) == 0  # type: ignore[arg-type]
        with pytest.raises(UnreachableError, match="is not known here"):
            async with TlsDialler(f"{host}:7443").line(own, "bank"):
                pass

    asyncio.run(story())


def test_an_authority_s_file_may_have_words_of_any_alphabet_beside_its_certificates(own: Credentials) -> None:
    with_words = dataclasses.replace(own, authority_pem="Autorité\n".encode("latin-1") + own.authority_pem)
    assert tls_context(with_words, server=True).cert_store_stats()["x509_ca"] == 1


def test_our_files_are_read_beside_the_event_loop(own: Credentials) -> None:
    """Who connects may be a stranger, and reading them may take a while."""

    asked: list[threading.Thread] = []

    class Door:
        def knock(self) -> None: ...

        def own(self) -> Credentials:
            asked.append(threading.current_thread())
            return own

        def tell_of_fault(self, sentence: str, *values: object) -> None: ...

    async def story() -> None:
        async def serve(line: Line) -> None:
            await line.write(b"served")

        listener = TlsListener("127.0.0.1:0")
        port = await listener.start(own, Door(), serve)
        async with TlsDialler(f"127.0.0.1:{port}").line(own, "shop") as line:
            assert await line.read() == b"served"
        await listener.stop()

    asyncio.run(story())
    assert asked and threading.main_thread() not in asked
