"""Messages that a party holds for later, as a part of its state."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from colonnade.messages import KINDS, Message
from colonnade.state import State

# safetensors and torch know these unsigned types only in part; their bits travel as signed ones.
_AS_SIGNED = {"uint32": np.int32, "uint64": np.int64}


def pack(messages: Sequence[tuple[str, Message]]) -> State:
    """The state of (sender, message) pairs, in order."""
    state = State(values={"messages": []})
    for place, (sender, message) in enumerate(messages):
        kind = KINDS[type(message).__name__]
        scalars = {name: getattr(message, name) for name, _ in kind.scalars}
        state.values["messages"].append([sender, kind.name, scalars])
        for name, _ in kind.arrays:
            array = getattr(message, name)
            bits = array.view(_AS_SIGNED.get(array.dtype.name, array.dtype)).copy()
            state.tensors[f"{place}.{name}"] = torch.from_numpy(bits)
    return state


def unpack(state: State) -> list[tuple[str, Any]]:
    """What `pack` was given."""
    messages = []
    for place, (sender, name, scalars) in enumerate(state.values["messages"]):
        kind = KINDS[name]
        arrays = {part: state.tensors[f"{place}.{part}"].numpy().view(field.dtype) for part, field in kind.arrays}
        messages.append((sender, kind.message(**scalars, **arrays)))
    return messages
