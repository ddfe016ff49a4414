"""Over links with 50 ms and 10 Mbit/s the training is the same, only slower; how much slower is for the benchmarks."""

import socket
import threading
from collections.abc import Callable

import pytest
from parties import IRIS, LINEAR_SPLIT, Town, assert_same_bits, shared, with_tables

from colonnade.benchmarks.slow_links import SlowLink


def behind(town: Town, link: SlowLink) -> Town:
    """Everybody reaches the label party through the link."""
    town.shared["network"] = {**town.shared["network"], "address": f"127.0.0.1:{link.port}"}
    for one in town.parties.values():
        one.write_files()
    return town


@pytest.mark.parametrize("algorithm", ["split", "fsaga"])
def test_the_same_bits_over_a_slow_link(algorithm: str, town: Callable[..., Town]) -> None:
    one = town(shared(algorithm, IRIS, 2, 16, training={"l2": 0.01}))
    with SlowLink(one.port).standing() as link:
        behind(one, link).start()
        one.end()
        assert link.passed_bytes > 1000
    assert_same_bits(one.models(), one.simulated().models)


@pytest.mark.parametrize("in_flight", [1, 4])
def test_uploads_in_flight_over_a_slow_link(in_flight: int, town: Callable[..., Town]) -> None:
    plan = shared({"name": "vafl", "in_flight": in_flight}, {}, 2, 64, training={"learning_rate": 0.1}, **LINEAR_SPLIT)
    one = with_tables(town, plan, parties=2)
    with SlowLink(one.port, delay_seconds=0.01).standing() as link:
        behind(one, link).start()
        summary = one.end()
    steps = [party.summary()["steps"] for party in one.feature_parties]
    assert summary["exchanges"] == sum(steps) == 2 * 32 * 2
    assert summary["test"]["accuracy"] > 0.9


def test_a_link_delays_and_loses_nothing() -> None:
    """The link itself: bytes come out as they went in."""
    listener = socket.create_server(("127.0.0.1", 0))
    heard = bytearray()

    def listen() -> None:
        link, _ = listener.accept()
        with link:
            while data := link.recv(1 << 16):
                heard.extend(data)
            link.sendall(b"all of it")

    thread = threading.Thread(target=listen)
    thread.start()
    sent = bytes(range(256)) * 200
    slow = SlowLink(listener.getsockname()[1], delay_seconds=0.01, bytes_per_second=1e6)
    with listener, slow.standing(), socket.create_connection(("127.0.0.1", slow.port), timeout=20) as link:
        link.sendall(sent)
        link.shutdown(socket.SHUT_WR)
        answer = link.recv(100)
        thread.join()
    assert answer == b"all of it"
    assert bytes(heard) == sent
