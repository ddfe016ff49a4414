"""Modules that PyTorch compiles: their layers become a few loops in machine code, made at the first batch.

The weights are those of the module, which is as it was. Sums are made in another order than by layers one by one, so
that last digits differ; the same compiled module gives the same bits again.
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from colonnade.errors import SettingsError


def compiled_module(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """What calls the module, compiled; SettingsError where that cannot be done."""
    inside = _compile(module)

    def call(inputs: Tensor) -> Tensor:
        from torch._dynamo.exc import TorchDynamoException

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the compiler about itself
                outputs: Tensor = inside(inputs)
        except TorchDynamoException as error:  # a module's own mistakes come as they are
            what = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise SettingsError(
                f"PyTorch cannot compile the model {type(module).__name__} here ({what[:200]}). It needs a C++ "
                "compiler, such as g++; or leave training.compile out."
            ) from error
        return outputs

    return call


def _compile(module: nn.Module) -> Callable[[Tensor], Tensor]:
    import torch._inductor.config as config

    config.compile_threads = 1  # no processes beside this party's
    found: Callable[[Tensor], Tensor] = torch.compile(module)
    return found
