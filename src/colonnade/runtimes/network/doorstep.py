"""The label party's port under a flood of connections: whose first packets are let through, before any work for them.

gRPC takes every connection that comes and begins TLS with it, which costs us more than it costs a stranger. So
connections are counted. When more come within a second than all parties together would ever need, nobody is let in for
the rest of it, and addresses are divided into parts. Which of them the flood comes from is found by trying: parts that
were open in a second without a flood are clear and stay open, the others are opened half of them at a time. So who
floods from one address soon shuts out that address and few others. Streams that are open notice nothing.

The kernel does it: a filter on the listening socket that looks at first packets (SYN) alone. An honest party whose
packet was dropped sends it again, as TCP does. Where there is no such filter, gRPC's own bounds remain.
"""

import ctypes
import logging
import os
import random
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

log = logging.getLogger("colonnade.network")

PARTS = 32
"""Into how many parts addresses are divided while the port is flooded."""
PERIOD_SECONDS = 1.0
ROUND_PERIODS = 60
"""After so many, parts are drawn anew: nobody shares one with who floods for longer."""
_ALL = (1 << PARTS) - 1
_TRIES = 8  # one part alone that is not clear is tried once in so many periods
_SILENT_SECONDS = 5  # a connection over which nothing has come is not handed to us before this
_ATTACH_FILTER = 26  # Linux's number; the module `socket` does not name it

# The kernel's classic packet filters: operations, and places of what is not in the segment itself.
_LOAD, _LOAD_BYTE, _TO_INDEX = 0x20, 0x30, 0x07
_AND, _MULTIPLY, _SHIFT_RIGHT, _SHIFT_BY_INDEX, _XOR_INDEX, _NUMBER = 0x54, 0x24, 0x74, 0x7C, 0xAC, 0x00
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
        # Parts of the addresses, a bit each: those open now, and those that no flood came from.
        self._open = self._clear = _ALL
        self._overflows = False  # in this period
        self._periods = 0  # of this round
        self._multiplier = 1
        self._chance = random.SystemRandom()

    @property
    def is_flooded(self) -> bool:
        return self._clear != _ALL

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
            if not self.is_flooded and self._clock() - self._period_began >= PERIOD_SECONDS:
                self._period_began, self._knocks = self._clock(), 0
            self._knocks += 1
            if self._knocks == self.most_per_second:  # nobody more in this second
                self._overflows = True
                if not self.is_flooded:
                    self._begin_round()
                self._set(closed_to_all())

    def look(self) -> None:
        """To be called several times a second: who is let in next?"""
        with self._lock:
            now = self._clock()
            if not self.is_flooded or now - self._period_began < PERIOD_SECONDS:
                return
            self._period_began, self._knocks = now, 0
            self._periods += 1
            if not self._overflows:
                self._clear |= self._open
            elif self._open == self._clear or self._periods > ROUND_PERIODS:  # it comes from elsewhere now
                self._begin_round()
            self._overflows = False
            if self._clear != _ALL:
                self._open = self._clear | self._tried()
                self._set(open_to(self._open, self._multiplier))
            else:
                self._open = _ALL
                self._set([_PASS])

    def _begin_round(self) -> None:
        self._clear = self._periods = 0
        self._multiplier = self._chance.getrandbits(32) | 1

    def _tried(self) -> int:
        """Which of the parts that are not clear to open next."""
        left = [1 << part for part in range(PARTS) if not self._clear >> part & 1]
        if len(left) == 1:
            return left[0] if self._chance.randrange(_TRIES) == 0 else 0
        return sum(self._chance.sample(left, len(left) // 2))

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


def open_to(parts: int, multiplier: int) -> list[Step]:
    """The same, except for addresses of these parts, a bit each. An address of IPv6 counts as its network of 64 bits.

    The part is the highest bits of the address times an odd number of 32 bits, which nobody outside knows.
    """
    return [
        (_LOAD_BYTE, 0, 0, _FLAGS),
        (_AND, 0, 0, _ITS_FLAGS),
        (_IF_EQUAL, 0, 15, _FIRST),  # else: pass
        (_LOAD, 0, 0, _PROTOCOL),
        (_IF_EQUAL, 0, 3, _IPV6),
        (_LOAD, 0, 0, _NETWORK_HEADER + 8),
        (_MULTIPLY, 0, 0, 0x9E3779B1),
        (_TO_INDEX, 0, 0, 0),  # else the index is 0
        (_LOAD, 0, 0, _NETWORK_HEADER + 12),  # IPv4's source, or the second quarter of IPv6's
        (_XOR_INDEX, 0, 0, 0),
        (_MULTIPLY, 0, 0, multiplier),
        (_SHIFT_RIGHT, 0, 0, 33 - PARTS.bit_length()),
        (_TO_INDEX, 0, 0, 0),
        (_NUMBER, 0, 0, parts),
        (_SHIFT_BY_INDEX, 0, 0, 0),
        (_AND, 0, 0, 1),
        (_IF_EQUAL, 1, 0, 1),
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
