"""What every label party of a split model keeps, whatever its schedule: the table, who can be reached, how many replies
went to whom, the record of the training, and its end."""

from collections.abc import Callable, Sequence
from math import inf, isfinite
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.bounds import check_magnitude, largest
from colonnade.algorithms.parts.divergence import DivergenceWatch
from colonnade.algorithms.parts.progress import DIVERGED, Progress
from colonnade.algorithms.seats import LabelSeat
from colonnade.algorithms.split_models.parts.budget import check_each_once
from colonnade.algorithms.split_models.parts.evaluation import Evaluation
from colonnade.algorithms.split_models.parts.table import EmbeddingTable
from colonnade.algorithms.split_models.parts.top import Batch
from colonnade.data.batches import batches_per_epoch
from colonnade.errors import ProtocolError, RunError
from colonnade.messages import EvaluationEmbedding, Stop
from colonnade.party import Effect, Finish, Send
from colonnade.state import Remembering, Remembers, part, value

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

    def batch(self, rows: NDArray[np.uint32]) -> Batch: ...

    def mean_loss(self, read: Sequence[tuple[Batch, torch.Tensor]]) -> float: ...

    def score(self, test_embeddings: torch.Tensor, known: Callable[[], torch.Tensor]) -> dict[str, float]: ...

    def models(self) -> dict[str, torch.nn.Module]: ...


class SplitRecord(Remembering):
    """Counts exchanges, evaluates when it is due, and ends the training after the last evaluation."""

    MEMORY = (
        value("exchange", "replies", "ending", "reason"),
        value("lost", restored=set),
        *(part("_top"), part("table"), part("_evaluation"), part("progress"), part("_watch")),
    )

    def __init__(self, seat: LabelSeat, top: TopModel) -> None:
        parties, rows = seat.feature_parties, len(seat.labels.train)
        self._parties = parties
        self._top = top
        self.table = EmbeddingTable(rows, parties, seat.widths)
        # Noise that was agreed on is no party's doing, and no Gaussian number is so far out.
        self._most = (seat.training.embedding_bound or inf) + 100 * seat.privacy.noise
        # Where labels are protected, nothing that others notice may depend on a loss, which knows them.
        self._is_private = bool(getattr(seat.settings, "noise", 0.0) > 0 or seat.privacy.labels_epsilon)
        self._evaluation = Evaluation(len(seat.labels.test), self.table.slices)
        self.progress = Progress(seat.training, batches_per_epoch(rows, seat.training.batch_size) * len(parties))
        # Where embeddings carry noise, so does the loss.
        looks = seat.training.end_when_diverged and seat.privacy.noise == 0 and not self._is_private
        self._watch = DivergenceWatch(seat.labels.task, seat.labels.train, looks, weights=seat.labels.weights)
        self.exchange = 0
        self.replies = dict.fromkeys(parties, 0)
        self.lost: set[str] = set()
        self.reason = "the planned epochs are done"
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
            raise RunError(
                f"The training has diverged: losses are beyond {_FINE_LOSS:g} and the embeddings of {sender} at "
                f"{found:.2g}. Lower training.learning_rate. {self.table.magnitudes()}"
            )
        return check_magnitude(sender, "embeddings", embedding, self._most, "training.embedding_bound")

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
        batch, read = self._top.batch(rows), self.table.read(rows, _JUDGED)
        before = self._top.mean_loss([(batch, read)])
        read[:, self.table.slices[sender]] = torch.from_numpy(embedding)
        after = self._top.mean_loss([(batch, read)])
        if before <= _FINE_LOSS and not after <= _MOST_TIMES_THE_LOSS * (1 + before):  # so NaN is refused as well
            raise ProtocolError(
                f"{sender} sent embeddings with which the loss of its batch is more than {_MOST_TIMES_THE_LOSS:g} "
                "times what it is without. It is not honest, or its training has diverged: lower "
                "training.learning_rate, or scale its columns."
            )

    def observe(self, losses: Sequence[float]) -> list[Effect]:
        """After an update: record its losses, and evaluate if that is due or the training is ending."""
        for loss in losses:
            if not isfinite(loss):
                raise RunError(f"{DIVERGED} {self.table.magnitudes()}")
            self.progress.add_loss(loss)
            self._watch.add(loss, self.epoch())
        effects = self.progress.observe(self.exchange, self._top.steps)
        if self.ending or (not self._evaluation.under_way and self.progress.evaluation_is_due(self.exchange)):
            reachable = [party for party in self._parties if party not in self.lost]
            effects += self._evaluation.begin(reachable, self.replies) or self._scored()
        return effects

    def receive(self, sender: str, answer: EvaluationEmbedding) -> list[Effect]:
        self._check_magnitude(sender, answer.embedding)
        return self._scored() if self._evaluation.receive(sender, answer) else []

    def lose(self, party: str) -> list[Effect]:
        """A party cannot be reached: an evaluation goes on without it."""
        self.lost.add(party)
        return self._scored() if self._evaluation.give_up(party) else []

    def _scored(self) -> list[Effect]:
        """An evaluation is complete: record it; after the last one, everybody stops."""
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
        }
