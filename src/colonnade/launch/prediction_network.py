"""One organisation's part of a prediction over the network: the same door, streams, journal and resuming as a training.

Each party answers from its own saved model and its own table. The label party has the predictions in the end.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.algorithms.row import Family
from colonnade.costs.disclosure import learnt_by_predicting
from colonnade.errors import SettingsError
from colonnade.federation.file import Federation, digest
from colonnade.federation.party_file import PartyFile
from colonnade.files import json_text, write_atomically
from colonnade.launch.door import MODEL, PURPOSE
from colonnade.launch.join import taking_part
from colonnade.launch.member import Member, next_directory
from colonnade.launch.model_meeting import ModelMeeting, check_same_parties, common_to_all
from colonnade.launch.run_account import RunAccount
from colonnade.prediction.account import RowAccount
from colonnade.prediction.contributions import family_of, fixed_point
from colonnade.prediction.conversation import PredictingLabelParty, PredictingParty, build_predicting_party
from colonnade.prediction.own_rows import OwnRows, Wanted, id_form, read_own_rows, wanted_rows
from colonnade.prediction.saved_model import SavedModel, find_model, read_model
from colonnade.prediction.seat import PredictionSeat
from colonnade.prediction.tables import Predictions, predictions_of
from colonnade.privacy.noise import PerturbationSettings
from colonnade.wire.handshake import Roster

_OTHER_ALIGNMENTS = "name different alignments: all must name folders that one colonnade align wrote."


@dataclass(frozen=True)
class Asked:
    """What a party says of a prediction beside its two files."""

    model: Path | None = None  # its run directory or model folder; None: of the training by the same two files
    directory: Path | None = None  # where it keeps its state; None: the next one beside the training's
    table: str = ""  # another file in place of its own
    aligned: str = ""  # another alignment than the one of its file
    ids: Sequence[str] | None = field(default=None, repr=False)  # the label party's: which rows; None: all it has


class PredictionMember(Member):
    """Who takes part in a prediction: its model and rows are read before it says a word to anybody."""

    def __init__(self, federation: Federation, party_file: PartyFile, asked: Asked) -> None:
        super().__init__(federation, party_file, asked.directory)
        if asked.ids is not None and not self.is_label_party:
            raise SettingsError(f"--ids is the label party's to say: {self.name} answers for the rows it is asked for.")
        if federation.data.set:
            raise SettingsError(
                f"data.set = {federation.data.set!r} gives no party a table of its own to predict from."
            )
        folder = find_model(asked.model or self.training_directory, self.name)
        self.model: SavedModel = read_model(folder)
        self._check_model()
        common = common_to_all(self.model.description)
        self.say({PURPOSE: "prediction", MODEL: common})
        form = id_form(self.everyone, federation.data, federation.alignment)
        self.own = self._read(asked, form)
        self.wanted: Wanted | None = wanted_rows(self.own, asked.ids, form) if self.is_label_party else None
        self.account = self._account(folder)
        self.run = ""
        self.party: PredictingParty | None = None
        self._open: RunAccount | None = None
        self._spent: NDArray[np.float64] | None = None

    def _read(self, asked: Asked, form: Any) -> OwnRows | None:
        own, base = self.party_file.data, self.party_file.base
        if asked.table:
            own = replace(own, file=str(Path(asked.table).absolute()), sql="", database="", folder="")
        if asked.aligned:
            own = replace(own, aligned=str(Path(asked.aligned).absolute()))
        needless = self.is_label_party and self.name not in self.model.description.shapes
        if needless and asked.ids is not None and self.federation.data.rows != "aligned":
            return None  # its own table has nothing that is needed
        return read_own_rows(self.name, self.model, own, self.federation.data, form, base)

    def _check_model(self) -> None:
        described = self.model.description
        check_same_parties(self, described, "predicts")
        if family_of(described) is Family.ALONE:
            raise SettingsError("The model was trained by one party on everybody's columns: predict where it is.")

    @property
    def privacy(self) -> PerturbationSettings:
        return PerturbationSettings(**self.model.description.privacy)

    def _account(self, folder: Path) -> RowAccount | None:
        """Of this party's rows, where they are protected. One that a target depends on must be there."""
        privacy, account = self.privacy, RowAccount(folder)
        if self.is_label_party or not privacy.noise or not privacy.clip:
            return None
        return account if account.exists or privacy.columns_epsilon > 0 else None

    def _directory(self) -> Path:
        return next_directory(self.training_directory, "predict")

    def open_account(self) -> None:
        """What its rows have cost before this prediction, as it was when this began. Its directory is held."""
        if self.account is not None and self.own is not None:
            self._open = RunAccount(self.account, self.directory, self.own.ids)
            self._spent = self._open.open((self.privacy.sensitivity / self.privacy.noise) ** 2)

    def close_account(self, released: Sequence[Mapping[str, Any]]) -> None:
        """What it has cost them."""
        if self._open is not None:
            self._open.close(released)

    # --- what is said of it ---

    @property
    def relays(self) -> bool:
        return fixed_point(self.model.description) is not None and len(self.feature_parties) > 1

    def rows_told(self) -> tuple[str, int, int]:
        """The alignment that it has, and the prediction that it is in the middle of."""
        return f"{'' if self.own is None else self.own.alignment} {self.run}", 0, 0

    def digests(self) -> dict[str, str]:
        found = {"settings": self.digest, "model": self.model.description.weights_sha256}
        if self.own is not None:
            found["rows"] = self.own.digest
        if self.wanted is not None:
            found["ids asked for"] = digest({"ids": self.wanted.ids})
        return found

    def peers(self, roster: Roster) -> tuple[str, ...]:
        if self.is_label_party or fixed_point(self.model.description) is not None:
            return tuple(name for name in self.everyone if name != self.name)
        return (self.label_party,)

    def build(self, roster: Roster, secret: int) -> PredictingParty:
        self.run = roster.run
        own = self.own
        seat = PredictionSeat(
            *(self.name, self.label_party, self.everyone, self.model, secret),
            columns=None if own is None else own.columns,
            names=None if own is None or self.is_label_party else own.names,
            spent=self._spent,
            asked=None if self.wanted is None else self.wanted.asked,
        )
        self.party = build_predicting_party(seat)
        return self.party


