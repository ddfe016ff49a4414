"""One organisation's part of serving: the label party's endpoint, or a feature party that answers it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

from colonnade.errors import SettingsError
from colonnade.federation.file import Federation
from colonnade.federation.party_file import PartyFile
from colonnade.launch.door import MODEL, PURPOSE, refuse_difference, settings_in
from colonnade.launch.join import hello_of
from colonnade.launch.member import NOBODY, Member
from colonnade.launch.model_meeting import check_same_parties
from colonnade.launch.party_directory import PartyDirectory, make_directory
from colonnade.launch.serving import Serving, check_servable, looking_now_and_then, looking_on_hangup, opened
from colonnade.party import Party
from colonnade.prediction.own_rows import id_form
from colonnade.runtimes.links import Peers
from colonnade.runtimes.network import limits
from colonnade.runtimes.network.carrier import Keys
from colonnade.runtimes.network.carriers import dialler, listener
from colonnade.runtimes.network.guest import Guest
from colonnade.runtimes.network.host import Host
from colonnade.runtimes.run_lock import only_process_in
from colonnade.runtimes.station import Station
from colonnade.serving.feature_party import ServingFeatureParty
from colonnade.serving.label_party import ServingLabelParty
from colonnade.serving.live_rows import LiveRows
from colonnade.serving.metrics import ServingMetrics
from colonnade.serving.station import LiveStation
from colonnade.serving.versions import Versions
from colonnade.threads import compute_with
from colonnade.wire.handshake import Hello, Roster


class ServingMember(Member):
    """Who serves: its model and table are read before it says a word to anybody."""

    purpose = "serve"

    def __init__(
        self, federation: Federation, party_file: PartyFile, model: Path | None, out: Path | None, show_products: bool
    ) -> None:
        super().__init__(federation, party_file, out)
        if federation.data.set:
            raise SettingsError(f"data.set = {federation.data.set!r} gives no party a table of its own to serve from.")
        self.versions = Versions(model or self.training_directory, self.name)
        described = self.versions.newest.description
        check_same_parties(self, described, "serves")
        check_servable(self.versions.newest, show_products)
        common = {"algorithm": described.algorithm, "task": described.task, "widths": described.widths}
        self.say({PURPOSE: "serving", MODEL: common})
        self.form = id_form(self.everyone, federation.data, federation.alignment)
        self.rows: LiveRows | None = None
        if self.name in described.shapes:
            self.rows = LiveRows(self.name, party_file.data, federation.data, self.form, party_file.base)

    @property
    def relays(self) -> bool:
        return False

    def digests(self) -> dict[str, str]:
        return {"settings": self.digest}

    def peers(self, roster: Roster) -> tuple[str, ...]:
        return self.feature_parties if self.is_label_party else (self.label_party,)

    def build(self, roster: Roster, secret: int) -> Party:
        raise NotImplementedError("nothing of serving is a run")


class ServingDoor:
    """Whom a serving label party lets in: who has the same settings. Nothing is remembered of anybody."""

    def __init__(self, member: ServingMember) -> None:
        self._member = member

    def admit(self, name: str, hello: Hello) -> None:
        refuse_difference(self._member.agreed, settings_in(hello, name), name, self._member.name)

    def leave(self, name: str) -> None:
        pass


def serve_party(
    federation: Federation,
    party_file: PartyFile,
    serving: Serving,
    *,
    model: Path | None = None,
    out: Path | None = None,
) -> None:
    """Serve as one party until a stop is asked for."""
    compute_with(1)
    limits.raise_file_limit()
    member = ServingMember(federation, party_file, model, out, serving.show_products)
    make_directory(member.directory)
    with only_process_in(member.directory), looking_on_hangup() as hangup:
        directory = PartyDirectory(member)
        run = _lead if member.is_label_party else _follow
        asyncio.run(run(member, directory, serving, hangup))


async def _lead(member: ServingMember, directory: PartyDirectory, serving: Serving, hangup: Callable[[], bool]) -> None:
    given = member.name, member.versions, member.rows, member.form
    party = ServingLabelParty(*given, serving.limits, ServingMetrics(), _shadow(member, serving))
    peers = Peers(member.feature_parties, member.name)
    station = party.station = LiveStation(member.name, peers, party.handle, party.notice, strangers=True)
    host = Host(
        member.name,
        member.feature_parties,
        Keys(member.credentials, directory.sealing, member.digest),
        listener(member.federation.network.carrier, member.party_file.party.listen),
        ServingDoor(member),
        relays=False,
        begin=lambda hellos: (cast(Station, station), NOBODY),  # which it turns alike
        linger_seconds=0,
        stop_requested=serving.stop_requested,
    )
    station.wake = host.stir

    def look() -> None:
        if member.versions.look():
            party.choose_version()

    http = opened(party, serving)
    task = asyncio.create_task(http.run())
    try:
        await host.run(looking_now_and_then(look, hangup))
    finally:
        await http.stop(task)


async def _follow(
    member: ServingMember, directory: PartyDirectory, serving: Serving, hangup: Callable[[], bool]
) -> None:
    assert member.rows is not None
    ledger = directory.path / "served.jsonl"
    given = member.versions, member.rows, ledger, _shadow(member, serving)
    party = ServingFeatureParty(member.name, member.label_party, *given)
    peers = Peers([member.label_party], member.label_party)
    station = LiveStation(member.name, peers, party.handle, party.notice, strangers=True)
    guest = Guest(
        member.name,
        member.label_party,
        dialler(member.federation.network.carrier, member.address),
        Keys(member.credentials, directory.sealing, member.digest),
        lambda nonce: hello_of(member, directory, nonce, leaves=False),
        neighbours=(),
        begin=lambda roster: cast(Station, station),
        linger_seconds=0,
        stop_requested=serving.stop_requested,
    )
    station.wake = guest.stir

    def look() -> None:
        if member.versions.look() and station.present:
            for news in party.told():
                station.ask(member.label_party, news)

    await guest.run(looking_now_and_then(look, hangup))


def _shadow(member: ServingMember, serving: Serving) -> Versions | None:
    return None if serving.shadow is None else Versions(serving.shadow, member.name)
