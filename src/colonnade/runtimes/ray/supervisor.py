"""The parties' actors, watched over by the process that placed them; Ray restarts actors that died.

Ray could call `live` again by itself in an actor that it restarted. It is called again from here, so that a party's
life begins in one place, and whether it does hangs on nothing that cannot be seen here.

Only bytes, text and plain tables are handed to Ray, which packs them with pickle and trusts its whole cluster: this
runtime is for one organisation's machines.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayError, RayTaskError

from colonnade.errors import RunError
from colonnade.runtimes.ray.cluster import NAMESPACE, first_line
from colonnade.runtimes.ray.settings import Ray

_LOOK_UP_SECONDS = 0.2  # a request to stop is noticed within this time
_NEWS_SECONDS = 0.5
_AGAIN_SECONDS = 0.1  # before a party is asked to live again: while its actor restarts, it refuses at once
_LOST_SECONDS = 10.0
"""A question without an answer for so long is asked again; so is a party to live whose life has not begun by then.

Ray may forget a call to an actor that died or restarts.
"""
_STOP_SECONDS = 20.0
"""How long a party may take to save its state before its actor is ended."""


class ActorSupervisor:
    """The parties' actors, from their start to the last one's end.

    `actor` is their class: `live(seat, peers)` is a party's whole life and tells how it ended, `news()` whether it has
    begun and what there is to report, `stop()` asks it to save and end. `seats` are what each is given: plain values.
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
        self._living: dict[Any, str] = {}  # the calls of those that have not ended
        self._called: dict[str, float] = {}  # when each was last asked to live
        self._asked: dict[Any, tuple[str, float]] = {}  # calls for news: of whom, and since when
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
            for party in self._handles:
                self._live(party)
            return self._watch_over()
        finally:
            for handle in self._handles.values():
                with suppress(RayError):
                    ray.kill(handle)

    def _live(self, party: str) -> None:
        """A party's life begins, or begins again from what its run directory holds."""
        peers = {peer: self._handles[peer] for peer in self._peers[party]}
        call = self._handles[party].live.remote(dict(self._seats[party]), peers)
        self._living = {one: who for one, who in self._living.items() if who != party} | {call: party}
        self._called[party] = time.monotonic()

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
                        f"The actor of {party} could not begin: {first_line(error)} Every node of the cluster needs "
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

    def _watch_over(self) -> bool:
        finished = True
        next_news = 0.0
        stop_by: float | None = None
        while self._living:
            now = time.monotonic()
            if stop_by is None and self._stop_requested():
                stop_by = now + _STOP_SECONDS
                next_news = now
            if stop_by is not None and now > stop_by:
                return False  # who has not saved in time goes on from its journal
            if now >= next_news:
                next_news = now + _NEWS_SECONDS
                self._ask(now, stopping=stop_by is not None)
            done, _ = ray.wait([*self._living, *self._asked], num_returns=1, timeout=max(0.01, next_news - now))
            for one in done:
                if one in self._asked:
                    self._hear(self._asked.pop(one)[0], one)
                else:
                    party = self._living[one]
                    ended_well = self._ending(party, one)
                    if ended_well is None:
                        time.sleep(_AGAIN_SECONDS)
                        self._live(party)
                        continue
                    del self._living[one]
                    self._hear(party, self._handles[party].news.remote())
                    finished = finished and ended_well
        return finished

    def _ask(self, now: float, *, stopping: bool) -> None:
        """Ask those who live for news, unless they have been asked; to stop as well, if they should."""
        self._asked = {one: (party, at) for one, (party, at) in self._asked.items() if now - at < _LOST_SECONDS}
        for party in {*self._living.values()} - {party for party, _ in self._asked.values()}:
            self._asked[self._handles[party].news.remote()] = (party, now)
            if stopping:  # again and again: a party that was starting anew has not heard it
                self._handles[party].stop.remote()

    def _hear(self, party: str, news: Any) -> None:
        try:
            begun, lines = ray.get(news, timeout=_STOP_SECONDS)
        except (RayActorError, GetTimeoutError):
            if party not in self._away:
                self._away.add(party)
                self._watch(party, {"note": f"the actor of {party} has died; Ray starts it again"})
            return
        self._away.discard(party)
        if not begun and party in self._living.values() and time.monotonic() - self._called[party] > _LOST_SECONDS:
            self._live(party)
        for line in lines:
            self._watch(party, line)

    def _ending(self, party: str, life: Any) -> bool | None:
        """Whether a party has finished, not merely stopped; None if Ray restarts its actor; RunError if it failed."""
        try:
            told = ray.get(life)
        except ActorUnavailableError:
            return None
        except RayActorError as error:
            raise RunError(
                f"The actor of {party} has died and was not started again (ray.restarts is "
                f"{self._settings.restarts}): {first_line(error)} Its state is in the run directory: continue with "
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
