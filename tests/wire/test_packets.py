"""Any stream, cut anywhere, gives the same packets; what cannot be a packet is refused before it costs memory."""

import tracemalloc
from itertools import pairwise
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import ProtocolError
from colonnade.wire.packets import (
    ACKNOWLEDGE,
    DONE,
    FRAME,
    HEADER_BYTES,
    KINDS,
    RESUME,
    START,
    Packet,
    PacketReader,
    header,
)

numbers = st.integers(0, 2**64 - 1)
packets = st.one_of(
    st.builds(Packet, st.just(FRAME), numbers, numbers, st.binary(max_size=60).map(bytearray)),
    st.builds(Packet, st.sampled_from([RESUME, ACKNOWLEDGE, START, DONE]), numbers, numbers, st.just(bytearray())),
)


def on_the_wire(sent: list[Packet]) -> bytes:
    return b"".join(header(one.kind, one.number, one.acknowledged, len(one.body)) + one.body for one in sent)


def read(*pieces: bytes | bytearray | memoryview, longest_body: int = 1000) -> list[Packet]:
    reader = PacketReader(longest_body)
    return [packet for piece in pieces for packet in reader.feed(piece)]


def test_a_packet_byte_by_byte() -> None:
    """Length, kind, number and acknowledged, little-endian; then the body."""
    data = bytes.fromhex("03000000 01000000 0700000000000000 0500000000000000") + b"abc"
    assert header(FRAME, 7, 5, 3) + b"abc" == data
    assert HEADER_BYTES == 24
    assert read(data) == [Packet(FRAME, 7, 5, bytearray(b"abc"))]


@given(sent=st.lists(packets, max_size=6), data=st.data())
def test_any_stream_cut_anywhere_gives_the_same_packets(sent: list[Packet], data: st.DataObject) -> None:
    stream = on_the_wire(sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12), label="cuts"))
    pieces = [stream[start:end] for start, end in pairwise([0, *cuts, len(stream)])]
    assert read(*pieces) == sent
    assert read(*(stream[place : place + 1] for place in range(len(stream)))) == sent


@given(sent=st.lists(packets, min_size=1, max_size=3))
def test_a_stream_that_ends_early_gives_what_was_whole(sent: list[Packet]) -> None:
    stream = on_the_wire(sent)
    for length in range(len(stream)):
        got = read(stream[:length])
        assert got == sent[: len(got)]
        assert len(got) < len(sent)


def test_a_body_longer_than_what_is_allocated_at_once() -> None:
    body = bytearray(range(256)) * (20 << 10)  # 5 MB
    stream = memoryview(header(FRAME, 1, 0, len(body)) + body + header(DONE, 0, 0))
    cuts = [0, 30, 1 << 20, (1 << 20) + 24, 3 << 20, 4_000_001, len(stream)]
    got = read(*(stream[start:end] for start, end in pairwise(cuts)), longest_body=len(body))
    assert got == [Packet(FRAME, 1, 0, body), Packet(DONE, 0, 0, bytearray())]


def test_the_bodies_are_the_readers_own() -> None:
    """A carrier reads everything into the same memory; a frame that waits must not change with it."""
    scratch = bytearray(header(FRAME, 1, 0, 3) + b"abc")
    (packet,) = read(memoryview(scratch))
    scratch[-3:] = b"xyz"
    assert packet.body == b"abc"


# --- hostile ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ((2**32 - 1, FRAME, 1, 0), "claims 4294967295 bytes; the limit here is 1000"),
        ((1001, FRAME, 1, 0), "claims 1001 bytes; the limit here is 1000"),
        ((0, 0, 1, 0), "unknown kind 0"),
        ((0, max(KINDS) + 1, 1, 0), "unknown kind 6"),
        ((0, 2**32 - 1, 1, 0), "unknown kind 4294967295"),
        *[((1, kind, 0, 0), f"kind {kind} claims a body of 1 bytes; only frames") for kind in KINDS if kind != FRAME],
    ],
)
def test_what_no_honest_peer_sends(fields: tuple[int, int, int, int], said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        read(pack("<IIQQ", *fields))


def test_the_longest_body_is_taken() -> None:
    assert len(read(header(FRAME, 1, 0, 1000) + bytes(1000))[0].body) == 1000


@given(noise=st.binary(min_size=HEADER_BYTES, max_size=200))
def test_noise_is_refused_or_waits_for_more(noise: bytes) -> None:
    try:
        got = read(noise)
    except ProtocolError:
        return
    assert all(packet.kind in KINDS for packet in got)


@pytest.mark.parametrize("sent_bytes", [0, 1, 3_000_000])
def test_who_claims_a_gigabyte_must_send_one(sent_bytes: int) -> None:
    reader = PacketReader()
    data = header(FRAME, 1, 0, 1 << 30) + bytes(sent_bytes)
    tracemalloc.start()
    try:
        assert list(reader.feed(data)) == []
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * sent_bytes + (2 << 20)
