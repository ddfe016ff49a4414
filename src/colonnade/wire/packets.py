"""The bytes of a link between two parties: a stream of packets, each a frame or a word about the link itself.

A packet is a header of 24 bytes (length of the body, kind, number, acknowledged; little-endian) and its body. Frames
are numbered from 1 on in each direction; `acknowledged` is the highest number of the other direction that is safely
written down at its receiver. A reader keeps at most one packet that is not complete, in at most a megabyte or twice
the bytes that have come of it, whatever its header claims.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from colonnade.errors import ProtocolError
from colonnade.wire.codec import DEFAULT_LIMITS

FRAME: Final = 1  # the body is a message's frame
RESUME: Final = 2  # first on a new connection: `number` sent so far, and what has arrived, after which to go on
ACKNOWLEDGE: Final = 3  # nothing but `acknowledged`
START: Final = 4  # the label party's word that everybody is there
DONE: Final = 5  # the sender has finished; that it is silent from now on is no failure
KINDS = (FRAME, RESUME, ACKNOWLEDGE, START, DONE)

_HEADER = Struct("<IIQQ")
HEADER_BYTES = _HEADER.size
_ALLOCATED_AT_ONCE = 1 << 20
"""A longer body grows as it arrives: who claims a gigabyte must send one."""


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet; `body` is empty unless it is a FRAME."""

    kind: int
    number: int
    acknowledged: int
    body: bytearray


def header(kind: int, number: int, acknowledged: int, body_bytes: int = 0) -> bytes:
    """What stands before a body of that many bytes."""
    return _HEADER.pack(body_bytes, kind, number, acknowledged)


class PacketReader:
    """Cuts a stream into packets; ProtocolError if the bytes cannot be one."""

    def __init__(self, longest_body: int = DEFAULT_LIMITS.frame_bytes) -> None:
        self._longest_body = longest_body
        self._head = bytearray()
        self._fields: tuple[int, int, int, int] | None = None
        self._body = bytearray()
        self._filled = 0

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Packet]:
        """The packets that these bytes complete."""
        view = memoryview(data)
        while True:
            if self._fields is None:
                taken = min(HEADER_BYTES - len(self._head), len(view))
                self._head += view[:taken]
                view = view[taken:]
                if len(self._head) < HEADER_BYTES:
                    return
                self._fields = self._checked(_HEADER.unpack(self._head))
                self._head.clear()
                self._body = bytearray(min(self._fields[0], _ALLOCATED_AT_ONCE))
                self._filled = 0
            length, kind, number, acknowledged = self._fields
            while self._filled < length and len(view):
                if self._filled == len(self._body):
                    self._body += bytes(min(length - self._filled, len(self._body)))
                taken = min(len(self._body) - self._filled, len(view))
                self._body[self._filled : self._filled + taken] = view[:taken]
                self._filled += taken
                view = view[taken:]
            if self._filled < length:
                return
            self._fields = None
            yield Packet(kind, number, acknowledged, self._body)
            self._body = bytearray()

    def _checked(self, fields: tuple[int, ...]) -> tuple[int, int, int, int]:
        length, kind, number, acknowledged = fields
        if kind not in KINDS:
            raise ProtocolError(f"A packet of the unknown kind {kind} came: not Colonnade, or of another version.")
        if length and kind != FRAME:
            raise ProtocolError(f"A packet of kind {kind} claims a body of {length} bytes; only frames have one.")
        if length > self._longest_body:
            raise ProtocolError(f"A packet claims {length} bytes; the limit here is {self._longest_body}.")
        return length, kind, number, acknowledged
