"""What every label party of a split model keeps, whatever its schedule: the table, who can be reached, how many replies
went to whom, the record of the training, and its end."""

from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.bounds import check_magnitude, largest
from colonnade.algorithms.parts.divergence import DivergedError, DivergenceWatch, Healing
from colonnade.algorithms.parts.progress import DIVERGED, PLANNED, Progress
from colonnade.algorithms.parts.versions import NO_COPY
from colonnade.algorithms.seats import LabelSeat
from colonnade.algorithms.split_models.parts.budget import check_each_once
from colonnade.algorithms.split_models.parts.evaluation import Evaluation
from colonnade.algorithms.split_models.parts.table import EmbeddingTable
from colonnade.algorithms.split_models.parts.top import Batch
from colonnade.algorithms.split_models.parts.validation import Recall, Selection, heals, hides_labels
from colonnade.algorithms.training import BOLD
from colonnade.data.batches import batches_per_epoch
from colonnade.errors import ProtocolError
from colonnade.messages import EvaluationEmbedding, Stop, ValidationEmbedding, WentBack
from colonnade.party import Effect, Finish, Observe, Send
from colonnade.state import Remembering, Remembers, optional_part, part, value

_STRIKING = 100.0
"""From this magnitude on, an embedding is looked at twice: what would the loss be with it, and without?"""
_MOST_TIMES_THE_LOSS = 1e3
_FINE_LOSS = 30.0
"""A classifier that knows nothing has the logarithm of the number of classes, a standardised label a loss of 1."""
_DRIVEN = 1e20
"""So far a party may come by the replies to embeddings that were just about taken, but no farther at one step."""
_JUDGED = -1  # the table's buffer for that


class TopModel(Remembers, Protocol):
    """The label party's model (parts/top.py)."""

    steps: int  # updates so far

    def batch(self, rows: NDArray[np.uint32], *, dropping: bool = True) -> Batch: ...

    def mean_loss(self, read: Sequence[tuple[Batch, torch.Tensor]]) -> float: ...

    def score(
        self, embeddings: torch.Tensor, known: Callable[[], torch.Tensor], validation: bool = False
    ) -> dict[str, float]: ...

    def snapshot(self) -> dict[str, torch.Tensor]: ...

    def go_back(self, snapshot: Mapping[str, torch.Tensor]) -> None: ...

    def restart(self, scale: float) -> None: ...

    def models(self) -> dict[str, torch.nn.Module]: ...


