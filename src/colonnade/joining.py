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
from colonnade.data.federated import OwnData, data_digest
from colonnade.data.loading import load_own
from colonnade.data.settings import TASKS
from colonnade.errors import ProtocolError, RunError, SettingsError, unknown_name
from colonnade.federation import Federation, digest, federation_values, write_toml
from colonnade.learnt import as_sentences, learnt
from colonnade.models.top import TopSettings
from colonnade.party import Party
from colonnade.party_file import PartyFile
from colonnade.privacy.ledger import Ledger, check_journal
from colonnade.private_figures import figures, privacy_summary
from colonnade.private_plan import calibrated
from colonnade.reports.summary import summarise, versions
from colonnade.run_lock import only_process_in
from colonnade.runtimes.checkpoint import write_atomically
from colonnade.runtimes.journal import first_number
from colonnade.runtimes.network import Guest, Host, Keys, another_directory
from colonnade.runtimes.recorder import Recorder, by_kind
from colonnade.runtimes.station import Station
from colonnade.seating import Facts, Own, Plan, all_dense_columns, build_party, check_plan, width_of
from colonnade.settings import as_values
from colonnade.wire.certificates import Credentials, read_credentials
from colonnade.wire.codec import Limits
from colonnade.wire.handshake import PROTOCOL, Everybody, Hello, difference, plain
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


class Membership:
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
        if self.plan.chosen.alone is not None:
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
        return self.plan.chosen.peer is not None

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
        everywhere = self.plan.chosen.peer is not None and self.plan.algorithm.labels == "everywhere"
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
        if self.plan.chosen.peer is None and data.columns is not None:
            data = replace(data, columns=all_dense_columns(self.name, data.columns))
        return data

    def agree(self, facts: Facts) -> None:
        """Everybody is known: fill in what follows from that, above all the noise that keeps a privacy target."""
        self.known = facts
        self.plan = calibrated(self.plan, facts)

    # --- what is said of it ---

    def shape(self) -> tuple[int, ...]:
        return () if self.data.columns is None else self.data.columns.shape

    def facts(self, everybody: Everybody) -> Facts:
        return Facts(
            self.label_party,
            self.feature_parties,
            self.data.rows,
            self.data.test_rows,
            everybody.task,
            everybody.classes,
            everybody.shapes,
            everybody.widths,
        )

    def alone(self, shape: tuple[int, ...], task: str = "", classes: int = 0) -> Facts:
        """The facts that one party's width follows from."""
        return Facts(self.label_party, self.feature_parties, 0, 0, task, classes, {self.name: shape}, {})

    def fixed_width(self, shape: tuple[int, ...]) -> int:
        """The width of this party's embeddings, or 0 where it follows from the label party's task."""
        only_sums = isinstance(self.plan.top, TopSettings) and self.plan.top.only_sums
        if self.plan.chosen.peer is not None or self.plan.chosen.bottom is not None or only_sums:
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


