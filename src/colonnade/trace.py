"""What happened to one party, in order: every event it was given and every effect it returned.

A trace holds no wall clock and no address, so the same seed gives the same bytes. Given the same events, a party
reaches the same models (runtimes/replay.py does that). One file a party: it is what that party saw, and an attack
may read nothing else.

File: the magic line, then records, each a u32 length and MessagePack [type, ...fields]; messages are kept as the
frames that were on the wire.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np

from colonnade.errors import RunError
from colonnade.party import (
    Checkpoint,
    Effect,
    Event,
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

MAGIC = b"colonnade-trace-1\n"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Record(NamedTuple):
    """One event or effect: its type's name, and its fields with messages as frames."""

    type: str
    fields: tuple[Any, ...]

    @property
    def is_event(self) -> bool:
        return self.type in _EVENTS


_EVENTS: dict[str, Any] = {kind.__name__: kind for kind in (Started, Received, TimerFired, PeerLost, PeerReturned)}


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
            return Record(name, (item.exchange, item.step, item.epoch, item.loss, item.metric, item.note))
        case Started(now):
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
    return len(body).to_bytes(4, "little") + body


def packed_parts(event: Received, frame: bytes | bytearray) -> tuple[bytes, bytes | bytearray]:
    """The same bytes for a reader, in two parts: a frame is large, and so it is not copied."""
    fields = _encode("Received") + _encode(event.now) + _encode(event.sender)
    start = b"\x94" + fields + b"\xc6" + len(frame).to_bytes(4, "big")  # an array of four; its last: so many bytes
    return (len(start) + len(frame)).to_bytes(4, "little") + start, frame


class TraceWriter:
    """Appends records to one party's trace file."""

    def __init__(self, path: Path, resume_at: int | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO
        if resume_at is None:
            self._file = path.open("wb")
            self._file.write(MAGIC)
        else:
            self._file = path.open("r+b")
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


def read_trace(path: Path) -> Iterator[Record]:
    """The records of a trace, in order. A torn last record (a crash while writing) ends the trace."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise RunError(f"{path} is not a Colonnade trace.")
        while len(prefix := file.read(4)) == 4:
            length = int.from_bytes(prefix, "little")
            body = file.read(length)
            if len(body) < length:
                return
            try:
                name, *fields = _decode(body)
            except (msgspec.MsgspecError, ValueError) as error:
                raise RunError(f"{path} is corrupt near byte {file.tell()}; record the run again.") from error
            yield Record(name, tuple(fields))
