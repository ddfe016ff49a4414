"""One party of a network run, from its two files to its trained model.

The same program at every organisation: read federation.toml and party.toml, load the own data, meet the others, train,
keep the books. Started again after a crash, in the same directory, it goes on where it was.
"""

import asyncio
import json
import logging
import math
import os
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch

from colonnade.algorithms.parts.losses import headline
from colonnade.costs.disclosure import as_sentences, disclosures
from colonnade.costs.guarantees import guarantees, privacy_summary
from colonnade.costs.noise import calibrated
from colonnade.data.federated import OwnData, data_digest
from colonnade.data.loading import load_own
from colonnade.data.settings import TASKS
from colonnade.errors import ProtocolError, RunError, SettingsError, unknown_name
from colonnade.federation.building import PrivateData, all_dense_columns, build_party, width_of
from colonnade.federation.file import Federation, digest, federation_values, write_toml
from colonnade.federation.party_file import PartyFile
from colonnade.federation.plan import Facts, Plan, check_plan
from colonnade.files import write_atomically
from colonnade.models.top import TopSettings
from colonnade.party import Party
from colonnade.privacy.ledger import Ledger, check_journal
from colonnade.reports.summary import summarise, versions
from colonnade.runtimes.journal import first_number
from colonnade.runtimes.links import Company
from colonnade.runtimes.network.carrier import Keys
from colonnade.runtimes.network.greeting import another_directory
from colonnade.runtimes.network.guest import Guest
from colonnade.runtimes.network.host import Host
from colonnade.runtimes.recorder import Recorder, by_kind
from colonnade.runtimes.run_lock import only_process_in
from colonnade.runtimes.station import Books, Station
from colonnade.settings import as_values
from colonnade.wire.certificates import Credentials, read_credentials
from colonnade.wire.codec import Limits
from colonnade.wire.handshake import PROTOCOL, Hello, Roster, difference, plain
from colonnade.wire.sealing import SealingKey, sign_introduction

T = TypeVar("T")
log = logging.getLogger("colonnade")

LIMITS = Limits(frame_bytes=256 << 20)
"""What a party takes from another organisation in one frame."""
MOST_COLUMNS, MOST_NUMBERS, MOST_CLASSES = 1 << 24, 1 << 16, 1 << 16
"""What a party believes of another before anything is built from it: columns, numbers in an embedding, classes."""


@dataclass(frozen=True)
class Joined:
    """How a party's part ended."""

    finished: bool
    directory: Path
    summary: dict[str, Any]


