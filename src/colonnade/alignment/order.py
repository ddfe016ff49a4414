"""What follows once the shared rows are known, alike for all parties: their order, their parts, and one digest.

All three follow from the rows' points and a key to which every party gave a share. So nobody's own order shows, and
no label decides in which part a row lies.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.alignment.points import Points
from colonnade.alignment.tables import Blocks, keyed

TRAIN, VALIDATION, TEST = range(3)
PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Fractions:
    """How large the parts are that are not trained on."""

    validation: float = 0.0
    test: float = 0.25


_AT_ONCE = 1 << 14


def common_key(shares: Mapping[str, bytes]) -> bytes:
    """The key that follows from every party's share: random, if one party's is."""
    whole = b"".join(name.encode() + b"\0" + shares[name] for name in sorted(shares))
    return hashlib.sha256(b"colonnade alignment key 1" + whole).digest()


def blocks_of(points: Points, places: NDArray[np.int64] | None = None) -> Blocks:
    """The first half of every point: as good as a hash of it, for a point is a hash of an id."""
    halves = points[:, :16] if places is None else points[:, :16][places]
    return np.ascontiguousarray(halves).view("<u8").reshape(-1, 2)


def in_order(points: Points, places: NDArray[np.int64], key: bytes) -> NDArray[np.int64]:
    """The places of some points, in the order that all agree on."""
    return places[_ranked(blocks_of(points, places), key, b"order")]


def parts_of(points: Points, rows: NDArray[np.int64], key: bytes, fractions: Fractions) -> NDArray[np.uint8]:
    """Which part each of the points in these rows, which are in order, belongs to: a place in PARTS.

    A fraction above 0 has at least one row, and one is left to train on where there are two.
    """
    return _parts(_ranked(blocks_of(points, rows), key, b"parts"), fractions)


def parts_of_places(count: int, key: bytes, fractions: Fractions) -> NDArray[np.uint8]:
    """The same of so many rows whose points not everybody knows: by their places in the order."""
    return _parts(_ranked(_blocks_of_places(count), key, b"parts"), fractions)


def digest_of_places(key: bytes, parts: NDArray[np.uint8]) -> bytes:
    """The same for all exactly if they have as many rows in the same parts, by the same common key."""
    return hashlib.sha256(b"colonnade alignment digest any 1" + key + parts.tobytes()).digest()


def _blocks_of_places(count: int) -> Blocks:
    return np.stack([np.arange(count, dtype=np.uint64), np.zeros(count, np.uint64)], axis=1)


def _parts(drawn: NDArray[np.int64], fractions: Fractions) -> NDArray[np.uint8]:
    """`drawn`: the places in an order that chance gave."""
    count = len(drawn)
    parts = np.full(count, TRAIN, np.uint8)
    taken = 0
    for part, fraction in ((TEST, fractions.test), (VALIDATION, fractions.validation)):
        wanted = max(1, round(fraction * count)) if fraction > 0 else 0
        wanted = max(0, min(wanted, count - 1 - taken))
        parts[drawn[taken : taken + wanted]] = part
        taken += wanted
    return parts


def digest_of(points: Points, rows: NDArray[np.int64], key: bytes, parts: NDArray[np.uint8]) -> bytes:
    """The same for all exactly if they have the same points in the same order and parts."""
    total = hashlib.sha256(b"colonnade alignment digest 1" + key)
    for first in range(0, len(rows), _AT_ONCE):
        total.update(points[rows[first : first + _AT_ONCE]].data)
    total.update(parts.tobytes())
    return total.digest()


def _ranked(blocks: Blocks, key: bytes, word: bytes) -> NDArray[np.int64]:
    """By what chance gave each, its first half first; what is in between is freed as soon as it can be."""
    random = keyed(hashlib.sha256(key + word).digest(), blocks)
    del blocks
    firsts = np.ascontiguousarray(random[:, 0])
    order: NDArray[np.int64] = np.argsort(firsts, kind="stable")
    ordered = firsts[order]
    if (ordered[1:] == ordered[:-1]).any():
        return np.lexsort((random[:, 1], random[:, 0]))
    return order
