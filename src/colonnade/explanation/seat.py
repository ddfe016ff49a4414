"""What an explaining party is given when it is built: its own model and rows, and what all have agreed to look at."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.errors import SettingsError
from colonnade.explanation.ends import ColumnGroup
from colonnade.explanation.settings import ExplainSettings
from colonnade.federation.plan import embedding_order
from colonnade.prediction.saved_model import SavedModel
from colonnade.privacy.noise import PerturbationSettings
from colonnade.seat import Seat

MOST_BYTES = 128 << 20
"""Of one message: what a party takes at once is bounded by that."""


@dataclass(frozen=True)
class ExplanationSeat(Seat):
    """One party's own; the rest is the same for all."""

    model: SavedModel
    asked: ExplainSettings
    secret: int  # what its noise follows from, new for every explanation
    seed: int  # what the shuffles of its columns follow from
    places: NDArray[np.uint32]  # of the rows among those of their part
    rows: torch.Tensor | None = None  # its prepared rows there; None: it holds no columns
    groups: tuple[ColumnGroup, ...] = ()
    labels: torch.Tensor | None = None  # the label party's
    tells: bool = True  # the label party's: whether others may be told mean losses

    def __post_init__(self) -> None:
        size_bytes = 8 * len(self.places) * self.asked.repeats * max(self.width(name) for name in self.order)
        if size_bytes > MOST_BYTES:
            raise SettingsError(
                f"{self.asked.repeats} repeats of {len(self.places):,} rows take {size_bytes >> 20} MB in one message, "
                f"and a party takes {MOST_BYTES >> 20}: explain fewer rows (--rows) or fewer repeats (--repeats)."
            )

    @property
    def order(self) -> tuple[str, ...]:
        """Whose embeddings the top model takes."""
        return embedding_order(self.model.description.facts)

    @property
    def privacy(self) -> PerturbationSettings:
        """How what feature parties send is clipped and noised."""
        said = self.model.description.privacy
        return PerturbationSettings(**said) if said else PerturbationSettings(clip=self.model.description.clip)

    @property
    def steps(self) -> int:
        """Of integrated gradients; none of noised embeddings, and none where no column is asked for."""
        return self.asked.steps if self.asked.columns and not self.privacy.noise else 0

    @property
    def most_releases(self) -> int:
        """How often each of its rows leaves, noised."""
        return 1 + min(len(self.groups), self.asked.columns) * self.asked.repeats

    @property
    def dtype(self) -> type[np.float32] | type[np.float64]:
        """In which models compute: products of a linear federation are float64."""
        return np.float32 if self.model.description.widths else np.float64

    def width(self, party: str) -> int:
        """Of a party's embedding; of its products, in a linear federation."""
        facts = self.model.description.facts
        return facts.widths[party] if facts.widths else facts.outputs
