"""What an aligning party's process or actor is given, as files: its own points, its secret, and what all share.

There is no id among them.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.alignment.building import build_aligning_party
from colonnade.alignment.conversation import AligningParty
from colonnade.alignment.multiplication import Multipliers, Multiply
from colonnade.alignment.order import Fractions
from colonnade.alignment.points import POINT_BYTES, Points
from colonnade.alignment.seat import AlignmentSeat
from colonnade.files import json_of, make_folder, read_private, write_private
from colonnade.launch.seat_files import Life
from colonnade.settings import as_values, build

FACTS = "alignment.json"
_POINTS = "points"


@dataclass(frozen=True)
class AlignmentPlan:
    """What all parties of an alignment share."""

    label_party: str
    parties: tuple[str, ...]  # all, the label party first
    method: str
    domain: str  # in hexadecimal
    pad_to: int
    validation_fraction: float
    test_fraction: float
    rows: str = "all"  # or "any"

    def seat(self, name: str, points: Points, secret: bytes, multiply: Multiply) -> AlignmentSeat:
        """One party's seat, and what its multiplications are made with."""
        return AlignmentSeat(
            name,
            self.label_party,
            self.parties,
            points,
            secret,
            self.method,
            bytes.fromhex(self.domain),
            self.pad_to,
            Fractions(self.validation_fraction, self.test_fraction),
            multiply,
            self.rows == "any",
        )


@dataclass(frozen=True)
class AlignmentSeatFiles:
    """A folder's content."""

    name: str
    plan: AlignmentPlan
    points: Points
    secret: bytes
    workers: int
    life: Life

    @property
    def label_party(self) -> str:
        return self.plan.label_party

    def build(self) -> AligningParty:
        multipliers = Multipliers(self.workers, len(self.points))  # which end with this process
        return build_aligning_party(self.plan.seat(self.name, self.points, self.secret, multipliers))


def write_alignment_seat(folder: Path, seat: AlignmentSeatFiles) -> None:
    """Put a seat into a new folder that only this user may enter."""
    make_folder(folder, exist_ok=False)
    write_private(folder / _POINTS, seat.points.tobytes())
    content: dict[str, Any] = {
        "name": seat.name,
        "plan": asdict(seat.plan),
        "secret": seat.secret.hex(),
        "workers": seat.workers,
        "life": as_values(seat.life),
    }
    write_private(folder / FACTS, json.dumps(content).encode())


def read_alignment_seat(folder: Path) -> AlignmentSeatFiles:
    """What `write_alignment_seat` wrote."""
    content = json_of(read_private(folder / FACTS))
    points = np.frombuffer(read_private(folder / _POINTS), np.uint8).reshape(-1, POINT_BYTES)
    plan = build(AlignmentPlan, content["plan"], "plan")
    secret, life = bytes.fromhex(content["secret"]), build(Life, content["life"], "life")
    return AlignmentSeatFiles(content["name"], plan, points, secret, content["workers"], life)
