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


def integrated_gradients(
    owners: Mapping[str, ColumnOwner], scorer: Scorer, chosen: torch.Tensor, steps: int
) -> dict[str, Values] | None:
    """What each column of each party accounts for, [rows, groups of columns]; None: a model has no gradients."""
    added: dict[str, torch.Tensor] = {}
    for step in range(steps):
        walked = {name: owner.on_the_way((step + 0.5) / steps) for name, owner in owners.items()}
        if any(embedding.grad_fn is None for _, embedding in walked.values()):
            return None
        answers = scorer.gradients({name: embedding for name, (_, embedding) in walked.items()}, chosen)
        for name, (points, embedding) in walked.items():
            (slope,) = torch.autograd.grad(embedding, points, answers[name])
            slope = slope.reshape(len(slope), -1).double() / steps
            added[name] = slope if step == 0 else added[name] + slope
    return {name: _by_group(owners[name], slope) for name, slope in added.items()}


def _by_group(owner: ColumnOwner, slope: torch.Tensor) -> Values:
    each = (owner.away_from_mean().double() * slope).numpy()
    starts = [group.places[0] for group in owner.groups]  # they follow one another
    end = owner.groups[-1].places[-1] + 1  # the column that tells of absent rows comes after them
    found: Values = np.add.reduceat(each, [*starts, *([end] if end < each.shape[1] else [])], axis=1)
    return found[:, : len(starts)]
