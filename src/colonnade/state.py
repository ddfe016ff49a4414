"""What a party must remember: tensors by name, and values that JSON can hold."""

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class State:
    """Everything a party must remember: tensors by name, and values that JSON can hold."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, part: "State") -> None:
        """Put a part's state under a name of its own."""
        self.tensors.update({f"{name}.{key}": tensor for key, tensor in part.tensors.items()})
        self.values[name] = part.values

    def part(self, name: str) -> "State":
        """What `add` put under that name."""
        start = f"{name}."
        tensors = {key[len(start) :]: value for key, value in self.tensors.items() if key.startswith(start)}
        return State(tensors, self.values.get(name, {}))
