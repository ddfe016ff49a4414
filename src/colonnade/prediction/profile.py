"""How the columns that a model was trained on are distributed, and how far other rows are from that.

A profile lies with the model of its owner and tells nobody else anything. It holds no row: of a number its quantiles,
with at least ten rows between two of them; of categories their shares. Both are of columns as they are after
preparation. Too few rows have no profile.

Two distances: the population stability index Σ (q − p) ln(q / p) over bins, which is 0 for equal shares, and for
numbers the Kolmogorov–Smirnov distance, the largest difference of the two distribution functions. By chance alone the
index of n and m rows of one distribution is (bins − 1)(1/n + 1/m) on average (B. Yurdakul, "Statistical Properties of
Population Stability Index", 2018).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.data.encoders import HashedEncoder, OneHotEncoder, TextEncoder
from colonnade.data.prepared import Preparation

LEAST_ROWS = 100
"""Fewer rows have no profile, and are not compared with one."""
MOST_COLUMNS = 4096
_MOST_ROWS = 50_000  # that a profile is made from, evenly chosen
_ROWS_BETWEEN = 10
_QUANTILES = 99
_BINS = 10
_DIGITS = 4
MOVED, DRIFTED = 0.1, 0.25
"""The usual reading of the index, beyond chance: from the first on a column has moved, from the second on drifted."""


class ColumnProfile(msgspec.Struct, frozen=True):
    """One column: quantiles of a number, or the shares of its categories."""

    name: str
    outputs: list[str]  # of the prepared columns that it has become
    quantiles: list[float] = []  # evenly spaced, without the least and the largest value
    shares: list[float] = []  # of the outputs, for categories


class OutputProfile(msgspec.Struct, frozen=True):
    """What the joint model said of test rows, which the label party alone knows."""

    rows: int
    quantiles: list[float]


class Profile(msgspec.Struct, frozen=True):
    """What `profile.json` holds."""

    rows: int
    columns: list[ColumnProfile]
    outputs: OutputProfile | None = None


class Drift(msgspec.Struct, frozen=True):
    """How far one column of some rows is from its profile."""

    name: str
    index: float  # the population stability index
    chance: float  # what of it chance alone gives
    distance: float | None  # Kolmogorov–Smirnov, of numbers

    @property
    def verdict(self) -> str:
        beyond = self.index - self.chance
        return "drifted" if beyond >= DRIFTED else "moved" if beyond >= MOVED else "as before"


def profile_of(columns: torch.Tensor, names: Sequence[str], preparation: Preparation | None = None) -> Profile | None:
    """Of prepared rows; None if there are too few, or they are no table."""
    if preparation is not None and preparation.tells_absence:
        columns = columns[columns[:, -1] == 0]  # rows that this party holds
    rows = columns.shape[0]
    if rows < LEAST_ROWS or columns.ndim != 2 or not 0 < columns.shape[1] <= MOST_COLUMNS:
        return None
    values = columns[:: -(-rows // _MOST_ROWS)].double().numpy()
    found, place = [], 0
    for name, outputs, is_shares in _groups(names, preparation):
        part = values[:, place : place + len(outputs)]
        place += len(outputs)
        if is_shares:
            shares = [round(float(share), _DIGITS) for share in np.abs(part).mean(axis=0)]
            found.append(ColumnProfile(name, [*outputs], shares=shares))
            continue
        for output, column in zip(outputs, part.T, strict=True):
            found.append(ColumnProfile(output, [output], quantiles=quantiles_of(column)))
    return Profile(rows, found)


def quantiles_of(values: NDArray[np.float64]) -> list[float]:
    """Evenly spaced, rounded, so far apart that ten values lie between two."""
    count = max(1, min(_QUANTILES, len(values) // _ROWS_BETWEEN - 1))
    levels = np.arange(1, count + 1) / (count + 1)
    return [_rounded(float(one)) for one in np.quantile(values, levels)]


def drift_of(profile: Profile, columns: torch.Tensor) -> list[Drift]:
    """Of prepared rows with the same columns."""
    values = columns.double().numpy()
    found, place = [], 0
    for column in profile.columns:
        part = values[:, place : place + len(column.outputs)]
        place += len(column.outputs)
        if column.shares:
            now, before = np.abs(part).mean(axis=0), np.array(column.shares)
            found.append(_drift(column.name, _parted(before), _parted(now), profile.rows, len(part)))
        else:
            found.append(drift_of_numbers(column.name, column.quantiles, part[:, 0], profile.rows))
    return found


def drift_of_numbers(name: str, quantiles: Sequence[float], values: NDArray[np.float64], rows: int) -> Drift:
    """Of one number: the index over about ten bins, and the largest difference of the distribution functions."""
    known, ordered = np.array(quantiles), np.sort(values)
    points, times = np.unique(known, return_counts=True)
    # Quantiles are rounded: a value that one of them stands for may lie a little above it.
    rounded, quantile = _half_a_digit(points), 1 / (len(known) + 1)
    now = np.searchsorted(ordered, points + rounded, "right") / len(ordered)
    # Of the profile: how many of the quantiles are at most a point, each standing for as many rows as any other. Where
    # many rows have that very value, as of counts, it may be up to one quantile more, and nobody knows whether any row
    # lies above the last. What may be as it is now has not moved.
    least = np.searchsorted(known, points, "right") * quantile
    of_many = (times > 1) | (now - np.searchsorted(ordered, points - rounded) / len(ordered) > quantile / 4)
    most = np.where(of_many, np.append(least[:-1] + quantile, 1.0), least)
    then = np.clip(now, least, most)
    chosen = np.isin(points, known[:: max(1, (len(known) + 1) // _BINS)])
    before, after = (np.diff([0.0, *shares[chosen], 1.0]) for shares in (then, now))
    found = _drift(name, before, after, rows, len(values))
    return Drift(name, found.index, found.chance, float(np.abs(now - then).max(initial=0.0)))


def _half_a_digit(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far each may have been rounded."""
    sizes = np.abs(values)
    exponents = np.floor(np.log10(sizes, out=np.zeros_like(sizes), where=sizes > 0))
    return np.where(sizes > 0, 0.5001 * 10.0 ** (exponents + 1 - _DIGITS), 0.0)


