"""One order of rows for all parties, and one line between train, validation and test.

Both follow from the ids and a seed alone. So parties that hold the same ids come to the same order and the
same split without telling one another anything else; a label never decides on which side a row lies.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from colonnade.data.absence import NOWHERE
from colonnade.data.arrow_arrays import no_texts, numbers, one_text
from colonnade.data.federated import RowCounts
from colonnade.data.ids import Array, RowIds, letters_of, one_width, taken
from colonnade.errors import DataError
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa, pc = on_demand("pyarrow"), on_demand("pyarrow.compute")

IDS_AT_ONCE = 1 << 18
_QUOTED = np.frombuffer(b'"", ', np.uint8)
"""What JSON writes around a text, and before the next."""
_LINES_AT_ONCE = 1 << 14


@dataclass(frozen=True, eq=False)
class MatchedRows:
    """The ids of the common rows, sorted, and where each party has them."""

    ids: pa.StringArray
    at: dict[str, Array]  # party → the position of each id among its rows; NOWHERE, if it lacks the row
    held: dict[str, int]
    rows: int  # how many there are
    notes: tuple[str, ...] = ()  # what a person should know about the match

    def counts(self, used: Rows) -> dict[str, RowCounts]:
        """Rows held, matched and used, by party: those that it has."""
        found = {}
        for party, at in self.at.items():
            present = _present(at)
            parts = used if present == len(at) else (_here(part, at) for part in used)
            found[party] = RowCounts(self.held[party], present, sum(map(len, parts)))
        return found


def all_rows(party: str, own: RowIds) -> MatchedRows:
    """The rows of a party that reads its own table alone: all of them. Their ids stay where they are."""
    return MatchedRows(no_texts(), {party: own.order}, {party: len(own)}, len(own))


def match_any(ids: Mapping[str, RowIds], whose: str = "") -> MatchedRows:
    """The rows of one party, or, if none is named, all that anybody holds, whoever else lacks them."""
    common = ids[whose].sorted if whose else _held_by_any(ids)
    at = {party: _positions_if_any(own, common) for party, own in ids.items()}
    held = {party: len(own) for party, own in ids.items()}
    if not whose:
        return MatchedRows(common, at, held, len(common))
    for party in ids:
        if not _present(at[party]):
            pair = {whose: ids[whose], party: ids[party]}
            raise DataError(
                f"Party {party!r} holds none of the {len(common)} rows of the label party {whose!r}."
                f"{_causes(pair)} Check that the setting `id` names the same kind of id for both."
            )
    return MatchedRows(common, at, held, len(common), _notes_on_pairs(ids, whose, at))


def _held_by_any(ids: Mapping[str, RowIds]) -> pa.StringArray:
    everything: pa.StringArray = pc.unique(pa.concat_arrays([own.sorted for own in ids.values()]))
    return everything.take(pc.sort_indices(everything))


def _positions_if_any(own: RowIds, common: pa.StringArray) -> Array:
    if own.sorted.equals(common):
        return own.order
    found = pc.fill_null(pc.index_in(common, value_set=own.sorted), NOWHERE).to_numpy(zero_copy_only=False)
    return np.where(found == NOWHERE, NOWHERE, own.order[found])


def _present(positions: Array) -> int:
    return int(np.count_nonzero(positions != NOWHERE))


def _here(rows: Array, positions: Array) -> Array:
    here: Array = rows[positions[rows] != NOWHERE]
    return here


def match_rows(ids: Mapping[str, RowIds], rows: str = "same") -> MatchedRows:
    """The rows that all parties hold; unless `rows` is "intersection", no party may hold others."""
    parties = list(ids)
    common = ids[parties[0]].sorted
    for party in parties[1:]:
        common = _shared(common, ids[party].sorted)
    if not len(common):
        counts = ", ".join(f"{party!r} holds {len(ids[party])}" for party in parties)
        raise DataError(
            f"No id is held by all parties ({counts}): {_who_shares_none(ids)}.{_causes(ids)} Check that the setting "
            "`id` names the same kind of id for each party."
        )
    if rows == "same" and any(len(own) > len(common) for own in ids.values()):
        everything = common
        for own in ids.values():
            lacking = own.sorted.filter(pc.invert(pc.is_in(own.sorted, value_set=everything)))
            everything = pa.concat_arrays([everything, lacking])
        lacks = ", ".join(f"{party!r} lacks {len(everything) - len(ids[party])}" for party in parties)
        raise DataError(
            f"The parties do not hold the same rows: of the {len(everything)} ids that any party holds, "
            f"{lacks}, and {len(common)} are held by all.{_causes(ids)} Mend the files, or set data.rows = "
            "'intersection' to use only the rows that all hold."
        )
    at = {party: _positions(own, common) for party, own in ids.items()}
    held = {party: len(own) for party, own in ids.items()}
    return MatchedRows(common, at, held, len(common), _notes(ids, len(common)))


def _shared(some: pa.StringArray, others: pa.StringArray) -> pa.StringArray:
    """Those of some sorted ids that are among the others."""
    return some if some.equals(others) else some.filter(pc.is_in(some, value_set=others))


def _positions(own: RowIds, common: pa.StringArray) -> Array:
    """Where each of the common ids lies; both are sorted, so that the first common one is the first that matches."""
    if len(own) == len(common):
        return own.order
    among: Array = pc.is_in(own.sorted, value_set=common).to_numpy(zero_copy_only=False)
    return own.order[among]


def _who_shares_none(ids: Mapping[str, RowIds]) -> str:
    """Whose fault an empty intersection is: one party's, if all others hold some rows in common."""
    empty = [party for party, own in ids.items() if not len(own)]
    if empty:
        return f"the table of {' and '.join(map(repr, empty))} has no rows"
    alone = []
    for party in ids:
        others = [ids[other].sorted for other in ids if other != party]
        shared = others[0]
        for more in others[1:]:
            shared = _shared(shared, more)
        if len(shared):
            alone.append(party)
    if len(ids) > 2 and len(alone) == 1:
        return f"party {alone[0]!r} has no row in common with those that the others share"
    return "no row is common to " + " and ".join(map(repr, alone if alone else ids))


