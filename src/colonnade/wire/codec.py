"""Messages to bytes and back. The only invariant that matters: `decode(any bytes)` returns a declared message that
fits its declaration, or raises ProtocolError, and allocates nothing that the sender chose the size of.

A frame is: magic (4 bytes), header length (u32), header (MessagePack: kind, scalars, and dtype and shape of each
array), zeros up to a multiple of 8, then each array's raw little-endian buffer, padded likewise. Nothing in it names
code. Decoded arrays are views of the frame, but for those that came in fewer bytes: numbers that were rounded
(array_fields.py), and positions of rows in two bytes each. These are widened to what the message declares.
"""

from dataclasses import dataclass
from math import isfinite, prod
from operator import attrgetter
from struct import Struct
from typing import Any

import msgspec
import numpy as np

from colonnade.array_fields import PRECISIONS, ArrayField, Rounded, rounded_bytes, widened
from colonnade.errors import ProtocolError
from colonnade.messages import KINDS, Message, MessageKind

MAGIC = b"CLN1"
_MAX_HEADER_BYTES = 4096
_MOST_COUNT = 1 << 63
_PADDING = [bytes(-size % 8) for size in range(8)]


@dataclass(frozen=True)
class Limits:
    """What a receiver takes. A larger frame, row count or width is refused before anything is built from it."""

    frame_bytes: int = 1 << 30
    rows: int = 1 << 24
    width: int = 1 << 20
    text_characters: int = 1000


DEFAULT_LIMITS = Limits()

_encode_header = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(tuple[str, list[int | float | str], list[tuple[str, list[int]]]]).decode
_PREFIX_BYTES = 8
_unpack_prefix = Struct("<4sI").unpack_from
_DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(name) for name in ("<u4", "<f4", "<f8", "<u8")}
_ITEM_BYTES = {name: dtype.itemsize for name, dtype in _DTYPES.items()}
_SHORT_ROWS = np.dtype("<u2")
_SHORT = "<u2"  # what it is called on the wire


@dataclass(frozen=True)
class _Writer:
    """How one kind's fields are fetched, prepared once so that a message costs two attribute calls."""

    name: str
    scalars: Any
    arrays: tuple[tuple[str, ArrayField, np.dtype[Any]], ...]


def _writer(kind: MessageKind) -> _Writer:
    names = [name for name, _ in kind.scalars]
    if not names:
        fetch: Any = lambda message: ()  # noqa: E731
    elif len(names) == 1:
        only = attrgetter(names[0])
        fetch = lambda message: (only(message),)  # noqa: E731
    else:
        fetch = attrgetter(*names)
    arrays = tuple((name, field, np.dtype(field.dtype)) for name, field in kind.arrays)
    return _Writer(kind.name, fetch, arrays)


_writers: dict[type[Message], _Writer] = {}


_DIVERGED = "Perhaps the training has diverged: lower training.learning_rate."


def encode(message: Message) -> bytearray:
    """One frame. An undeclared class or an array that breaks its declaration is the sender's own mistake."""
    writer = _writers.get(type(message))
    if writer is None:
        kind = KINDS.get(type(message).__name__)
        if kind is None or kind.message is not type(message):
            raise ProtocolError(f"{type(message).__name__} is not declared in messages.py and may not be sent.")
        writer = _writers[type(message)] = _writer(kind)
    described = []
    parts: list[Any] = [MAGIC, b"", b"", b""]
    for name, field, dtype in writer.arrays:
        array = getattr(message, name)
        if type(array) is Rounded:
            described.append(_described(writer.name, name, field, array))
            parts += [array.records.data if array.records.size else b"", _PADDING[array.records.nbytes % 8]]
            continue
        is_short = array.dtype == _SHORT_ROWS and field.dtype == "<u4"
        if (array.dtype != dtype and not is_short) or array.ndim != len(field.dimensions):
            raise ProtocolError(
                f"{writer.name}.{name} must be {field.dtype} with dimensions {field.dimensions}, "
                f"not {array.dtype} of shape {array.shape}."
            )
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        described.append((_SHORT if is_short else field.dtype, array.shape))
        parts.append(array.data if array.size else b"")
        parts.append(_PADDING[array.nbytes % 8])
    header = _encode_header((writer.name, writer.scalars(message), described))
    parts[1] = len(header).to_bytes(4, "little")
    parts[2] = header
    parts[3] = _PADDING[len(header) % 8]
    return bytearray().join(parts)


def _described(kind: str, name: str, field: ArrayField, array: Rounded) -> tuple[str, tuple[int, ...]]:
    """How a header describes what was rounded."""
    is_one = field.travels and array.precision in PRECISIONS[1:] and len(array.shape) == len(field.dimensions)
    if not is_one or array.records.nbytes != rounded_bytes(array.precision, array.shape):
        raise ProtocolError(f"{kind}.{name} does not travel as {array!r}.")
    return array.precision, array.shape


