"""Predictions of a finished run of one machine: its model, and the tables that its federation.toml names."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from colonnade.data.settings import PartyData
from colonnade.data.sources import read_table
from colonnade.errors import DataError, SettingsError, unknown_name
from colonnade.federation.file import read_federation
from colonnade.files import read_whole
from colonnade.prediction.joint_model import JointModel, load_model
from colonnade.prediction.tables import Predictions, check_ending, predict_tables


def predict_run(run: Path, out: Path, ids: Path | None, tables: Sequence[str]) -> Predictions:
    """Predict, and write the result to `out`. `tables`: PARTY=FILE, in the place of a party's own."""
    kept = run / "federation.toml"
    if not kept.exists():
        raise SettingsError(f"{run} is not a run's directory: it has no federation.toml.")
    check_ending(out)
    federation = read_federation(kept)
    model = load_model(run)
    if not isinstance(model, JointModel):
        raise SettingsError(
            f"{run} holds the model of {model.description.party} alone: to predict here, the models of all parties are "
            "needed in one place."
        )
    if federation.data.set:
        raise SettingsError(
            f"The run in {run} was trained on the data set {federation.data.set!r}, and not on tables of its parties: "
            "load its model in Python (colonnade.load_model), and give it prepared rows."
        )
    sources = _sources(model, federation.party_data(), tables)
    id = federation.data.id
    wanted = None if ids is None else _wanted(ids, id)
    predictions = predict_tables(model, sources, id=id, base=run, wanted=wanted)
    predictions.write(out, id)
    return predictions


def _sources(model: JointModel, own: dict[str, PartyData], tables: Sequence[str]) -> dict[str, PartyData]:
    sources = {name: own.get(name, PartyData()) for name in model.order}
    for one in tables:
        name, separator, file = one.partition("=")
        if not separator:
            raise SettingsError(f"--table is {one!r}; give PARTY=FILE, such as shop=new.csv.")
        if name not in sources:
            raise unknown_name("party with columns", name, sources)
        sources[name] = replace(sources[name], file=str(Path(file).absolute()), sql="", database="", folder="")
    return sources


def _wanted(path: Path, id: str) -> list[str]:
    """Ids from a text of one per line, or from the id column of a table."""
    if path.suffix.lower() in (".txt", ""):
        try:
            lines = read_whole(path, links=True).decode().splitlines()
        except FileNotFoundError:
            raise DataError(f"There is no file {str(path)!r} of ids.") from None
        except (OSError, ValueError):
            raise DataError(f"The file {str(path)!r} of ids could not be read as text.") from None
        return [line.strip() for line in lines if line.strip()]
    return read_table(path, party="--ids", id=id).ids.tolist()
