"""A line over TLS and one socket: whole messages in order, in one step where that is possible, in bounded memory."""

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from colonnade.errors import ProtocolError
from colonnade.runtimes.network import limits, tls_line
from colonnade.runtimes.network.line import Heard, LineEndedError, UnreachableError
from colonnade.runtimes.network.tls_line import TlsLine
from colonnade.runtimes.network.tls_lines import OURS, tls_context
from colonnade.wire.authority import issue, make_authority
from colonnade.wire.certificates import Credentials, check_peer, read_credentials


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    folder = tmp_path_factory.mktemp("keys")
    make_authority(folder / "authority", "a test", 2)
    issue(folder / "authority", "shop", folder / "shop", [], 1)
    paths = [folder / "shop" / name for name in ("shop.key", "shop.pem", "authority.pem")]
    return read_credentials(*paths, None)


@asynccontextmanager
async def both_ends(own: Credentials) -> AsyncIterator[tuple[TlsLine, TlsLine]]:
    one, other = socket.socketpair()
    ends = TlsLine(one, tls_context(own, True), True), TlsLine(other, tls_context(own, False), False)
    try:
        async with asyncio.timeout(20):
            await asyncio.gather(*(end.shake_hands() for end in ends))
            for end in ends:
                end.greeted()
            yield ends
    finally:
        for end in ends:
            end.close()


def telling(own: Credentials, story: Callable[[TlsLine, TlsLine], Awaitable[None]]) -> None:
    async def told() -> None:
        async with both_ends(own) as (near, far):
            await story(near, far)

    asyncio.run(told())


def test_both_know_who_is_there_and_what_is_spoken(own: Credentials) -> None:
    async def story(near: TlsLine, far: TlsLine) -> None:
        for end in (near, far):
            assert end.protocol == OURS
            assert check_peer(end.certificate, own.authority_pem, own.revoked) == "shop"

    telling(own, story)


def test_a_message_is_one_call_of_the_system_and_is_taken_where_it_arrives(own: Credentials) -> None:
    async def story(near: TlsLine, far: TlsLine) -> None:
        calls, taken = [], []

        class Counted:
            def __getattr__(self, name: str) -> object:
                calls.append(name)
                return getattr(far_link, name)

            def fileno(self) -> int:
                return far_link.fileno()

        far_link, message = far._link, os.urandom(40_000)
        far._link = Counted()  # type: ignore[assignment]

        def take(heard: Heard) -> float:
            taken.append(bytes(heard))
            return 0.0

        near.take = take
        reader = asyncio.create_task(near.read())
        await asyncio.sleep(0)
        far.put(message)
        assert calls == ["send"]
        while not taken:
            await asyncio.sleep(0)
        assert taken == [message] and not reader.done()
        await far.conclude()
        assert await reader is None
        far._link = far_link

    telling(own, story)


def test_what_is_not_taken_at_once_is_read_in_order(own: Credentials) -> None:
    async def story(near: TlsLine, far: TlsLine) -> None:
        near.take = lambda heard: 0.0 if heard[0] == ord("t") else None
        for message in (b"t1", b"read", b"t2", b"t3", b"long" * 10_000):
            far.put(message)
        await far.conclude()
        heard = []
        while (message := await near.read()) is not None:
            heard.append(bytes(message[:4]))
        assert heard == [b"read", b"long"]

    telling(own, story)


def test_who_rests_is_not_read_meanwhile(own: Credentials) -> None:
    async def story(near: TlsLine, far: TlsLine) -> None:
        taken: list[float] = []

        def take(heard: Heard) -> float:
            taken.append(asyncio.get_running_loop().time())
            return 0.05

        near.take = take
        far.put(b"one")
        far.put(b"two")
        await far.conclude()
        assert await near.read() is None
        assert taken[1] - taken[0] > 0.045

    telling(own, story)


def test_a_peer_that_does_not_read_fills_its_own_memory_alone(own: Credentials) -> None:
    """What the socket does not take waits as it was given, not enciphered once more; then it arrives."""

    async def story(near: TlsLine, far: TlsLine) -> None:
        large = os.urandom(limits.CHUNK_BYTES)
        far.put(large)
        assert not far.is_clear
        assert len(far._unsent) + far._outgoing.pending < 1 << 19
        second = asyncio.create_task(far.write(large))
        await asyncio.sleep(0.01)
        assert not second.done()
        assert await near.read() == large
        assert await near.read() == large
        await second

    telling(own, story)