# --- why ids do not match -----------------------------------------------------------------------------------------


def _notes(ids: Mapping[str, RowIds], matched: int) -> tuple[str, ...]:
    poor = [party for party, own in ids.items() if matched < len(own) / 2]
    if not poor:
        return ()
    whose = ", ".join(f"{matched:,} of the {len(ids[party]):,} rows of {party!r}" for party in poor)
    cause = _causes(ids) or " No simple cause was found: check that the setting `id` names the same kind of id."
    return (f"Fewer than half of the rows match: {whose}.{cause}",)


def _notes_on_pairs(ids: Mapping[str, RowIds], whose: str, at: Mapping[str, Array]) -> tuple[str, ...]:
    """Of each party that shares less than half of what it could with the one whose rows are used."""
    notes: list[str] = []
    for party, own in ids.items():
        shared = _present(at[party])
        if shared < min(len(own), len(ids[whose])) / 2:
            pair = {whose: ids[whose], party: own}
            cause = (
                _causes(pair) or " No simple cause was found: check that the setting `id` names the same kind of id."
            )
            notes.append(f"Of the {len(own):,} rows of {party!r}, {shared:,} are among those of {whose!r}.{cause}")
    return tuple(notes)


def _same_number(text: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring_regex(text, r"^(-?\d+)\.0+$", r"\1")


_FORMS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("leading zeros are ignored", lambda text: pc.utf8_ltrim(text, "0")),
    ("capital and small letters are taken as the same", lambda text: pc.utf8_lower(text)),
    ("spaces and hyphens inside ids are ignored", lambda text: pc.replace_substring_regex(text, r"[\s-]", "")),
    ("ids such as 7.0 are read as 7", _same_number),
)


