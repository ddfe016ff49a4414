"""One organisation's part of an explanation over the network: with the same door, streams and journal as a training.

Each party has its own saved model and the rows that it was trained with. In the end each has a page: its own columns,
and totals of others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.randomness import seed_for
from colonnade.errors import RunError, SettingsError
from colonnade.explanation.account import check_target, part_named
from colonnade.explanation.conversation import ExplainingLabelParty, ExplainingParty, build_explaining_party
from colonnade.explanation.own_columns import chosen_rows, dense_rows, groups_of
from colonnade.explanation.results import Explanation, learnt_by_explaining
from colonnade.explanation.seat import ExplanationSeat
from colonnade.explanation.settings import ExplainSettings
from colonnade.explanation.together import explanation_of, taken_by
from colonnade.federation.file import Federation
from colonnade.federation.party_file import PartyFile
from colonnade.files import json_of, json_text, read_private, write_atomically
from colonnade.launch.door import EXPLAIN, MODEL, PURPOSE
from colonnade.launch.explain import write_pages
from colonnade.launch.join import taking_part
from colonnade.launch.member import next_directory
from colonnade.launch.model_meeting import ModelMeeting, check_same_parties, common_to_all
from colonnade.launch.participant import Participant
from colonnade.launch.run_account import RunAccount
from colonnade.launch.run_directory import differences
from colonnade.party import Party
from colonnade.prediction.account import RowAccount
from colonnade.prediction.contributions import fixed_point
from colonnade.prediction.saved_model import SavedModel, find_model, read_model
from colonnade.privacy.gaussian import epsilon_of
from colonnade.privacy.noise import PerturbationSettings
from colonnade.wire.handshake import Roster

_OTHER_ROWS = "have other rows, or the same in another split: explain with the tables of the training."


@dataclass(frozen=True)
class AskedToExplain:
    """What a party says of an explanation beside its two files."""

    settings: ExplainSettings
    model: Path | None = None  # the run directory of its training; None: of the training by the same two files
    directory: Path | None = None  # where it keeps its state; None: the next one beside the training's
    show_products: bool = False  # of single parties, where the training's sums were masked


class ExplanationMember(Participant):
    """Who takes part in an explanation: its model and rows are read before it says a word to anybody."""

    def __init__(self, federation: Federation, party_file: PartyFile, asked: AskedToExplain) -> None:
        super().__init__(federation, party_file, asked.directory)
        self.asked = asked.settings
        self.trained_in = asked.model or self.training_directory
        folder = find_model(self.trained_in, self.name)
        self.model: SavedModel = read_model(folder)
        described = self.model.description
        check_same_parties(self, described, "explains")
        if fixed_point(described) is not None and len(self.feature_parties) > 1 and not asked.show_products:
            raise SettingsError(
                "The training has hidden the products of single parties in sums, and an explanation shows "
                f"{self.label_party} each party's own. If all parties agree to that, all give --show-products."
            )
        self._check_unchanged()
        said = {
            PURPOSE: "explanation",
            MODEL: common_to_all(described),
            EXPLAIN: {**asdict(asked.settings), "show_products": asked.show_products},
        }
        self.say(said)
        counts = {"train": self.data.rows, "test": self.data.test_rows, "validation": self.data.validation_rows}
        self._places = chosen_rows(counts[self.asked.part], self.asked)
        self.account = self._account(folder)
        self.run = ""
        self.party: ExplainingParty | None = None
        self._open: RunAccount | None = None
        self._spent: NDArray[np.float64] = np.zeros(len(self._places))

    def _check_unchanged(self) -> None:
        """Refuse other data than those of the training."""
        path = self.trained_in / "rows.json"
        try:
            before = msgspec.json.decode(read_private(path), type=dict[str, str])
        except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
            raise RunError(
                f"{path} cannot be read, which says what {self.name} was trained with: name the run directory of its "
                "training with --model."
            ) from None
        data = ("rows", "columns", "labels")
        now = super().digests()
        changed = differences(*({name: of[name] for name in data if name in of} for of in (before, now)))
        if changed:
            raise SettingsError(
                f"The {' and '.join(changed)} of {self.name} differ from those of its training in "
                f"{self.trained_in}. Explain the model with the data that it was trained with."
            )

    def _labels_are_noised(self) -> bool:
        """Whether the training has protected labels: then no exact mean of losses may be told to others."""
        path = self.trained_in / "summary.json"
        try:
            events = json_of(read_private(path))["privacy"]["events"]
            return any(str(one["protects"]).startswith("labels of ") for one in events)
        except (OSError, ValueError, KeyError, TypeError):
            raise RunError(f"{path} cannot be read: without it nobody knows what was released.") from None

    # --- what it costs ---

    @property
    def privacy(self) -> PerturbationSettings:
        return PerturbationSettings(**self.model.description.privacy)

    @property
    def _cost(self) -> float:
        """μ² of one release of a row."""
        return (self.privacy.sensitivity / self.privacy.noise) ** 2

    @property
    def _has_target(self) -> bool:
        return self.privacy.columns_epsilon > 0 and self.privacy.formula == "sound"

    def _account(self, folder: Path) -> RowAccount | None:
        """Of this party's rows, where they are protected and have names to be counted by."""
        if self.is_label_party or not self.privacy.noise or not self.privacy.clip:
            return None
        if self.federation.data.set:
            if self._has_target:
                raise SettingsError(
                    f"data.set = {self.federation.data.set!r} has no ids that releases could be counted by, and the "
                    "run has a target (privacy.columns_epsilon): nothing may be released."
                )
            return None
        account = RowAccount(folder)
        return account if account.exists or self._has_target else None

    def _chosen_ids(self) -> list[str]:
        parts = self.ids()
        assert parts is not None
        own = parts[part_named(self.asked.part)]
        return [own[place] for place in self._places]

    def open_account(self) -> None:
        """Count what is to be released before it is; refuse what a target does not allow. Its directory is held."""
        if self.account is None:
            return
        releases, target = self._seat(0).most_releases, (self.privacy.columns_epsilon, self.privacy.delta)

        def check(worst: float) -> None:
            if self._has_target:
                check_target(self.name, self.asked.part, releases, self._cost, worst, target)

        self._open = RunAccount(self.account, self.directory, self._chosen_ids())
        self._spent = self._open.open(releases * self._cost, check)

    def close_account(self, released: Sequence[Mapping[str, Any]]) -> float | None:
        """What it has cost; the ε of the worst row by now."""
        if self._open is None:
            return None
        costs = self._open.close(released, self._places)
        return epsilon_of(sqrt(float((self._spent + costs).max())), self.privacy.delta)

    # --- what is said of it ---

    def _directory(self) -> Path:
        return next_directory(self.training_directory, "explain")

    @property
    def relays(self) -> bool:
        return False

    def rows_told(self) -> tuple[str, int, int]:
        """Its rows, and the explanation that it is in the middle of."""
        return f"{self.data.row_digest} {self.run}", self.data.rows, self.data.test_rows

    def shape_told(self) -> tuple[tuple[int, ...], int]:
        return (1,), 0

    def secret_of(self, entropy: int) -> int:
        return entropy

    def digests(self) -> dict[str, str]:
        return {**super().digests(), "model": self.model.description.weights_sha256}

    def peers(self, roster: Roster) -> tuple[str, ...]:
        return self.feature_parties if self.is_label_party else (self.label_party,)

    def keep_model(
        self, party: Party, metrics: list[dict[str, Any]], released: Sequence[Mapping[str, Any]], directory: Path
    ) -> None:
        """An explanation trains nothing."""

    def build(self, roster: Roster, secret: int) -> ExplainingParty:
        self.run = roster.run
        self.party = build_explaining_party(self._seat(secret))
        return self.party

    def _seat(self, secret: int) -> ExplanationSeat:
        """`secret`: which nobody else knows, so that nobody knows which value went to which row either."""
        own = self.data.columns if self.name in self.model.description.shapes else None
        shared = not self.federation.network.private_randomness
        labels = None
        if self.is_label_party and self.data.labels is not None:
            labels = getattr(self.data.labels, self.asked.part)[torch.from_numpy(self._places)]
        return ExplanationSeat(
            *(self.name, self.label_party, self.everyone, self.model, self.asked),
            secret=secret,
            seed=self.asked.seed if shared else seed_for(secret, self.name, "shuffles"),
            places=self._places.astype(np.uint32),
            rows=None if own is None else dense_rows(own, self.asked.part, self._places, self.name),
            groups=() if own is None else groups_of(own),
            labels=labels,
            tells=not (self.is_label_party and self._labels_are_noised()),
        )


