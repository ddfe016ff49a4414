"""A simulated world to put a few scripted parties into."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.simulate.settings import Simulate
from colonnade.runtimes.simulate.simulation import Simulation
from colonnade.testing import Scripted


def world(
    parties: Mapping[str, Scripted],
    settings: Simulate,
    *,
    label_party: str = "",
    seed: int = 0,
    ledger: Ledger | None = None,
    recorder: Recorder | None = None,
    directory: Path | None = None,
    **more: Any,
) -> Simulation:
    """A simulation of these parties; none is the label party unless one is named."""
    return Simulation(
        parties,
        label_party,
        settings,
        seed,
        recorder or Recorder(label_party),
        ledger or Ledger(),
        directory=directory,
        **more,
    )


def still(**changes: Any) -> Simulate:
    """A world in which nothing takes any time, but for what is given."""
    plain: dict[str, Any] = {"compute_seconds": 0.0, "label_compute_seconds": 0.0, "latency_seconds": 0.0}
    return Simulate(**{**plain, **changes})
