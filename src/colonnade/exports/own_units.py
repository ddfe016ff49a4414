"""Coefficients of prepared columns as coefficients of a table's own columns: scaling undone, categories by name."""

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from colonnade.data.encoders import DateEncoder, Encoder, NumberEncoder, OneHotEncoder, OrdinalEncoder
from colonnade.data.prepared import PreparedColumn
from colonnade.exports.affine import Matrix

PREPARED = "prepared"


@dataclass(frozen=True)
class Term:
    """One summand of a linear model: a coefficient for each output, times what `of` says of a row."""

    column: str  # of the table
    of: str  # what is multiplied: "value", "is Oslo", "is missing", …
    coefficients: tuple[float, ...]
    gap: float | None = None  # what a gap counts as, in the units of `of`


def terms_of(column: PreparedColumn, weights: Matrix) -> tuple[list[Term], Matrix]:
    """The terms of one column of a table, from the weights of what it was prepared to, [outputs of it, outputs].

    Also what undoing its scaling adds to the intercept.
    """
    return _terms(column.encoder, column, weights)


def prepared_terms(names: list[str], weights: Matrix) -> list[Term]:
    """The same of columns that were prepared elsewhere: in the units in which the training had them."""
    return [Term(name, PREPARED, _row(one)) for name, one in zip(names, weights, strict=True)]


@singledispatch
def _terms(encoder: Encoder, column: PreparedColumn, weights: Matrix) -> tuple[list[Term], Matrix]:
    """Buckets, words and what a user's own class makes: as prepared, under the names of the prepared columns."""
    names = [name.removeprefix(column.name).strip() or PREPARED for name in column.outputs]
    return [Term(column.name, name, _row(one)) for name, one in zip(names, weights, strict=True)], _nothing(weights)


@_terms.register
def _(encoder: NumberEncoder, column: PreparedColumn, weights: Matrix) -> tuple[list[Term], Matrix]:
    own, shift = _unscaled(encoder, weights[0])
    terms = [Term(column.name, _bent(encoder, "value"), _row(own), encoder.fill)]
    if encoder.indicator:
        terms.append(Term(column.name, "is missing", _row(weights[1])))
    return terms, shift


@_terms.register
def _(encoder: OneHotEncoder, column: PreparedColumn, weights: Matrix) -> tuple[list[Term], Matrix]:
    words = [f"is {word}" for word in encoder.categories] + ["is unseen"] + (["is missing"] if encoder.gaps else [])
    return [Term(column.name, word, _row(one)) for word, one in zip(words, weights, strict=True)], _nothing(weights)


@_terms.register
def _(encoder: OrdinalEncoder, column: PreparedColumn, weights: Matrix) -> tuple[list[Term], Matrix]:
    """What each category adds; one that is unseen or missing adds nothing."""
    places = (np.arange(len(encoder.categories)) - encoder.mean) / encoder.deviation
    terms = [
        Term(column.name, f"is {word}", _row(place * weights[0]))
        for word, place in zip(encoder.categories, places, strict=True)
    ]
    return terms, _nothing(weights)


@_terms.register
def _(encoder: DateEncoder, column: PreparedColumn, weights: Matrix) -> tuple[list[Term], Matrix]:
    names = [name.removeprefix(column.name).strip() for name in column.outputs]
    terms = [Term(column.name, name, _row(one)) for name, one in zip(names, weights, strict=True)]
    if "days" not in encoder.parts:
        return terms, _nothing(weights)
    own, shift = _unscaled(encoder.days, weights[0])
    terms[0] = Term(column.name, _bent(encoder.days, "days since 1970-01-01"), _row(own), encoder.days.fill)
    return terms, shift


def _unscaled(encoder: NumberEncoder, weights: Matrix) -> tuple[Matrix, Matrix]:
    """w (x − mean)/deviation = (w/deviation) x − w mean/deviation; of a column that was constant, nothing."""
    if encoder.constant:
        return np.zeros_like(weights), np.zeros_like(weights)
    own = weights / encoder.deviation
    return own, -own * encoder.mean


def _bent(encoder: NumberEncoder, of: str) -> str:
    if encoder.low is not None or encoder.high is not None:
        of = f"{of} cut to {encoder.low:g} … {encoder.high:g}"
    return f"sign · log(1 + |{of}|)" if encoder.log else of


def _nothing(weights: Matrix) -> Matrix:
    return np.zeros(weights.shape[1])


def _row(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in np.atleast_1d(values))
