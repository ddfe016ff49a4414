"""A finished run explained: from its model, its tables and its account of what was released, to one page per party."""

from pathlib import Path

from colonnade.data.federated import FederatedData
from colonnade.errors import RunError, SettingsError
from colonnade.explanation.account import ReleaseAccount, SpentRows, account_of, part_named
from colonnade.explanation.explaining import explain_model
from colonnade.explanation.own_columns import chosen_rows
from colonnade.explanation.results import Explanation
from colonnade.explanation.settings import ExplainSettings
from colonnade.federation.file import read_federation
from colonnade.files import json_of, json_text, make_folder, read_private, write_atomically
from colonnade.launch.experiment import chosen_runtime
from colonnade.launch.explanation import explain_between
from colonnade.launch.finished_run import check_unchanged, data_of, federation_of, joint_model_of, settings_of
from colonnade.launch.outcome import Outcome
from colonnade.prediction.account import RowAccount
from colonnade.prediction.joint_model import JointModel
from colonnade.prediction.saved_model import find_model
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.ray.settings import Ray
from colonnade.runtimes.simulate.settings import Simulate

FOLDER = "explain"
EVERYBODY = "everybody"


def explain(
    trained: Outcome | JointModel | str | Path,
    data: FederatedData | None = None,
    settings: ExplainSettings | None = None,
    *,
    out: str | Path | None = None,
    combined: bool = False,
    runtime: str | Processes | Ray = "",
) -> Explanation:
    """Which parties and columns a model's answers rest on; see docs/how-to/explain.md.

    `trained`: an outcome, a joint model, or the directory of a finished run, which knows its data. `out`: a folder for
    one file and one page per party; default: `explain` in the run's directory, if there is one. `combined`: a page of
    everything, too. `runtime`: what carries messages between the parties ("simulate", "processes", "ray"), each of
    which has its own model and rows; "": both ends are put together here, which comes to the same.

    >>> import colonnade
    >>> data = colonnade.dataset("iris", parties=2)
    >>> outcome = colonnade.train(data, "vafl", training=colonnade.Training(epochs=5, batch_size=16))
    >>> found = colonnade.explain(outcome, data)
    >>> abs(sum(one.value for one in found.parties.values()) - (found.loss_without - found.loss)) < 1e-9
    True
    """
    asked = settings or ExplainSettings()
    if isinstance(trained, str | Path):
        directory: Path | None = Path(trained)
        model, summary, data = _of_run(Path(trained), data)
    elif isinstance(trained, Outcome):
        directory, model, summary = trained.directory, trained.model, dict(trained.summary)
    else:
        directory, model, summary = None, trained, {}
    if data is None:
        raise SettingsError("Give the data that the model was trained with, as colonnade.explain(outcome, data).")
    account = ReleaseAccount()
    if summary:
        account = account_of(summary, asked.part, None if directory is None else directory / FOLDER)
        _open_books(account, model, data, asked, directory)
    if runtime:
        found = explain_between(model, data, asked, account, _runtime(runtime, directory))
    else:
        found = explain_model(model, data, asked, account)
    folder = directory / FOLDER if out is None and directory is not None else out
    if folder is not None:
        write_pages(found, Path(folder), combined)
    return found


def _open_books(
    account: ReleaseAccount, model: JointModel, data: FederatedData, asked: ExplainSettings, run: Path | None
) -> None:
    """The accounts beside the models of feature parties whose rows are protected; one that a target needs must be."""
    if not account.noise or not account.clip:
        return
    labels = getattr(data.labels, asked.part)
    places = chosen_rows(0 if labels is None else len(labels), asked).tolist()
    for name in model.order:
        folder = model.parties[name].folder
        if folder is None and run is not None:
            folder = find_model(run, name)
        if name == model.label_party or folder is None:
            continue
        rows = RowAccount(folder)
        if rows.exists or account.target:
            ids = data.ids(name)[part_named(asked.part)]
            account.open(name, SpentRows(rows, [ids[place] for place in places]))


def _runtime(runtime: str | Processes | Ray, run: Path | None) -> Simulate | Processes | Ray:
    """Its settings: those of the run's federation.toml, where that is one of tables."""
    try:
        federation = read_federation((run or Path()) / "federation.toml")
    except SettingsError:  # of a run that was started from Python
        return chosen_runtime(runtime, Simulate())
    chosen = chosen_runtime(runtime, federation.simulate)
    if isinstance(runtime, str):
        chosen = getattr(federation, runtime)
    return chosen


def write_pages(found: Explanation, folder: Path, combined: bool = False) -> list[Path]:
    """NAME.json and NAME.html for everybody who may be told: each of them for that party alone."""
    from colonnade.reports.explanation_page import explanation_page

    parts = {name: found.of(name) for name in found.told}
    if combined:
        parts[EVERYBODY] = found.combined()
    try:
        make_folder(folder)
        for name, told in parts.items():
            write_atomically(folder / f"{name}.json", json_text(told))
            write_atomically(folder / f"{name}.html", explanation_page(told).encode())
        if not combined:
            for ending in ("json", "html"):
                (folder / f"{EVERYBODY}.{ending}").unlink(missing_ok=True)  # of an explanation before this one
    except OSError as error:
        raise RunError(f"{folder} could not be written: {error.strerror}. Choose another folder (--out).") from None
    return [folder / f"{name}.html" for name in parts]


def _of_run(run: Path, data: FederatedData | None) -> tuple[JointModel, dict[str, object], FederatedData]:
    settings_of(run)
    model = joint_model_of(run, "a model is explained where the models and tables of all parties are in one place.")
    otherwise = "Explain it with the data it was trained with."
    if data is None:
        from_python = "A run that was started from Python is explained from there, with colonnade.explain(run, data)."
        federation = federation_of(run, "which data it was trained with", from_python)
        data = data_of(run, federation, otherwise)
    else:
        check_unchanged(run, data, otherwise)
    try:
        summary = json_of(read_private(run / "summary.json"))
    except (OSError, ValueError):
        summary = None
    if not isinstance(summary, dict):
        raise RunError(f"{run / 'summary.json'} cannot be read: without it nobody knows what was released.")
    return model, summary, data
