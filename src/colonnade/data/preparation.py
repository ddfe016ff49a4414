"""From raw columns and labels to tensors and sparse tables, each party on its own.

Means, deviations and maxima come from the party's own train rows; nothing about them is shared, and test rows
never shape them. Messages name parties, columns and counts, never a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from colonnade.data.federated import Labels, PartyColumns
from colonnade.data.ids import Array
from colonnade.data.sparse import MOST_NONZEROS, canonical, constant_columns, largest_by_column, scaled
from colonnade.errors import DataError
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_array
else:
    pd = on_demand("pandas")

# More distinct whole numbers than this are as likely amounts as classes, so the user has to say.
MOST_INFERRED_CLASSES = 100
NUMERIC_OBJECTS = ("boolean", "integer", "floating", "mixed-integer-float", "decimal", "empty")


def numeric_matrix(frame: pd.DataFrame, *, party: str) -> Array:
    """A frame's columns as float64 [n, d]: booleans become 0 and 1, gaps become NaN, text is refused."""
    matrix = np.empty((len(frame), len(frame.columns)), dtype=np.float64)
    strange: dict[str, str] = {}
    for j, name in enumerate(frame.columns):
        column = frame[name]
        numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column)
        if not numeric and not (
            column.dtype == object and pd.api.types.infer_dtype(column, skipna=True) in NUMERIC_OBJECTS
        ):
            strange[str(name)] = str(column.dtype)
            continue
        matrix[:, j] = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if strange:
        told = ", ".join(f"{name!r} ({kind})" for name, kind in strange.items())
        raise DataError(
            f"{party}: these columns are not numeric: {told}. Encode them as numbers, leave them out, or give each "
            "party's columns as a frame of its own to colonnade.from_frames, which takes text and dates."
        )
    return matrix


def prepare_table(
    train: Array, test: Array, names: Sequence[str], *, party: str, standardise: bool, missing: str
) -> PartyColumns:
    """One party's table as float32: gaps filled or refused, then (x − mean) / deviation of the train rows.

    A column that is constant in the train rows carries nothing to learn from and becomes 0. A party all of whose
    columns are constant has nothing to contribute and is refused.
    """
    train = train.astype(np.float64)
    test = test.astype(np.float64)
    _refuse_infinite(train, test, names, party)
    _treat_missing(train, test, names, party, missing)
    # Judged by range: rounding gives a constant 0.1 a tiny deviation, which would blow up test rows.
    constant = train.max(axis=0) == train.min(axis=0)
    _refuse_all_constant(constant, len(train), party)
    if standardise:
        deviation = train.std(axis=0)
        constant |= deviation == 0
        mean = train.mean(axis=0)
        deviation[constant] = 1.0
        for part in (train, test):
            part -= mean
            with np.errstate(over="ignore"):
                part /= deviation
            part[:, constant] = 0.0
        # A test row can lie astronomically far from a nearly constant train column.
        _refuse_infinite(train, test, names, party)
    return PartyColumns(_tensor(train), _tensor(test), tuple(names))


def prepare_sparse(
    train: csr_array, test: csr_array, names: Sequence[str], *, party: str, standardise: bool, missing: str
) -> PartyColumns:
    """One party's sparse table as float32: each column divided by its largest absolute value in the train rows.

    Nothing is subtracted, which would fill the zeros in. The largest value and not the deviation is the scale, because
    the deviation of a column with few non-zeros is tiny, and would make them huge. A column that is 0 in all train rows
    becomes 0 throughout.
    """
    nonzeros = train.nnz + test.nnz
    if nonzeros > MOST_NONZEROS:
        raise DataError(
            f"Party {party!r}: its sparse columns have {nonzeros} non-zeros; at most {MOST_NONZEROS} are possible: use "
            "fewer rows or columns."
        )
    parts = [canonical(part) for part in (train, test)]
    _refuse_sparse_gaps(parts, names, party, missing)
    _refuse_all_constant(constant_columns(parts[0]), train.shape[0], party)
    if standardise:
        scale = largest_by_column(parts[0])
        parts = [scaled(part, scale) for part in parts]
        # A test row can lie astronomically far from a train column of tiny values.
        _refuse_sparse_gaps(parts, names, party, missing)
    return PartyColumns(parts[0], parts[1], tuple(names))


