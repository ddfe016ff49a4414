"""How every model is run: `forward` keeps what `backward` needs, and gradients come back as a list.

A network owns copies of its module's weights, so the module it was made from never changes. `parameters` are
updated in place by an optimiser; gradients have their order and layout, which need not be torch's. `state`
and `load` speak torch's names and layout. Outputs belong to the caller, who may write to them; inputs must
stay unchanged until the backward pass.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from colonnade.errors import SettingsError
from colonnade.models.randomness import initialise, seeded
from colonnade.models.row_gradients import RowGradients, mixes_rows
from colonnade.privacy.noise import LayerNoise

__all__ = ["Network", "Pass", "initialise", "network_for", "output_width"]


class Pass(list[Any]):
    """What one training forward kept: for the network that made it alone, and emptied by its backward."""


class Network(Protocol):
    parameters: list[Tensor]
    generator: torch.Generator | None  # set by the owner; needed only by modules with random layers
    trains_as_it_embeds: bool  # whether training and inference mode give the same outputs, noise aside

    def forward(self, inputs: Tensor, noise: LayerNoise | None = None) -> tuple[Tensor, Pass]:
        """The outputs in training mode, and what backward needs."""

    def embed(self, inputs: Tensor, noise: LayerNoise | None = None) -> Tensor:
        """The outputs in inference mode (dropout off); keeps nothing."""

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


def network_for(module: nn.Module, snapshots: bool = False) -> Network:
    """The fastest network that runs this module exactly.

    With `snapshots`, backward answers for the parameters as they were in that forward, although an optimiser
    has changed them since (several uploads in flight); each forward then copies the parameters. Without, no
    copies are made, and the backward must come before the next change of the parameters.
    """
    # Both implementations need `Pass` from this file.
    from colonnade.models.autograd import AutogradNetwork
    from colonnade.models.dense import DenseNetwork, is_dense

    if is_dense(module):
        return DenseNetwork(module, snapshots)
    return AutogradNetwork(module, snapshots)


def output_width(module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> int:
    """How many features the module gives for one row of this shape, by a dry run on a row of zeros.

    >>> output_width(nn.Linear(3, 5), (3,))
    5
    """
    trial = deepcopy(module).eval()
    try:
        with torch.no_grad(), seeded(0):
            outputs = trial(torch.zeros(1, *shape, dtype=dtype))
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise SettingsError(
            f"The model {type(module).__name__} cannot take rows of shape {shape}: {error}. Change the "
            "model's first layers, or the shape of the rows."
        ) from error
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or outputs.shape[0] != 1:
        got = f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else f"type {type(outputs).__name__}"
        raise SettingsError(
            f"The model {type(module).__name__} answered one row of shape {shape} with an output of {got}. "
            "It must return one tensor of shape [rows, features]: end it with a Flatten or Linear layer."
        )
    return outputs.shape[1]


def rows_mix(module: nn.Module, rows: Tensor, training: bool) -> bool:
    """Whether a module lets rows of a batch change one another's outputs: by its layers, and by a dry run.

    A module that draws random numbers is known by its layers alone: its outputs differ from call to call anyway.
    """
    if training and mixes_rows(module):
        return True
    together = _dry_run(module, rows, training)
    if not torch.equal(together, _dry_run(module, rows, training, seed=1)):
        return False
    try:
        alone = torch.cat([_dry_run(module, row[None], training) for row in rows])
    except (RuntimeError, ValueError, IndexError):
        return True  # it does not take a single row, so it needs the others
    return not torch.allclose(together, alone, rtol=1e-3, atol=1e-3 * float(together.abs().max()))


def _dry_run(module: nn.Module, rows: Tensor, training: bool, seed: int = 0) -> Tensor:
    with torch.no_grad(), seeded(seed):
        outputs: Tensor = deepcopy(module).train(training)(rows.clone())
    return outputs


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
