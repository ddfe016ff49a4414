"""What every seat says that is not a training's: whose it is, and who takes part. The rest is its kind's own."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Seat:
    """Of a party that aligns, predicts or explains."""

    name: str
    label_party: str
    parties: tuple[str, ...]  # all, the label party first

    @property
    def others(self) -> tuple[str, ...]:
        return tuple(name for name in self.parties if name != self.name)

    @property
    def feature_parties(self) -> tuple[str, ...]:
        return tuple(name for name in self.parties if name != self.label_party)
