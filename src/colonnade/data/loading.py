"""The ways in: a configuration, frames or files, arrays, or a data set's name; out comes `FederatedData`.

There are two roads. Parties' own tables are first matched row by row; rows that lie joined in one place are
first cut into columns. Both then prepare each party's columns on their own.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from colonnade.data import partition
from colonnade.data.alignment import Rows, row_digest, set_apart, split_rows
from colonnade.data.datasets import JoinedData, read_dataset, synthetic_sparse_rows
from colonnade.data.federated import FederatedData, OwnData, PartyColumns, first_to_validate
from colonnade.data.ids import Array
from colonnade.data.own_tables import load_own_table, load_tables, tables_of_frames
from colonnade.data.preparation import (
    numeric_matrix,
    prepare_image,
    prepare_labels,
    prepare_series,
    prepare_sparse,
    prepare_table,
)
from colonnade.data.prepared import Preparation
from colonnade.data.settings import DEFAULT_TEST_FRACTION, ColumnSettings, DataSettings, PartyData, data_settings
from colonnade.data.sources import Source, is_pandas
from colonnade.data.sparse import is_sparse
from colonnade.data.weights import checked_weights
from colonnade.errors import DataError, SettingsError, unknown_name
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    import pandas as pd
    from scipy import sparse
else:
    pd, sparse = on_demand("pandas"), on_demand("scipy.sparse")

# For each dimension after the first, which part of it a party holds.
Share = tuple[slice | list[int], ...]


def load(
    data: DataSettings,
    parties: Mapping[str, PartyData],
    label_party: str,
    base: Path,
    known: Mapping[str, Preparation] | None = None,
) -> FederatedData:
    """What a configuration asks for; relative files are relative to the folder `base`.

    `known`: what parties have learnt of the columns of their tables before, to be applied to them again.
    """
    if data.set:
        return _load_set(data, parties, label_party)
    return load_tables(data, parties, label_party, base, known)


def from_frames(
    frames: Mapping[str, Source],
    *,
    label_party: str,
    label: str,
    id: str = "id",
    columns: Mapping[str, Sequence[str]] | None = None,
    prepare: Mapping[str, Mapping[str, ColumnSettings]] | None = None,
    known: Mapping[str, Preparation] | None = None,
    **settings: Any,
) -> FederatedData:
    """Each party's own frame (pandas, polars, Arrow) or file, matched by id; `settings` are fields of `DataSettings`.

    `prepare` says, for each party and column, how the column is prepared; what it leaves out is found from the train
    rows. `known` is what was learnt before, of the columns that it knows (`model.parties["shop"].preparation`).

    >>> bank = pd.DataFrame({"id": [1, 2, 3, 4], "income": [10, 20, 30, 40], "defaulted": [0, 1, 0, 1]})
    >>> shop = pd.DataFrame({"id": [4, 3, 2, 1], "orders": [9, 7, 5, 3], "returns": [0, 0, 1, 2]})
    >>> frames = {"bank": bank, "shop": shop}
    >>> from_frames(frames, label_party="bank", label="defaulted", test_fraction=0).columns
    {'shop': PartyColumns(train=[4, 2], test=[0, 2]), 'bank': PartyColumns(train=[4, 1], test=[0, 1])}
    """
    data = data_settings({"id": id, "label": label, **settings})
    for party in (*(columns or {}), *(prepare or {})):
        if party not in frames:
            raise unknown_name("party among the frames", party, frames)
    own = {
        party: PartyData(columns=tuple((columns or {}).get(party, ())), prepare=(prepare or {}).get(party, {}))
        for party in frames
    }
    made = tables_of_frames(frames, own, data, label_party, known)
    for note in made.notes:
        warnings.warn(note, stacklevel=2)
    return made


def from_arrays(
    X: Array | sparse.csr_array | pd.DataFrame,
    y: Array | pd.Series,
    *,
    parties: int = 4,
    label_party: str = "label",
    X_test: Array | sparse.csr_array | pd.DataFrame | None = None,
    y_test: Array | pd.Series | None = None,
    names: Sequence[str] | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    name: str = "arrays",
    **settings: Any,
) -> FederatedData:
    """Rows that lie in one place, shared out: a table [n, d], or images [n, h, w] or [n, channels, h, w].

    A table may be sparse, in any of SciPy's forms; the parties' columns then are, too.
    `names` are the columns' names, and `columns` each party's choice of them for split = "named-columns" (the
    parties are then those that `columns` names). `settings` are fields of `DataSettings`, `split` among them, and
    `sample_weight`: for each row of X what it weighs in the loss, known to the label party alone.

    >>> from_arrays(np.eye(6), np.arange(6) % 2, parties=2, test_fraction=0.5).columns
    {'party1': PartyColumns(train=[3, 3], test=[3, 3]), 'party2': PartyColumns(train=[3, 3], test=[3, 3])}
    """
    sample_weight = settings.pop("sample_weight", None)
    data = data_settings({"parties": 0 if columns else parties, **settings})
    if (X_test is None) != (y_test is None):
        raise SettingsError("Only one of X_test and y_test is given: give both, or neither.")
    if X_test is not None and data.test_fraction is not None:
        raise SettingsError("Both X_test and test_fraction are given: leave one of them out.")
    array = _feature_array(X, "X")
    test = None if X_test is None else _feature_array(X_test, "X_test")
    if names is None and is_pandas(X):
        names = [str(column) for column in X.columns]
    if names is None and array.ndim == 2:
        names = [f"x{1 + j}" for j in range(array.shape[1])]
    if names is not None and (array.ndim != 2 or len(names) != array.shape[1]):
        raise DataError(f"There are {len(names)} names for X of shape {list(array.shape)}: give one per column.")
    if test is not None and test.shape[1:] != array.shape[1:]:
        raise DataError(f"X_test has shape {list(test.shape)}, X has {list(array.shape)}: rows must look alike.")
    if test is not None and is_sparse(test) != is_sparse(array):
        raise DataError("Only one of X and X_test is sparse: give both in the same form.")
    joined = JoinedData(
        name,
        array,
        _label_array(y, array.shape[0], "y"),
        tuple(names or ()),
        X_test=test,
        y_test=None if test is None or y_test is None else _label_array(y_test, test.shape[0], "y_test"),
        weights=None if sample_weight is None else checked_weights(sample_weight, len(y), "sample_weight").numpy(),
    )
    return _from_joined(joined, data, label_party, *_shareholders(data, label_party, columns or {}))


def dataset(
    name: str,
    *,
    split: str = "equal-columns",
    parties: int = 4,
    label_party: str = "label",
    columns: Mapping[str, Sequence[str]] | None = None,
    **settings: Any,
) -> FederatedData:
    """A data set by name, shared out; `names()` lists them. `settings` are fields of `DataSettings`.

    >>> dataset("iris", parties=2).columns["party1"]
    PartyColumns(train=[112, 2], test=[38, 2])
    """
    data = data_settings({"set": name, "split": split, "parties": 0 if columns else parties, **settings})
    own = {party: PartyData(columns=tuple(wanted)) for party, wanted in (columns or {}).items()}
    return load(data, own, label_party, Path())


def synthetic_sparse(
    rows: int = 20_000,
    columns: int = 2_000,
    nonzeros_per_row: int = 20,
    parties: int = 4,
    seed: int = 0,
    *,
    label_party: str = "label",
    **settings: Any,
) -> FederatedData:
    """Generated sparse rows with two classes, shared out; `seed` draws them and shuffles them.

    Columns are as unequally popular as words are, but spread so that each party holds about as many non-zeros. The
    model behind the labels gets 92 to 94 % of them right; how near another comes depends on how many rows it sees.

    >>> synthetic_sparse(rows=200, columns=100, nonzeros_per_row=5, parties=2).columns["party1"]
    PartyColumns(train=[150, 50], test=[50, 50], 0.0513 of train non-zero)
    """
    data = data_settings({"parties": parties, "seed": seed, **settings})
    shareholders = _shareholders(data, label_party, {})
    return _from_joined(synthetic_sparse_rows(rows, columns, nonzeros_per_row, seed), data, label_party, *shareholders)


def load_own(
    data: DataSettings,
    own: PartyData,
    party: str,
    parties: Sequence[str],
    label_party: str,
    base: Path,
    *,
    labels_everywhere: bool = False,
    known: Preparation | None = None,
) -> OwnData:
    """One party's own part, from its own table alone: the rows follow from its ids, the label from its own column.

    A data set by name lies at every party as a whole; each then takes its own share of it.
    """
    if not data.set:
        return load_own_table(data, own, party, label_party, base, labels_everywhere=labels_everywhere, known=known)
    columns = {name: PartyData(columns=own.columns if name == party else ()) for name in parties}
    whole = load(data, columns if data.split == "named-columns" or not data.parties else {}, label_party, base)
    labels = whole.labels if party == label_party or labels_everywhere else None
    sizes = whole.rows, whole.test_rows, whole.validation_rows
    return OwnData(whole.columns.get(party), labels, whole.row_digest, *sizes)


def _load_set(data: DataSettings, parties: Mapping[str, PartyData], label_party: str) -> FederatedData:
    if data.label:
        raise SettingsError(
            f"data.label is set, but the data set {data.set!r} brings its own label: remove data.label."
        )
    for party, own in parties.items():
        if own.has_table:
            raise SettingsError(
                f"Party {party!r} names a file or a query, but data.set = {data.set!r} gives all parties their "
                "columns: remove one of the two."
            )
    if data.weight or any(own.weight for own in parties.values()):
        raise SettingsError(
            f"A weight column is named, and the data set {data.set!r} has none: remove `weight`. "
            "training.class_weight weighs classes."
        )
    shareholders = _shareholders(data, label_party, {party: own.columns for party, own in parties.items()})
    return _from_joined(read_dataset(data.set), data, label_party, *shareholders)


def _shareholders(
    data: DataSettings, label_party: str, columns: Mapping[str, Sequence[str]]
) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """The feature parties' names, and who asks for which columns by name."""
    wanted = {party: tuple(names) for party, names in columns.items() if names}
    feature_parties = [party for party in columns if party != label_party]
    if feature_parties and data.parties not in (0, len(feature_parties)):
        raise SettingsError(
            f"data.parties is {data.parties}, but {len(feature_parties)} feature parties are named: "
            "leave data.parties out, or make the two agree."
        )
    if not feature_parties:
        feature_parties = [f"party{1 + i}" for i in range(data.parties)]
    if not feature_parties:
        raise SettingsError("There is no feature party: set data.parties, or name each in its own section.")
    if label_party in feature_parties:
        raise SettingsError(f"The label party is called {label_party!r}, as a feature party is: rename it.")
    if data.split != "named-columns" and wanted:
        raise SettingsError(
            f"Party {next(iter(wanted))!r} asks for columns by name, but data.split is {data.split!r}: "
            "set data.split = 'named-columns', or remove `columns`."
        )
    if data.split == "named-columns":
        for party in feature_parties:
            if party not in wanted:
                raise SettingsError(f"data.split is 'named-columns', but party {party!r} names no `columns`.")
    return feature_parties, wanted


