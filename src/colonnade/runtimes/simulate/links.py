"""The links of a simulation: how long a frame takes, whether it is lost, and that it is handled once all the same.

Where frames can be lost, each is numbered, repeated until acknowledged, acknowledged only once handled, and handled
once. Frames to a party that is away are kept by their senders. Evaluation is off the clock: it takes no virtual time.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from colonnade.errors import RunError
from colonnade.messages import Message
from colonnade.runtimes.delays import Chance, Draw, parse_delay
from colonnade.runtimes.simulate.agenda import Acknowledged, Agenda, Letter, Retry, named
from colonnade.runtimes.simulate.places import Place
from colonnade.runtimes.simulate.settings import Simulate, SimulatedLink


class Kept(NamedTuple):
    """A frame that its sender keeps until it is acknowledged."""

    frame: bytearray
    kind: type[Message]


class Link:
    """One direction between two parties."""

    __slots__ = (
        "bandwidth",
        "chance",
        "free_at",
        "handled",
        "handled_below",
        "last_arrival",
        "latency",
        "next_number",
        "unacknowledged",
    )

    def __init__(self, latency: Draw, bandwidth: float, chance: Chance) -> None:
        self.latency = latency
        self.bandwidth = bandwidth
        self.chance = chance
        self.free_at = 0.0
        self.last_arrival = 0.0
        self.next_number = 0
        self.unacknowledged: dict[int, Kept] = {}
        # Numbers the receiver has handled: all below `handled_below`, and those in `handled`.
        self.handled_below = 0
        self.handled: set[int] = set()

    def arrival(self, now: float, size_bytes: int, reorder: bool) -> float:
        """When a frame sent now is there: it waits for the link, is transferred, and travels."""
        departed = max(now, self.free_at)
        if self.bandwidth:
            departed += size_bytes / self.bandwidth
            self.free_at = departed
        arrival = departed + self.latency(self.chance)
        if not reorder:
            arrival = self.last_arrival = max(arrival, self.last_arrival)
        return arrival

    def was_handled(self, number: int) -> bool:
        return number < self.handled_below or number in self.handled

    def mark_handled(self, number: int) -> None:
        self.handled.add(number)
        while self.handled_below in self.handled:
            self.handled.remove(self.handled_below)
            self.handled_below += 1


class Links:
    """Every direction in use, made when its first frame is sent."""

    def __init__(self, settings: Simulate, seed: int, agenda: Agenda, places: Mapping[str, Place]) -> None:
        self._settings = settings
        self._seed = seed
        self._agenda = agenda
        self._places = places
        self._numbered = settings.loss > 0 or any(party.crashes for party in settings.parties.values())
        self.between: dict[tuple[str, str], Link] = {}
        self.off_clock: deque[tuple[Place, Letter]] = deque()  # to be handled before virtual time goes on
        self.retransmitted_bytes = 0

    def transmit(self, sender: Place, to: str, frame: bytearray, message: type[Message]) -> None:
        receiver = self._places.get(to)
        if receiver is None:
            raise RunError(f"{sender.name} sent {message.__name__} to {to!r}, who is not in the federation.")
        if not self._numbered:
            letter = named(Letter, (sender.name, frame, message, None))
            if message.off_clock:
                self.off_clock.append((receiver, letter))
            else:
                arrival = self.link(sender.name, to).arrival(self._agenda.now, len(frame), self._settings.reorder)
                self._agenda.enter(arrival, receiver.index, letter)
            return
        link = self.link(sender.name, to)
        number = link.next_number
        link.next_number += 1
        link.unacknowledged[number] = Kept(frame, message)
        self._attempt(sender.name, receiver, link, number)

    def link(self, sender: str, to: str) -> Link:
        link = self.between.get((sender, to))
        if link is None:
            own = SimulatedLink()
            for name, settings in self._settings.links.items():
                if tuple(part.strip() for part in name.split("->")) == (sender, to):
                    own = settings
            latency = self._settings.latency_seconds if own.latency_seconds is None else own.latency_seconds
            bandwidth = own.bandwidth_bytes_per_second
            ends = [self._seed, 2, self._places[sender].index, self._places[to].index]
            link = self.between[sender, to] = Link(
                parse_delay(latency, f"latency_seconds of {sender} -> {to}").draw(),
                self._settings.bandwidth_bytes_per_second if bandwidth is None else bandwidth,
                Chance(ends),
            )
        return link

    def _attempt(self, sender: str, receiver: Place, link: Link, number: int) -> None:
        """Send a numbered frame, which may be lost, and look again later whether it was acknowledged."""
        if receiver.away:
            return  # its sender is told when it returns, and sends then
        kept = link.unacknowledged[number]
        letter = Letter(sender, kept.frame, kept.kind, number)
        if kept.kind.off_clock:
            self.off_clock.append((receiver, letter))
            return
        arrival = link.arrival(self._agenda.now, len(kept.frame), self._settings.reorder)
        if link.chance.generator.random() >= self._settings.loss:
            self._agenda.enter(arrival, receiver.index, letter)
        again = arrival + self._settings.retransmit_seconds
        self._agenda.enter(again, receiver.index, Retry(sender, receiver.name, number))

    def retry(self, due: Retry) -> None:
        link = self.between[due.sender, due.receiver]
        receiver = self._places[due.receiver]
        if due.number not in link.unacknowledged or self._places[due.sender].away:
            return
        if receiver.finished:
            del link.unacknowledged[due.number]
            return
        if not receiver.away:
            self.retransmitted_bytes += len(link.unacknowledged[due.number].frame)
        self._attempt(due.sender, receiver, link, due.number)

    def resend(self, one: Place, other: Place) -> None:
        """One of the two has returned: whoever is there sends again what the other has not acknowledged."""
        for sender, receiver in ((one, other), (other, one)):
            link = self.between.get((sender.name, receiver.name))
            if link is not None and not sender.away:
                for number in sorted(link.unacknowledged):
                    self._attempt(sender.name, receiver, link, number)

    # --- at the receiver's ---

    def is_repetition(self, receiver: Place, letter: Letter, number: int) -> bool:
        """Whether a letter was handled before, or waits already. One that was handled is acknowledged again."""
        if self.between[letter.sender, receiver.name].was_handled(number):
            self.acknowledge(letter.sender, receiver.name, number)  # its acknowledgement was lost
            return True
        return any(
            isinstance(other, Letter) and other.sender == letter.sender and other.number == number
            for other in receiver.held()
        )

    def forget(self) -> None:
        """What is under way is gone, and will not be sent again. Numbers go on."""
        self.off_clock.clear()
        for link in self.between.values():
            link.unacknowledged.clear()
            link.handled_below, link.handled = link.next_number, set()

    def acknowledge(self, sender: str, receiver: str, number: int) -> None:
        """A frame is handled; its sender hears of it, unless that is lost."""
        link = self.between[sender, receiver]
        link.mark_handled(number)
        if link.chance.generator.random() >= self._settings.loss:
            back = self._agenda.now + link.latency(link.chance)
            self._agenda.enter(back, self._places[sender].index, Acknowledged(sender, receiver, number))

    def acknowledged(self, due: Acknowledged) -> None:
        self.between[due.sender, due.receiver].unacknowledged.pop(due.number, None)

    def settle_off_clock(self) -> None:
        """Deliver everything of evaluation, and its answers, before virtual time goes on."""
        while self.off_clock:
            receiver, letter = self.off_clock.popleft()
            if receiver.away or receiver.finished:
                continue
            if letter.number is not None:
                link = self.between[letter.sender, receiver.name]
                if link.was_handled(letter.number):
                    continue
                link.mark_handled(letter.number)
                link.unacknowledged.pop(letter.number, None)
            receiver.receive(letter.sender, letter.frame)
