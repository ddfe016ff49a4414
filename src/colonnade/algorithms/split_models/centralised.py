"""The same model trained in one place on the joined columns: what a federation is measured against.

Every party's bottom model and the top model take one stochastic gradient step per batch, equations (2) and (3) of the
VAFL paper without any distance between them. Nothing is sent, so there are steps and epochs but no exchanges.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from colonnade.algorithms.parts.divergence import DivergenceWatch
from colonnade.algorithms.parts.progress import Progress
from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.row import Algorithm, Family
from colonnade.algorithms.seats import FeatureSeat, LabelSeat
from colonnade.algorithms.split_models.parts.bottom import Bottom
from colonnade.algorithms.split_models.parts.top import Top
from colonnade.data.batches import Batches, batches_per_epoch
from colonnade.errors import ProtocolError
from colonnade.party import Effect, Event, Finish, Received, SetTimer, Started, TimerFired
from colonnade.state import Remembering, part, parts


@dataclass(frozen=True)
class Centralised:
    """`[algorithm]` with name = "centralised": nothing to set."""


class OnlyParty(Remembering):
    """Holds everybody's columns and the labels."""

    MEMORY = (part("_top"), part("_progress"), part("_watch"), part("_batches"), parts("_bottoms", "bottom of {}"))

    def __init__(self, label: LabelSeat, features: Sequence[FeatureSeat]) -> None:
        rows = self._rows = len(label.labels.train)
        self._test_rows = len(label.labels.test)
        self._bottoms = {seat.name: Bottom(seat) for seat in features}
        self._top = Top(label)
        self._progress = Progress(label.training, batches_per_epoch(rows, label.training.batch_size))
        own, looks = label.labels, label.training.end_when_diverged
        self._watch = DivergenceWatch(own.task, own.train, looks, weights=own.weights)
        self._batches = Batches(rows, label.training.batch_size, generator_for(label.seed, "everybody", "rows"))
        self._last_step = label.training.steps(rows)
        self._widths = [seat.width for seat in features]

    def handle(self, event: Event) -> Sequence[Effect]:
        match event:
            case Started():
                return [SetTimer("step", 0.0)]
            case TimerFired():
                return self._step()
            case Received(sender=sender, message=message):
                raise ProtocolError(f"{sender} sent {type(message).__name__} to a party that trains alone.")
            case _:
                return []

    def _step(self) -> list[Effect]:
        rows = self._batches.next()
        number = self._top.steps
        uploads = [bottom.upload(number, rows)[1] for bottom in self._bottoms.values()]
        embeddings = torch.from_numpy(np.concatenate(uploads, axis=1))
        loss, gradients, by_embeddings = self._top.gradients(rows, embeddings)
        self._top.update(gradients)
        by_party = torch.split(by_embeddings, self._widths, 1)
        for bottom, gradient in zip(self._bottoms.values(), by_party, strict=True):
            bottom.apply(number, gradient.contiguous().numpy())
        self._progress.add_loss(loss)
        step = self._top.steps
        self._watch.add(loss, self._progress.epoch(step))
        ending = step >= self._last_step
        metric = self._score() if self._progress.evaluation_is_due(step) or ending else None
        effects = self._progress.observe(step, step, metric)
        return [*effects, Finish() if ending else SetTimer("step", 0.0)]

    def _score(self) -> dict[str, float]:
        tests = [bottom.embed_test(0, self._test_rows)[1] for bottom in self._bottoms.values()]
        return self._top.score(torch.from_numpy(np.concatenate(tests, axis=1)), self._known)

    def _known(self) -> torch.Tensor:
        """Embeddings of all training rows."""
        rows = np.arange(self._rows, dtype=np.uint32)
        return torch.from_numpy(np.concatenate([bottom.embed(rows)[1] for bottom in self._bottoms.values()], axis=1))

    def model(self) -> dict[str, torch.nn.Module]:
        bottoms = {f"bottom of {name}": bottom.module() for name, bottom in self._bottoms.items()}
        return {**self._top.models(), **bottoms}

    def counts(self) -> dict[str, Any]:
        return {
            "exchanges": 0,
            "steps": self._top.steps,
            "epochs": self._progress.epoch(self._top.steps),
            "train_loss": self._progress.train_loss(),
        }


ALGORITHM = Algorithm(
    name="centralised",
    summary="the same model trained in one place on the joined columns",
    family=Family.ALONE,
    settings=Centralised,
    paper=None,
    alone=OnlyParty,
)
