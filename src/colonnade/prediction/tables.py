"""Predictions for the rows of parties' own tables, where one person has all of them: matched by id, prepared, scored.

Each table is prepared as it was for training, by what its party has learnt then; rows need not have been seen before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.alignment.normalisation import all_written_alike
from colonnade.alignment.settings import IdRules
from colonnade.data.absence import NOWHERE
from colonnade.data.alignment import match_any, match_rows
from colonnade.data.ids import RowIds
from colonnade.data.settings import PartyData
from colonnade.data.sources import Source, Table, read_own, read_table
from colonnade.errors import DataError, SettingsError
from colonnade.files import appearing
from colonnade.on_demand import on_demand
from colonnade.prediction.conversation import PredictingLabelParty
from colonnade.prediction.joint_model import JointModel
from colonnade.prediction.meaning import probabilities_of, values_of
from colonnade.prediction.own_rows import Wanted, same_by_the_rules
from colonnade.prediction.saved_model import LabelUnit

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq
else:
    pa, pa_csv, pq = on_demand("pyarrow"), on_demand("pyarrow.csv"), on_demand("pyarrow.parquet")

ENDINGS = (".csv", ".parquet")


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says of rows, by id.

    >>> found = Predictions(["c1", "c2"], np.array(["no", "yes"]), {"yes": np.array([0.2, 0.9])}, unknown=("c3",))
    >>> dict(zip(found.ids, found.predicted.tolist()))
    {'c1': 'no', 'c2': 'yes'}
    """

    ids: list[str]
    predicted: NDArray[Any]  # a class or a value for each
    probabilities: dict[str, NDArray[np.float64]]  # of each class; none in a regression
    unknown: tuple[str, ...] = ()  # ids that were asked for and are not held by every party (where rows may be
    # absent: by any)
    left_out: Mapping[str, int] | None = None  # by party, how many of its rows the others do not hold
    present: Mapping[str, NDArray[np.bool_]] | None = None  # by party, which rows it has; None: all have all
    refused: tuple[str, ...] = ()  # ids of rows whose budget is spent at some party
    not_held: Mapping[str, int] | None = None  # by feature party that was asked, how many of the rows it does not hold

    @property
    def lacking(self) -> dict[str, int]:
        """By party, how many of the predicted rows it lacks; nobody is named where rows may not be absent."""
        return {name: int((~held).sum()) for name, held in (self.present or {}).items()}

    def table(self, id: str = "id") -> pa.Table:
        """A table of ids, predictions and probabilities; ids that are not known have none.

        Where rows may be absent, one more column says by whom each row is known.
        """
        empty = [None] * (len(self.unknown) + len(self.refused))
        columns: dict[str, Any] = {id: [*self.ids, *self.unknown, *self.refused]}
        columns["prediction"] = pa.array([*self.predicted.tolist(), *empty])
        for name, values in self.probabilities.items():
            columns[f"probability of {name}"] = pa.array([*values.tolist(), *empty])
        if self.present is not None:
            names = list(self.present)
            known = [" ".join(compress(names, row)) for row in zip(*self.present.values(), strict=True)]
            columns["known to"] = pa.array([*known, *empty], pa.string())
        return pa.table(columns)

    def counts(self) -> dict[str, Any]:
        """How many of each."""
        told: dict[str, Any] = {"predicted": len(self.ids), "unknown": len(self.unknown)}
        if self.left_out is not None:
            told["left_out"] = dict(self.left_out)
        if self.present is not None:
            told["lacking"] = self.lacking
        if self.not_held is not None:
            told |= {"refused": len(self.refused), "lacking": dict(self.not_held)}
        return told

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
            what = error.strerror or error
            raise SettingsError(f"{path} could not be written: {what}. Choose another place for it.") from None


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
    rules: IdRules | None = None,
) -> Predictions:
    """What the model says of the rows that every party with columns holds; of those that any holds, if it was trained
    with rows that some lack.

    `sources`: a frame, a file, or a party's settings for each of them. `wanted`: the ids to predict, in their order;
    None: all. `rules`: how ids are written alike before they are compared; None: they are compared as they are.
    """
    lacking = [name for name in model.order if name not in sources]
    if lacking and not (model.expects_absence and len(lacking) < len(model.order)):
        raise DataError(f"Tables of {' and '.join(lacking)} are missing: every party with columns must give its own.")
    tables = {name: _read(sources[name], name, id, base) for name in model.order if name in sources}
    alike = {name: _written_alike(name, table, rules) for name, table in tables.items()}
    ids_of = {name: ids for name, (ids, _) in alike.items()}
    matched = match_any(ids_of) if model.expects_absence else match_rows(ids_of, "intersection")
    found: list[str] = matched.ids.to_pylist()
    positions, ids = np.arange(len(found)), found
    unknown: tuple[str, ...] = ()
    if wanted is not None:
        place = {one: number for number, one in enumerate(found)}
        texts = wanted if rules is None else [text or "" for text in all_written_alike(wanted, rules)]
        places = [place.get(text) for text in texts]
        unknown = tuple(one for one, at_place in zip(wanted, places, strict=True) if at_place is None)
        ids = [one for one, at_place in zip(wanted, places, strict=True) if at_place is not None]
        positions = np.array([one for one in places if one is not None], dtype=np.int64)
    at = {name: _rows_of(alike[name][1], places[positions]) for name, places in matched.at.items()}
    if wanted is None and rules is not None:  # as the label party writes it, or the first who holds the row
        others = [name for name in reversed(tables) if name != model.label_party]
        for name in (*others, *(name for name in tables if name == model.label_party)):  # who comes last has the word
            own = tables[name].ids.tolist()
            ids = [one if row == NOWHERE else own[row] for one, row in zip(ids, at[name].tolist(), strict=True)]
    rows = {name: _prepared(model, name, table, at[name]) for name, table in tables.items()}
    left_out, present = None, None
    if model.expects_absence:
        nowhere = np.full(len(positions), NOWHERE)
        present = {name: at.get(name, nowhere) != NOWHERE for name in model.order}
    else:
        left_out = {name: held - matched.rows for name, held in matched.held.items()}
    if not ids:
        return Predictions([], np.array([]), {}, unknown, left_out, present)
    task = model.parties[model.label_party].description.task
    return Predictions(ids, *_meaning(task, model.unit, model.outputs(rows)), unknown, left_out, present)