def _from_joined(
    joined: JoinedData,
    data: DataSettings,
    label_party: str,
    feature_parties: Sequence[str],
    wanted: Mapping[str, tuple[str, ...]],
) -> FederatedData:
    if data.rows == "any":
        raise SettingsError(
            "data.rows = 'any' is for tables of the parties' own, of which some lack rows; here all rows lie in one "
            "place. Leave data.rows out."
        )
    X, y, X_test, y_test, rows, digest = _joined_rows(joined, data)
    is_image = X.ndim == 4
    names: Sequence[str] = joined.names
    if is_image and data.split in ("equal-columns", "named-columns"):
        names = _pixel_names(X.shape[1:])
        X, X_test = X.reshape(len(X), -1), X_test.reshape(len(X_test), -1)
    shares = _shares(X.shape[1:], names, data, label_party, feature_parties, wanted)

    prepared: dict[str, PartyColumns] = {}
    for party, share in shares.items():
        # First the columns as a view, then the rows: one copy, of this party's block alone.
        own = X[:, *share]
        block = own[rows.train]
        block_test = own[rows.scored] if X_test is X else _below(own[rows.validation], X_test[:, *share][rows.test])
        if not is_image:
            dense = prepare_series if block.ndim == 3 else prepare_table
            prepare = prepare_sparse if is_sparse(block) else dense
            prepared[party] = prepare(
                block,
                block_test,
                _names_of(names, share[0]),
                party=party,
                standardise=data.standardise and not joined.scaled,
                missing=data.missing or joined.missing,
            )
        else:
            piece = _names_of(names, share[0]) if X.ndim == 2 else (_piece_name(share, X.shape[1:]),)
            prepared[party] = prepare_image(block, block_test, piece, party=party, standardise=data.standardise)
    y_scored = np.concatenate([y[rows.validation], y_test[rows.test]])
    labels = prepare_labels(
        y[rows.train], y_scored, task=data.task or joined.task, party=label_party, standardise=data.standardise
    )
    if joined.weights is not None:
        given = joined.weights[rows.train]
        labels = replace(labels, weights=checked_weights(given, len(rows.train), "sample_weight"))
    count = len(rows.validation)
    prepared = {party: first_to_validate(own, count) for party, own in prepared.items()}
    return FederatedData(joined.name, label_party, first_to_validate(labels, count), prepared, digest)


