"""What an explanation has found, and which part of it each party is shown.

A party sees its own columns, and of every other party the total alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from colonnade.explanation.ends import Totals
from colonnade.explanation.settings import ExplainSettings
from colonnade.explanation.shapley import Importance

FORMAT = 1
LOSSES = {"regression": "squared error of the standardised label"}
LOG_LOSS = "log loss"


@dataclass(frozen=True)
class ColumnImportance:
    """One column: by how much the loss grows when its values are shuffled, and its mean part in the outputs."""

    column: str
    shuffled: Importance
    gradient: float | None  # mean |integrated gradient|; None where there is none


@dataclass(frozen=True)
class Explanation:
    """Importances of all parties and their columns. `of` gives what one party may see."""

    label_party: str
    task: str
    part: str  # which rows
    rows: int
    totals: Totals
    columns: Mapping[str, Sequence[ColumnImportance]]  # of each party, the most important first
    left_out: Mapping[str, int]  # columns that were not shuffled, because there are too many
    evaluations: int
    learnt: Mapping[str, str]  # of each party: what it had to show for this
    epsilon: Mapping[str, float | None]  # what one row's columns have cost each party by now
    told: tuple[str, ...]  # who of those whose columns are here may be shown a part of this
    tells: bool = True  # whether feature parties may be: not where labels are protected

    @property
    def loss(self) -> float:
        """With everybody's embeddings."""
        return self.totals.loss

    @property
    def loss_without(self) -> float:
        """With the mean embedding of everybody."""
        return self.totals.loss_without

    @property
    def parties(self) -> Mapping[str, Importance]:
        """Shapley values; they add up to the difference of the two."""
        return self.totals.parties

    @property
    def shuffled(self) -> Mapping[str, Importance]:
        """By how much the loss grows when a party's embeddings go to other rows."""
        return self.totals.shuffled

    def of(self, party: str) -> dict[str, Any]:
        """What that party sees: its own columns, and totals of others."""
        # How many columns others have, and so how often they were asked, is known to the label party alone.
        known = self.learnt if party == self.label_party else {party: self.learnt[party]}
        return {
            **self._shared(),
            "party": party,
            "columns": self._columns(party),
            "left_out": self.left_out.get(party, 0),
            "learnt": list(known.values()),
            "epsilon": self.epsilon.get(party),
        }

    def combined(self) -> dict[str, Any]:
        """Everything, for one person who holds all tables."""
        return {
            **self._shared(),
            "party": None,
            "columns": [one for name in self.parties for one in self._columns(name)],
            "left_out": sum(self.left_out.values()),
            "learnt": list(self.learnt.values()),
            "evaluations": self.evaluations,
        }

    def _shared(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "label_party": self.label_party,
            "rows": self.rows,
            "part": self.part,
            "loss_is": LOSSES.get(self.task, LOG_LOSS),
            "loss": self.loss,
            "loss_without": self.loss_without,
            "coalitions": self.totals.coalitions,
            "parties": {
                name: {
                    "shapley": one.value,
                    "standard_error": one.standard_error,
                    "shuffled": self.shuffled[name].value,
                    "shuffled_standard_error": self.shuffled[name].standard_error,
                }
                for name, one in self.parties.items()
            },
        }

    def _columns(self, party: str) -> list[dict[str, Any]]:
        return [
            {
                "party": party,
                "column": one.column,
                "shuffled": one.shuffled.value,
                "standard_error": one.shuffled.standard_error,
                "integrated_gradient": one.gradient,
            }
            for one in self.columns.get(party, ())
        ]


@dataclass(frozen=True)
class ExplanationDisclosure:
    """What an explanation took, beside how many columns of whom."""

    label_party: str
    asked: ExplainSettings
    rows: int
    parties: int  # with columns
    walked: bool  # along integrated gradients
    noised: bool
    products: bool  # of a linear federation, in place of embeddings
    tells: bool  # whether a feature party is told anything


def learnt_by_explaining(party: str, columns: int, taken: ExplanationDisclosure) -> str:
    """What a feature party has shown, and what it is told for it. `columns`: that it has shuffled."""
    asked = taken.asked
    sent = taken.rows * (1 + columns * asked.repeats + (asked.steps if taken.walked else 0))
    what = "products" if taken.products else "embeddings"
    sort = "noisy" if taken.noised else "exact"
    told = f"{columns + 2 * taken.parties + 2} mean losses, which tell of labels" if taken.tells else "nothing"
    if taken.walked and taken.tells:
        told += ", and gradients of the outputs by its own embeddings"
    return (
        f"{taken.label_party} was given {sent:,} {sort} {what} of {asked.part} rows of {party}; {party} is told {told}."
    )
