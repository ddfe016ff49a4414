"""A station's bytes as arguments of calls from one Ray actor to another. Of Ray it knows only that a call may fail.

A call carries what has gathered for a peer, a few calls are under way at once, and who sends faster than it is served
is not answered until there is room. Ray does not promise the order of calls, so they are numbered. Two parties that are
both alive have a link with a token of its own; when either dies, the next link begins with what each still holds.
"""

import asyncio
import random
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress

from colonnade.errors import ProtocolError, RunError
from colonnade.runtimes.station import Station

_PIECE_BYTES = 4 << 20
_LOOK_UP_SECONDS = 0.2  # a request to stop is noticed within this time
_FIRST_RETRY_SECONDS = 0.02
_LONGEST_RETRY_SECONDS = 0.5
_SIGN_OF_LIFE_SECONDS = 0.4
"""A link that has been silent for so long carries an empty batch: who is dead, or has given the link up, is noticed."""
_ANSWER_SECONDS = 60.0
"""A call without an answer for so long is taken for lost: Ray may forget one to an actor that died or restarts.

A peer that was only busy has lost nothing by it: what it has not confirmed goes out again over the next link.
"""


class _Link:
    """Two parties that are both alive: batches on their way to the peer, and batches of the peer's."""

    def __init__(self, peer: str, token: str) -> None:
        self.peer = peer
        self.token = token
        self.given = 0  # the number of the last batch that went out
        self.under_way = 0
        self.last_call = time.monotonic()
        self.unsent: deque[bytes] = deque()
        self.taken = 0  # the number of the last batch that the station took
        self.waiting: dict[int, tuple[bytes, asyncio.Future[bool]]] = {}  # came too soon, or there was no room


