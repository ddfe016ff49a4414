"""One party of a network run, from its two files to its trained model.

The same program at every organisation: read federation.toml and party.toml, load our own data, meet the others, train,
record. Started again after a crash, in the same directory, it goes on where it was.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from colonnade.errors import SettingsError
from colonnade.federation.file import Federation
from colonnade.federation.party_file import PartyFile
from colonnade.files import json_text, write_atomically
from colonnade.launch.baseline import LITTLE_LEARNT, beside_one_for_all
from colonnade.launch.card import write_card
from colonnade.launch.door import LabelDoor, check_roster, roster_of
from colonnade.launch.member import Member
from colonnade.launch.participant import Participant
from colonnade.launch.party_directory import PartyDirectory, make_directory
from colonnade.launch.periodic_report import PeriodicReport
from colonnade.launch.run_options import RunOptions
from colonnade.launch.run_record import RunRecord
from colonnade.launch.seat_files import Life
from colonnade.launch.seated_party import open_station
from colonnade.launch.summary import summarise, summarise_part
from colonnade.party import Party
from colonnade.runtimes.live import Live, as_lane
from colonnade.runtimes.live_files import Sample, logged_into
from colonnade.runtimes.network import limits
from colonnade.runtimes.network.carrier import Keys
from colonnade.runtimes.network.carriers import dialler, listener
from colonnade.runtimes.network.greeting import Door
from colonnade.runtimes.network.guest import Guest
from colonnade.runtimes.network.host import Host
from colonnade.runtimes.network.settings import NetworkSettings
from colonnade.runtimes.network.spans import Spans, spans_to, told_of
from colonnade.runtimes.picture import picture_at_the_door, picture_of_station
from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.run_lock import only_process_in
from colonnade.runtimes.station import Guard, Station
from colonnade.runtimes.steering import LIVE
from colonnade.threads import compute_with
from colonnade.tracking.run import TrackedRun, settings_of
from colonnade.tracking.settings import Track
from colonnade.tracking.tracker import tracked
from colonnade.wire.codec import Limits
from colonnade.wire.handshake import PROTOCOL, VERSION, Hello, Roster
from colonnade.wire.sealing import sign_introduction

log = logging.getLogger("colonnade")

LIMITS = Limits(frame_bytes=256 << 20)
"""What a party takes from another organisation in one frame."""

Operate = Callable[[Participant, Host | Guest, Recorder], Callable[[], None]]
"""Is called once, before the first word to anybody; what it returns is called in every turn."""
Attend = Callable[[Host | Guest, Recorder], Callable[[], None]]
"""The same, of a participant that is known."""


@dataclass(frozen=True)
class Joined:
    """How a party's part ended."""

    finished: bool
    directory: Path
    summary: Mapping[str, Any]


