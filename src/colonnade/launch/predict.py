"""Predictions of a finished run of one machine: its model, and the tables that its federation.toml names."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from colonnade.alignment.settings import IdRules
from colonnade.data.settings import PartyData
from colonnade.data.sources import read_table
from colonnade.errors import DataError, SettingsError, unknown_name
from colonnade.federation.file import Federation, read_federation
from colonnade.files import read_whole
from colonnade.launch.experiment import RUNTIMES
from colonnade.launch.finished_run import joint_model_of, settings_of
from colonnade.launch.prediction import talk
from colonnade.prediction.joint_model import JointModel
from colonnade.prediction.tables import Predictions, predict_tables, predictions_of


def predict(
    run: str | Path, ids: Sequence[str] | None = None, tables: Mapping[str, str | Path] | None = None, runtime: str = ""
) -> Predictions:
    """What the model of a finished run says of rows of its parties' tables.

    `ids`: which rows, in their order; None: all that every party holds. `tables`: another file in place of a
    party's own. `runtime`: what carries messages between the parties ("simulate", "processes", "ray"), each of which
    answers from its own model and table; "": the models are put together here, which comes to the same.

    >>> import colonnade, tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as place:
    ...     for name, head in (("shop", "id,orders"), ("bank", "id,debt,paid")):
    ...         lines = [f"c{i},{i % 5}" + (",yes" if i % 5 > 2 else ",no") * (name == "bank") for i in range(40)]
    ...         _ = Path(place, f"{name}.csv").write_text("\\n".join([head, *lines]))
    ...     tables = {name: f"{place}/{name}.csv" for name in ("shop", "bank")}
    ...     data = colonnade.from_frames(tables, label_party="bank", label="paid")
    ...     kept = {"federation": {"label_party": "bank"}, "data": {"label": "paid"}}
    ...     kept["parties"] = {name: {"file": tables[name]} for name in tables}
    ...     _ = colonnade.train(data, training=colonnade.Training(epochs=1), out=f"{place}/run", settings=kept)
    ...     found = colonnade.predict(f"{place}/run", ids=["c7", "c8"])
    >>> found.ids
    ['c7', 'c8']
    """
    federation = read_federation(settings_of(Path(run)))
    model = joint_model_of(
        Path(run),
        "to predict here, the models of all parties are needed in one place. Between organisations each runs colonnade "
        "predict FEDERATION.toml --party PARTY.toml.",
    )
    if federation.data.set:
        raise SettingsError(
            f"The run in {run} was trained on the data set {federation.data.set!r}, and not on tables of its parties: "
            "load its model in Python (colonnade.load_model), and give it prepared rows."
        )
    sources = _sources(model, federation.party_data(), tables or {})
    if not runtime:
        return predict_tables(
            model, sources, id=federation.data.id, base=Path(run), wanted=ids, rules=_rules(federation)
        )
    if runtime not in RUNTIMES:
        raise unknown_name("runtime", runtime, RUNTIMES)
    chosen = getattr(federation, runtime)
    given = federation.data, federation.alignment, Path(run)
    return predictions_of(*talk(model, sources, *given, chosen, ids, federation.seed))


def write_predictions(predictions: Predictions, out: Path, run: Path) -> None:
    """To a file, under the name that the run's federation has for ids."""
    predictions.write(out, read_federation(settings_of(run)).data.id)


def tables_given(tables: Sequence[str]) -> dict[str, str]:
    """PARTY=FILE, as the command line has it."""
    given = {}
    for one in tables:
        name, separator, file = one.partition("=")
        if not separator:
            raise SettingsError(f"--table is {one!r}; give PARTY=FILE, such as shop=new.csv.")
        given[name] = file
    return given


def _sources(model: JointModel, own: Mapping[str, PartyData], tables: Mapping[str, str | Path]) -> dict[str, PartyData]:
    sources = {name: own.get(name, PartyData()) for name in model.order}
    for name, file in tables.items():
        if name not in sources:
            raise unknown_name("party with columns", name, sources)
        sources[name] = replace(sources[name], file=str(Path(file).absolute()), sql="", database="", folder="")
    return sources


def _rules(federation: Federation) -> IdRules | None:
    """How the training wrote ids alike; None: it did not."""
    columns = federation.alignment.key_columns(federation.data.id)
    if federation.data.rows != "aligned" or len(columns) > 1:
        return None
    return federation.alignment.rules.get(columns[0], IdRules())


def ids_in(path: Path, id: str) -> list[str]:
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
