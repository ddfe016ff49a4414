"""One party's ids, read from its own table and hashed; what is wrong with them is told to it alone."""

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from colonnade.alignment.jacobi import SquareFinder
from colonnade.alignment.normalisation import keys_of, likely_causes
from colonnade.alignment.points import Points
from colonnade.alignment.settings import MOST_IDS, AlignmentSettings, IdRules
from colonnade.data.id_columns import listed, read_id_columns
from colonnade.data.settings import DataSettings, PartyData
from colonnade.errors import DataError, SettingsError
from colonnade.on_demand import on_demand
from colonnade.settings import as_values

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = on_demand("pyarrow")

_MMAP_THRESHOLD = -3
"""The parameter of `mallopt`, in malloc.h, of the size from which an array has pages of its own."""


@dataclass(frozen=True)
class OwnIds:
    """What one party brings to an alignment, and what only it is told."""

    source: PartyData
    base: Path  # what it is relative to
    columns: tuple[str, ...]  # as it calls them
    rows: NDArray[np.int64]  # of its table, one per point
    points: Points
    counts: Mapping[str, int]
    causes: tuple[str, ...]  # what may keep its ids from matching
    digest: str  # of the id columns: whether the table is still the same


def domain_of(parties: Sequence[str], settings: AlignmentSettings, columns: Sequence[str]) -> bytes:
    """What ids are hashed with: by other rules, or in another federation, no two ids meet."""
    values = as_values(settings)
    if settings.rows == "all":
        del values["rows"]  # as it was when there was no choice: alignments that were begun then go on
    agreed = {"parties": sorted(parties), "columns": list(columns), "alignment": values}
    return hashlib.sha256(msgspec.json.encode(agreed, order="deterministic")).digest()


def read_own_ids(
    party: str, own: PartyData, data: DataSettings, settings: AlignmentSettings, domain: bytes, base: Path
) -> OwnIds:
    """A party's usable ids, as points. No error made here holds an id."""
    wanted = settings.key_columns(data.id)
    if not (own.file or own.sql):
        raise SettingsError(
            f"Party {party!r} names no file and no query: an alignment needs the table that its ids are in."
        )
    if own.id_columns and len(own.id_columns) != len(wanted):
        raise SettingsError(
            f"Party {party!r} names {len(own.id_columns)} id_columns where the federation matches by {len(wanted)} "
            f"({', '.join(wanted)}): name its own for each, in that order."
        )
    columns = own.id_columns or ((own.id,) if own.id and len(wanted) == 1 else wanted)
    rules = [settings.rules.get(name, IdRules()) for name in wanted]
    texts = read_id_columns(own, base, columns, party)
    with SquareFinder(len(texts[0])) as squares:
        keys = keys_of(texts, rules, domain, squares)
    _check(party, keys.counts(), settings.pad_to)
    causes = [
        f"{name}: {cause}"
        for name, text, rule in zip(columns, texts, rules, strict=True)
        for cause in likely_causes(listed(text[:100_000]), rule)
    ]
    digest = digest_of(texts)
    del texts
    return_freed_memory()
    return OwnIds(own, base, columns, keys.rows, keys.points, keys.counts(), tuple(causes), digest)


def return_freed_memory() -> None:
    """To the system, now and whenever a large array is freed: an alignment has few of them, in ever other sizes.

    What Arrow and the C library would keep of them for later is more than all that an alignment needs.
    """
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # another C library has its own ways
        c_library = ctypes.CDLL(None)
        c_library.mallopt(_MMAP_THRESHOLD, 1 << 20)
        c_library.malloc_trim(0)


def digest_of(texts: Sequence[Any]) -> str:
    """Of id columns as they were read."""
    total = hashlib.sha256()
    for column in texts:
        for start in range(0, len(column), 1 << 16):
            total.update("\0".join(listed(column[start : start + (1 << 16)])).encode())
            total.update(b"\1")
    return total.hexdigest()


def _check(party: str, counts: Mapping[str, int], pad_to: int) -> None:
    left_out = ", ".join(f"{counts[what]} {what}" for what in ("missing", "malformed", "repeated"))
    if not counts["usable"]:
        raise DataError(
            f"Party {party!r} has no id that can be used: of its {counts['held']} rows {left_out}. An id must be there "
            "once: name other id columns, or mend the table."
        )
    if counts["usable"] > MOST_IDS:
        raise DataError(f"Party {party!r} has {counts['usable']} ids; at most {MOST_IDS} are aligned at once.")
    if pad_to and counts["usable"] > pad_to:
        raise DataError(
            f"Party {party!r} has more ids than alignment.pad_to = {pad_to}, which hides how many: agree on a larger "
            "one with the others."
        )
