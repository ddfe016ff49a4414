"""Frames for the codec's fuzz target, with one invariant: bytes are a declared message that fits its declaration, or
they are a ProtocolError; never another exception.

`one_input` is the target; `frames` are valid ones to begin with, `variant` is one of them after some harm.
"""

import random

import msgspec
import numpy as np
from mutations import damaged, edited_value

from colonnade import messages
from colonnade.errors import ProtocolError
from colonnade.messages import KINDS, Message
from colonnade.wire.codec import MAGIC, decode, encode

_SCALARS = {int: 3, float: 0.5, str: "the planned epochs are done"}


def one_input(data: bytes) -> Message | None:
    """The whole invariant. Returns the message if the bytes were one, None if they were refused."""
    try:
        message = decode(bytearray(data))
    except ProtocolError:
        return None
    kind = KINDS[type(message).__name__]
    assert type(message) is kind.message
    for name, wanted in kind.scalars:
        assert type(getattr(message, name)) is wanted, f"{kind.name}.{name}"
    lengths: dict[str, int] = {}
    held_bytes = 0
    for name, field in kind.arrays:
        array = getattr(message, name)
        assert array.dtype == np.dtype(field.dtype), f"{kind.name}.{name}"
        assert array.ndim == len(field.dimensions), f"{kind.name}.{name}"
        assert not field.finite or np.isfinite(array).all(), f"{kind.name}.{name}"
        for dimension, length in zip(field.dimensions, array.shape, strict=True):
            assert lengths.setdefault(dimension, length) == length, f"{kind.name}.{name}"
        held_bytes += array.nbytes
    assert held_bytes <= len(data)
    assert decode(encode(message)) is not None  # what was accepted can be sent on
    return message


def example(kind: messages.MessageKind, rows: int = 3, width: int = 2) -> Message:
    """A valid message of a kind."""
    fields: dict[str, object] = {name: _SCALARS[wanted] for name, wanted in kind.scalars}
    for name, field in kind.arrays:
        shape = [width if dimension == "width" else rows for dimension in field.dimensions]
        fields[name] = np.arange(np.prod(shape, dtype=int), dtype=field.dtype).reshape(shape)
    return kind.message(**fields)


def framed(header: object, body: bytes = b"", claimed: int | None = None) -> bytes:
    """A frame around any header; `claimed` is a lie about the header's length."""
    packed = header if isinstance(header, bytes) else msgspec.msgpack.encode(header)
    length = len(packed) if claimed is None else claimed
    return MAGIC + length.to_bytes(4, "little") + packed + bytes(-len(packed) % 8) + body


def split(frame: bytes) -> tuple[list, bytes]:
    """A valid frame's header and what follows it."""
    length = int.from_bytes(frame[4:8], "little")
    header = msgspec.msgpack.decode(frame[8 : 8 + length])
    return header, frame[8 + length + (-length % 8) :]


def frames() -> list[bytes]:
    return [
        bytes(encode(example(kind, rows, width)))
        for kind in KINDS.values()
        for rows, width in ((3, 2), (0, 4), (1, 1), (5, 3))
    ]


def variant(frame: bytes, dice: random.Random) -> bytes:
    """A valid frame with something of its header replaced, dropped or doubled; damaged; or nothing but its form."""
    way = dice.random()
    if way < 0.1:
        return framed(dice.randbytes(dice.randrange(60)), dice.randbytes(dice.randrange(60)))
    if way < 0.5:
        return damaged(frame, dice)
    header, body = split(frame)
    return framed(edited_value(header, dice), body)