def _joined_rows(
    joined: JoinedData, data: DataSettings
) -> tuple[Array | sparse.csr_array, Array, Array | sparse.csr_array, Array, Rows, str]:
    """X, y, X_test, y_test, then which of their rows to use for what, and the digest of those."""
    X, y = joined.X, joined.y
    rows = X.shape[0]
    if joined.X_test is not None and joined.y_test is not None:
        if data.test_fraction is None:
            # Each part is shuffled in itself, so that max_rows takes a fair sample of both.
            train, _ = split_rows(rows, 0, seed=data.seed, max_rows=data.max_rows)
            test, _ = split_rows(joined.X_test.shape[0], 0, seed=data.seed, max_rows=data.max_rows)
            train, validation = set_apart(train, data.validation, joined.groups)
            digest = row_digest(train, test + rows, validation)
            return X, y, joined.X_test, joined.y_test, Rows(train, validation, test), digest
        whole = (X, joined.X_test)
        X = sparse.vstack(whole, format="csr") if is_sparse(X) else np.concatenate(whole)
        y = np.concatenate([y, joined.y_test])
    fraction = DEFAULT_TEST_FRACTION if data.test_fraction is None else data.test_fraction
    train, test = split_rows(X.shape[0], fraction, seed=data.seed, max_rows=data.max_rows, groups=joined.groups)
    train, validation = set_apart(train, data.validation, joined.groups)
    return X, y, X, y, Rows(train, validation, test), row_digest(train, test, validation)


