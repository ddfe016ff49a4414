"""Data for vertical federations: read, matched row by row, cut into columns, prepared.

Start with `dataset("digits")`, `from_frames(...)` or `from_arrays(...)`; a configuration goes through `load`.
"""

from colonnade.data.datasets import DatasetFacts, names
from colonnade.data.federated import FederatedData, Labels, PartyColumns
from colonnade.data.loading import dataset, from_arrays, from_frames, load
from colonnade.data.settings import DataSettings, PartyData

__all__ = [
    "DataSettings",
    "DatasetFacts",
    "FederatedData",
    "Labels",
    "PartyColumns",
    "PartyData",
    "dataset",
    "from_arrays",
    "from_frames",
    "load",
    "names",
]
