"""The label party's port under a flood of connections: whose first packets are let through, before any work for them.

gRPC takes every connection that comes and begins TLS with it, which costs us more than it costs a stranger. So
connections are counted. When more come within a second than all parties together would ever need, the port is open to
a part of the addresses at a time, one part after the other, and to so many connections a second: who floods from a few
addresses shuts out those few. The parts are drawn anew in every round. Streams that are open notice nothing.

The kernel does it: a filter on the listening socket that looks at first packets (SYN) alone. An honest party whose
packet was dropped sends it again, as TCP does. Where there is no such filter, gRPC's own bounds remain.
"""

import ctypes
import logging
import os
import secrets
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

log = logging.getLogger("colonnade.network")

PARTS = 8
"""Into how many parts addresses are divided while the port is flooded; each has a second of a round."""
PERIOD_SECONDS = 1.0
_SILENT_SECONDS = 5  # a connection over which nothing has come is not handed to us before this
_ATTACH_FILTER = 26  # Linux's number; the module `socket` does not name it

# The kernel's classic packet filters: operations, and places of what is not in the segment itself.
_LOAD, _LOAD_BYTE, _TO_INDEX = 0x20, 0x30, 0x07
_AND, _MULTIPLY, _SHIFT_RIGHT, _XOR_INDEX = 0x54, 0x24, 0x74, 0xAC
_IF_EQUAL, _RETURN = 0x15, 0x06
_PROTOCOL, _NETWORK_HEADER = 0xFFFFF000, 0xFFF00000
_IPV6 = 0x86DD
_FLAGS, _ITS_FLAGS, _FIRST = 13, 0x17, 0x02  # of a TCP segment: SYN without FIN, RST or ACK
_DROP, _PASS = (_RETURN, 0, 0, 0), (_RETURN, 0, 0, 0xFFFFFFFF)

Step = tuple[int, int, int, int]  # operation, steps to jump if so, steps to jump if not, number


class Doorstep:
    """Counts connections as they come, and closes the port to most addresses while there are too many."""

    def __init__(self, most_per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.most_per_second = most_per_second
        self._clock = clock
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()  # connections are counted in gRPC's threads
        self._period_began = clock()
        self._knocks = 0
        self._turns_left = 0  # until the port is open to all again
        self._turn = 0
        self._multiplier = 1

    @property
    def is_flooded(self) -> bool:
        return self._turns_left > 0

    def guard(self, port: int) -> None:
        """Take hold of the sockets of this process that listen on a port: gRPC does not hand them out."""
        self._sockets = [*_listening_on(port)]
        for listener in self._sockets:
            with suppress(OSError, AttributeError):  # not on every system
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, _SILENT_SECONDS)
            # What the kernel has taken before we could count it comes all the same: let it be little.
            listener.listen(2 * self.most_per_second)

    def knock(self) -> None:
        """A connection has come; said in whatever thread of gRPC's took it."""
        with self._lock:
            if self._clock() - self._period_began >= PERIOD_SECONDS and not self._turns_left:
                self._period_began, self._knocks = self._clock(), 0
            self._knocks += 1
            if self._knocks == self.most_per_second:  # nobody more in this second
                self._turns_left = 2 * PARTS
                self._set(closed_to_all())

    def look(self) -> None:
        """To be called several times a second: whose turn is it?"""
        with self._lock:
            now = self._clock()
            if not self._turns_left or now - self._period_began < PERIOD_SECONDS:
                return
            self._period_began, self._knocks = now, 0
            self._turns_left -= 1
            if not self._turns_left:
                self._set([_PASS])
                return
            self._turn = (self._turn + 1) % PARTS
            if not self._turn:
                self._multiplier = secrets.randbits(32) | 1
            self._set(open_to(self._turn, self._multiplier))

    def close(self) -> None:
        with self._lock:
            for listener in self._sockets:
                listener.close()
            self._sockets.clear()

    def _set(self, steps: list[Step]) -> None:
        program = b"".join(struct.pack("HBBI", *step) for step in steps)
        kept = ctypes.create_string_buffer(program, len(program))
        for listener in self._sockets:
            with suppress(OSError):
                told = struct.pack("HP", len(steps), ctypes.addressof(kept))
                listener.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, told)


def closed_to_all() -> list[Step]:
    """A filter that drops every first packet of a connection, and no other."""
    return [(_LOAD_BYTE, 0, 0, _FLAGS), (_AND, 0, 0, _ITS_FLAGS), (_IF_EQUAL, 0, 1, _FIRST), _DROP, _PASS]


def open_to(part: int, multiplier: int) -> list[Step]:
    """The same, except for addresses of a part. An address of IPv6 counts as its network of 64 bits.

    The part is the highest bits of the address times an odd number of 32 bits, which nobody outside knows.
    """
    return [
        (_LOAD_BYTE, 0, 0, _FLAGS),
        (_AND, 0, 0, _ITS_FLAGS),
        (_IF_EQUAL, 0, 11, _FIRST),  # else: pass
        (_LOAD, 0, 0, _PROTOCOL),
        (_IF_EQUAL, 0, 3, _IPV6),
        (_LOAD, 0, 0, _NETWORK_HEADER + 8),
        (_MULTIPLY, 0, 0, 0x9E3779B1),
        (_TO_INDEX, 0, 0, 0),  # else the index is 0
        (_LOAD, 0, 0, _NETWORK_HEADER + 12),  # IPv4's source, or the second quarter of IPv6's
        (_XOR_INDEX, 0, 0, 0),
        (_MULTIPLY, 0, 0, multiplier),
        (_SHIFT_RIGHT, 0, 0, 33 - PARTS.bit_length()),
        (_IF_EQUAL, 1, 0, part),
        _DROP,
        _PASS,
    ]


def _listening_on(port: int) -> Iterator[socket.socket]:
    """The sockets of this process that listen on a port, held a second time; none where there is no /proc."""
    try:
        descriptors = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    except OSError:
        return
    for descriptor in descriptors:
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            found = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            continue  # closed meanwhile
        try:
            listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and found.getsockname()[1] == port
        except (OSError, IndexError, TypeError):
            listens = False
        if listens:
            yield found
        else:
            found.close()
