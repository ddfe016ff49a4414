"""Data for vertical federations: read, matched row by row, cut into columns, prepared.

Start with `dataset("digits")`, `from_frames(...)`, `from_arrays(...)` or `synthetic_sparse(...)`; a configuration goes
through `load`. Each name is loaded when it is first asked for: the list of data sets needs neither PyTorch nor pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colonnade.data.catalogue import DatasetFacts, names
    from colonnade.data.federated import Columns, FederatedData, Labels, PartyColumns
    from colonnade.data.loading import dataset, from_arrays, from_frames, load, synthetic_sparse
    from colonnade.data.settings import ColumnSettings, DataSettings, PartyData

__all__ = [
    "ColumnSettings",
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

_HOMES = {
    "catalogue": ("DatasetFacts", "names"),
    "federated": ("Columns", "FederatedData", "Labels", "PartyColumns"),
    "loading": ("dataset", "from_arrays", "from_frames", "load", "synthetic_sparse"),
    "settings": ("ColumnSettings", "DataSettings", "PartyData"),
}


def __getattr__(name: str) -> Any:
    for home, held in _HOMES.items():
        if name in held:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
