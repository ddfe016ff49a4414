"""The label party's half of a split model: everybody's embeddings in, loss and gradients out.

If the label party holds columns, its own bottom model stands last in the top model's input; it is always fresh.
Losses that algorithms take differences of are taken in inference mode, and their means in float64.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from colonnade.algorithms.parts.losses import Loss, best_threshold, check_threshold, metrics
from colonnade.algorithms.parts.optimiser import Optimiser, OptimiserSettings
from colonnade.algorithms.parts.randomness import generator_for
from colonnade.algorithms.seats import LabelSeat
from colonnade.algorithms.split_models.parts.steps import first_order_top
from colonnade.algorithms.training import AUTO
from colonnade.data.absence import drop
from colonnade.errors import SettingsError
from colonnade.models.contract import Pass
from colonnade.models.flat import FlatModel, flatten
from colonnade.models.network import network_for
from colonnade.models.row_gradients import RowGradients
from colonnade.state import Memory, Remembering, State, generator, value, weights

Gradients = list[torch.Tensor]

_ROWS_AT_ONCE = 4096
"""Of a look at all training rows: bounds the memory of the hidden layers."""


def mean_gradients(several: list[Gradients]) -> Gradients:
    """The mean of gradients taken at the same parameters; there may be none."""
    total = several[0]
    if len(several) == 1 or not total:
        return total
    for gradients in several[1:]:
        total = list(torch._foreach_add(total, gradients))
    return list(torch._foreach_div(total, len(several)))


def means(row_losses: NDArray[np.float32]) -> NDArray[np.float64]:
    """[points, rows] → [points], summed in float64: differences of these are divided by a small radius."""
    means: NDArray[np.float64] = row_losses.sum(1, dtype=np.float64) / row_losses.shape[1]
    return means


class Batch(NamedTuple):
    """What the label party itself has of some rows, fetched once for all the losses that are taken of them."""

    rows: int  # how many
    targets: torch.Tensor
    columns: torch.Tensor | None
    weights: torch.Tensor | None = None  # what each counts for in the loss; None: 1


class Top(Remembering):
    """The top model θ0 (with the label party's own bottom model, if any), its loss and its optimiser."""

    MEMORY: ClassVar[tuple[Memory, ...]] = (
        *(weights("network", "model"), weights("own"), weights("_optimiser")),
        generator("_generator"),
        value("steps"),
    )
    DERIVED: ClassVar[tuple[str, ...]] = ("vector",)  # the networks' parameters, seen as one

    def __init__(
        self,
        seat: LabelSeat,
        flat: bool = False,
        first_order: bool = True,
        optimiser: OptimiserSettings | None = None,
    ) -> None:
        """With `flat`, all parameters lie in one `vector`, and `update` takes one gradient of that length.

        `first_order`: gradients will be asked for, so models without any are refused. Without an `optimiser`, a step is
        planned for each upload.
        """
        for what, model in (("top model", seat.top), (f"bottom model of {seat.name}", seat.bottom)):
            if first_order and isinstance(model, FlatModel):
                raise SettingsError(
                    f"The {what} is a FlatModel, which has no gradients, but this algorithm's label party needs them. "
                    "Choose zoo, zoo-sync, or dpzv with server_update = 'zeroth-order', or give a torch module."
                )
        self.network = network_for(seat.top, device=seat.device, compiled=seat.training.compile)
        self.own = (
            None
            if seat.bottom is None
            else network_for(seat.bottom, device=seat.device, compiled=seat.training.compile)
        )
        self._generator = generator_for(seat.secret, seat.name, "model")
        self.network.generator = self._generator
        self._columns = seat.columns
        networks = [self.network]
        if self.own is not None:
            self.own.generator = self._generator
            networks.append(self.own)
        self._labels = seat.labels
        own = seat.labels.train
        # Once, and not for every loss that is taken: of zeroth order that is dozens of times an exchange.
        self._targets = own if own.is_floating_point() or seat.labels.task == "multiclass" else own.float()
        self._weights = None if seat.labels.weights is None else seat.labels.weights.to(torch.float32)
        check_threshold(seat.labels.task, seat.training.threshold)
        self._threshold = seat.training.threshold
        self._loss = Loss(seat.labels.task)
        self._trains_as_it_embeds = all(network.trains_as_it_embeds for network in networks)
        self.vector = flatten(networks, seat.name) if flat else torch.zeros(0)
        parameters = [parameter for network in networks for parameter in network.parameters]
        self._optimiser = Optimiser([self.vector] if flat else parameters, optimiser or first_order_top(seat))
        self.steps = 0

    def batch(self, rows: NDArray[np.uint32], *, dropping: bool = True) -> Batch:
        """Of these training rows; `dropping`: to learn from, so that some of its own columns may be taken as absent."""
        at = torch.from_numpy(rows.view(np.int32))
        own = None if self.own is None or self._columns is None else self._columns.train.index_select(0, at)
        if own is not None and self._columns is not None and self._columns.drop_share and dropping:
            own = drop(own, self._columns.drop_share, self._generator)
        weights = None if self._weights is None else self._weights.index_select(0, at)
        return Batch(rows.size, self._targets.index_select(0, at), own, weights)

    def gradients(
        self, rows: NDArray[np.uint32], embeddings: torch.Tensor, part: slice | None = None
    ) -> tuple[float, Gradients, torch.Tensor]:
        """Mean loss of the rows, its gradients by the top model's parameters, and by the embeddings.

        Everything is taken at the same θ0 (`vafl` eq. 4a, 4b). `part` asks for some columns of the embeddings only.
        """
        _, loss, gradients, by_inputs = self._backward(self.batch(rows), embeddings, True if part is None else part)
        assert by_inputs is not None
        return loss.item(), gradients, by_inputs

    def own_gradients(self, batch: Batch, embeddings: torch.Tensor) -> Gradients:
        """Gradients of the mean loss by the top model's parameters alone."""
        return self._backward(batch, embeddings, False)[2]

    def row_gradients(self, batch: Batch, embeddings: torch.Tensor) -> list[RowGradients]:
        """Each row's own gradient of its loss: by the top model's parameters, then by its own bottom model's."""
        outputs, kept, own_kept = self.forward(batch, embeddings)
        _, by_outputs = self._loss.value_and_gradient(outputs, batch.targets, batch.weights)
        # Of the mean loss; a row's own is as many times larger as there are rows.
        by_row, by_inputs = self.network.row_gradients(kept, by_outputs * batch.rows, own_kept is not None)
        if self.own is None or own_kept is None:
            return [by_row]
        assert by_inputs is not None
        own_by_row, _ = self.own.row_gradients(own_kept, by_inputs[:, embeddings.shape[1] :].contiguous())
        return [by_row, own_by_row]

    def losses_and_own_gradients(
        self, batch: Batch, embeddings: torch.Tensor, others: torch.Tensor
    ) -> tuple[NDArray[np.float64], Gradients]:
        """Mean losses with the embeddings and then with the others (of several points, as in `outputs`), and the
        gradients of the first by the top model's parameters."""
        outputs, _, gradients, _ = self._backward(batch, embeddings, False)
        if not self._trains_as_it_embeds:
            outputs = self.outputs(batch, embeddings)
        outputs = torch.cat([outputs, self.outputs(batch, others)])
        return means(self.row_losses(batch, outputs)), gradients

    def _backward(
        self, batch: Batch, embeddings: torch.Tensor, asked: bool | slice
    ) -> tuple[torch.Tensor, torch.Tensor, Gradients, torch.Tensor | None]:
        """Outputs and mean loss in training mode; its gradients by the parameters, and by the embeddings if asked."""
        outputs, kept, own_kept = self.forward(batch, embeddings)
        loss, by_outputs = self._loss.value_and_gradient(outputs, batch.targets, batch.weights)
        if self.own is None or own_kept is None:
            return outputs, loss, *self.network.backward(kept, by_outputs, asked)
        width = embeddings.shape[1]
        gradients, by_inputs = self.network.backward(kept, by_outputs, True)
        assert by_inputs is not None
        own_gradients, _ = self.own.backward(own_kept, by_inputs[:, width:].contiguous())
        part = by_inputs[:, asked if isinstance(asked, slice) else slice(width)]
        return outputs, loss, [*gradients, *own_gradients], part

    def forward(self, batch: Batch, embeddings: torch.Tensor) -> tuple[torch.Tensor, Pass, Pass | None]:
        """Outputs in training mode, and what the networks kept: the top model's, and its own bottom model's if any."""
        if self.own is None or batch.columns is None:
            return *self.network.forward(embeddings), None
        own_embedding, own_kept = self.own.forward(batch.columns)
        return *self.network.forward(torch.cat([embeddings, own_embedding], 1)), own_kept

    def outputs(self, batch: Batch, embeddings: torch.Tensor) -> torch.Tensor:
        """Of the model in inference mode. Embeddings may be several for each row: [points · rows, width]."""
        if self.own is not None and batch.columns is not None:
            own = self.own.embed(batch.columns)
            points = embeddings.shape[0] // batch.rows
            embeddings = torch.cat([embeddings, own.repeat(points, 1)], 1)
        return self.network.embed(embeddings)

    def row_losses(self, batch: Batch, outputs: torch.Tensor) -> NDArray[np.float32]:
        """The loss of every row at each point: [points · rows, outputs] → [points, rows]."""
        points = outputs.shape[0] // batch.rows
        targets = torch.cat([batch.targets] * points)  # `repeat` takes several times as long
        weights = None if batch.weights is None else torch.cat([batch.weights] * points)
        losses: NDArray[np.float32] = self._loss.per_row(outputs, targets, weights).numpy()
        return losses.reshape(points, batch.rows)

    def mean_loss(self, read: Sequence[tuple[Batch, torch.Tensor]]) -> float:
        """Over batches of rows, each with its embeddings."""
        total = 0.0
        for batch, embeddings in read:
            losses = self._loss.per_row(self.outputs(batch, embeddings), batch.targets, batch.weights)
            total += losses.numpy().sum(dtype=np.float64).item() / batch.rows
        return total / len(read)

    def update(self, gradients: Gradients) -> None:
        """θ0 ← θ0 − η0 g (eq. 6)."""
        self._optimiser.step(gradients)
        self.steps += 1

    def score(
        self, embeddings: torch.Tensor, known: Callable[[], torch.Tensor], validation: bool = False
    ) -> dict[str, float]:
        """Metrics of the test rows, or of the validation rows; {} where there are none.

        `known`: training rows as they are known, to choose a threshold by.
        """
        threshold, chosen = self._threshold, {}
        if threshold == AUTO:
            threshold = best_threshold(self._outputs_of_all(known()), self._labels.train)
            chosen = {"threshold": threshold}
        if len(embeddings) == 0:
            return chosen
        labels, part = self._labels, "validation" if validation else "test"
        if self.own is not None and self._columns is not None:
            embeddings = torch.cat([embeddings, self.own.score(getattr(self._columns, part))], 1)
        outputs = self.network.score(embeddings)
        return {**metrics(labels.task, outputs, getattr(labels, part), labels.deviation, threshold), **chosen}

    def _outputs_of_all(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Of every training row, some of them at a time."""
        everyone = np.arange(len(embeddings), dtype=np.uint32)
        parts = np.array_split(everyone, -(-len(everyone) // _ROWS_AT_ONCE))
        return torch.cat(
            [
                self.outputs(self.batch(rows, dropping=False), embeddings[rows[0] : rows[-1] + 1].float())
                for rows in parts
            ]
        )

    def snapshot(self) -> dict[str, torch.Tensor]:
        """A copy of the weights, for `go_back`."""
        own = {} if self.own is None else self.own.state()
        return {**_named("top", self.network.state()), **_named("own", own)}

    def go_back(self, snapshot: Mapping[str, torch.Tensor]) -> None:
        """Take the weights of a snapshot up again."""
        held = State(dict(snapshot))
        self.network.load(held.part("top").tensors)
        if self.own is not None:
            self.own.load(held.part("own").tensors)

    def restart(self, scale: float) -> None:
        """Begin anew with steps of that share of their length."""
        self._optimiser.restart(scale)

    def models(self) -> dict[str, torch.nn.Module]:
        own = {} if self.own is None else {"bottom": self.own.module()}
        return {"top": self.network.module(), **own}


def _named(start: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"{start}.{name}": tensor for name, tensor in tensors.items()}
