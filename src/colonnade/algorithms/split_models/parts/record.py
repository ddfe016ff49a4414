"""What every label party of a split model keeps, whatever its schedule: the table, who can be reached, how many replies
went to whom, the record of the training, and its end."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from colonnade.algorithms.parts.progress import Progress
from colonnade.algorithms.seats import LabelSeat
from colonnade.algorithms.split_models.parts.evaluation import Evaluation
from colonnade.algorithms.split_models.parts.table import EmbeddingTable
from colonnade.data.batches import batches_per_epoch
from colonnade.messages import EvaluationEmbedding, Stop
from colonnade.party import Effect, Finish, Send
from colonnade.state import Remembering, Remembers, part, value


class TopModel(Remembers, Protocol):
    """The label party's model (parts/top.py)."""

    steps: int  # updates so far

    def score(self, test_embeddings: torch.Tensor) -> dict[str, float]: ...

    def models(self) -> dict[str, torch.nn.Module]: ...


class SplitRecord(Remembering):
    """Counts exchanges, evaluates when it is due, and ends the training after the last evaluation."""

    MEMORY = (
        value("exchange", "replies", "ending", "reason"),
        value("lost", restored=set),
        *(part("_top"), part("table"), part("_evaluation"), part("progress")),
    )

    def __init__(self, seat: LabelSeat, top: TopModel) -> None:
        parties, rows = seat.feature_parties, len(seat.labels.train)
        self._parties = parties
        self._top = top
        self.table = EmbeddingTable(rows, parties, seat.widths)
        self._evaluation = Evaluation(len(seat.labels.test), self.table.slices)
        self.progress = Progress(seat.training, batches_per_epoch(rows, seat.training.batch_size) * len(parties))
        self.exchange = 0
        self.replies = dict.fromkeys(parties, 0)
        self.lost: set[str] = set()
        self.reason = "the planned epochs are done"
        self.ending = False  # the last exchange is made; what is still open is the last evaluation

    def epoch(self) -> float:
        return self.progress.epoch(self.exchange)

    def observe(self, losses: Sequence[float]) -> list[Effect]:
        """After an update: record its losses, and evaluate if that is due or the training is ending."""
        for loss in losses:
            self.progress.add_loss(loss)
        effects = self.progress.observe(self.exchange, self._top.steps)
        if self.ending or (not self._evaluation.under_way and self.progress.evaluation_is_due(self.exchange)):
            reachable = [party for party in self._parties if party not in self.lost]
            effects += self._evaluation.begin(reachable, self.replies) or self._scored()
        return effects

    def receive(self, sender: str, answer: EvaluationEmbedding) -> list[Effect]:
        return self._scored() if self._evaluation.receive(sender, answer) else []

    def lose(self, party: str) -> list[Effect]:
        """A party cannot be reached: an evaluation goes on without it."""
        self.lost.add(party)
        return self._scored() if self._evaluation.give_up(party) else []

    def _scored(self) -> list[Effect]:
        """An evaluation is complete: record it; after the last one, everybody stops."""
        metric = self._top.score(self._evaluation.embeddings())
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
