"""One long-lived stream per feature party, opened by it, under mutual TLS; only the label party is reached.

Who sends is who the certificate names. Packets between the two ends of a stream go through it as they are; what
feature parties send one another goes through the label party as sealed envelopes (`relay.py`). A stream that breaks is
opened again after a pause that grows, with jitter; its ends' stations go on where they were.

Everything of one party happens in one thread: per stream one task reads and one writes (what has gathered meanwhile
goes out together), and one task gives the station its turns. Where the line allows it, the three tasks only do what
takes a while: what comes from the socket is handled, and what follows from it is sent, in one step of the event loop.
Who sends faster than it is served is not read. Bytes that bring nothing new (acknowledgements, repetitions) may take a
small share of that thread's time, and no more.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from colonnade.runtimes.network import limits
from colonnade.runtimes.network.allowance import Allowance
from colonnade.runtimes.network.line import Heard, LineEndedError
from colonnade.runtimes.network.stream import Stream
from colonnade.runtimes.network.waiting import Awaited
from colonnade.runtimes.station import Station
from colonnade.wire.certificates import Credentials
from colonnade.wire.handshake import PACKETS
from colonnade.wire.sealing import SealingKey

log = logging.getLogger("colonnade.network")


@dataclass(frozen=True)
class Keys:
    """A party's credentials, re-read whenever they are needed, and its sealing key of this run."""

    read: Callable[[], Credentials]
    sealing: SealingKey
    digest: str  # of what the federation has agreed on


