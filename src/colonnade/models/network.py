"""Which network runs a module, and what a module is found to do by a dry run: how wide its outputs are, and whether
rows change one another. What a network promises is in contract.py.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn

from colonnade.errors import SettingsError
from colonnade.models.autograd import AutogradNetwork
from colonnade.models.contract import Network
from colonnade.models.dense import DenseNetwork, is_dense
from colonnade.models.device import CPU
from colonnade.models.randomness import initialise, seeded
from colonnade.models.row_gradients import mixes_rows

__all__ = ["initialise", "network_for", "output_width", "rows_mix"]


def network_for(
    module: nn.Module, snapshots: bool = False, device: torch.device = CPU, compiled: bool = False
) -> Network:
    """The fastest network that runs this module exactly, on that device.

    With `snapshots`, backward answers for the parameters as they were in that forward, although an optimiser
    has changed them since (several uploads in flight); each forward then copies the parameters. Without, no
    copies are made, and the backward must come before the next change of the parameters.

    `compiled`: what torch runs is compiled by it; the closed form of dense layers is faster than that.
    """
    if is_dense(module):
        return DenseNetwork(module, snapshots, device)
    return AutogradNetwork(module, snapshots, device, compiled)


def output_width(module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> int:
    """How many features the module gives for one row of this shape, by a dry run on a row of zeros.

    >>> output_width(nn.Linear(3, 5), (3,))
    5
    """
    trial = module if is_dense(module) else deepcopy(module).eval()  # dense layers keep nothing of a run
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
