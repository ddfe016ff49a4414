"""Every declared message survives the wire unchanged, without copies, and nothing undeclared gets onto it."""

import math

import numpy as np
import pytest
from frames import example, split
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from colonnade import messages
from colonnade.array_fields import ArrayField
from colonnade.errors import ProtocolError
from colonnade.messages import (
    KINDS,
    EmbeddingUpload,
    GradientReply,
    Message,
    RefreshRequest,
    Stop,
    declared,
)
from colonnade.wire import codec
from colonnade.wire.codec import Limits, decode, encode

COUNTS = st.integers(0, 2**63 - 1)
TEXTS = st.text(max_size=1000)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
VALUES = {
    "<u4": st.integers(0, 2**32 - 1),
    "<u8": st.integers(0, 2**64 - 1),
    "<f4": FINITE,
    "<f8": st.floats(allow_nan=False, allow_infinity=False),
}
SCALARS = {int: COUNTS, float: st.floats(allow_nan=False, allow_infinity=False), str: TEXTS}


@st.composite
def message_of(draw: st.DrawFn, kind: messages.MessageKind) -> Message:
    """Any message of a kind: no rows, one row, several; contiguous or not."""
    lengths: dict[str, int] = {}
    fields = {name: draw(SCALARS[wanted]) for name, wanted in kind.scalars}
    for name, field in kind.arrays:
        shape = [lengths.setdefault(dimension, draw(st.integers(0, 6))) for dimension in field.dimensions]
        layout = draw(st.sampled_from(["contiguous", "every other", "transposed", "reversed"]))
        if layout == "every other":
            stored = [*shape[:-1], shape[-1] * 2]
            array = draw(arrays_of.arrays(field.dtype, stored, elements=VALUES[field.dtype]))[..., ::2]
        elif layout == "transposed":
            array = draw(arrays_of.arrays(field.dtype, shape[::-1], elements=VALUES[field.dtype])).T
        else:
            array = draw(arrays_of.arrays(field.dtype, shape, elements=VALUES[field.dtype]))
            array = array[::-1] if layout == "reversed" else array
        fields[name] = array
    return kind.message(**fields)


def assert_same(one: Message, other: Message) -> None:
    assert type(one) is type(other)
    for name in one.__struct_fields__:
        mine, its = getattr(one, name), getattr(other, name)
        if isinstance(mine, np.ndarray):
            assert (mine.dtype, mine.shape) == (its.dtype, its.shape)
            assert np.ascontiguousarray(mine).tobytes() == its.tobytes()  # bit for bit, so −0.0 too
        else:
            assert (type(mine), mine) == (type(its), its)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_every_message_survives_the_wire(kind: messages.MessageKind) -> None:
    @settings(max_examples=40, deadline=None)
    @given(message_of(kind))
    def survives(message: Message) -> None:
        assert_same(message, decode(encode(message)))
        assert_same(message, decode(bytes(encode(message))))
        assert_same(message, decode(memoryview(encode(message))))

    survives()


def test_a_frame_by_hand() -> None:
    frame = encode(RefreshRequest(5, np.array([1, 258], np.uint32)))
    # MessagePack of ["RefreshRequest", [5], [["<u4", [2]]]]: 1 + 15 + 2 + 1 + 1 + 4 + 2 = 26 bytes, 6 of padding.
    assert frame[:8] == b"CLN1\x1a\x00\x00\x00"
    assert frame[8:34] == b"\x93\xaeRefreshRequest\x91\x05\x91\x92\xa3<u4\x91\x02"
    assert frame[34:] == bytes(6) + b"\x01\x00\x00\x00\x02\x01\x00\x00"


def test_a_frame_is_a_whole_number_of_eight_bytes() -> None:
    for rows in range(9):
        upload = EmbeddingUpload(rows, np.zeros(rows, np.uint32), np.zeros((rows, 3), np.float32))
        assert len(encode(upload)) % 8 == 0


def test_a_large_message_survives() -> None:
    rows = np.arange(50_000, dtype=np.uint32)
    embedding = np.random.default_rng(0).normal(size=(50_000, 16)).astype(np.float32)
    frame = encode(EmbeddingUpload(1, rows, embedding))
    assert 0 <= len(frame) - rows.nbytes - embedding.nbytes < 100  # the header is all that is added
    assert_same(EmbeddingUpload(1, rows, embedding), decode(frame))


def test_decoded_arrays_are_views_and_writable_in_a_bytearray() -> None:
    frame = encode(GradientReply(1, np.ones((2, 2), np.float32)))
    message = decode(frame)
    assert isinstance(message, GradientReply)
    message.gradient[1, 1] = 2.0
    assert frame[-4:] == np.float32(2.0).tobytes()  # the last number of the frame is that one
    frozen = decode(bytes(frame))
    assert isinstance(frozen, GradientReply)
    assert not frozen.gradient.flags.writeable
    assert frozen.gradient[1, 1] == 2.0


def test_encoding_leaves_the_message_alone() -> None:
    gradient = np.ones((2, 2), np.float32)
    frame = encode(GradientReply(1, gradient))
    frame[-4:] = bytes(4)
    assert (gradient == 1.0).all()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_a_truncated_or_lengthened_frame_is_refused(kind: messages.MessageKind) -> None:
    frame = bytes(encode(example(kind)))
    for length in range(len(frame)):
        with pytest.raises(ProtocolError):
            decode(frame[:length])
    for extra in (1, 7, 8):
        with pytest.raises(ProtocolError):
            decode(frame + bytes(extra))