class CallCarrier:
    """Carries one station's bytes in calls, until it has finished or is asked to stop. Lives in one event loop.

    `call(peer, method, *arguments)` calls `meet` or `deliver` of the peer's carrier; ConnectionError if it is away.
    """

    def __init__(
        self,
        station: Station,
        order: Sequence[str],
        call: Callable[..., Awaitable[bool]],
        *,
        calls_in_flight: int,
        linger_seconds: float,
        stop_requested: Callable[[], bool],
        watch: Callable[[], None] = lambda: None,
    ) -> None:
        self._station = station
        self._call = call
        self._calls_in_flight = calls_in_flight
        self._linger_seconds = linger_seconds
        self._stop_requested = stop_requested
        self._watch = watch
        self._links: dict[str, _Link] = {}
        # Whom this party calls first: when to try again, and how long to wait after that.
        place = order.index(station.name)
        self._due = {peer: (0.0, _FIRST_RETRY_SECONDS) for peer in order[:place] if peer in station.peers}
        self._offered: dict[str, str] = {}  # tokens of links that the peer has not agreed to yet
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._failure: RunError | None = None
        self._ended = False

    # --- what peers call ---

    def meet(self, peer: str, token: str) -> bool:
        """A peer that is alive proposes a link; one from its life before is over."""
        if self._ended or peer not in self._station.peers:
            return False
        before = self._links.get(peer)
        if before is None or before.token != token:
            self._open(peer, token)
        return True

    async def deliver(self, peer: str, token: str, number: int, batch: bytes) -> bool:
        """Take a batch, in its turn and when there is room; False if the link is over."""
        if not self._ended and self._offered.get(peer) == token:
            self._open(peer, token)  # its answer to the proposal is still on its way
        link = self._links.get(peer)
        if self._ended or link is None or link.token != token:
            return False
        if number <= link.taken:
            return True
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        link.waiting[number] = (batch, answer)
        self._wake.set()
        return await answer

    # --- the loop ---

    async def run(self) -> bool:
        """True when the party has finished and its peers know; False when it was asked to stop."""
        station = self._station
        finished_at: float | None = None
        try:
            while not self._stop_requested():
                handled = station.turn()
                while station.breaches:
                    raise self._refusal(*station.breaches.popleft())
                for link in [*self._links.values()]:
                    self._take(link)
                    self._give(link)
                if self._failure is not None:
                    raise self._failure
                self._watch()
                if station.finished:
                    finished_at = finished_at or time.monotonic()
                    idle = not any(link.unsent or link.under_way for link in self._links.values())
                    if (station.settled() and idle) or time.monotonic() - finished_at > self._linger_seconds:
                        return True
                self._propose()
                await self._rest(handled)
            return False
        finally:
            self._ended = True
            for link in [*self._links.values()]:
                self._drop(link)
            for task in self._tasks:
                task.cancel()

    async def _rest(self, handled: bool) -> None:
        """Let calls in; sleep if there is nothing to do."""
        patience = min(self._station.idle_until() - self._station.clock(), _LOOK_UP_SECONDS)
        if self._due.keys() - self._links.keys():
            patience = min(patience, _FIRST_RETRY_SECONDS)
        if handled or patience <= 0:
            await asyncio.sleep(0)
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._wake.wait()
        self._wake.clear()

    def _refusal(self, peer: str, why: str) -> RunError:
        # Sent again, it would be refused again; and nobody here is a stranger from whom to protect the others.
        return RunError(f"{self._station.name} refused what {peer} sent, so the training cannot go on: {why}")

    # --- links ---

    def _propose(self) -> None:
        now = time.monotonic()
        for peer, (due, _) in self._due.items():
            if peer not in self._links and peer not in self._offered and now >= due:
                token = self._offered[peer] = secrets.token_hex(8)
                self._begin(self._meet(peer, token))

    async def _meet(self, peer: str, token: str) -> None:
        met = await self._answer(peer, "meet", token)
        if self._offered.get(peer) == token:
            del self._offered[peer]
            if met and not self._ended:
                self._open(peer, token)
        wait = self._due[peer][1]
        if met:
            self._due[peer] = (0.0, _FIRST_RETRY_SECONDS)
        else:
            later = time.monotonic() + wait * random.uniform(0.5, 1.5)
            self._due[peer] = (later, min(2 * wait, _LONGEST_RETRY_SECONDS))
        self._wake.set()

    def _open(self, peer: str, token: str) -> None:
        self._offered.pop(peer, None)
        if peer in self._links:
            self._drop(self._links[peer])
        self._links[peer] = _Link(peer, token)
        self._station.connected(peer)
        self._wake.set()

    def _drop(self, link: _Link) -> None:
        if self._links.get(link.peer) is link:
            del self._links[link.peer]
            self._station.disconnected(link.peer)
        for _, answer in link.waiting.values():
            if not answer.done():
                answer.set_result(False)
        link.waiting.clear()

    # --- bytes ---

    def _take(self, link: _Link) -> None:
        """Give the station what has come, in order, while it has room."""
        while link.taken + 1 in link.waiting and self._station.wants_more(link.peer):
            link.taken += 1
            batch, answer = link.waiting.pop(link.taken)
            try:
                self._station.received(link.peer, batch)
            except ProtocolError as error:
                self._failure = self._refusal(link.peer, str(error))
            if not answer.done():
                answer.set_result(True)

    def _give(self, link: _Link) -> None:
        """Send what has gathered, unless enough calls are under way."""
        while link.under_way < self._calls_in_flight:
            if not link.unsent:
                gathered = b"".join(self._station.outgoing(link.peer))
                link.unsent.extend(
                    gathered[place : place + _PIECE_BYTES] for place in range(0, len(gathered), _PIECE_BYTES)
                )
            if not link.unsent:
                if link.under_way or time.monotonic() - link.last_call < _SIGN_OF_LIFE_SECONDS:
                    return
                link.unsent.append(b"")
            link.given += 1
            link.under_way += 1
            link.last_call = time.monotonic()
            self._begin(self._send(link, link.given, link.unsent.popleft()))

    async def _send(self, link: _Link, number: int, batch: bytes) -> None:
        accepted = await self._answer(link.peer, "deliver", link.token, number, batch)
        link.under_way -= 1
        if not accepted:
            self._drop(link)
        self._wake.set()

    async def _answer(self, peer: str, method: str, *arguments: str | int | bytes) -> bool:
        """What a peer answers; no, if it is away or the call is lost."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await self._call(peer, method, self._station.name, *arguments)
        except (ConnectionError, TimeoutError):
            return False

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
