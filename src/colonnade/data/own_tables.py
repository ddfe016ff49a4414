"""From parties' own tables to a federation: read, matched by id, divided into train and test, prepared.

Where one machine holds all tables they are matched here. A party of a network run reads its own alone, and its rows
follow from its ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from colonnade.alignment.results import Aligned, check_one_alignment, read_aligned
from colonnade.data import partition
from colonnade.data.absence import ABSENT, LABELS_OF_ALL_ROWS, NOWHERE, share_to_drop, with_absent
from colonnade.data.alignment import (
    ChosenIds,
    MatchedRows,
    Rows,
    all_rows,
    match_any,
    match_rows,
    row_digest,
    set_apart,
    split_rows,
)
from colonnade.data.arrow_arrays import as_numpy, no_texts
from colonnade.data.cells import is_text, words_of
from colonnade.data.federated import FederatedData, Labels, OwnData, PartyColumns, RowCounts, first_to_validate
from colonnade.data.fitting import prepare_own
from colonnade.data.id_columns import listed, read_id_columns
from colonnade.data.preparation import prepare_labels, prepare_sparse
from colonnade.data.prepared import Preparation
from colonnade.data.settings import DEFAULT_TEST_FRACTION, DataSettings, PartyData
from colonnade.data.sources import Source, Table, choose_columns, nearest, read_own, read_table, without_ids
from colonnade.data.weights import checked_weights
from colonnade.errors import DataError, SettingsError
from colonnade.on_demand import on_demand

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = on_demand("pyarrow")


def load_tables(
    data: DataSettings,
    parties: Mapping[str, PartyData],
    label_party: str,
    base: Path,
    known: Mapping[str, Preparation] | None = None,
) -> FederatedData:
    """The tables that parties' settings name. `known`: what parties have learnt of their columns before."""
    for party, own in parties.items():
        if not own.has_table:
            raise SettingsError(
                f"Party {party!r} names no file and no query, and data.set names no data set: give that party a "
                "`file` or an `sql`, or choose a data set for all with data.set."
            )
        if own.weight and party != label_party:
            raise _weight_elsewhere(party, own.weight, label_party)
    if label_party in parties and parties[label_party].weight:
        data = replace(data, weight=parties[label_party].weight)
    order = _order(list(parties), data, label_party)
    aligned = None
    if data.rows == "aligned":
        aligned = {party: alignment_of(party, parties[party], base) for party in order}
        check_one_alignment(aligned)
    tables = {
        party: read_own(own, base, party=party, id="" if aligned else own.id or data.id, label=data.label)
        for party, own in ((party, parties[party]) for party in order)
    }
    found = _federated("files", tables, parties, data, label_party, aligned, known)
    return replace(found, ids_of=partial(ids_together, data, parties, label_party, base))


def alignment_of(party: str, own: PartyData, base: Path) -> Aligned:
    """The rows that `colonnade align` has matched for a party."""
    if not own.aligned:
        raise SettingsError(
            f"data.rows is 'aligned', but party {party!r} does not say where its aligned rows are: run colonnade "
            "align, and name the folder that it wrote for this party with the setting `aligned`, or in a prediction "
            "with --aligned."
        )
    return read_aligned(base / own.aligned, party, own, base)


def _aligned_rows(aligned: Aligned, data: DataSettings) -> Rows:
    """The rows of an alignment's parts; where it has none to validate with, data.validation of the others."""
    train, validation, test = aligned.parted(data.max_rows)
    if not len(validation):
        train, validation = set_apart(train, data.validation)
    return Rows(train, validation, test)


def _counts(aligned: Aligned, rows: Rows) -> RowCounts:
    here = [int((part != NOWHERE).sum()) for part in (aligned.rows, *rows)]
    return RowCounts(aligned.held, here[0], sum(here[1:]))


def _without_columns(names: tuple[str, ...], aligned: Aligned) -> tuple[str, ...]:
    """Columns that rows were matched by are no columns to learn from."""
    return tuple(name for name in names if name not in aligned.columns)


def tables_of_frames(
    frames: Mapping[str, Source],
    own: Mapping[str, PartyData],
    data: DataSettings,
    label_party: str,
    known: Mapping[str, Preparation] | None = None,
) -> FederatedData:
    """The tables that somebody holds in Python, or as files."""
    order = _order(list(frames), data, label_party)
    tables = {
        party: read_table(frames[party], party=party, id=data.id, label=data.label, own=own[party]) for party in order
    }
    found = _federated("frames", tables, own, data, label_party, known=known)
    return replace(found, ids_of=partial(ids_in_frames, frames, own, data, label_party))


