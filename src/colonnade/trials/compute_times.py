"""How long parties compute: a few exchanges of their own models are made on this machine, and timed.

Timed by the processor's clock and not by the wall's, so that other work beside it does not count. What travels is not
looked at: how long that takes follows from the links that the file declares.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from colonnade.data.federated import FederatedData
from colonnade.errors import ColonnadeError
from colonnade.federation.building import build_federation
from colonnade.federation.file import parse_federation
from colonnade.federation.plan import Plan
from colonnade.files import json_of, json_text, read_whole, write_atomically
from colonnade.party import Effect, Event, Party, Received, TimerFired
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.simulate.settings import Simulate
from colonnade.runtimes.simulate.simulation import Simulation

EXCHANGES = 24
"""Of each feature party."""
SETTLING = 3
"""Of a party's events, which come before its memory is warm, and are not counted where there are more."""


class _TimedParty:
    """A party, and how long it took over each event that costs time in a simulation."""

    def __init__(self, party: Party) -> None:
        self._party = party
        self.seconds: list[float] = []

    def handle(self, event: Event) -> Sequence[Effect]:
        began = time.thread_time()
        effects = self._party.handle(event)
        if isinstance(event, TimerFired) or (isinstance(event, Received) and not type(event.message).free):
            self.seconds.append(time.thread_time() - began)
        return effects

    def __getattr__(self, name: str) -> Any:
        return getattr(self._party, name)

    def mean(self) -> float:
        """Of one event, without the first few and the longest tenth: something is loaded in these, or scored."""
        counted = sorted(self.seconds[SETTLING:] or self.seconds)
        counted = counted[: max(1, len(counted) * 9 // 10)]
        return sum(counted) / len(counted) if counted else 0.0


def compute_times(data: FederatedData, plan: Plan) -> dict[str, float]:
    """Seconds per event of each party of this plan, to three digits; {} where it cannot be built or begun."""
    epochs = min(plan.training.epochs, EXCHANGES * plan.training.batch_size / max(1, data.rows))
    short = replace(plan.training, epochs=epochs, evaluate_every_epochs=0, early_stopping=0, end_when_diverged=False)
    try:
        parties = build_federation(data, replace(plan, training=short)).parties
        timed = {name: _TimedParty(party) for name, party in parties.items()}
        simulation = Simulation(timed, Simulate(), plan.seed, Recorder(data.label_party), Ledger())
        try:
            simulation.run()
        finally:
            simulation.close()
    except ColonnadeError:
        return {}  # the trial itself says what is wrong
    return {name: float(f"{party.mean():.3g}") for name, party in timed.items()}


class MeasuredTimes:
    """Of the parties whose compute times a file leaves open, for every size of batch and model that is tried.

    Each is measured once and kept in a file: a search that goes on later has the same.
    """

    SIZES = ("training.batch_size", "bottom.embedding", "bottom.hidden")  # what it depends on, of all that is tried

    def __init__(self, path: Path, data: FederatedData, declared: Mapping[str, Any]) -> None:
        """`declared`: the file's own `[simulate]`, without defaults."""
        self._path = path
        self._data = data
        own = declared.get("parties", {})
        shared = dict.fromkeys(data.feature_parties, "compute_seconds")
        shared[data.label_party] = "label_compute_seconds"
        self.parties = [
            name for name, key in shared.items() if key not in declared and "compute_seconds" not in own.get(name, {})
        ]
        self._kept: dict[str, dict[str, float]] = dict(json_of(read_whole(path))) if path.exists() else {}

    def of(self, changes: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, float]:
        """Seconds per event of these parties, in a trial that changes so much of the file and has these settings."""
        key = ", ".join(f"{name}={changes[name]}" for name in self.SIZES if name in changes)
        if key not in self._kept:
            found = compute_times(self._data, parse_federation(values).plan(self._data)) if self.parties else {}
            self._kept[key] = {name: found[name] for name in self.parties if name in found}
            write_atomically(self._path, json_text(self._kept))
        return self._kept[key]

    def given_to(self, changes: Mapping[str, str], values: dict[str, Any]) -> dict[str, Any]:
        """The settings of a trial, with what was measured for it."""
        if not values:
            return values  # it was refused
        simulate = values["simulate"]
        parties = dict(simulate["parties"])
        for name, seconds in self.of(changes, values).items():
            parties[name] = {**parties.get(name, {}), "compute_seconds": seconds}
        return {**values, "simulate": {**simulate, "parties": parties}}