def _below(first: Array | sparse.csr_array, second: Array | sparse.csr_array) -> Array | sparse.csr_array:
    if not first.shape[0]:
        return second
    return sparse.vstack((first, second), format="csr") if is_sparse(first) else np.concatenate((first, second))


def _shares(
    shape: tuple[int, ...],
    names: Sequence[str],
    data: DataSettings,
    label_party: str,
    feature_parties: Sequence[str],
    wanted: Mapping[str, tuple[str, ...]],
) -> dict[str, Share]:
    """Which part of a row each party holds, the label party (if it holds any) last."""
    count = len(feature_parties)
    if data.split == "named-columns":
        numbers = partition.named_columns(names, wanted)
        order = [*feature_parties, *(party for party in wanted if party == label_party)]
        return {party: (list(numbers[party]),) for party in order}
    if data.split == "equal-columns":
        holders = [*feature_parties, label_party] if data.label_party_columns else feature_parties
        blocks = partition.equal_columns(shape[0], len(holders))
        return {party: (block,) for party, block in zip(holders, blocks, strict=True)}
    if len(shape) != 3:
        raise SettingsError(
            f"data.split = {data.split!r} cuts images, but these rows have {shape[0]} columns: "
            "use 'equal-columns' or 'named-columns'."
        )
    planes, height, width = shape
    if data.split == "channels":
        blocks = partition.channels(planes, count)
        return {p: (block,) for p, block in zip(feature_parties, blocks, strict=True)}
    if data.split == "row-strips":
        strips = partition.row_strips(height, count)
        return {p: (slice(None), strip) for p, strip in zip(feature_parties, strips, strict=True)}
    pieces = partition.patches(height, width, count)
    return {p: (slice(None), *piece) for p, piece in zip(feature_parties, pieces, strict=True)}


def _names_of(names: Sequence[str], share: slice | list[int]) -> tuple[str, ...]:
    return tuple(names[share]) if isinstance(share, slice) else tuple(names[j] for j in share)


def _pixel_names(shape: tuple[int, ...]) -> list[str]:
    channels, height, width = shape
    where = [f"pixel_{row}_{column}" for row in range(height) for column in range(width)]
    return where if channels == 1 else [f"{name}_{channel}" for channel in range(channels) for name in where]


def _piece_name(share: Share, size: tuple[int, ...]) -> str:
    spans = [part.indices(length) for part, length in zip(share, size, strict=False) if isinstance(part, slice)]
    spans += [(0, length, 1) for length in size[len(spans) :]]
    where = [f"{start}:{stop}" for start, stop, _ in spans]
    some = "" if spans[0][:2] == (0, size[0]) else f" of channels[{where[0]}]"
    return f"pixels[{where[1]}, {where[2]}]{some}"


def _feature_array(X: Array | sparse.csr_array | pd.DataFrame, what: str) -> Array | sparse.csr_array:
    """A table [n, d], perhaps sparse, or images [n, channels, height, width], numeric."""
    if is_pandas(X):
        return numeric_matrix(X, party=what)
    array = X if is_sparse(X) else np.asarray(X)
    if array.ndim not in (2, 3, 4) or array.dtype.kind not in "biuf":
        raise DataError(
            f"{what} has shape {list(array.shape)} and type {array.dtype}; it must be a numeric array "
            "[n, d], [n, height, width] or [n, channels, height, width]."
        )
    if is_sparse(array) and array.ndim == 2:
        return sparse.csr_array(array)
    return array[:, None] if array.ndim == 3 else array


def _label_array(y: Array | pd.Series, rows: int, what: str) -> Array:
    array = np.asarray(y)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (rows,):
        raise DataError(f"{what} has shape {list(array.shape)}, but there are {rows} rows: give one label per row.")
    return array
