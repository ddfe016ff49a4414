"""One party in the simulation: what it does now, what waits for it, how long its work takes, and its driver's port."""

from collections import deque
from collections.abc import Callable, Sequence

from colonnade.errors import ProtocolError
from colonnade.messages import Message
from colonnade.party import Received
from colonnade.runtimes.delays import MEASURED, Chance, Draw, parse_delay
from colonnade.runtimes.driver import Driver
from colonnade.runtimes.simulate.agenda import Agenda, Begin, Item, Letter, Lost, Returned, Ring
from colonnade.runtimes.simulate.settings import Simulate, SimulatedParty
from colonnade.wire.codec import decode

Transmit = Callable[["Place", str, bytearray, type[Message]], None]


class LastFrame:
    """Decodes frames; one to several parties, who share its bytes and only read them, once for all of them."""

    def __init__(self) -> None:
        self._frame: bytearray | None = None
        self._message: Message | None = None

    def decode(self, frame: bytearray) -> Message:
        if self._message is None or frame is not self._frame:
            self._message, self._frame = decode(frame), frame
        return self._message


class Place:
    """A party's place in virtual time."""

    driver: Driver  # is given the place as its port, so it comes second

    def __init__(
        self,
        index: int,
        name: str,
        agenda: Agenda,
        frames: LastFrame,
        transmit: Transmit,
        settings: Simulate,
        seed: int,
        leads: bool,
    ) -> None:
        self.index = index
        self.name = name
        self._agenda = agenda
        self._frames = frames
        self._transmit = transmit
        self.inbox: deque[Item] = deque()
        self.current: Item | None = None
        self.work_number = 0  # tells the end of the work under way from that of work a crash undid
        self.work_started = 0.0
        self.away = False
        self.away_since = 0.0
        self.finished = False
        self.busy_seconds = 0.0
        self.away_seconds = 0.0
        self.timers: dict[str, int] = {}  # name → token
        self.missed_timers: list[tuple[str, int]] = []
        self.measured: dict[str, float] | None = None
        self.chance = Chance([seed, 1, index])
        own = settings.parties.get(name, SimulatedParty())
        shared = settings.label_compute_seconds if leads else settings.compute_seconds
        compute = shared if own.compute_seconds is None else own.compute_seconds
        if compute == MEASURED:
            self.measured = {}
            compute = 0.0
        self._compute: Draw = parse_delay(compute, f"compute_seconds of {name}").draw()
        self._slowdown = own.slowdown
        self._straggle_probability = own.straggle_probability
        self._straggle_factor = own.straggle_factor

    def cost(self, item: Item) -> float:
        """Compute seconds that handling takes."""
        if isinstance(item, Letter):
            if item.kind.free:
                return 0.0
        elif isinstance(item, Lost | Returned):
            return 0.0
        if self.measured is not None:
            seconds = self.measured.get(measured_as(item), 0.0)
        else:
            seconds = self._compute(self.chance)
        if self._straggle_probability and self.chance.generator.random() < self._straggle_probability:
            seconds *= self._straggle_factor
        return seconds * self._slowdown

    def held(self) -> Sequence[Item]:
        """What waits here, and what is being worked on."""
        return self.inbox if self.current is None else [*self.inbox, self.current]

    def receive(self, sender: str, frame: bytearray) -> None:
        """Take a frame off its link: check it, and let the party handle its message now."""
        try:
            message = self._frames.decode(frame)
        except ProtocolError as error:
            raise ProtocolError(f"{self.name} refused a message of {sender}: {error}") from None
        self.driver.deliver(Received(self._agenda.now, sender, message), frame)

    # --- the port of this party's driver ---

    def transmit(self, to: str, frame: bytearray, message: type[Message]) -> None:
        self._transmit(self, to, frame, message)

    def set_timer(self, name: str, seconds: float) -> None:
        self.timers[name] = self._agenda.enter_timer(self._agenda.now + seconds, self.index, name)

    def checkpoint(self) -> None:
        self._agenda.checkpoint_due = True

    def finish(self) -> None:
        self.finished = True
        self.current = None  # it may finish by a question answered while it works; that work is not given to it
        self.inbox.clear()
        self._agenda.presence_changed = True


def measured_as(item: Item) -> str:
    """What is measured apart: messages by kind, timers by name."""
    match item:
        case Letter():
            return item.kind.__name__
        case Ring(name):
            return f"timer {name}"
        case Lost(peer):
            return f"lost {peer}"
        case Returned(peer):
            return f"returned {peer}"
        case Begin():
            return "started"
