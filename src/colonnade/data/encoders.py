"""How one column becomes numbers: one class per way, fitted on train rows alone.

What a fitted encoder has learnt is plain values (`to_values`), so that it can be kept beside a model and applied to new
rows in the same way; nothing is pickled. A class of the user's own has `fit`, `transform`, `to_values` and the class
method `from_values`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np

from colonnade.data.cells import Words
from colonnade.data.ids import Array
from colonnade.data.images import ImageEncoder
from colonnade.data.settings import ColumnSettings
from colonnade.data.texts import TokenEncoder
from colonnade.errors import DataError, SettingsError

HASHED_BUCKETS = 64
TEXT_BUCKETS = 256
ROWS_AT_ONCE = 1 << 16
_AT_ONCE = 1 << 14
"""Rows of numbers that fit into a core's cache while several things are done to them."""
_ONE_THREAD = 1 << 13
"""OpenBLAS begins to share a product of two vectors out among threads at 10,000 numbers."""


class Encoder(Protocol):
    """One column, fitted."""

    KIND: ClassVar[str]

    def names(self, column: str) -> tuple[str, ...]:
        """One name per column that comes out."""
        ...

    def encode(self, values: Any, out: Array) -> None:
        """Fill `out`, float32 [rows, as many as names], which holds zeros; what is too large becomes infinite."""
        ...


@dataclass(frozen=True)
class NumberEncoder:
    """Cut at quantiles, taken by their logarithm, gaps filled, standardised: in this order, each if asked for."""

    KIND: ClassVar[str] = "number"

    mean: float = 0.0
    deviation: float = 1.0
    fill: float = 0.0  # in the place of a gap, before it is standardised
    indicator: bool = False  # whether one more column tells where gaps were
    low: float | None = None
    high: float | None = None
    log: bool = False
    constant: bool = False  # in the train rows: then 0 throughout

    @classmethod
    def fit(
        cls, train: Array, asked: ColumnSettings, missing: str, standardise: bool, is_full: bool = False
    ) -> NumberEncoder:
        """`is_full`: no number is known to be missing."""
        values = train.astype(np.float64, copy=False)
        has_gaps = not (is_full or all_finite(values))
        values = values.copy() if has_gaps or asked.clip else values  # which is changed then
        gaps = np.isnan(values) if has_gaps else np.zeros(0, dtype=bool)
        low = high = None
        if asked.clip:
            low, high = (float(edge) for edge in np.nanquantile(values, asked.clip))
        first = cls(low=low, high=high, log=asked.log)
        values = first._bent(values)
        fill = 0.0
        if has_gaps:
            fill = float(np.nanmean(values) if missing == "mean" else np.nanmedian(values))
            values[gaps] = fill
        if not standardise:
            fill = fill if has_gaps else float(np.median(values))
            return cls(0.0, 1.0, fill, has_gaps and missing == "indicator", low, high, asked.log)
        mean = float(values.mean())
        deviation = float(np.sqrt(_squares(values, mean) / len(values)))
        # Judged by range: rounding gives a constant 0.1 a tiny deviation, which would blow up test rows.
        constant = deviation == 0 or all_alike(values)
        return cls(
            mean,
            1.0 if constant else deviation,
            fill if has_gaps else mean,
            has_gaps and missing == "indicator",
            low,
            high,
            asked.log,
            constant,
        )

    def names(self, column: str) -> tuple[str, ...]:
        return (column, f"{column} is missing") if self.indicator else (column,)

    def encode(self, values: Array, out: Array) -> None:
        self.write(values, [out[start : start + _AT_ONCE, 0] for start in range(0, len(out), _AT_ONCE)])
        if self.indicator:
            out[:, 1] = np.isnan(values) if values.dtype.kind == "f" else 0.0

    def write(self, values: Array, parts: Sequence[Array]) -> bool:
        """The numbers themselves, into float32 arrays one after the other; whether all are finite there."""
        if self.constant:
            for part in parts:
                part[:] = 0.0
            return True
        return self.write_plain(values, parts) or self._write(values, parts, self._filled)

    def write_plain(self, values: Array, parts: Sequence[Array]) -> bool:
        """The same of numbers that are only to be standardised; if one of them is none, False, and parts hold anything.

        What is not finite before is not finite after it, so that nobody has to look at the numbers for that.
        """
        if self.constant or self.log or self.low is not None or self.high is not None:
            return False
        return self._write(values, parts, self._centred)

    def _write(self, values: Array, parts: Sequence[Array], to: Callable[[Array, Array], object]) -> bool:
        scratch = np.empty(max((len(part) for part in parts), default=0))
        start = 0
        fits = True
        with np.errstate(over="ignore", invalid="ignore"):
            for part in parts:
                some, bent = values[start : start + len(part)], scratch[: len(part)]
                start += len(part)
                to(some, bent)
                np.divide(bent, self.deviation, out=part, casting="same_kind")
                fits = fits and (bool(np.isfinite(np.add.reduce(part))) or bool(np.isfinite(part).all()))
        return fits

    def _centred(self, values: Array, out: Array) -> None:
        np.subtract(values, self.mean, out=out, dtype=np.float64)

    def _filled(self, values: Array, out: Array) -> None:
        out[:] = self._bent(values.astype(np.float64))
        out[np.isnan(values)] = self.fill
        out -= self.mean

    def _bent(self, values: Array) -> Array:
        """Cut and taken by its logarithm; changes the array."""
        if self.low is not None or self.high is not None:
            np.clip(values, self.low, self.high, out=values)
        if self.log:
            values = np.sign(values) * np.log1p(np.abs(values))
        return values


