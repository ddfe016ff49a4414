"""A linear model's coefficients by column name, in the units of the tables it was trained on, and its intercept.

Of one party: its part of the output. Where all models are in one place: of the output itself, a regression's in the
label's own unit.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from colonnade.data.absence import ABSENT
from colonnade.errors import RunError, SettingsError
from colonnade.exports.affine import Matrix, affine, first_bend
from colonnade.exports.own_units import Term, prepared_terms, terms_of
from colonnade.files import write_atomically
from colonnade.prediction.joint_model import JointModel
from colonnade.prediction.saved_model import SavedModel

ENDINGS = (".csv", ".json")


@dataclass(frozen=True)
class LinearPart:
    """What one party's prepared columns add to the outputs: `weights` [columns, outputs], and a constant."""

    party: str
    weights: Matrix
    constant: Matrix


@dataclass(frozen=True)
class Coefficients:
    """intercept + Σ coefficient × term, an intercept and a coefficient for each output."""

    outputs: tuple[str, ...]
    unit: str  # of the outputs
    intercept: tuple[float, ...]
    terms: Mapping[str, Sequence[Term]]  # by party

    def to_values(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        return {
            "outputs": list(self.outputs),
            "unit": self.unit,
            "intercept": list(self.intercept),
            "terms": [
                {
                    "party": party,
                    "column": term.column,
                    "of": term.of,
                    "coefficients": list(term.coefficients),
                    **({} if term.gap is None else {"a_gap_counts_as": term.gap}),
                }
                for party, terms in self.terms.items()
                for term in terms
            ],
        }

    def to_csv(self) -> str:
        """One line per term; the intercept comes first."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["party", "column", "of", *(f"coefficient of {name}" for name in self.outputs), "a gap is"])
        writer.writerow(["", "intercept", "", *map(repr, self.intercept), ""])
        for party, terms in self.terms.items():
            for term in terms:
                gap = "" if term.gap is None else repr(term.gap)
                writer.writerow([party, term.column, term.of, *map(repr, term.coefficients), gap])
        return text.getvalue()

    def write(self, path: Path) -> None:
        """As CSV or JSON, by the ending; for its owner alone."""
        check_ending(path, ENDINGS)
        text = self.to_csv() if path.suffix.lower() == ".csv" else json.dumps(self.to_values(), indent=1)
        write_export(path, text.encode())


def check_ending(path: Path, endings: Sequence[str]) -> None:
    if path.suffix.lower() not in endings:
        raise SettingsError(f"This is written as {' or '.join(endings)}; {path} ends otherwise.")


def write_export(path: Path, content: bytes) -> None:
    """A file of an export: whole, and its owner's alone."""
    try:
        write_atomically(path, content)
    except OSError as error:
        raise RunError(f"{path} could not be written: {error.strerror}. Choose another place with --out.") from None


def coefficients_of(model: JointModel | SavedModel) -> Coefficients:
    """The coefficients of a linear model; SettingsError if it is none."""
    parts = linear_parts(model)
    terms: dict[str, list[Term]] = {}
    intercept = np.sum([part.constant for part in parts], axis=0)
    factor, names, unit = _outputs(model)
    for part in parts:
        own, shift = _own_terms(holder_of(model, part.party), part.weights * factor)
        terms[part.party] = own
        intercept = intercept + shift / factor
    shifted = tuple(float(one) for one in intercept * factor + _mean(model))
    return Coefficients(names, unit, shifted, terms)


def holder_of(model: JointModel | SavedModel, party: str) -> SavedModel | None:
    """The saved model that knows a party's columns; None where one party trained on everybody's."""
    return model.parties.get(party) if isinstance(model, JointModel) else model


def linear_parts(model: JointModel | SavedModel) -> list[LinearPart]:
    """What each party's columns add to the outputs: of one party its own, of a joint model everybody's, in order."""
    if isinstance(model, SavedModel):
        return [_alone(model)]
    label = model.parties[model.label_party]
    facts = label.description.facts
    widths = [facts.widths.get(name, facts.outputs) for name in model.order]
    top = _affine(label.modules["top"], sum(widths), f"The top model of {model.label_party}")
    parts, place = [], 0
    for name, width in zip(model.order, widths, strict=True):
        alone = label.modules.get(f"bottom of {name}")
        weight, constant = _bottom(model.parties.get(name, label), name, alone)
        block = top[0][:, place : place + width]
        parts.append(LinearPart(name, (block @ weight).T, block @ constant))
        place += width
    parts[-1] = LinearPart(parts[-1].party, parts[-1].weights, parts[-1].constant + top[1])
    return parts


def _alone(saved: SavedModel) -> LinearPart:
    """A party's own part, where embeddings are parts of the output already."""
    described = saved.description
    if "bottom" not in saved.modules:
        raise SettingsError(f"{described.party} has no columns, and so no coefficients.")
    outputs = described.facts.outputs
    only_sums = described.facts.widths == {} or described.top.get("kind") == "sum"
    if not only_sums:
        raise SettingsError(
            f"The embedding of {described.party} is not its part of the output: the top model does more than add up. "
            'Coefficients need a linear algorithm, or a linear bottom model and [top] kind = "sum"; with other '
            "linear models, export them where the models of all parties are in one place."
        )
    weight, constant = _bottom(saved, described.party, None)
    if "top" in saved.modules:
        width = outputs * len(described.facts.shapes)
        constant = constant + _affine(saved.modules["top"], width, f"The top model of {described.party}")[1]
    return LinearPart(described.party, weight.T, constant)


def _bottom(saved: SavedModel, name: str, alone: nn.Module | None) -> tuple[Matrix, Matrix]:
    described = saved.description
    if alone is None and described.clip and name != described.label_party:
        raise SettingsError(f"What {name} sends is clipped (privacy.clip), so its model is not linear.")
    inputs = int(np.prod(described.facts.shapes[name]))
    return _affine(saved.modules["bottom"] if alone is None else alone, inputs, f"The bottom model of {name}")


def _affine(module: nn.Module, inputs: int, what: str) -> tuple[Matrix, Matrix]:
    found = affine(module, inputs)
    if found is None:
        raise SettingsError(
            f"{what} is not linear: it has a layer {first_bend(module)}. Only linear models have coefficients; "
            "`--to onnx` and `--to torchscript` take any."
        )
    return found


def column_names(saved: SavedModel | None, count: int) -> list[str]:
    """One name for each prepared column; those of an image's piece, which has one name, and unknown ones by number."""
    names = [] if saved is None else list(saved.description.columns)
    return names if len(names) == count else [f"{' '.join(names) or 'column'} {1 + place}" for place in range(count)]


def _own_terms(saved: SavedModel | None, weights: Matrix) -> tuple[list[Term], Matrix]:
    preparation = None if saved is None else saved.preparation
    if preparation is None:
        return prepared_terms(column_names(saved, len(weights)), weights), np.zeros(weights.shape[1])
    terms: list[Term] = []
    shift, place = np.zeros(weights.shape[1]), 0
    for column in preparation.columns:
        width = len(column.outputs)
        own, more = terms_of(column, weights[place : place + width])
        terms += own
        shift = shift + more
        place += width
    if preparation.tells_absence:  # then every prepared column is 0, and what was shifted must go back
        terms.append(Term(ABSENT, "instead of all other terms", tuple((weights[place] - shift).tolist())))
    return terms, shift


def _outputs(model: JointModel | SavedModel) -> tuple[float, tuple[str, ...], str]:
    """What coefficients are multiplied with to be in the unit of the outputs, the outputs' names, and that unit."""
    described = (model.parties[model.label_party] if isinstance(model, JointModel) else model).description
    unit = described.label
    if described.task == "regression":
        if isinstance(model, JointModel):
            return model.unit.deviation, ("label",), "the label's own"
        return 1.0, ("label",), "the label, standardised"
    if described.task == "binary":
        return 1.0, (f"{unit.classes[1]}" if unit is not None else "the second class",), "log-odds"
    names = [f"{one}" for one in unit.classes] if unit else [f"class {1 + one}" for one in range(described.class_count)]
    return 1.0, tuple(names), "logits"


def _mean(model: JointModel | SavedModel) -> float:
    if isinstance(model, JointModel) and model.parties[model.label_party].description.task == "regression":
        return model.unit.mean
    return 0.0
