"""What a party computes with its saved model, function by function: rows to embedding, embeddings to outputs.

A bottom model takes the prepared columns of its party; the clip of what it sends is part of it, noise is not. The top
model takes the embeddings of every party that holds columns, each under that party's name.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from colonnade.federation.plan import embedding_order
from colonnade.models.clipped import with_clip
from colonnade.prediction.saved_model import SavedModel


@dataclass(frozen=True)
class PartyFunction:
    """One module in inference mode, with the names of its inputs and the shape of a row of each."""

    name: str  # "bottom", "top", "bottom of NAME"
    module: nn.Module
    inputs: Mapping[str, tuple[int, ...]]
    output: str

    def example(self, rows: int, seed: int = 0) -> tuple[Tensor, ...]:
        """Random rows of the right shapes."""
        generator = torch.Generator().manual_seed(seed)
        return tuple(torch.randn(rows, *shape, generator=generator) for shape in self.inputs.values())


class JoinedTop(nn.Module):
    """The top model of several tensors, each party's embeddings, instead of one that holds them side by side."""

    def __init__(self, top: nn.Module) -> None:
        super().__init__()
        self.top = top

    def forward(self, *embeddings: Tensor) -> Tensor:
        outputs: Tensor = self.top(torch.cat(embeddings, 1))
        return outputs


class _Float32(nn.Module):
    """What a linear federation computes in float64, in the precision of all other embeddings."""

    def forward(self, products: Tensor) -> Tensor:
        return products.float()


def functions_of(saved: SavedModel) -> list[PartyFunction]:
    """All that this party computes, its bottom model first."""
    described = saved.description
    facts = described.facts
    found = []
    for name, module in saved.modules.items():
        if name == "top":
            continue
        owner = name.removeprefix("bottom of ") if name != "bottom" else described.party
        sends = name == "bottom" and owner != facts.label_party
        module = with_clip(deepcopy(module).eval(), described.clip if sends else 0.0)
        if any(weight.dtype == torch.float64 for weight in module.parameters()):
            module = nn.Sequential(module, _Float32())
        found.append(PartyFunction(name, module.eval(), {"rows": facts.shapes[owner]}, "embedding"))
    if "top" in saved.modules:
        order = embedding_order(facts)
        widths = facts.widths or dict.fromkeys(order, facts.outputs)  # a linear federation adds products up
        top = JoinedTop(deepcopy(saved.modules["top"]).eval()).eval()
        found.append(PartyFunction("top", top, {name: (widths[name],) for name in order}, "outputs"))
    return found