@dataclass(frozen=True)
class PartPredicted:
    """How a party's part ended."""

    finished: bool
    directory: Path
    summary: Mapping[str, Any]
    predictions: Predictions | None  # the label party's


def predict_party(
    federation: Federation,
    party_file: PartyFile,
    asked: Asked,
    *,
    trace: bool = False,
    stop_requested: Callable[[], bool] = lambda: False,
) -> PartPredicted:
    """Take part in a prediction until it ends."""
    member = PredictionMember(federation, party_file, asked)
    meeting = ModelMeeting(member, "prediction", _OTHER_ALIGNMENTS)
    with taking_part(member, meeting, trace=trace, stop_requested=stop_requested) as record:
        party = member.party
        if not record.finished or party is None:
            return PartPredicted(False, member.directory, {"status": record.status, "party": member.name}, None)
        member.close_account(record.released)
        predictions = None
        if isinstance(party, PredictingLabelParty) and member.wanted is not None:
            predictions = predictions_of(party, member.wanted)
        summary = _summary(member, party, predictions, record.privacy_events)
        write_atomically(member.directory / "summary.json", json_text(summary))
    return PartPredicted(True, member.directory, summary, predictions)


def _summary(
    member: PredictionMember, party: PredictingParty, predictions: Predictions | None, events: Sequence[Any]
) -> dict[str, Any]:
    """What one party knows at the end: for itself alone."""
    described = member.model.description
    aligned = member.own is not None and bool(member.own.alignment)
    linear = family_of(described) is Family.LINEAR
    masked = linear and fixed_point(described) is not None and len(member.feature_parties) > 1
    told: dict[str, Any] = {"status": "finished", "party": member.name, "requests": party.batches}
    if predictions is not None:
        told |= predictions.counts()
    elif member.account is not None:
        told["refused"] = getattr(party, "refused", 0)
    noised = not linear and member.privacy.noise > 0
    kind = "masked products" if masked else "products" if linear else "noised embeddings" if noised else "embeddings"
    told["learnt"] = learnt_by_predicting(member.name, member.label_party, kind, aligned)
    told["privacy_events"] = list(events)
    return told