@dataclass(frozen=True)
class PartExplained:
    """How a party's part ended."""

    finished: bool
    directory: Path
    summary: Mapping[str, Any]
    found: Explanation | None  # None: it is not told, since labels are protected
    page: Path | None = None


def explain_party(
    federation: Federation,
    party_file: PartyFile,
    asked: AskedToExplain,
    *,
    out: Path | None = None,
    trace: bool = False,
    stop_requested: Callable[[], bool] = lambda: False,
) -> PartExplained:
    """Take part in an explanation until it ends. `out`: for this party's page; default: its directory."""
    member = ExplanationMember(federation, party_file, asked)
    meeting = ModelMeeting(member, "explanation", _OTHER_ROWS)
    with taking_part(member, meeting, trace=trace, stop_requested=stop_requested) as record:
        party = member.party
        if not record.finished or party is None:
            told = {"status": record.status, "party": member.name}
            return PartExplained(False, member.directory, told, None)
        epsilon = member.close_account(record.released)
        found = explanation_of({member.name: party}, {} if member.is_label_party else {member.name: epsilon})
        page = None if found is None else write_pages(found, out or member.directory)[0]
        summary = {
            "status": "finished",
            "party": member.name,
            "learnt": _learnt(party),
            "privacy_events": list(record.privacy_events),
            "epsilon": epsilon,
        }
        write_atomically(member.directory / "summary.json", json_text(summary))
    return PartExplained(True, member.directory, summary, found, page)


def _learnt(party: ExplainingParty) -> list[str]:
    taken, seat = taken_by(party), party.seat
    if isinstance(party, ExplainingLabelParty):
        return [learnt_by_explaining(name, party.shuffled_by(name), taken) for name in seat.feature_parties]
    return [learnt_by_explaining(seat.name, len(party.columns()), taken)]