# --- what may not leave -----------------------------------------------------------------------------------------


def test_an_undeclared_class_is_not_sent() -> None:
    class Diary(Message, frozen=True, eq=False):
        entry: int

    with pytest.raises(ProtocolError, match=r"Diary is not declared"):
        encode(Diary(1))


def test_a_class_that_borrows_a_declared_name_is_not_sent() -> None:
    impostor = type("Stop", (Message,), {"__annotations__": {"reason": str}}, frozen=True, eq=False)
    with pytest.raises(ProtocolError, match=r"Stop is not declared"):
        encode(impostor("bye"))


@pytest.mark.parametrize(
    "gradient",
    [
        np.ones((2, 2)),
        np.ones((2, 2), np.float16),
        np.ones((2, 2), ">f4"),
        np.ones((2, 2), np.int32),
        np.ones(4, np.float32),
        np.ones((2, 2, 1), np.float32),
    ],
    ids=lambda array: f"{array.dtype}-{array.ndim}",
)
def test_an_array_that_breaks_its_declaration_is_not_sent(gradient: np.ndarray) -> None:
    with pytest.raises(ProtocolError, match=r"GradientReply\.gradient must be <f4"):
        encode(GradientReply(1, gradient))


def test_a_field_that_is_no_scalar_and_no_array_cannot_be_declared() -> None:
    class Secret(Message, frozen=True, eq=False):
        everything: dict

    with pytest.raises(TypeError, match=r"Secret\.everything is neither"):
        declared(Secret)
    assert "Secret" not in KINDS


# --- what a log may show ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_a_repr_shows_shapes_and_no_values(kind: messages.MessageKind) -> None:
    message = example(kind, rows=2, width=3)
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    for name, field in kind.arrays:
        fields[name] = np.full(fields[name].shape, 424242, field.dtype)
    shown = repr(kind.message(**fields))
    assert shown.startswith(f"{kind.name}(")
    assert "424242" not in shown
    for name, field in kind.arrays:
        shape = "×".join("3" if dimension == "width" else "2" for dimension in field.dimensions)
        assert f"{name}=<{np.dtype(field.dtype)} {shape}>" in shown


def test_a_refusal_shows_no_values() -> None:
    upload = EmbeddingUpload(1, np.full(2, 424242, np.uint32), np.full((2, 1), np.nan, np.float32))
    with pytest.raises(ProtocolError) as refused:
        decode(encode(upload))
    assert "424242" not in str(refused.value)


# --- limits -----------------------------------------------------------------------------------------------------


def upload_of(rows: int, width: int) -> bytearray:
    return encode(EmbeddingUpload(1, np.zeros(rows, np.uint32), np.zeros((rows, width), np.float32)))


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(rows=2), r"EmbeddingUpload\.rows claims 3 rows; the limit is 2"),
        (Limits(width=1), r"EmbeddingUpload\.embedding claims 2 width; the limit is 1"),
        (Limits(frame_bytes=80), r"A frame of \d+ bytes exceeds the limit of 80"),
    ],
)
def test_a_receiver_takes_no_more_than_its_limits(limits: Limits, said: str) -> None:
    frame = upload_of(rows=3, width=2)
    assert isinstance(decode(frame, Limits(rows=3, width=2, frame_bytes=len(frame))), EmbeddingUpload)
    with pytest.raises(ProtocolError, match=said):
        decode(frame, limits)


def test_text_has_a_limit_that_any_script_can_fill() -> None:
    longest = "𝄞" * Limits().text_characters  # four bytes each in UTF-8
    assert decode(encode(Stop(longest))).reason == longest  # type: ignore[attr-defined]
    with pytest.raises(ProtocolError, match=r"Stop\.reason has 1001 characters; the limit is 1000"):
        decode(encode(Stop("a" * 1001)))


# --- scalars that no message has yet ------------------------------------------------------------------------------


def test_a_float_is_finite_and_may_come_as_a_whole_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "KINDS", {})

    @declared
    class Temperature(Message, frozen=True, eq=False):
        degrees: float

    monkeypatch.setitem(codec.KINDS, "Temperature", messages.KINDS["Temperature"])
    monkeypatch.setattr(codec, "_writers", {})
    assert decode(encode(Temperature(1.5))).degrees == 1.5  # type: ignore[attr-defined]
    whole = decode(encode(Temperature(3)))
    assert type(whole.degrees) is float  # type: ignore[attr-defined]
    for refused in (math.nan, math.inf, -math.inf):
        with pytest.raises(ProtocolError, match=r"Temperature\.degrees is not finite"):
            decode(encode(Temperature(refused)))
    with pytest.raises(ProtocolError, match=r"Temperature\.degrees must be float, not str"):
        decode(encode(Temperature("warm")))  # type: ignore[arg-type]


def test_the_header_says_what_the_declaration_says() -> None:
    for kind in KINDS.values():
        name, scalars, described = split(bytes(encode(example(kind))))[0]
        assert (name, len(scalars), len(described)) == (kind.name, len(kind.scalars), len(kind.arrays))
        for (_, field), (dtype, shape) in zip(kind.arrays, described, strict=True):
            assert isinstance(field, ArrayField)
            assert (dtype, len(shape)) == (field.dtype, len(field.dimensions))