class Home:
    """A party's run directory: its secrets, what it learnt at the door, and a lock against a second process."""

    def __init__(self, membership: Membership, *, draws: bool = True) -> None:
        """`draws`: secrets that are not there yet. Without, they must be, and nothing is written."""
        self.path = membership.directory
        self._membership = membership
        self._draws = draws
        if draws:
            _make(self.path)
        if self.has_begun():
            self._check_unchanged()
        has_journal = first_number(self.path / "journal", membership.name) is not None
        check_journal(self.path / "ledger.jsonl", has_journal, membership.name)
        self.token = self._secret("token").hex()
        self.sealing = SealingKey.from_bytes(self._secret("sealing.key"))
        entropy = int.from_bytes(self._secret("entropy"), "little")
        self.secret = entropy if membership.federation.network.private_randomness else membership.plan.seed

    def _secret(self, name: str) -> bytes:
        """32 bytes of this run's own, drawn once and readable by nobody else."""
        path = self.path / name
        if not path.exists() and self._draws:
            temporary = path.with_name(f".{name}.tmp")
            temporary.unlink(missing_ok=True)
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(os.urandom(32))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
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
            write_atomically(self.path / "federation.toml", write_toml(self._membership.settings).encode())
            write_atomically(self.path / "rows.json", json.dumps(self._digests()).encode())

    def _digests(self) -> dict[str, str]:
        """Of everything that what this party sends is computed from: after a crash it is computed again."""
        data, own = self._membership.data, self._membership.own
        found = {"rows": data.row_digest, "settings": self._membership.digest}
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
        if settings != tomllib.loads(write_toml(self._membership.agreed)):
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
                f"The {' and '.join(different)} of {self._membership.name} are others than those the run in "
                f"{self.path} began with. Put them back as they were, or choose another directory with --out for a "
                "new run."
            )

    def _read(self, name: str, kind: type[T]) -> T:
        path = self.path / name
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except (msgspec.MsgspecError, ValueError):
            raise _damaged(path) from None

    def everybody(self) -> Everybody | None:
        return self._read("everybody.json", Everybody) if self.has_begun() else None

    def keep(self, everybody: Everybody) -> None:
        write_atomically(self.path / "everybody.json", msgspec.json.encode(everybody))

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

    def __init__(self, membership: Membership, home: Home) -> None:
        self._membership = membership
        self._home = home

    def admit(self, name: str, hello: Hello) -> None:
        own = self._membership
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
        known = self._home.everybody()
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
    operate: Callable[["Membership", Host | Guest, Recorder], Callable[[], None]] | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> Joined:
    """Take part in a network run until it ends. `report` is called now and then with the party's station.

    `operate` is called once, before the first word to anybody; what it returns is called in every turn.
    """
    membership = Membership(federation, own, out)
    _check_without(membership, without)
    if party_timeout_seconds is not None:
        membership.plan = _with_timeout(membership.plan, party_timeout_seconds)
    torch.set_num_threads(1)
    _make(membership.directory)
    with only_process_in(membership.directory):
        home = Home(membership)
        leads = membership.is_label_party
        recorder = Recorder(membership.label_party, home.path if leads else None, watch, virtual=False)
        home.keep_plan()
        carrier = (
            _host(membership, home, recorder, without, trace, stop_requested)
            if leads
            else _guest(membership, home, recorder, trace, stop_requested)
        )
        attend = None if operate is None else operate(membership, carrier, recorder)

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
        summary = _summary(membership, station, recorder, finished)
        if station is not None:
            write_atomically(home.path / "summary.json", json.dumps(summary, indent=1).encode())
    return Joined(finished, home.path, summary)


def leave(federation: Federation, own: PartyFile, out: Path | None = None) -> None:
    """Tell the label party that this party leaves for good."""
    membership = Membership(federation, own, out)
    if membership.is_label_party:
        raise SettingsError("The label party cannot leave its own federation: stop it instead.")
    home = Home(membership)
    guest = _guest(membership, home, Recorder(membership.label_party, virtual=False), False, lambda: False, leaves=True)
    asyncio.run(guest.leave())


def rebuilt(
    federation: Federation, own: PartyFile, directory: Path, party_timeout_seconds: float | None = None
) -> dict[str, Party]:
    """The party whose run directory this is, by name, as it was when its run began."""
    membership = Membership(federation, own, directory)
    if party_timeout_seconds is not None:
        membership.plan = _with_timeout(membership.plan, party_timeout_seconds)
    home = Home(membership, draws=False)
    everybody = home.everybody()
    if everybody is None:
        raise SettingsError(f"The run in {directory} had not begun: {membership.name} knows nothing of the others.")
    return {membership.name: _party(membership, home, membership.facts(everybody))}


