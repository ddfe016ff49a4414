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

from colonnade.alignment.lookup import Lookup
from colonnade.data.absence import NOWHERE
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
    columns: torch.Tensor | None  # prepared; None: the party's model takes none
    table: Sequence[str]  # ids as the party writes them, in some order
    rows: NDArray[np.int64]  # the place of each in that order

    @property
    def ids(self) -> list[str]:
        return [self.table[row] for row in self.rows.tolist()]


class LiveRows:
    """A party's table, looked up by hashed ids."""

    def __init__(self, name: str, own: PartyData, data: DataSettings, form: IdForm, base: Path) -> None:
        self._name = name
        self._own = own
        self._data = replace(data, rows="same")  # by ids: rows that come later are in no alignment
        self._form = form
        self._base = base
        self._path = base / own.folder / own.file
        self._stamp: tuple[int, ...] = ()
        self._rows: OwnRows | None = None
        self._prepared_for = ""
        self._lookup = Lookup(np.zeros((0, 2), np.uint64))
        self._ids: list[str] = []  # of a database, as they were listed last
        self._names: Names = np.zeros((0, 2), np.uint64)
        self._listed_at = -_BETWEEN_LISTS_SECONDS

    def find(self, names: Names, model: SavedModel) -> Found:
        """Rows as this model takes them."""
        return self._ask(names, model) if self._own.sql else self._look(names, model)

    def check(self, model: SavedModel) -> Found:
        """Read once before anybody asks: what is wrong with the table is told to its owner at the start.

        Of a database one row: its preparation is loaded then, and not while somebody waits.
        """
        if self._own.sql:
            self._list_ids()
        return self.find(self._names[:1], model)

    # --- files ---

    def _look(self, names: Names, model: SavedModel) -> Found:
        version = model.description.weights_sha256
        stamp: tuple[int, ...] = ()
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError:
            pass  # the rows before serve
        if self._rows is None or stamp != self._stamp or version != self._prepared_for:
            self._read_again(stamp, version, model)
        assert self._rows is not None
        places, rows = self._held(names)
        columns = self._rows.columns
        if columns is not None:  # NumPy takes whole rows several times as fast as an index of PyTorch does
            columns = torch.from_numpy(columns.numpy().take(rows, axis=0))
        return Found(places, columns, self._rows.ids, rows)

    def _held(self, names: Names) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Those of the names that it holds, and where."""
        rows = self._lookup.places(names)
        there = np.flatnonzero(rows != NOWHERE)
        return there.astype(np.uint32), rows[there]

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
        self._lookup = Lookup(rows.names)

    # --- databases ---

    def _ask(self, names: Names, model: SavedModel) -> Found:
        if not len(self._lookup) or (self._lookup.places(names) == NOWHERE).any():
            self._list_ids()
        places, rows = self._held(names)
        has_columns = self._name in model.description.shapes
        if not len(rows) or not has_columns or model.preparation is None:
            return Found(places, None, self._ids, rows)
        column = self._own.id or self._data.id
        wanted = [self._ids[row] for row in rows.tolist()]
        table = read_own(_only(self._own, column, wanted), self._base, party=self._name, id=column)
        row_of = {one: row for row, one in enumerate(table.ids.tolist())}
        kept = np.array([one in row_of for one in wanted], np.bool_)  # some may be gone since they were listed
        found = np.array([row_of[one] for one in wanted if one in row_of], np.int64)
        return Found(places[kept], model.preparation.apply(table, found, party=self._name), self._ids, rows[kept])

    def _list_ids(self) -> None:
        if time.monotonic() - self._listed_at < _BETWEEN_LISTS_SECONDS:
            return
        self._listed_at = time.monotonic()
        ids = ids_of(self._own, self._base, party=self._name, id=self._own.id or self._data.id).tolist()
        names, usable = self._form.names(ids)
        self._ids, self._names = [one for one, good in zip(ids, usable, strict=True) if good], names[usable]
        self._lookup = Lookup(self._names)


def _only(own: PartyData, column: str, ids: Sequence[str]) -> PartyData:
    """The same query for these rows alone. The ids are the database's own, and are quoted all the same."""
    quoted = ", ".join("'" + one.replace("'", "''") + "'" for one in ids)
    name = '"' + column.replace('"', '""') + '"'
    query = own.sql.strip().rstrip(";")
    return replace(own, sql=f"SELECT * FROM ({query}) AS served WHERE CAST({name} AS VARCHAR) IN ({quoted})")