def load_own_table(
    data: DataSettings,
    own: PartyData,
    party: str,
    label_party: str,
    base: Path,
    *,
    labels_everywhere: bool = False,
    known: Preparation | None = None,
) -> OwnData:
    """One party's own part, from its own table alone. `known`: what it has learnt of its columns before."""
    has_labels = party == label_party or labels_everywhere
    if own.weight and not has_labels:
        raise _weight_elsewhere(party, own.weight, label_party)
    if not own.has_table:
        raise SettingsError(f"Party {party!r} names no file and no query: give [data] file or sql in its party.toml.")
    _refuse_one_place(data.rows)
    aligned = alignment_of(party, own, base) if data.rows == "aligned" else None
    id, weight = "" if aligned else own.id or data.id, own.weight or data.weight
    data = replace(data, weight=weight if has_labels else "")
    table = read_own(replace(own, weight=data.weight), base, party=party, id=id, label=data.label)
    if party == label_party:
        _check_label(table, data, label_party)
    _check_weight_column(data, party, {party: table.names})
    chosen = choose_columns(table, own.columns, party=party, id=id, label=data.label, weight=weight)
    if aligned is not None:
        chosen = _without_columns(chosen, aligned)
        rows, digest = _aligned_rows(aligned, data), aligned.digest
        counts = _counts(aligned, rows)
    else:
        matched, parts, digest = _matched({party: table}, data, label_party)
        rows, counts = parts.at(matched.at[party]), matched.counts(parts)[party]
        del matched, parts  # ten million ids take as much memory as several columns
    table = without_ids(table)
    prepared = None
    expects_absence = aligned is not None and aligned.expects_absence
    if expects_absence and labels_everywhere:
        raise SettingsError(LABELS_OF_ALL_ROWS)
    if chosen or party != label_party:
        prepared = _prepared(table, chosen, rows, party, own, data, expects_absence, known)
    has_label = bool(data.label) and data.label in table.names and (party == label_party or not expects_absence)
    labels = _prepared_labels(table, rows, party, data) if has_label else None
    sizes = len(rows.train), len(rows.test), len(rows.validation)
    return OwnData(prepared, labels, digest, *sizes, counts, expects_absence)


def ids_of_parts(data: DataSettings, own: PartyData, party: str, base: Path) -> dict[str, list[str]]:
    """The ids of one party's rows to train, to validate and to test with, in their order, as it writes them."""
    return ids_together(data, {party: own}, party, base, party)


def ids_together(
    data: DataSettings, parties: Mapping[str, PartyData], label_party: str, base: Path, party: str
) -> dict[str, list[str]]:
    """The same where the tables of all parties are in one place, and which rows they share follows from all."""
    if data.rows == "aligned":
        own = parties[party]
        aligned = alignment_of(party, own, base)
        texts = read_id_columns(own, base, aligned.columns, party)
        rows = _aligned_rows(aligned, data)
        whole = [",".join(one) for one in zip(*map(listed, texts), strict=True)]
        named = [["" if row == NOWHERE else whole[row] for row in part] for part in rows]
        return dict(zip(_PARTS, named, strict=True))
    tables = {
        name: read_own(own, base, party=name, id=own.id or data.id, only_ids=True)
        for name, own in ((name, parties[name]) for name in _label_last(parties, label_party))
    }
    return _ids_by_part(tables, data, label_party, party)


def ids_in_frames(
    frames: Mapping[str, Source], own: Mapping[str, PartyData], data: DataSettings, label_party: str, party: str
) -> dict[str, list[str]]:
    """The same of tables that somebody holds in Python."""
    tables = {
        name: read_table(frames[name], party=name, id=data.id, label=data.label, own=own[name])
        for name in _label_last(frames, label_party)
    }
    return _ids_by_part(tables, data, label_party, party)


def _ids_by_part(tables: Mapping[str, Table], data: DataSettings, label_party: str, party: str) -> dict[str, list[str]]:
    matched, rows, _ = _matched(tables, data, label_party)
    ids = tables[party].ids.tolist()
    named = [["" if row == NOWHERE else ids[row] for row in part] for part in rows.at(matched.at[party])]
    return dict(zip(_PARTS, named, strict=True))


def _label_last(parties: Mapping[str, Any], label_party: str) -> list[str]:
    return [party for party in parties if party != label_party] + [label_party]


_PARTS = ("training rows", "validation rows", "test rows")


