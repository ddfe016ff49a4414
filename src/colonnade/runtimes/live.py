"""A run while it goes on, as files that others may look at: `live/NAME.jsonl`, a line a few times a second.

A line holds what a party's operator may see of it (`picture.py`). Whatever taking it costs, it takes a hundredth of the
time at most: then it is taken less often. A file never grows beyond a megabyte or two: of what is long past, fewer
lines are kept, evenly over the whole run. What the disk does not take is left out: nothing depends on these files.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.errors import RunError
from colonnade.files import json_of, make_folder, open_private, read_private, write_private
from colonnade.runtimes.picture import Amount, Picture
from colonnade.runtimes.steering import LIVE

LINE_SECONDS = 0.25
_SHARE = 100.0  # between two lines passes at least so many times what one takes
_BUDGET_SECONDS = 2.0
_BUDGET_SHARE = 400.0  # the same for budgets, which look at every row
MOST_LINES = 1600
RECENT_LINES = 400
PAST_LINES = 800
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
MOST_LOG_BYTES = 1 << 18

Sample = dict[str, Any]


def kept(times: Sequence[float]) -> list[int]:
    """Which of these moments to keep: the recent ones, and of those before as many as show the whole run evenly."""
    if len(times) <= MOST_LINES:
        return [*range(len(times))]
    recent = len(times) - RECENT_LINES
    apart = (times[recent] - times[0]) / PAST_LINES
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
        if len(self._lines) > MOST_LINES:
            places = kept(self._times)
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


class Live:
    """Writes a line when it is due. `look` is called as often as one likes."""

    def __init__(
        self,
        path: Path,
        take: Callable[[], Sample],
        released: Callable[[], Sequence[Mapping[str, Any]]] = list,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`take` gives a line, with `now` and the `parties`; `released` what the ledger has counted row by row."""
        self._file = LiveFile(path)
        self._take = take
        self._released = released
        self._clock = clock
        self._due = -inf
        self._budgets_due = -inf
        self._budgets: dict[str, Any] = {}

    def look(self) -> None:
        if self._clock() >= self._due:
            self.write()

    def write(self) -> None:
        """A line now, such as the last one."""
        began = self._clock()
        self._due = began + LINE_SECONDS
        sample = {"time": round(time.time(), 3), **self._take()}
        if began >= self._budgets_due:
            self._budgets = spent_by_quantile(self._released())
            self._budgets_due = began + max(_BUDGET_SECONDS, _BUDGET_SHARE * (self._clock() - began))
        for party, spent in self._budgets.items():
            if party in sample["parties"]:
                sample["parties"][party]["spent"] = spent
        with suppress(OSError, RunError):
            self._file.append(sample)
        self._due = began + max(LINE_SECONDS, _SHARE * (self._clock() - began))


def spent_by_quantile(released: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By party and what is protected: how many rows have cost anything, and μ² of the quantiles of those."""
    costs: dict[tuple[str, str], np.ndarray[Any, Any]] = {}
    for kind in released:
        if kind["sensitivity"] is None:
            continue  # no guarantee follows from it
        key = (kind["party"], kind["protects"])
        counts = kind["per_row"]
        sum_ = costs.get(key, np.zeros(0))
        if len(sum_) < len(counts):
            sum_ = np.concatenate([sum_, np.zeros(len(counts) - len(sum_))])
        sum_[: len(counts)] += counts * (kind["sensitivity"] / kind["noise"]) ** 2
        costs[key] = sum_
    found: dict[str, dict[str, Any]] = {}
    for (party, protects), all_rows in costs.items():
        rows = all_rows[all_rows > 0]
        if rows.size:
            quantiles = [float(f"{one:.6g}") for one in np.quantile(rows, QUANTILES)]
            found.setdefault(party, {})[protects] = {"rows": int(rows.size), "mu2": quantiles}
    return found


def as_lane(picture: Picture) -> Sample:
    """A party's part of a line, from its own picture."""
    lane: Sample = {
        "status": picture.status,
        "exchanges": picture.exchanges,
        "steps": picture.steps,
        "busy": round(picture.busy_seconds, 4),
        "queue": picture.queue_depth,
        "absent": [*picture.absent],
        "sent": by_message(picture.sent),
        "links": {name: [int(link.connected), link.waiting, int(link.is_gone)] for name, link in picture.links.items()},
    }
    if picture.restarts:
        lane["restarts"] = picture.restarts
    if picture.epochs is not None:
        lane["epochs"] = round(picture.epochs, 4)
    if picture.staleness:
        lane["staleness"] = {name: round(value, 3) for name, value in picture.staleness.items()}
    if picture.received:
        lane["received"] = by_message(picture.received)
    if picture.replies:
        lane["replies"] = dict(picture.replies)
    return lane


def by_message(amounts: Mapping[str, Amount]) -> dict[str, list[int]]:
    return {name: [one.frames, one.bytes] for name, one in amounts.items()}


class RunLog:
    """`live/log.jsonl`: what is said of a run while it goes on, the last quarter of a megabyte of it."""

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / LIVE / "log.jsonl"

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
