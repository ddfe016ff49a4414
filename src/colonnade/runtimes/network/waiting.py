"""Whom a party waits for, told in words and as fields: at once, after half a minute, then at intervals that double."""

import logging
import time
from collections.abc import Callable, Collection
from typing import Any

from colonnade.runtimes.network import limits

log = logging.getLogger("colonnade.network")


class Awaited:
    """Since when each peer is awaited, and when that was last said."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._say_at: dict[str, float] = {}
        self._named: set[str] = set()  # who was named at once

    def look(self, names: Collection[str], remedy: str) -> None:
        """These are awaited now. `remedy` is what can be done about it: a sentence."""
        now = self._clock()
        for name in [name for name in self._since if name not in names]:
            del self._since[name], self._say_at[name]
            self._named.discard(name)
        due, new = [], []
        for name in names:
            since = self._since.setdefault(name, now)
            if now - since >= limits.MOMENT_OF_WAITING_SECONDS and name not in self._named:
                self._named.add(name)
                new.append(name)
            if now >= self._say_at.setdefault(name, now + limits.FIRST_WORD_OF_WAITING_SECONDS):
                due.append(name)
                self._say_at[name] = now + min(now - since, limits.LONGEST_SILENCE_SECONDS)
        if new:
            log.info("waits for %s. %s", ", ".join(new), remedy, extra=self._fields(new, now))
        if due:
            longest = max(now - self._since[name] for name in due)
            words = ", ".join(due), in_words(longest), remedy
            log.warning("still waits for %s, since %s. %s", *words, extra=self._fields(due, now))

    def _fields(self, names: list[str], now: float) -> dict[str, Any]:
        """For a log of JSON: whom it waits for, and for how long each."""
        waited = {name: round(now - self._since[name], 1) for name in names}
        return {"event": "waiting", "facts": {"waiting_for": names, "waited_seconds": waited}}


def in_words(seconds: float) -> str:
    """A time as people say it.

    >>> in_words(31), in_words(125), in_words(7500)
    ('31 seconds', '2 minutes', '2 hours')
    """
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 6000 else f"{seconds / 3600:.0f} hours"
