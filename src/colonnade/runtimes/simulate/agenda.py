"""What is due when, in virtual time: a heap of named entries.

Ties are broken by the order in which entries were made, so that nothing depends on the machine. Everything that can be
due, or wait in a party's inbox, is a named tuple here; `snapshot.py` says how a checkpoint writes each.
"""

from heapq import heapify, heappush
from typing import NamedTuple

from colonnade.messages import Message

named = tuple.__new__
"""`named(Letter, (…))` is `Letter(…)` at a third of its cost: for what is made anew for every message."""

# --- what waits in a party's inbox ---


class Letter(NamedTuple):
    """A frame on its way, or at its receiver's and not handled yet."""

    sender: str
    frame: bytearray
    kind: type[Message]
    number: int | None  # on its link, where frames can be lost; else None


class Ring(NamedTuple):
    """A timer ran out."""

    name: str


class Lost(NamedTuple):
    """A peer is away."""

    peer: str


class Returned(NamedTuple):
    """A peer is back."""

    peer: str


class Begin(NamedTuple):
    """The run begins."""


Item = Letter | Ring | Lost | Returned | Begin

# --- what else is due at a moment ---


class WorkEnd(NamedTuple):
    """A party has computed long enough; void if a crash has undone that work."""

    number: int


class TimerDue(NamedTuple):
    """A timer runs out, unless it was set again since and has another token."""

    name: str
    token: int


class Crash(NamedTuple):
    """A party goes away."""


class Return(NamedTuple):
    """It comes back."""


class Retry(NamedTuple):
    """Time to send a frame again that was not acknowledged."""

    sender: str
    receiver: str
    number: int


class Acknowledged(NamedTuple):
    """The sender of a frame hears that it was handled."""

    sender: str
    receiver: str
    number: int


Happening = Letter | Lost | Returned | WorkEnd | TimerDue | Crash | Return | Retry | Acknowledged


class Due(NamedTuple):
    """One entry; the number is unique, so that a heap never compares further."""

    when: float
    number: int
    place: int  # the index of the party that it concerns
    what: Happening


class Agenda:
    """The clock, what is due, and what the loop has to look at before it goes on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.number = 0  # of the last entry
        self.entries: list[Due] = []  # a heap
        self.checkpoint_due = False  # a party found this moment good
        self.presence_changed = False  # a party has finished, gone or returned

    def enter(self, when: float, place: int, what: Happening) -> None:
        self.number += 1
        heappush(self.entries, named(Due, (when, self.number, place, what)))

    def enter_timer(self, when: float, place: int, name: str) -> int:
        """A timer's token, by which it is known when it runs out: its entry's number."""
        token = self.number + 1
        self.enter(when, place, TimerDue(name, token))
        return token

    def restore(self, now: float, number: int, entries: list[Due]) -> None:
        self.now, self.number, self.entries = now, number, entries
        heapify(self.entries)
