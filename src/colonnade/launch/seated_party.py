"""One party at its seat, in a process or an actor of its own: its station, how far it is, and its disk's failure."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from colonnade.errors import RunError
from colonnade.launch import alignment_seats, explanation_seats, prediction_seats
from colonnade.launch.alignment_seats import AlignmentSeatFiles, read_alignment_seat
from colonnade.launch.explanation_seats import ExplanationSeatFiles, read_explanation_seat
from colonnade.launch.prediction_seats import PredictionSeatFiles, read_prediction_seat
from colonnade.launch.seat_files import Life, SeatFiles, read_seat
from colonnade.party import Party
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.links import Peers
from colonnade.runtimes.live import Live, as_lane
from colonnade.runtimes.live_files import Sample
from colonnade.runtimes.pace import Pace
from colonnade.runtimes.picture import picture_of_station
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.station import TRUSTING, Guard, Recording, Station
from colonnade.runtimes.steering import LIVE, Steering
from colonnade.wire.codec import DEFAULT_LIMITS, Limits

REPORT_SECONDS = 0.5
"""How often a party says how far it is."""


Seat = SeatFiles | AlignmentSeatFiles | PredictionSeatFiles | ExplanationSeatFiles


def read_any_seat(folder: Path) -> Seat:
    """A seat of a training, of an alignment, of a prediction or of an explanation."""
    if (folder / alignment_seats.FACTS).exists():
        return read_alignment_seat(folder)
    if (folder / explanation_seats.FACTS).exists():
        return read_explanation_seat(folder)
    return read_prediction_seat(folder) if (folder / prediction_seats.FACTS).exists() else read_seat(folder)


class SeatedParty:
    """A seat's party in its station, where the process or actor before it left off.

    `tell` is given what whoever started it is to know: {"line": …}, a metric of the label party, or how far it is.
    """

    def __init__(self, seat: Seat, tell: Callable[[dict[str, Any]], None]) -> None:
        directory, label_party = Path(seat.life.directory), seat.label_party
        party = seat.build()
        metrics = directory if seat.name == label_party else None
        self._recorder = Recorder(label_party, metrics, lambda line: tell({"line": line}), virtual=False)
        ledger = directory / "ledger" / f"{seat.name}.jsonl"
        steering = Steering(directory)
        given = seat.name, party, label_party, seat.life, self._recorder, ledger
        self.station = open_station(*given, steering=steering)
        self._live = live_of(self.station, self._recorder, directory)
        self._tell = tell
        self._next_report = 0.0

    def report(self) -> None:
        """Say twice a second how far it is; and write it down for whoever looks on. Called as often as one likes."""
        self._live.look()
        if time.monotonic() >= self._next_report:
            self._next_report = time.monotonic() + REPORT_SECONDS
            self._tell(progress_of(self.station))

    def save(self) -> None:
        """After its last turn."""
        self.station.save()
        self._live.write()

    def close(self) -> None:
        self.station.close()
        self._recorder.close()


def open_station(
    name: str,
    party: Party,
    label_party: str,
    life: Life,
    recorder: Recorder,
    ledger: Path,
    limits: Limits = DEFAULT_LIMITS,
    guard: Guard = TRUSTING,
    steering: Steering | None = None,
) -> Station:
    """A party in real time, with the state it had, if it has one. `steering`: by whom it may be paused."""
    steering = steering or Steering(None)
    station = Station(
        name,
        party,
        Peers(life.peers, label_party, life.without),
        Path(life.directory),
        Recording(recorder, lambda position: Ledger(ledger, position), life.trace),
        endurance=life.endurance,
        limits=limits,
        pace=Pace(life.slowdown, life.compute_seconds, steering.paused),
        guard=guard,
        clock=steering.clock,
    )
    if life.extension > station.extension:
        station.extend(life.extension)
    return station


def live_of(station: Station, recorder: Recorder, directory: Path) -> Live:
    """What writes down, a few times a second, how this party is."""

    def take() -> Sample:
        lane = as_lane(picture_of_station(station, recorder))
        return {"now": round(station.now(), 4), "paused": station.is_paused(), "parties": {station.name: lane}}

    return Live(directory / LIVE / f"{station.name}.jsonl", take, station.released)


def progress_of(station: Station) -> dict[str, Any]:
    """How far a party is, for whoever started it."""
    counts = station.party.counts()
    return {
        "exchanges": counts["exchanges"],
        "steps": counts["steps"],
        "waits_for": station.absent() if station.started else [],
        "queue": station.queue_depth(),
    }


def unwritable(name: str, directory: Path, error: OSError) -> RunError:
    """A party's disk has failed it: which file or directory, how, and what to do."""
    return RunError(
        f"{name} could not write its state in {error.filename or directory}: {error.strerror or error}. Free some "
        "space there, then continue with --resume: every party goes on where its journal ends."
    )