class Participant:
    """Everything a party needs to take part, checked before it says a word to anybody."""

    def __init__(self, federation: Federation, own: PartyFile, out: Path | None = None) -> None:
        self.federation = federation
        self.own = own
        self.name = own.party.name
        self.label_party = federation.label_party
        self.feature_parties = _feature_parties(federation)
        self.everyone = (self.label_party, *self.feature_parties)
        if self.name not in self.everyone:
            raise unknown_name("party of this federation called", self.name, self.everyone)
        self.plan = self._plan()
        self.known: Facts | None = None
        if self.plan.is_alone:
            raise SettingsError(
                f"{self.plan.chosen.name} trains on everybody's data in one place, which a network run never has. "
                "Choose another algorithm, such as vafl."
            )
        self.directory = out or self._directory()
        self.credentials()  # a wrong certificate is said before anything is loaded
        self.data = self._load()
        holders = [name for name in self.everyone if name != self.name] + ([self.name] if self.data.columns else [])
        check_plan(self.plan, self.data.rows, self.everyone, dict.fromkeys(holders))
        # As JSON, so that a difference can be named; runtimes of one machine are nobody else's business.
        values = federation_values(federation)
        self.settings = {name: own for name, own in values.items() if name not in ("simulate", "processes", "ray")}
        self.agreed = _agreed(self.settings)
        self.digest = digest(self.agreed)

    @property
    def is_label_party(self) -> bool:
        return self.name == self.label_party

    @property
    def relays(self) -> bool:
        """Whether feature parties send one another anything."""
        return self.plan.is_linear

    def credentials(self) -> Credentials:
        keys, path = self.own.keys, self.own.path
        revoked = path(keys.revoked) if keys.revoked else None
        return read_credentials(path(keys.key), path(keys.certificate), path(keys.authority), revoked, self.name)

    def _plan(self) -> Plan:
        own = self.federation
        bottom: Any = own.bottom if self.own.bottom is None else {self.name: self.own.bottom}
        return Plan(own.algorithm, own.training, own.privacy, bottom, own.top, own.seed)

    def _directory(self) -> Path:
        if self.own.party.out:
            return self.own.path(self.own.party.out)
        return Path(f"runs/{self.federation.name or 'federation'}-{self.name}")

    def _load(self) -> OwnData:
        everywhere = self.plan.is_linear and self.plan.algorithm.labels == "everywhere"
        data = load_own(
            self.federation.data,
            self.own.data,
            self.name,
            self.feature_parties,
            self.label_party,
            self.own.base,
            labels_everywhere=everywhere,
        )
        if everywhere and data.labels is None:
            raise SettingsError(
                f'algorithm.labels is "everywhere", but the file of {self.name} has no column '
                f"{self.federation.data.label!r}."
            )
        if not everywhere and not self.is_label_party:
            data = replace(data, labels=None)
        if not self.plan.is_linear and data.columns is not None:
            data = replace(data, columns=all_dense_columns(self.name, data.columns))
        return data

    def agree(self, facts: Facts) -> None:
        """Everybody is known: fill in what follows from that, above all the noise that keeps a privacy target."""
        self.known = facts
        self.plan = calibrated(self.plan, facts)

    # --- what is said of it ---

    def shape(self) -> tuple[int, ...]:
        return () if self.data.columns is None else self.data.columns.shape

    def facts(self, roster: Roster) -> Facts:
        return Facts(
            self.label_party,
            self.feature_parties,
            self.data.rows,
            self.data.test_rows,
            roster.task,
            roster.classes,
            roster.shapes,
            roster.widths,
        )

    def alone(self, shape: tuple[int, ...], task: str = "", classes: int = 0) -> Facts:
        """The facts that one party's width follows from."""
        return Facts(self.label_party, self.feature_parties, 0, 0, task, classes, {self.name: shape}, {})

    def fixed_width(self, shape: tuple[int, ...]) -> int:
        """The width of this party's embeddings, or 0 where it follows from the label party's task."""
        only_sums = isinstance(self.plan.top, TopSettings) and self.plan.top.only_sums
        if self.plan.is_linear or self.plan.chosen.bottom is not None or only_sums:
            return 0
        return width_of(self.name, self.alone(shape), self.plan)


