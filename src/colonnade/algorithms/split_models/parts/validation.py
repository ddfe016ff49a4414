"""Validation rows of a split model, and the model that they choose.

The label party copies its top model when it asks for embeddings of them; a feature party copies its own when it has
applied every reply that was sent before, and embeds them. So the model that is scored is that of one moment, and it is
the model that can be gone back to, bit for bit. A party that is away is scored with its last known embeddings, has no
copy, and keeps the model it has.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from colonnade.algorithms.parts.best import BestScore, check_they_can_choose
from colonnade.algorithms.parts.divergence import worst_scores
from colonnade.algorithms.parts.losses import headline
from colonnade.algorithms.parts.versions import NO_COPY, Versions
from colonnade.algorithms.seats import FeatureSeat, LabelSeat
from colonnade.algorithms.split_models.parts.evaluation import ROWS_A_REQUEST, Evaluation
from colonnade.errors import ProtocolError
from colonnade.messages import GoBack, Keep, Message, ValidationEmbedding, ValidationRequest, WentBack
from colonnade.party import Effect, Send
from colonnade.state import Remembering, part, value

MOST_WAITING = 8
"""Requests that a feature party keeps until their replies are applied: an honest label party makes one at a time."""


def hides_labels(seat: FeatureSeat | LabelSeat) -> bool:
    """Whether labels are protected: then nothing that others notice may depend on a loss or score, which know them."""
    return bool(getattr(seat.settings, "noise", 0.0) > 0 or seat.privacy.labels_epsilon)


def keeps_best(seat: FeatureSeat | LabelSeat, validation_rows: int) -> bool:
    """Whether the best model that was scored is used in the end."""
    return validation_rows > 0 and seat.training.keep != "last" and not hides_labels(seat)


def heals(seat: FeatureSeat | LabelSeat) -> bool:
    """Whether a training that does not descend goes back to a good model. Not where anything is protected by noise: the
    losses that say so know it, and what was spent on the way would be spent twice."""
    privacy, training = seat.privacy, seat.training
    protected = hides_labels(seat) or max(privacy.noise, privacy.update_noise, privacy.columns_epsilon) > 0
    return training.heal and training.end_when_diverged and not protected


def _pieces(rows: int) -> range:
    return range(0, rows, ROWS_A_REQUEST)


class FeatureValidation(Remembering):
    """A feature party's side: requests that wait for replies to be applied, and copies of the model.

    Where trainings are healed the first one is of the weights that it began with.
    """

    MEMORY = (value("_waiting", "_went"), part("_versions"))

    def __init__(self, seat: FeatureSeat, bottom: Any) -> None:
        held = seat.columns.validation
        self._label_party = seat.label_party
        self._rows = 0 if held is None else len(held)
        self._bottom = bottom
        self._keeps = keeps_best(seat, self._rows)
        self._heals = heals(seat)
        self._versions = Versions()
        if self._heals:
            self._versions.offer(0, bottom.network.state())
        self._waiting: list[list[int]] = []  # evaluation and after_replies
        self._went = 0  # back, so often

    def receive(self, sender: str, message: Message) -> list[Effect]:
        match message:
            case ValidationRequest():
                self._ask(sender, message)
                return self.due()
            case Keep():
                if not self._keeps:
                    raise ProtocolError(f"{sender} said which model to keep; none is kept in this training.")
                self._versions.judge(sender, message)
                return []
            case GoBack():
                return self._go_back(sender, message)
        raise ProtocolError(f"{sender} sent {type(message).__name__}, which a feature party does not take here.")

    def _ask(self, sender: str, request: ValidationRequest) -> None:
        if not self._rows:
            raise ProtocolError(f"{sender} asked for validation rows; this federation has none.")
        if request.evaluation < 1:
            raise ProtocolError(f"{sender} asked for the evaluation {request.evaluation}; they count from 1.")
        if len(self._waiting) >= MOST_WAITING:
            raise ProtocolError(
                f"{sender} has {len(self._waiting)} evaluations waiting here already, and asks for more; an honest "
                "label party makes one at a time."
            )
        self._waiting.append([request.evaluation, request.after_replies])

    def due(self) -> list[Effect]:
        """Answers to the requests whose condition is met now."""
        if not self._waiting:
            return []
        effects: list[Effect] = []
        met = [evaluation for evaluation, after in self._waiting if after <= self._bottom.steps]
        self._waiting = [one for one in self._waiting if one[1] > self._bottom.steps]
        for evaluation in met:
            if self._keeps:
                self._versions.offer(evaluation, self._bottom.network.state())
            for first in _pieces(self._rows):
                spent, embedding = self._bottom.embed_validation(first, min(ROWS_A_REQUEST, self._rows - first))
                effects += [*spent, Send(self._label_party, ValidationEmbedding(evaluation, first, embedding))]
        return effects

    def _go_back(self, sender: str, back: GoBack) -> list[Effect]:
        """Take the copy up again; replies and requests of the time before are void."""
        if not (self._keeps or self._heals):
            raise ProtocolError(f"{sender} asked to go back to an earlier model; none is kept in this training.")
        if back.number < 1 or back.version < 0 or not 0 <= back.step <= (1 if self._heals else 0):
            raise ProtocolError(
                f"{sender} asked to go back to version {back.version}, as request {back.number}, with steps of "
                f"{back.step:g}, which is impossible."
            )
        if back.replies < self._bottom.steps:
            raise ProtocolError(f"{sender} says that it sent {back.replies} replies; {self._bottom.steps} came.")
        if back.number <= self._went:
            return []  # overtaken by a later one
        self._went = back.number
        self._waiting.clear()
        self._bottom.forget_uploads()
        self._bottom.steps = back.replies
        copy = self._versions.take(back.version)
        if copy is not None:
            self._bottom.go_back(copy)
        if back.step > 0:
            self._bottom.restart(back.step)
        version = NO_COPY if copy is None else back.version
        return [Send(sender, WentBack(back.number, version, self._bottom.uploads))]


class Validation(Evaluation):
    """The label party's side of one evaluation at a time, and the last known embeddings of validation rows."""

    def begin(self, parties: Iterable[str], replies_sent: Mapping[str, int]) -> Sequence[Effect]:
        """Ask these parties to embed the validation rows, all of them at once."""
        self.number += 1
        self._awaited = {party: len(_pieces(self._rows)) for party in parties}
        return [Send(party, ValidationRequest(self.number, replies_sent[party])) for party in self._awaited]


