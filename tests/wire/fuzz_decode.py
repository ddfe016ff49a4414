"""Fuzz target of the codec, with one invariant: bytes are a declared message that fits its declaration, or they are a
ProtocolError; never another exception.

`one_input` is the target, for any fuzzer. As a script (python tests/wire/fuzz_decode.py --seconds 60 --seed 1) it
feeds itself random bytes and damaged frames, and prints the bytes that broke the invariant.
"""

import argparse
import random
import time

import msgspec
import numpy as np

from colonnade import messages
from colonnade.errors import ProtocolError
from colonnade.messages import KINDS, Message
from colonnade.wire.codec import MAGIC, decode, encode

_SCALARS = {int: 3, float: 0.5, str: "the planned epochs are done"}
_HOSTILE_VALUES = [
    *(0, 1, -1, 7, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)),
    *(0.0, 1.5, float("nan"), float("inf"), True, False, None),
    *("", "<f4", "<u4", ">f4", "<f8", "|O", "Stop", "EmbeddingUpload", "x" * 1001),
    *(b"", b"\xff", [], {}, [[[[]]]], {"a": 1}),
]


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


def damaged(frame: bytes, dice: random.Random) -> bytes:
    """A valid frame after one to four mishaps."""
    data = bytearray(frame)
    for _ in range(dice.randint(1, 4)):
        place = dice.randrange(len(data) + 1)
        match dice.randrange(6):
            case 0 if place < len(data):
                data[place] ^= 1 << dice.randrange(8)
            case 1:
                del data[place:]
            case 2:
                data[place:place] = dice.randbytes(dice.randint(1, 16))
            case 3 if place < len(data):
                del data[place : place + dice.randint(1, 16)]
            case 4:
                data[4:8] = dice.choice([0, 1, len(frame), 4096, 4097, 2**32 - 1]).to_bytes(4, "little")
            case _:
                data[place:place] = data[: dice.randrange(len(data) + 1)]
    return bytes(data)


def edited(frame: bytes, dice: random.Random) -> bytes:
    """A valid frame with one value of its header replaced, dropped or doubled."""
    header, body = split(frame)
    table = header
    while True:
        inner = [place for place, value in enumerate(table) if isinstance(value, list)]
        if not inner or dice.random() < 0.3:
            break
        table = table[dice.choice(inner)]
    if not table:
        table.append(dice.choice(_HOSTILE_VALUES))
    else:
        place = dice.randrange(len(table))
        match dice.randrange(4):
            case 0:
                del table[place]
            case 1:
                table.insert(place, table[place])
            case _:
                table[place] = dice.choice(_HOSTILE_VALUES)
    return framed(header, body)


def fuzz(seed: int, seconds: float) -> tuple[int, int]:
    """Feed the target for so long; how many inputs there were, and how many of them it took for messages."""
    dice = random.Random(seed)
    frames = [
        bytes(encode(example(kind, rows, width)))
        for kind in KINDS.values()
        for rows, width in ((3, 2), (0, 4), (1, 1), (5, 3))
    ]
    inputs = accepted = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        way = dice.random()
        if way < 0.1:
            data = dice.randbytes(dice.randrange(200))
        elif way < 0.2:
            data = framed(dice.randbytes(dice.randrange(60)), dice.randbytes(dice.randrange(60)))
        elif way < 0.6:
            data = damaged(dice.choice(frames), dice)
        else:
            data = edited(dice.choice(frames), dice)
        try:
            accepted += one_input(data) is not None
        except Exception as error:
            raise AssertionError(f"seed {seed}, input {inputs}: {type(error).__name__} for {data.hex()}") from error
        inputs += 1
    return inputs, accepted


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fuzz the codec's decode.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    tried, taken = fuzz(given.seed, given.seconds)
    print(f"{tried} inputs, {taken} of them messages; the invariant held.")
