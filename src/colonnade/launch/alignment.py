"""An alignment from settings and tables to every party's rows in one order.

`align` is for tables that lie in one place, in any runtime but the network's; between organisations, `align_party` in
`alignment_network.py` is one party's part. What is made of a party that is done is the same.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.alignment.building import build_aligning_party
from colonnade.alignment.conversation import AligningLabelParty, AligningParty
from colonnade.alignment.multiplication import Multipliers
from colonnade.alignment.own_ids import OwnIds, domain_of, read_own_ids
from colonnade.alignment.results import small_match, write_aligned
from colonnade.alignment.scalars import derived
from colonnade.costs.disclosure import learnt_by_aligning, learnt_by_placing
from colonnade.data.absence import NOWHERE
from colonnade.data.settings import DEFAULT_TEST_FRACTION
from colonnade.errors import DataError, SettingsError
from colonnade.federation.file import Federation
from colonnade.files import json_text, write_atomically
from colonnade.launch.alignment_seats import AlignmentPlan, AlignmentSeatFiles, write_alignment_seat
from colonnade.launch.launches import launch_of, placed
from colonnade.launch.run_directory import disk_errors
from colonnade.launch.run_options import RunOptions
from colonnade.launch.seat_files import Life
from colonnade.party import Party
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.ray.settings import Ray
from colonnade.runtimes.simulate.settings import Simulate


@dataclass(frozen=True)
class Alignment:
    """How an alignment ended."""

    finished: bool
    summary: Mapping[str, Any]
    warnings: Mapping[str, str]  # to each party whose ids hardly match; "" to the others
    written: bool  # whether everybody's rows are


@dataclass(frozen=True)
class AlignmentRun:
    """An alignment whose tables lie in one place, ready to be run."""

    plan: AlignmentPlan
    own: Mapping[str, OwnIds]
    secrets: Mapping[str, bytes]
    workers: int
    built: Mapping[str, AligningParty]
    seed: int

    @property
    def parties(self) -> Mapping[str, Party]:
        return self.built

    @property
    def label_party(self) -> str:
        return self.plan.label_party

    @property
    def members(self) -> Collection[str]:
        return self.plan.parties

    def peers_of(self, name: str) -> tuple[str, ...]:
        return tuple(other for other in self.plan.parties if other != name)

    def write_seat(self, folder: Path, name: str, life: Life) -> None:
        points, secret = self.own[name].points, self.secrets[name]
        write_alignment_seat(folder, AlignmentSeatFiles(name, self.plan, points, secret, self.workers, life))


def alignment_plan(federation: Federation, feature_parties: tuple[str, ...]) -> AlignmentPlan:
    """What all parties of a federation's alignment share."""
    data, settings = federation.data, federation.alignment
    if data.set:
        raise SettingsError(
            f"data.set = {data.set!r} gives all parties the same rows: there is nothing to align. Give every party a "
            "`file` of its own."
        )
    if not feature_parties:
        raise SettingsError("The federation names no feature party: give each a [parties.NAME] section.")
    parties = (federation.label_party, *feature_parties)
    domain = domain_of(parties, settings, settings.key_columns(data.id))
    fraction = DEFAULT_TEST_FRACTION if data.test_fraction is None else data.test_fraction
    return AlignmentPlan(
        *(federation.label_party, parties, settings.method, domain.hex(), settings.pad_to),
        validation_fraction=(1 - fraction) * data.validation,
        test_fraction=fraction,
        rows=settings.rows,
    )