def _causes(ids: Mapping[str, RowIds]) -> str:
    """For the first two parties of which many more ids would match in another form: which form, and how many."""
    for one, other in combinations(ids, 2):
        first, second = ids[one].text, ids[other].text
        now = int(pc.sum(pc.is_in(first, value_set=second)).as_py() or 0)
        smaller = min(len(first), len(second))
        if now * 2 >= smaller:
            continue
        found = [(_matching(form(first), form(second)), words) for words, form in _FORMS]
        most, words = max(found, key=lambda pair: pair[0])
        if most > max(2 * now, smaller / 10):
            return (
                f" Of {one!r} and {other!r}, {now:,} ids are the same; {most:,} would be if {words}: write them alike, "
                "or let colonnade align do it by [alignment.rules] and set data.rows = 'aligned'."
            )
    return ""


def _matching(first: pa.StringArray, second: pa.StringArray) -> int:
    return int(pc.sum(pc.is_in(pc.unique(first), value_set=pc.unique(second))).as_py() or 0)


# --- train and test -----------------------------------------------------------------------------------------------


def split_rows(
    rows: int, test_fraction: float, *, seed: int = 0, max_rows: int = 0, groups: Array | None = None
) -> tuple[Array, Array]:
    """The row numbers to train on and to test on, in the seed's random order.

    Rows of one group (the recordings of one person, say) stay on one side, and `test_fraction` is then one of
    groups. A fraction above 0 gives at least one row to test on, and one is always left to train on.
    """
    order, place = _shuffled(rows, seed, groups)
    if max_rows:
        order, place = order[:max_rows], place[:max_rows]
    # Places of the groups that max_rows left in; they are 0, 1, … without a gap.
    groups_left = int(place[-1]) + 1 if len(order) else 0
    groups_to_test = max(1, round(test_fraction * groups_left)) if test_fraction > 0 else 0
    if groups_left < (2 if groups_to_test else 1):
        raise DataError(
            f"There are too few rows: {len(order)} cannot be divided with data.test_fraction = "
            f"{test_fraction} so that some are left to train on. Give more rows, or raise data.max_rows."
        )
    groups_to_test = min(groups_to_test, groups_left - 1)
    # Places rise along the order.
    first = int(np.searchsorted(place, groups_left - groups_to_test))
    return order[:first], order[first:]


def _shuffled(rows: int, seed: int, groups: Array | None) -> tuple[Array, Array]:
    """The rows in random order, those of a group together, and the place of the group of each."""
    draw = np.random.default_rng(seed)
    if groups is None:
        place = draw.permutation(rows)
        order = np.empty(rows, dtype=np.uint32 if rows < 2**32 else np.intp)  # the smaller, the sooner it is filled
        order[place] = np.arange(rows, dtype=order.dtype)  # what sorting by place would give
        return order.astype(np.intp), np.arange(rows)
    group = np.unique(groups, return_inverse=True)[1].reshape(-1)
    place = draw.permutation(int(group.max()) + 1 if rows else 0)[group]
    order = np.argsort(place, kind="stable")
    return order, place[order]


class Rows(NamedTuple):
    """Which rows of a table to train on, to validate with and to test on."""

    train: Array
    validation: Array
    test: Array

    @property
    def scored(self) -> Array:
        """Those that are prepared as the training rows say, and no model learns from."""
        return np.concatenate([self.validation, self.test])

    def at(self, positions: Array) -> Rows:
        """The same rows, as one party numbers them."""
        return Rows(*(positions[part] for part in self))