def _order(parties: list[str], data: DataSettings, label_party: str) -> list[str]:
    """The feature parties, then the label party; mistakes that need no table are found here."""
    if label_party not in parties:
        raise SettingsError(
            f"The label party {label_party!r} has no data; {', '.join(map(repr, parties)) or 'nobody'} has."
            f"{nearest(label_party, parties)} Give the label party data, or correct its name."
        )
    if len(parties) < 2:
        raise SettingsError(f"Only the label party {label_party!r} has data: add at least one feature party.")
    if data.split in ("row-strips", "patches"):
        raise SettingsError(
            f"data.split = {data.split!r} shares out images; parties with tables of their own need none."
        )
    if data.parties not in (0, len(parties) - 1):
        raise SettingsError(f"data.parties is {data.parties}, but {len(parties) - 1} feature parties have data.")
    if not data.label:
        raise SettingsError(f"data.label is not set: name the column of {label_party!r} that is to be predicted.")
    return _label_last(dict.fromkeys(parties), label_party)


def _federated(
    name: str,
    tables: Mapping[str, Table],
    own: Mapping[str, PartyData],
    data: DataSettings,
    label_party: str,
    aligned: Mapping[str, Aligned] | None = None,
    known: Mapping[str, Preparation] | None = None,
) -> FederatedData:
    if data.rows == "aligned" and aligned is None:
        raise SettingsError("data.rows = 'aligned' is for files, whose rows colonnade align has matched.")
    _check_label(tables[label_party], data, label_party)
    _check_weight_column(data, label_party, {party: table.names for party, table in tables.items()})
    chosen = {
        party: choose_columns(
            table,
            own[party].columns,
            party=party,
            id="" if aligned else own[party].id or data.id,
            label=data.label,
            weight=data.weight,
        )
        for party, table in tables.items()
    }
    if aligned is not None:
        chosen = {party: _without_columns(names, aligned[party]) for party, names in chosen.items()}
    partition.refuse_shared(chosen)
    notes: tuple[str, ...] = ()
    if aligned is not None:
        rows = {party: _aligned_rows(one, data) for party, one in aligned.items()}
        digest = check_one_alignment(aligned)
        counts = {party: _counts(one, rows[party]) for party, one in aligned.items()}
    else:
        matched, parts, digest = _matched(tables, data, label_party)
        rows = {party: parts.at(at) for party, at in matched.at.items()}
        counts, notes = matched.counts(parts), matched.notes
    expects_absence = data.rows == "any" or (aligned is not None and aligned[label_party].expects_absence)
    tables = {party: without_ids(table) for party, table in tables.items()}
    prepared = {
        party: _prepared(
            table, chosen[party], rows[party], party, own[party], data, expects_absence, (known or {}).get(party)
        )
        for party, table in tables.items()
        if chosen[party] or party != label_party
    }
    labels = _prepared_labels(tables[label_party], rows[label_party], label_party, data)
    return FederatedData(name, label_party, labels, prepared, digest, counts, notes)


def _check_label(table: Table, data: DataSettings, label_party: str) -> None:
    if data.label not in table.names:
        raise DataError(
            f"The label party {label_party!r} has no column {data.label!r}.{nearest(data.label, table.names)} "
            "Name the column to predict with data.label."
        )


def _refuse_one_place(rows: str) -> None:
    """Ways to match rows for which one has to see everybody's ids."""
    if rows == "intersection":
        raise SettingsError(
            "data.rows = 'intersection' needs all parties' ids in one place. Run colonnade align and set data.rows = "
            "'aligned', or let every party keep the rows that all have agreed on, with data.rows = 'same'."
        )
    if rows == "any":
        raise SettingsError(
            "data.rows = 'any' needs all parties' ids in one place. Run colonnade align with alignment.rows = 'any', "
            "and set data.rows = 'aligned'."
        )


def _matched(tables: Mapping[str, Table], data: DataSettings, label_party: str) -> tuple[MatchedRows, Rows, str]:
    """The common rows, which of them to use for what, and the digest of those."""
    ids = {party: table.ids for party, table in tables.items()}
    holder = label_party if data.rows == "any" else next(iter(ids))  # who has all of the common rows
    if len(ids) == 1 and len(ids[holder]):
        matched = all_rows(holder, ids[holder])
    else:
        matched = match_any(ids, label_party) if data.rows == "any" else match_rows(ids, data.rows)
    fraction = DEFAULT_TEST_FRACTION if data.test_fraction is None else data.test_fraction
    train, test = split_rows(matched.rows, fraction, seed=data.seed, max_rows=data.max_rows)
    rows = Rows(*set_apart(train, data.validation), test)
    at, text = matched.at[holder], ids[holder].text
    digest = row_digest(*(ChosenIds(text, at[part]) for part in (rows.train, rows.test, rows.validation)))
    return replace(matched, ids=no_texts()), rows, digest


