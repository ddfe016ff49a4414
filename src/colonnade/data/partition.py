"""Who gets which columns of a data set that lies in one place: the experiments' vertical splits.

Blocks are contiguous and their sizes differ by at most one, the larger ones first. Nothing here sees a value:
each function turns sizes or names into slices or column numbers.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isqrt

import numpy as np

from colonnade.data.ids import Array
from colonnade.data.sources import nearest
from colonnade.errors import DataError, SettingsError


def equal_columns(columns: int, parties: int) -> tuple[slice, ...]:
    """Contiguous blocks of columns, one a party.

    >>> equal_columns(5, 2)
    (slice(0, 3, None), slice(3, 5, None))
    """
    return _blocks(columns, parties, "columns")


def spread_out(columns: int) -> Array:
    """Where each of `columns` columns goes, the most popular one first, so that blocks get their fair part of all.

    The positions are the ranks with their bits reversed (van der Corput's order): the first two ranks lie in different
    halves, the first four in different quarters, and so on. Contiguous blocks stay fair for any number of parties.

    >>> spread_out(8).tolist()
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    ranks = np.arange(columns)
    reversed_bits = np.zeros(columns, dtype=np.int64)
    for _ in range(max(columns - 1, 0).bit_length()):
        reversed_bits = 2 * reversed_bits + ranks % 2
        ranks //= 2
    place = np.empty(columns, dtype=np.int64)
    place[np.argsort(reversed_bits)] = np.arange(columns)
    return place


def channels(count: int, parties: int) -> tuple[slice, ...]:
    """Contiguous blocks of an image's channels, such as views of one object, one a party."""
    return _blocks(count, parties, "channels")


def row_strips(height: int, parties: int) -> tuple[slice, ...]:
    """Horizontal strips of an image, from top to bottom, one a party."""
    return _blocks(height, parties, "rows of pixels")


def patches(height: int, width: int, parties: int) -> tuple[tuple[slice, slice], ...]:
    """A grid of √parties × √parties pieces of an image, (rows, columns) each, in reading order."""
    side = isqrt(max(parties, 0))
    if parties < 1 or side * side != parties:
        raise SettingsError(
            f"The split 'patches' needs a square number of parties (4 for 2×2, 9 for 3×3), not {parties}."
        )
    across = _blocks(width, side, "columns of pixels")
    return tuple((rows, columns) for rows in _blocks(height, side, "rows of pixels") for columns in across)


def named_columns(
    names: Sequence[str], wanted: Mapping[str, Sequence[str]], label: str = ""
) -> dict[str, tuple[int, ...]]:
    """Each party's column numbers, from the names that it asks for; no column goes to two parties."""
    refuse_shared(wanted)
    number = {name: i for i, name in enumerate(names)}
    for party, asked in wanted.items():
        for name in asked:
            if label and name == label:
                raise DataError(
                    f"Party {party!r} lists {name!r} among its columns, but that is the label: "
                    "remove it from `columns`."
                )
            if name not in number:
                raise DataError(
                    f"Party {party!r} asks for the column {name!r}, which the data do not have."
                    f"{nearest(name, names)} Mend `columns`."
                )
    return {party: tuple(number[name] for name in asked) for party, asked in wanted.items()}


def refuse_shared(columns: Mapping[str, Sequence[str]]) -> None:
    """Raise when a column is named twice, by two parties or by one."""
    owner: dict[str, str] = {}
    for party, names in columns.items():
        for name in names:
            if name in owner:
                whose = f"both {owner[name]!r} and {party!r}" if owner[name] != party else f"{party!r} twice"
                raise DataError(
                    f"The column {name!r} is held by {whose}: leave it with one party through `columns`, "
                    "or rename it if these are different columns."
                )
            owner[name] = party


def _blocks(size: int, parties: int, what: str) -> tuple[slice, ...]:
    if parties < 1:
        raise SettingsError(f"The number of parties is {parties}; at least 1 is needed. Set data.parties.")
    if parties > size:
        raise SettingsError(
            f"{parties} parties cannot share {size} {what}: each needs at least one. Lower data.parties."
        )
    small, larger = divmod(size, parties)
    starts = [i * small + min(i, larger) for i in range(parties + 1)]
    return tuple(slice(a, b) for a, b in pairwise(starts))