def decode(frame: bytes | bytearray | memoryview, limits: Limits = DEFAULT_LIMITS) -> Message:
    """The message in a frame, its arrays views of the frame's bytes; ProtocolError for anything else."""
    size = len(frame)
    if size > limits.frame_bytes:
        raise ProtocolError(f"A frame of {size} bytes exceeds the limit of {limits.frame_bytes}.")
    magic, header_bytes = _unpack_prefix(frame) if size >= _PREFIX_BYTES else (b"", 0)
    if magic != MAGIC:
        raise ProtocolError("These bytes are not a Colonnade frame, or of another protocol version.")
    if header_bytes > _MAX_HEADER_BYTES or _PREFIX_BYTES + header_bytes > size:
        raise ProtocolError(f"The frame's header claims {header_bytes} bytes: truncated or corrupt.")
    try:
        name, scalars, described = _decode_header(memoryview(frame)[_PREFIX_BYTES : _PREFIX_BYTES + header_bytes])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError("The frame's header is not valid.") from error
    kind = KINDS.get(name)
    if kind is None:
        raise ProtocolError(f"Unknown kind of message {name[:40]!r}.")
    if len(scalars) != len(kind.scalars) or len(described) != len(kind.arrays):
        raise ProtocolError(f"{name} came with {len(scalars)} scalars and {len(described)} arrays.")
    fields: dict[str, Any] = {}
    for (field_name, wanted), value in zip(kind.scalars, scalars, strict=True):
        is_plain_count = type(value) is int and wanted is int and 0 <= value < _MOST_COUNT  # as most are
        fields[field_name] = value if is_plain_count else _checked_scalar(name, field_name, wanted, value, limits)
    place = _PREFIX_BYTES + header_bytes + (-header_bytes % 8)
    dimensions: dict[str, int] = {}
    widened_bytes = 0
    for (field_name, field), (dtype, shape) in zip(kind.arrays, described, strict=True):
        _check_shape(name, field_name, field, dtype, shape, dimensions, limits)
        is_other, size_of_it = dtype != field.dtype, prod(shape)
        nbytes = _bytes_of_other(dtype, shape) if is_other else size_of_it * _ITEM_BYTES[dtype]
        if place + nbytes > size:
            raise ProtocolError(f"{name}.{field_name} of shape {tuple(shape)} does not fit into the frame: truncated.")
        widened_bytes += prod(shape) * _ITEM_BYTES[field.dtype] if is_other else 0
        if widened_bytes > limits.frame_bytes:
            raise ProtocolError(
                f"A frame of {name} exceeds the limit of {limits.frame_bytes} bytes once it is widened."
            )
        if is_other:
            array = _widened(field, dtype, shape, np.ndarray(nbytes, np.uint8, frame, place if nbytes else 0), fields)
        else:
            array = np.ndarray(shape, _DTYPES[dtype], frame, place if nbytes else 0)
        if field.finite and not (isfinite(np.vdot(array, array)) or np.isfinite(array).all()):
            raise ProtocolError(f"{name}.{field_name} holds NaN or infinity, which it may not. {_DIVERGED}")
        fields[field_name] = array
        place += nbytes + (-nbytes % 8)
    if place != size:
        raise ProtocolError(f"The frame of {name} has {size} bytes where its header accounts for {place}.")
    return kind.message(**fields)


def held_bytes(frame: bytearray, message: Message) -> int:
    """What a frame and the message in it take together: arrays that were widened are no views of the frame."""
    arrays = (getattr(message, name) for name, _ in KINDS[type(message).__name__].arrays)
    return len(frame) + sum(int(one.nbytes) for one in arrays if one.base is None or type(one.base) is np.ndarray)


def _bytes_of_other(dtype: str, shape: list[int]) -> int:
    """Of an array in fewer bytes than its declaration has."""
    return 2 * prod(shape) if dtype == _SHORT else rounded_bytes(dtype, shape)


def _widened(
    field: ArrayField, dtype: str, shape: list[int], content: np.ndarray[Any, Any], before: dict[str, Any]
) -> np.ndarray[Any, Any]:
    """The array that the message declares, from one in fewer bytes."""
    if dtype == _SHORT:
        return content.view(_SHORT_ROWS).astype(_DTYPES[field.dtype]).reshape(shape)
    array = widened(dtype, shape, content)
    if field.beside:
        with np.errstate(over="ignore", invalid="ignore"):
            array += before[field.beside]
    return array.astype(_DTYPES[field.dtype], copy=False)


def _checked_scalar(name: str, field_name: str, wanted: type, value: int | float | str, limits: Limits) -> Any:
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:
        raise ProtocolError(f"{name}.{field_name} must be {wanted.__name__}, not {type(value).__name__}.")
    if type(value) is int and not 0 <= value < _MOST_COUNT:
        raise ProtocolError(f"{name}.{field_name} must be a count.")
    if type(value) is float and not isfinite(value):
        raise ProtocolError(f"{name}.{field_name} is not finite.")
    if type(value) is str and len(value) > limits.text_characters:
        raise ProtocolError(f"{name}.{field_name} has {len(value)} characters; the limit is {limits.text_characters}.")
    return value


def _check_shape(
    name: str,
    field_name: str,
    field: ArrayField,
    dtype: str,
    shape: list[int],
    dimensions: dict[str, int],
    limits: Limits,
) -> None:
    """Dtype, number of dimensions, sizes and their agreement with the fields before; nothing is allocated yet."""
    is_rounded = field.travels and dtype in PRECISIONS[1:]
    if dtype != field.dtype and not is_rounded and not (field.dtype == "<u4" and dtype == _SHORT):
        raise ProtocolError(f"{name}.{field_name} must be {field.dtype}, not {dtype[:10]!r}.")
    if len(shape) != len(field.dimensions):
        raise ProtocolError(f"{name}.{field_name} must have dimensions {field.dimensions}, not {len(shape)} of them.")
    for dimension, length in zip(field.dimensions, shape, strict=True):
        limit = limits.width if dimension == "width" else limits.rows
        if not 0 <= length <= limit:
            raise ProtocolError(f"{name}.{field_name} claims {length} {dimension}; the limit is {limit}.")
        if dimensions.setdefault(dimension, length) != length:
            raise ProtocolError(
                f"{name}.{field_name} has {length} {dimension}; the fields before it have another number."
            )