def _agreed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same at all parties from beginning to end; how one reaches the label party is its own matter."""
    network = {name: value for name, value in settings["network"].items() if name != "address"}
    return {**settings, "network": network}


def _feature_parties(federation: Federation) -> tuple[str, ...]:
    named = tuple(name for name in federation.parties if name != federation.label_party)
    named = named or tuple(f"party{1 + place}" for place in range(federation.data.parties))
    if not named:
        raise SettingsError("The federation names no feature party: give each a [parties.NAME] section.")
    return named


# --- the run directory ------------------------------------------------------------------------------------------


class PartyDirectory:
    """A party's run directory: its secrets, what it learnt at the door, and a lock against a second process."""

    def __init__(self, participant: Participant, *, draws: bool = True) -> None:
        """`draws`: secrets that are not there yet. Without, they must be, and nothing is written."""
        self.path = participant.directory
        self._participant = participant
        self._draws = draws
        if draws:
            _make(self.path)
        if self.has_begun():
            self._check_unchanged()
        has_journal = first_number(self.path / "journal", participant.name) is not None
        check_journal(self.path / "ledger.jsonl", has_journal, participant.name)
        self.token = self._secret("token").hex()
        self.sealing = SealingKey.from_bytes(self._secret("sealing.key"))
        entropy = int.from_bytes(self._secret("entropy"), "little")
        self.secret = entropy if participant.federation.network.private_randomness else participant.plan.seed

    def _secret(self, name: str) -> bytes:
        """32 bytes of this run's own, drawn once and readable by nobody else."""
        path = self.path / name
        if not path.exists() and self._draws:
            write_atomically(path, os.urandom(32), mode=0o600)
        found = path.read_bytes() if path.exists() else b""
        if len(found) != 32:
            raise _damaged(path)
        return found

    def has_begun(self) -> bool:
        """Whether the parties have agreed on everything. Until then, what was wrong may be put right."""
        return (self.path / "everybody.json").exists()

    def keep_plan(self) -> None:
        """Write down what this run is made of, for every later start."""
        if not self.has_begun():
            write_atomically(self.path / "federation.toml", write_toml(self._participant.settings).encode())
            write_atomically(self.path / "rows.json", json.dumps(self._digests()).encode())

    def _digests(self) -> dict[str, str]:
        """Of everything that what this party sends is computed from: after a crash it is computed again."""
        data, own = self._participant.data, self._participant.own
        found = {"rows": data.row_digest, "settings": self._participant.digest}
        if data.columns is not None:
            found["columns"] = data_digest(data.columns.train, data.columns.test)
        if data.labels is not None:
            found["labels"] = data_digest(data.labels.train, data.labels.test)
        if own.bottom is not None:
            found["bottom model"] = digest(as_values(own.bottom))
        return found

    def _check_unchanged(self) -> None:
        """Settings and data are those of the beginning: frames that are sent again must be the same."""
        kept = self.path / "federation.toml"
        try:
            settings = _agreed(tomllib.loads(kept.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError):
            raise _damaged(kept) from None
        if settings != tomllib.loads(write_toml(self._participant.agreed)):
            raise SettingsError(
                f"{self.path} holds a run with other settings. Choose another directory with --out, or use {kept}."
            )
        before, now = self._read("rows.json", dict[str, str]), self._digests()
        if before.get("settings") != now["settings"]:
            raise SettingsError(
                f"{kept} was changed after its run began, which has kept a digest of its settings. Put those settings "
                "back, or choose another directory with --out for a new run."
            )
        different = [what for what in {**before, **now} if before.get(what) != now.get(what)]
        if different:
            raise SettingsError(
                f"The {' and '.join(different)} of {self._participant.name} are others than those the run in "
                f"{self.path} began with. Put them back as they were, or choose another directory with --out for a "
                "new run."
            )

    def _read(self, name: str, kind: type[T]) -> T:
        path = self.path / name
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except (msgspec.MsgspecError, ValueError):
            raise _damaged(path) from None

    def roster(self) -> Roster | None:
        return self._read("everybody.json", Roster) if self.has_begun() else None

    def keep(self, roster: Roster) -> None:
        write_atomically(self.path / "everybody.json", msgspec.json.encode(roster))

    def tokens(self) -> dict[str, str]:
        """Of the run directories from which the training began, at the label party."""
        return self._read("tokens.json", dict[str, str]) if (self.path / "tokens.json").exists() else {}

    def keep_tokens(self, tokens: Mapping[str, str]) -> None:
        known = self.tokens()
        if not tokens.items() <= known.items():
            write_atomically(self.path / "tokens.json", json.dumps({**known, **tokens}).encode())

    def left(self) -> list[str]:
        return self._read("left.json", list[str]) if (self.path / "left.json").exists() else []

    def keep_left(self, name: str) -> None:
        write_atomically(self.path / "left.json", json.dumps(sorted({*self.left(), name})).encode())


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
    except OSError as error:
        raise SettingsError(f"The run directory {directory} could not be made: {error.strerror}.") from None


def _damaged(path: Path) -> RunError:
    return RunError(f"{path} is damaged, and without it this run cannot go on. Start a new one elsewhere.")


# --- taking part ------------------------------------------------------------------------------------------------


class _LabelDoor:
    """Whom the label party lets in."""

    def __init__(self, participant: Participant, home: PartyDirectory) -> None:
        self._participant = participant
        self._home = home

    def admit(self, name: str, hello: Hello) -> None:
        own = self._participant
        if name in self._home.left():
            raise ProtocolError(f"{name} has left this federation for good.")
        if self._home.tokens().get(name, hello.token) != hello.token:
            raise ProtocolError(another_directory(name))
        try:
            theirs = json.loads(hello.settings)
        except (ValueError, RecursionError):
            raise ProtocolError(f"{name} sent settings that are not JSON.") from None
        if differs := difference(json.loads(json.dumps(own.agreed)), theirs):
            raise ProtocolError(
                f"The federation.toml of {name} and that of {own.name} differ in {plain(differs)}: use the same file."
            )
        sizes = 1 <= len(hello.shape) <= 3 and min(hello.shape) > 0 and math.prod(hello.shape) <= MOST_COLUMNS
        if not sizes or not 0 <= hello.width <= MOST_NUMBERS or len(hello.token) != len(self._home.token):
            raise ProtocolError(
                f"{name} says of itself what cannot be: a row has 1 to {MOST_COLUMNS} columns, an embedding at most "
                f"{MOST_NUMBERS} numbers."
            )
        if hello.row_digest != own.data.row_digest:
            raise ProtocolError(
                f"{name} has other rows than {own.name}, or the same in another split: {hello.rows} + {hello.test_rows}"
                f" to train and test on, against {own.data.rows} + {own.data.test_rows}. Align the ids of both files."
            )
        known = self._home.roster()
        if known is None:
            return
        if hello.width and hello.width != known.widths.get(name):
            raise ProtocolError(
                f"{name} sends embeddings of {hello.width} numbers, but the training began with "
                f"{known.widths.get(name)}: its [bottom] must fit."
            )
        self._home.keep_tokens({name: hello.token})

    def leave(self, name: str) -> None:
        self._home.keep_left(name)


def join(
    federation: Federation,
    own: PartyFile,
    *,
    out: Path | None = None,
    without: Sequence[str] = (),
    party_timeout_seconds: float | None = None,
    trace: bool = False,
    watch: Callable[[dict[str, Any]], None] | None = None,
    report: Callable[[Station], None] | None = None,
    operate: Callable[["Participant", Host | Guest, Recorder], Callable[[], None]] | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> Joined:
    """Take part in a network run until it ends. `report` is called now and then with the party's station.

    `operate` is called once, before the first word to anybody; what it returns is called in every turn.
    """
    participant = Participant(federation, own, out)
    _check_without(participant, without)
    if party_timeout_seconds is not None:
        participant.plan = _with_timeout(participant.plan, party_timeout_seconds)
    torch.set_num_threads(1)
    _make(participant.directory)
    with only_process_in(participant.directory):
        home = PartyDirectory(participant)
        leads = participant.is_label_party
        recorder = Recorder(participant.label_party, home.path if leads else None, watch, virtual=False)
        home.keep_plan()
        carrier = (
            _host(participant, home, recorder, without, trace, stop_requested)
            if leads
            else _guest(participant, home, recorder, trace, stop_requested)
        )
        attend = None if operate is None else operate(participant, carrier, recorder)

        def look() -> None:
            if report is not None and carrier.station is not None:
                report(carrier.station)
            if attend is not None:
                attend()

        try:
            finished = asyncio.run(carrier.run(look))
            station = carrier.station
            if station is not None:
                station.save()  # not after an exception: an event may be half handled, and the journal has it whole
        finally:
            if carrier.station is not None:
                carrier.station.close()
            recorder.close()
        summary = _summary(participant, station, recorder, finished)
        if station is not None:
            write_atomically(home.path / "summary.json", json.dumps(summary, indent=1).encode())
    return Joined(finished, home.path, summary)


def leave(federation: Federation, own: PartyFile, out: Path | None = None) -> None:
    """Tell the label party that this party leaves for good."""
    participant = Participant(federation, own, out)
    if participant.is_label_party:
        raise SettingsError("The label party cannot leave its own federation: stop it instead.")
    home = PartyDirectory(participant)
    guest = _guest(
        participant, home, Recorder(participant.label_party, virtual=False), False, lambda: False, leaves=True
    )
    asyncio.run(guest.leave())


def rebuilt(
    federation: Federation, own: PartyFile, directory: Path, party_timeout_seconds: float | None = None
) -> dict[str, Party]:
    """The party whose run directory this is, by name, as it was when its run began."""
    participant = Participant(federation, own, directory)
    if party_timeout_seconds is not None:
        participant.plan = _with_timeout(participant.plan, party_timeout_seconds)
    home = PartyDirectory(participant, draws=False)
    roster = home.roster()
    if roster is None:
        raise SettingsError(f"The run in {directory} had not begun: {participant.name} knows nothing of the others.")
    return {participant.name: _party(participant, home, participant.facts(roster))}


def _check_without(participant: Participant, without: Sequence[str]) -> None:
    for name in without:
        if name not in participant.feature_parties:
            raise unknown_name("feature party to begin without", name, participant.feature_parties)
    if without and not participant.is_label_party:
        raise SettingsError("--without is the label party's to say: it decides when to begin.")
    if without and (participant.relays or participant.plan.chosen.bottom is not None):
        raise SettingsError(
            f"{participant.plan.chosen.name} cannot begin without a party: everybody's block or share of the columns "
            "is part of the first step."
        )


def _with_timeout(plan: Plan, seconds: float) -> Plan:
    """How long the label party's synchronous schedule waits for a lost party; asynchronous ones do not wait."""
    if "party_timeout_seconds" not in {field.name for field in fields(plan.algorithm)}:
        return plan
    return replace(plan, algorithm=replace(plan.algorithm, party_timeout_seconds=seconds))


def _station(
    participant: Participant,
    home: PartyDirectory,
    recorder: Recorder,
    facts: Facts,
    trace: bool,
    without: Sequence[str] = (),
) -> Station:
    party = _party(participant, home, facts)
    everyone = participant.everyone
    peers = everyone if participant.relays or participant.is_label_party else (participant.label_party,)
    return Station(
        participant.name,
        party,
        Company([name for name in peers if name != participant.name], participant.label_party, without),
        home.path,
        Books(recorder, lambda position: Ledger(home.path / "ledger.jsonl", position), trace),
        endurance=participant.own.endurance,
        limits=LIMITS,
    )


def _party(participant: Participant, home: PartyDirectory, facts: Facts) -> Party:
    own = PrivateData(participant.name, participant.data.columns, participant.data.labels, home.secret)
    participant.agree(facts)
    return build_party(own, facts, participant.plan)


def _keys(participant: Participant, home: PartyDirectory) -> Keys:
    return Keys(participant.credentials, home.sealing, participant.digest)


def _host(
    participant: Participant,
    home: PartyDirectory,
    recorder: Recorder,
    without: Sequence[str],
    trace: bool,
    stop_requested: Callable[[], bool],
) -> Host:
    labels = participant.data.labels
    assert labels is not None
    roster = home.roster()
    left = home.left()

    def begin(hellos: Mapping[str, Hello]) -> tuple[Station, Roster] | None:
        nonlocal roster
        if roster is None:
            there = {*hellos, *without, *left}
            if not there >= {*participant.feature_parties}:
                return None
            roster = _everybody(participant, hellos, labels.task, len(labels.classes))
        absent = {*without, *left}
        station = _station(participant, home, recorder, participant.facts(roster), trace, sorted(absent))
        if not home.has_begun():  # not before it is known that this party can be built
            home.keep_tokens({name: hello.token for name, hello in hellos.items()})
            home.keep(roster)
        for name in left:
            station.leave(name)
        return station, roster

    return Host(
        participant.name,
        participant.feature_parties,
        _keys(participant, home),
        participant.own.party.listen,
        _LabelDoor(participant, home),
        relays=participant.relays,
        begin=begin,
        linger_seconds=participant.own.endurance.linger_seconds,
        stop_requested=stop_requested,
    )


def _everybody(participant: Participant, hellos: Mapping[str, Hello], task: str, classes: int) -> Roster:
    """What the label party tells all, once it has met everybody it waits for."""
    # A party that comes later is taken to have the shared bottom model, whose width does not depend on its columns.
    shapes = {name: hellos[name].shape if name in hellos else (1,) for name in participant.feature_parties}
    if participant.data.columns is not None:
        shapes[participant.name] = participant.shape()
    facts = Facts(participant.label_party, participant.feature_parties, 0, 0, task, classes, shapes, {})
    widths: dict[str, int] = {}
    if not participant.plan.is_linear:
        for name in shapes:
            told = hellos[name].width if name in hellos else 0
            widths[name] = told or width_of(name, facts, participant.plan)
    return Roster(task, classes, shapes, widths)


def _guest(
    participant: Participant,
    home: PartyDirectory,
    recorder: Recorder,
    trace: bool,
    stop_requested: Callable[[], bool],
    leaves: bool = False,
) -> Guest:
    address = participant.federation.network.address
    if not address:
        raise SettingsError("The federation has no [network] address: say at which host:port the label party is.")

    def hello(nonce: bytes) -> Hello:
        signature = sign_introduction(participant.credentials(), participant.digest, home.sealing.public_bytes())
        return Hello(
            PROTOCOL,
            json.dumps(participant.agreed),
            participant.data.row_digest,
            participant.data.rows,
            participant.data.test_rows,
            participant.shape(),
            participant.fixed_width(participant.shape()),
            home.token,
            home.sealing.public_bytes(),
            signature,
            nonce,
            leaves,
        )

    def begin(roster: Roster) -> Station:
        if roster.shapes.get(participant.name) != participant.shape():
            own = participant.shape()
            roster = msgspec.structs.replace(roster, shapes={**roster.shapes, participant.name: own})
        _check_everybody(participant, roster)
        station = _station(participant, home, recorder, participant.facts(roster), trace)
        home.keep(roster)
        return station

    guest = Guest(
        participant.name,
        participant.label_party,
        address,
        _keys(participant, home),
        hello,
        begin=begin,
        linger_seconds=participant.own.endurance.linger_seconds,
        stop_requested=stop_requested,
    )
    if not leaves and (known := home.roster()) is not None:
        guest.station = begin(known)  # it may have finished: then nobody need be there any more
    return guest


def _check_everybody(participant: Participant, roster: Roster) -> None:
    """Refuse what the label party says of all if no federation of these parties could be so."""
    label, plan, parties = participant.label_party, participant.plan, {*participant.everyone}
    sizes = [math.prod(shape) for shape in roster.shapes.values() if all(length > 0 for length in shape)]
    possible = (
        roster.task in TASKS
        and 0 <= roster.classes <= MOST_CLASSES
        and {*participant.feature_parties} <= roster.shapes.keys() <= parties
        and len(sizes) == len(roster.shapes)
        and max(sizes) <= MOST_COLUMNS
    )
    if not possible:
        raise ProtocolError(f"{label} described a federation that cannot be: other parties, or sizes of none.")
    if not plan.is_linear:
        wanted = width_of(participant.name, participant.facts(roster), plan)
        if roster.widths.get(participant.name) != wanted:
            raise ProtocolError(
                f"{label} expects embeddings of {roster.widths.get(participant.name)} numbers from "
                f"{participant.name}, whose model gives {wanted}: its [bottom] must fit."
            )


# --- books ------------------------------------------------------------------------------------------------------


def _summary(participant: Participant, station: Station | None, recorder: Recorder, finished: bool) -> dict[str, Any]:
    """What this party knows of the run at its end; the label party knows most."""
    status = "finished" if finished else "stopped"
    name, algorithm = participant.name, participant.plan.chosen.name
    if station is None:
        return {"algorithm": algorithm, "runtime": "network", "party": name, "status": status}
    books = {
        name: {
            "busy_seconds": station.busy_seconds,
            "idle_seconds": max(0.0, station.now() - station.busy_seconds),
            "restarts": station.restarts,
            "reconnects": station.reconnects(),
        }
    }
    up, down = recorder.bytes_up_and_down()
    events = station.privacy_events()
    assert participant.known is not None
    found = guarantees(participant.plan, participant.known, station.released())
    privacy = privacy_summary(participant.plan, found, events)
    if participant.is_label_party:
        labels = participant.data.labels
        assert labels is not None
        sizes = {party: by_kind(sent.bytes) for party, sent in recorder.traffic.items()}
        frames = {party: by_kind(sent.frames) for party, sent in recorder.traffic.items()}
        counts = station.party.counts()
        return summarise(
            algorithm=algorithm,
            runtime="network",
            seed=participant.plan.seed,
            status=status,
            label_party=name,
            headline=headline(labels.task),
            counts={name: counts},
            metrics=recorder.metrics,
            books=books,
            traffic=sizes,
            frames=frames,
            evaluation_bytes=sum(sent.evaluation_bytes() for sent in recorder.traffic.values()),
            bytes_up=up,
            bytes_down=down,
            retransmitted_bytes=0,
            wall_seconds=station.now(),
            virtual_seconds=None,
            privacy_events=events,
            privacy=privacy,
            learnt=as_sentences(
                disclosures(participant.plan, participant.known, frames, sizes, counts.get("replies", {}))
            ),
            data={
                "name": participant.federation.data.set or "files",
                "rows": participant.data.rows,
                "test_rows": participant.data.test_rows,
                "task": labels.task,
                "parties": {party: {"columns": math.prod(shape)} for party, shape in participant.known.shapes.items()},
            },
            settings=participant.settings,
        )
    return {
        "algorithm": algorithm,
        "runtime": "network",
        "party": name,
        "status": status,
        **station.party.counts(),
        "bytes_sent": sum(recorder.traffic_of(name).bytes.values()),
        "wall_seconds": station.now(),
        "parties": {name: {"role": "feature", **books[name]}},
        "privacy": privacy,
        "versions": versions(),
    }


class PeriodicReport:
    """A log line now and then about how far a party is."""

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._last = time.monotonic()
        self._exchanges: int | None = None  # what a process before this one did is not this one's rate

    def __call__(self, station: Station) -> None:
        now = time.monotonic()
        if self._exchanges is None:
            self._last, self._exchanges = now, station.party.counts()["exchanges"]
        if now - self._last < self._seconds:
            return
        done = station.party.counts()["exchanges"]
        absent = station.absent()
        waits = f"; without {', '.join(absent)}" if absent else ""
        log.info("%d exchanges, %.0f a second%s", done, (done - self._exchanges) / (now - self._last), waits)
        self._last, self._exchanges = now, done
