"""Colonnade: asynchronous vertical federated learning.

Organisations that hold different columns about the same customers train one model together, at their own pace.
"""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colonnade.algorithms.cascaded import Cascaded
    from colonnade.algorithms.centralised import Centralised
    from colonnade.algorithms.czofo import Czofo
    from colonnade.algorithms.dpzv import Dpzv
    from colonnade.algorithms.parts.training import Training
    from colonnade.algorithms.split import Split
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
    from colonnade.runtimes.simulate import Simulate, SimulatedLink, SimulatedParty

__version__ = metadata.version("colonnade")

__all__ = [
    "BottomSettings",
    "Cascaded",
    "Centralised",
    "ColonnadeError",
    "Czofo",
    "DataError",
    "Dpzv",
    "FederatedData",
    "FlatModel",
    "Outcome",
    "PerturbationSettings",
    "ProtocolError",
    "RunError",
    "SettingsError",
    "Simulate",
    "SimulatedLink",
    "SimulatedParty",
    "Split",
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
    "train",
]

# Loaded when first asked for: PyTorch and scikit-learn take seconds, and the command line must answer before.
_HOMES = {
    "BottomSettings": "colonnade.models.bottom",
    "Cascaded": "colonnade.algorithms.cascaded",
    "Centralised": "colonnade.algorithms.centralised",
    "ColonnadeError": "colonnade.errors",
    "Czofo": "colonnade.algorithms.czofo",
    "DataError": "colonnade.errors",
    "Dpzv": "colonnade.algorithms.dpzv",
    "FederatedData": "colonnade.data",
    "FlatModel": "colonnade.models.flat",
    "Outcome": "colonnade.experiment",
    "PerturbationSettings": "colonnade.privacy.noise",
    "ProtocolError": "colonnade.errors",
    "RunError": "colonnade.errors",
    "SettingsError": "colonnade.errors",
    "Simulate": "colonnade.runtimes.simulate",
    "SimulatedLink": "colonnade.runtimes.simulate",
    "SimulatedParty": "colonnade.runtimes.simulate",
    "Split": "colonnade.algorithms.split",
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
    "train": "colonnade.experiment",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
