"""`[ray]` of a federation.toml: which cluster, and what each party is given there. Reading it needs no Ray."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import ClassVar

from colonnade.errors import SettingsError
from colonnade.runtimes.endurance import Endurance


@dataclass(frozen=True)
class Ray:
    """How the parties live on a Ray cluster, one actor each.

    >>> Ray(address="local", cpus=0.5).calls_in_flight  # train(data, runtime=Ray(…))
    4
    """

    name: ClassVar[str] = "ray"
    address: str = "auto"
    """of the cluster: `auto`, `ray://HOST:PORT`, `HOST:PORT`, or `local` for one that ends with the run"""
    cpus: float = 1.0
    """(CPUs) of every party"""
    resources: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """`[ray.resources.NAME]`: what a party's node must have, such as `CPU = 2` or a resource of your own"""
    restarts: int = 100
    """how often each party's actor is started again after it has died"""
    calls_in_flight: int = 4
    """(calls) from one party to another at a time"""
    placement_seconds: float = 60.0
    """(seconds) how long the parties may wait for their places"""
    endurance: Endurance = field(default_factory=lambda: Endurance(notice_seconds=0.5))
    """`[ray.endurance]`: the names of [[endurance]](#endurance), with `notice_seconds` = 0.5"""

    def __post_init__(self) -> None:
        if not self.address:
            raise SettingsError("ray.address is empty: write auto, local, or the address of a cluster.")
        for setting, value, least in (("restarts", self.restarts, 0), ("calls_in_flight", self.calls_in_flight, 1)):
            if value < least:
                raise SettingsError(f"ray.{setting} is {value}; it must be {least} or more.")
        amounts = {"ray.cpus": self.cpus, "ray.placement_seconds": self.placement_seconds}
        for party, own in self.resources.items():
            amounts |= {f"ray.resources.{party}.{what}": amount for what, amount in own.items()}
        for setting, amount in amounts.items():
            if not (isfinite(amount) and amount >= 0):
                raise SettingsError(f"{setting} is {amount}; it must be 0 or more.")

    def needs_of(self, party: str) -> dict[str, float]:
        """What a node must have free for a party, by the names that Ray gives resources.

        >>> Ray(resources={"party1": {"bank": 0.001}}).needs_of("party1")
        {'CPU': 1.0, 'bank': 0.001}
        """
        return {"CPU": self.cpus, **self.resources.get(party, {})}
