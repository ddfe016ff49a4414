"""What can be run: a training, an alignment, a prediction or an explanation, as every way to start one sees it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from colonnade.federation.building import BuiltFederation
from colonnade.launch.seat_files import Life, SeatFiles, peers_of, write_seat
from colonnade.party import Party


class Runnable(Protocol):
    """Parties, and how each is handed to a process or an actor of its own."""

    @property
    def parties(self) -> Mapping[str, Party]:
        """By name, the label party first."""

    @property
    def label_party(self) -> str: ...

    @property
    def members(self) -> Collection[str]:
        """Everybody that settings of a runtime may name; a party that trains alone has members besides itself."""

    @property
    def seed(self) -> int: ...

    def peers_of(self, name: str) -> tuple[str, ...]:
        """Whom a party talks to."""

    def write_seat(self, folder: Path, name: str, life: Life) -> None:
        """Put all that a party needs into a new folder."""


@dataclass(frozen=True)
class TrainingRun:
    """A federation that is to be trained."""

    federation: BuiltFederation

    @property
    def parties(self) -> Mapping[str, Party]:
        return self.federation.parties

    @property
    def label_party(self) -> str:
        return self.federation.facts.label_party

    @property
    def members(self) -> Collection[str]:
        return {self.label_party, *self.federation.facts.shapes}

    @property
    def seed(self) -> int:
        return self.federation.plan.seed

    def peers_of(self, name: str) -> tuple[str, ...]:
        return peers_of(name, self.federation.facts, self.federation.plan)

    def write_seat(self, folder: Path, name: str, life: Life) -> None:
        federation = self.federation
        write_seat(folder, SeatFiles(federation.seat_of(name), federation.facts, federation.plan, life))


def write_seats(folder: Path, run: Runnable, lives: Mapping[str, Life]) -> dict[str, Path]:
    """Put every party's seat into a folder of its own; which one, by name."""
    seats = {name: folder / f"seat-{name}" for name in run.parties}
    for name, seat in seats.items():
        run.write_seat(seat, name, lives[name])
    return seats