class SplitRecord(Remembering):
    """Counts exchanges, evaluates when it is due, and ends the training after the last evaluation."""

    MEMORY = (
        value("exchange", "replies", "ending", "reason"),
        value("lost", restored=set),
        *(part("_top"), part("table"), part("_evaluation"), part("progress"), part("_watch")),
        *(optional_part("_recall"), optional_part("_selection"), optional_part("_healing")),
    )

    def __init__(self, seat: LabelSeat, top: TopModel) -> None:
        parties, rows = seat.feature_parties, len(seat.labels.train)
        self._parties = parties
        self._top = top
        self.table = EmbeddingTable(rows, parties, seat.widths, seat.training.table, seat.training.mapped_share)
        # Noise that was agreed on is no party's doing, and no Gaussian number is so far out.
        self._most = (seat.training.embedding_bound or inf) + 100 * seat.privacy.noise
        # Where labels are protected, nothing that others notice may depend on a loss, which knows them.
        self._is_private = hides_labels(seat)
        self._evaluation = Evaluation(len(seat.labels.test), self.table.slices)
        apart, self._healing = seat.labels.validation, Healing(heals(seat))
        self._recall = None if apart is None and not self._healing.heals else Recall(parties)
        if self._recall is not None and self._healing.heals:
            self._recall.versions.offer(0, top.snapshot())
        recalled = None if apart is None else self._recall
        self._selection = None if recalled is None else Selection(seat, self.table.slices, recalled)
        self.progress = Progress(seat.training, batches_per_epoch(rows, seat.training.batch_size) * len(parties))
        # Where embeddings carry noise, so does the loss.
        looks = seat.training.end_when_diverged and seat.privacy.noise == 0 and not self._is_private
        labels, closely = seat.labels, self._healing.heals
        self._watch = DivergenceWatch(labels.task, labels.train, looks, weights=labels.weights, closely=closely)
        self._boldness = seat.training.boldness
        self._watch.is_bold = self._is_bold()
        self.exchange = 0
        self.replies = dict.fromkeys(parties, 0)
        self.lost: set[str] = set()
        self.reason = PLANNED
        self.ending = False  # the last exchange is made; what is still open is the last evaluation

    def epoch(self) -> float:
        return self.progress.epoch(self.exchange)

    def check(
        self,
        sender: str,
        rows: NDArray[np.uint32],
        embedding: NDArray[np.float32],
        others: Sequence[NDArray[np.float32]] = (),
    ) -> None:
        """Refuse what must not enter the table, and what comes with it, before anything is changed."""
        self.table.check(sender, rows, embedding)
        check_each_once(rows, sender)
        for other in others:
            self._check_magnitude(sender, other)
        striking = self._check_magnitude(sender, embedding) > _STRIKING
        if striking and rows.size and not self._is_private and self._is_fine():
            self._check_consequence(sender, rows, embedding)

    def _check_magnitude(self, sender: str, embedding: NDArray[np.float32]) -> float:
        found = largest(embedding)
        if self._most < found <= _DRIVEN and not self._is_fine():
            raise DivergedError(
                f"The training has diverged: losses are beyond {_FINE_LOSS:g} and the embeddings of {sender} at "
                f"{found:.2g}. Lower training.learning_rate. {self.table.magnitudes()}"
            )
        try:
            return check_magnitude(sender, "embeddings", embedding, self._most, "training.embedding_bound")
        except ProtocolError as error:
            self._doubt(error)
            raise

    def _doubt(self, error: ProtocolError) -> None:
        """With steps many times longer than usual, it is the training that has diverged, and no sender's fault."""
        if self._is_bold() and self._healing.heals and not self.ending:
            raise DivergedError(str(error)) from None

    def _is_bold(self) -> bool:
        return self._boldness * self._healing.scale > BOLD

    def restored(self) -> None:
        self._watch.is_bold = self._is_bold()

    def _is_fine(self) -> bool:
        """Whether the training goes well: where it does not, nobody is blamed for going where it was sent."""
        if self._is_private:
            return True
        recent = self.progress.recent_loss()
        return recent is None or recent <= _FINE_LOSS

    def _check_consequence(self, sender: str, rows: NDArray[np.uint32], embedding: NDArray[np.float32]) -> None:
        """Judge large numbers by what they do: the loss of these rows with them, and with what was there before.

        If the loss is as bad without them, the training has diverged, and this sender is not to blame for it.
        """
        # Nothing is drawn here: a party that refuses a message is as it was before.
        batch, read = self._top.batch(rows, dropping=False), self.table.read(rows, _JUDGED)
        before = self._top.mean_loss([(batch, read)])
        read[:, self.table.slices[sender]] = torch.from_numpy(embedding)
        after = self._top.mean_loss([(batch, read)])
        if before <= _FINE_LOSS and not after <= _MOST_TIMES_THE_LOSS * (1 + before):  # so NaN is refused as well
            error = ProtocolError(
                f"{sender} sent embeddings with which the loss of its batch is more than {_MOST_TIMES_THE_LOSS:g} "
                "times what it is without. It is not honest, or its training has diverged: lower "
                "training.learning_rate, or scale its columns."
            )
            self._doubt(error)
            raise error

    def observe(self, losses: Sequence[float]) -> list[Effect]:
        """After an update: record its losses, and evaluate if that is due or the training is ending."""
        for loss in losses:
            if not isfinite(loss):
                raise DivergedError(f"{DIVERGED} {self.table.magnitudes()}")
            self.progress.add_loss(loss)
            self._watch.add(loss, self.epoch())
        effects = self.progress.observe(self.exchange, self._top.steps)
        if self.ending and self.reason == PLANNED and not self._keeps_best:
            self._watch.judge_the_end(self.progress.train_loss(), self.epoch())
        # Who has still to go back would have no copy of what is scored: the evaluation waits for it.
        is_free = not self._is_scoring and not self.waits_for_return
        if self.ending or (is_free and self.progress.evaluation_is_due(self.exchange)):
            effects += self._score()
        return effects

    @property
    def _keeps_best(self) -> bool:
        return self._selection is not None and self._selection.keeps

    @property
    def _is_scoring(self) -> bool:
        return self._evaluation.under_way if self._selection is None else self._selection.evaluation.under_way

    def _reachable(self) -> list[str]:
        return [party for party in self._parties if party not in self.lost and not self.is_behind(party)]

    def is_behind(self, party: str) -> bool:
        """Whether a party has not said yet that it took an earlier model up."""
        return self._recall is not None and self._recall.is_behind(party)

    def is_void(self, party: str, upload: int) -> bool:
        """Whether an upload is of a model that is gone."""
        return self._recall is not None and self._recall.is_void(party, upload)

    @property
    def waits_for_return(self) -> bool:
        """Whether somebody who can be reached has still to go back."""
        return self._recall is not None and self._recall.waits

    def heal(self, error: DivergedError) -> list[Effect]:
        """Everybody goes back to a good model, and takes shorter steps; raises the error if that is not to be."""
        step = self._healing.cut(self.epoch(), error, self.ending)
        assert self._recall is not None
        version = 0 if self._selection is None else self._selection.good_version
        reachable = [party for party in self._parties if party not in self.lost]
        effects = self._recall.call(version, self._top, reachable, self.replies, step)
        self._top.restart(step)
        self.table.clear()
        self.progress.forget_losses()
        self._watch.restart()
        self._watch.is_bold = self._is_bold()
        self._evaluation.abandon()
        if self._selection is not None:
            self._selection.evaluation.abandon()
        return [Observe(self.exchange, self._top.steps, self.epoch(), note=self._healing.words()), *effects]

    def extend(self) -> None:
        """The training goes on after its end, with the models that it ended with."""
        self.ending, self.reason = False, PLANNED
        self._evaluation.abandon()
        if self._selection is not None:
            self._selection.evaluation.abandon()
        if self._recall is not None:
            self._recall.extend()

    def _score(self) -> list[Effect]:
        """Begin an evaluation: of the validation rows, if there are any."""
        if self._selection is None:
            return self._test()
        return [*self._selection.begin(self._top, self._reachable(), self.replies, self.epoch())] or self._validated()

    def _test(self) -> list[Effect]:
        return [*self._evaluation.begin(self._reachable(), self.replies)] or self._scored()

    def receive(self, sender: str, answer: EvaluationEmbedding | ValidationEmbedding | WentBack) -> list[Effect]:
        if isinstance(answer, EvaluationEmbedding):
            self._check_magnitude(sender, answer.embedding)
            return self._scored() if self._evaluation.receive(sender, answer) else []
        if isinstance(answer, ValidationEmbedding):
            if self._selection is None:
                raise ProtocolError(f"{sender} sent embeddings of validation rows; there are none.")
            self._check_magnitude(sender, answer.embedding)
            return self._validated() if self._selection.evaluation.receive(sender, answer) else []
        if self._recall is None:
            raise ProtocolError(f"{sender} went back to an earlier model unasked.")
        is_last = self._recall.went_back(sender, answer)
        effects: list[Effect] = []
        if answer.version == NO_COPY:
            note = f"{sender} was away when that model was scored, and keeps the one it has"
            effects.append(Observe(self.exchange, self._top.steps, self.epoch(), note=note))
        return [*effects, *(self._test() if is_last and self.ending else [])]

    def lose(self, party: str) -> list[Effect]:
        """A party cannot be reached: an evaluation goes on without it."""
        self.lost.add(party)
        if self._evaluation.give_up(party):
            return self._scored()
        if self._selection is not None and self._selection.evaluation.give_up(party):
            return self._validated()
        if self._recall is not None and self._recall.give_up(party) and self.ending:
            return self._test()
        return []

    def _validated(self) -> list[Effect]:
        """An evaluation of validation rows is complete: record it, and end the training if it is time."""
        selection = self._selection
        assert selection is not None
        metrics, verdict = selection.score(self._top, self.table.known)
        effects = [*self.progress.observe(self.exchange, self._top.steps, validation=metrics), *verdict]
        if self.ending:
            is_current = selection.best.version == selection.evaluation.number
        elif selection.best.is_over:
            self.ending, is_current = True, False  # what was scored may have learnt more since
            self.reason = f"no better {selection.best.metric} of validation rows for a while"
            if not selection.keeps:
                return [*effects, *self._score()]
        else:
            return effects
        if not is_current and selection.good_version and self._recall is not None:
            version = selection.good_version
            effects += self._recall.call(version, self._top, self._reachable(), self.replies, 0.0)
        return [*effects, *([] if self.waits_for_return else self._test())]

    def _scored(self) -> list[Effect]:
        """An evaluation of test rows is complete: record it; after the last one, everybody stops."""
        metric = self._top.score(self._evaluation.embeddings(), self.table.known)
        effects = self.progress.observe(self.exchange, self._top.steps, metric)
        if self.ending:
            stop = Stop(self.reason)
            effects += [*(Send(party, stop) for party in self._parties), Finish()]
        return effects

    def counts(self) -> dict[str, Any]:
        return {
            "exchanges": self.exchange,
            "steps": self._top.steps,
            "epochs": self.epoch(),
            "train_loss": self.progress.train_loss(),
            "staleness": self.table.staleness.summary(),
            "replies": dict(self.replies),
            **({} if self._selection is None else self._selection.counts()),
            **self._healing.counts(),
        }
