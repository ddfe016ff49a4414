"""The loop that all runtimes share: give a party an event, perform its effects in order.

A runtime supplies a `Port`: how frames travel, how timers are set. Everything else about effects is decided here, once:
a value whose privacy event is refused is not sent, a mask is counted before it is used, every frame is encoded by the
one codec and counted, everything is traced if a trace is kept. What arrives was decoded and checked where it came off
its link.
"""

from collections.abc import Sequence
from typing import Protocol

from colonnade.messages import Message
from colonnade.party import Checkpoint, Effect, Event, Finish, Observe, Party, Send, SetTimer, Spend
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.recorder import Recorder
from colonnade.trace import TraceWriter
from colonnade.wire.codec import encode

Answer = list[tuple[Effect, bytearray | None]]
"""What a party returned for an event: its effects, those that send with their frames."""


def encoded(effects: Sequence[Effect]) -> Answer:
    """Effects with the frames of what they send: made before the first of them has an effect.

    A message to several peers is encoded once: frames are read, and never written to.
    """
    answer: Answer = []
    message: Message | None = None
    frame = bytearray()
    for effect in effects:
        if type(effect) is not Send:
            answer.append((effect, None))
            continue
        if effect.message is not message:
            message = effect.message
            frame = encode(message)
        answer.append((effect, frame))
    return answer


class Port(Protocol):
    """What a runtime does for one party."""

    def transmit(self, to: str, frame: bytearray, message: type[Message]) -> None: ...

    def set_timer(self, name: str, seconds: float) -> None: ...

    def checkpoint(self) -> None: ...

    def finish(self) -> None: ...


class Driver:
    """One party, its port, and what is recorded of it."""

    def __init__(
        self,
        name: str,
        party: Party,
        port: Port,
        ledger: Ledger,
        recorder: Recorder,
        trace: TraceWriter | None = None,
    ) -> None:
        self.name = name
        self.party = party
        self._port = port
        self._ledger = ledger
        self._recorder = recorder
        self._trace = trace
        self._traffic = recorder.traffic_of(name)

    def deliver(self, event: Event, frame: bytearray | None = None) -> None:
        """Give the party one event and perform what it returns. A message comes with the frame that it was in."""
        self.perform(event, encoded(self.party.handle(event)), frame)

    def perform(self, event: Event, answer: Answer, frame: bytearray | None = None) -> None:
        """Let out what the party returned for an event, in order."""
        if self._trace is not None:
            self._trace.write(event, frame)
        for effect, sent in answer:
            if sent is not None:
                message = type(effect.message)  # type: ignore[union-attr]
                if self._trace is not None:
                    self._trace.write(effect, sent)
                if message.masked:
                    self._ledger.use_mask()
                self._traffic.count(message, len(sent))
                self._port.transmit(effect.to, sent, message)  # type: ignore[union-attr]
                continue
            if self._trace is not None:
                self._trace.write(effect)
            match effect:
                case Spend(privacy_event):
                    if not self._ledger.spend(self.name, privacy_event):
                        return
                case Observe():
                    self._recorder.observe(self.name, effect, event.now)
                case SetTimer(name, seconds):
                    self._port.set_timer(name, seconds)
                case Checkpoint():
                    self._port.checkpoint()
                case Finish():
                    self._port.finish()
