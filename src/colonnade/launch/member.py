"""One organisation's end of a network run, be it a training, an alignment or a prediction: its two files, checked."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from colonnade.errors import SettingsError, unknown_name
from colonnade.federation.file import Federation, digest, federation_values
from colonnade.federation.party_file import PartyFile
from colonnade.party import Party
from colonnade.wire.certificates import CredentialFiles, Credentials
from colonnade.wire.handshake import Roster

_OWN = ("simulate", "processes", "ray", "start", "track")
"""Sections that are about one machine."""


class Member:
    """What a party of a network run is, before it says a word to anybody; what it is there for, its kind says."""

    purpose = ""
    """How its directory's name ends, if it is there for something else than a training."""

    def __init__(self, federation: Federation, party_file: PartyFile, out: Path | None = None) -> None:
        self.federation = federation
        self.party_file = party_file
        self.name = party_file.party.name
        self.label_party = federation.label_party
        self.feature_parties = _feature_parties(federation)
        self.everyone = (self.label_party, *self.feature_parties)
        if self.name not in self.everyone:
            raise unknown_name("party of this federation called", self.name, self.everyone)
        self._check()
        self.directory = out or self._directory()
        keys, path = party_file.keys, party_file.path
        revoked = path(keys.revoked) if keys.revoked else None
        self._credential_files = CredentialFiles(
            path(keys.key), path(keys.certificate), path(keys.authority), revoked, self.name
        )
        self.credentials()  # a wrong certificate is said before anything is loaded
        if federation.start.model:
            raise SettingsError(
                "[start] names a model in the federation.toml that all parties share, but a party's model is its own: "
                "say it in [start] of each party.toml."
            )
        if federation.track:
            raise SettingsError(
                "[track] stands in the federation.toml that all parties share, but where a party keeps its runs is its "
                "own matter: say it in [track] of each party.toml."
            )
        # As JSON, so that a difference can be named; runtimes of one machine are nobody else's business.
        values = federation_values(federation)
        self.settings = {name: value for name, value in values.items() if name not in _OWN}
        self.agreed = without_way(self.settings)
        self.digest = digest(self.agreed)

    def say(self, said: Mapping[str, Any]) -> None:
        """What all must agree on besides the settings of the federation: what they are there for."""
        self.settings = {**self.settings, **said}
        self.agreed = {**self.agreed, **said}
        self.digest = digest(self.agreed)

    def _check(self) -> None:
        """Refuse a federation that cannot be run."""

    @property
    def training_directory(self) -> Path:
        """Where a training by the same two files is written if nobody says otherwise."""
        return default_directory(self.federation, self.party_file)

    def _directory(self) -> Path:
        folder = self.training_directory
        return folder.with_name(f"{folder.name}-{self.purpose}") if self.purpose else folder

    @property
    def address(self) -> str:
        """Where a feature party calls the label party."""
        address = self.federation.network.address
        if not address:
            raise SettingsError("The federation has no [network] address: say at which host:port the label party is.")
        return address

    @property
    def is_label_party(self) -> bool:
        return self.name == self.label_party

    def credentials(self) -> Credentials:
        """As its files are now; to be asked as often as they are needed."""
        return self._credential_files.read()

    # --- what its kind says ---

    @property
    def relays(self) -> bool:
        """Whether feature parties send one another anything."""
        raise NotImplementedError

    def rows_told(self) -> tuple[str, int, int]:
        """A digest of its rows, and how many there are to train and to test on; nothing, if it trains nothing."""
        return "", 0, 0

    def shape_told(self) -> tuple[tuple[int, ...], int]:
        """Of one of its rows, and the width of its embedding; 0 where none is sent."""
        return (1,), 0

    def secret_of(self, entropy: int) -> int:
        """What its own randomness follows from, given what its run directory has drawn."""
        return entropy

    def digests(self) -> dict[str, str]:
        """Of everything that what this party sends is computed from: after a crash it is computed again."""
        raise NotImplementedError

    def peers(self, roster: Roster) -> tuple[str, ...]:
        """Whom it talks to."""
        raise NotImplementedError

    def check_longer(self, roster: Roster) -> None:
        """Refuse more epochs for a run that has ended, where they cannot be."""
        raise SettingsError(f"{self.directory} holds no training, which alone has epochs to go on with.")

    def open_account(self) -> None:
        """Count what is to be released before it is, where that is counted. Its directory is held."""

    def keep_model(
        self, party: Party, metrics: list[dict[str, Any]], released: Sequence[Mapping[str, Any]], directory: Path
    ) -> None:
        """Save what it has trained, if it has. `metrics` were recorded of it; `released` is what it has, row by row."""

    def build(self, roster: Roster, secret: int) -> Party:
        """The party, once everybody is known."""
        raise NotImplementedError


NOBODY = Roster("", 0, {}, {})
"""What is told of one another where no training is described."""


def default_directory(federation: Federation, party_file: PartyFile) -> Path:
    """Where a party's run is written if nobody says otherwise."""
    if party_file.party.out:
        return party_file.path(party_file.party.out)
    return Path(f"runs/{federation.name or 'federation'}-{party_file.party.name}")


def next_directory(trained: Path, purpose: str) -> Path:
    """Beside the training's: the one that was begun last, or the next after one that has ended."""
    number = 1
    while (trained.with_name(f"{trained.name}-{purpose}-{number}") / "summary.json").exists():
        number += 1
    return trained.with_name(f"{trained.name}-{purpose}-{number}")


def without_way(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same at all parties from beginning to end. By what address one reaches the label party is its
    own matter; over what carrier is compared when it is greeted, and may change while nobody runs."""
    network = {name: value for name, value in settings["network"].items() if name not in ("address", "carrier")}
    return {**settings, "network": network}


def _feature_parties(federation: Federation) -> tuple[str, ...]:
    named = tuple(name for name in federation.parties if name != federation.label_party)
    named = named or tuple(f"party{1 + place}" for place in range(federation.data.parties))
    if not named:
        raise SettingsError("The federation names no feature party: give each a [parties.NAME] section.")
    return named
