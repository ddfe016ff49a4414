"""Scalar multiples of many points, by X25519 of the `cryptography` package: here, or in several processes.

`exchange` holds Python's lock, so threads gain nothing. For very many points the processes have a compiled X25519
(curve25519.py), if it is quicker than OpenSSL's where they run; what compiles it takes a hundred megabytes, so it is
not loaded here. The result depends neither on that nor on how many processes there are. This file is also the program
of such a process: a scalar and points come in, their multiples go out, until the end of its input.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

POINT_BYTES = 32
LEAST_SHARE = 64
"""Points that are worth sending to another process: a few milliseconds of work."""
MANY = 50_000
"""Points of one party for which it is worth the seconds that compiled code takes to load."""
COMPILED = "--compiled"
_LENGTH_BYTES = 4
_TRIED = 256
"""Points that both ways are tried with."""

Multiply = Callable[[bytes, bytes], bytes]
"""A clamped scalar and points, 32 bytes each, to as many points. ValueError: one is of small order."""


def multiply(scalar: bytes, points: bytes) -> bytes:
    """Every point times the scalar."""
    exchange = X25519PrivateKey.from_private_bytes(scalar).exchange
    public = X25519PublicKey.from_public_bytes
    return b"".join(
        [exchange(public(points[place : place + POINT_BYTES])) for place in range(0, len(points), POINT_BYTES)]
    )


class Multipliers:
    """So many processes that multiply, this one included unless there are very many points; started when needed."""

    def __init__(self, processes: int, points: int = 0) -> None:
        """`points`: about how many a party has."""
        self._compiled = points >= MANY
        self._wanted = max(processes, 1) if self._compiled else processes - 1
        self._others: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Multiply:
        return self if self._wanted > 0 else multiply

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __call__(self, scalar: bytes, points: bytes) -> bytes:
        """`multiply`, in equal shares."""
        count = len(points) // POINT_BYTES
        sharing = self._wanted + (not self._compiled)
        if self._wanted < 1 or count < LEAST_SHARE * sharing:
            return multiply(scalar, points)
        self._start()
        share = -(-count // sharing) * POINT_BYTES
        shares = [points[place : place + share] for place in range(0, len(points), share)]
        theirs = shares if self._compiled else shares[1:]
        try:
            for other, own in zip(self._others, theirs, strict=False):
                put(other.stdin, scalar + own)
            done = [] if self._compiled else [multiply(scalar, shares[0])]
            for other, own in zip(self._others, theirs, strict=False):
                found = take(other.stdout)
                done.append(found if len(found) == len(own) else multiply(scalar, own))  # which says what is wrong
        except OSError:  # one was killed; another that has an answer left would give it to the next question
            self.close()
            return multiply(scalar, points)
        return b"".join(done)

    def _start(self) -> None:
        if not self._others:
            command = [sys.executable, "-m", "colonnade.alignment.multiplication", *[COMPILED] * self._compiled]
            for _ in range(self._wanted):
                self._others.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))

    def close(self) -> None:
        for other in self._others:
            for pipe in (other.stdin, other.stdout):
                with suppress(OSError):
                    if pipe is not None:
                        pipe.close()
            other.wait()
        self._others = []


def put(pipe: IO[bytes] | None, content: bytes) -> None:
    assert pipe is not None
    pipe.write(len(content).to_bytes(_LENGTH_BYTES, "little") + content)
    pipe.flush()


def take(pipe: IO[bytes] | None) -> bytes:
    """The next content. EOFError, which is an OSError here: the other side has ended."""
    assert pipe is not None
    length = pipe.read(_LENGTH_BYTES)
    content = pipe.read(int.from_bytes(length, "little"))
    if len(length) < _LENGTH_BYTES or len(content) < int.from_bytes(length, "little"):
        raise BrokenPipeError
    return content


def quickest(*ways: Multiply) -> Multiply:
    """The one that takes the least time here, of those that agree with the first."""
    scalar, points = (
        bytes([64] * POINT_BYTES),
        b"".join(n.to_bytes(POINT_BYTES, "little") for n in range(2, 2 + _TRIED)),
    )
    right, seconds = ways[0](scalar, points), []
    for way in ways:
        correct = way(scalar, points) == right  # once untimed: it may be compiled now
        began = time.process_time()
        way(scalar, points)
        seconds.append(time.process_time() - began if correct else float("inf"))
    return ways[seconds.index(min(seconds))]


def serve(questions: IO[bytes], answers: IO[bytes], multiply: Multiply = multiply) -> None:
    """Answer until there is no further question; an empty answer: something is wrong with it."""
    with suppress(BrokenPipeError):
        while True:
            question = take(questions)
            try:
                answer = multiply(question[:POINT_BYTES], question[POINT_BYTES:])
            except ValueError:
                answer = b""
            put(answers, answer)


def main(arguments: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks decides when it ends
    way: Multiply = multiply
    if COMPILED in arguments:
        from colonnade.alignment.curve25519 import multiples

        way = quickest(multiply, multiples)
    serve(sys.stdin.buffer, sys.stdout.buffer, way)


if __name__ == "__main__":
    main(sys.argv[1:])
