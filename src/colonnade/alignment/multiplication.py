"""Scalar multiples of many points, by X25519 of the `cryptography` package: here, or in several processes.

`exchange` holds Python's lock, so threads gain nothing. The result does not depend on how many processes there are.
This file is also the program of such a process: a scalar and points come in, their multiples go out, until the end of
its input. It loads nothing else of Colonnade.
"""

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import IO

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

POINT_BYTES = 32
LEAST_SHARE = 64
"""Points that are worth sending to another process: a few milliseconds of work."""
_LENGTH_BYTES = 4

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
    """So many processes that multiply, this one included; started when first needed."""

    def __init__(self, processes: int) -> None:
        self._wanted = processes - 1
        self._others: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Multiply:
        return self if self._wanted > 0 else multiply

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __call__(self, scalar: bytes, points: bytes) -> bytes:
        """`multiply`, in equal shares."""
        count = len(points) // POINT_BYTES
        if self._wanted < 1 or count < LEAST_SHARE * (self._wanted + 1):
            return multiply(scalar, points)
        self._start()
        share = -(-count // (len(self._others) + 1)) * POINT_BYTES
        shares = [points[place : place + share] for place in range(0, len(points), share)]
        try:
            for other, own in zip(self._others, shares[1:], strict=False):
                put(other.stdin, scalar + own)
            done = [multiply(scalar, shares[0])]
            for other, own in zip(self._others, shares[1:], strict=False):
                found = take(other.stdout)
                done.append(found if len(found) == len(own) else multiply(scalar, own))  # which says what is wrong
        except OSError:  # one was killed; another that has an answer left would give it to the next question
            self.close()
            return multiply(scalar, points)
        return b"".join(done)

    def _start(self) -> None:
        if not self._others:
            command = [sys.executable, "-m", "colonnade.alignment.multiplication"]
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


def serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answer until there is no further question; an empty answer: something is wrong with it."""
    with suppress(BrokenPipeError):
        while True:
            question = take(questions)
            try:
                answer = multiply(question[:POINT_BYTES], question[POINT_BYTES:])
            except ValueError:
                answer = b""
            put(answers, answer)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks decides when it ends
    serve(sys.stdin.buffer, sys.stdout.buffer)