def test_a_message_that_is_claimed_too_long_is_refused_and_the_refusal_arrives(own: Credentials) -> None:
    async def story(near: TlsLine, far: TlsLine) -> None:
        far.put(bytes(limits.LARGEST_PIECE_BYTES + 1))
        with pytest.raises(ProtocolError, match="are the most"):
            await near.read()
        await near.write(b"why")
        parting = asyncio.create_task(near.part())
        assert await far.read() == b"why"
        assert await far.read() is None
        far.close()
        await parting

    telling(own, story)


def test_a_line_that_breaks_is_told_to_both_tasks(own: Credentials) -> None:
    async def story(near: TlsLine, far: TlsLine) -> None:
        far.put(b"something")
        await near.read()
        near.put(bytes(limits.CHUNK_BYTES))
        writer = asyncio.create_task(near.write(b"never"))
        await asyncio.sleep(0)
        far._link.shutdown(socket.SHUT_RDWR)
        with pytest.raises(LineEndedError):
            await writer
        with pytest.raises(UnreachableError, match="broke"):
            await near.read()

    telling(own, story)


def test_lines_of_two_threads_have_nothing_in_common(own: Credentials) -> None:
    async def other_story(near: TlsLine, far: TlsLine) -> None:
        far.put(b"other" * 100)
        await near.read()

    async def story(near: TlsLine, far: TlsLine) -> None:
        near_link = near._link

        class Interrupted:
            def recv_into(self, room: memoryview) -> int:
                size = near_link.recv_into(room)
                meanwhile = threading.Thread(target=telling, args=(own, other_story))
                meanwhile.start()
                meanwhile.join()
                return size

            def __getattr__(self, name: str) -> object:
                return getattr(near_link, name)

        near._link = Interrupted()  # type: ignore[assignment]
        far.put(b"one")
        assert await near.read() == b"one"

    telling(own, story)


@pytest.mark.parametrize("before", [b"", b"\7\0\0\0half"], ids=["between messages", "within one"])
def test_who_ends_tls_alone_has_ended_the_line(own: Credentials, before: bytes) -> None:
    async def story(near: TlsLine, far: TlsLine) -> None:
        far.put(b"heard")
        await near.read()
        if before:
            far._tls.write(before)
        with suppress(ssl.SSLWantReadError):
            far._tls.unwrap()
        await far._send_all()
        assert await near.read() is None

    telling(own, story)


def test_the_last_word_is_heard_by_who_finds_the_line_broken_when_speaking(own: Credentials) -> None:
    async def story(near: TlsLine, far: TlsLine) -> None:
        far.put(b"why")
        far.close()
        with pytest.raises(LineEndedError):
            await near.write(b"never")
        assert await near.read() == b"why"
        with pytest.raises(UnreachableError, match="broke"):
            await near.read()

    telling(own, story)


def test_who_closes_its_own_line_hears_nothing_more(own: Credentials) -> None:
    async def story(near: TlsLine, far: TlsLine) -> None:
        reader = asyncio.create_task(near.read())
        await asyncio.sleep(0)
        near.close()
        assert await reader is None

    telling(own, story)


@pytest.mark.parametrize(("asked", "under_way", "is_dead"), [(0, 0, False), (1, 0, False), (2, 0, True), (0, 3, True)])
def test_a_machine_that_confirms_nothing_is_noticed(
    own: Credentials, asked: int, under_way: int, is_dead: bool
) -> None:
    """Only while something is on its way to it; if it has no room, once it was asked for some in vain."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as link:

        class Told:
            """The socket, with what the kernel would say after a minute."""

            def getsockopt(self, *what: int) -> bytes:
                return tls_line._SILENCE.pack(asked, under_way, 60_000)

            def __getattr__(self, name: str) -> object:
                return getattr(link, name)

        async def story() -> None:
            line = TlsLine(link, tls_context(own, server=False), server=False)
            line._link = Told()  # type: ignore[assignment]
            assert not line.is_dead()
            with suppress(BlockingIOError):
                while link.send(bytes(1 << 20)):  # nobody takes it
                    pass
            assert line.is_dead() == is_dead
            line.close()

        asyncio.run(story())


def test_who_is_there_and_has_no_room_is_not_gone(own: Credentials, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel itself tells of it."""
    monkeypatch.setattr(limits, "KEEPALIVE_SECONDS", -10.0)  # as if time had passed
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as link:

        async def story() -> None:
            line = TlsLine(link, tls_context(own, server=False), server=False)
            with suppress(BlockingIOError):
                while link.send(bytes(1 << 20)):
                    pass
            while line.is_dead():  # until what was taken is confirmed
                await asyncio.sleep(0.01)
            line.close()

        asyncio.run(asyncio.wait_for(story(), 20))
