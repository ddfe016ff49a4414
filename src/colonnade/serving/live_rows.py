"""One party's rows as they are now: files are read again when they have changed, databases are asked for each row.

So an update is seen by the next answer. A file that cannot be read, as while it is being written, is looked at again
with the next request; until then the rows before serve.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.data.settings import DataSettings, PartyData
from colonnade.data.sources import ids_of, read_own
from colonnade.errors import DataError
from colonnade.prediction.own_rows import IdForm, OwnRows, read_own_rows
from colonnade.prediction.saved_model import SavedModel
from colonnade.prediction.seat import Names

log = logging.getLogger("colonnade.serving")

_BETWEEN_LISTS_SECONDS = 1.0
"""A database is asked for all its ids at most so often, if an id is asked for that was not there."""


@dataclass(frozen=True)
class Found:
    """Those of some rows that a party holds."""

    places: NDArray[np.uint32]  # among those asked for
    ids: list[str]
    columns: torch.Tensor | None  # prepared; None: the party's model takes none


class LiveRows:
    """A party's table, looked up by hashed ids."""

    def __init__(self, name: str, own: PartyData, data: DataSettings, form: IdForm, base: Path) -> None:
        self._name = name
        self._own = own
        self._data = replace(data, rows="same")  # by ids: rows that come later are in no alignment
        self._form = form
        self._base = base
        self._stamp: tuple[int, ...] = ()
        self._rows: OwnRows | None = None
        self._prepared_for = ""
        self._places: dict[bytes, int] = {}
        self._ids: dict[bytes, str] = {}
        self._listed_at = -_BETWEEN_LISTS_SECONDS

    def find(self, names: Names, model: SavedModel) -> Found:
        """Rows as this model takes them."""
        return self._ask(names, model) if self._own.sql else self._look(names, model)

    def check(self, model: SavedModel) -> None:
        """Read once before anybody asks: what is wrong with the table is told to its owner at the start."""
        self.find(np.zeros((0, 2), np.uint64), model)

    # --- files ---

    def _look(self, names: Names, model: SavedModel) -> Found:
        path = self._base / self._own.folder / self._own.file
        version = model.description.weights_sha256
        stamp: tuple[int, ...] = ()
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError:
            pass  # the rows before serve
        if self._rows is None or stamp != self._stamp or version != self._prepared_for:
            self._read_again(stamp, version, model)
        assert self._rows is not None
        held = [(place, self._places.get(name.tobytes(), -1)) for place, name in enumerate(names)]
        there = [(place, row) for place, row in held if row >= 0]
        rows = [row for _, row in there]
        columns = None if self._rows.columns is None else self._rows.columns[rows]
        return Found(np.array([place for place, _ in there], np.uint32), [self._rows.ids[row] for row in rows], columns)

    def _read_again(self, stamp: tuple[int, ...], version: str, model: SavedModel) -> None:
        try:
            rows = read_own_rows(self._name, model, self._own, self._data, self._form, self._base)
        except DataError as error:
            if self._rows is None or version != self._prepared_for:
                raise
            log.error("the table could not be read again, the rows before serve: %s", error)
            self._stamp = stamp
            return
        assert rows.names is not None
        self._rows, self._stamp, self._prepared_for = rows, stamp, version
        self._places = {name.tobytes(): row for row, name in enumerate(rows.names)}

    # --- databases ---

    def _ask(self, names: Names, model: SavedModel) -> Found:
        wanted = [name.tobytes() for name in names]
        if not all(name in self._ids for name in wanted) or not self._ids:
            self._list_ids()
        there = [(place, self._ids[name]) for place, name in enumerate(wanted) if name in self._ids]
        has_columns = self._name in model.description.shapes
        if not there or not has_columns or model.preparation is None:
            return Found(np.array([place for place, _ in there], np.uint32), [one for _, one in there], None)
        column = self._own.id or self._data.id
        table = read_own(_only(self._own, column, [one for _, one in there]), self._base, party=self._name, id=column)
        row_of = {one: row for row, one in enumerate(table.ids.tolist())}
        kept = [(place, one) for place, one in there if one in row_of]  # some may be gone since they were listed
        rows = np.array([row_of[one] for _, one in kept], np.int64)
        columns = model.preparation.apply(table, rows, party=self._name)
        return Found(np.array([place for place, _ in kept], np.uint32), [one for _, one in kept], columns)

    def _list_ids(self) -> None:
        if time.monotonic() - self._listed_at < _BETWEEN_LISTS_SECONDS:
            return
        self._listed_at = time.monotonic()
        ids = ids_of(self._own, self._base, party=self._name, id=self._own.id or self._data.id).tolist()
        names, usable = self._form.names(ids)
        self._ids = {name.tobytes(): one for name, one, good in zip(names, ids, usable, strict=True) if good}


def _only(own: PartyData, column: str, ids: Sequence[str]) -> PartyData:
    """The same query for these rows alone. The ids are the database's own, and are quoted all the same."""
    quoted = ", ".join("'" + one.replace("'", "''") + "'" for one in ids)
    name = '"' + column.replace('"', '""') + '"'
    query = own.sql.strip().rstrip(";")
    return replace(own, sql=f"SELECT * FROM ({query}) AS served WHERE CAST({name} AS VARCHAR) IN ({quoted})")
