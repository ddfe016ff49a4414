"""Colonnade: asynchronous vertical federated learning.

Organisations that hold different columns about the same customers train one model together, at their own pace.
"""

from importlib import metadata

from colonnade.algorithms.centralised import Centralised
from colonnade.algorithms.parts.training import Training
from colonnade.algorithms.split import Split
from colonnade.algorithms.vafl import Vafl
from colonnade.data import FederatedData, dataset, from_arrays, from_frames
from colonnade.errors import ColonnadeError, DataError, ProtocolError, RunError, SettingsError
from colonnade.experiment import Outcome, train
from colonnade.models.bottom import BottomSettings
from colonnade.models.top import TopSettings
from colonnade.privacy.noise import PerturbationSettings
from colonnade.runtimes.simulate import Simulate, SimulatedLink, SimulatedParty

__version__ = metadata.version("colonnade")

__all__ = [
    "BottomSettings",
    "Centralised",
    "ColonnadeError",
    "DataError",
    "FederatedData",
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
    "dataset",
    "from_arrays",
    "from_frames",
    "train",
]
