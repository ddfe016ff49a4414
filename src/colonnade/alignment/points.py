"""Ids as points of Curve25519: SHA-256 of the id is a u-coordinate, hashed again while it is off the curve.

Half of all u-coordinates lie on the curve's twist. X25519 multiplies those just as well and the twist is safe, too; but
multiplying keeps a point on its side, so the side would tell everybody one bit of every hashed id, and another one at
every further alignment. And a scalar has no one inverse for both. So ids are hashed to the curve itself.
"""

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from colonnade.alignment.jacobi import AreSquares, are_squares

POINT_BYTES = 32
Points = NDArray[np.uint8]
"""[n, 32]: u-coordinates, little-endian."""

_PRIME = 2**255 - 19
_A = 486662
_BITS = 2**255 - 1
_BLOCK = 1 << 16


def hashed_to_curve(keys: Sequence[bytes], domain: bytes, are_squares: AreSquares = are_squares) -> Points:
    """One point per key; another domain, other points. `are_squares` may be that of another process."""
    points = np.empty((len(keys), POINT_BYTES), np.uint8)
    for start in range(0, len(keys), _BLOCK):
        _hash_block(keys[start : start + _BLOCK], domain, points[start : start + _BLOCK], are_squares)
    return points


def _hash_block(keys: Sequence[bytes], domain: bytes, points: Points, are_squares: AreSquares) -> None:
    left = np.arange(len(keys))
    attempt = 0
    while len(left):
        begin = b"colonnade alignment id 1" + len(domain).to_bytes(4, "big") + domain + bytes([attempt])
        digests = [sha256(begin + keys[place]).digest() for place in left.tolist()]
        us = [int.from_bytes(digest, "little") & _BITS for digest in digests]
        curve = [((((u + _A) * u + 1) * u) % _PRIME).to_bytes(POINT_BYTES, "little") for u in us]  # v² = u³ + Au² + u
        found = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, POINT_BYTES).copy()
        found[:, -1] &= 127  # as in u
        points[left] = found
        left = left[~are_squares(np.frombuffer(b"".join(curve), "<u8").reshape(-1, 4))]
        attempt += 1
