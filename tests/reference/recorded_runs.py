"""Runs of tiny federations that a test can read back message by message.

A trace holds what one party saw, in its order; `Item` is one record of it with the frame decoded.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from colonnade import Simulate
from colonnade.messages import Message
from colonnade.trace import read_trace
from colonnade.wire.codec import decode

NO_TIME = Simulate(compute_seconds=0.0, label_compute_seconds=0.0, latency_seconds=0.0)


class Item(NamedTuple):
    """One record of a trace: `peer` and `message` for what was sent or received, `fields` for the rest."""

    type: str
    peer: str
    message: Message | None
    fields: tuple[Any, ...]


def read_items(path: Path) -> list[Item]:
    items = []
    for record in read_trace(path):
        if record.type == "Received":
            items.append(Item(record.type, record.fields[1], decode(bytearray(record.fields[2])), record.fields))
        elif record.type == "Send":
            items.append(Item(record.type, record.fields[0], decode(bytearray(record.fields[1])), record.fields))
        else:
            items.append(Item(record.type, "", None, record.fields))
    return items


def read_run(out: Path) -> dict[str, list[Item]]:
    """The traces of a run, by party."""
    return {path.stem: read_items(path) for path in sorted((out / "trace").glob("*.trace"))}


Kinds = type[Message] | tuple[type[Message], ...]


def sends(items: list[Item], kind: Kinds, to: str | None = None) -> list[Item]:
    return _of("Send", items, kind, to)


def receipts(items: list[Item], kind: Kinds, sender: str | None = None) -> list[Item]:
    return _of("Received", items, kind, sender)


def _of(what: str, items: list[Item], kind: Kinds, peer: str | None) -> list[Item]:
    fits: Callable[[Item], bool] = lambda item: peer is None or item.peer == peer  # noqa: E731
    return [item for item in items if item.type == what and isinstance(item.message, kind) and fits(item)]
