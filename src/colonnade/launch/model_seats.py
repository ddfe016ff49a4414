"""What the folders of a predicting and of an explaining party have in common: a seat, and how its party is to live."""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from colonnade.launch.seat_files import Life


class ModelSeat(Protocol):
    """A seat, as far as who is written into a folder must be known."""

    @property
    def name(self) -> str: ...

    @property
    def label_party(self) -> str: ...


Seated = TypeVar("Seated", bound=ModelSeat)


@dataclass(frozen=True)
class ModelSeatFiles(Generic[Seated]):
    """A folder's content."""

    seat: Seated
    life: Life

    @property
    def name(self) -> str:
        return self.seat.name

    @property
    def label_party(self) -> str:
        return self.seat.label_party
