"""`[processes]`: how the parties of one machine live together."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import ClassVar

from colonnade.errors import SettingsError
from colonnade.runtimes.endurance import Endurance


@dataclass(frozen=True)
class Processes:
    """`[processes]`: how the parties of one machine live together.

    >>> Processes(slowdown={"party4": 3.0}).restarts  # train(data, runtime=Processes(…))
    100
    """

    name: ClassVar[str] = "processes"
    restarts: int = 100
    """how often parties that were killed are started again, in all"""
    endurance: Endurance = field(default_factory=lambda: Endurance(notice_seconds=0.5))
    """`[processes.endurance]`: the names of [[endurance]](#endurance), with `notice_seconds` = 0.5"""
    compute_seconds: float = 0.0
    """(seconds) for trials: handling an event takes a feature party at least so long"""
    slowdown: Mapping[str, float] = field(default_factory=dict)
    """for trials: a table of parties and how many times slower each is made"""

    def __post_init__(self) -> None:
        if self.restarts < 0:
            raise SettingsError(f"processes.restarts is {self.restarts}; it must be 0 or more.")
        if not (isfinite(self.compute_seconds) and self.compute_seconds >= 0):
            raise SettingsError(f"processes.compute_seconds is {self.compute_seconds}; it must not be negative.")
        for name, factor in self.slowdown.items():
            if not (isfinite(factor) and factor >= 1):
                raise SettingsError(f"processes.slowdown.{name} is {factor}; it must be 1 or more.")
