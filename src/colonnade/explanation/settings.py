"""What an explanation is asked for."""

from dataclasses import dataclass

from colonnade.errors import SettingsError, unknown_name

PARTS = ("test", "validation", "train")


@dataclass(frozen=True)
class ExplainSettings:
    """How much is computed.

    >>> ExplainSettings(rows=500, steps=0).repeats
    5
    """

    part: str = "test"  # which rows: "test" | "validation" | "train"
    rows: int = 2000  # at most so many of them, drawn at random
    repeats: int = 5  # permutations of each column
    columns: int = 100  # at most so many of each party, those that the outputs change most with; 0: parties alone
    orders: int = 200  # of parties, where their coalitions are too many to try all
    steps: int = 32  # of the path along which gradients are added up; 0: no integrated gradients
    seed: int = 0

    def __post_init__(self) -> None:
        if self.part not in PARTS:
            raise unknown_name("part of the rows", self.part, PARTS)
        for name, least in (("rows", 2), ("repeats", 1), ("columns", 0), ("orders", 2), ("steps", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise SettingsError(f"An explanation's {name} are {getattr(self, name)}; give {least} or more.")
