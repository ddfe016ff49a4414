"""Where the randomness of models comes from: a given seed or generator, never the global generator.

Torch's layers (initial weights, dropout) can only read the global generator, so it is seeded inside a fork,
and its state outside is untouched. A fork costs some ten microseconds; modules known to be deterministic are
spared it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from colonnade.models.device import CPU
from colonnade.models.layers import Bias, ChannelModel, LastHidden, SumEmbeddings

# Exact types: a subclass may override `forward`. Whatever is not listed counts as random: only slower.
DETERMINISTIC: frozenset[type[nn.Module]] = frozenset(
    {
        *(SumEmbeddings, Bias, LastHidden, ChannelModel, nn.Sequential, nn.ModuleList, nn.Identity, nn.Flatten),
        *(nn.Unflatten, nn.Linear, nn.Bilinear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d),
        *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
        *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm),
        *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
        *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish),
        *(nn.Tanh, nn.Sigmoid, nn.LogSigmoid, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Softplus),
        *(nn.Softsign, nn.Softmax, nn.LogSoftmax, nn.Tanhshrink, nn.Softshrink, nn.Hardshrink),
        *(nn.Threshold, nn.GLU, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
        *(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
        *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
        *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
        *(nn.ZeroPad1d, nn.ZeroPad2d, nn.ReflectionPad1d, nn.ReflectionPad2d),
        *(nn.ConstantPad1d, nn.ConstantPad2d),
    }
)
RECURRENT: frozenset[type[nn.Module]] = frozenset({nn.LSTM, nn.GRU, nn.RNN})  # deterministic without dropout


def is_random(module: nn.Module) -> bool:
    """Whether a forward pass may draw random numbers. Unknown types and hooked modules may."""

    def known(part: nn.Module) -> bool:
        if has_hooks(part):
            return False
        return type(part) in DETERMINISTIC or (type(part) in RECURRENT and getattr(part, "dropout", 1) == 0)

    return not all(known(part) for part in module.modules())


def has_hooks(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


@contextmanager
def seeded(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """Runs its block with the global CPU generator at `seed`, and restores its state afterwards; with an accelerator,
    its generators likewise."""
    if device.type in ("cuda", "mps"):
        with torch.random.fork_rng(device_type=device.type):
            torch.manual_seed(seed)
            yield
        return
    with torch.random.fork_rng(devices=[]):
        # The default generator alone: `torch.manual_seed` would also reseed accelerators, which are not
        # forked.
        torch.default_generator.manual_seed(seed)
        yield


def draw_seed(generator: torch.Generator) -> int:
    return int(torch.randint(0, 2**63 - 1, (), generator=generator))


def initialise(module: nn.Module, seed: int) -> None:
    """Re-initialises every submodule that has `reset_parameters`, in order, so that the weights follow from
    the seed.

    Submodules without that method are left alone, and so is everything inside a module whose `keeps_weights` is true:
    it was trained before.

    >>> one, two = nn.Linear(3, 2), nn.Linear(3, 2)
    >>> initialise(one, seed=7), initialise(two, seed=7)
    (None, None)
    >>> bool((one.weight == two.weight).all())
    True
    """
    kept = {id(part) for one in module.modules() if getattr(one, "keeps_weights", False) for part in one.modules()}
    with seeded(seed), torch.no_grad():
        for part in module.modules():
            if id(part) in kept:
                continue
            reset = getattr(part, "reset_parameters", None)
            if callable(reset):
                reset()
