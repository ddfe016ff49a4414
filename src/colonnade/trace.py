"""What happened to one party, in order: every event it was given and every effect it returned.

A trace holds no wall clock and no address, so the same seed gives the same bytes. Given the same events, a party
reaches the same models (runtimes/replay.py does that). One file per party: it is what that party saw, and an attack
may read nothing else.

File: the magic line, then records, each a header (u32 length, the same inverted, CRC-32 of the body) and MessagePack
[type, ...fields]; messages are kept as the frames that were on the wire. What a crash tears off ends the file; what
is damaged before its end is told from that, and refused.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

import msgspec
import numpy as np

from colonnade.errors import RunError
from colonnade.files import make_folder, open_private, open_to_read
from colonnade.party import (
    Checkpoint,
    Effect,
    Event,
    Extended,
    Finish,
    Observe,
    PeerLost,
    PeerReturned,
    Received,
    Send,
    SetTimer,
    Spend,
    Started,
    TimerFired,
)

MAGIC = b"colonnade-trace-2\n"
_KIND = MAGIC[: -len("2\n")]  # in every version
_HEADER = Struct("<III")
_ALL_ONES = 0xFFFFFFFF
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Record(NamedTuple):
    """One event or effect: its type's name, and its fields with messages as frames."""

    type: str
    fields: tuple[Any, ...]

    @property
    def is_event(self) -> bool:
        return self.type in _EVENTS


_EVENTS: dict[str, Any] = {
    kind.__name__: kind for kind in (Started, Extended, Received, TimerFired, PeerLost, PeerReturned)
}

_EVENT_FIELDS: dict[str, tuple[Any, ...]] = {
    "Started": (float | int,),
    "Extended": (float | int,),
    "Received": (float | int, str, bytes),
    "TimerFired": (float | int, str),
    "PeerLost": (float | int, str),
    "PeerReturned": (float | int, str),
}


def record_of(item: Event | Effect, frame: bytes | bytearray | None = None) -> Record:
    """The record of an event or effect; `frame` stands for its message."""
    name = type(item).__name__
    match item:
        case Received(now, sender):
            return Record(name, (now, sender, bytes(frame or b"")))
        case Send(to):
            return Record(name, (to, bytes(frame or b"")))
        case Spend(event):
            rows = b"" if event.row_ids is None else np.asarray(event.row_ids, "<u4").tobytes()
            numbers = (event.mechanism, event.sensitivity, event.noise, event.rows)
            return Record(name, (*numbers, rows, event.protects, list(event.viewers)))
        case Observe():
            told = (item.exchange, item.step, item.epoch, item.loss, item.metric, item.note)
            return Record(name, told if item.validation is None else (*told, item.validation))
        case Started(now) | Extended(now):
            return Record(name, (now,))
        case TimerFired(now, timer):
            return Record(name, (now, timer))
        case PeerLost(now, peer) | PeerReturned(now, peer):
            return Record(name, (now, peer))
        case SetTimer(timer, seconds):
            return Record(name, (timer, seconds))
        case Checkpoint() | Finish():
            return Record(name, ())


def packed(record: Record) -> bytes:
    """A record as it stands in a file."""
    body = _encode([record.type, *record.fields])
    return _header(len(body), crc32(body)) + body


def packed_parts(event: Received, frame: bytes | bytearray) -> tuple[bytes, bytes | bytearray]:
    """The same bytes for a reader, in two parts: a frame is large, and so it is not copied."""
    fields = _encode("Received") + _encode(event.now) + _encode(event.sender)
    start = b"\x94" + fields + b"\xc6" + len(frame).to_bytes(4, "big")  # an array of four; its last: so many bytes
    return _header(len(start) + len(frame), crc32(frame, crc32(start))) + start, frame


def _header(length: int, checksum: int) -> bytes:
    return _HEADER.pack(length, length ^ _ALL_ONES, checksum)


class TraceWriter:
    """Appends records to one party's trace file."""

    def __init__(self, path: Path, resume_at: int | None = None) -> None:
        make_folder(path.parent)
        self._file: BinaryIO
        if resume_at is None:
            self._file = os.fdopen(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb")
            self._file.write(MAGIC)
        else:
            self._file = os.fdopen(open_private(path, os.O_RDWR), "r+b")
            self._file.truncate(resume_at)
            self._file.seek(resume_at)

    def write(self, item: Event | Effect, frame: bytes | bytearray | None = None) -> None:
        self._file.write(packed(record_of(item, frame)))

    def position(self) -> int:
        """Where the file stands, everything before it being on disk."""
        self._file.flush()
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


def read_trace(path: Path, remedy: str = "Record the run again.") -> Iterator[Record]:
    """The records of a trace, in order. A torn last record (a crash while writing) ends the trace.

    RunError if a record before the last is damaged; `remedy` is what to do then.
    """
    for end, body in bodies(path, remedy):
        try:
            record = _decode(body)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            raise _damaged(path, end - len(body), remedy) from error
        if not _is_record(record):
            raise _damaged(path, end - len(body), remedy)
        yield Record(record[0], tuple(record[1:]))


def _is_record(value: Any) -> bool:
    """Whether an event can be made of it; an effect is compared as it is."""
    if not isinstance(value, list) or not value or not isinstance(value[0], str):
        return False
    wanted = _EVENT_FIELDS.get(value[0])
    return wanted is None or (len(value) == 1 + len(wanted) and all(map(isinstance, value[1:], wanted)))


def bodies(path: Path, remedy: str) -> Iterator[tuple[int, bytes]]:
    """Every whole record's body, with the place at which it ends."""
    with open_to_read(path) as file:
        first = file.read(len(MAGIC))
        if first != MAGIC:
            if first.startswith(_KIND):
                raise RunError(f"{path} was written by another version of Colonnade. {remedy}")
            raise RunError(f"{path} is not a Colonnade trace.")
        place = len(MAGIC)
        while len(head := file.read(_HEADER.size)) == _HEADER.size:
            length, inverted, checksum = _HEADER.unpack(head)
            if length ^ inverted != _ALL_ONES:
                if not (head + file.read()).strip(b"\0"):
                    return  # a file that had grown when the power went, and was not filled
                raise _damaged(path, place, remedy)
            body = file.read(length)
            if len(body) < length:
                return
            place += _HEADER.size + length
            if crc32(body) != checksum:
                if not file.read().strip(b"\0"):
                    return  # the last one: torn, with some of its pages
                raise _damaged(path, place - length, remedy)
            yield place, body


def _damaged(path: Path, place: int, remedy: str) -> RunError:
    return RunError(f"{path} is damaged near byte {place}: a record there is not what was written. {remedy}")
