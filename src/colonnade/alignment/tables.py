"""A table that gives the right value for every key that is in it and a random one for every other.

A key's value is the exclusive or of three cells, one in each third of the table. To fill it, a cell that only one key
still needs is set aside with that key, again and again; in the opposite order every key then finds one cell of its
three free to make its value come out. All other cells are random. With random values the whole table is random: it
says how many keys there are, and nothing else.

Where keys lie follows from their fingerprints, which are secret too, so a table that cannot be filled, and is tried
again with other places, says nothing of its keys either.
"""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from colonnade.errors import RunError

Blocks = NDArray[np.uint64]
"""[n, 2]: 16 bytes each."""

BLOCK_BYTES = 16
_CELLS_PER_KEY = 1.3  # below 1.23 most tables cannot be filled
_SPARE_CELLS = 128  # per third: or small tables often could not
_MOST_ATTEMPTS = 200
_AT_ONCE_BYTES = 1 << 16
Places = NDArray[np.int32]
"""[n, 3]: cells, in half the memory that NumPy would take by itself."""


def one_way(word: str, blocks: Blocks) -> Blocks:
    """AES_word(x) ⊕ x of every block: other words, other functions, and none leads back."""
    return keyed(word.encode().ljust(BLOCK_BYTES, b"\0"), blocks) ^ blocks


def keyed(key: bytes, blocks: Blocks) -> Blocks:
    """AES of every block: random for whoever has not the key, alike for all who have."""
    plain = np.ascontiguousarray(blocks).reshape(-1).view(np.uint8).data  # which is not copied
    return np.frombuffer(Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(plain), "<u8").reshape(-1, 2)


def keystream(key: bytes, count: int) -> Blocks:
    """So many random blocks of whoever has the key."""
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(BLOCK_BYTES))).encryptor()
    found = np.zeros(BLOCK_BYTES * (count + 1), np.uint8)  # one more than is filled, as `update_into` wants it
    for first in range(0, BLOCK_BYTES * count, _AT_ONCE_BYTES):
        size = min(_AT_ONCE_BYTES, BLOCK_BYTES * count - first)
        stream.update_into(bytes(size), found.data[first:])
    return found.view("<u8").reshape(-1, 2)[:count]


def cells_for(keys: int) -> int:
    """How many cells a table of so many keys has."""
    return 3 * (int(_CELLS_PER_KEY * keys / 3) + _SPARE_CELLS)


def filled(fingerprints: Blocks, values: Blocks, key: bytes) -> tuple[int, Blocks]:
    """A table of these values, and the number that its places follow from; what is random comes from the key."""
    count = cells_for(len(fingerprints))
    numbers = keystream(key, _MOST_ATTEMPTS)[:, 0] >> np.uint64(1)
    for number in map(int, numbers):
        places = places_of(fingerprints, number, count)
        order = _peeled(places, count)
        if order is not None:
            cells = keystream(key, _MOST_ATTEMPTS + count)[_MOST_ATTEMPTS:]
            for rows, own in reversed(order):
                cells[own] = 0
                others = cells[places[rows]]
                cells[own] = values[rows] ^ others[:, 0] ^ others[:, 1] ^ others[:, 2]
            return number, cells
    raise RunError("A table of the alignment could not be filled, which chance alone does not bring about: try again.")


def read(cells: Blocks, number: int, fingerprints: Blocks) -> Blocks:
    """The values of these keys; random ones of those that are not in the table."""
    places = places_of(fingerprints, number, len(cells))
    value: Blocks = cells[places[:, 0]] ^ cells[places[:, 1]] ^ cells[places[:, 2]]
    return value


def places_of(fingerprints: Blocks, number: int, cells: int) -> Places:
    """One place in each third."""
    third = cells // 3
    mixed = one_way("places", fingerprints ^ np.array([number, 0], np.uint64)).view("<u4").reshape(-1, 4)
    places = np.empty((len(mixed), 3), np.int32)
    for column in range(3):
        places[:, column] = (mixed[:, column].astype(np.uint64) * np.uint64(third)) >> np.uint64(32)
        places[:, column] += column * third
    return places


def _peeled(places: Places, count: int) -> list[tuple[NDArray[np.int32], NDArray[np.int32]]] | None:
    """Rounds of keys and the cell that each is the only one left to need; None if some never are.

    Two keys of one round never need each other's cells: each cell had but one key left when the round began.
    """
    degrees = np.zeros(count, np.int32)
    holders = np.zeros(count, np.int32)  # the exclusive or of the keys that still need a cell: the key, if it is one
    for column in range(3):
        degrees += np.bincount(places[:, column], minlength=count).astype(np.int32)
        np.bitwise_xor.at(holders, places[:, column], np.arange(len(places), dtype=np.int32))
    left = len(places)
    rounds = []
    single = np.flatnonzero(degrees == 1).astype(np.int32)
    while len(single):
        rows, first = np.unique(holders[single], return_index=True)  # a key may be alone in several of its cells
        rounds.append((rows, single[first]))
        left -= len(rows)
        touched = places[rows]
        for column in range(3):
            np.bitwise_xor.at(holders, touched[:, column], rows)
            np.subtract.at(degrees, touched[:, column], 1)
        flat = np.unique(touched.reshape(-1))
        single = flat[degrees[flat] == 1]
    return None if left else rounds
