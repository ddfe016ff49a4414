"""What an aligning party is given when it is built: points for ids, and what all know."""

from dataclasses import dataclass, field

from colonnade.alignment.multiplication import Multiply, multiply
from colonnade.alignment.order import Fractions
from colonnade.alignment.points import Points
from colonnade.seat import Seat


@dataclass(frozen=True)
class AlignmentSeat(Seat):
    """One party's own points and secret; the rest is the same for all."""

    points: Points  # one per usable row: the party ends with places in this array
    secret: bytes  # 32 bytes; of an alignment between organisations, drawn anew for every one
    method: str = "ecdh"
    domain: bytes = b""  # what ids were hashed with
    pad_to: int = 0
    fractions: Fractions = field(default_factory=Fractions)
    multiply: Multiply = multiply
    any_rows: bool = False  # all of the label party's rows are used, and each learns which of them it holds

    def told(self) -> int:
        """How many ids the others hear of."""
        return self.pad_to or len(self.points)
