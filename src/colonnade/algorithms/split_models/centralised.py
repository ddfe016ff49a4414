"""The same model trained in one place on the joined columns: what a federation is measured against.

Every party's bottom model and the top model take one stochastic gradient step per batch, equations (2) and (3) of the
VAFL paper without any distance between them. Nothing is sent, so there are steps and epochs but no exchanges.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.best import BestScore, check_they_can_choose
from colonnade.algorithms.parts.divergence import DivergedError, DivergenceWatch, Healing, worst_scores
from colonnade.algorithms.parts.losses import headline
from colonnade.algorithms.parts.progress import Progress
from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.parts.versions import Versions
from colonnade.algorithms.row import Algorithm, Family
from colonnade.algorithms.seats import FeatureSeat, LabelSeat
from colonnade.algorithms.split_models.parts.bottom import Bottom
from colonnade.algorithms.split_models.parts.top import Top
from colonnade.algorithms.split_models.parts.validation import heals, keeps_best
from colonnade.algorithms.training import BOLD
from colonnade.data.batches import Batches, batches_per_epoch
from colonnade.errors import ProtocolError
from colonnade.messages import Keep
from colonnade.party import Effect, Event, Extended, Finish, Observe, Received, SetTimer, Started, TimerFired
from colonnade.state import Remembering, State, optional_part, part, parts


@dataclass(frozen=True)
class Centralised:
    """`[algorithm]` with name = "centralised": nothing to set."""


class OnlyParty(Remembering):
    """Holds everybody's columns and the labels."""

    MEMORY = (
        *(part("_top"), part("_progress"), part("_watch"), part("_batches"), parts("_bottoms", "bottom of {}")),
        *(optional_part("_best"), optional_part("_versions"), optional_part("_healing")),
    )

    def __init__(self, label: LabelSeat, features: Sequence[FeatureSeat]) -> None:
        rows = self._rows = len(label.labels.train)
        self._test_rows = len(label.labels.test)
        self._bottoms = {seat.name: Bottom(seat) for seat in features}
        self._top = Top(label, optimiser=label.training.top_optimiser(label.training.steps(rows)))
        self._progress = Progress(label.training, batches_per_epoch(rows, label.training.batch_size))
        own, looks = label.labels, label.training.end_when_diverged
        self._healing = Healing(heals(label))
        closely = self._healing.heals
        self._watch = DivergenceWatch(own.task, own.train, looks, weights=own.weights, closely=closely)
        self._boldness = label.training.boldness
        self._watch.is_bold = self._boldness > BOLD
        self._batches = Batches(rows, label.training.batch_size, generator_for(label.seed, "everybody", "rows"))
        self._last_step = label.training.steps(rows)
        self._widths = [seat.width for seat in features]
        training, apart = label.training, label.labels.validation
        self._validation_rows = 0 if apart is None else len(apart)
        metric = headline(label.labels.task, training.metric)
        worst = worst_scores(label.labels.task, label.labels.train, label.labels.deviation)
        self._best = None if apart is None else BestScore(metric, training.early_stopping, worst)
        self._keeps = keeps_best(label, self._validation_rows)
        if self._keeps or training.early_stopping:
            check_they_can_choose(label.labels)
        self._versions = Versions() if self._keeps or self._healing.heals else None
        if self._versions is not None and self._healing.heals:
            self._versions.offer(0, self._copy())

    def restored(self) -> None:
        self._watch.is_bold = self._boldness * self._healing.scale > BOLD

    def handle(self, event: Event) -> Sequence[Effect]:
        match event:
            case Started() | Extended():
                return [SetTimer("step", 0.0)]
            case TimerFired():
                return self._step()
            case Received(sender=sender, message=message):
                raise ProtocolError(f"{sender} sent {type(message).__name__} to a party that trains alone.")
            case _:
                return []

    def _step(self) -> list[Effect]:
        """A step; a training that does not descend goes on from a good model with shorter ones."""
        try:
            return self._descend()
        except DivergedError as error:
            step, epoch = self._top.steps, self._progress.epoch(self._top.steps)
            scale = self._healing.cut(epoch, error, step >= self._last_step)
            self._go_back(self._best.version if self._best is not None and self._keeps else 0)
            self._top.restart(scale)
            for bottom in self._bottoms.values():
                bottom.restart(scale)
            self._progress.forget_losses()
            self._watch.restart()
            self._watch.is_bold = self._boldness * scale > BOLD
            return [Observe(step, step, epoch, note=self._healing.words()), SetTimer("step", 0.0)]

    def _descend(self) -> list[Effect]:
        rows = self._batches.next()
        number = self._top.steps
        uploads = [bottom.upload(number, rows)[1] for bottom in self._bottoms.values()]
        embeddings = side_by_side(uploads, len(rows))
        loss, gradients, by_embeddings = self._top.gradients(rows, embeddings)
        self._top.update(gradients)
        by_party = torch.split(by_embeddings, self._widths, 1)
        for bottom, gradient in zip(self._bottoms.values(), by_party, strict=True):
            bottom.apply(number, gradient.contiguous().numpy())
        self._progress.add_loss(loss)
        step = self._top.steps
        self._watch.add(loss, self._progress.epoch(step))
        ending = step >= self._last_step
        if ending and not self._keeps:
            self._watch.judge_the_end(self._progress.train_loss(), self._progress.epoch(step))
        if not (self._progress.evaluation_is_due(step) or ending):
            effects = self._progress.observe(step, step)
        elif self._best is None:
            effects = self._progress.observe(step, step, self._score())
        else:
            effects = self._progress.observe(step, step, validation=self._validate(self._best))
            ending = ending or self._best.is_over
            if ending:
                if self._keeps:
                    self._go_back(self._best.version)
                effects += self._progress.observe(step, step, self._score())
        return [*effects, Finish() if ending else SetTimer("step", 0.0)]

    def _score(self) -> dict[str, float]:
        tests = [bottom.embed_test(0, self._test_rows)[1] for bottom in self._bottoms.values()]
        return self._top.score(side_by_side(tests, self._test_rows), self._known)

    def _known(self) -> torch.Tensor:
        """Embeddings of all training rows."""
        rows = np.arange(self._rows, dtype=np.uint32)
        return side_by_side([bottom.embed(rows)[1] for bottom in self._bottoms.values()], self._rows)

    def _validate(self, best: BestScore) -> dict[str, float]:
        """Score the validation rows; keep a copy of the models if they are the best so far."""
        rows = [bottom.embed_validation(0, self._validation_rows)[1] for bottom in self._bottoms.values()]
        metrics = self._top.score(side_by_side(rows, self._validation_rows), self._known, validation=True)
        step = self._top.steps
        if best.judge(step, self._progress.epoch(step), metrics) and self._keeps and self._versions is not None:
            self._versions.offer(step, self._copy())
            self._versions.judge("the only party", Keep(step, step))
        return metrics

    def _copy(self) -> dict[str, torch.Tensor]:
        """Of all models, for `_go_back`."""
        state = State()
        for name, bottom in self._bottoms.items():
            state.add(f"bottom of {name}", State(bottom.network.state()))
        state.add("top", State(self._top.snapshot()))
        return state.tensors

    def _go_back(self, version: int) -> None:
        copy = None if self._versions is None else self._versions.take(version)
        if copy is None:
            return
        state = State(copy)
        self._top.go_back(state.part("top").tensors)
        for name, bottom in self._bottoms.items():
            bottom.forget_uploads()
            bottom.go_back(state.part(f"bottom of {name}").tensors)

    def model(self) -> dict[str, torch.nn.Module]:
        bottoms = {f"bottom of {name}": bottom.module() for name, bottom in self._bottoms.items()}
        return {**self._top.models(), **bottoms}

    def counts(self) -> dict[str, Any]:
        return {
            "exchanges": 0,
            "steps": self._top.steps,
            "epochs": self._progress.epoch(self._top.steps),
            "train_loss": self._progress.train_loss(),
            **(
                {}
                if self._best is None
                else self._best.counts("best" if self._keeps and self._best.version else "last")
            ),
            **self._healing.counts(),
        }


def side_by_side(embeddings: Sequence[NDArray[np.float32]], rows: int) -> torch.Tensor:
    """Those of all parties in one tensor; of none if the label party alone has columns, which its top model embeds."""
    return torch.from_numpy(np.concatenate([np.empty((rows, 0), np.float32), *embeddings], axis=1))


ALGORITHM = Algorithm(
    name="centralised",
    summary="the same model trained in one place on the joined columns",
    family=Family.ALONE,
    settings=Centralised,
    paper=None,
    alone=OnlyParty,
)
