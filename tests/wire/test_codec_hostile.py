"""Bytes are hostile: what arrives is a declared message or a ProtocolError, and its claims cost no memory."""

import tracemalloc

import msgspec
import numpy as np
import pytest
from frames import example, framed, one_input, split
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import ProtocolError
from colonnade.messages import KINDS, EmbeddingUpload, EvaluationRequest, Message, RefreshRequest, Stop
from colonnade.wire.codec import MAGIC, decode, encode

UPLOAD = bytes(encode(EmbeddingUpload(7, np.array([3, 1], np.uint32), np.ones((2, 2), np.float32))))
FRAMES = [bytes(encode(example(kind))) for kind in KINDS.values()]


def refused(frame: bytes) -> str:
    with pytest.raises(ProtocolError) as error:
        decode(bytearray(frame))
    return str(error.value)


def with_header(frame: bytes, place: tuple[int, ...], value: object) -> bytes:
    """The frame with one value of its header replaced."""
    header, body = split(frame)
    table = header
    for step in place[:-1]:
        table = table[step]
    table[place[-1]] = value
    return framed(header, body)


# --- the invariant under anything -------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    one_input(data)
    one_input(MAGIC + data)
    one_input(framed(data))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FRAMES), st.data())
def test_any_flipped_bit(frame: bytes, data: st.DataObject) -> None:
    bit = data.draw(st.integers(0, len(frame) * 8 - 1))
    flipped = bytearray(frame)
    flipped[bit // 8] ^= 1 << bit % 8
    one_input(bytes(flipped))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(FRAMES), st.data())
def test_any_insertion(frame: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(frame)))
    one_input(frame[:place] + data.draw(st.binary(min_size=1, max_size=40)) + frame[place:])


# MessagePack of any plain value, in place of the header or of any part of it.
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(PLAIN, st.sampled_from(FRAMES))
def test_any_header(value: object, frame: bytes) -> None:
    header, body = split(frame)
    one_input(framed(value, body))
    for place in range(3):
        one_input(with_header(frame, (place,), value))
    for place, part in ((1, header[1]), (2, header[2])):
        for index in range(len(part)):
            one_input(with_header(frame, (place, index), value))


def test_the_fuzz_target_notices_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Undeclared(Message, frozen=True, eq=False):
        pass

    monkeypatch.setattr("frames.decode", lambda frame: Undeclared())
    with pytest.raises(KeyError):
        one_input(b"")


# --- known tricks, one by one -----------------------------------------------------------------------------------


def test_not_a_frame() -> None:
    for data in (b"", b"CLN1", b"CLN1\0\0\0", b"HTTP/1.1 200 OK\r\n\r\n", b"CLN2" + UPLOAD[4:]):
        assert "not a Colonnade frame" in refused(data)


@pytest.mark.parametrize("claimed", [4097, 65536, 2**31, 2**32 - 1])
def test_a_header_length_that_lies_upwards(claimed: int) -> None:
    assert f"claims {claimed} bytes" in refused(UPLOAD[:4] + claimed.to_bytes(4, "little") + UPLOAD[8:])


def test_a_header_length_that_lies_by_a_little() -> None:
    true = int.from_bytes(UPLOAD[4:8], "little")
    for claimed in {*range(64)} - {true}:
        refused(UPLOAD[:4] + claimed.to_bytes(4, "little") + UPLOAD[8:])


def test_a_header_at_its_limit_is_still_looked_at() -> None:
    assert "header is not valid" in refused(framed(b"\xc0" * 4096))
    assert "claims 4097 bytes" in refused(framed(b"\xc0" * 4097))


@pytest.mark.parametrize("rows", [3, 2**24 + 1, 2**32, 2**40, 2**63 - 1, 2**64 - 1, -1, -(2**63)])
@pytest.mark.parametrize("place", [(2, 0, 1, 0), (2, 1, 1, 0), (2, 1, 1, 1)])
def test_dimensions_that_are_not_there(rows: int, place: tuple[int, ...]) -> None:
    assert "EmbeddingUpload." in refused(with_header(UPLOAD, place, rows))


def test_dimensions_whose_product_overflows_sixty_four_bits() -> None:
    # 2²⁴ × 2²⁰ × 4 bytes is within every limit of its own and does not fit into the frame.
    frame = framed(["EmbeddingUpload", [1], [["<u4", [2**24]], ["<f4", [2**24, 2**20]]]], bytes(64))
    assert "does not fit into the frame" in refused(frame)


def test_dimensions_of_one_name_must_agree() -> None:
    header = ["EmbeddingUpload", [1], [["<u4", [2]], ["<f4", [1, 4]]]]
    body = bytes(8) + bytes(16)
    assert "EmbeddingUpload.embedding has 1 rows" in refused(framed(header, body))


