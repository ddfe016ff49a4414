"""Data for vertical federations: read, matched row by row, cut into columns, prepared.

Start with `dataset("digits")`, `from_frames(...)`, `from_arrays(...)` or `synthetic_sparse(...)`; a configuration goes
through `load`.
"""

from colonnade.data.datasets import DatasetFacts, names
from colonnade.data.federated import Columns, FederatedData, Labels, PartyColumns
from colonnade.data.loading import dataset, from_arrays, from_frames, load, synthetic_sparse
from colonnade.data.settings import DataSettings, PartyData

__all__ = [
    "Columns",
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
    "synthetic_sparse",
]