def _check_without(membership: Membership, without: Sequence[str]) -> None:
    for name in without:
        if name not in membership.feature_parties:
            raise unknown_name("feature party to begin without", name, membership.feature_parties)
    if without and not membership.is_label_party:
        raise SettingsError("--without is the label party's to say: it decides when to begin.")
    if without and (membership.relays or membership.plan.chosen.bottom is not None):
        raise SettingsError(
            f"{membership.plan.chosen.name} cannot begin without a party: everybody's block or share of the columns is "
            "part of the first step."
        )


def _with_timeout(plan: Plan, seconds: float) -> Plan:
    """How long the label party's synchronous schedule waits for a lost party; asynchronous ones do not wait."""
    if "party_timeout_seconds" not in {field.name for field in fields(plan.algorithm)}:
        return plan
    return replace(plan, algorithm=replace(plan.algorithm, party_timeout_seconds=seconds))


def _station(
    membership: Membership,
    home: Home,
    recorder: Recorder,
    facts: Facts,
    trace: bool,
    without: Sequence[str] = (),
) -> Station:
    party = _party(membership, home, facts)
    everyone = membership.everyone
    peers = everyone if membership.relays or membership.is_label_party else (membership.label_party,)
    return Station(
        membership.name,
        party,
        [name for name in peers if name != membership.name],
        membership.label_party,
        home.path,
        recorder,
        lambda position: Ledger(home.path / "ledger.jsonl", position),
        trace=trace,
        endurance=membership.own.endurance,
        limits=LIMITS,
        without=without,
    )


def _party(membership: Membership, home: Home, facts: Facts) -> Party:
    own = Own(membership.name, membership.data.columns, membership.data.labels, home.secret)
    membership.agree(facts)
    return build_party(own, facts, membership.plan)


def _keys(membership: Membership, home: Home) -> Keys:
    return Keys(membership.credentials, home.sealing, membership.digest)


def _host(
    membership: Membership,
    home: Home,
    recorder: Recorder,
    without: Sequence[str],
    trace: bool,
    stop_requested: Callable[[], bool],
) -> Host:
    labels = membership.data.labels
    assert labels is not None
    everybody = home.everybody()
    left = home.left()

    def begin(hellos: Mapping[str, Hello]) -> tuple[Station, Everybody] | None:
        nonlocal everybody
        if everybody is None:
            there = {*hellos, *without, *left}
            if not there >= {*membership.feature_parties}:
                return None
            everybody = _everybody(membership, hellos, labels.task, len(labels.classes))
        absent = {*without, *left}
        station = _station(membership, home, recorder, membership.facts(everybody), trace, sorted(absent))
        if not home.has_begun():  # not before it is known that this party can be built
            home.keep_tokens({name: hello.token for name, hello in hellos.items()})
            home.keep(everybody)
        for name in left:
            station.leave(name)
        return station, everybody

    return Host(
        membership.name,
        membership.feature_parties,
        _keys(membership, home),
        membership.own.party.listen,
        _LabelDoor(membership, home),
        relays=membership.relays,
        begin=begin,
        linger_seconds=membership.own.endurance.linger_seconds,
        stop_requested=stop_requested,
    )


def _everybody(membership: Membership, hellos: Mapping[str, Hello], task: str, classes: int) -> Everybody:
    """What the label party tells all, once it has met everybody it waits for."""
    # A party that comes later is taken to have the shared bottom model, whose width does not depend on its columns.
    shapes = {name: hellos[name].shape if name in hellos else (1,) for name in membership.feature_parties}
    if membership.data.columns is not None:
        shapes[membership.name] = membership.shape()
    facts = Facts(membership.label_party, membership.feature_parties, 0, 0, task, classes, shapes, {})
    widths: dict[str, int] = {}
    if membership.plan.chosen.peer is None:
        for name in shapes:
            told = hellos[name].width if name in hellos else 0
            widths[name] = told or width_of(name, facts, membership.plan)
    return Everybody(task, classes, shapes, widths)


