"""How far a party's table, or predictions, are from what its model was trained on. Nothing leaves the party."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from colonnade.data.settings import PartyData
from colonnade.data.sources import read_own, read_table
from colonnade.errors import DataError, SettingsError, unknown_name
from colonnade.federation.file import read_federation
from colonnade.prediction.joint_model import JointModel, load_model
from colonnade.prediction.profile import LEAST_ROWS, Drift, drift_of, drift_of_numbers
from colonnade.prediction.saved_model import SavedModel


def drift_of_run(run: Path, tables: Sequence[str], predictions: Path | None) -> dict[str, list[Drift]]:
    """By party, how far each column is; `tables`: PARTY=FILE, or FILE where the model of one party is there alone.

    Without tables, those that the run was trained with are read again. `predictions`: a file of `colonnade predict`,
    which is compared with what the model said of test rows; under the label party's name.
    """
    model = load_model(run)
    parties = dict(model.parties) if isinstance(model, JointModel) else {model.description.party: model}
    kept = run / "federation.toml"
    federation = read_federation(kept) if kept.exists() else None
    id = federation.data.id if federation is not None else "id"
    own = federation.party_data() if federation is not None else {}
    named = _named(tables, parties)
    if not named and predictions is None:
        learnt = [party for party, saved in parties.items() if saved.preparation is not None]
        named = {party: "" for party in learnt if own.get(party, PartyData()).has_table}
        if not named:
            raise SettingsError(
                f"Which rows should be looked at? {run} does not say where its parties' tables are: give --table "
                "PARTY=FILE."
            )
    found = {}
    for party, file in named.items():
        source = own.get(party, PartyData())
        if file:
            source = replace(source, file=str(Path(file).absolute()), sql="", database="", folder="")
        found[party] = _drift_of_table(parties[party], source, run, source.id or id)
    if predictions is not None:
        leader = model.label_party if isinstance(model, JointModel) else model.description.label_party
        if leader not in parties:
            raise SettingsError(f"Predictions are the label party's to look at, whose model is not in {run}.")
        found.setdefault(leader, []).append(_drift_of_outputs(parties[leader], predictions, id))
    return found


def _named(tables: Sequence[str], parties: Mapping[str, SavedModel]) -> dict[str, str]:
    found = {}
    for one in tables:
        name, separator, file = one.partition("=")
        if not separator:
            if len(parties) > 1:
                raise SettingsError(f"--table is {one!r}; give PARTY=FILE, such as shop=new.csv.")
            name, file = next(iter(parties)), one
        if name not in parties:
            raise unknown_name("party with a model here", name, parties)
        found[name] = file
    return found


def _drift_of_table(saved: SavedModel, source: PartyData, base: Path, id: str) -> list[Drift]:
    party, profile, preparation = saved.description.party, saved.profile, saved.preparation
    if profile is None or not profile.columns:
        raise DataError(
            f"The model of {party} has no profile of its columns: it was trained with fewer than {LEAST_ROWS} rows, on "
            "columns that are no table, or by an earlier version."
        )
    if preparation is None:
        raise DataError(f"The model of {party} was trained on prepared columns, and not on a table of its own.")
    table = read_own(source, base, party=party, id=id)
    rows = np.arange(len(table.ids))
    _check_rows(len(rows), f"The table of {party}")
    return drift_of(profile, preparation.apply(table, rows, party=party))


def _drift_of_outputs(saved: SavedModel, predictions: Path, id: str) -> Drift:
    profile, unit, party = saved.profile, saved.description.label, saved.description.party
    if profile is None or profile.outputs is None or unit is None:
        raise DataError(
            f"The model of {party} has no profile of what it said of test rows: there were fewer than {LEAST_ROWS} of "
            "them, or the label party never had everybody's models in one place."
        )
    name = f"probability of {unit.classes[-1]}" if unit.classes else "prediction"
    table = read_table(predictions, party=party, id=id)
    if name not in table.names:
        raise DataError(f"{predictions} has no column {name!r}: give a file that colonnade predict wrote.")
    values = table.column(name).to_numpy(zero_copy_only=False).astype(np.float64)
    values = values[np.isfinite(values)]
    _check_rows(len(values), str(predictions))
    return drift_of_numbers(name, profile.outputs.quantiles, values, profile.outputs.rows)


def _check_rows(rows: int, what: str) -> None:
    if rows < LEAST_ROWS:
        raise DataError(
            f"{what} has {rows} rows, of which no distribution can be told: at least {LEAST_ROWS} are needed."
        )
