"""The files of a run's `live` folder: how it is, a line a few times a second, and what was said of it.

None of them grows beyond a few megabytes: of what is long past, fewer lines are kept, evenly over the whole run. What
the disk does not take is left out: nothing depends on these files.
"""

import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any

from colonnade.errors import RunError
from colonnade.files import json_of, make_folder, open_private, read_private, write_private
from colonnade.runtimes.steering import LIVE

MOST_LINES = 1600
LEAST_LINES = 200
MOST_BYTES = 4 << 20
MOST_LOG_BYTES = 1 << 18
RUN_LOG = "log.jsonl"

Sample = dict[str, Any]


def kept(times: Sequence[float], most: int = MOST_LINES) -> list[int]:
    """Which of these moments to keep: the last quarter, and of those before as many as show the whole run evenly."""
    if len(times) <= most:
        return [*range(len(times))]
    recent = len(times) - most // 4
    apart = (times[recent] - times[0]) / (most // 2)
    chosen, due = [], times[0]
    for place in range(recent):
        if times[place] >= due:
            chosen.append(place)
            due = times[place] + apart
    return [*chosen, *range(recent, len(times))]


class LiveFile:
    """Lines with the moment of each, appended; thinned out when there are too many."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._times: list[float] = []
        self._lines: list[bytes] = []
        self._begun = False

    @property
    def _most(self) -> int:
        """How many lines as long as the last one there may be."""
        return min(MOST_LINES, max(LEAST_LINES, MOST_BYTES // len(self._lines[-1])))

    def append(self, sample: Sample) -> None:
        """Its `now` goes back only where a run goes on from a checkpoint: what came after that is repeated.

        Without one, such as before the run begins, it is that of the line before.
        """
        if not self._begun:
            self._begin(inf if sample["now"] is None else sample["now"])
        last = self._times[-1] if self._times else 0.0
        now = last if sample["now"] is None else max(last, sample["now"])
        self._times.append(now)
        self._lines.append(json.dumps({**sample, "now": now}, separators=(",", ":")).encode() + b"\n")
        if len(self._lines) > self._most:
            places = kept(self._times, self._most)
            self._times = [self._times[place] for place in places]
            self._lines = [self._lines[place] for place in places]
            write_private(self._path, b"".join(self._lines))
        else:
            _append(self._path, self._lines[-1])

    def _begin(self, now: float) -> None:
        self._begun = True
        make_folder(self._path.parent)
        if not self._path.exists():
            return
        for line in read_private(self._path).splitlines(keepends=True):
            moment = _moment(line)
            if moment is not None and moment < now:
                self._times.append(moment)
                self._lines.append(line)
        write_private(self._path, b"".join(self._lines))


def _moment(line: bytes) -> float | None:
    with suppress(ValueError, TypeError, KeyError):
        return float(json_of(line)["now"])
    return None


def _append(path: Path, content: bytes) -> None:
    handle = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(handle, content)
    finally:
        os.close(handle)


class RunLog:
    """`live/log.jsonl`: what is said of a run while it goes on, the last quarter of a megabyte of it."""

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / LIVE / RUN_LOG

    def say(self, message: str, level: str = "info", party: str = "", event: str = "") -> None:
        if self._path is None:
            return
        line: dict[str, Any] = {"time": round(time.time(), 3), "level": level, "message": message}
        line |= {name: value for name, value in (("party", party), ("event", event)) if value}
        with suppress(OSError, RunError):
            make_folder(self._path.parent)
            if self._path.exists() and self._path.stat().st_size > MOST_LOG_BYTES:
                lines = read_private(self._path).splitlines(keepends=True)
                write_private(self._path, b"".join(lines[len(lines) // 2 :]))
            _append(self._path, json.dumps(line).encode() + b"\n")


class LogHandler(logging.Handler):
    """Lines of the program's log, as lines of the run's."""

    def __init__(self, run_log: RunLog, party: str) -> None:
        super().__init__(logging.INFO)
        self._run_log = run_log
        self._party = party

    def emit(self, record: logging.LogRecord) -> None:
        self._run_log.say(record.getMessage(), record.levelname.lower(), self._party)


@contextmanager
def logged_into(directory: Path, party: str) -> Iterator[None]:
    """While this holds, what the program says is in the run directory, too."""
    handler = LogHandler(RunLog(directory), party)
    logger = logging.getLogger("colonnade")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
