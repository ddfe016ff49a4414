"""A model as a function of one flat vector of parameters: all that zeroth-order parties need.

`FlatModel` makes a bottom model of any Python function of (parameters, inputs); it need not be differentiable.
`flatten` lets a network's parameters share one vector, so that moving the vector moves the network.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from colonnade.errors import SettingsError
from colonnade.models.contract import Network


class FlatModel(nn.Module):
    """A bottom model without gradients: a function of a flat parameter vector and a batch of rows.

    >>> stump = FlatModel(torch.zeros(2), lambda w, x: (x[:, :1] > w[0]).float() * w[1])
    >>> stump(torch.tensor([[1.0], [-1.0]])).detach()
    tensor([[0.],
            [0.]])
    """

    def __init__(self, parameters: Tensor, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.vector = nn.Parameter(parameters.detach().clone().float().reshape(-1))
        self.function = function

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(self.vector, inputs)


def flatten(networks: list[Network], owner: str) -> Tensor:
    """One vector that holds all parameters of these networks from now on: views of each other, not copies."""
    parameters = [parameter for network in networks for parameter in network.parameters]
    if not parameters:
        raise SettingsError(
            f"The model of {owner} has no parameters, so an algorithm of zeroth order has nothing to move in it. "
            "Give it at least one layer to train, such as a linear one."
        )
    total = sum(parameter.numel() for parameter in parameters)
    vector = torch.empty(total, dtype=parameters[0].dtype, device=parameters[0].device)
    place = 0
    for parameter in parameters:  # one by one: of a large model there is no second copy meanwhile
        piece = vector[place : place + parameter.numel()]
        piece.copy_(parameter.detach().reshape(-1))
        parameter.data = piece.view(parameter.shape)
        place += piece.numel()
    return vector