def predictions_of(party: PredictingLabelParty, wanted: Wanted) -> Predictions:
    """What a label party has found out, by id."""
    description = party.seat.model.description
    assert description.label is not None
    places = party.scored().tolist()
    scored = set(places)
    known = party.known()
    ids = [one for place in places for one in wanted.written(place)]
    times = np.array([len(wanted.written(place)) for place in places], np.int64)
    unknown = (*_written(wanted, np.flatnonzero(~known).tolist()), *wanted.unusable)
    refused = tuple(_written(wanted, [place for place in np.flatnonzero(known).tolist() if place not in scored]))
    present = None
    if description.expects_absence:
        present = {name: np.repeat(held, times) for name, held in party.present().items()}
    if not ids:
        return Predictions([], np.array([]), {}, unknown, None, present, refused, party.lacking())
    said, chances = _meaning(description.task, description.label, party.outputs())
    chances = {name: np.repeat(values, times) for name, values in chances.items()}
    return Predictions(ids, np.repeat(said, times), chances, unknown, None, present, refused, party.lacking())


def _written(wanted: Wanted, places: Iterable[int]) -> list[str]:
    return [one for place in places for one in wanted.written(place)]


def _meaning(task: str, unit: LabelUnit, outputs: torch.Tensor) -> tuple[NDArray[Any], dict[str, NDArray[np.float64]]]:
    probabilities: dict[str, NDArray[np.float64]] = {}
    if unit.classes:
        each = probabilities_of(task, outputs)
        probabilities = {str(name): each[:, place] for place, name in enumerate(unit.classes)}
    return values_of(task, unit, outputs), probabilities


def _read(source: Source | PartyData, name: str, id: str, base: Path) -> Table:
    if isinstance(source, PartyData):
        return read_own(source, base, party=name, id=source.id or id)
    return read_table(source, party=name, id=id)


def _written_alike(name: str, table: Table, rules: IdRules | None) -> tuple[RowIds, NDArray[np.int64] | None]:
    """A table's ids by the rules, and which of its rows they are of; None: of all."""
    if rules is None:
        return table.ids, None
    texts = all_written_alike(table.ids.tolist(), rules)
    rows = np.flatnonzero([bool(text) for text in texts])
    ids = RowIds.of([texts[row] for row in rows.tolist()])
    if ids.repeated():
        raise DataError(same_by_the_rules(name, table.where))
    return ids, rows


def _rows_of(rows: NDArray[np.int64] | None, places: NDArray[np.int64]) -> NDArray[np.int64]:
    return places if rows is None else np.where(places == NOWHERE, NOWHERE, rows[places])


def _prepared(model: JointModel, name: str, table: Table, positions: NDArray[Any]) -> Any:
    if name not in model.parties:  # one party has trained the models of all
        raise DataError(
            f"This model was trained in one place and does not know how the table of {name} was prepared: give its "
            "prepared rows to JointModel.predict, or train with an algorithm between parties."
        )
    preparation = model.parties[name].preparation
    if preparation is None:
        raise DataError(
            f"The model of {name} was trained on prepared columns, and not on a table of its own: give its prepared "
            "rows to JointModel.predict."
        )
    return preparation.apply(table, positions, party=name)
