"""What one party, or a stranger, may have of the label party's end: connections, time, bytes."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from colonnade.algorithms.split_models.fdml import Fdml
from colonnade.algorithms.split_models.vafl import Vafl
from colonnade.algorithms.training import DecidedTraining
from colonnade.errors import SettingsError
from colonnade.federation import building
from colonnade.federation.plan import Facts, Plan
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.privacy.noise import PerturbationSettings
from colonnade.runtimes.network import doorstep, limits, relay
from colonnade.runtimes.network.allowance import Allowance
from colonnade.runtimes.network.doorstep import Doorstep, closed_to_all, open_to
from colonnade.runtimes.network.line import Line
from colonnade.runtimes.network.relay import Relay, unwrap, wrap
from colonnade.runtimes.network.stream import Stream
from colonnade.runtimes.network.waiting import Awaited
from colonnade.testing.fake_clock import FakeClock
from colonnade.wire import certificates
from colonnade.wire.authority import issue, make_authority
from colonnade.wire.certificates import CredentialFiles
from colonnade.wire.handshake import ENVELOPE, WORD, Introduced, Presence, heard

# --- the port -----------------------------------------------------------------------------------------------------


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield one


def answers(listener: socket.socket, source: str = "127.0.0.1") -> bool:
    """Whether the kernel answers a first packet from that address."""
    with socket.socket() as link:
        link.settimeout(0.05)
        link.bind((source, 0))
        try:
            link.connect(listener.getsockname())
        except TimeoutError:
            return False
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="the filter is Linux's")
def test_the_kernel_drops_first_packets_alone(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with closing(Doorstep(10)) as step:
        step.guard(port)
        with socket.create_connection(("127.0.0.1", port)) as link:
            link.sendall(b"x")  # a connection over which nothing comes is not handed on
            accepted, _ = listener.accept()
            with accepted:
                step._set(closed_to_all())
                assert not answers(listener)
                link.sendall(b"still here")
                assert accepted.recv(1) + accepted.recv(10) == b"xstill here"
        multiplier = 0x9E3779B1
        mine = 1 << _part_of("127.0.0.1", multiplier)
        step._set(open_to(mine, multiplier))
        assert answers(listener)
        step._set(open_to(~mine & 0xFFFFFFFF, multiplier))
        assert not answers(listener)
        assert answers(listener, "127.0.0.2")  # of another part


def _part_of(address: str, multiplier: int) -> int:
    return ((int.from_bytes(socket.inet_aton(address), "big") * multiplier) & 0xFFFFFFFF) >> 27


class Town:
    """A port, and who comes to it from which address; nothing but time is made up."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.step = Doorstep(5, self.clock)
        self.step._set = self._take_down  # type: ignore[method-assign]
        self._steps: list[doorstep.Step] = []

    def _take_down(self, steps: list[doorstep.Step]) -> None:
        self._steps = steps

    def comes(self, address: str) -> bool:
        """Whether a connection from there is taken."""
        if self._steps == closed_to_all():
            return False
        if len(self._steps) > 1:
            ((*_, multiplier), (*_, parts)) = self._steps[10], self._steps[13]
            if not parts >> _part_of(address, multiplier) & 1:
                return False
        self.step.knock()
        return True

    def second(self) -> None:
        self.clock.tick(1.0)
        self.step.look()


def test_who_comes_slowly_is_no_flood() -> None:
    town = Town()
    for _ in range(20):
        assert town.comes("10.0.0.1")
        town.clock.tick(0.5)
    assert not town.step.is_flooded


def test_a_flood_from_one_address_shuts_out_that_address() -> None:
    """Within seconds other addresses are let in again; and the first one too, when it has stopped."""
    town = Town()
    let_in, others = 0, 0
    for second in range(50):
        others += town.comes(f"192.0.2.{second % 10}")  # one of them may share a part with the flood
        let_in += sum(town.comes("10.0.0.1") for _ in range(2000))
        town.second()
    assert town.step.is_flooded
    assert let_in < 5 * 25, "of 100,000"
    assert others > 25
    for _ in range(200):
        town.second()
    assert not town.step.is_flooded
    assert town.comes("10.0.0.1")


def test_a_flood_from_everywhere_is_let_in_so_often_a_second_at_most() -> None:
    town = Town()
    let_in = 0
    for _ in range(20):
        let_in += sum(town.comes(f"10.0.{one // 250}.{one % 250}") for one in range(1000))
        town.second()
    assert let_in <= 5 * 20


