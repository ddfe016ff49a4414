"""Integrated gradients: how much of an output's distance from the output of the mean row each column accounts for.

Along the straight way from the mean row x̄ to a row x, column j accounts for (x_j − x̄_j) ∫₀¹ ∂F/∂x_j dα, and all
columns of all parties together for F(x) − F(x̄). Every party walks along its own columns; the label party answers
each step with the gradient of the output by the party's embedding. F is the output that the model predicts by.

Reference: M. Sundararajan, A. Taly, Q. Yan, "Axiomatic Attribution for Deep Networks", 2017.
"""

from collections.abc import Mapping

import numpy as np
import torch

from colonnade.explanation.ends import ColumnOwner, Scorer
from colonnade.explanation.shapley import Values


class Walk:
    """One party's way along its own columns, a step at a time."""

    def __init__(self, owner: ColumnOwner, steps: int) -> None:
        self._owner = owner
        self._steps = steps
        self.added: torch.Tensor | None = None  # slopes so far, [rows, prepared columns]
        self._points: tuple[torch.Tensor, torch.Tensor] | None = None

    def embedding(self, step: int) -> torch.Tensor:
        """Of its rows, that far on the way."""
        self._points = self._owner.on_the_way((step + 0.5) / self._steps)
        return self._points[1].detach()

    def answered(self, step: int, gradient: torch.Tensor) -> None:
        """The outputs' gradient by its embedding there, carried on to its columns."""
        if self._points is None:  # it was restored in between
            self.embedding(step)
        assert self._points is not None
        points, embedding = self._points
        (slope,) = torch.autograd.grad(embedding, points, gradient)
        slope = slope.reshape(len(slope), -1).double() / self._steps
        self.added = slope if self.added is None else self.added + slope
        self._points = None

    def accounted_for(self) -> Values:
        """What each column accounts for, [rows, groups of columns]."""
        assert self.added is not None
        owner = self._owner
        each = (owner.away_from_mean().double() * self.added).numpy()
        starts = [group.places[0] for group in owner.groups]  # they follow one another
        end = owner.groups[-1].places[-1] + 1  # the column that tells of absent rows comes after them
        found: Values = np.add.reduceat(each, [*starts, *([end] if end < each.shape[1] else [])], axis=1)
        return found[:, : len(starts)]


def integrated_gradients(owners: Mapping[str, ColumnOwner], scorer: Scorer, steps: int) -> dict[str, Values] | None:
    """What each column of each party accounts for, [rows, groups of columns]; None: a model has no gradients."""
    if not scorer.has_gradients or not all(owner.has_gradients for owner in owners.values()):
        return None
    chosen = scorer.chosen()
    walks = {name: Walk(owner, steps) for name, owner in owners.items()}
    for step in range(steps):
        answers = scorer.gradients({name: walk.embedding(step) for name, walk in walks.items()}, chosen)
        for name, walk in walks.items():
            walk.answered(step, answers[name])
    return {name: walk.accounted_for() for name, walk in walks.items()}
