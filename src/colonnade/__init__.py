"""Colonnade: asynchronous vertical federated learning.

Organisations that hold different columns about the same customers train one model together, at their own pace.
"""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colonnade.algorithms.afsaga import Afsaga
    from colonnade.algorithms.afsgd import Afsgd
    from colonnade.algorithms.afsvrg import Afsvrg
    from colonnade.algorithms.asysqn_saga import AsysqnSaga
    from colonnade.algorithms.asysqn_sgd import AsysqnSgd
    from colonnade.algorithms.asysqn_svrg import AsysqnSvrg
    from colonnade.algorithms.cascaded import Cascaded
    from colonnade.algorithms.centralised import Centralised
    from colonnade.algorithms.czofo import Czofo
    from colonnade.algorithms.dpzv import Dpzv
    from colonnade.algorithms.fcg import Fcg
    from colonnade.algorithms.fdml import Fdml
    from colonnade.algorithms.fsaga import Fsaga
    from colonnade.algorithms.fsgd import Fsgd
    from colonnade.algorithms.fsvrg import Fsvrg
    from colonnade.algorithms.parts.training import Training
    from colonnade.algorithms.split import Split
    from colonnade.algorithms.synsqn_saga import SynsqnSaga
    from colonnade.algorithms.synsqn_sgd import SynsqnSgd
    from colonnade.algorithms.synsqn_svrg import SynsqnSvrg
    from colonnade.algorithms.vafl import Vafl
    from colonnade.algorithms.zoo import Zoo
    from colonnade.algorithms.zoo_sync import ZooSync
    from colonnade.data import FederatedData, dataset, from_arrays, from_frames
    from colonnade.errors import ColonnadeError, DataError, ProtocolError, RunError, SettingsError
    from colonnade.estimators import VerticalClassifier, VerticalRegressor
    from colonnade.experiment import Outcome, train
    from colonnade.models.bottom import BottomSettings
    from colonnade.models.flat import FlatModel
    from colonnade.models.top import TopSettings
    from colonnade.privacy.noise import PerturbationSettings
    from colonnade.runtimes.processes import Processes
    from colonnade.runtimes.ray_settings import Ray
    from colonnade.runtimes.simulate import Simulate, SimulatedLink, SimulatedParty
    from colonnade.sweeping import sweep

__version__ = metadata.version("colonnade")

__all__ = [
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
    "Fcg",
    "Fdml",
    "FederatedData",
    "FlatModel",
    "Fsaga",
    "Fsgd",
    "Fsvrg",
    "Outcome",
    "PerturbationSettings",
    "Processes",
    "ProtocolError",
    "Ray",
    "RunError",
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
    "from_arrays",
    "from_frames",
    "sweep",
    "train",
]

# Loaded when first asked for: PyTorch and scikit-learn take seconds, and the command line must answer before.
_HOMES = {
    "Afsaga": "colonnade.algorithms.afsaga",
    "Afsgd": "colonnade.algorithms.afsgd",
    "Afsvrg": "colonnade.algorithms.afsvrg",
    "AsysqnSaga": "colonnade.algorithms.asysqn_saga",
    "AsysqnSgd": "colonnade.algorithms.asysqn_sgd",
    "AsysqnSvrg": "colonnade.algorithms.asysqn_svrg",
    "BottomSettings": "colonnade.models.bottom",
    "Cascaded": "colonnade.algorithms.cascaded",
    "Centralised": "colonnade.algorithms.centralised",
    "ColonnadeError": "colonnade.errors",
    "Czofo": "colonnade.algorithms.czofo",
    "DataError": "colonnade.errors",
    "Dpzv": "colonnade.algorithms.dpzv",
    "Fcg": "colonnade.algorithms.fcg",
    "Fdml": "colonnade.algorithms.fdml",
    "FederatedData": "colonnade.data",
    "FlatModel": "colonnade.models.flat",
    "Fsaga": "colonnade.algorithms.fsaga",
    "Fsgd": "colonnade.algorithms.fsgd",
    "Fsvrg": "colonnade.algorithms.fsvrg",
    "Outcome": "colonnade.experiment",
    "PerturbationSettings": "colonnade.privacy.noise",
    "ProtocolError": "colonnade.errors",
    "Ray": "colonnade.runtimes.ray_settings",
    "RunError": "colonnade.errors",
    "SettingsError": "colonnade.errors",
    "Processes": "colonnade.runtimes.processes",
    "Simulate": "colonnade.runtimes.simulate",
    "SimulatedLink": "colonnade.runtimes.simulate",
    "SimulatedParty": "colonnade.runtimes.simulate",
    "Split": "colonnade.algorithms.split",
    "SynsqnSaga": "colonnade.algorithms.synsqn_saga",
    "SynsqnSgd": "colonnade.algorithms.synsqn_sgd",
    "SynsqnSvrg": "colonnade.algorithms.synsqn_svrg",
    "TopSettings": "colonnade.models.top",
    "Training": "colonnade.algorithms.parts.training",
    "Vafl": "colonnade.algorithms.vafl",
    "VerticalClassifier": "colonnade.estimators",
    "VerticalRegressor": "colonnade.estimators",
    "Zoo": "colonnade.algorithms.zoo",
    "ZooSync": "colonnade.algorithms.zoo_sync",
    "dataset": "colonnade.data",
    "from_arrays": "colonnade.data",
    "from_frames": "colonnade.data",
    "sweep": "colonnade.sweeping",
    "train": "colonnade.experiment",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
