"""Numbers in fewer bytes: what rounding keeps, that nothing is lost on average, and what a receiver refuses."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.typing import NDArray

from colonnade.algorithms.parts.rounding import in_fewer_bytes
from colonnade.array_fields import PRECISIONS, Rounded, record_bytes, rounded, widened
from colonnade.errors import ProtocolError
from colonnade.messages import (
    EmbeddingUpload,
    EvaluationEmbedding,
    GradientReply,
    LossReply,
    Message,
    PairUpload,
    PerturbedUpload,
    ProductSum,
    ResidualReply,
)
from colonnade.runtimes.endurance import Endurance
from colonnade.runtimes.links import Links, Peers
from colonnade.wire.codec import Limits, decode, encode, held_bytes
from colonnade.wire.packets import FRAME, RESUME, header

FORMS = PRECISIONS[1:]
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**126), max_value=2.0**126)
MATRICES = arrays_of.arrays(
    np.float32, arrays_of.array_shapes(min_dims=2, max_dims=3, min_side=0, max_side=5), elements=FLOATS
)
ROWS = np.arange(3, dtype=np.uint32)


def halves(count: int) -> NDArray[np.float32]:
    return np.full(count, 0.5, np.float32)


def both_ways(form: str) -> dict[str, str]:
    return {"up": form, "down": form}


def sent(message: Message, form: str, rows: int = 1000) -> bytearray:
    return encode(in_fewer_bytes(message, both_ways(form), rows, halves))


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=40, deadline=None)
@given(values=MATRICES)
def test_each_row_keeps_the_digits_of_its_form(form: str, values: NDArray[np.float32]) -> None:
    held = rounded(values, form, halves)
    assert held.records.nbytes == math.prod(values.shape[:-1]) * record_bytes(form, values.shape[-1])
    found = widened(form, held.shape, held.records)
    largest = np.abs(values).max(-1, keepdims=True, initial=0.0).astype(np.float64)
    within = {
        "int8": largest / 127,
        "float16": np.abs(values) * 2.0**-11 + largest * 2.0**-38,
        "bfloat16": np.abs(values) * 2.0**-8,
    }
    assert (np.abs(found.astype(np.float64) - values) <= within[form] + 2.0**-126).all()


def test_int8_loses_nothing_on_average() -> None:
    chance = np.random.default_rng(0)
    row = np.array([[1.0, 0.3, -0.011, 0.0]], np.float32)
    draw = lambda count: chance.random(count, np.float32)  # noqa: E731
    many = rounded(np.tile(row, (20_000, 1)), "int8", draw)
    found = widened("int8", many.shape, many.records)
    # Steps are 2^-6: of a mean over 20,000 the standard deviation is below 2^-7 / √20,000 = 5.5e-5.
    assert np.abs(found.mean(0) - row).max() < 3e-4
    assert {*np.unique(found[:, 3])} == {0.0}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_no_number_is_refused_where_it_arrives(form: str) -> None:
    for bad in (math.nan, -math.nan, math.inf, -math.inf):
        gradient = np.array([[1.0, 2.0], [0.5, bad], [0.0, 3.0]], np.float32)
        with pytest.raises(ProtocolError, match="NaN or infinity"):
            decode(sent(GradientReply(1, gradient), form))


def test_float16_neither_overflows_nor_vanishes() -> None:
    gradient = np.array([[1e30, -2e30], [1e-20, 3e-21], [0.0, 0.0]], np.float32)
    found = decode(sent(GradientReply(1, gradient), "float16"))
    assert isinstance(found, GradientReply) and found.gradient.dtype == np.float32
    np.testing.assert_allclose(found.gradient, gradient, rtol=2**-11)


@pytest.mark.parametrize("form", FORMS)
def test_differences_near_by_keep_their_digits(form: str) -> None:
    chance = np.random.default_rng(1)
    here = chance.normal(size=(3, 8)).astype(np.float32)
    around = here + np.float32(1e-4) * chance.normal(size=(2, 3, 8)).astype(np.float32)
    found = decode(sent(PerturbedUpload(1, ROWS, here, around), form))
    assert isinstance(found, PerturbedUpload)
    moved, wanted = found.perturbed - found.embedding, around - here
    assert np.linalg.norm(moved - wanted) < 0.02 * np.linalg.norm(wanted)
    pair = decode(sent(PairUpload(1, ROWS, around[0], around[1]), form))
    assert isinstance(pair, PairUpload)
    wanted = around[0] - around[1]
    assert np.linalg.norm(pair.plus - pair.minus - wanted) < 0.02 * np.linalg.norm(wanted)


def test_bytes_of_an_upload() -> None:
    upload = EmbeddingUpload(1, np.arange(128, dtype=np.uint32), np.ones((128, 32), np.float32))
    whole = len(encode(upload))
    assert whole == pytest.approx(128 * (4 + 4 * 32), abs=100)
    assert len(sent(upload, "float16")) == pytest.approx(128 * (2 + 1 + 2 * 32), abs=100)
    assert len(sent(upload, "int8")) == pytest.approx(128 * (2 + 1 + 32), abs=100)
    assert len(sent(upload, "int8", rows=1 << 20)) == pytest.approx(128 * (4 + 1 + 32), abs=100)
    found = decode(sent(upload, "int8"))
    assert isinstance(found, EmbeddingUpload) and found.rows.dtype == np.uint32
    assert found.rows.tolist() == upload.rows.tolist()


def test_evaluations_losses_and_sums_with_scalars_go_as_they_are() -> None:
    for message in (
        EvaluationEmbedding(1, 0, np.full((3, 2), 0.1, np.float32)),
        LossReply(1, np.array([0.1, 0.2])),
        ProductSum("label", 1, np.full((1001, 1), 0.1)),  # more rows than there are: scalars are among them
    ):
        assert sent(message, "int8") == encode(message)
    found = decode(sent(ProductSum("label", 1, np.full((1000, 1), 0.1)), "int8"))
    assert isinstance(found, ProductSum) and found.total.dtype == np.float64
    assert found.total[0, 0] == pytest.approx(0.1, rel=1 / 64)


# --- what a hostile peer may try ---------------------------------------------------------------------------------


def test_a_form_that_a_field_does_not_have_is_refused() -> None:
    losses = Rounded("int8", (2,), np.zeros((1, 3), np.uint8))
    with pytest.raises(ProtocolError, match="does not travel"):
        encode(LossReply(1, losses))  # type: ignore[arg-type]
    frame = bytes(encode(LossReply(1, np.zeros(2))))
    with pytest.raises(ProtocolError, match="must be <f8, not '<u2'"):
        decode(frame.replace(b"<f8", b"<u2"))


def test_sizes_that_do_not_fit_are_refused() -> None:
    short = Rounded("int8", (3, 4), np.zeros((3, 4), np.uint8))  # a record of four numbers takes five bytes
    with pytest.raises(ProtocolError, match="does not travel"):
        encode(GradientReply(1, short))  # type: ignore[arg-type]
    frame = sent(GradientReply(1, np.ones((3, 40), np.float32)), "int8")
    for end in range(8, len(frame), 8):
        with pytest.raises(ProtocolError):
            decode(bytes(frame[:end]))


def test_what_would_be_larger_than_a_frame_may_be_once_it_is_widened_is_refused() -> None:
    frame = sent(ResidualReply(1, np.ones((10, 100))), "int8")
    assert len(frame) < 1100
    decode(frame, Limits(frame_bytes=8000))
    with pytest.raises(ProtocolError, match="7999 bytes once it is widened"):
        decode(frame, Limits(frame_bytes=7999))


def test_what_waits_counts_as_it_is_kept() -> None:
    """Else a peer could have eight times as much wait here as it may."""
    links = Links("bank", Peers(["shop"], "bank"), Endurance(waiting_bytes=8000), Limits(), lambda: 0.0, 0)
    links.connect("shop")
    links.received("shop", header(RESUME, 0, 0))
    frame = sent(ResidualReply(1, np.ones((10, 100))), "int8")
    links.received("shop", header(FRAME, 1, 0, len(frame)) + frame)
    assert len(frame) < 1100 and not links.wants_more("shop")
    links.next_piece()
    assert links.wants_more("shop") and links.peers["shop"].waiting_bytes == 0
    plain = encode(ResidualReply(1, np.ones((10, 100))))
    assert held_bytes(plain, decode(plain)) == len(plain)


def test_a_power_that_makes_a_number_infinite_is_refused() -> None:
    frame = sent(GradientReply(1, np.ones((1, 2), np.float32)), "int8")
    # 1 is 64 · 2^-6: the record is 0xfa, 64, 64. With 2^127 before it, 64 would be no float32.
    harmed = bytes(frame).replace(b"\xfa\x40\x40", b"\x7f\x40\x40")
    assert harmed != bytes(frame)
    with pytest.raises(ProtocolError, match="NaN or infinity"):
        decode(harmed)


@pytest.mark.parametrize("form", FORMS)
def test_harmed_bytes_are_taken_or_refused(form: str) -> None:
    chance = np.random.default_rng(2)
    here = chance.normal(size=(3, 4)).astype(np.float32)
    whole = sent(PerturbedUpload(1, ROWS, here, here[None] + np.float32(0.01)), form)
    for _ in range(300):
        harmed = bytearray(whole)
        for place in chance.integers(0, len(harmed), chance.integers(1, 4)):
            harmed[place] = chance.integers(256)
        try:
            found = decode(bytes(harmed))
        except ProtocolError:
            continue
        if isinstance(found, PerturbedUpload):
            assert np.isfinite(found.embedding).all() and np.isfinite(found.perturbed).all()
