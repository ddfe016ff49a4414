"""Everything a party needs to take part in a network run, checked before it says a word to anybody.

Its two files, its certificate, its own data; then what follows once everybody is known: the facts, and the plan with
its noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from colonnade import algorithms
from colonnade.costs.noise import calibrated
from colonnade.data.federated import OwnData, RowCounts, data_digest
from colonnade.data.loading import load_own
from colonnade.data.own_tables import ids_of_parts
from colonnade.errors import SettingsError, unknown_name
from colonnade.federation.building import PrivateData, all_dense_columns, build_party, labels_of, width_of
from colonnade.federation.file import Federation, digest
from colonnade.federation.party_file import PartyFile
from colonnade.federation.plan import Facts, Plan, check_plan, decided_training
from colonnade.federation.start import labels_to_start_with
from colonnade.launch.extension import check_noise
from colonnade.launch.member import Member
from colonnade.launch.seat_files import peers_of
from colonnade.launch.summary import recorded_threshold
from colonnade.models.top import TopSettings
from colonnade.party import Party
from colonnade.prediction.carried import Costs, as_released, by_name, costs_of, has_account, spent_before
from colonnade.prediction.joint_model import JointModel, load_model
from colonnade.prediction.saved_model import SavedModel, described, stand_ins_of
from colonnade.prediction.starting import start_of
from colonnade.privacy.accounting import SECRET, SHARED
from colonnade.settings import as_values
from colonnade.wire.handshake import Roster


class Participant(Member):
    """Everything a party needs to take part, checked before it says a word to anybody."""

    def __init__(
        self,
        federation: Federation,
        party_file: PartyFile,
        out: Path | None = None,
        party_timeout_seconds: float | None = None,
    ) -> None:
        super().__init__(federation, party_file, out)
        chosen = algorithms.find(algorithms.name_of(federation.algorithm))
        self.known: Facts | None = None
        self.training = ""  # by which models that are trained together are known
        self.start = self._start()
        self.data = self._load(chosen.family is algorithms.Family.LINEAR)
        self.plan = self._plan()
        holders = [name for name in self.everyone if name != self.name] + ([self.name] if self.data.columns else [])
        check_plan(self.plan, self.data.rows, self.everyone, dict.fromkeys(holders), self.data.validation_rows)
        if party_timeout_seconds is not None:
            self.plan = _with_timeout(self.plan, party_timeout_seconds)

    def _check(self) -> None:
        chosen = algorithms.find(algorithms.name_of(self.federation.algorithm))
        if chosen.family is algorithms.Family.ALONE:
            raise SettingsError(
                f"{chosen.name} trains on everybody's data in one place, which a network run never has. "
                f"Choose another algorithm, such as {algorithms.DEFAULT}."
            )
        self._check_randomness()

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
            known=self.start.preparation if self.start and self.party_file.start.preparation == "keep" else None,
        )
        if self.start is not None and data.labels is not None and self.is_label_party:
            data = replace(data, labels=labels_to_start_with(data.labels, start_of(self.start)))
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

    def _start(self) -> SavedModel | None:
        """This party's own model of an earlier training, if it is to begin with one."""
        folder = self.party_file.start.model
        if not folder:
            return None
        model = load_model(self.party_file.path(folder))
        if isinstance(model, JointModel):
            if self.name not in model.parties:
                raise SettingsError(f"The model in {folder} ([start] model) has no party {self.name!r}.")
            model = model.parties[self.name]
        if model.description.party != self.name:
            raise SettingsError(
                f"The model in {folder} ([start] model) is that of {model.description.party!r}; this is {self.name!r}."
            )
        return model

    def build(self, roster: Roster, secret: int) -> Party:
        """Everybody is known: fill in what follows from that, above all the noise that keeps a privacy target."""
        facts = self.facts(roster)
        self.known, self.training = facts, roster.run
        self.plan = calibrated(self.plan, facts)
        return build_party(self._private_data(secret), facts, self.plan)

    def check_longer(self, roster: Roster) -> None:
        facts = self.facts(roster)
        check_noise(self.directory, self.plan, calibrated(self.plan, facts), facts)

    def trained(self, party: Party, threshold: float, spent: Mapping[bytes, float] | None = None) -> SavedModel:
        """What this party has learnt, to be taken along; `spent`: what its rows have cost by now, where they are
        protected."""
        assert self.known is not None
        description = described(self.plan, self.known, self._private_data(0), threshold)
        description = msgspec.structs.replace(description, training=self.training)
        return SavedModel(
            description, party.model(), stand_ins=stand_ins_of(party), columns=self.data.columns, spent=spent
        )

    def keep_model(
        self, party: Party, metrics: list[dict[str, Any]], released: Sequence[Mapping[str, Any]], directory: Path
    ) -> None:
        spent = None
        if self._protects(released) and (ids := self.ids()) is not None:
            spent = by_name(ids, costs_of(self.name, released, ids), self.spent_before)
        self.trained(party, recorded_threshold(metrics), spent).save(directory / "model" / self.name)

    def _protects(self, released: Sequence[Mapping[str, Any]]) -> bool:
        """Whether its rows have cost anything that can be counted, in this training or before."""
        return self.spent_before is not None or any(one["sensitivity"] is not None for one in released)

    def released_before(self) -> list[dict[str, Any]]:
        """What the model to start from has released of the same rows, as lines of a ledger."""
        viewers = self.feature_parties if self.is_label_party else (self.label_party,)
        return [] if self.spent_before is None else as_released(self.name, self.label_party, viewers, self.spent_before)

    def ids(self) -> dict[str, list[str]] | None:
        """Of its rows, by part; of a data set by name, nothing says which rows of another run are the same."""
        if self.federation.data.set:
            return None
        return ids_of_parts(self.federation.data, self.party_file.data, self.name, self.party_file.base)

    @cached_property
    def spent_before(self) -> Costs | None:
        """What its rows have cost before this training, by the account of the model to start from."""
        if self.start is None or not has_account(self.start):
            return None
        ids = self.ids()
        return None if ids is None else spent_before(self.start, ids)

    def _private_data(self, secret: int) -> PrivateData:
        start = None if self.start is None else start_of(self.start)
        device = self.party_file.party.device
        return PrivateData(self.name, self.data.columns, self.data.labels, secret, start, self.spent_before, device)

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

    def rows_told(self) -> tuple[str, int, int]:
        return self.data.row_digest, self.data.rows, self.data.test_rows

    def shape_told(self) -> tuple[tuple[int, ...], int]:
        return self.shape(), self.fixed_width(self.shape())

    def secret_of(self, entropy: int) -> int:
        return entropy if self.federation.network.private_randomness else self.plan.seed

    def digests(self) -> dict[str, str]:
        data, own_bottom = self.data, self.party_file.bottom
        found = {"rows": data.row_digest, "settings": self.digest}
        if data.columns is not None:
            found["columns"] = data_digest(data.columns)
        if data.labels is not None:
            found["labels"] = data_digest(data.labels)
        if self.start is not None:
            found["model to start from"] = self.start.description.weights_sha256
        if own_bottom is not None:
            found["bottom model"] = digest(as_values(own_bottom))
        return found

    def peers(self, roster: Roster) -> tuple[str, ...]:
        return peers_of(self.name, self.facts(roster), self.plan)

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
        return replace(told, validation_rows=self.data.validation_rows, expects_absence=self.data.expects_absence)

    def alone(self, shape: tuple[int, ...], task: str = "", classes: int = 0) -> Facts:
        """The facts that one party's width follows from."""
        return Facts(self.label_party, self.feature_parties, 0, 0, task, classes, {self.name: shape}, {})

    def fixed_width(self, shape: tuple[int, ...]) -> int:
        """The width of this party's embeddings, or 0 where it follows from the label party's task."""
        only_sums = isinstance(self.plan.top, TopSettings) and self.plan.top.only_sums
        if self.plan.chosen.brings_models or only_sums:
            return 0
        return width_of(self.name, self.alone(shape), self.plan)


def _with_timeout(plan: Plan, seconds: float) -> Plan:
    """How long the label party's synchronous schedule waits for a lost party; asynchronous ones do not wait."""
    if "party_timeout_seconds" not in {field.name for field in fields(plan.algorithm)}:
        return plan
    return replace(plan, algorithm=replace(plan.algorithm, party_timeout_seconds=seconds))
