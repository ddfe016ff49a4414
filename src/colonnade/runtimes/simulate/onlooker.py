"""Who looks on while a simulation runs, and may pause or stop it: asked between two events, a few times a second."""

import time
from collections.abc import Callable
from pathlib import Path

from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.live import Live, by_message
from colonnade.runtimes.live_files import Sample
from colonnade.runtimes.picture import amounts
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.simulate.places import Place
from colonnade.runtimes.simulate.simulation import Simulation
from colonnade.runtimes.steering import LIVE, Steering

_LOOK_SECONDS = 0.05


class Onlooker:
    """The `stop_requested` of a simulation with a run directory. `attend` it before it runs."""

    def __init__(self, directory: Path, recorder: Recorder, stop_requested: Callable[[], bool]) -> None:
        self._path = directory / LIVE / "simulate.jsonl"
        self._recorder = recorder
        self._stop_requested = stop_requested
        self._steering = Steering(directory)
        self._steering.begin()
        self._live: Live | None = None
        self._due = 0.0
        self._rests_since: float | None = None

    def attend(self, simulation: Simulation, ledger: Ledger) -> None:
        self._live = Live(self._path, lambda: self._sample(simulation), ledger.by_row)
        self._live.write()

    def conclude(self) -> None:
        """It has ended, well or not: a last line."""
        if self._live is not None:
            self._live.write()

    def __call__(self) -> bool:
        if self._stop_requested():
            return True
        now = time.monotonic()
        if now < self._due:
            return False
        self._due = now + _LOOK_SECONDS
        if self._live is not None:
            self._live.look()
        if self._steering.paused():
            self._rest()
            if self._stop_requested():
                return True
        return self._steering.stop_requested()

    def _rest(self) -> None:
        self._rests_since = began = time.monotonic()
        while self._steering.paused() and not self._stop_requested():
            if self._live is not None:
                self._live.look()
            time.sleep(_LOOK_SECONDS)
        self._rests_since = None
        self._recorder.rest(time.monotonic() - began)

    def _sample(self, simulation: Simulation) -> Sample:
        return {
            "now": round(self._now(), 4),
            "virtual": simulation.now,
            "paused": self._steering.paused(),
            "parties": {place.name: self._lane(place, simulation.now) for place in simulation.places},
        }

    def _now(self) -> float:
        """The run's wall time, which stands still in a pause: what went back after it would spoil all rates."""
        rested = 0.0 if self._rests_since is None else time.monotonic() - self._rests_since
        return self._recorder.wall_seconds() - rested

    def _lane(self, place: Place, now: float) -> Sample:
        counts = place.driver.party.counts()
        lane: Sample = {
            "status": "finished" if place.finished else "away" if place.away else "training",
            "exchanges": counts["exchanges"],
            "steps": counts["steps"],
            "busy": round(place.busy_seconds + (now - place.work_started if place.current is not None else 0.0), 9),
            "away": round(place.away_seconds + (now - place.away_since if place.away else 0.0), 9),
            "queue": len(place.inbox),
            "sent": by_message(amounts([self._recorder.traffic_of(place.name)])),
        }
        if "epochs" in counts:
            lane["epochs"] = round(counts["epochs"], 4)
        if "staleness" in counts:
            lane["staleness"] = {name: round(float(counts["staleness"][name]), 3) for name in ("mean", "max")}
        return lane
