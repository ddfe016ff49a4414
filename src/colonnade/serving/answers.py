"""What served rows are answered with, and what the parts of all parties come to.

Of nearly all rows everybody has answered. Such answers are kept as columns and become JSON as a whole: an object per
row and party would take longer than the models.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.row import Family
from colonnade.data.absence import absent_rows
from colonnade.errors import ProtocolError
from colonnade.models.network import network_for
from colonnade.prediction.contributions import family_of, products_of
from colonnade.prediction.meaning import probabilities_of, values_of
from colonnade.prediction.saved_model import SavedModel

_LACKS = "does not hold this row"
_NOTHING: Mapping[str, str] = {}


@dataclass
class Part:
    """What one party answered of a batch: rows by their places, and their values."""

    rows: NDArray[np.uint32]
    values: NDArray[Any]
    refused: frozenset[int] = frozenset()


@dataclass(slots=True)
class Answer:
    """Of one row."""

    id: str
    version: str
    took_part: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)  # parties that a stand-in was taken for, and why
    prediction: Any = None
    probabilities: Mapping[str, float] | None = None
    error: str = ""  # why there is no prediction
    status: int = 200  # of HTTP, for a row asked for alone

    @property
    def degraded(self) -> bool:
        return bool(self.missing)


class Told(msgspec.Struct, omit_defaults=True, gc=False):
    """An answer as JSON has it. There are thousands per second, so the garbage collector is not to look at them."""

    id: str
    error: str = ""
    prediction: Any = msgspec.UNSET
    probabilities: Mapping[str, float] | None = None
    parties: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    degraded: bool | msgspec.UnsetType = msgspec.UNSET
    missing: Mapping[str, str] | None = None


class SingleAnswers:
    """Answers of which each is for itself."""

    def __init__(self, version: str, answers: list[Answer]) -> None:
        self.version = version
        self._answers = answers

    def __len__(self) -> int:
        return len(self._answers)

    def __iter__(self) -> Iterator[Answer]:
        return iter(self._answers)

    def part(self, first: int, count: int) -> "SingleAnswers":
        return SingleAnswers(self.version, self._answers[first : first + count])

    def at(self, places: Sequence[int]) -> "SingleAnswers":
        return SingleAnswers(self.version, [self._answers[place] for place in places])

    def outcomes(self) -> Mapping[str, int]:
        """How many rows came to what."""
        return Counter("none" if one.error else "degraded" if one.missing else "whole" for one in self._answers)

    def told(self) -> list[Told]:
        """For JSON."""
        return [_told(one) for one in self._answers]


def _told(answer: Answer) -> Told:
    if answer.error:
        return Told(answer.id, answer.error)
    chances, missing = answer.probabilities, answer.missing
    return Told(answer.id, "", answer.prediction, chances, answer.took_part, bool(missing), missing or None)


@dataclass(frozen=True, slots=True)
class WholeAnswers:
    """Answers of rows that everybody has answered for: columns."""

    version: str
    ids: Sequence[str]
    took_part: tuple[str, ...]
    values: list[Any]
    chances: list[list[float]] | None
    form: "Form"

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Answer]:
        chances = [None] * len(self) if self.chances is None else self.chances
        for one, value, row in zip(self.ids, self.values, chances, strict=True):
            named = None if row is None else dict(zip(self.form.classes, row, strict=True))
            yield Answer(one, self.version, self.took_part, _NOTHING, value, named)

    def part(self, first: int, count: int) -> "WholeAnswers":
        rows = slice(first, first + count)
        chances = None if self.chances is None else self.chances[rows]
        return WholeAnswers(self.version, self.ids[rows], self.took_part, self.values[rows], chances, self.form)

    def at(self, places: Sequence[int]) -> "WholeAnswers":
        ids, values = ([own[place] for place in places] for own in (self.ids, self.values))
        chances = None if self.chances is None else [self.chances[place] for place in places]
        return WholeAnswers(self.version, ids, self.took_part, values, chances, self.form)

    def outcomes(self) -> Mapping[str, int]:
        return {"whole": len(self.ids)}

    def told(self) -> list[Any]:
        """For JSON: the same as of single answers."""
        row, parties = self.form.row, msgspec.Raw(msgspec.json.encode(self.took_part))
        if self.chances is None:
            return [row(*one, parties, False) for one in zip(self.ids, self.values, strict=True)]
        chances = self.form.chances
        columns = zip(self.ids, self.values, self.chances, strict=True)
        return [row(one, value, chances(*each), parties, False) for one, value, each in columns]


Answers: TypeAlias = SingleAnswers | WholeAnswers


class Form:
    """How whole answers of one model look in JSON: names of classes are written into a class once, not into rows."""

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = tuple(classes)

    @cached_property
    def chances(self) -> Any:
        names = {f"class{place}": name for place, name in enumerate(self.classes)}
        return msgspec.defstruct("Chances", [(name, float) for name in names], rename=names, gc=False)

    @cached_property
    def row(self) -> Any:
        """As `Told`, without what whole answers never have."""
        chances = [("probabilities", self.chances)] if self.classes else []
        fields = [("id", str), ("prediction", Any), *chances, ("parties", msgspec.Raw), ("degraded", bool)]
        return msgspec.defstruct("WholeRow", fields, gc=False)


class Scorer:
    """The label party's own model of one version, and what stands in for whom."""

    def __init__(self, model: SavedModel, version: str) -> None:
        self.version = version
        self._model = model
        self._described = model.description
        self._is_linear = family_of(model.description) is Family.LINEAR
        facts = model.description.facts
        self.feature_parties = facts.feature_parties
        self.label_party = facts.label_party
        self._widths = {
            name: facts.outputs if self._is_linear else facts.widths[name] for name in facts.feature_parties
        }
        self._top = None if self._is_linear else network_for(model.modules["top"])
        self._learnt: dict[str, NDArray[Any]] = {}
        self._bottom = None
        self.form = Form([str(one) for one in model.description.label.classes] if model.description.label else [])
        self.has_columns = facts.label_party in facts.shapes
        if self.has_columns and not self._is_linear:
            self._bottom = network_for(model.modules["bottom"])

    def width_of(self, party: str) -> int:
        return self._widths[party]

    def learn(self, party: str, values: NDArray[np.float64]) -> None:
        """A party has told what it answers for rows that it lacks."""
        if party not in self._widths or values.shape != (self._widths[party],):
            raise ProtocolError(f"{party} told a stand-in of {values.size} numbers, which fits nothing.")
        self._learnt[party] = values.astype(np.float64 if self._is_linear else np.float32)

    def lacked_rows(self, count: int, shape: tuple[int, ...]) -> torch.Tensor:
        """Rows of the label party's own that it lacks: absent ones, or of average columns, which are 0."""
        return absent_rows(count, shape) if self._described.expects_absence else torch.zeros(count, *shape)

    def stand_in(self, party: str) -> NDArray[Any]:
        """What is taken for a party that does not answer.

        What it has learnt to answer for rows that it lacks, if it has told; else its mean embedding in training; of a
        linear model 0, which is what a row of average columns adds.
        """
        if party in self._learnt:
            return self._learnt[party]
        kept = self._model.stand_ins.get(party)
        if kept is not None and not self._is_linear and kept.shape == (self._widths[party],):
            return kept.numpy()
        return np.zeros(self._widths[party], np.float64 if self._is_linear else np.float32)

    def own_part(self, columns: torch.Tensor) -> NDArray[Any]:
        if self._bottom is not None:
            return self._bottom.embed(columns).numpy()
        return products_of(self._model, columns)

    def outputs(self, parts: Mapping[str, NDArray[Any]], own: NDArray[Any] | None) -> torch.Tensor:
        """Of whole rows: every feature party's part, and the label party's own if it has columns."""
        ordered = [parts[name] for name in self.feature_parties]
        if self._top is None:
            return torch.from_numpy(sum(ordered, np.zeros_like(ordered[0]) if own is None else own))
        together = [torch.from_numpy(one) for one in (*ordered, *([] if own is None else [own]))]
        return self._top.embed(torch.cat(together, 1))

    def meaning(self, outputs: torch.Tensor) -> tuple[list[Any], list[list[float]] | None]:
        """Classes or values, and the probability of each class."""
        unit, task = self._described.label, self._described.task
        assert unit is not None
        values = values_of(task, unit, outputs).tolist()
        return values, probabilities_of(task, outputs).tolist() if unit.classes else None


