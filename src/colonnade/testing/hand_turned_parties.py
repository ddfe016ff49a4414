"""Parties in one process, turned by hand: events in, effects out, messages on a fake link until they are delivered.

Nothing happens that a test does not ask for, in the order it asks for. Every message goes through the codec, as on a
real link, so one that is not declared, or does not fit its declaration, is refused here as well.
"""

from collections import deque
from collections.abc import Mapping, Sequence

from colonnade.messages import Message
from colonnade.party import (
    Effect,
    Event,
    Finish,
    Party,
    PeerLost,
    PeerReturned,
    Received,
    Send,
    SetTimer,
    Started,
    TimerFired,
)
from colonnade.testing.fake_clock import FakeClock
from colonnade.wire.codec import decode, encode


class HandTurnedParties:
    """Two parties or more by name, the links between them, and a clock.

    `effects` holds what each party has returned so far, `timers` the seconds of the timers it has set, `finished` who
    has finished. A ledger is not kept: a `Spend` is among the effects, and refuses nothing.
    """

    def __init__(self, parties: Mapping[str, Party]) -> None:
        self.parties = dict(parties)
        self.clock = FakeClock()
        self.effects: dict[str, list[Effect]] = {name: [] for name in parties}
        self.timers: dict[str, dict[str, float]] = {name: {} for name in parties}
        self.finished: set[str] = set()
        self._links: dict[tuple[str, str], deque[bytearray]] = {}

    # --- events in ---

    def start(self, *names: str) -> list[Effect]:
        """Start these parties, or all; what they return."""
        return [effect for name in names or self.parties for effect in self.give(name, Started(self.clock()))]

    def deliver(self, sender: str, receiver: str) -> Sequence[Effect]:
        """Deliver the oldest message on that link; what its receiver returns."""
        link = self._links.get((sender, receiver))
        if not link:
            raise AssertionError(f"Nothing of {sender} is on its way to {receiver}.")
        return self.give(receiver, Received(self.clock(), sender, decode(link.popleft())))

    def fire(self, name: str, timer: str) -> Sequence[Effect]:
        """A timer that this party has set runs out."""
        if self.timers[name].pop(timer, None) is None:
            raise AssertionError(f"{name} has set no timer {timer!r}; it has {sorted(self.timers[name])}.")
        return self.give(name, TimerFired(self.clock(), timer))

    def lose(self, name: str, peer: str) -> Sequence[Effect]:
        """This party is told that a peer cannot be reached."""
        return self.give(name, PeerLost(self.clock(), peer))

    def bring_back(self, name: str, peer: str) -> Sequence[Effect]:
        """This party is told that a lost peer is back."""
        return self.give(name, PeerReturned(self.clock(), peer))

    def give(self, name: str, event: Event) -> Sequence[Effect]:
        """Any event to one party; messages it returns go onto their links."""
        if name in self.finished:
            raise AssertionError(f"{name} has finished and is given no further event.")
        effects = self.parties[name].handle(event)
        self.effects[name] += effects
        for effect in effects:
            match effect:
                case Send(to, message):
                    if to not in self.parties:
                        raise AssertionError(f"{name} sent a {type(message).__name__} to {to}, whom nobody knows.")
                    self._links.setdefault((name, to), deque()).append(encode(message))
                case SetTimer(timer, seconds):
                    self.timers[name][timer] = seconds
                case Finish():
                    self.finished.add(name)
                case _:
                    pass
        return effects

    # --- what is on its way ---

    def waiting(self, sender: str, receiver: str) -> list[Message]:
        """The messages on that link, oldest first."""
        return [decode(bytearray(frame)) for frame in self._links.get((sender, receiver), ())]

    def settle(self, most: int = 100_000) -> int:
        """Deliver everything, link by link in turn, until nothing is on its way; how many messages that were.

        Timers of no seconds run out as well; others wait for `fire`. What is on its way to a party that has finished is
        dropped, as a runtime does.
        """
        delivered = 0
        for _ in range(most):
            due = [(name, timer) for name, own in self.timers.items() for timer, seconds in own.items() if not seconds]
            links = [pair for pair, link in self._links.items() if link]
            if not due and not links:
                return delivered
            for name, timer in due:
                if name in self.finished:
                    del self.timers[name][timer]
                else:
                    self.fire(name, timer)
            for sender, receiver in links:
                if receiver in self.finished:
                    self._links[sender, receiver].clear()
                    continue
                self.deliver(sender, receiver)
                delivered += 1
        raise AssertionError(f"The parties still talk after {most} turns of all links.")
