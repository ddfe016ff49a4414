"""What a served row is answered with, and what the parts of all parties come to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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

    def meaning(self, outputs: torch.Tensor) -> tuple[list[Any], list[dict[str, float]] | None]:
        """Classes or values, and the probability of each class."""
        unit, task = self._described.label, self._described.task
        assert unit is not None
        values = values_of(task, unit, outputs).tolist()
        if not unit.classes:
            return values, None
        names = [str(one) for one in unit.classes]
        return values, [dict(zip(names, row, strict=True)) for row in probabilities_of(task, outputs).tolist()]


def answers_of(
    scorer: Scorer,
    ids: Sequence[str],
    parts: Mapping[str, Part],
    absent: Mapping[str, str],
    own: tuple[frozenset[int], NDArray[Any]] | None,
) -> list[Answer]:
    """One per id. `absent`: feature parties that did not answer, and why; `own`: the label party's rows and part.

    Who holds none of a row, or is away, is stood in for; a row that nobody holds, or whose budget is spent, has no
    prediction.
    """
    values = {name: np.tile(scorer.stand_in(name), (len(ids), 1)) for name in scorer.feature_parties}
    for name, part in parts.items():
        values[name][part.rows] = part.values
    outputs = scorer.outputs(values, None if own is None else own[1])
    classes, probabilities = scorer.meaning(outputs)
    whole = all(len(part.rows) == len(ids) for part in parts.values()) and (own is None or len(own[0]) == len(ids))
    if whole and not absent:
        each = [None] * len(ids) if probabilities is None else probabilities
        everybody, version = tuple(parts), scorer.version
        rows = zip(ids, classes, each, strict=True)
        return [Answer(one, version, everybody, _NOTHING, value, chances) for one, value, chances in rows]
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