def prepare_series(
    train: Array, test: Array, names: Sequence[str], *, party: str, standardise: bool, missing: str
) -> PartyColumns:
    """One party's series, [rows, columns, time], as float32 [rows, time, columns].

    A gap becomes the mean or the median of its column over all train rows and times; then each column is standardised
    by its mean and deviation over them. A column that is constant there becomes 0.
    """
    train, test = (part.astype(np.float64).transpose(0, 2, 1) for part in (train, test))
    flat, flat_test = (part.reshape(-1, part.shape[2]) for part in (train, test))
    shapes = train.shape, test.shape
    columns = prepare_table(flat, flat_test, names, party=party, standardise=standardise, missing=missing)
    assert isinstance(columns.train, torch.Tensor) and isinstance(columns.test, torch.Tensor)
    return replace(columns, train=columns.train.reshape(shapes[0]), test=columns.test.reshape(shapes[1]))


def prepare_image(train: Array, test: Array, names: Sequence[str], *, party: str, standardise: bool) -> PartyColumns:
    """One party's pixels as float32, scaled by the largest absolute value among its train rows.

    Pixels share one unit, so a scale for each pixel would only magnify the noise of dark corners.
    """
    for part in (train, test):
        if part.dtype.kind == "f" and not np.isfinite(part).all():
            raise DataError(
                f"Party {party!r}: its images have missing or infinite pixels: repair them or leave them out."
            )
    largest = max(abs(float(train.max())), abs(float(train.min())))
    pixels = [part.astype(np.float32) for part in (train, test)]
    if standardise and largest > 0:
        for part in pixels:
            part /= np.float32(largest)
    return PartyColumns(_tensor(pixels[0]), _tensor(pixels[1]), tuple(names))


def prepare_labels(
    train: Array | pd.Series, test: Array | pd.Series, *, task: str, party: str, standardise: bool = False
) -> Labels:
    """The labels as class indices or numbers; an empty `task` is inferred from them.

    Numbers are standardised by the train rows if asked for: a squared loss in the label's own unit has no scale that
    a learning rate could fit.

    Numbers that are not whole → regression; two classes → binary; up to 100 classes → multiclass.
    """
    values, absent, numeric = _plain_labels(train, test) or _any_labels(train, test)
    if absent:
        raise DataError(
            f"Party {party!r}: the label is missing in {absent} of the {len(values)} rows: remove those rows."
        )
    if numeric and not np.isfinite(values).all():
        raise DataError(f"Party {party!r}: some labels are infinite: remove those rows.")
    # Two values are two classes, whatever numbers they are.
    fractional = values.dtype.kind == "f" and bool((values != np.floor(values)).any()) and len(np.unique(values)) > 2
    if task == "regression" or (not task and fractional):
        return _numbers(values, len(train), numeric, party, standardise)
    if fractional:
        raise DataError(
            f"Party {party!r}: the task is {task}, but some labels are not whole numbers: "
            "set data.task = 'regression', or store class names."
        )
    return _classes(values, len(train), task, party)


def _plain_labels(train: Array | pd.Series, test: Array | pd.Series) -> tuple[Array, int, bool] | None:
    """As below, of arrays of one kind of numbers, for which pandas need not be loaded; nothing of other labels."""
    if not (isinstance(train, np.ndarray) and isinstance(test, np.ndarray)):
        return None
    if train.dtype != test.dtype or train.dtype.kind not in "iuf":
        return None
    values = np.concatenate([train, test])
    return values, int(np.isnan(values).sum()), True


def _any_labels(train: Array | pd.Series, test: Array | pd.Series) -> tuple[Array, int, bool]:
    """All labels, how many of them are missing, and whether they are numbers; else they are text."""
    whole = pd.concat([pd.Series(train), pd.Series(test)], ignore_index=True).infer_objects()
    absent = int(whole.isna().sum())
    if pd.api.types.is_numeric_dtype(whole) and not pd.api.types.is_complex_dtype(whole) and not absent:
        values: Array = np.asarray(whole.to_numpy())
        return (values.astype(np.int64) if values.dtype == bool else values), absent, True
    return np.array([str(value) for value in whole.tolist()], dtype=np.str_), absent, False


def _numbers(values: Array, rows: int, numeric: bool, party: str, standardise: bool) -> Labels:
    if not numeric:
        raise DataError(
            f"Party {party!r}: the task is regression, but the labels are text: give numbers, or leave data.task out."
        )
    if (np.abs(values) > np.finfo(np.float32).max).any():
        raise DataError(f"Party {party!r}: some labels do not fit a 32-bit float: rescale the label column.")
    mean, deviation = 0.0, 1.0
    if standardise:
        mean, deviation = float(values[:rows].mean()), float(values[:rows].std()) or 1.0
        values = (values - mean) / deviation
    values = values.astype(np.float32)  # a copy: pandas hands out arrays that may not be written to
    return Labels(_tensor(values[:rows]), _tensor(values[rows:]), "regression", (), mean, deviation)


