"""What an alignment leaves at a party: its own rows in the common order, and what is to be known of them.

`rows.csv` has the row of the party's table, its part and its own ids, in the common order; `alignment.json` the counts,
the digest that all parties share, and what each learnt. Both are the party's own. A training with
data.rows = "aligned" reads them.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.alignment.order import PARTS, TEST, TRAIN, VALIDATION
from colonnade.alignment.own_ids import OwnIds, digest_of
from colonnade.data.absence import NOWHERE
from colonnade.data.id_columns import listed, read_id_columns
from colonnade.data.settings import PartyData
from colonnade.errors import DataError, RunError
from colonnade.files import json_of, json_text, make_folder, read_private, write_atomically

FORMAT = 1
ROWS, FACTS = "rows.csv", "alignment.json"
_BLOCK = 1 << 14


@dataclass(frozen=True)
class Aligned:
    """An alignment as a training takes it up."""

    digest: str
    columns: tuple[str, ...]  # the id columns of the party's table
    held: int  # rows of the party's table
    rows: NDArray[np.int64]  # of the party's table, in the common order
    parts: NDArray[np.int64]
    expects_absence: bool = False  # whether parties may lack rows; the row of one is then NOWHERE

    def parted(self, max_rows: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Rows of the party's table to train, to validate and to test with, of the first so many; 0: of all."""
        most = max_rows or len(self.rows)
        rows, parts = self.rows[:most], self.parts[:most]
        train, validation, test = (rows[parts == part] for part in (TRAIN, VALIDATION, TEST))
        if not len(train):
            raise DataError(f"Of {len(rows)} aligned rows none is left to train on: align more rows.")
        return train, validation, test


def write_aligned(
    folder: Path, own: OwnIds, party: str, rows: NDArray[np.int64], parts: NDArray[np.uint8], facts: Mapping[str, Any]
) -> None:
    """Write both files; the facts last, so that where they are, the rows are whole."""
    make_folder(folder)
    texts = read_id_columns(own.source, own.base, own.columns, party)
    if digest_of(texts) != own.digest:
        raise DataError(f"Party {party!r}: the ids in {own.source.file!r} have changed since the alignment began.")
    write_atomically(folder / ROWS, b"".join(_lines(own.columns, rows, parts, texts)))
    known = {"format": FORMAT, **facts, "columns": list(own.columns), "ids": own.digest}
    write_atomically(folder / FACTS, json_text(known))


def _lines(
    columns: Sequence[str], rows: NDArray[np.int64], parts: NDArray[np.uint8], texts: Sequence[Any]
) -> Iterator[bytes]:
    """`rows.csv`, a block of rows at a time: whole columns of Python's own values would take much memory."""
    yield _as_csv([["row", "part", *columns]])
    for start in range(0, len(rows), _BLOCK):
        places = rows[start : start + _BLOCK]
        here = [row != NOWHERE for row in places.tolist()]  # of a row that it lacks there is nothing but the part
        named = [PARTS[part] for part in parts[start : start + _BLOCK].tolist()]
        values = [places.tolist(), *(listed(column, np.maximum(places, 0)) for column in texts)]
        told = [[value if held else "" for value, held in zip(column, here, strict=True)] for column in values]
        yield _as_csv(zip(told[0], named, *told[1:], strict=True))


def _as_csv(lines: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().encode()


def read_aligned(folder: Path, party: str, own: PartyData, base: Path) -> Aligned:
    """An alignment of that party's, checked against the table that it is now."""
    try:
        facts = json_of(read_private(folder / FACTS))
        lines = csv.reader(io.StringIO(read_private(folder / ROWS).decode()))
        next(lines)
        expects_absence = facts.get("rows", "all") == "any"
        pairs = [_place_and_part(line, expects_absence) for line in lines]
        columns, digest, whose = tuple(facts["columns"]), str(facts["digest"]), facts["party"]
        ids, total, held = facts["ids"], facts.get("total", facts["shared"]), int(facts["own"]["held"])
    except FileNotFoundError:
        raise DataError(
            f"Party {party!r} has no alignment in {str(folder)!r}: run colonnade align, and name the folder that it "
            "wrote for this party with the setting `aligned`."
        ) from None
    except (OSError, ValueError, KeyError, IndexError, TypeError, StopIteration):
        raise RunError(f"The alignment in {folder} is damaged: run colonnade align again.") from None
    if whose != party:
        raise DataError(f"The alignment in {str(folder)!r} is that of party {whose!r}, not of {party!r}.")
    if len(pairs) != total:
        raise RunError(f"The alignment in {folder} is damaged: run colonnade align again.")
    if digest_of(read_id_columns(own, base, columns, party)) != ids:
        raise DataError(
            f"Party {party!r}: the ids in {own.file or 'its query'} differ from those that were aligned in "
            f"{str(folder)!r}. Align again, or put the table back as it was."
        )
    found = np.array(pairs, np.int64).reshape(-1, 2)
    return Aligned(digest, columns, held, found[:, 0], found[:, 1], expects_absence)


def _place_and_part(line: list[str], expects_absence: bool) -> tuple[int, int]:
    """A line of `rows.csv`: a row of the party's table, or none, where it may lack rows."""
    return NOWHERE if expects_absence and not line[0] else int(line[0]), PARTS.index(line[1])


def check_one_alignment(aligned: Mapping[str, Aligned]) -> str:
    """The digest that all have."""
    digests = {one.digest for one in aligned.values()}
    if len(digests) > 1:
        raise DataError(
            f"The parties {', '.join(map(repr, aligned))} hold rows of different alignments: all must name folders "
            "that one run of colonnade align wrote."
        )
    return digests.pop()


def small_match(party: str, shared: int, sizes: Mapping[str, int], causes: Sequence[str]) -> str:
    """A sentence for the owner if less than half of anybody's ids match; "" otherwise."""
    poor = [name for name, size in sizes.items() if 2 * shared < size]
    if not poor:
        return ""
    told = "; ".join(causes) if causes else "nothing about its own ids stands out: ask the others how they write theirs"
    shares = ", ".join(f"{100 * shared / sizes[name]:.1f} % of the {sizes[name]} ids of {name}" for name in poor)
    return f"Only {shared} rows match: {shares}. The likely cause, as {party} can see it: {told}."
