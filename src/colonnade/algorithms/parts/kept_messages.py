"""Messages that a party holds for later, as a part of its memory."""

from collections.abc import Callable, Iterable
from typing import Any

from colonnade.messages import KINDS, Message
from colonnade.state import Memory, State, packed


def messages(attribute: str, key: str = "", restored: Callable[[list[tuple[str, Any]]], Any] = list) -> Memory:
    """(sender, message) pairs, or with `restored=dict` a dictionary of messages by sender."""

    def pairs(held: Any) -> State:
        return pack(held.items() if isinstance(held, dict) else held)

    return packed(attribute, pairs, lambda state: restored(unpack(state)), key)


def pack(messages: Iterable[tuple[str, Message]]) -> State:
    """The state of (sender, message) pairs, in order."""
    state = State(values={"messages": []})
    for place, (sender, message) in enumerate(messages):
        kind = KINDS[type(message).__name__]
        scalars = {name: getattr(message, name) for name, _ in kind.scalars}
        state.values["messages"].append([sender, kind.name, scalars])
        for name, _ in kind.arrays:
            state.put(f"{place}.{name}", getattr(message, name))
    return state


def unpack(state: State) -> list[tuple[str, Any]]:
    """What `pack` was given."""
    messages = []
    for place, (sender, name, scalars) in enumerate(state.values["messages"]):
        kind = KINDS[name]
        arrays = {part: state.take(f"{place}.{part}", field.dtype) for part, field in kind.arrays}
        messages.append((sender, kind.message(**scalars, **arrays)))
    return messages