def align(
    federation: Federation,
    base: Path,
    runtime: Simulate | Processes | Ray,
    options: RunOptions,
    workers: int = 1,
    accepts: Callable[[Mapping[str, str]], bool] = lambda warnings: False,
) -> Alignment:
    """Align tables that lie in one place. `accepts` is asked where hardly any rows match, with what each is told.

    Every secret follows from the federation's seed, so that an alignment can be repeated: it is for trials, and for
    parties of one owner.
    """
    feature_parties = tuple(name for name in federation.parties if name != federation.label_party)
    plan = alignment_plan(federation, feature_parties)
    domain, data, settings = bytes.fromhex(plan.domain), federation.data, federation.alignment
    held = federation.party_data()
    if federation.label_party not in held:
        raise SettingsError(f"The label party {federation.label_party!r} has no [parties.NAME] section with its file.")
    own = {name: read_own_ids(name, held[name], data, settings, domain, base) for name in plan.parties}
    secrets = {name: derived(federation.seed.to_bytes(8, "big"), "simulated", name) for name in plan.parties}
    digests = {f"ids of {name}": held.digest for name, held in own.items()}
    directory = options.directory
    assert directory is not None, "an alignment is for the files that it writes"
    here = (workers, max(len(one.points) for one in own.values())) if isinstance(runtime, Simulate) else (1, 0)
    with Multipliers(*here) as multiply:
        seats = {name: plan.seat(name, own[name].points, secrets[name], multiply) for name in plan.parties}
        built = {name: build_aligning_party(seat) for name, seat in seats.items()}
        launch = launch_of(AlignmentRun(plan, own, secrets, workers, built, federation.seed), runtime)
        with launch.ready(), placed(launch, lambda: digests, options) as settled:
            record = launch.run(settled)
    if not record.finished:
        return Alignment(False, {"status": record.status}, {}, False)
    summaries = {name: summary_of(party, own[name]) for name, party in built.items()}
    warnings = {name: warning_of(party, own[name]) for name, party in built.items()}
    written = not any(warnings.values()) or accepts(warnings)
    summary = {
        "status": record.status,
        "runtime": record.runtime,
        "wall_seconds": record.wall_seconds,
        "bytes": record.bytes_by_sender(),
        "parties": summaries,
    }
    with disk_errors(directory):
        write_atomically(directory / "summary.json", json_text(summary))
        if written:
            for name, party in built.items():
                write_aligned(directory / name, own[name], name, *aligned_rows(party, own[name]), summaries[name])
    return Alignment(True, summary, warnings, written)


# --- what is made of a party that is done -------------------------------------------------------------------------


def aligned_rows(party: AligningParty, own: OwnIds) -> tuple[Any, Any]:
    """Rows of its table in the common order, and their parts. An alignment of no rows is an error."""
    places, parts = party.aligned()
    _check_match(party, own)
    return np.where(places == NOWHERE, NOWHERE, own.rows[places]), parts


def _check_match(party: AligningParty, own: OwnIds) -> None:
    if not party.seat.any_rows:
        if not len(party.aligned()[0]):
            whom = f"No id is held by all parties ({', '.join(party.seat.parties)})"
            raise _no_match(whom, party.seat.name, own)
        return
    for name, shared in shared_by_pair(party).items():
        if not shared:
            raise _no_match(f"{name} holds none of the rows of {party.seat.label_party}", party.seat.name, own)


def _no_match(what: str, name: str, own: OwnIds) -> DataError:
    causes = f" As {name} can see it: {'; '.join(own.causes)}." if own.causes else ""
    return DataError(f"{what}: check that all name the same kind of id, and the rules in [alignment.rules].{causes}")


def shared_by_pair(party: AligningParty) -> dict[str, int]:
    """Where parties may lack rows: how many of the label party's each feature party holds, as far as this one knows."""
    if isinstance(party, AligningLabelParty):
        return dict(party.held_by)
    return {party.seat.name: int((party.aligned()[0] != NOWHERE).sum())}


def summary_of(party: AligningParty, own: OwnIds) -> dict[str, Any]:
    """What one party knows at the end: for itself alone."""
    seat = party.seat
    places, parts = party.aligned()
    _check_match(party, own)
    sizes = party.told_sizes()
    counts = {part: int((parts == number).sum()) for number, part in enumerate(("train", "validation", "test"))}
    pairs = shared_by_pair(party) if seat.any_rows else {}
    return {
        "party": seat.name,
        "label_party": seat.label_party,
        "parties": list(seat.parties),
        "method": seat.method,
        "rows": "any" if seat.any_rows else "all",
        "digest": party.digest,
        "total": len(places),
        "shared": int((places != NOWHERE).sum()),
        **counts,
        **({"held_by": pairs} if seat.any_rows else {}),
        "own": dict(own.counts),
        "told_sizes": sizes,
        "learnt": learnt_by_placing(seat.name, seat.label_party, seat.method, len(places), pairs)
        if seat.any_rows
        else learnt_by_aligning(seat.name, seat.label_party, seat.parties, seat.method, seat.pad_to, sizes),
        "multiplications": party.counts()["exchanges"],
    }


def warning_of(party: AligningParty, own: OwnIds) -> str:
    """To the owner, if less than half of its ids, or of another's as far as it knows, match."""
    seat, usable = party.seat, own.counts["usable"]
    sizes = {seat.name: usable}
    if not seat.pad_to:
        sizes |= party.told_sizes()
    if not seat.any_rows:
        return small_match(seat.name, len(party.aligned()[0]), sizes, own.causes)
    total = len(party.aligned()[0])
    each = [
        small_match(seat.name, shared, {name: min(total, sizes.get(name, total))}, own.causes)
        for name, shared in shared_by_pair(party).items()
    ]
    return " ".join(filter(None, each))