def _guest(
    membership: Membership,
    home: Home,
    recorder: Recorder,
    trace: bool,
    stop_requested: Callable[[], bool],
    leaves: bool = False,
) -> Guest:
    address = membership.federation.network.address
    if not address:
        raise SettingsError("The federation has no [network] address: say at which host:port the label party is.")

    def hello(nonce: bytes) -> Hello:
        signature = sign_introduction(membership.credentials(), membership.digest, home.sealing.public_bytes())
        return Hello(
            PROTOCOL,
            json.dumps(membership.agreed),
            membership.data.row_digest,
            membership.data.rows,
            membership.data.test_rows,
            membership.shape(),
            membership.fixed_width(membership.shape()),
            home.token,
            home.sealing.public_bytes(),
            signature,
            nonce,
            leaves,
        )

    def begin(everybody: Everybody) -> Station:
        if everybody.shapes.get(membership.name) != membership.shape():
            own = membership.shape()
            everybody = msgspec.structs.replace(everybody, shapes={**everybody.shapes, membership.name: own})
        _check_everybody(membership, everybody)
        station = _station(membership, home, recorder, membership.facts(everybody), trace)
        home.keep(everybody)
        return station

    guest = Guest(
        membership.name,
        membership.label_party,
        address,
        _keys(membership, home),
        hello,
        begin=begin,
        linger_seconds=membership.own.endurance.linger_seconds,
        stop_requested=stop_requested,
    )
    if not leaves and (known := home.everybody()) is not None:
        guest.station = begin(known)  # it may have finished: then nobody need be there any more
    return guest


def _check_everybody(membership: Membership, everybody: Everybody) -> None:
    """Refuse what the label party says of all if no federation of these parties could be so."""
    label, plan, parties = membership.label_party, membership.plan, {*membership.everyone}
    sizes = [math.prod(shape) for shape in everybody.shapes.values() if all(length > 0 for length in shape)]
    possible = (
        everybody.task in TASKS
        and 0 <= everybody.classes <= MOST_CLASSES
        and {*membership.feature_parties} <= everybody.shapes.keys() <= parties
        and len(sizes) == len(everybody.shapes)
        and max(sizes) <= MOST_COLUMNS
    )
    if not possible:
        raise ProtocolError(f"{label} described a federation that cannot be: other parties, or sizes of none.")
    if plan.chosen.peer is None:
        wanted = width_of(membership.name, membership.facts(everybody), plan)
        if everybody.widths.get(membership.name) != wanted:
            raise ProtocolError(
                f"{label} expects embeddings of {everybody.widths.get(membership.name)} numbers from "
                f"{membership.name}, whose model gives {wanted}: its [bottom] must fit."
            )


# --- books ------------------------------------------------------------------------------------------------------


def _summary(membership: Membership, station: Station | None, recorder: Recorder, finished: bool) -> dict[str, Any]:
    """What this party knows of the run at its end; the label party knows most."""
    status = "finished" if finished else "stopped"
    name, algorithm = membership.name, membership.plan.chosen.name
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
    assert membership.known is not None
    found = figures(membership.plan, membership.known, station.released())
    privacy = privacy_summary(membership.plan, found, events)
    if membership.is_label_party:
        labels = membership.data.labels
        assert labels is not None
        sizes = {party: by_kind(sent.bytes) for party, sent in recorder.traffic.items()}
        frames = {party: by_kind(sent.frames) for party, sent in recorder.traffic.items()}
        counts = station.party.counts()
        return summarise(
            algorithm=algorithm,
            runtime="network",
            seed=membership.plan.seed,
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
            learnt=as_sentences(learnt(membership.plan, membership.known, frames, sizes, counts.get("replies", {}))),
            data={
                "name": membership.federation.data.set or "files",
                "rows": membership.data.rows,
                "test_rows": membership.data.test_rows,
                "task": labels.task,
                "parties": {party: {"columns": math.prod(shape)} for party, shape in membership.known.shapes.items()},
            },
            settings=membership.settings,
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