class Carrier(ABC):
    """What both ends have in common: the station's turns, and the one writer of every stream."""

    def __init__(
        self, name: str, peers: Collection[str], linger_seconds: float, stop_requested: Callable[[], bool]
    ) -> None:
        self.name = name
        self.station: Station | None = None
        self._linger_seconds = linger_seconds
        self._stop_requested = stop_requested
        self._wake = asyncio.Event()
        self._failure: Exception | None = None  # outside the turns' task: it ends by it
        self._rests_until = 0.0  # by the station's clock
        self._served = asyncio.Event()  # set after every turn: whoever waits for room looks again
        self._awaited = Awaited()
        # By peer and not by stream: who connects anew has no more of it.
        share = max(limits.VAIN_SHARE / max(1, len(peers)), limits.LEAST_VAIN_SHARE)
        self._in_vain = {peer: Allowance(share, limits.VAIN_SECONDS) for peer in peers}

    def stir(self) -> None:
        """There is something to send that no event has brought."""
        self._wake.set()

    async def _turns(self, watch: Callable[[], None]) -> bool:
        """Give the station its turns until it has finished (True) or a stop is asked for (False)."""
        finished_at = look_at = 0.0
        while not self._stop_requested():
            if self._failure is not None:
                raise self._failure
            station = self.station
            handled = station is not None and self._turn(station)
            if station is not None and station.finished:
                finished_at = finished_at or time.monotonic()
                if station.settled() and self._all_written(station):
                    return True
                if time.monotonic() - finished_at > self._linger_seconds:
                    log.warning(
                        "not everybody has confirmed the end within %g seconds (endurance.linger_seconds); who "
                        "has not heard of it will wait: %s",
                        self._linger_seconds,
                        ", ".join(station.absent()) or "a party that is connected and silent",
                    )
                    return True
            if time.monotonic() >= look_at:
                self._awaited.look(*self._waits_for())
                watch()
                look_at = time.monotonic() + limits.LOOK_SECONDS
            if handled:
                await asyncio.sleep(0)  # what has arrived meanwhile is taken in
                continue
            until = limits.LOOK_SECONDS
            if station is not None:
                now = station.clock()
                self._rests_until = min(station.idle_until(), now + until)
                until = self._rests_until - now
            await self._rest(until)
        return False

    def _turn(self, station: Station) -> bool:
        """A turn of the station, and what follows from it for those at the other ends."""
        handled = station.turn()
        while station.breaches:
            peer, sentence = station.breaches.popleft()
            self._breach(peer, sentence)
        self._offer(station)
        self._served.set()
        self._served.clear()
        return handled

    def _turn_at_once(self, station: Station) -> None:
        """A turn in the step that has brought something; the task that gives turns sees to what is left."""
        if station.gathers or self._failure is not None:
            self._wake.set()
            return
        try:
            self._turn(station)
        except Exception as error:  # none of the line's, which has brought it
            self._failure = error
        if self._failure or station.finished or station.has_work() or station.idle_until() < self._rests_until:
            self._wake.set()

    async def _rest(self, seconds: float) -> None:
        """Until somebody stirs, or so long."""
        if seconds > 0 and not self._wake.is_set():
            alarm = asyncio.get_running_loop().call_later(seconds, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                alarm.cancel()
        else:
            await asyncio.sleep(0)
        self._wake.clear()

    async def _receive(self, station: Station, peer: str, packets: bytes | memoryview) -> None:
        """Hand a peer's packets to the station, a slice at a time, and wait if they take more than their share.

        Frames that are new are limited by the room that there is for them; the rest by the time that it takes.
        """
        view = memoryview(packets)
        size = limits.SLICE_BYTES
        for at in range(0, len(view), size):
            if at:
                await asyncio.sleep(0)  # the others' turn
            vain = self._hand_over(station, peer, view[at : at + size], is_all=len(view) < size)
            if vain > 0:
                self._wake.set()
                await self._bear(peer, vain)
        self._wake.set()

    def _hand_over(self, station: Station, peer: str, packets: memoryview, is_all: bool) -> float:
        """Hand over a slice; how much of our time went into what was of no use."""
        waited = station.queue_depth()
        began = time.thread_time()
        station.received(peer, packets)
        taken = time.thread_time() - began
        frames = max(0, station.queue_depth() - waited)
        vain = taken - limits.BYTE_SECONDS * len(packets) - limits.FRAME_SECONDS * frames
        return vain + limits.MESSAGE_SECONDS if is_all and not frames else vain

    def _take_at_once(self, peer: str, message: Heard) -> float | None:
        """A message that is packets, and short, goes to the station in the step in which it came (`line.Take`)."""
        station = self.station
        if station is None or len(message) > limits.SLICE_BYTES or message[0] != PACKETS:
            return None
        if not station.wants_more(peer):
            return None
        vain = self._hand_over(station, peer, memoryview(message)[1:], is_all=True)
        self._turn_at_once(station)
        return self._in_vain[peer].take(vain) if vain > 0 else 0.0

    async def _bear(self, peer: str, vain_seconds: float) -> None:
        """So much time went into what was of no use: wait if that is more than a peer may have."""
        if wait := self._in_vain[peer].take(vain_seconds):
            await asyncio.sleep(wait)

    async def _room_for(self, peer: str) -> None:
        """Wait until the station takes more from a peer."""
        while self.station is not None and not self.station.wants_more(peer) and not self.station.finished:
            await self._served.wait()

    async def _write(self, stream: Stream) -> None:
        """Write to a stream until it ends: first what was posted, then packets; rest while there is neither."""
        try:
            while True:
                stream.is_writing = True
                await stream.write_waiting()
                if stream.ends:
                    stream.close()
                    return
                has_written = False
                for piece in self._outgoing(stream):
                    await stream.write(piece)
                    has_written = True
                if not has_written and not stream.waiting and not stream.news:
                    stream.is_writing = False
                    await stream.wake.wait()
                    stream.wake.clear()
        except LineEndedError:
            pass

    def _write_soon(self, stream: Stream) -> None:
        """There are packets for a stream: out they go, if nothing waits before them; else its writer sees to it."""
        if stream.put is None or stream.ends or stream.wake.is_set() or not stream.is_clear:
            stream.wake.set()
            return
        for piece in self._outgoing(stream):
            stream.put(piece)

    @property
    @abstractmethod
    def at_the_door(self) -> dict[str, bool]:
        """Whom this party meets before there is a station, and who of them is connected."""

    @abstractmethod
    def _waits_for(self) -> tuple[Collection[str], str]:
        """Whom this party waits for now, and what can be done about it."""

    @abstractmethod
    def _outgoing(self, stream: Stream) -> Iterator[bytes]:
        """What the station has for a stream now, piece by piece; other things happen while a piece is written.

        What a station gives out it gives once: not to a stream that another has taken the place of.
        """

    @abstractmethod
    def _offer(self, station: Station) -> None:
        """Wake the writers of streams that have something to carry."""

    @abstractmethod
    def _all_written(self, station: Station) -> bool:
        """Whether nothing waits to be written."""

    @abstractmethod
    def _breach(self, peer: str, sentence: str) -> None:
        """Part with a peer that broke the protocol."""


def pass_over_interrupts(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A second Ctrl-C ends whatever task it meets; that is no news to whoever gave it."""
    if not isinstance(context.get("exception"), KeyboardInterrupt):
        loop.default_exception_handler(context)
