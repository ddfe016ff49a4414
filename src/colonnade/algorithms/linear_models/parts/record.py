"""The label party's record of a linear federation: losses, evaluations, the stopping rule, and the end.

Progress is counted in mini-batches, since one request may ask for several. The end: everybody is told to ask no more,
says that its weights are settled, the last evaluation is made, and all stop.
"""

from collections.abc import Callable
from math import ceil, sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.linear_models.parts.block_party import BlockParty
from colonnade.algorithms.linear_models.parts.sums import ROWS_A_SUM, Completed
from colonnade.algorithms.linear_models.parts.validation import LinearRecall, LinearSelection
from colonnade.algorithms.parts.divergence import DivergedError, DivergenceWatch, Healing
from colonnade.algorithms.parts.losses import best_threshold, check_threshold, metrics
from colonnade.algorithms.parts.progress import PLANNED, Progress
from colonnade.algorithms.parts.staleness import StalenessCount
from colonnade.algorithms.training import AUTO
from colonnade.data.batches import batches_per_epoch
from colonnade.errors import ProtocolError
from colonnade.messages import Stop, WentBack
from colonnade.party import Effect, Finish, Observe, Send
from colonnade.state import Remembering, array, array_or_none, optional_part, part, value


class LinearRecord(Remembering):
    """Counts, observes, evaluates and ends. `close` asks everybody to stop changing their weights."""

    MEMORY = (
        value("_exchange", "_batch", "_penalty", "_gradient_norm", "_incomplete", "_reason", underscored=True),
        value("_warned", "ending", "_stopped", underscored=True),
        value("settled", restored=set),
        value(
            "_awaited",
            saved=lambda awaited: [[number, *part] for number, part in awaited.items()],
            restored=lambda awaited: {number: (first, count) for number, first, count in awaited},
        ),
        array("_outputs"),
        array("_right", saved=lambda right: right.view(np.uint8), restored=lambda right: right.astype(np.bool_)),
        array("staleness", saved=StalenessCount.counts, restored=StalenessCount),
        array_or_none("_known"),
        part("_progress"),
        part("_watch"),
        *(optional_part("recall"), optional_part("_selection"), optional_part("_healing")),
    )

    def __init__(self, block_party: BlockParty, close: Callable[[], list[Effect]], heals: bool) -> None:
        seat = block_party.seat
        assert seat.labels is not None
        self._block_party = block_party
        self._close = close
        self._labels = seat.labels
        self._batch_size = seat.training.batch_size
        per_epoch = batches_per_epoch(seat.rows, seat.training.batch_size) * seat.workers
        self._progress = Progress(seat.training, per_epoch)
        loss = block_party.loss
        self._named = loss.name != "auto"  # then the objective's loss is none of the usual metrics
        check_threshold(seat.task, seat.training.threshold)
        own, weights = seat.labels.train, seat.labels.weights
        given = own.double().numpy()
        constants = [loss.constant_loss(given, one) for one in (None, block_party.weights)] if self._named else None
        constant = max(constants) if constants else None
        self._healing, looks = Healing(heals), seat.training.end_when_diverged
        self._watch = DivergenceWatch(seat.task, own, looks, constant, weights, closely=heals)
        self.recall = LinearRecall(block_party)
        self._last_batch = ceil(seat.training.epochs * per_epoch - 1e-9)
        # The outputs of training rows as they were last seen, to choose a threshold by; NaN of one never seen.
        automatic = seat.training.threshold == AUTO
        self._known: NDArray[np.float64] | None = np.full(seat.rows, np.nan) if automatic else None
        self._exchange = 0
        self._batch = 0
        self._outputs: NDArray[np.float64] = np.zeros((seat.validation_rows + seat.test_rows, seat.outputs))
        self._validation_rows = seat.validation_rows
        self._selection = LinearSelection(block_party, self.recall) if seat.validation_rows else None
        self._penalty = 0.0
        self._gradient_norm: float | None = None  # None while a party does not know its part, or it is too large
        self._awaited: dict[int, tuple[int, int]] = {}  # number of a sum → first test row and count; (0, 0): the norms
        self._incomplete = False
        self._reason = PLANNED
        # Rows classified correctly since one was not: all of them, without a penalty, means that there is no optimum.
        self._right: NDArray[np.bool_] = np.zeros(seat.rows, np.bool_)
        self._warned = seat.training.l2 > 0 or seat.training.l1 > 0 or loss.has_least_value
        self.staleness = StalenessCount()
        self.settled: set[str] = set()
        self.ending = False
        self._stopped = False  # the last evaluation is made

    # --- while training ---

    def count(self, rows: int, workers: int = 1) -> list[Effect]:
        """So many rows for so many parties: evaluates if that is due, and ends the training after the last."""
        if self.ending:
            return []
        self._exchange += workers
        self._batch += -(-rows // self._batch_size) * workers
        effects = self._progress.observe(self._batch, self._batch, recorded_as=self._exchange)
        if self._batch >= self._last_batch:
            return [*effects, *self._end()]
        if not self._awaited and self._progress.evaluation_is_due(self._batch):
            effects += self._begin_evaluation()
        return effects

    @property
    def epoch(self) -> float:
        return self._progress.epoch(self._batch)

    def add_loss(self, loss: float) -> None:
        self._progress.add_loss(loss)
        self._watch.add(loss, self._progress.epoch(self._batch))

    def look_for_an_optimum(
        self, outputs: NDArray[np.float64], targets: NDArray[np.float64], rows: NDArray[np.uint32] | None = None
    ) -> list[Effect]:
        """Without a penalty, separable rows have none: the weights grow for ever. Say so, once.

        All outputs that the label party sees come by here, so those to choose a threshold by are kept. `rows`: whose
        outputs these are; None: everybody's.
        """
        if self._known is not None:
            self._known[... if rows is None else rows] = outputs[:, 0]
        if self._warned:
            return []
        guesses = outputs.argmax(1) if outputs.shape[1] > 1 else outputs[:, 0] > 0
        if (guesses != targets).any():
            self._right[:] = False
            return []
        self._right[... if rows is None else rows] = True
        if not self._right.all():
            return []
        self._warned = True
        note = (
            "every training row is classified correctly and training.l2 is 0: the weights will grow without end, and "
            "no stopping rule will be met. Set training.l2 above 0."
        )
        return [Observe(self._exchange, self._batch, self._progress.epoch(self._batch), note=note)]

    # --- evaluation ---

    def _begin_evaluation(self) -> list[Effect]:
        sums = self._block_party.sums
        begin, end = self._scored_rows()
        parts = [(0, 0), *((first, min(ROWS_A_SUM, end - first)) for first in range(begin, end, ROWS_A_SUM))]
        effects: list[Effect] = []
        self._incomplete = False
        begun = [(part, sums.begin_evaluation(*part)) for part in parts]
        self._awaited = {number: part for part, (number, _, _) in begun}
        if self._validates:
            assert self._selection is not None
            self._selection.version = -begun[1][1][0]  # of the sum with the first validation rows
        for _, (_, sent, completed) in begun:
            effects += sent
            if completed is not None:
                effects += self.receive(completed)
        return [*effects, *self.abandon(sums.failed(evaluations=True))]

    def receive(self, completed: Completed) -> list[Effect]:
        """A sum for scoring is there."""
        first, count = self._awaited.pop(completed.number)
        if count:
            self._outputs[first : first + count] = completed.total
        else:
            self._penalty = float(completed.total[0, 0])
            square, tolerance = float(completed.total[0, 1]), self._block_party.seat.settings.tolerance
            told = tolerance > 0 and square < self._block_party.most_gradient
            self._gradient_norm = tolerance * sqrt(max(0.0, square)) if told else None
        return [] if self._awaited else self._scored()

    def awaits(self, number: int) -> bool:
        return number in self._awaited

    def abandon(self, numbers: list[int]) -> list[Effect]:
        """Sums that cannot be completed because a party is away: the evaluation goes without them."""
        mine = [number for number in numbers if number in self._awaited]
        for number in mine:
            self._incomplete = True
            del self._awaited[number]
        return self._scored() if mine and not self._awaited else []

    @property
    def _validates(self) -> bool:
        """Whether evaluations are of validation rows: if there are any, until the model is chosen."""
        return self._selection is not None and not self._selection.chosen

    def _scored_rows(self) -> tuple[int, int]:
        """From which row to which: validation rows come first."""
        return (0, self._validation_rows) if self._validates else (self._validation_rows, len(self._outputs))

    def _scored(self) -> list[Effect]:
        effects: list[Effect] = []
        if self._incomplete:
            away = ", ".join(sorted(self._block_party.sums.lost)) or "a party"
            note = f"no evaluation: a sum needs {away}, which cannot be reached"
            effects.append(Observe(self._exchange, self._batch, self._progress.epoch(self._batch), note=note))
        else:
            found = {"validation" if self._validates else "metric": self._metric()}
            effects += self._progress.observe(self._batch, self._batch, recorded_as=self._exchange, **found)
            if self._validates:
                effects += self._judge(found["validation"])
            tolerance: float = self._block_party.seat.settings.tolerance
            if not self.ending and self._gradient_norm is not None and 0 < self._gradient_norm <= tolerance:
                self._reason = f"the gradient's norm is below algorithm.tolerance = {tolerance:g}"
                return [*effects, *self._end()]
            if not self.ending and self._selection is not None and self._selection.best.is_over:
                self._reason = f"no better {self._selection.best.metric} of validation rows for a while"
                return [*effects, *self._end()]
        if self.ending and self._validates:
            assert self._selection is not None
            return [*effects, *self._selection.choose(), *self.evaluate_if_settled()]
        if self.ending:
            self._stopped = True
            stop = Stop(self._reason)
            effects += [*(Send(party, stop) for party in self._block_party.peers), Finish()]
        return effects

    def _judge(self, metrics: dict[str, float]) -> list[Effect]:
        assert self._selection is not None
        return self._selection.judge(self._progress.epoch(self._batch), metrics)

    def went_back(self, peer: str, answer: WentBack) -> list[Effect]:
        """A peer uses the model that was chosen."""
        self.recall.went_back(peer, answer)
        return self.evaluate_if_settled()

    def heal(self, error: DivergedError) -> tuple[int, float, list[Effect]]:
        """Which version to go back to, how long steps are then, and what everybody is told; or the error."""
        epoch = self._progress.epoch(self._batch)
        step = self._healing.cut(epoch, error, self.ending)
        version = 0 if self._selection is None else self._selection.good_version
        self._progress.forget_losses()
        self._watch.restart()
        self._awaited = {}
        self._right[:] = False
        note = Observe(self._exchange, self._batch, epoch, note=self._healing.words())
        return version, step, [note, *self.recall.call(version, step, self._block_party.sums.asked)]

    def _metric(self) -> dict[str, float]:
        labels = self._labels
        values, threshold = {"penalty": self._penalty}, self._threshold()
        if self._gradient_norm is not None:
            values["gradient_norm"] = self._gradient_norm
        begin, end = self._scored_rows()
        if end > begin:
            targets = labels.validation if self._validates else labels.test
            assert targets is not None
            outputs = self._outputs[begin:end]
            found = metrics(labels.task, torch.from_numpy(outputs), targets, labels.deviation, threshold)
            values = {**found, **values}
            if self._named:
                values["loss"] = self._block_party.loss.mean_loss(outputs, targets.double().numpy())
                values.pop("log_loss", None)  # of outputs that were never trained to be log odds
        return values if self._known is None else {**values, "threshold": threshold}

    def _threshold(self) -> float:
        """As it was asked for; or the best for the training rows that have been seen."""
        threshold = self._block_party.seat.training.threshold
        if self._known is None:
            return float(threshold)
        seen = ~np.isnan(self._known)
        if not seen.any():
            return 0.5
        return best_threshold(torch.from_numpy(self._known[seen]), self._labels.train[torch.from_numpy(seen)])

    # --- the end ---

    @property
    def has_gone_back(self) -> bool:
        """Whether the training has ended with earlier weights than its last."""
        return self._selection is not None and self._selection.has_gone_back

    def extend(self) -> None:
        """The training goes on after its end, with the weights that it ended with."""
        self.ending = self._stopped = self._incomplete = False
        self._reason = PLANNED
        self._awaited, self.settled = {}, set()
        self.recall.extend()
        if self._selection is not None:
            self._selection.chosen = False

    def _end(self) -> list[Effect]:
        self.ending = True
        self._awaited = {}
        return [*self._close(), *self.evaluate_if_settled()]

    def settle(self, party: str) -> list[Effect]:
        if not self.ending:
            raise ProtocolError(f"{party} says that its weights are settled; the training has not ended.")
        self.settled.add(party)
        return self.evaluate_if_settled()

    def evaluate_if_settled(self) -> list[Effect]:
        """The last evaluation, once nobody's weights change any more; those who are away are not waited for."""
        unsettled = {*self._block_party.peers} - self._block_party.sums.lost - self.settled
        if not self.ending or self._stopped or self._awaited or unsettled:
            return []
        if self._selection is not None and self._selection.chosen and not self.recall.all_are_back:
            return []
        return self._begin_evaluation()

    def counts(self) -> dict[str, Any]:
        return {
            "exchanges": self._exchange,
            "epochs": self._progress.epoch(self._batch),
            "train_loss": self._progress.train_loss(),
            "staleness": self.staleness.summary(),
            **({} if self._selection is None else self._selection.counts()),
            **self._healing.counts(),
        }