def set_apart(train: Array, fraction: float, groups: Array | None = None) -> tuple[Array, Array]:
    """Of rows in a random order, those to train on and those to validate with: the last ones.

    `train` is what `split_rows` gave; rows of one group lie together in it, and stay together.

    >>> [part.tolist() for part in set_apart(np.array([4, 0, 3, 1]), 0.25)]
    [[4, 0, 3], [1]]
    """
    if not fraction:
        return train, train[:0]
    first = len(train) - max(1, round(fraction * len(train)))
    if groups is not None and first > 0:
        own = groups[train]
        borders = 1 + np.flatnonzero(own[1:] != own[:-1])  # places at which a group begins
        first = int(borders[np.abs(borders - first).argmin()]) if len(borders) else 0
    if first < 1:
        raise DataError(
            f"There are too few rows: of {len(train)} to train on, a share of data.validation = {fraction} cannot be "
            "kept apart so that some are left. Give more rows, or lower data.validation."
        )
    return train[:first], train[first:]


class ChosenIds(NamedTuple):
    """The texts of some rows, which need not be put together to be read."""

    text: pa.StringArray
    rows: Array

    def __len__(self) -> int:
        return len(self.rows)


def row_digest(
    train_ids: Array | ChosenIds, test_ids: Array | ChosenIds, validation_ids: Array | ChosenIds | None = None
) -> str:
    """A sha256 that two parties share exactly when their rows and their split agree, in order."""
    parts = [train_ids, test_ids]
    if validation_ids is not None and len(validation_ids):
        parts.append(validation_ids)
    total = hashlib.sha256()
    for place, ids in enumerate(parts):
        total.update(b", [" if place else b"[[")
        for piece in _as_json(ids):
            total.update(piece)
        total.update(b"]")
    total.update(b"]")
    return total.hexdigest()


def _as_json(ids: Array | ChosenIds) -> Iterator[bytes | memoryview]:
    """What json.dumps writes of the ids as texts, without its brackets, a piece at a time."""
    plain = isinstance(ids, ChosenIds) and _is_plain(ids.text)
    width = one_width(ids.text) if isinstance(ids, ChosenIds) and plain else 0
    if isinstance(ids, ChosenIds) and width and len(ids):
        yield from _lines(ids.text, width, ids.rows)
        return
    for start in range(0, len(ids), IDS_AT_ONCE):
        yield b", " if start else b""
        if not isinstance(ids, ChosenIds):
            yield json.dumps([str(id) for id in ids[start : start + IDS_AT_ONCE].tolist()])[1:-1].encode()
            continue
        some = taken(ids.text, ids.rows[start : start + IDS_AT_ONCE])
        if plain:
            joined = pc.binary_join(
                pa.ListArray.from_arrays(numbers(np.array([0, len(some)], np.int32)), some), one_text('", "')
            )
            yield b'"' + joined[0].as_buffer().to_pybytes() + b'"'
        else:
            yield json.dumps(some.to_pylist())[1:-1].encode()


def _lines(text: pa.StringArray, width: int, rows: Array) -> Iterator[memoryview]:
    """Each row's text in quotes, a comma and a space between two: what is given is written over by the next."""
    size = min(len(rows), _LINES_AT_ONCE)
    lines = np.empty((size, width + len(_QUOTED)), np.uint8)
    lines[:, 0], lines[:, width + 1 :] = _QUOTED[0], _QUOTED[1:]
    item = np.dtype((np.void, width))  # moved at once, not letter by letter
    letters = letters_of(text, width).reshape(-1).view(item)
    places = np.ndarray(size, item, lines, 1, (lines.strides[0],))
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        places[: len(some)] = letters.take(some)
        written = lines[: len(some)].reshape(-1)
        yield (written[:-2] if start + size >= len(rows) else written).data  # no comma after the last


def _is_plain(text: pa.StringArray) -> bool:
    """Whether JSON writes each character as it is."""
    content = text.buffers()[2]
    if content is None:
        return True
    letters = np.frombuffer(content, np.uint8)
    if not len(letters):
        return True
    printable = letters.min() >= ord(" ") and letters.max() <= ord("~")
    return bool(printable and not (letters == ord('"')).any() and not (letters == ord("\\")).any())
