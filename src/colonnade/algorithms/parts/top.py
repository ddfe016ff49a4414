"""The label party's half of a split model: everybody's embeddings in, loss and gradients out.

If the label party holds columns, its own bottom model stands last in the top model's input; it is always fresh.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.losses import Loss, metrics
from colonnade.algorithms.parts.optimiser import Optimiser
from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.parts.seats import LabelSeat
from colonnade.errors import SettingsError
from colonnade.models.flat import FlatModel, flatten
from colonnade.models.network import network_for
from colonnade.party import State

Gradients = list[torch.Tensor]


def mean_gradients(several: list[Gradients]) -> Gradients:
    """The mean of gradients taken at the same parameters."""
    total = several[0]
    for gradients in several[1:]:
        total = list(torch._foreach_add(total, gradients))
    return total if len(several) == 1 else list(torch._foreach_div(total, len(several)))


class Top:
    """The top model θ0 (with the label party's own bottom model, if any), its loss and its optimiser."""

    def __init__(self, seat: LabelSeat, flat: bool = False) -> None:
        """With `flat`, all parameters lie in one `vector`, and `update` takes one gradient of that length."""
        if isinstance(seat.top, FlatModel) and not flat:
            raise SettingsError(
                "The top model is a FlatModel, which has no gradients, but this algorithm's label party needs them. "
                "Choose zoo or zoo-sync, or give a torch module."
            )
        if isinstance(seat.bottom, FlatModel) and not flat:
            raise SettingsError(
                f"The bottom model of {seat.name} is a FlatModel, which has no gradients, but this algorithm's label "
                "party needs them. Choose zoo or zoo-sync, or give a torch module."
            )
        self.network = network_for(seat.top)
        self.own = None if seat.bottom is None else network_for(seat.bottom)
        self._generator = generator_for(seat.seed, seat.name, "model")
        self.network.generator = self._generator
        self._columns = seat.columns
        networks = [self.network]
        if self.own is not None:
            self.own.generator = self._generator
            networks.append(self.own)
        self._labels = seat.labels
        self._loss = Loss(seat.labels.task)
        self.vector = flatten(networks, seat.name) if flat else torch.zeros(0)
        parameters = [parameter for network in networks for parameter in network.parameters]
        self._optimiser = Optimiser([self.vector] if flat else parameters, seat.training.top_optimiser())
        self.steps = 0

    def gradients(
        self, rows: NDArray[np.uint32], embeddings: torch.Tensor, part: slice | None = None
    ) -> tuple[float, Gradients, torch.Tensor]:
        """Mean loss of the rows, its gradients by the top model's parameters, and by the embeddings.

        Everything is taken at the same θ0 (`vafl` eq. 4a, 4b). `part` asks for some columns of the embeddings only;
        an empty one, slice(0, 0), for none.
        """
        at = torch.from_numpy(rows.view(np.int32))
        width = embeddings.shape[1]
        if self.own is None or self._columns is None:
            outputs, kept = self.network.forward(embeddings)
            loss, by_outputs = self._loss.value_and_gradient(outputs, self._labels.train.index_select(0, at))
            gradients, by_inputs = self.network.backward(kept, by_outputs, True if part is None else part)
            assert by_inputs is not None
            return loss.item(), gradients, by_inputs
        own_embedding, own_kept = self.own.forward(self._columns.train.index_select(0, at))
        outputs, kept = self.network.forward(torch.cat([embeddings, own_embedding], 1))
        loss, by_outputs = self._loss.value_and_gradient(outputs, self._labels.train.index_select(0, at))
        gradients, by_inputs = self.network.backward(kept, by_outputs, True)
        assert by_inputs is not None
        own_gradients, _ = self.own.backward(own_kept, by_inputs[:, width:].contiguous())
        asked = by_inputs[:, :width] if part is None else by_inputs[:, part]
        return loss.item(), [*gradients, *own_gradients], asked

    def row_losses(self, rows: NDArray[np.uint32], embeddings: torch.Tensor) -> torch.Tensor:
        """The loss of every row with each of several embeddings: [points, rows, width] → [points, rows]."""
        at = torch.from_numpy(rows.view(np.int32))
        points, count, width = embeddings.shape
        if self.own is not None and self._columns is not None:
            own = self.own.embed(self._columns.train.index_select(0, at)).expand(points, -1, -1)
            embeddings = torch.cat([embeddings, own], 2)
            width = embeddings.shape[2]
        outputs = self.network.embed(embeddings.reshape(points * count, width))
        targets = self._labels.train.index_select(0, at)
        if points > 1:
            targets = targets.expand(points, count).reshape(-1)  # `repeat` takes several times as long
        return self._loss.per_row(outputs, targets).view(points, count)

    def update(self, gradients: Gradients) -> None:
        """θ0 ← θ0 − η0 g (eq. 6)."""
        self._optimiser.step(gradients)
        self.steps += 1

    def score(self, test_embeddings: torch.Tensor) -> dict[str, float]:
        """Test metrics; {} without test rows."""
        if len(test_embeddings) == 0:
            return {}
        if self.own is not None and self._columns is not None:
            test_embeddings = torch.cat([test_embeddings, self.own.embed(self._columns.test)], 1)
        scored = metrics(self._labels.task, self.network.embed(test_embeddings), self._labels.test)
        if "rmse" in scored:
            scored["rmse"] *= self._labels.deviation  # in the label's own unit
        return scored

    def models(self) -> dict[str, torch.nn.Module]:
        own = {} if self.own is None else {"bottom": self.own.module()}
        return {"top": self.network.module(), **own}

    def state(self) -> State:
        tensors = {f"model.{name}": tensor for name, tensor in self.network.state().items()}
        if self.own is not None:
            tensors.update({f"own.{name}": tensor for name, tensor in self.own.state().items()})
        tensors.update({f"optimiser.{name}": tensor for name, tensor in self._optimiser.state().items()})
        tensors["generator"] = self._generator.get_state()
        return State(tensors, {"steps": self.steps})

    def restore(self, state: State) -> None:
        self.network.load(state.part("model").tensors)
        if self.own is not None:
            self.own.load(state.part("own").tensors)
        self._optimiser.load(state.part("optimiser").tensors)
        self._generator.set_state(state.tensors["generator"])
        self.steps = state.values["steps"]
