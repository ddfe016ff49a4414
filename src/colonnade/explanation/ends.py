"""The two ends of an explanation: a party that holds columns, and the label party that scores.

Between them go embeddings one way and means of losses, or gradients by embeddings, the other. A column, a label or a
row's loss never does. Here both ends are in one process; what they hand over is counted all the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from colonnade.algorithms.parts.losses import Loss
from colonnade.explanation.shapley import Values
from colonnade.models.contract import Network


@dataclass(frozen=True)
class ColumnGroup:
    """One column of a party's table, and the prepared columns that it became."""

    name: str
    places: tuple[int, ...]


class ColumnOwner:
    """A party with columns: it embeds its own rows, as they are or with one column shuffled."""

    def __init__(
        self,
        name: str,
        rows: Tensor,
        groups: tuple[ColumnGroup, ...],
        module: nn.Module,
        embed: Callable[[Tensor], Tensor],
        expects_absence: bool = False,
    ) -> None:
        self.name = name
        self.groups = groups
        self.embeddings_sent = 0  # rows that were embedded for others
        self._rows = rows
        self._module = module  # in inference mode, the clip of what it sends inside
        self._embed = embed
        here = rows[:, -1] == 0 if expects_absence else torch.ones(len(rows), dtype=torch.bool)
        self._here = here.nonzero()[:, 0]  # rows that it does not lack (absence.py)
        self._mean = rows.double().mean(0, keepdim=True).float()  # of a constant column exactly its value

    def embedding(self) -> Tensor:
        """Of its rows as they are."""
        return self._sent(self._rows)

    def shuffled(self, group: ColumnGroup, draws: np.random.Generator) -> Tensor:
        """Of its rows with the values of one column dealt out anew, to those rows that it does not lack."""
        rows = self._rows.clone()
        order = self._here[torch.from_numpy(draws.permutation(len(self._here)))]
        flat, places = rows.view(len(rows), -1), torch.tensor(group.places)
        flat[self._here[:, None], places] = self._rows.reshape(len(rows), -1)[order[:, None], places]
        return self._sent(rows)

    def on_the_way(self, share: float) -> tuple[Tensor, Tensor]:
        """So far between its mean row and each row: these points, to be differentiated by, and their embeddings."""
        points = (self._mean + share * (self._rows - self._mean)).requires_grad_()
        self.embeddings_sent += len(points)
        with torch.enable_grad():
            return points, self._module(points)

    def away_from_mean(self) -> Tensor:
        """How far each row is from the mean row, [rows, prepared columns]."""
        return (self._rows - self._mean).reshape(len(self._rows), -1)

    def _sent(self, rows: Tensor) -> Tensor:
        self.embeddings_sent += len(rows)
        return self._embed(rows)


class Scorer:
    """The label party: it has the top model and the labels, and gives back what embeddings cost in loss."""

    def __init__(self, order: tuple[str, ...], top: Network, module: nn.Module, task: str, labels: Tensor) -> None:
        self.evaluations = 0
        self._order = order
        self._top = top
        self._module = module  # the same, for gradients
        self._loss = Loss(task)
        self._labels = labels

    def losses(self, embeddings: Mapping[str, Tensor]) -> Values:
        """The loss of each row; it stays here, and means of it are told."""
        self.evaluations += 1
        outputs = self.outputs(embeddings)
        return self._loss.per_row(outputs.double(), self._labels).numpy().astype(np.float64)

    def outputs(self, embeddings: Mapping[str, Tensor]) -> Tensor:
        return self._top.embed(torch.cat([embeddings[name] for name in self._order], 1))

    def chosen(self, embeddings: Mapping[str, Tensor]) -> Tensor:
        """Which output of each row is explained: the one that is predicted."""
        outputs = self.outputs(embeddings)
        return outputs.argmax(1) if outputs.shape[1] > 1 else torch.zeros(len(outputs), dtype=torch.int64)

    def gradients(self, embeddings: Mapping[str, Tensor], chosen: Tensor) -> dict[str, Tensor]:
        """Of each row's chosen output, by each party's embedding of it."""
        leaves = {name: embeddings[name].detach().requires_grad_() for name in self._order}
        with torch.enable_grad():
            outputs = self._module(torch.cat([leaves[name] for name in self._order], 1))
            total = outputs.gather(1, chosen[:, None]).sum()
        found = torch.autograd.grad(total, list(leaves.values()))
        return dict(zip(leaves, found, strict=True))