def all_finite(values: Array) -> bool:
    """Whether no value is missing or infinite; a sum tells, in one quick pass."""
    if values.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum(dtype=np.float64))) or bool(np.isfinite(values).all())


def _squares(values: Array, mean: float) -> float:
    """Σ (x − mean)².

    In pieces so short that BLAS takes each in one thread: threads wait for one another at more cost than such a sum is
    worth, and would make the last digit depend on the number of cores.
    """
    total = 0.0
    for start in range(0, len(values), _ONE_THREAD):
        far = values[start : start + _ONE_THREAD] - mean
        total += float(far @ far)
    return total


def all_alike(values: Array) -> bool:
    """Found out as soon as one differs."""
    return all((values[start : start + _AT_ONCE] == values[0]).all() for start in range(0, len(values), _AT_ONCE))


@dataclass(frozen=True)
class OneHotEncoder:
    """A column per category, one for those that are rare or unseen, and one for gaps if the train rows have any."""

    KIND: ClassVar[str] = "one-hot"

    categories: tuple[str, ...]
    gaps: bool = False

    @classmethod
    def fit(cls, train: Words, asked: ColumnSettings) -> OneHotEncoder:
        counts, words = train.counts(), train.words.to_pylist()
        # In few rows every category is rare.
        least = max(1, min(asked.rare, len(train.codes) // 100))
        often = sorted(word for word, count in zip(words, counts, strict=True) if count >= least)
        return cls(asked.categories or tuple(often), bool((train.codes < 0).any()))

    def names(self, column: str) -> tuple[str, ...]:
        kept = [f"{column}={category}" for category in self.categories]
        return (*kept, f"{column} is unseen", *([f"{column} is missing"] if self.gaps else []))

    def encode(self, values: Words, out: Array) -> None:
        place = {category: j for j, category in enumerate(self.categories)}
        unseen = len(self.categories)
        columns = [place.get(word, unseen) for word in values.words.to_pylist()]
        chosen = np.array([*columns, unseen + 1], dtype=np.int64)[values.codes]
        rows = np.arange(len(chosen)) if self.gaps else np.flatnonzero(values.codes >= 0)
        out[rows, chosen[rows]] = 1.0


@dataclass(frozen=True)
class OrdinalEncoder:
    """The place of a category in an order, standardised; what is unseen or missing is 0, the middle."""

    KIND: ClassVar[str] = "ordinal"

    categories: tuple[str, ...]
    mean: float = 0.0
    deviation: float = 1.0

    @classmethod
    def fit(cls, train: Words, asked: ColumnSettings, standardise: bool) -> OrdinalEncoder:
        counts, words = train.counts(), train.words.to_pylist()
        seen = sorted((word for word, count in zip(words, counts, strict=True) if count), key=_by_number)
        plain = cls(asked.categories or tuple(seen))
        places = plain._places(train)
        known = places[~np.isnan(places)]
        if not standardise or not len(known):
            return plain
        return cls(plain.categories, float(known.mean()), float(known.std()) or 1.0)

    def names(self, column: str) -> tuple[str, ...]:
        return (column,)

    def encode(self, values: Words, out: Array) -> None:
        places = (self._places(values) - self.mean) / self.deviation
        out[:, 0] = np.where(np.isnan(places), 0.0, places)

    def _places(self, values: Words) -> Array:
        place = {category: float(j) for j, category in enumerate(self.categories)}
        return np.array([*(place.get(word, np.nan) for word in values.words.to_pylist()), np.nan])[values.codes]


def _by_number(word: str) -> tuple[float, str]:
    try:
        return float(word), word
    except ValueError:
        return float("inf"), word


@dataclass(frozen=True)
class HashedEncoder:
    """A one in the bucket that a word's SHA-256 chooses, for columns of many categories; nothing is learnt."""

    KIND: ClassVar[str] = "hashed"

    buckets: int = HASHED_BUCKETS

    def names(self, column: str) -> tuple[str, ...]:
        return tuple(f"{column} bucket {1 + j}" for j in range(self.buckets))

    def encode(self, values: Words, out: Array) -> None:
        used = np.unique(values.codes)
        bucket = np.zeros(len(values.words) + 1, dtype=np.int64)
        for code in used[used >= 0].tolist():
            digest = hashlib.sha256(values.words[code].as_py().encode()).digest()
            bucket[code] = int.from_bytes(digest[:8], "big") % self.buckets
        rows = np.flatnonzero(values.codes >= 0)
        out[rows, bucket[values.codes[rows]]] = 1.0


@dataclass(frozen=True)
class TextEncoder:
    """Words in hashed buckets, counted, each row of length 1 (scikit-learn's HashingVectorizer); nothing is learnt."""

    KIND: ClassVar[str] = "text"

    buckets: int = TEXT_BUCKETS

    def names(self, column: str) -> tuple[str, ...]:
        return tuple(f"{column} words {1 + j}" for j in range(self.buckets))

    def encode(self, values: Words, out: Array) -> None:
        from sklearn.feature_extraction.text import HashingVectorizer

        counter = HashingVectorizer(n_features=self.buckets, alternate_sign=False, dtype=np.float32)
        for start in range(0, len(values.codes), ROWS_AT_ONCE):
            codes = values.codes[start : start + ROWS_AT_ONCE]
            used, place = np.unique(codes, return_inverse=True)
            texts = ["" if code < 0 else values.words[code].as_py() for code in used.tolist()]
            out[start : start + len(codes)] = counter.transform(texts)[place.reshape(-1)].toarray()


@dataclass(frozen=True)
class DateEncoder:
    """Days, standardised; month, day, weekday and hour as points on a circle, so that December is near January."""

    KIND: ClassVar[str] = "date"

    parts: tuple[str, ...]
    days: NumberEncoder = field(default_factory=NumberEncoder)

    @classmethod
    def fit(cls, train: Array, asked: ColumnSettings, missing: str, standardise: bool) -> DateEncoder:
        known = train[~np.isnan(train)]
        parts = asked.parts or tuple(part for part in _CYCLES if len(np.unique(_turn(known, part))) > 1)
        if not asked.parts:
            parts = ("days", *parts)
        return cls(parts, NumberEncoder.fit(train, asked, missing, standardise))

    def names(self, column: str) -> tuple[str, ...]:
        turns = [f"{column} {part} {wave}" for part in self.parts if part != "days" for wave in ("sine", "cosine")]
        days = [f"{column} days"] if "days" in self.parts else []
        return (*days, *turns, *([f"{column} is missing"] if self.days.indicator else []))

    def encode(self, values: Array, out: Array) -> None:
        known = ~np.isnan(values)
        place = 0
        if "days" in self.parts:
            own = np.zeros((len(values), len(self.days.names(""))), dtype=np.float32)
            self.days.encode(values, own)
            out[:, 0], place = own[:, 0], 1
        for part in self.parts:
            if part != "days":
                angle = 2 * np.pi * _turn(values[known], part)
                out[known, place], out[known, place + 1] = np.sin(angle), np.cos(angle)
                place += 2
        if self.days.indicator:
            out[:, place] = ~known


_CYCLES = ("month", "day", "weekday", "hour")


def _turn(days: Array, part: str) -> Array:
    """How far each date is in its year, month, week or day, from 0 to below 1."""
    whole = np.floor(days).astype(np.int64).astype("datetime64[D]")
    if part == "hour":
        return np.floor((days - np.floor(days)) * 24 + 1e-6) / 24
    if part == "weekday":
        return np.asarray((whole.astype(np.int64) + 3) % 7) / 7
    months = whole.astype("datetime64[M]")
    if part == "month":
        return np.asarray(months.astype(np.int64) % 12) / 12
    return np.asarray((whole - months.astype("datetime64[D]")).astype(np.int64)) / 31


class OwnEncoder:
    """A class of the user's own, by the name under which it can be imported, `module:Class`."""

    KIND: ClassVar[str] = "own"

    def __init__(self, path: str, encoder: Any, width: int) -> None:
        self.path = path
        self._encoder = encoder
        self._width = width

    @classmethod
    def fit(cls, path: str, train: list[Any]) -> OwnEncoder:
        encoder = own_class(path)()
        encoder.fit(train)
        fitted = cls(path, encoder, _matrix(encoder, train[:1], path).shape[1])
        fitted.to_values()  # what cannot be kept is refused before the training
        return fitted

    def names(self, column: str) -> tuple[str, ...]:
        return tuple(f"{column} {1 + j}" for j in range(self._width))

    def encode(self, values: list[Any], out: Array) -> None:
        made = _matrix(self._encoder, values, self.path)
        if made.shape != out.shape:
            raise DataError(f"{self.path} gives an array of shape {list(made.shape)}, not of {list(out.shape)}.")
        out[:] = made

    def to_values(self) -> dict[str, Any]:
        learnt = self._encoder.to_values()
        try:
            learnt = json.loads(json.dumps(learnt, allow_nan=False))
        except (TypeError, ValueError):
            raise DataError(f"{self.path}.to_values() must give plain values that JSON can hold.") from None
        return {"kind": self.KIND, "class": self.path, "width": self._width, "learnt": learnt}

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> OwnEncoder:
        return cls(values["class"], own_class(values["class"]).from_values(values["learnt"]), int(values["width"]))


def own_class(path: str) -> Any:
    """The class that `module:Class` names, with the methods that it needs."""
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        raise SettingsError(
            f"The class {path!r} cannot be imported: install its module, or name its folder in PYTHONPATH."
        ) from None
    lacking = [method for method in ("fit", "transform", "to_values", "from_values") if not hasattr(found, method)]
    if lacking:
        raise SettingsError(f"The class {path!r} has no {', '.join(lacking)}: an encoder needs all four methods.")
    return found


def _matrix(encoder: Any, values: list[Any], path: str) -> Array:
    made = np.asarray(encoder.transform(values), dtype=np.float64)
    if made.ndim == 1:
        made = made[:, None]
    if made.ndim != 2 or len(made) != len(values):
        raise DataError(f"{path}.transform gives an array of shape {list(made.shape)} for {len(values)} rows.")
    return made


_ENCODERS: dict[str, Any] = {
    one.KIND: one
    for one in (
        NumberEncoder,
        OneHotEncoder,
        OrdinalEncoder,
        HashedEncoder,
        TextEncoder,
        DateEncoder,
        ImageEncoder,
        TokenEncoder,
    )
}


def encoder_values(encoder: Encoder) -> dict[str, Any]:
    """What a fitted encoder has learnt, as plain values."""
    if isinstance(encoder, OwnEncoder):
        return encoder.to_values()
    return {"kind": encoder.KIND, **asdict(encoder)}  # type: ignore[call-overload]


def encoder_of(values: Mapping[str, Any]) -> Encoder:
    """The encoder that gave such values. Raises ValueError for what is none."""
    rest = {name: value for name, value in values.items() if name != "kind"}
    kind = values.get("kind")
    if kind == OwnEncoder.KIND:
        return OwnEncoder.from_values(values)
    if kind not in _ENCODERS:
        raise ValueError(f"no encoder {kind!r}")
    try:
        made: Encoder = msgspec.convert(rest, _ENCODERS[kind])
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    return made