def join(
    federation: Federation,
    party_file: PartyFile,
    *,
    out: Path | None = None,
    without: Sequence[str] = (),
    party_timeout_seconds: float | None = None,
    trace: bool = False,
    quarantine: bool = False,
    operate: Operate | None = None,
    track: Track | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> Joined:
    """Take part in a network run until it ends. `without`: feature parties that the label party does not wait for.

    `track`: who is told of this party's part, of which nobody else's is.
    `quarantine`: pass over what this party's journal holds and the party cannot handle again, and expel who sent it.
    """
    participant = Participant(federation, party_file, out, party_timeout_seconds)
    participant.check_without(without)
    own = party_file.party
    spans = spans_to(own.otel, own.otel_share, own.name, federation.label_party) if own.otel else None
    meeting, attend = TrainingMeeting(participant), _of(participant, operate)
    launch = NetworkLaunch(participant, meeting, tuple(without), attend, quarantine, spans)
    directory = participant.directory
    with tracked(track or Track()) as tracker, launch.ready():
        run = TrackedRun(directory.resolve().name, participant.name, settings_of(participant.settings), directory)
        tracker.begin(run, resume=True)  # whether it goes on, its directory tells
        watch = tracker.line if track else None
        options = RunOptions(directory, trace=trace, watch=watch, stop_requested=stop_requested)
        record = launch.run(options)
        before = participant.released_before()
        record = replace(record, randomness=participant.randomness, released=[*record.released, *before])
        summary = _summary(participant, record)
        if record.counts:
            write_atomically(directory / "summary.json", json_text(summary))
        if record.finished and record.counts:
            write_card(directory)
        tracker.end(summary)
    if summary.get("little_learnt"):
        log.warning(LITTLE_LEARNT)
    return Joined(record.finished, directory, summary)


def leave(federation: Federation, party_file: PartyFile, out: Path | None = None) -> None:
    """Tell the label party that this party leaves for good."""
    participant = Participant(federation, party_file, out)
    if participant.is_label_party:
        raise SettingsError("The label party cannot leave its own federation: stop it instead.")
    guest = NetworkLaunch(participant, TrainingMeeting(participant)).guest(
        PartyDirectory(participant), Recorder(participant.label_party, virtual=False), RunOptions(), leaves=True
    )
    asyncio.run(guest.leave())


def rebuilt(
    federation: Federation, party_file: PartyFile, directory: Path, party_timeout_seconds: float | None = None
) -> dict[str, Party]:
    """The party whose run directory this is, by name, as it was when its run began."""
    participant = Participant(federation, party_file, directory, party_timeout_seconds)
    party_directory = PartyDirectory(participant, draws=False)
    roster = party_directory.roster()
    if roster is None:
        raise SettingsError(f"The run in {directory} had not begun: {participant.name} knows nothing of the others.")
    return {participant.name: participant.build(roster, party_directory.secret)}


class Meeting(Protocol):
    """What organisations say of one another before a run of some kind begins, and what they believe of it."""

    def door(self, directory: PartyDirectory) -> Door:
        """Whom the label party lets in."""

    def roster(self, hellos: Mapping[str, Hello]) -> Roster:
        """What the label party tells all, once everybody is there."""

    def believed(self, roster: Roster) -> Roster:
        """What a feature party takes of that. ProtocolError: no federation of these parties could be so."""


@contextmanager
def taking_part(
    member: Member, meeting: Meeting, *, trace: bool, stop_requested: Callable[[], bool]
) -> Iterator[RunRecord]:
    """A run of another kind than a training, to its end or until a stop; the directory is held while this lasts."""
    launch = NetworkLaunch(member, meeting)
    with launch.ready():
        member.open_account()
        yield launch.run(RunOptions(member.directory, trace=trace, stop_requested=stop_requested))


@dataclass(frozen=True)
class TrainingMeeting:
    """Of those who train."""

    participant: Participant

    def door(self, directory: PartyDirectory) -> Door:
        return LabelDoor(self.participant, directory)

    def roster(self, hellos: Mapping[str, Hello]) -> Roster:
        labels = self.participant.data.labels
        assert labels is not None
        roster = roster_of(self.participant, hellos, labels.task, len(labels.classes))
        return msgspec.structs.replace(roster, run=secrets.token_hex(16))

    def believed(self, roster: Roster) -> Roster:
        participant = self.participant
        if roster.shapes.get(participant.name) != participant.shape():
            shapes = {**roster.shapes, participant.name: participant.shape()}
            roster = msgspec.structs.replace(roster, shapes=shapes)
        check_roster(participant, roster)
        return roster


@dataclass(frozen=True)
class NetworkLaunch:
    """The runtime "network": this organisation's party, which meets the others."""

    participant: Member
    meeting: "Meeting"
    without: tuple[str, ...] = ()
    operate: Attend | None = None
    quarantine: bool = False
    spans: Spans | None = None  # who is told of exchanges

    runtime = NetworkSettings.name
    needs_directory = True

    @contextmanager
    def ready(self) -> Iterator[None]:
        compute_with(1)
        limits.raise_file_limit()
        make_directory(self.participant.directory)
        with only_process_in(self.participant.directory):
            yield

    def run(self, options: RunOptions) -> RunRecord:
        """Meet, train, part. Where all were never there together, the record is empty."""
        participant = self.participant
        directory = PartyDirectory(participant, extends=True)
        leads = participant.is_label_party
        recorder = Recorder(participant.label_party, directory.path if leads else None, options.watch, virtual=False)
        directory.keep_plan()
        directory.steering.begin()
        own_stop, asked_to_stop = options.stop_requested, directory.steering.stop_requested
        options = replace(options, stop_requested=lambda: own_stop() or asked_to_stop())
        carrier = (self.host if leads else self.guest)(directory, recorder, options)
        attend = None if self.operate is None else self.operate(carrier, recorder)
        epochs = float(participant.federation.training.epochs)
        report = PeriodicReport(recorder, epochs, watch=None if leads else options.watch)
        live = _live_of(carrier, recorder, directory)

        def every_turn() -> None:
            if carrier.station is not None:
                report(carrier.station)
            live.look()
            if attend is not None:
                attend()

        try:
            with logged_into(directory.path, participant.name):
                finished = asyncio.run(carrier.run(every_turn))
            if carrier.station is not None:
                carrier.station.save()  # not after an exception: an event may be half handled; the journal has it whole
            live.write()
        finally:
            if carrier.station is not None:
                carrier.station.close()
            recorder.close()
            if self.spans is not None:
                self.spans.end()
        if carrier.station is not None:  # at a stop the model so far
            station = carrier.station
            participant.keep_model(station.party, recorder.metrics, station.released(), directory.path)
        return _record(participant.name, carrier.station, recorder, finished)

    def host(self, directory: PartyDirectory, recorder: Recorder, options: RunOptions) -> Host:
        """The label party's side: it waits for everybody, then begins."""
        participant = self.participant
        roster = directory.roster()
        left = directory.left()

        def begin(hellos: Mapping[str, Hello]) -> tuple[Station, Roster] | None:
            nonlocal roster
            if roster is None:
                there = {*hellos, *self.without, *left}
                if not there >= {*participant.feature_parties}:
                    return None
                roster = self.meeting.roster(hellos)
            absent = tuple(sorted({*self.without, *left}))
            station = self._station(directory, recorder, roster, options.trace, absent)
            with _closed_on_failure(station):
                if not directory.has_begun():  # not before it is known that this party can be built
                    directory.keep_tokens({name: hello.token for name, hello in hellos.items()})
                    directory.keep(roster)
            for name in left:
                station.leave(name)
            return station, roster

        return Host(
            participant.name,
            participant.feature_parties,
            self._keys(directory),
            listener(participant.federation.network.carrier, participant.party_file.party.listen),
            self.meeting.door(directory),
            relays=participant.relays,
            begin=begin,
            linger_seconds=participant.party_file.endurance.linger_seconds,
            stop_requested=options.stop_requested,
        )

    def guest(self, directory: PartyDirectory, recorder: Recorder, options: RunOptions, leaves: bool = False) -> Guest:
        """A feature party's side: it calls the label party, and introduces itself."""
        participant = self.participant
        calling = dialler(participant.federation.network.carrier, participant.address)

        def begin(roster: Roster) -> Station:
            roster = self.meeting.believed(roster)
            station = self._station(directory, recorder, roster, options.trace)
            with _closed_on_failure(station):
                directory.keep(roster)
            return station

        guest = Guest(
            participant.name,
            participant.label_party,
            calling,
            self._keys(directory),
            lambda nonce: hello_of(participant, directory, nonce, leaves),
            neighbours=[one for one in participant.feature_parties if one != participant.name],
            begin=begin,
            linger_seconds=participant.party_file.endurance.linger_seconds,
            stop_requested=options.stop_requested,
        )
        if not leaves and (known := directory.roster()) is not None:
            guest.station = begin(known)  # it may have finished: then nobody need be there any more
        return guest

    def _keys(self, directory: PartyDirectory) -> Keys:
        return Keys(self.participant.credentials, directory.sealing, self.participant.digest)

    def _station(
        self,
        directory: PartyDirectory,
        recorder: Recorder,
        roster: Roster,
        trace: bool,
        without: tuple[str, ...] = (),
    ) -> Station:
        participant = self.participant
        if directory.extension:  # earlier models are of another training
            roster = msgspec.structs.replace(roster, run=f"{directory.extension}-{roster.run}")
        party = participant.build(roster, directory.secret)
        peers = participant.peers(roster)
        life = Life(
            str(directory.path),
            peers,
            participant.party_file.endurance,
            trace,
            without=without,
            extension=directory.extension,
        )
        ledger = directory.path / "ledger.jsonl"
        label_party, spans = participant.label_party, self.spans
        guard = Guard(lambda: told_of(participant.build(roster, directory.secret), spans), self.quarantine)
        station = open_station(
            participant.name,
            told_of(party, spans),
            label_party,
            life,
            recorder,
            ledger,
            LIMITS,
            guard,
            directory.steering,
        )
        if spans is not None:
            spans.begin(roster.run, station.now())
        return station


def _live_of(carrier: Host | Guest, recorder: Recorder, directory: PartyDirectory) -> Live:
    """What writes down how this party is, also while the others are awaited."""

    def take() -> Sample:
        station = carrier.station
        if station is None:
            now, picture = None, picture_at_the_door(carrier.at_the_door)
        else:
            now, picture = round(station.now(), 4), picture_of_station(station, recorder)
        return {"now": now, "paused": directory.steering.paused(), "parties": {carrier.name: as_lane(picture)}}

    def released() -> list[dict[str, Any]]:
        return [] if carrier.station is None else carrier.station.released()

    return Live(directory.path / LIVE / f"{carrier.name}.jsonl", take, released)


@contextmanager
def _closed_on_failure(station: Station) -> Iterator[None]:
    """A party whose disk is full may try again, with a station of its own."""
    try:
        yield
    except OSError:
        station.close()
        raise


def hello_of(participant: Member, directory: PartyDirectory, nonce: bytes, leaves: bool) -> Hello:
    """How a feature party introduces itself, whatever it is there for."""
    public_key = directory.sealing.public_bytes()
    return Hello(
        PROTOCOL,
        json.dumps(participant.agreed),
        *participant.rows_told(),
        *participant.shape_told(),
        directory.token,
        public_key,
        sign_introduction(participant.credentials(), participant.digest, public_key),
        nonce,
        leaves,
        VERSION,
        participant.federation.network.carrier,
    )


# --- at its end -------------------------------------------------------------------------------------------------


def _of(participant: Participant, operate: Operate | None) -> Attend | None:
    return None if operate is None else partial(operate, participant)


def _record(name: str, station: Station | None, recorder: Recorder, finished: bool) -> RunRecord:
    """What this party saw of the run; without a station, the federation had not met."""
    if station is None:
        return RunRecord(NetworkSettings.name, finished, recorder, {}, {}, {}, [], [], 0.0)
    now = station.now()
    times = {
        "busy_seconds": station.busy_seconds,
        "idle_seconds": max(0.0, now - station.busy_seconds),
        "restarts": station.restarts,
        "reconnects": station.reconnects(),
    }
    counts = station.party.counts()
    return RunRecord(
        NetworkSettings.name,
        finished,
        recorder,
        {name: counts},
        counts.get("replies", {}),
        {name: times},
        station.privacy_events(),
        station.released(),
        now,
        expelled=dict(station.expelled),
    )


def _summary(participant: Participant, record: RunRecord) -> Mapping[str, Any]:
    """What this party knows of the run at its end; the label party knows most."""
    name, plan, facts = participant.name, participant.plan, participant.known
    if facts is None or not record.counts:
        return {"algorithm": plan.chosen.name, "runtime": record.runtime, "party": name, "status": record.status}
    if participant.is_label_party:
        data_name = participant.federation.data.set or "files"
        summary = summarise(plan, facts, record, data_name, participant.settings, participant.row_counts)
        labels = participant.data.labels
        assert labels is not None
        return beside_one_for_all(labels, summary)
    return summarise_part(name, plan, facts, record, participant.row_counts)
