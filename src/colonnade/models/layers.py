"""The few layers of our own that the named models need; each is a plain `torch.nn.Module`.

They draw no randomness in their forward pass, and `reset_parameters` restores a fresh layer.
"""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from colonnade.errors import SettingsError


class SumEmbeddings(nn.Module):
    """The sum of the parties' embeddings, which arrive side by side in one tensor.

    >>> SumEmbeddings([2, 2])(torch.tensor([[1.0, 2.0, 10.0, 20.0]]))
    tensor([[11., 22.]])
    """

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        if len(set(widths)) != 1:
            raise SettingsError(
                f"A top that sums embeddings was given the widths {list(widths)}. The embeddings of all "
                "parties must have one and the same width: set it for each bottom, or choose a top that "
                "concatenates."
            )
        self.parties = len(widths)
        self.width = widths[0]

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.reshape(inputs.shape[0], self.parties, self.width).sum(1)

    def extra_repr(self) -> str:
        return f"parties={self.parties}, width={self.width}"


class Bias(nn.Module):
    """Adds one learnt number to each feature; starts at zero."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.bias


class ChannelModel(nn.Module):
    """One model for every view of an object, and of what it gives the largest value over the views.

    Views are the channels of [rows, views, height, width] (H. Su et al., "Multi-view Convolutional Neural Networks for
    3D Shape Recognition", 2015).

    >>> ChannelModel(nn.Flatten())(torch.tensor([[[[1.0, 5.0]], [[3.0, 2.0]]]]))
    tensor([[3., 5.]])
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        each: Tensor = self.model(inputs.flatten(0, 1).unsqueeze(1))
        return each.reshape(*inputs.shape[:2], -1).amax(1)


class LastHidden(nn.Module):
    """The hidden state of an LSTM after the last time step of inputs shaped [rows, time, features]."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(inputs)
        return torch.squeeze(hidden, 0)


class ExactLinear(nn.Linear):
    """A linear layer in float64, for rows of any precision: the weights of a linear federation as they were trained."""

    def __init__(self, inputs: int, outputs: int, bias: bool) -> None:
        super().__init__(inputs, outputs, bias, dtype=torch.float64)

    def reset_parameters(self) -> None:
        """Nothing is drawn: weights begin at 0, and those of a training are put here."""
        nn.init.zeros_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.double())


def linear_bottom(shape: tuple[int, ...], outputs: int, has_constant: bool) -> nn.Module:
    """A party's block of a linear model, for rows of this shape.

    >>> linear_bottom((2,), 1, True)
    ExactLinear(in_features=2, out_features=1, bias=True)
    """
    linear = ExactLinear(prod(shape), outputs, has_constant)
    return nn.Sequential(nn.Flatten(), linear) if len(shape) > 1 else linear
