"""Packages that are loaded when something of them is first used, for what most runs do without.

Loading pandas, SciPy and Numba takes longer than a small training; a party whose rows are read and whose model is a
network needs little of them. For annotations and type checkers, import the package as ever under `TYPE_CHECKING`.
"""

import sys
from importlib import import_module
from typing import Any


def on_demand(name: str) -> Any:
    """Stands for a module: with `pd = on_demand("pandas")`, the first `pd.DataFrame` loads it."""
    return _Waiting(name)


class _Waiting:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(import_module(self._name), attribute)
        setattr(self, attribute, found)  # the next use is as quick as a module's
        return found


def is_loaded(name: str) -> bool:
    """Whether somebody has loaded a module; without it there is no object of its classes."""
    return name in sys.modules
