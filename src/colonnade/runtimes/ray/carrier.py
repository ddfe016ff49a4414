"""Parties as Ray actors: bytes go from actor to actor as arguments of calls, and Ray starts again who has died.

A call carries what has gathered for a peer, a few calls are under way at once, and who sends faster than it is served
is not answered until there is room. Ray does not promise the order of calls, so they are numbered. Two parties that are
both alive have a link with a token of its own; when either dies, the next link begins with what each still holds.

Only bytes, text and plain tables are handed to Ray, which packs them with pickle and trusts its whole cluster: this
runtime is for one organisation's machines.
"""

import asyncio
import logging
import os
import random
import secrets
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import ceil
from typing import Any, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError

from colonnade.errors import ProtocolError, RunError, SettingsError
from colonnade.runtimes.ray.settings import Ray
from colonnade.runtimes.station import Station

NAMESPACE = "colonnade"
"""Where Ray keeps the names of our actors."""

_PIECE_BYTES = 4 << 20
_LOOK_UP_SECONDS = 0.2  # a request to stop is noticed within this time
_FIRST_RETRY_SECONDS = 0.02
_LONGEST_RETRY_SECONDS = 0.5
_SIGN_OF_LIFE_SECONDS = 0.4
"""A link that has been silent for so long carries an empty batch: who is dead, or has given the link up, is noticed."""
_NEWS_SECONDS = 0.5
_STOP_SECONDS = 20.0
"""How long a party may take to save its state before its actor is ended."""
_PROBE_SECONDS = 5.0
"""Ray itself tries for minutes to reach a cluster that is not there."""

Job = TypeVar("Job")
Result = TypeVar("Result")


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
        patience = min(self._station.idle_until() - time.monotonic(), _LOOK_UP_SECONDS)
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
        try:
            met = await self._call(peer, "meet", self._station.name, token)
        except ConnectionError:
            met = False
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
        try:
            accepted = await self._call(link.peer, "deliver", self._station.name, link.token, number, batch)
        except ConnectionError:
            accepted = False
        link.under_way -= 1
        if not accepted:
            self._drop(link)
        self._wake.set()

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


# --- the one who starts them ------------------------------------------------------------------------------------


class ActorSupervisor:
    """The parties' actors, from their start to the last one's end.

    `actor` is their class: `live(seat, peers)` is a party's whole life and tells how it ended, `news()` what it has to
    report, `stop()` asks it to save and end. `seats` are what each is given, as plain values.
    """

    def __init__(
        self,
        actor: type[Any],
        seats: Mapping[str, Mapping[str, Any]],
        peers: Mapping[str, Sequence[str]],
        settings: Ray,
        *,
        watch: Callable[[str, dict[str, Any]], None],
        stop_requested: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._watch = watch
        self._stop_requested = stop_requested
        self._seats = seats
        self._peers = peers
        self._away: set[str] = set()
        run = secrets.token_hex(3)
        self._handles: dict[str, Any] = {}
        for party in seats:
            placed = ray.remote(actor).options(
                name=f"{party}-{run}",
                namespace=NAMESPACE,
                max_restarts=settings.restarts,
                scheduling_strategy="SPREAD",
                **_options(settings.needs_of(party)),
            )
            self._handles[party] = placed.remote(f"{party}-{run}")

    def run(self) -> bool:
        """Watch until everybody has finished (True) or a stop was asked for and everybody has saved (False)."""
        try:
            if not self._wait_for_places():
                return False
            living = {
                handle.live.remote(
                    dict(self._seats[party]), {peer: self._handles[peer] for peer in self._peers[party]}
                ): (party)
                for party, handle in self._handles.items()
            }
            return self._watch_over(living)
        finally:
            for handle in self._handles.values():
                with suppress(RayError):
                    ray.kill(handle)

    def _wait_for_places(self) -> bool:
        """Until every actor stands; False if a stop was asked for meanwhile."""
        ready = {handle.__ray_ready__.remote(): party for party, handle in self._handles.items()}
        deadline = time.monotonic() + self._settings.placement_seconds
        while ready:
            if self._stop_requested():
                return False
            done, _ = ray.wait([*ready], timeout=_LOOK_UP_SECONDS)
            for one in done:
                party = ready.pop(one)
                try:
                    ray.get(one)
                except RayError as error:
                    raise RunError(
                        f"The actor of {party} could not begin: {_first_line(error)} Every node of the cluster needs "
                        "Colonnade, in the same version as here."
                    ) from error
            if ready and time.monotonic() > deadline:
                raise self._no_place(sorted(ready.values()))
        return True

    def _no_place(self, waiting: Sequence[str]) -> RunError:
        """Names those whom no node could ever hold, if there are any: the others only wait with them."""
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]

        def fits(party: str) -> bool:
            needs = self._settings.needs_of(party).items()
            return any(all(node.get(what, 0.0) >= amount for what, amount in needs) for node in nodes)

        named = [party for party in waiting if not fits(party)] or waiting
        return RunError(
            f"{', '.join(named)} found no place on the cluster within {self._settings.placement_seconds:g} seconds. "
            f"{named[0]} asks for {_amounts(self._settings.needs_of(named[0]))}; free are {_amounts(_free())}. Lower "
            "ray.cpus or ray.resources, add nodes, or wait longer with ray.placement_seconds."
        )

    def _watch_over(self, living: dict[Any, str]) -> bool:
        finished = True
        asked: dict[Any, str] = {}
        next_news = 0.0
        stop_by: float | None = None
        while living:
            now = time.monotonic()
            if stop_by is None and self._stop_requested():
                stop_by = now + _STOP_SECONDS
                next_news = now
            if stop_by is not None and now > stop_by:
                return False  # who has not saved in time goes on from its journal
            if now >= next_news:
                next_news = now + _NEWS_SECONDS
                for party in {*living.values()} - {*asked.values()}:
                    asked[self._handles[party].news.remote()] = party
                    if stop_by is not None:  # again and again: a party that was starting anew has not heard it
                        self._handles[party].stop.remote()
            done, _ = ray.wait([*living, *asked], num_returns=1, timeout=max(0.01, next_news - now))
            for one in done:
                if one in asked:
                    self._hear(asked.pop(one), one)
                else:
                    party = living.pop(one)
                    ended_well = self._ending(party, one)
                    self._hear(party, self._handles[party].news.remote())
                    finished = finished and ended_well
        return finished

    def _hear(self, party: str, news: Any) -> None:
        try:
            lines = ray.get(news, timeout=_STOP_SECONDS)
        except (RayActorError, GetTimeoutError):
            if party not in self._away:
                self._away.add(party)
                self._watch(party, {"note": f"the actor of {party} has died; Ray starts it again"})
            return
        self._away.discard(party)
        for line in lines:
            self._watch(party, line)

    def _ending(self, party: str, life: Any) -> bool:
        """Whether a party has finished, not merely stopped; RunError if it failed."""
        try:
            told = ray.get(life)
        except RayActorError as error:
            raise RunError(
                f"The actor of {party} has died and was not started again (ray.restarts is "
                f"{self._settings.restarts}): {_first_line(error)} Its state is in the run directory: continue with "
                "--resume."
            ) from error
        except RayTaskError as error:
            raise RunError(
                f"{party} failed in a way that was not foreseen, {type(error.cause).__name__}: a defect of Colonnade. "
                "Its traceback is in Ray's logs of that actor."
            ) from error
        if "failed" in told:
            raise RunError(told["failed"])
        return bool(told["finished"])