def _classes(values: Array, rows: int, task: str, party: str) -> Labels:
    classes, index = np.unique(values, return_inverse=True)
    if not task and len(classes) > MOST_INFERRED_CLASSES:
        raise DataError(
            f"Party {party!r}: the labels have {len(classes)} distinct values, too many to guess the task: "
            "set data.task to 'multiclass' or 'regression'."
        )
    index = index.reshape(-1).astype(np.int64)
    seen = len(np.unique(index[:rows]))
    if seen < 2:
        raise DataError(
            f"Party {party!r}: the labels of the {rows} train rows are all of one class, so there is nothing "
            "to learn: check data.label, or use more rows."
        )
    if task == "binary" and len(classes) != 2:
        raise DataError(
            f"Party {party!r}: the task is binary, but the labels have {len(classes)} classes instead of two, such as "
            "0 and 1 or −1 and +1: set data.task = 'multiclass', or check data.label."
        )
    kind = task or ("binary" if len(classes) == 2 else "multiclass")
    return Labels(
        torch.from_numpy(index[:rows].copy()),
        torch.from_numpy(index[rows:].copy()),
        kind,
        tuple(classes.tolist()),
    )


def _refuse_infinite(train: Array, test: Array, names: Sequence[str], party: str) -> None:
    # What does not fit a 32-bit float would turn into infinity later.
    largest = float(np.finfo(np.float32).max)
    bad = np.logical_or((np.abs(train) > largest).any(axis=0), (np.abs(test) > largest).any(axis=0))
    if bad.any():
        raise DataError(
            f"Party {party!r}: {_some(names, bad)} hold infinite values, or values too large for a 32-bit "
            "float: repair those rows, or leave the columns out through `columns`."
        )


def _treat_missing(train: Array, test: Array, names: Sequence[str], party: str, missing: str) -> None:
    gaps_train, gaps_test = np.isnan(train), np.isnan(test)
    gaps = np.logical_or(gaps_train.any(axis=0), gaps_test.any(axis=0))
    if not gaps.any():
        return
    empty = np.asarray(gaps_train.all(axis=0))
    if empty.any():
        raise DataError(
            f"Party {party!r}: {_some(names, empty)} have no value in any train row: leave them out through `columns`."
        )
    if missing == "refuse":
        rows = int(gaps_train.any(axis=1).sum() + gaps_test.any(axis=1).sum())
        raise DataError(
            f"Party {party!r}: {rows} rows miss a value in {_some(names, gaps)}: "
            "fill them in, or set data.missing = 'mean' or 'median'."
        )
    middle = np.nanmedian(train, axis=0) if missing == "median" else np.nanmean(train, axis=0)
    for part, holes in ((train, gaps_train), (test, gaps_test)):
        part[holes] = np.broadcast_to(middle, part.shape)[holes]


def _refuse_sparse_gaps(parts: Sequence[csr_array], names: Sequence[str], party: str, missing: str) -> None:
    if all(np.isfinite(part.data).all() for part in parts):
        return
    gaps = sum(int(np.isnan(part.data).sum()) for part in parts)
    bad = np.zeros(len(names), dtype=bool)
    for part in parts:
        bad[part.indices[np.isnan(part.data) if gaps else np.isinf(part.data)]] = True
    if gaps:
        told = "" if missing == "refuse" else f", and data.missing = {missing!r} cannot fill gaps of sparse columns"
        raise DataError(
            f"Party {party!r}: {gaps} values are missing in {_some(names, bad)}{told}: fill them in, or "
            "leave the columns out through `columns`."
        )
    raise DataError(
        f"Party {party!r}: {_some(names, bad)} hold infinite values, or values too large for a 32-bit "
        "float: repair those rows, or leave the columns out through `columns`."
    )


def _refuse_all_constant(constant: Array, rows: int, party: str) -> None:
    if constant.all():
        raise DataError(
            f"Party {party!r}: each of its {len(constant)} columns is constant in the {rows} train rows, so it has "
            "nothing to contribute: give it other columns or more rows, or leave the party out."
        )


def _some(names: Sequence[str], chosen: Array) -> str:
    """At most five of the chosen columns, by name."""
    picked = [repr(names[j]) for j in np.flatnonzero(chosen).tolist()]
    more = f" and {len(picked) - 5} more" if len(picked) > 5 else ""
    return f"the columns {', '.join(picked[:5])}{more}"


def _tensor(values: Array) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
