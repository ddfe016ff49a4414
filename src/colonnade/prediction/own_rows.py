"""One party's rows for a prediction: read from its own table, prepared as in training, and known by hashed ids.

Ids are written alike by the rules of [alignment]; where the parties have an alignment, rows lie in its order instead,
and no id is needed. Ids stay with their owner: no error made here holds one.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.alignment.normalisation import all_written_alike
from colonnade.alignment.settings import AlignmentSettings, IdRules
from colonnade.data.absence import NOWHERE
from colonnade.data.id_columns import listed, read_id_columns
from colonnade.data.own_tables import alignment_of
from colonnade.data.settings import DataSettings, PartyData
from colonnade.data.sources import read_own
from colonnade.errors import DataError, SettingsError
from colonnade.prediction.saved_model import SavedModel
from colonnade.prediction.seat import MOST_ROWS, AskedRows, Names
from colonnade.settings import as_values


@dataclass(frozen=True)
class IdForm:
    """How ids become names that all parties write alike."""

    domain: bytes
    rules: IdRules

    def names(self, ids: Sequence[str]) -> tuple[Names, NDArray[np.bool_]]:
        """The name of each, and which of them can be used at all."""
        texts, sha256, domain = all_written_alike(ids, self.rules), hashlib.sha256, self.domain
        digests = b"".join([sha256(domain + (text or "").encode()).digest() for text in texts])
        names = np.frombuffer(digests, "<u8").reshape(-1, 4)[:, :2]  # 16 bytes of each
        return np.ascontiguousarray(names), np.fromiter(map(bool, texts), np.bool_, len(texts))


def id_form(parties: Sequence[str], data: DataSettings, settings: AlignmentSettings) -> IdForm:
    """The same at all parties of a federation."""
    columns = settings.key_columns(data.id)
    if len(columns) > 1 and data.rows != "aligned":
        raise SettingsError(
            f"The federation knows rows by {len(columns)} columns together ({', '.join(columns)}), and a prediction by "
            "ids takes one: run colonnade align, and predict with data.rows = 'aligned'."
        )
    rules = settings.rules.get(columns[0], IdRules())
    agreed = {"purpose": "prediction", "parties": sorted(parties), "rules": as_values(rules)}
    return IdForm(hashlib.sha256(msgspec.json.encode(agreed, order="deterministic")).digest(), rules)


@dataclass(frozen=True)
class OwnRows:
    """What one party brings to a prediction."""

    ids: list[str]  # as it writes them, one per row
    names: Names | None  # None: rows lie in the order of an alignment
    columns: torch.Tensor | None  # prepared; None: its model takes none
    alignment: str = ""  # the digest that all parties of one share

    @property
    def digest(self) -> str:
        """Whether they are still the same."""
        total = hashlib.sha256("\0".join(self.ids).encode())
        if self.columns is not None:
            total.update(self.columns.numpy().tobytes())
        return total.hexdigest()


def read_own_rows(
    name: str, model: SavedModel, own: PartyData, data: DataSettings, form: IdForm, base: Path
) -> OwnRows:
    """A party's table as its model takes it."""
    has_columns = name in model.description.shapes
    if has_columns and model.preparation is None:
        raise SettingsError(
            f"The model of {name} was trained on prepared columns, and not on a table of its own: nothing says "
            "how a table becomes what it takes. Train on tables, or load the model in Python."
        )
    if not own.has_table:
        raise SettingsError(f"Party {name!r} names no file and no query: give [data] file or sql, or --table.")
    if data.rows == "aligned":
        return _aligned_rows(name, model, own, has_columns, base)
    table = read_own(replace(own, weight=""), base, party=name, id=own.id or data.id, only_ids=not has_columns)
    ids = table.ids.tolist()
    names, usable = form.names(ids)
    rows = np.flatnonzero(usable)
    if len(np.unique(names[rows], axis=0)) < len(rows):
        raise DataError(same_by_the_rules(name, table.where))
    _check_number(name, len(rows))
    columns = None
    if has_columns and model.preparation is not None:
        columns = model.preparation.apply(table, rows, party=name)
    return OwnRows([ids[row] for row in rows], names[rows], columns)


def same_by_the_rules(name: str, where: str) -> str:
    return (
        f"Party {name!r}: ids of {where} are the same by the rules of the federation ([alignment.rules]): keep one row "
        "for each."
    )


def _aligned_rows(name: str, model: SavedModel, own: PartyData, has_columns: bool, base: Path) -> OwnRows:
    aligned = alignment_of(name, own, base)
    _check_number(name, len(aligned.rows))
    texts = read_id_columns(own, base, aligned.columns, name)
    chosen = [listed(column, np.maximum(aligned.rows, 0)) for column in texts]
    ids = [",".join(parts) for parts in zip(*chosen, strict=True)]
    ids = [one if row != NOWHERE else "" for one, row in zip(ids, aligned.rows, strict=True)]
    columns = None
    if has_columns and model.preparation is not None:
        table = read_own(replace(own, weight=""), base, party=name, id="")
        columns = model.preparation.apply(table, aligned.rows, party=name)
    return OwnRows(ids, None, columns, aligned.digest)


def _check_number(name: str, rows: int) -> None:
    if rows > MOST_ROWS:
        raise DataError(f"Party {name!r} has {rows} rows; at most {MOST_ROWS} are predicted at once.")


# --- what the label party asks for ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """Ids to predict, in their order; each row once, for it is released as often as it is asked for."""

    ids: list[str]
    asked: AskedRows
    unusable: tuple[str, ...]  # ids that no party can hold: empty, malformed or, with an alignment, not in it
    others: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # by place: as the same id was written, too

    def written(self, place: int) -> tuple[str, ...]:
        """As the id of that place was asked for, in every way."""
        return (self.ids[place], *self.others.get(place, ()))


def wanted_rows(own: OwnRows | None, ids: Sequence[str] | None, form: IdForm) -> Wanted:
    """What to ask for: these ids, or all that the label party's own table has."""
    if ids is None:
        if own is None:
            raise SettingsError("The label party has no table to take ids from: say which rows with --ids.")
        rows = np.arange(len(own.ids))
        places = None if own.names is not None else rows.astype(np.uint32)
        return Wanted(own.ids, AskedRows(own.names, places, rows), ())
    _check_number("--ids", len(ids))
    each = list(dict.fromkeys(ids))
    names, usable = form.names(each)
    held: dict[bytes, int] = {}
    if own is not None:
        own_names = form.names(own.ids)[0] if own.names is None else own.names
        held = {name.tobytes(): row for row, name in enumerate(own_names)}
    rows = np.array([held.get(name.tobytes(), -1) for name in names], np.int64)
    if own is not None and own.names is None:  # who is not in the alignment is not asked for
        usable &= rows >= 0
    unusable = tuple(one for one, good in zip(each, usable, strict=True) if not good)
    alike: dict[bytes, list[int]] = {}
    for place in np.flatnonzero(usable).tolist():
        alike.setdefault(names[place].tobytes(), []).append(place)
    kept = [places[0] for places in alike.values()]
    chosen, rows = [each[place] for place in kept], rows[kept]
    others = {
        number: tuple(each[place] for place in places[1:])
        for number, places in enumerate(alike.values())
        if len(places) > 1
    }
    if own is not None and own.names is None:
        return Wanted(chosen, AskedRows(None, rows.astype(np.uint32), rows), unusable, others)
    return Wanted(chosen, AskedRows(names[kept], None, rows), unusable, others)