def _options(needs: Mapping[str, float]) -> dict[str, Any]:
    """Amounts by the names of Ray's options."""
    named = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    others = {what: amount for what, amount in needs.items() if what not in named}
    return {**{named[what]: amount for what, amount in needs.items() if what in named}, "resources": others}


def _free() -> dict[str, float]:
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return {what: amount for what, amount in free.items() if not what.endswith("memory")}


def _amounts(resources: Mapping[str, float]) -> str:
    shown = [f"{what} {amount:g}" for what, amount in sorted(resources.items()) if not what.startswith("node:")]
    return ", ".join(shown) or "nothing"


def _first_line(error: Exception) -> str:
    line = next(iter(str(error).strip().splitlines()), type(error).__name__).strip()
    return line if line.endswith(".") else f"{line}."


# --- clusters ---------------------------------------------------------------------------------------------------


@contextmanager
def cluster(address: str, needs: Sequence[Mapping[str, float]] = ()) -> Iterator[None]:
    """While this holds, Ray is connected. A connection that the caller has already made is used, and stays.

    The cluster of the address `local` has what the needs add up to, so that everybody finds a place.
    """
    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"address": address, "namespace": NAMESPACE, "log_to_driver": False}
    if address == "local":
        sums: dict[str, float] = {}
        for one in needs:
            for what, amount in one.items():
                sums[what] = sums.get(what, 0.0) + amount
        cpus = max(os.cpu_count() or 1, ceil(sums.pop("CPU", 0.0)))
        sums.pop("memory", None)
        options |= {"num_cpus": cpus, "num_gpus": ceil(sums.pop("GPU", 0.0)) or None, "resources": sums}
        options |= {"include_dashboard": False}
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report to its makers
    else:
        _probe(os.environ.get("RAY_ADDRESS", "") if address == "auto" else address)
    try:
        with _own_signals():
            ray.init(**options, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
        raise SettingsError(
            f"There is no Ray cluster at the address {address!r}: {_first_line(error)} Begin one with `ray start "
            "--head`, give the address of one that runs, or write local for one that ends with this command."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _probe(address: str) -> None:
    """Refuse an address at which nobody listens. Who listens, Ray finds out."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    bare = host.strip("[]")
    if not bare or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        return  # Ray knows other kinds of addresses, and says what is wrong with one that is none
    try:
        socket.create_connection((bare, int(port)), _PROBE_SECONDS).close()
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or (
            f"no answer within {_PROBE_SECONDS:g} seconds" if isinstance(error, TimeoutError) else "it is not a host"
        )
        raise SettingsError(
            f"There is no Ray cluster at the address {address!r}: {why}. Begin one there with `ray start --head`, give "
            "the address of one that runs (with its port, open from here), or write local for one that ends with this "
            "command."
        ) from None


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM when it begins; it stays with whoever had it, who wants to save first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_each_on_ray(
    work: Callable[[Job], Result],
    jobs: Sequence[Job],
    finished: Callable[[Job, Result], None] = lambda job, result: None,
    address: str = "auto",
) -> list[Result]:
    """`[work(job) for job in jobs]`, as tasks on a cluster, one CPU each; `finished` is called here as each comes in.

    `work` is a function of a module, and jobs and results are plain values. Ray repeats a task whose node is lost.
    """
    with cluster(address):
        task = ray.remote(work).options(num_cpus=1, max_retries=3)
        order = {task.remote(job): place for place, job in enumerate(jobs)}
        results: dict[int, Result] = {}
        left = [*order]
        try:
            while left:
                done, left = ray.wait(left)
                for one in done:
                    result: Result = ray.get(one)
                    results[order[one]] = result
                    finished(jobs[order[one]], result)
        except RayError as error:
            raise RunError(f"The cluster failed: {_first_line(error)} What has finished is kept.") from error
        finally:
            for one in left:
                with suppress(RayError, ValueError):
                    ray.cancel(one, force=True)
        return [results[place] for place in range(len(jobs))]