# --- time ---------------------------------------------------------------------------------------------------------


def test_an_allowance_fills_again_and_is_no_larger_for_it() -> None:
    clock = FakeClock()
    greetings = Allowance(2.0, 3.0, clock)
    assert [greetings.take(1.0) for _ in range(5)] == [0.0, 0.0, 0.0, 0.5, 1.0]
    clock.tick(1000.0)
    assert [greetings.take(1.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_who_is_awaited_is_named_at_growing_intervals(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    awaited = Awaited(clock)
    with caplog.at_level(logging.INFO):
        for _ in range(600):
            awaited.look(["shop"], "Start it.")
            clock.tick(1.0)
        awaited.look([], "")
        awaited.look(["shop"], "Start it.")
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "waits for shop. Start it."
    assert said[1] == "still waits for shop, since 30 seconds. Start it."
    assert said[3] == "still waits for shop, since 2 minutes. Start it."
    assert len(said) == 6  # 2, 30, 60, 120, 240, 480 seconds; and it begins anew with who comes and goes
    facts = [vars(record)["facts"] for record in caplog.records]
    assert facts[3] == {"waiting_for": ["shop"], "waited_seconds": {"shop": 120.0}}


# --- envelopes ----------------------------------------------------------------------------------------------------

A, B, C = PARTIES = ("a", "b", "c")


class SilentLine(Line):
    """Nobody writes here."""

    async def read(self) -> None:
        raise NotImplementedError

    async def write(self, message: bytes) -> None:
        raise NotImplementedError

    async def conclude(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Post:
    """A relay between three parties whose streams write nothing by themselves."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.relay = Relay(PARTIES, self.streams, lambda name: Introduced(b"", b"", b""))
        self.lives = dict.fromkeys(PARTIES, 0)
        for name in PARTIES:
            self.come(name)

    def come(self, name: str) -> None:
        before = self.streams.pop(name, None)
        if before is not None:
            self.relay.goes(before)
        self.relay.comes(name)
        self.lives[name] += 1
        stream = self.streams[name] = Stream(name, SilentLine(), lambda: None)
        self.relay.introduce(stream, [other for other in self.streams.values() if other is not stream])

    def generation(self, one: str, other: str) -> int:
        """As the last word on its stream tells a party."""
        word = heard(self.streams[one].news[other])
        assert isinstance(word, Presence)
        return word.generation

    async def send(self, sender: str, to: str, size: int = 10) -> bool:
        return await self.relay.pass_on(sender, wrap(to, self.generation(sender, to), bytes(size)))

    def take(self, receiver: str) -> list[str]:
        """One round: from whom something came."""
        given = [*self.relay.next_for(receiver)]
        return [unwrap(data)[0] for data in given if data[0] == ENVELOPE]

    def waiting_bytes(self) -> int:
        return sum(len(data) for queues in self.relay._waiting.values() for queue in queues.values() for data in queue)


def test_a_receiver_is_given_one_envelope_of_each_sender_in_turn() -> None:
    async def story() -> None:
        post = Post()
        for _ in range(5):
            await post.send(A, C)
        await post.send(B, C)
        assert post.take(C) == [A, B]
        assert post.take(C) == [A]

    asyncio.run(story())


def test_a_sender_that_comes_again_and_again_has_no_more_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RELAY_BYTES", 1000)

    async def story() -> None:
        post = Post()
        for _ in range(50):
            for _ in range(3):
                await post.send(A, B, 200)
            post.come(A)
        assert post.waiting_bytes() < 2000

    asyncio.run(story())


def test_one_receiver_that_takes_nothing_is_parted_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender is not read for a while; then the two are parted, until the receiver has taken what it was given."""
    monkeypatch.setattr(limits, "RELAY_BYTES", 1000)
    monkeypatch.setattr(limits, "RELAY_PATIENCE_SECONDS", 0.02)

    async def story() -> None:
        post = Post()
        for _ in range(4):
            await post.send(A, B, 200)
        await post.send(A, C, 900)  # no room: B has it all
        assert post.relay.dropped == 4
        assert post.take(C) == [A]
        assert post.generation(A, B) == post.generation(B, A) == 0, "both are told that they cannot reach each other"
        before = post.lives[A] + post.lives[B]
        await post.relay.pass_on(A, wrap(B, before, b"of the link before"))
        assert post.take(B) == []  # it has taken everything: they are introduced anew
        assert post.generation(A, B) == post.generation(B, A) == before + 1
        await post.send(A, B)
        assert post.take(B) == [A]

    asyncio.run(story())


def test_what_a_receiver_does_not_want_is_not_passed_on() -> None:
    async def story() -> None:
        post = Post()
        assert await post.send(A, B)
        post.relay.refuse(B, A)
        post.relay.refuse(B, "nobody")
        assert not await post.send(A, B)
        assert post.take(B) == []
        assert await post.send(A, C)
        post.come(A)  # anew
        assert await post.send(A, B)

    asyncio.run(story())


def test_who_goes_is_gone_after_its_last_envelopes_and_told_of_once() -> None:
    async def story() -> None:
        post = Post()
        await post.send(A, B)
        stream = post.streams.pop(A)
        post.relay.goes(stream)
        given = [data[0] for _ in range(2) for data in post.relay.next_for(B)]
        assert given == [ENVELOPE, WORD]
        for _ in range(100):
            post.come(A)
        assert len(post.streams[B].news) == 2  # of A and of C, the latest

    asyncio.run(story())


def test_an_envelope_to_a_forged_name_makes_no_line_of_its_own() -> None:
    with pytest.raises(relay.ProtocolError) as refused:
        asyncio.run(Post().relay.pass_on(A, wrap("b\nall is well\x1b[2J", 1, b"")))
    assert "\n" not in str(refused.value) and "\x1b" not in str(refused.value)


# --- what a peer says of itself -----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [Vafl(), Fdml()])
@pytest.mark.parametrize("top", [TopSettings(), TopSettings(kind="sum")])
def test_a_width_elsewhere_is_known_without_building_anything(
    algorithm: Vafl | Fdml, top: TopSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = Facts("label", ("shop",), 0, 0, "multiclass", 5, {"shop": (4,)}, {})
    plan = Plan(algorithm, DecidedTraining(), PerturbationSettings(), BottomSettings(), top, 0)
    wanted = building.width_of("shop", facts, plan)
    assert building.width_elsewhere("shop", facts, plan) == wanted
    monkeypatch.setattr(building, "build_bottom", _fail)
    huge = Facts("label", ("shop",), 0, 0, "multiclass", 5, {"shop": (1 << 40,)}, {})  # more than any memory holds
    assert building.width_elsewhere("shop", huge, plan) == wanted


def _fail(*given: object) -> None:
    raise AssertionError("something was built")


# --- our own files ------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], CredentialFiles]:
    """A party's files, whose last change is long ago."""
    make_authority(tmp_path / "authority", "a test", 2)
    issue(tmp_path / "authority", "shop", tmp_path / "shop", [], 1)

    def settled() -> CredentialFiles:
        for path in (tmp_path / "shop").iterdir():
            os.utime(path, (1e9, 1e9))
        folder = tmp_path / "shop"
        paths = [folder / name for name in ("shop.key", "shop.pem", "authority.pem", "revoked.txt")]
        return CredentialFiles(*paths, "shop")

    monkeypatch.setattr(certificates, "_is_settled", lambda look: look[4] < 2e18)
    return settled


def test_files_are_read_again_when_one_has_changed(
    files: Callable[[], CredentialFiles], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, folder = files(), tmp_path / "shop"
    first = one.read()
    read = certificates.read_credentials
    monkeypatch.setattr(certificates, "read_credentials", _fail)
    assert one.read() is first
    monkeypatch.setattr(certificates, "read_credentials", read)
    (folder / "revoked.txt").write_text("00ff\n", encoding="utf-8")
    assert one.read().revoked == {255}
    (folder / "shop.key").chmod(0o644)
    with pytest.raises(SettingsError, match="may be read or changed by others"):
        one.read()
    (folder / "shop.key").chmod(0o600)
    (folder / "shop.pem").unlink()
    with pytest.raises(SettingsError, match="There is no file"):
        one.read()


def test_files_that_have_not_changed_expire_all_the_same(
    files: Callable[[], CredentialFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = files()
    first = one.read()
    later = certificates.utc_now() + timedelta(days=3)
    monkeypatch.setattr(certificates, "utc_now", lambda: later)
    with pytest.raises(SettingsError, match="expired"):
        one.read()
    monkeypatch.undo()
    assert one.read() == first


def test_a_file_that_changed_a_moment_ago_is_not_relied_on() -> None:
    """Times of files have a grain: another change within it would not show."""
    now = certificates.time.time_ns()
    assert not certificates._is_settled((0, now - 1_000_000))
    assert certificates._is_settled((0, now - 1_000_000_000))