@pytest.mark.parametrize("dtype", ["<f8", ">f4", "<i4", "|O", "O", "<U9", "object", "", "<f4,<f4", "<M8[s]", "x" * 500])
def test_another_dtype(dtype: str) -> None:
    said = refused(with_header(UPLOAD, (2, 1, 0), dtype))
    assert "EmbeddingUpload.embedding must be <f4" in said
    assert len(said) < 120  # the stranger's text is not repeated at length


def test_another_number_of_dimensions() -> None:
    for shape in ([], [4], [2, 2, 1], [1] * 40):
        assert "must have dimensions" in refused(with_header(UPLOAD, (2, 1, 1), shape))


def test_an_unknown_kind() -> None:
    for name in ("Backdoor", "stop", "Message", "__class__", "os.system", ""):
        assert "Unknown kind of message" in refused(with_header(UPLOAD, (0,), name))
    assert len(refused(with_header(UPLOAD, (0,), "x" * 3000))) < 100


def test_scalars_and_arrays_too_many_and_too_few() -> None:
    for scalars in ([], [1, 2], [1] * 100):
        assert f"came with {len(scalars)} scalars" in refused(with_header(UPLOAD, (1,), scalars))
    array = ["<u4", [2]]
    for arrays in ([], [array], [array] * 50):
        assert f"and {len(arrays)} arrays" in refused(with_header(UPLOAD, (2,), arrays))


@pytest.mark.parametrize(
    "value", [True, False, None, 1.0, "1", b"1", [1], {"a": 1}, -1, 2**63, 2**64 - 1, float("nan")]
)
def test_a_count_is_nothing_but_a_count(value: object) -> None:
    refused(with_header(UPLOAD, (1, 0), value))
    for place in range(4):
        refused(with_header(bytes(encode(EvaluationRequest(1, 2, 3, 4))), (1, place), value))


@pytest.mark.parametrize("value", [1, 1.0, True, None, b"bytes", ["a"]])
def test_a_text_is_nothing_but_a_text(value: object) -> None:
    refused(with_header(bytes(encode(Stop("bye"))), (1, 0), value))


def test_text_that_is_not_utf8() -> None:
    assert "header is not valid" in refused(framed(b"\x93\xa4Stop\x91\xa2\xff\xfe\x90"))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite(bad: float) -> None:
    embedding = np.ones((2, 2), np.float32)
    embedding[1, 0] = bad
    upload = EmbeddingUpload(1, np.zeros(2, np.uint32), embedding)
    assert "EmbeddingUpload.embedding holds NaN or infinity" in refused(encode(upload))


@pytest.mark.parametrize("deep", [b"\x91" * 4000, b"\x81\xa1a" * 1300, b"\x93\xa4Stop" + b"\x91" * 4000])
def test_deep_nesting(deep: bytes) -> None:
    assert "header is not valid" in refused(framed(deep))


def test_a_map_instead_of_a_list() -> None:
    refused(framed({"kind": "Stop", "scalars": ["bye"], "arrays": []}))


# --- memory -----------------------------------------------------------------------------------------------------

ROWS_2_40 = ["RefreshRequest", [1], [["<u4", [2**40]]]]
CLAIMS = {
    "2^40 rows": framed(ROWS_2_40),
    "all limits at once": framed(["EmbeddingUpload", [1], [["<u4", [2**24]], ["<f4", [2**24, 2**20]]]]),
    "4 GB of header": framed(msgspec.msgpack.encode(ROWS_2_40), claimed=2**32 - 1),
    "4 G elements of a list": framed(b"\x93\xa4Stop\xdd\xff\xff\xff\xff\x01"),
    "4 G elements of the header": framed(b"\xdd\xff\xff\xff\xff\x01"),
    "4 GB of text": framed(b"\x93\xa4Stop\x91\xdb\xff\xff\xff\xff"),
    "4 GB of bytes": framed(b"\x93\xa4Stop\x91\xc6\xff\xff\xff\xff"),
    "4 G pairs of a map": framed(b"\x93\xa4Stop\xdf\xff\xff\xff\xff"),
    "many arrays": framed(["Stop", ["a"], [["<u4", [2**24]]] * 300]),
}


@pytest.mark.parametrize("frame", CLAIMS.values(), ids=CLAIMS.keys())
def test_a_claim_allocates_nothing(frame: bytes) -> None:
    data = bytearray(frame)
    refused(data)  # once before, so that what Python keeps for itself is not counted
    tracemalloc.start()
    try:
        refused(data)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 200_000


def test_decoding_costs_no_copy_of_the_arrays() -> None:
    frame = encode(RefreshRequest(1, np.zeros(500_000, np.uint32)))
    tracemalloc.start()
    try:
        decode(frame)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 200_000  # the frame has 2,000,000