def _prepared(
    table: Table,
    chosen: tuple[str, ...],
    rows: Rows,
    party: str,
    own: PartyData,
    data: DataSettings,
    expects_absence: bool,
    known: Preparation | None = None,
) -> PartyColumns:
    """A party's columns of the rows to train, to validate and to test on."""
    if not chosen:
        raise DataError(f"Party {party!r} holds no column besides the id: give it columns or leave it out.")
    if not expects_absence:
        return _prepared_rows(table, chosen, rows, party, own, data, known)
    present = Rows(*(part != NOWHERE for part in rows))
    lacking = 1 - float(present.train.mean())
    if lacking == 1:
        raise DataError(
            f"Party {party!r} holds none of the {len(rows.train)} training rows, so there is nothing to learn from it: "
            "give it more rows, or leave it out."
        )
    here = Rows(*(part[part != NOWHERE] for part in rows))
    held = _flat(_prepared_rows(table, chosen, here, party, own, data, known))
    preparation = None if held.preparation is None else replace(held.preparation, tells_absence=True)
    validation = None
    if len(rows.validation):
        validation = with_absent(held.test[:0] if held.validation is None else held.validation, present.validation)
    return PartyColumns(
        with_absent(held.train, present.train),
        with_absent(held.test, present.test),
        (*held.names, ABSENT),
        validation,
        preparation,
        share_to_drop(lacking, data.absence),
    )


def _flat(held: PartyColumns) -> PartyColumns:
    """Images as flat rows, to which the column that tells who is absent can be added."""
    if not isinstance(held.train, torch.Tensor) or held.train.ndim == 2:
        return held
    parts = {name: getattr(held, name) for name in ("train", "test", "validation")}
    return replace(held, **{name: one.flatten(1) for name, one in parts.items() if one is not None})


def _prepared_rows(
    table: Table,
    chosen: tuple[str, ...],
    rows: Rows,
    party: str,
    own: PartyData,
    data: DataSettings,
    known: Preparation | None,
) -> PartyColumns:
    """The same of rows that are all there."""
    if table.sparse is None:
        prepared = prepare_own(table, chosen, rows.train, rows.scored, own=own, data=data, party=party, known=known)
        return first_to_validate(prepared, len(rows.validation))
    if own.prepare:
        raise SettingsError(f"Party {party!r}: `prepare` works with dense tables; {table.where} is sparse.")
    matrix = table.sparse
    if chosen != table.sparse_names:
        matrix = matrix[:, list(partition.named_columns(table.sparse_names, {party: chosen})[party])]
    prepared = prepare_sparse(
        matrix[rows.train],
        matrix[rows.scored],
        chosen,
        party=party,
        standardise=data.standardise,
        missing=data.missing or "refuse",
    )
    return first_to_validate(prepared, len(rows.validation))


def _prepared_labels(table: Table, rows: Rows, party: str, data: DataSettings) -> Labels:
    column = table.column(data.label)
    if is_text(column.type):
        words = words_of(column, table.gap_words)
        texts = np.array([*words.words.to_pylist(), None], dtype=object)
        train, scored = texts[words.codes[rows.train]], texts[words.codes[rows.scored]]
    elif (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)) and not column.null_count:
        values = as_numpy(column)
        train, scored = values[rows.train], values[rows.scored]
    else:
        values = column.to_pandas()
        train, scored = values.iloc[rows.train], values.iloc[rows.scored]
    prepared = prepare_labels(train, scored, task=data.task, party=party, standardise=data.standardise)
    labels = first_to_validate(prepared, len(rows.validation))
    if not data.weight or data.weight not in table.names:
        return labels
    what = f"Party {party!r}: the weight column {data.weight!r}"
    given = table.column(data.weight).to_pandas().iloc[rows.train]
    return replace(labels, weights=checked_weights(given, len(rows.train), what))


def _check_weight_column(data: DataSettings, party: str, names: Mapping[str, Sequence[str]]) -> None:
    """Refuse a weight column that its party does not have."""
    if not data.weight or data.weight in names[party]:
        return
    others = [repr(other) for other, held in names.items() if data.weight in held]
    whose = f" {', '.join(others)} has, but only the label party's weights count." if others else ""
    raise DataError(
        f"Party {party!r} has no column {data.weight!r}, which `weight` names.{nearest(data.weight, names[party])}"
        f"{whose} Give the label party the column, or leave `weight` out."
    )


def _weight_elsewhere(party: str, weight: str, label_party: str) -> SettingsError:
    return SettingsError(
        f"Party {party!r} names a weight column {weight!r}, but only the label party {label_party!r} weighs rows: "
        "remove `weight` there."
    )
