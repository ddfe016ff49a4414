"""A party that rounds what it sends: the same for every algorithm and schedule, which know nothing of it.

What an algorithm computes goes out in the form that the federation has agreed on; the receiver widens it and computes
with what came. Noise is in the numbers before they are rounded, and what is drawn for rounding depends on no data: so
what leaves is a function of what was accounted for. Evaluations go out as they are: what is scored is what the model
says when it is used, and looking more often changes no training. So do sums that hold more than the products of rows:
their numbers may be of very different sizes, and what follows from them is exact.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import torch

from colonnade.algorithms.parts.randomness import generator_for
from colonnade.array_fields import PRECISIONS, Dither, rounded
from colonnade.messages import KINDS, Message
from colonnade.party import Effect, Event, Party, Send
from colonnade.state import Remembering, generator, included

AS_IT_IS = PRECISIONS[0]
SHORT_ROWS = 1 << 16
"""Positions of fewer rows than this take two bytes each."""


def in_fewer_bytes(message: Message, precisions: Mapping[str, str], rows: int, dither: Dither) -> Message:
    """The message as it is sent in a federation of so many training rows."""
    kind = KINDS[type(message).__name__]
    if kind.message.off_clock:
        return message
    changed: dict[str, Any] = {}
    for name, field in kind.arrays:
        array = getattr(message, name)
        if field.dtype == "<u4" and rows <= SHORT_ROWS:
            changed[name] = array.astype(np.uint16)
        form = precisions.get(field.travels, AS_IT_IS)
        if form != AS_IT_IS and (field.dtype != "<f8" or len(array) <= rows):
            near = array - getattr(message, field.beside) if field.beside else array
            changed[name] = rounded(near, form, dither)
    return msgspec.structs.replace(message, **changed) if changed else message


class RoundingParty(Remembering):
    """Any party, whose messages are rounded on their way out."""

    MEMORY = (included("_party"), generator("_dither", "rounding"))

    def __init__(self, party: Party, precisions: Mapping[str, str], rows: int, secret: int, name: str) -> None:
        self._party = party
        self._precisions = precisions
        self._rows = rows
        self._dither = generator_for(secret, name, "rounding")

    def handle(self, event: Event) -> Sequence[Effect]:
        effects: list[Effect] = []
        last: Message | None = None
        for effect in self._party.handle(event):
            if type(effect) is Send:
                if effect.message is not last:  # one message to several peers is the same for all
                    last = effect.message
                    sent = in_fewer_bytes(last, self._precisions, self._rows, self._drawn)
                effect = Send(effect.to, sent)
            effects.append(effect)
        return effects

    def _drawn(self, count: int) -> Any:
        return torch.rand(count, generator=self._dither).numpy()

    def model(self) -> dict[str, torch.nn.Module]:
        return self._party.model()

    def counts(self) -> dict[str, Any]:
        return self._party.counts()

    def stand_ins(self) -> dict[str, torch.Tensor]:
        """What stands in for a feature party that is away when rows are served, where the party has that."""
        asked = getattr(self._party, "stand_ins", dict)
        found: dict[str, torch.Tensor] = asked()
        return found
