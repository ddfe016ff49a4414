"""A bottom model as the function that it sends: with the clip of what leaves its party inside, as a plain torch module.

Where the clip stands is decided in dense.py and autograd.py; tests hold this against both.
"""

from torch import Tensor, nn

from colonnade.models.dense import is_dense, layers_of
from colonnade.models.layers import Bias
from colonnade.privacy.noise import clip_factors


class ClippedRows(nn.Module):
    """Each row shortened to a norm of at most `bound`.

    >>> ClippedRows(1.0)(Tensor([[3.0, 4.0], [0.3, 0.4]]))
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """

    def __init__(self, bound: float) -> None:
        super().__init__()
        self.bound = bound

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * clip_factors(inputs, self.bound)

    def extra_repr(self) -> str:
        return f"bound={self.bound}"


def with_clip(module: nn.Module, bound: float) -> nn.Module:
    """The module with its last pre-activation clipped, or its output if it is no plain stack; 0: no bound."""
    if bound == 0:
        return module
    if not is_dense(module):
        return nn.Sequential(module, ClippedRows(bound))
    layers = [layer for _, layer in layers_of(module)]
    last = max(place for place, layer in enumerate(layers) if isinstance(layer, nn.Linear | Bias))
    return nn.Sequential(*layers[: last + 1], ClippedRows(bound), *layers[last + 1 :])
