"""The two ends of an explanation: a party that holds columns, and the label party that scores.

Between them go embeddings one way and means of losses, or gradients by embeddings, the other. A column, a label or a
row's loss never does: `ColumnOwner` and `Scorer` hand nothing else over, be they in one process or at organisations.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from colonnade.algorithms.parts.losses import Loss
from colonnade.algorithms.parts.randomness import seed_for
from colonnade.explanation.settings import ExplainSettings
from colonnade.explanation.shapley import MOST_EXACT, Importance, Values, mean_of, shapley
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
        self._rows = rows
        self._module = module  # in inference mode, the clip of what it sends inside
        self._embed = embed
        here = rows[:, -1] == 0 if expects_absence else torch.ones(len(rows), dtype=torch.bool)
        self._here = here.nonzero()[:, 0]  # rows that it does not lack (absence.py)
        self._mean = rows.double().mean(0, keepdim=True).float()  # of a constant column exactly its value

    def embedding(self) -> Tensor:
        """Of its rows as they are."""
        return self._embed(self._rows)

    def shuffled(self, group: ColumnGroup, draws: np.random.Generator) -> Tensor:
        """Of its rows with the values of one column dealt out anew, to those rows that it does not lack."""
        rows = self._rows.clone()
        order = self._here[torch.from_numpy(draws.permutation(len(self._here)))]
        flat, places = rows.view(len(rows), -1), torch.tensor(group.places)
        flat[self._here[:, None], places] = self._rows.reshape(len(rows), -1)[order[:, None], places]
        return self._embed(rows)

    def variants(self, group: ColumnGroup, asked: ExplainSettings, seed: int) -> list[Tensor]:
        """As often as is asked for; how values are dealt out follows from the seed."""
        draws = [
            np.random.default_rng(seed_for(seed, self.name, group.name, str(repeat))) for repeat in range(asked.repeats)
        ]
        return [self.shuffled(group, one) for one in draws]

    def on_the_way(self, share: float) -> tuple[Tensor, Tensor]:
        """So far between its mean row and each row: these points, to be differentiated by, and their embeddings."""
        points = (self._mean + share * (self._rows - self._mean)).requires_grad_()
        with torch.enable_grad():
            return points, self._module(points)

    def away_from_mean(self) -> Tensor:
        """How far each row is from the mean row, [rows, prepared columns]."""
        return (self._rows - self._mean).reshape(len(self._rows), -1)

    @property
    def has_gradients(self) -> bool:
        """Whether there is a way to walk along: a model may be a function that nobody can differentiate."""
        return _has_slope(self._module, self._rows[:1])


@dataclass(frozen=True)
class Totals:
    """What may be told of a model to everybody who takes part: means over rows, of each party as a whole."""

    loss: float  # with everybody's embeddings
    loss_without: float  # with what stands for everybody
    parties: Mapping[str, Importance]  # Shapley values
    shuffled: Mapping[str, Importance]  # by how much the loss grows when a party's embeddings go to other rows
    coalitions: int  # that were tried; 0: orders were drawn


class Scorer:
    """The label party: it has the top model and the labels, and tells means of what embeddings cost in loss."""

    def __init__(self, order: tuple[str, ...], top: Network, module: nn.Module, task: str, labels: Tensor) -> None:
        self.evaluations = 0
        self._order = order
        self._top = top
        self._module = module  # the same, for gradients
        self._loss = Loss(task)
        self._labels = labels
        self._embeddings: Mapping[str, Tensor] = {}
        self._full: Values = np.zeros(0)

    def take(self, embeddings: Mapping[str, Tensor]) -> None:
        """Everybody's embeddings of the rows as they are, which all else is compared with."""
        self._embeddings = dict(embeddings)
        self._full = self._losses(embeddings)

    def totals(self, stand_ins: Mapping[str, Tensor], asked: ExplainSettings) -> Totals:
        """Of every party: its Shapley value, and how the loss grows when its embeddings are dealt out anew.

        `stand_ins`: what stands for a party that is not there.
        """
        embeddings = self._embeddings
        absent = {name: stand_ins[name][None].expand_as(own) for name, own in embeddings.items()}

        def game(present: frozenset[str]) -> Values:
            return -self._losses({name: own if name in present else absent[name] for name, own in embeddings.items()})

        draws = np.random.default_rng(seed_for(asked.seed, "orders"))
        worth = shapley(list(embeddings), game, asked.orders, draws)
        without = -game(frozenset())
        shuffled = {name: self._dealt_out(name, asked) for name in embeddings}
        coalitions = 2 ** len(embeddings) if len(embeddings) <= MOST_EXACT else 0
        return Totals(float(self._full.mean()), float(without.mean()), worth, shuffled, coalitions)

    def grown(self, name: str, variants: Sequence[Tensor]) -> Importance:
        """By how much the loss grows, in the mean, with these embeddings in place of a party's own."""
        total: Values = np.zeros_like(self._full)
        for variant in variants:
            total += (self._losses({**self._embeddings, name: variant}) - self._full) / len(variants)
        return mean_of(total)

    def chosen(self) -> Tensor:
        """Which output of each row is explained: the one that is predicted."""
        outputs = self._outputs(self._embeddings)
        return outputs.argmax(1) if outputs.shape[1] > 1 else torch.zeros(len(outputs), dtype=torch.int64)

    def gradients(self, embeddings: Mapping[str, Tensor], chosen: Tensor) -> dict[str, Tensor]:
        """Of each row's chosen output, by each party's embedding of it."""
        leaves = {name: embeddings[name].detach().requires_grad_() for name in self._order}
        with torch.enable_grad():
            outputs = self._module(torch.cat([leaves[name] for name in self._order], 1))
            total = outputs.gather(1, chosen[:, None]).sum()
        found = torch.autograd.grad(total, list(leaves.values()))
        return dict(zip(leaves, found, strict=True))

    @property
    def has_gradients(self) -> bool:
        """Whether the top model can be differentiated."""
        return _has_slope(self._module, torch.cat([self._embeddings[name][:1] for name in self._order], 1))

    def _dealt_out(self, name: str, asked: ExplainSettings) -> Importance:
        """Of a whole party: its embeddings are dealt out to the rows anew, and nobody is asked."""
        draws = [np.random.default_rng(seed_for(asked.seed, name, str(repeat))) for repeat in range(asked.repeats)]
        own = self._embeddings[name]
        return self.grown(name, [own[torch.from_numpy(one.permutation(len(own)))] for one in draws])

    def _losses(self, embeddings: Mapping[str, Tensor]) -> Values:
        """The loss of each row, which stays here."""
        self.evaluations += 1
        return self._loss.per_row(self._outputs(embeddings).double(), self._labels).numpy().astype(np.float64)

    def _outputs(self, embeddings: Mapping[str, Tensor]) -> Tensor:
        return self._top.score(torch.cat([embeddings[name] for name in self._order], 1))


def _has_slope(module: nn.Module, row: Tensor) -> bool:
    """Whether a module's outputs can be differentiated by its inputs."""
    given = row.clone().requires_grad_()
    with torch.enable_grad():
        outputs = module(given)
    if outputs.grad_fn is None:
        return False
    return torch.autograd.grad(outputs.sum(), given, allow_unused=True)[0] is not None
