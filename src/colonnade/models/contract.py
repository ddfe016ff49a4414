"""What every network promises: `forward` keeps what `backward` needs, and gradients come back as a list.

A network owns copies of its module's weights, so the module it was made from never changes. `parameters` are
updated in place by an optimiser; gradients have their order and layout, which need not be torch's. `state`
and `load` speak torch's names and layout. Outputs belong to the caller, who may write to them; inputs must
stay unchanged until the backward pass.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from colonnade.errors import SettingsError
from colonnade.models.row_gradients import RowGradients
from colonnade.privacy.noise import LayerNoise

SCORED_AT_ONCE = 4096
"""Rows that one message of an evaluation or of a prediction holds. A network that is not dense has the same bits in
both only if it is given the same rows at once."""


class Pass(list[Any]):
    """What one training forward kept: for the network that made it alone, and emptied by its backward."""


class Network(Protocol):
    parameters: list[Tensor]
    generator: torch.Generator | None  # set by the owner; needed only by modules with random layers
    trains_as_it_embeds: bool  # whether training and inference mode give the same outputs, noise aside

    def forward(self, inputs: Tensor, noise: LayerNoise | None = None) -> tuple[Tensor, Pass]:
        """The outputs in training mode, and what backward needs."""

    def embed(self, inputs: Tensor, noise: LayerNoise | None = None, moves: Sequence[Tensor | None] = ()) -> Tensor:
        """The outputs in inference mode (dropout off); keeps nothing. Only a dense network knows layers to move."""

    def score(self, inputs: Tensor, noise: LayerNoise | None = None) -> Tensor:
        """As `embed`, for evaluations and predictions, which must agree to the bit. In a dense network a row's outputs
        do not depend on the rows beside it; in others they are the same for the same rows in the same order."""

    def backward(
        self, kept: Pass, output_gradient: Tensor, input_gradient: bool | slice = False
    ) -> tuple[list[Tensor], Tensor | None]:
        """Gradients in the order of `parameters`, and the one with respect to the inputs if asked for.

        A slice asks for those columns of the inputs alone, as when a label party answers one feature party.
        Gradients are to be read, not written to: they may share memory.
        """

    def row_gradients(
        self, kept: Pass, output_gradient: Tensor, input_gradient: bool | slice = False
    ) -> tuple[RowGradients, Tensor | None]:
        """As `backward`, with the gradients of each row apart. Rows must not mix (`mixes_rows`)."""

    def state(self) -> dict[str, Tensor]:
        """Clones of all weights and buffers, named and laid out as in the module's `state_dict`."""

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Takes over a state, in place; names and shapes must be exactly those of `state()`."""

    def module(self) -> nn.Module:
        """A torch module in inference mode that computes the same function, with copies of the weights."""


def check_state(expected: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Raises unless both have the same names and shapes."""
    missing = sorted(expected.keys() - state.keys())
    unexpected = sorted(state.keys() - expected.keys())
    if missing or unexpected:
        raise SettingsError(
            f"The saved weights do not belong to this model: missing {missing or 'none'}, unexpected "
            f"{unexpected or 'none'}. Build the model with the settings it was saved with."
        )
    for name, tensor in expected.items():
        if state[name].shape != tensor.shape:
            raise SettingsError(
                f"The saved weights do not fit this model: {name!r} has shape {tuple(state[name].shape)} and "
                f"should have {tuple(tensor.shape)}. Build the model with the settings it was saved with."
            )
