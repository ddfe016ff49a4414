"""Colonnade: asynchronous vertical federated learning.

Organisations that hold different columns about the same customers train one model together, at their own pace.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colonnade.algorithms.training import Training
    from colonnade.data import FederatedData, dataset, from_arrays, from_frames
    from colonnade.errors import ColonnadeError, DataError, ProtocolError, RunError, SettingsError
    from colonnade.estimators import VerticalClassifier, VerticalRegressor
    from colonnade.explanation.settings import ExplainSettings
    from colonnade.exports.exporting import export
    from colonnade.launch.experiment import train
    from colonnade.launch.explain import explain
    from colonnade.launch.outcome import Outcome
    from colonnade.launch.predict import predict
    from colonnade.models.bottom import BottomSettings
    from colonnade.models.flat import FlatModel
    from colonnade.models.top import TopSettings
    from colonnade.prediction.joint_model import JointModel, load_model
    from colonnade.prediction.saved_model import SavedModel
    from colonnade.prediction.tables import Predictions
    from colonnade.privacy.noise import PerturbationSettings
    from colonnade.runtimes.processes.settings import Processes
    from colonnade.runtimes.ray.settings import Ray
    from colonnade.runtimes.simulate.settings import Simulate, SimulatedLink, SimulatedParty
    from colonnade.trials.sweep import sweep

    __version__: str

# algorithms: imports begin
if TYPE_CHECKING:
    from colonnade.algorithms.linear_models.afsaga import Afsaga
    from colonnade.algorithms.linear_models.afsgd import Afsgd
    from colonnade.algorithms.linear_models.afsvrg import Afsvrg
    from colonnade.algorithms.linear_models.asysqn_saga import AsysqnSaga
    from colonnade.algorithms.linear_models.asysqn_sgd import AsysqnSgd
    from colonnade.algorithms.linear_models.asysqn_svrg import AsysqnSvrg
    from colonnade.algorithms.linear_models.fcg import Fcg
    from colonnade.algorithms.linear_models.fsaga import Fsaga
    from colonnade.algorithms.linear_models.fsgd import Fsgd
    from colonnade.algorithms.linear_models.fsvrg import Fsvrg
    from colonnade.algorithms.linear_models.synsqn_saga import SynsqnSaga
    from colonnade.algorithms.linear_models.synsqn_sgd import SynsqnSgd
    from colonnade.algorithms.linear_models.synsqn_svrg import SynsqnSvrg
    from colonnade.algorithms.split_models.cascaded import Cascaded
    from colonnade.algorithms.split_models.centralised import Centralised
    from colonnade.algorithms.split_models.czofo import Czofo
    from colonnade.algorithms.split_models.dpzv import Dpzv
    from colonnade.algorithms.split_models.fdml import Fdml
    from colonnade.algorithms.split_models.split import Split
    from colonnade.algorithms.split_models.vafl import Vafl
    from colonnade.algorithms.split_models.zoo import Zoo
    from colonnade.algorithms.split_models.zoo_sync import ZooSync
# algorithms: imports end

__all__ = [
    # algorithms: exports begin
    "Afsaga",
    "Afsgd",
    "Afsvrg",
    "AsysqnSaga",
    "AsysqnSgd",
    "AsysqnSvrg",
    "BottomSettings",
    "Cascaded",
    "Centralised",
    "ColonnadeError",
    "Czofo",
    "DataError",
    "Dpzv",
    "ExplainSettings",
    "Fcg",
    "Fdml",
    "FederatedData",
    "FlatModel",
    "Fsaga",
    "Fsgd",
    "Fsvrg",
    "JointModel",
    "Outcome",
    "PerturbationSettings",
    "Predictions",
    "Processes",
    "ProtocolError",
    "Ray",
    "RunError",
    "SavedModel",
    "SettingsError",
    "Simulate",
    "SimulatedLink",
    "SimulatedParty",
    "Split",
    "SynsqnSaga",
    "SynsqnSgd",
    "SynsqnSvrg",
    "TopSettings",
    "Training",
    "Vafl",
    "VerticalClassifier",
    "VerticalRegressor",
    "Zoo",
    "ZooSync",
    "dataset",
    "explain",
    "export",
    "from_arrays",
    "from_frames",
    "load_model",
    "predict",
    "sweep",
    "train",
    # algorithms: exports end
]

# Loaded when first asked for: PyTorch and scikit-learn take seconds, and the command line must answer before.
_HOMES = {
    "BottomSettings": "colonnade.models.bottom",
    "ColonnadeError": "colonnade.errors",
    "DataError": "colonnade.errors",
    "ExplainSettings": "colonnade.explanation.settings",
    "FederatedData": "colonnade.data",
    "FlatModel": "colonnade.models.flat",
    "JointModel": "colonnade.prediction.joint_model",
    "Outcome": "colonnade.launch.outcome",
    "PerturbationSettings": "colonnade.privacy.noise",
    "Predictions": "colonnade.prediction.tables",
    "ProtocolError": "colonnade.errors",
    "Ray": "colonnade.runtimes.ray.settings",
    "RunError": "colonnade.errors",
    "SavedModel": "colonnade.prediction.saved_model",
    "SettingsError": "colonnade.errors",
    "Processes": "colonnade.runtimes.processes.settings",
    "Simulate": "colonnade.runtimes.simulate.settings",
    "SimulatedLink": "colonnade.runtimes.simulate.settings",
    "SimulatedParty": "colonnade.runtimes.simulate.settings",
    "TopSettings": "colonnade.models.top",
    "Training": "colonnade.algorithms.training",
    "VerticalClassifier": "colonnade.estimators",
    "VerticalRegressor": "colonnade.estimators",
    "dataset": "colonnade.data",
    "explain": "colonnade.launch.explain",
    "export": "colonnade.exports.exporting",
    "from_arrays": "colonnade.data",
    "from_frames": "colonnade.data",
    "load_model": "colonnade.prediction.joint_model",
    "predict": "colonnade.launch.predict",
    "sweep": "colonnade.trials.sweep",
    "train": "colonnade.launch.experiment",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata  # not at the top: it loads the parser of e-mails

        return metadata.version("colonnade")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:  # the settings of an algorithm
        rows = import_module("colonnade.algorithms").ALGORITHMS.values()
        value = next(row.settings for row in rows if row.settings.__name__ == name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