def _drift(name: str, before: NDArray[Any], now: NDArray[Any], rows: int, rows_now: int) -> Drift:
    bins = len(before)
    # Half a row in every bin, as for counts: an empty one would be infinitely far.
    p = (before * rows + 0.5) / (rows + 0.5 * bins)
    q = (now * rows_now + 0.5) / (rows_now + 0.5 * bins)
    chance = (bins - 1) * (1 / rows + 1 / rows_now)
    return Drift(name, float(((q - p) * np.log(q / p)).sum()), float(chance), None)


def _parted(shares: NDArray[Any]) -> NDArray[Any]:
    """Shares that add up to 1, with one for rows in none of them."""
    rest = max(0.0, 1.0 - float(shares.sum()))
    whole: NDArray[Any] = np.append(shares, rest)
    return np.asarray(whole / whole.sum())


def _groups(names: Sequence[str], preparation: Preparation | None) -> list[tuple[str, Sequence[str], bool]]:
    """Columns, what each has become, and whether that is shares of categories."""
    if preparation is None:
        return [(str(name), [str(name)], False) for name in names]
    return [
        (one.name, one.outputs, isinstance(one.encoder, OneHotEncoder | HashedEncoder | TextEncoder))
        for one in preparation.columns
    ]


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def as_values(drifts: Sequence[Drift]) -> list[Mapping[str, Any]]:
    """For JSON."""
    return [
        {"column": one.name, "index": one.index, "chance": one.chance, "distance": one.distance, "verdict": one.verdict}
        for one in drifts
    ]
