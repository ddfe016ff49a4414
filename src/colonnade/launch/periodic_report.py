"""How far a party of a network run is: a line of its log now and then, in words and as fields."""

import logging
import time
from collections.abc import Callable
from math import inf
from typing import Any

from colonnade.runtimes.recorder import Recorder
from colonnade.runtimes.station import Station

log = logging.getLogger("colonnade")

REPORT_SECONDS = 10.0


class PeriodicReport:
    """Is called in every turn, and says something every ten seconds."""

    def __init__(
        self,
        recorder: Recorder,
        epochs: float,
        clock: Callable[[], float] = time.monotonic,
        watch: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """`epochs`: how many are planned. How many exchanges that will be is worked out from those so far.

        `watch`: is told the same, where nobody records metrics.
        """
        self._recorder = recorder
        self._epochs = epochs
        self._watch = watch
        self._clock = clock
        self._last = clock()
        self._exchanges: int | None = None  # what a process before this one did is not this one's rate

    def __call__(self, station: Station) -> None:
        now = self._clock()
        if self._exchanges is None:
            self._last, self._exchanges = now, station.party.counts()["exchanges"]
        if now - self._last < REPORT_SECONDS:
            return
        counts = station.party.counts()
        done = counts["exchanges"]
        rate = (done - self._exchanges) / (now - self._last)
        absent = station.absent()
        self._last, self._exchanges = now, done
        waits = f"; without {', '.join(absent)}" if absent else ""
        facts: dict[str, Any] = {"exchange": done, "rate": round(rate, 3), "waiting_for": absent}
        if absent:
            facts["waited_seconds"] = {name: round(station.links[name].away_seconds, 1) for name in absent}
        if "share" in counts:  # of an alignment, whose end is known
            left = done * (1 / counts["share"] - 1) / rate if rate and counts["share"] else inf
            words = f"{done} multiplications, {rate:.0f} per second, {_time_left(left)} left{waits}"
        else:
            facts |= self._of_training(counts, rate)
            words = _in_words(facts) + waits
        log.info("%s", words, extra={"event": "progress", "facts": facts})
        if self._watch is not None:
            self._watch(
                {"exchange": done, "step": counts["steps"], "rate": round(rate, 3), "wall_seconds": station.now()}
            )

    def _of_training(self, counts: dict[str, Any], rate: float) -> dict[str, Any]:
        """What the label party knows besides: of how many exchanges, how long that takes, the loss."""
        if not counts.get("epochs"):
            return {}
        done = counts["exchanges"]
        total = max(done, round(done * self._epochs / counts["epochs"]))
        losses = [line["loss"] for line in self._recorder.metrics[-20:] if line["loss"] is not None]
        return {
            "total": total,
            "epoch": round(counts["epochs"], 4),
            "loss": losses[-1] if losses else None,
            "seconds_left": round((total - done) / rate, 1) if rate else None,
        }


def _in_words(facts: dict[str, Any]) -> str:
    of = f" of about {facts['total']}" if "total" in facts else ""
    words = [f"{facts['exchange']}{of} exchanges", f"{facts['rate']:.0f} per second"]
    if facts.get("seconds_left") is not None:
        words.append(f"{_time_left(facts['seconds_left'])} left")
    if facts.get("loss") is not None:
        words.append(f"loss {facts['loss']:.4f}")
    return ", ".join(words)


def _time_left(seconds: float) -> str:
    return f"about {seconds:.0f} s" if seconds < inf else "nobody knows how much"
