"""The directory of a run that has finished, for whoever predicts, serves, explains or compares with it."""

from pathlib import Path

from colonnade.data import load
from colonnade.data.federated import FederatedData
from colonnade.errors import DataError, SettingsError
from colonnade.federation.file import Federation, read_federation
from colonnade.launch.run_directory import changed_data
from colonnade.prediction.joint_model import JointModel, load_model


def settings_of(run: Path) -> Path:
    """Its federation.toml, which every run's directory has."""
    kept = run / "federation.toml"
    if not kept.exists():
        raise SettingsError(f"{run} is not a run's directory: it has no federation.toml.")
    return kept


def joint_model_of(run: Path, why: str) -> JointModel:
    """The models of all its parties. `why` they are needed."""
    model = load_model(run)
    if not isinstance(model, JointModel):
        raise SettingsError(f"{run} holds the model of {model.description.party} alone: {why}")
    return model


def federation_of(run: Path, what: str, otherwise: str) -> Federation:
    """Its settings, of which a run that was started from Python lacks some. `what` they should say; what to do
    `otherwise`."""
    kept = settings_of(run)
    try:
        return read_federation(kept)
    except SettingsError as error:
        raise SettingsError(f"{kept} does not say {what}: {error} {otherwise}") from None


def data_of(run: Path, federation: Federation, otherwise: str) -> FederatedData:
    """What it was trained with, if that is as it was."""
    data = load(federation.data, federation.party_data(), federation.label_party, run)
    check_unchanged(run, data, otherwise)
    return data


def check_unchanged(run: Path, data: FederatedData, otherwise: str) -> None:
    """Refuse other data than those of the training."""
    if changed := changed_data(run, data):
        raise DataError(
            f"The data have changed since the run in {run} was started: {', '.join(sorted(changed))}. {otherwise}"
        )