class Recall(Remembering):
    """The label party's copies of its top model, and who has gone back to which version."""

    MEMORY = (value("_number", "_awaited", "_behind", "_void"), part("versions"))

    def __init__(self, parties: Sequence[str]) -> None:
        self._parties = parties
        self.versions = Versions()
        self._number = 0  # of the last GoBack
        self._awaited: list[str] = []  # who has not answered it yet, of those that could be reached
        self._behind: list[str] = []  # the same with all others
        self._void: dict[str, int] = {}  # uploads of a lower number are of models that are gone

    def call(
        self, version: int, top: Any, reachable: Iterable[str], replies: Mapping[str, int], step: float
    ) -> list[Effect]:
        """Everybody takes that version up, this party at once."""
        copy = self.versions.take(version)
        assert copy is not None, "the label party has every version that it asks for"
        top.go_back(copy)
        self._number += 1
        self._awaited, self._behind = sorted(reachable), sorted(self._parties)
        return [Send(party, GoBack(self._number, version, replies[party], step)) for party in self._parties]

    def went_back(self, party: str, answer: WentBack) -> bool:
        """Whether everybody who can be reached has gone back now."""
        if party not in self._parties or not 0 < answer.number <= self._number or answer.uploads < 0:
            raise ProtocolError(
                f"{party} went back to a model that nobody asked for: request {answer.number} of {self._number}."
            )
        # Also of an answer that a later request has overtaken: what it had uploaded by then is of a model that is gone.
        self._void[party] = max(answer.uploads, self._void.get(party, 0))
        if answer.number < self._number or party not in self._behind:
            return False
        self._behind.remove(party)
        return self.give_up(party)

    def give_up(self, party: str) -> bool:
        """Go on without a party; True if nobody else is waited for."""
        if party not in self._awaited:
            return False
        self._awaited.remove(party)
        return not self._awaited

    def extend(self) -> None:
        """Nobody is waited for any more: what a party that was away would have answered is gone."""
        self._awaited, self._behind = [], []

    @property
    def waits(self) -> bool:
        return bool(self._awaited)

    def is_behind(self, party: str) -> bool:
        """Whether it is not known yet which of a party's uploads are of the model that it was asked to take up."""
        return party in self._behind

    def is_void(self, party: str, upload: int) -> bool:
        """Whether an upload is of a model that is gone."""
        return upload < self._void.get(party, 0)


class Selection(Remembering):
    """The label party's choice: which evaluation of validation rows was the best."""

    MEMORY = (value("_asked_at"), part("evaluation"), part("best"))

    def __init__(self, seat: LabelSeat, slices: Mapping[str, slice], recall: Recall) -> None:
        rows = 0 if seat.labels.validation is None else len(seat.labels.validation)
        self.evaluation = Validation(rows, slices)
        labels, patience = seat.labels, 0 if hides_labels(seat) else seat.training.early_stopping
        worst = worst_scores(labels.task, labels.train, labels.deviation)
        self.best = BestScore(headline(labels.task, seat.training.metric), patience, worst)
        self.keeps = keeps_best(seat, rows)
        if self.keeps or patience:
            check_they_can_choose(labels)
        self._parties = seat.feature_parties
        self._versions = recall.versions
        self._asked_at = 0.0  # epochs, when the evaluation under way began

    def begin(self, top: Any, reachable: Iterable[str], replies: Mapping[str, int], epoch: float) -> Sequence[Effect]:
        """Ask for embeddings of the validation rows, and copy the top model that they will be scored with."""
        self._asked_at = epoch
        effects = self.evaluation.begin(reachable, replies)
        self._versions.offer(self.evaluation.number, top.snapshot())
        return effects

    def score(self, top: Any, known: Callable[[], torch.Tensor]) -> tuple[dict[str, float], list[Effect]]:
        """All answers are there: their metrics with the top model of that time, and word which evaluation to keep."""
        number = self.evaluation.number
        now, then = top.snapshot(), self._versions.take(number)
        assert then is not None
        top.go_back(then)
        metrics: dict[str, float] = top.score(self.evaluation.embeddings(), known, validation=True)
        top.go_back(now)
        self.best.judge(number, self._asked_at, metrics)
        keep = Keep(self.good_version, number)
        self._versions.judge("the label party", keep)
        return metrics, [Send(party, keep) for party in self._parties] if self.keeps else []

    @property
    def good_version(self) -> int:
        """The best one, where it is kept; else the first weights."""
        return self.best.version if self.keeps else 0

    def counts(self) -> dict[str, Any]:
        """For the run's summary: the validation metrics of the best evaluation, and when it was made."""
        return self.best.counts(kept="best" if self.good_version else "last")
