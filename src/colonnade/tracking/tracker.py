"""Sinks while a run goes on: each in a thread of its own, given lines as they come, left out once it fails.

The training only ever puts a line into a queue. A sink that raises, hangs or falls far behind costs one warning:
metrics.jsonl and summary.json have everything, whatever becomes of it.
"""

import json
import logging
import queue
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from colonnade.errors import RunError, plain
from colonnade.files import json_of, read_private, write_atomically
from colonnade.tracking.run import TrackedRun
from colonnade.tracking.settings import Track
from colonnade.tracking.sinks import Sink, sinks_of

log = logging.getLogger("colonnade.tracking")

PATIENCE_SECONDS = 60.0
"""How long the end of a run waits for sinks to take the rest."""
MOST_WAITING = 20_000
"""Lines that a slow sink may leave lying."""
_KNOWN_BY = "track.json"
_LONGEST_REASON = 300
_LOGIN = re.compile(r"://\S*@")
"""Who logs in, and with which password: libraries show whole addresses, also those of the environment."""


class Tracker:
    """All sinks of one run: `begin`, then a line at a time, then `end`. Without sinks it does nothing."""

    def __init__(self, track: Track, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._sinks = sinks_of(track)
        self._patience_seconds = patience_seconds
        self._followers: list[_Follower] = []

    def begin(self, run: TrackedRun, resume: bool = False) -> None:
        """The run begins; with `resume` it goes on, and each sink is told by what it knew it."""
        known = _Known(run.directory, resume)
        self._followers = [_Follower(name, sink, run, known) for name, sink in self._sinks.items()]

    def line(self, line: Mapping[str, Any]) -> None:
        for one in self._followers:
            one.put(line)

    def end(self, summary: Mapping[str, Any]) -> None:
        """The run is over, well or not; said once, the first time that it is called."""
        for one in self._followers:
            one.end(summary)
        for one in self._followers:
            one.wait(self._patience_seconds)
        self._followers = []


@contextmanager
def tracked(track: Track) -> Iterator[Tracker]:
    """Sinks for a run that ends in here: one that is not ended has failed."""
    tracker = Tracker(track)
    try:
        yield tracker
    except BaseException:
        tracker.end({"status": "failed"})
        raise


def both(tracker: Tracker, watch: Callable[[dict[str, Any]], None] | None) -> Callable[[dict[str, Any]], None]:
    """Who watches a run: its sinks, and whoever does so besides."""

    def look(line: dict[str, Any]) -> None:
        tracker.line(line)
        if watch is not None:
            watch(line)

    return look


class _Known:
    """By what the sinks know a run: a small file of its directory."""

    def __init__(self, directory: Path | None, resume: bool) -> None:
        self._path = None if directory is None else directory / _KNOWN_BY
        self._lock = threading.Lock()
        self._keys: dict[str, str] = {}
        if resume and self._path is not None:
            with suppress(OSError, ValueError, RunError):
                self._keys = {str(name): str(key) for name, key in json_of(read_private(self._path)).items()}

    def of(self, sink: str) -> str:
        return self._keys.get(sink, "")

    def keep(self, sink: str, key: str) -> None:
        with self._lock:
            self._keys[sink] = key
            if self._path is not None:
                write_atomically(self._path, json.dumps(self._keys).encode())


class _Follower:
    """One sink, and the thread that tells it."""

    def __init__(self, name: str, sink: Sink, run: TrackedRun, known: _Known) -> None:
        self._name = name
        self._sink = sink
        self._waiting: queue.SimpleQueue[tuple[Mapping[str, Any], bool]] = queue.SimpleQueue()
        self._is_lost = False
        before = replace(run, before=known.of(name))
        self._thread = threading.Thread(target=self._follow, args=(before, known), name=f"track {name}", daemon=True)
        self._thread.start()

    def put(self, line: Mapping[str, Any]) -> None:
        if self._is_lost:
            return
        if self._waiting.qsize() >= MOST_WAITING:
            self._lose(f"{MOST_WAITING:,} lines wait for it")
        self._waiting.put((line, False))

    def end(self, summary: Mapping[str, Any]) -> None:
        self._waiting.put((summary, True))

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)
        if self._thread.is_alive() and not self._is_lost:
            self._lose(f"it has not taken the rest within {seconds:g} seconds")

    def _follow(self, run: TrackedRun, known: _Known) -> None:
        try:
            key = self._sink.began(run)
            if key:
                known.keep(self._name, key)
            while not self._is_lost:
                lines, summary = self._taken()
                if lines:
                    self._sink.lines(lines)
                if summary is not None:
                    self._sink.ended(summary)
                    return
        except (Exception, SystemExit) as error:  # of somebody else's program, which may do anything
            said = str(error).strip().partition("\n")[0]
            if not self._is_lost:
                self._lose(f"{type(error).__name__}: {said}" if said else type(error).__name__)

    def _taken(self) -> tuple[list[Mapping[str, Any]], Mapping[str, Any] | None]:
        """Everything that waits, at least one; and the summary, if it is among it."""
        lines: list[Mapping[str, Any]] = []
        while True:
            one, is_last = self._waiting.get()
            if is_last:
                return lines, one
            lines.append(one)
            if self._waiting.empty():
                return lines, None

    def _lose(self, why: str) -> None:
        self._is_lost = True
        log.warning(
            "%s is told no more of this run: %s. The training goes on, and metrics.jsonl has everything.",
            self._name,
            plain(_LOGIN.sub("://…@", why)[:_LONGEST_REASON]).rstrip("."),
        )
