"""Predictions for the rows of parties' own tables, where one person has all of them: matched by id, prepared, scored.

Each table is prepared as it was for training, by what its party has learnt then; rows need not have been seen before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from colonnade.data.alignment import match_rows
from colonnade.data.settings import PartyData
from colonnade.data.sources import Source, Table, read_own, read_table
from colonnade.errors import DataError, SettingsError
from colonnade.files import appearing
from colonnade.on_demand import on_demand
from colonnade.prediction.joint_model import JointModel

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq
else:
    pa, pa_csv, pq = on_demand("pyarrow"), on_demand("pyarrow.csv"), on_demand("pyarrow.parquet")

ENDINGS = (".csv", ".parquet")


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says of rows, by id."""

    ids: list[str]
    predicted: NDArray[Any]  # a class or a value for each
    probabilities: dict[str, NDArray[np.float64]]  # of each class; none in a regression
    unknown: tuple[str, ...] = ()  # ids that were asked for and are not held by every party
    left_out: Mapping[str, int] | None = None  # by party, how many of its rows the others do not hold

    def table(self, id: str = "id") -> pa.Table:
        """A table of ids, predictions and probabilities; ids that are not known have none."""
        empty = [None] * len(self.unknown)
        columns: dict[str, Any] = {id: [*self.ids, *self.unknown]}
        columns["prediction"] = pa.array([*self.predicted.tolist(), *empty])
        for name, values in self.probabilities.items():
            columns[f"probability of {name}"] = pa.array([*values.tolist(), *empty])
        return pa.table(columns)

    def write(self, path: Path, id: str = "id") -> None:
        """As CSV or Parquet, by the ending; the file appears whole, and for its owner alone."""
        check_ending(path)
        try:
            with appearing(path) as unfinished:
                if path.name.lower().endswith(".parquet"):
                    pq.write_table(self.table(id), unfinished)
                else:
                    pa_csv.write_csv(self.table(id), unfinished)
        except OSError as error:
            raise SettingsError(f"{path} could not be written: {error.strerror or error}.") from None


def check_ending(path: Path) -> None:
    if not path.name.lower().endswith(ENDINGS):
        raise SettingsError(f"Predictions are written as {' or '.join(ENDINGS)}; {path} ends otherwise.")


def predict_tables(
    model: JointModel,
    sources: Mapping[str, Source | PartyData],
    *,
    id: str = "id",
    base: Path = Path(),
    wanted: Sequence[str] | None = None,
) -> Predictions:
    """What the model says of the rows that every party with columns holds.

    `sources`: a frame, a file, or a party's settings for each of them. `wanted`: the ids to predict, in their order;
    None: all.
    """
    lacking = [name for name in model.order if name not in sources]
    if lacking:
        raise DataError(f"Tables of {' and '.join(lacking)} are missing: every party with columns must give its own.")
    tables = {name: _read(sources[name], name, id, base) for name in model.order}
    matched = match_rows({name: table.ids for name, table in tables.items()}, "intersection")
    found: list[str] = matched.ids.to_pylist()
    positions = np.arange(len(found))
    unknown: tuple[str, ...] = ()
    if wanted is not None:
        place = {one: number for number, one in enumerate(found)}
        unknown = tuple(one for one in wanted if one not in place)
        positions = np.array([place[one] for one in wanted if one in place], dtype=np.int64)
    rows = {name: _prepared(model, name, table, matched.at[name][positions]) for name, table in tables.items()}
    left_out = {name: held - matched.rows for name, held in matched.held.items()}
    ids = [found[position] for position in positions]
    if not ids:
        return Predictions([], np.array([]), {}, unknown, left_out)
    probabilities: dict[str, NDArray[np.float64]] = {}
    if model.unit.classes:
        each = model.predict_proba(rows)
        probabilities = {str(name): each[:, place] for place, name in enumerate(model.unit.classes)}
    return Predictions(ids, model.predict(rows), probabilities, unknown, left_out)


def _read(source: Source | PartyData, name: str, id: str, base: Path) -> Table:
    if isinstance(source, PartyData):
        return read_own(source, base, party=name, id=source.id or id)
    return read_table(source, party=name, id=id)


def _prepared(model: JointModel, name: str, table: Table, positions: NDArray[Any]) -> Any:
    preparation = model.parties[name].preparation
    if preparation is None:
        raise DataError(
            f"The model of {name} was trained on prepared columns, and not on a table of its own: give its prepared "
            "rows to JointModel.predict."
        )
    return preparation.apply(table, positions, party=name)
