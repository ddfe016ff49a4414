"""Parties small enough to follow by hand, for those who test what carries them.

A `Scripted` party does what one function says and remembers everything that happened to it. A `letter` is a message
of 32 bytes, or 32 more for every eight rows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from colonnade.messages import BatchRequest, EvaluationRequest, Message, RefreshRequest
from colonnade.party import Effect, Event, Finish, Received, Send, TimerFired
from colonnade.state import State

LETTER_BYTES = 32
"""8 of prefix and 24 of MessagePack: ["BatchRequest", [number], [["<u4", [0]]]]."""


def letter(number: int, eights: int = 0) -> BatchRequest:
    """A plain message; the number is below 128, so that it always takes one byte."""
    assert number < 128
    return BatchRequest(number, np.zeros(8 * eights, np.uint32))


def question(number: int) -> RefreshRequest:
    """A message that is answered on arrival."""
    return RefreshRequest(number, np.zeros(0, np.uint32))


def evaluation(number: int) -> EvaluationRequest:
    """A message off the clock."""
    return EvaluationRequest(number, 0, 0, 0)


def short(event: Event) -> str:
    """An event in a word or two: `letter 3`, `timer wake`, `Stop`, `Started`, `PeerLost b`."""
    match event:
        case Received(message=BatchRequest(step)):
            return f"letter {step}"
        case Received(message=RefreshRequest(number)):
            return f"question {number}"
        case Received(message=EvaluationRequest(number)):
            return f"evaluation {number}"
        case Received(message=message):
            return type(message).__name__
        case TimerFired(name=name):
            return f"timer {name}"
        case _:
            peer = getattr(event, "peer", "")
            return f"{type(event).__name__} {peer}".strip()


class Scripted:
    """A party whose script is a function of itself and the event; `seen` holds (when, what) in order."""

    def __init__(self, script: Callable[["Scripted", str], Sequence[Effect]]) -> None:
        self.script = script
        self.seen: list[tuple[float, str]] = []

    def handle(self, event: Event) -> Sequence[Effect]:
        what = short(event)
        effects = self.script(self, what)
        self.seen.append((event.now, what))
        return effects

    def times(self, start: str) -> list[float]:
        """When events whose short name begins like that were handled."""
        return [now for now, what in self.seen if what.startswith(start)]

    def names(self, start: str = "") -> list[str]:
        return [what for _, what in self.seen if what.startswith(start)]

    def state(self) -> State:
        return State({"count": torch.tensor(len(self.seen))}, {"seen": [list(pair) for pair in self.seen]})

    def restore(self, state: State) -> None:
        self.seen = [(now, what) for now, what in state.values["seen"]]

    def model(self) -> dict[str, torch.nn.Module]:
        return {}

    def counts(self) -> dict[str, Any]:
        return {"events": len(self.seen)}


def says(replies: Mapping[str, Sequence[Effect]]) -> Scripted:
    """A party that answers each short name with these effects, and all else with nothing."""
    return Scripted(lambda _, what: replies.get(what, []))


def finishes_after(count: int, start: str = "letter") -> Scripted:
    """A party that finishes once it has handled so many events whose short name begins like that."""

    def script(party: Scripted, what: str) -> Sequence[Effect]:
        handled = len(party.names(start)) + what.startswith(start)
        return [Finish()] if handled == count else []

    return Scripted(script)


def sends(to: str, *messages: Message, finish: bool = True) -> Scripted:
    """A party that sends all this when it is started, and is done."""
    end: list[Effect] = [Finish()] if finish else []
    return says({"Started": [*(Send(to, message) for message in messages), *end]})
