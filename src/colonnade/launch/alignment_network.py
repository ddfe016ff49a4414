"""One organisation's part of an alignment over the network: the same door, streams, journal and resuming as a training.

Its secret is drawn anew for every run directory, and never follows from a seed that others know.
"""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from colonnade.alignment.building import build_aligning_party
from colonnade.alignment.conversation import AligningParty
from colonnade.alignment.multiplication import Multipliers
from colonnade.alignment.own_ids import read_own_ids, return_freed_memory
from colonnade.alignment.results import write_aligned
from colonnade.alignment.scalars import derived
from colonnade.errors import ProtocolError
from colonnade.federation.file import Federation
from colonnade.federation.party_file import PartyFile
from colonnade.launch.alignment import aligned_rows, alignment_plan, summary_of, warning_of
from colonnade.launch.door import PURPOSE, Doorkeeper
from colonnade.launch.join import taking_part
from colonnade.launch.member import NOBODY, Member
from colonnade.launch.party_directory import PartyDirectory
from colonnade.runtimes.network.greeting import Door
from colonnade.wire.handshake import Hello, Roster


class AlignmentMember(Member):
    """Who takes part in an alignment: its ids are read and hashed before it says a word to anybody."""

    purpose = "align"

    def __init__(
        self, federation: Federation, party_file: PartyFile, out: Path | None = None, workers: int = 1
    ) -> None:
        super().__init__(federation, party_file, out)
        self.say({PURPOSE: "alignment"})
        self.plan = alignment_plan(federation, self.feature_parties)
        self.party: AligningParty | None = None
        domain = bytes.fromhex(self.plan.domain)
        self.own = read_own_ids(
            self.name, party_file.data, federation.data, federation.alignment, domain, party_file.base
        )
        self.multipliers = Multipliers(workers, len(self.own.points))

    @property
    def relays(self) -> bool:
        return len(self.feature_parties) > 1

    def digests(self) -> dict[str, str]:
        return {"ids": self.own.digest, "settings": self.digest}

    def peers(self, roster: Roster) -> tuple[str, ...]:
        return tuple(name for name in self.everyone if name != self.name)

    def build(self, roster: Roster, secret: int) -> AligningParty:
        own = derived(secret.to_bytes(32, "little"), "alignment", self.name)
        self.party = build_aligning_party(self.plan.seat(self.name, self.own.points, own, self.multipliers))
        return self.party


@dataclass(frozen=True)
class AlignmentMeeting:
    """Of those who align: there is nothing to tell but that all have the same settings."""

    member: AlignmentMember

    def door(self, directory: PartyDirectory) -> Door:
        return Doorkeeper(self.member, directory)

    def roster(self, hellos: Mapping[str, Hello]) -> Roster:
        return NOBODY

    def believed(self, roster: Roster) -> Roster:
        if roster != NOBODY:
            raise ProtocolError(f"{self.member.label_party} described a training, and this is an alignment.")
        return roster


@dataclass(frozen=True)
class PartAligned:
    """How a party's part ended."""

    finished: bool
    directory: Path
    summary: Mapping[str, Any]
    warning: str  # if its ids hardly match
    written: bool


def align_party(
    federation: Federation,
    party_file: PartyFile,
    *,
    out: Path | None = None,
    workers: int = 1,
    accepts: Callable[[str], bool] = lambda warning: False,
    trace: bool = False,
    stop_requested: Callable[[], bool] = lambda: False,
) -> PartAligned:
    """Take part in an alignment until it ends. `accepts` is asked where hardly any rows match."""
    member = AlignmentMember(federation, party_file, out, workers)
    meeting = AlignmentMeeting(member)
    with (
        member.multipliers,
        taking_part(member, meeting, trace=trace, stop_requested=stop_requested) as record,
    ):
        party = member.party
        if not record.finished or party is None:
            return PartAligned(False, member.directory, {"status": record.status}, "", False)
        summary, warning = summary_of(party, member.own), warning_of(party, member.own)
        found, own = aligned_rows(party, member.own), member.own
        member.party = party = None  # points and tables take as much memory as what is written
        member.own = own = replace(own, points=own.points[:0].copy(), rows=own.rows[:0].copy())
        gc.collect()  # a station and its links know one another
        return_freed_memory()
        written = not warning or accepts(warning)
        if written:
            write_aligned(member.directory, own, member.name, *found, summary)
    return PartAligned(True, member.directory, summary, warning, written)
