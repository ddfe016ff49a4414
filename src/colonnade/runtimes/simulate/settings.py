"""`[simulate]`: the world of a simulation, that is how fast its parties and links are, and what goes wrong there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, ClassVar

from colonnade.errors import SettingsError, unknown_name
from colonnade.runtimes.delays import MEASURED, parse_delay


@dataclass(frozen=True)
class SimulatedParty:
    """How one party behaves; None means as `Simulate` says for all.

    >>> SimulatedParty(slowdown=3.0, crashes=((2.0, 5.0),)).crashes  # away from second 2 to second 5
    ((2.0, 5.0),)
    """

    compute_seconds: Any = None
    """(delay) of handling one event; none: as `[simulate]` has it"""
    slowdown: float = 1.0
    """how many times as long it takes, always"""
    straggle_probability: float = 0.0
    """(probability) how often an event takes `straggle_factor` times as long"""
    straggle_factor: float = 10.0
    """how many times as long such an event takes"""
    crashes: tuple[tuple[float, float], ...] = ()
    """(seconds) list of [away from, back at], in order; `inf`: never back"""


@dataclass(frozen=True)
class SimulatedLink:
    """How one direction between two parties behaves; None means as `Simulate` says for all.

    >>> SimulatedLink(latency_seconds=0.2).latency_seconds
    0.2
    """

    latency_seconds: Any = None
    """(delay) of a frame on its way; none: as `[simulate]` has it"""
    bandwidth_bytes_per_second: float | None = None
    """(bytes/s) 0: unlimited; none: as `[simulate]` has it"""


@dataclass(frozen=True)
class Simulate:
    """The world of a simulation. Delays are seconds or {distribution, mean, spread}; see runtimes/delays.py.

    >>> slow, far = SimulatedParty(slowdown=3.0), SimulatedLink(latency_seconds=0.2)
    >>> Simulate(parties={"party4": slow}, links={"party1 -> label": far}).parties["party4"].slowdown
    3.0
    """

    name: ClassVar[str] = "simulate"
    compute_seconds: Any = 0.01
    """(delay) of handling one event at a feature party; `"measured"`: the real time × slowdown, not repeatable"""
    label_compute_seconds: Any = 0.001
    """(delay) of handling one event at the label party"""
    latency_seconds: Any = 0.001
    """(delay) of a frame on its way"""
    bandwidth_bytes_per_second: float = 0.0
    """(bytes/s) of every link; 0: unlimited"""
    loss: float = 0.0
    """(probability) that a frame, or its acknowledgement, is lost"""
    reorder: bool = False
    """whether a later frame may overtake an earlier one"""
    retransmit_seconds: float = 0.1
    """(seconds) an unacknowledged frame is sent again after this"""
    notice_seconds: float = 0.05
    """(seconds) until peers notice that a party is away, or back"""
    parties: Mapping[str, SimulatedParty] = field(default_factory=dict)
    """`[simulate.parties.NAME]`: one party's behaviour"""
    links: Mapping[str, SimulatedLink] = field(default_factory=dict)
    """`[simulate.links."FROM -> TO"]`: one direction's behaviour"""

    def __post_init__(self) -> None:
        if not 0 <= self.loss < 1:
            raise SettingsError(f"simulate.loss is {self.loss}; it is a probability below 1.")
        for name in ("retransmit_seconds", "notice_seconds", "bandwidth_bytes_per_second"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0):
                raise SettingsError(f"simulate.{name} is {value}; it must be finite and not negative.")
        if self.retransmit_seconds == 0:
            raise SettingsError("simulate.retransmit_seconds must be above 0: a lost frame is repeated after it.")
        for name, party in self.parties.items():
            where = f"simulate.parties.{name}"
            if not (isfinite(party.slowdown) and party.slowdown > 0):
                raise SettingsError(f"{where}.slowdown is {party.slowdown}; it must be above 0.")
            if not 0 <= party.straggle_probability <= 1:
                raise SettingsError(f"{where}.straggle_probability is {party.straggle_probability}; 0 to 1.")
            if not (isfinite(party.straggle_factor) and party.straggle_factor > 0):
                raise SettingsError(f"{where}.straggle_factor is {party.straggle_factor}; it must be above 0.")
            last = 0.0
            for away, back in party.crashes:
                if not last <= away < back:
                    raise SettingsError(
                        f"{where}.crashes has ({away}, {back}): each is [away from, back at], in order and apart."
                    )
                last = back
        for name, link in self.links.items():
            bandwidth = link.bandwidth_bytes_per_second or 0.0
            if not (isfinite(bandwidth) and bandwidth >= 0):
                where = f'simulate.links."{name}".bandwidth_bytes_per_second'
                raise SettingsError(f"{where} is {bandwidth}; it must be finite and not negative.")
        self._check_delays()

    def _check_delays(self) -> None:
        """Refuse a wrong delay here, not when the first frame is sent."""
        computes = {f"parties.{name}.compute_seconds": own.compute_seconds for name, own in self.parties.items()}
        computes |= {"compute_seconds": self.compute_seconds, "label_compute_seconds": self.label_compute_seconds}
        latencies = {f'links."{name}".latency_seconds': own.latency_seconds for name, own in self.links.items()}
        latencies["latency_seconds"] = self.latency_seconds
        for name, delay in {**latencies, **{at: delay for at, delay in computes.items() if delay != MEASURED}}.items():
            if delay is not None:
                parse_delay(delay, f"simulate.{name}")

    def check_parties(self, parties: Iterable[str]) -> None:
        """Refuse settings for a party that is not in the federation."""
        names = sorted(parties)
        for name in self.parties:
            if name not in names:
                raise unknown_name("party for simulate.parties", name, names)
        for link in self.links:
            sender, arrow, receiver = (part.strip() for part in link.partition("->"))
            for name in (sender, receiver):
                if not arrow or name not in names:
                    raise SettingsError(
                        f'simulate.links has "{link}"; write it as "from -> to" with two of: {", ".join(names)}.'
                    )