def answers_of(
    scorer: Scorer,
    ids: Sequence[str],
    parts: Mapping[str, Part],
    absent: Mapping[str, str],
    own: tuple[frozenset[int], NDArray[Any]] | None,
) -> Answers:
    """One per id. `absent`: feature parties that did not answer, and why; `own`: the label party's rows and part.

    Who holds none of a row, or is away, is stood in for; a row that nobody holds, or whose budget is spent, has no
    prediction.
    """
    values = {name: _filled(scorer, name, parts.get(name), len(ids)) for name in scorer.feature_parties}
    outputs = scorer.outputs(values, None if own is None else own[1])
    classes, chances = scorer.meaning(outputs)
    whole = all(len(part.rows) == len(ids) for part in parts.values()) and (own is None or len(own[0]) == len(ids))
    if whole and not absent:
        return WholeAnswers(scorer.version, ids, tuple(parts), classes, chances, scorer.form)
    named = None if chances is None else [dict(zip(scorer.form.classes, row, strict=True)) for row in chances]
    return SingleAnswers(scorer.version, _single_answers(scorer, ids, parts, absent, own, classes, named))


def _filled(scorer: Scorer, party: str, part: Part | None, count: int) -> NDArray[Any]:
    """A party's part of every row: its own, or what stands in for it."""
    if part is not None and len(part.rows) == count and (part.rows == np.arange(count)).all():
        return part.values
    values: NDArray[Any] = np.tile(scorer.stand_in(party), (count, 1))
    if part is not None:
        values[part.rows] = part.values
    return values


def _single_answers(
    scorer: Scorer,
    ids: Sequence[str],
    parts: Mapping[str, Part],
    absent: Mapping[str, str],
    own: tuple[frozenset[int], NDArray[Any]] | None,
    classes: list[Any],
    probabilities: list[dict[str, float]] | None,
) -> list[Answer]:
    held = {name: frozenset(part.rows.tolist()) for name, part in parts.items()}
    found = []
    for row, one in enumerate(ids):
        took_part = tuple(name for name in held if row in held[name])
        refused = [name for name, part in parts.items() if row in part.refused]
        missing = {name: why for name, why in absent.items() if name not in took_part}  # or it is in the cache
        missing |= {name: _LACKS for name in held if name not in absent and name not in took_part}
        if own is not None and row not in own[0]:
            missing[scorer.label_party] = _LACKS
        if refused:
            sentence = f"The privacy budget of this row is spent at {' and '.join(refused)}: it is not released again."
            found.append(Answer(one, scorer.version, took_part, error=sentence, status=403))
        elif not took_part and (own is None or row not in own[0]):
            error, status = "No party that answered holds this id.", 404
            if len(absent) == len(scorer.feature_parties):
                error, status = "No feature party is there to answer. Try again later.", 503
            found.append(Answer(one, scorer.version, missing=absent, error=error, status=status))
        else:
            chances = None if probabilities is None else probabilities[row]
            found.append(Answer(one, scorer.version, took_part, missing, classes[row], chances))
    return found
