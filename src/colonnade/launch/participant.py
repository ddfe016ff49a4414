"""Everything a party needs to take part in a network run, checked before it says a word to anybody.

Its two files, its certificate, its own data; then what follows once everybody is known: the facts, and the plan with
its noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from colonnade import algorithms
from colonnade.costs.noise import calibrated
from colonnade.data.federated import OwnData, RowCounts
from colonnade.data.loading import load_own
from colonnade.errors import SettingsError, unknown_name
from colonnade.federation.building import PrivateData, all_dense_columns, build_party, labels_of, width_of
from colonnade.federation.file import Federation, digest, federation_values
from colonnade.federation.party_file import PartyFile
from colonnade.federation.plan import Facts, Plan, check_plan, decided_training
from colonnade.models.top import TopSettings
from colonnade.party import Party
from colonnade.prediction.saved_model import SavedModel, described
from colonnade.privacy.accounting import SECRET, SHARED
from colonnade.wire.certificates import CredentialFiles, Credentials
from colonnade.wire.handshake import Roster


class Participant:
    """Everything a party needs to take part, checked before it says a word to anybody."""

    def __init__(
        self,
        federation: Federation,
        party_file: PartyFile,
        out: Path | None = None,
        party_timeout_seconds: float | None = None,
    ) -> None:
        self.federation = federation
        self.party_file = party_file
        self.name = party_file.party.name
        self.label_party = federation.label_party
        self.feature_parties = _feature_parties(federation)
        self.everyone = (self.label_party, *self.feature_parties)
        if self.name not in self.everyone:
            raise unknown_name("party of this federation called", self.name, self.everyone)
        self.known: Facts | None = None
        chosen = algorithms.find(algorithms.name_of(federation.algorithm))
        if chosen.family is algorithms.Family.ALONE:
            raise SettingsError(
                f"{chosen.name} trains on everybody's data in one place, which a network run never has. "
                f"Choose another algorithm, such as {algorithms.DEFAULT}."
            )
        self._check_randomness()
        self.directory = out or self._directory()
        keys, path = party_file.keys, party_file.path
        revoked = path(keys.revoked) if keys.revoked else None
        self._credential_files = CredentialFiles(
            path(keys.key), path(keys.certificate), path(keys.authority), revoked, self.name
        )
        self.credentials()  # a wrong certificate is said before anything is loaded
        self.data = self._load(chosen.family is algorithms.Family.LINEAR)
        self.plan = self._plan()
        holders = [name for name in self.everyone if name != self.name] + ([self.name] if self.data.columns else [])
        check_plan(self.plan, self.data.rows, self.everyone, dict.fromkeys(holders), self.data.validation_rows)
        if party_timeout_seconds is not None:
            self.plan = _with_timeout(self.plan, party_timeout_seconds)
        # As JSON, so that a difference can be named; runtimes of one machine are nobody else's business.
        values = federation_values(federation)
        self.settings = {name: value for name, value in values.items() if name not in ("simulate", "processes", "ray")}
        self.agreed = without_address(self.settings)
        self.digest = digest(self.agreed)

    @property
    def is_label_party(self) -> bool:
        return self.name == self.label_party

    @property
    def row_counts(self) -> dict[str, RowCounts]:
        """What it may say of rows: those of its own table."""
        return {} if self.data.row_counts is None else {self.name: self.data.row_counts}

    @property
    def randomness(self) -> str:
        """Who knows what its noise is drawn from (privacy/accounting.py)."""
        return SECRET if self.federation.network.private_randomness else SHARED

    def _check_randomness(self) -> None:
        """Refuse a target that cannot be kept, since everybody can compute the noise."""
        for target in ("labels_epsilon", "columns_epsilon"):
            if self.randomness == SHARED and getattr(self.federation.privacy, target) > 0:
                raise SettingsError(
                    f"privacy.{target} cannot be kept with network.private_randomness = false: the noise follows from "
                    "the shared seed, and every party can compute it and take it off. Leave private_randomness out, or "
                    "the target."
                )

    @property
    def relays(self) -> bool:
        """Whether feature parties send one another anything."""
        return self.plan.is_linear

    def credentials(self) -> Credentials:
        """As its files are now; to be asked as often as they are needed."""
        return self._credential_files.read()

    def _plan(self) -> Plan:
        shared, own_bottom = self.federation, self.party_file.bottom
        bottom: Any = shared.bottom if own_bottom is None else {self.name: own_bottom}
        training = decided_training(
            shared.training,
            shared.algorithm,
            self.data.rows,
            len(self.feature_parties),
            shared.privacy.labels_epsilon,
        )
        return Plan(shared.algorithm, training, shared.privacy, bottom, shared.top, shared.seed)

    def _directory(self) -> Path:
        if self.party_file.party.out:
            return self.party_file.path(self.party_file.party.out)
        return Path(f"runs/{self.federation.name or 'federation'}-{self.name}")

    def _load(self, linear: bool) -> OwnData:
        everywhere = linear and self.federation.algorithm.labels == "everywhere"
        data = load_own(
            self.federation.data,
            self.party_file.data,
            self.name,
            self.feature_parties,
            self.label_party,
            self.party_file.base,
            labels_everywhere=everywhere,
        )
        if everywhere and data.labels is None:
            raise SettingsError(
                f'algorithm.labels is "everywhere", but the file of {self.name} has no column '
                f"{self.federation.data.label!r}."
            )
        if not everywhere and not self.is_label_party:
            data = replace(data, labels=None)
        if not linear and data.columns is not None:
            data = replace(data, columns=all_dense_columns(self.name, data.columns))
        return data

    def build(self, roster: Roster, secret: int) -> Party:
        """Everybody is known: fill in what follows from that, above all the noise that keeps a privacy target."""
        facts = self.facts(roster)
        self.known = facts
        self.plan = calibrated(self.plan, facts)
        return build_party(self._private_data(secret), facts, self.plan)

    def trained(self, party: Party, threshold: float) -> SavedModel:
        """What this party has learnt, to be taken along."""
        assert self.known is not None
        return SavedModel(described(self.plan, self.known, self._private_data(0), threshold), party.model())

    def _private_data(self, secret: int) -> PrivateData:
        return PrivateData(self.name, self.data.columns, self.data.labels, secret)

    def check_without(self, without: Sequence[str]) -> None:
        """Refuse to begin without parties that are needed, or that another party says it can do without."""
        for name in without:
            if name not in self.feature_parties:
                raise unknown_name("feature party to begin without", name, self.feature_parties)
        if without and not self.is_label_party:
            raise SettingsError("--without is the label party's to say: it decides when to begin.")
        if without and self.plan.chosen.brings_models:
            raise SettingsError(
                f"{self.plan.chosen.name} cannot begin without a party: everybody's block or share of the columns "
                "is part of the first step."
            )

    # --- what is said of it ---

    def shape(self) -> tuple[int, ...]:
        return () if self.data.columns is None else self.data.columns.shape

    def facts(self, roster: Roster) -> Facts:
        told = Facts(
            self.label_party,
            self.feature_parties,
            self.data.rows,
            self.data.test_rows,
            roster.task,
            roster.classes,
            roster.shapes,
            roster.widths,
            roster.largest_weight,
            self.data.labels is not None and labels_of(self.data.labels, self.plan).weights is not None,
        )
        return replace(told, validation_rows=self.data.validation_rows)

    def alone(self, shape: tuple[int, ...], task: str = "", classes: int = 0) -> Facts:
        """The facts that one party's width follows from."""
        return Facts(self.label_party, self.feature_parties, 0, 0, task, classes, {self.name: shape}, {})

    def fixed_width(self, shape: tuple[int, ...]) -> int:
        """The width of this party's embeddings, or 0 where it follows from the label party's task."""
        only_sums = isinstance(self.plan.top, TopSettings) and self.plan.top.only_sums
        if self.plan.chosen.brings_models or only_sums:
            return 0
        return width_of(self.name, self.alone(shape), self.plan)


def without_address(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same at all parties from beginning to end; how one reaches the label party is its own matter."""
    network = {name: value for name, value in settings["network"].items() if name != "address"}
    return {**settings, "network": network}


def _with_timeout(plan: Plan, seconds: float) -> Plan:
    """How long the label party's synchronous schedule waits for a lost party; asynchronous ones do not wait."""
    if "party_timeout_seconds" not in {field.name for field in fields(plan.algorithm)}:
        return plan
    return replace(plan, algorithm=replace(plan.algorithm, party_timeout_seconds=seconds))


def _feature_parties(federation: Federation) -> tuple[str, ...]:
    named = tuple(name for name in federation.parties if name != federation.label_party)
    named = named or tuple(f"party{1 + place}" for place in range(federation.data.parties))
    if not named:
        raise SettingsError("The federation names no feature party: give each a [parties.NAME] section.")
    return named
