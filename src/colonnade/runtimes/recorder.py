"""The record of a run: metrics as they come, bytes by message, an excerpt of who was busy when.

Written to metrics.jsonl and timeline.jsonl if there is a run directory, kept in memory in any case, and handed to a
watcher (the progress display) if there is one.

What peers do may lead to notes, so these are bounded. In real time a line that the disk does not take for now is
written later: the training goes on.
"""

import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from colonnade.files import open_private, write_private
from colonnade.messages import KINDS, Message
from colonnade.party import Observe

log = logging.getLogger("colonnade.recorder")

MOST_NOTES = 1000
"""Lines with nothing but a note, such as that somebody is away: one that comes and goes makes as many as it likes."""
TIMELINE_INTERVALS_PER_PARTY = 400
"""Enough to draw; a longer excerpt would show nothing more."""


class Traffic:
    """What one party has sent: frames and bytes, by kind of message."""

    __slots__ = ("_evaluation", "_training", "bytes", "frames")

    def __init__(self) -> None:
        self.frames: dict[type[Message], int] = {}
        self.bytes: dict[type[Message], int] = {}
        self._training = self._evaluation = 0  # bytes: told with every line of metrics

    def count(self, message: type[Message], size_bytes: int) -> None:
        self.frames[message] = self.frames.get(message, 0) + 1
        self.bytes[message] = self.bytes.get(message, 0) + size_bytes
        if message.off_clock:
            self._evaluation += size_bytes
        else:
            self._training += size_bytes

    def restore(self, frames: Mapping[str, int], sizes: Mapping[str, int]) -> None:
        """Become what was counted before, by the names of messages."""
        self.frames = {KINDS[kind].message: number for kind, number in frames.items()}
        self.bytes = {KINDS[kind].message: size for kind, size in sizes.items()}
        self._evaluation = sum(size for message, size in self.bytes.items() if message.off_clock)
        self._training = sum(self.bytes.values()) - self._evaluation

    def total_bytes(self) -> int:
        """Bytes of training; evaluation is counted apart."""
        return self._training

    def evaluation_bytes(self) -> int:
        return self._evaluation


def by_kind(counted: Mapping[type[Message], int]) -> dict[str, int]:
    """Numbers or bytes of frames, by the names of messages."""
    return {kind.__name__: number for kind, number in counted.items()}


class Recorder:
    """Records a run. `label_party` decides what counts as up (towards it) and down (from it)."""

    def __init__(
        self,
        label_party: str,
        directory: Path | None = None,
        watch: Callable[[dict[str, Any]], None] | None = None,
        virtual: bool = True,
    ) -> None:
        self.metrics: list[dict[str, Any]] = []
        self.timeline: list[dict[str, Any]] = []
        self.traffic: dict[str, Traffic] = {}
        self.label_party = label_party
        self._watch = watch
        self._virtual = virtual
        self._intervals: dict[str, int] = {}
        self._wall_before = 0.0
        self._wall_start = time.perf_counter()
        self._metrics_path = None if directory is None else directory / "metrics.jsonl"
        self._timeline_path = None if directory is None else directory / "timeline.jsonl"
        self._file: FileIO | None = None
        self._unwritten = b""  # lines that the file does not have yet
        self._has_failed = False  # the last attempt to write them
        self._notes = 0

    def traffic_of(self, party: str) -> Traffic:
        return self.traffic.setdefault(party, Traffic())

    def wall_seconds(self) -> float:
        """Wall time of the run, sessions before a resume included."""
        return self._wall_before + time.perf_counter() - self._wall_start

    def rest(self, seconds: float) -> None:
        """A pause is over: it was none of the run's time."""
        self._wall_start += seconds

    def bytes_up_and_down(self) -> tuple[int, int]:
        up = sum(traffic.total_bytes() for name, traffic in self.traffic.items() if name != self.label_party)
        return up, self.traffic_of(self.label_party).total_bytes()

    def observe(self, party: str, observed: Observe, now: float) -> None:
        if observed.note and observed.loss is None and observed.metric is None and observed.validation is None:
            if self._notes >= MOST_NOTES:
                return
            self._notes += 1
        up, down = self.bytes_up_and_down()
        line: dict[str, Any] = {
            "party": party,
            "exchange": observed.exchange,
            "step": observed.step,
            "epoch": round(observed.epoch, 6),
            # In real time `now` is the wall time of the run; a crashed party's events keep theirs when handled again.
            "wall_seconds": round(self.wall_seconds() if self._virtual else now, 6),
            "virtual_seconds": now if self._virtual else None,
            "loss": observed.loss,
            "metric": observed.metric,
            "bytes_up": up,
            "bytes_down": down,
        }
        if observed.validation is not None:
            line["validation"] = observed.validation
        if observed.note:
            line["note"] = observed.note
        self.metrics.append(line)
        if self._metrics_path is not None:
            self._unwritten += _as_json(line).encode()
            self._try_to_write(self._metrics_path)
        if self._watch is not None:
            self._watch(line)

    def _try_to_write(self, path: Path) -> None:
        """Append what the file lacks. A simulation ends by a disk that is full; a party goes on and tries again."""
        try:
            self._write(path)
        except OSError as error:
            if self._virtual:
                raise
            if not self._has_failed:
                self._has_failed = True
                log.error("%s cannot be written for now, the training goes on: %s", path, error.strerror)
            return
        if self._has_failed:
            self._has_failed = False
            log.info("%s is written again", path)

    def _write(self, path: Path) -> None:
        if self._file is None and self._unwritten:
            handle = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            self._file = os.fdopen(handle, "ab", buffering=0)
        while self._file is not None and self._unwritten:
            self._unwritten = self._unwritten[self._file.write(self._unwritten) :]  # not twice, when it is full

    def interval(self, party: str, start: float, end: float, what: str = "busy") -> None:
        """A stretch of a party's time, kept while the excerpt has room."""
        count = self._intervals.get(party, 0)
        if count < TIMELINE_INTERVALS_PER_PARTY:
            self._intervals[party] = count + 1
            self.timeline.append({"party": party, "start": start, "end": end, "what": what})

    def close(self) -> None:
        """Write what is written once, at the end."""
        if self._metrics_path is not None:
            self._write(self._metrics_path)
        if self._timeline_path is not None:
            text = "".join(json.dumps(line) + "\n" for line in self.timeline)
            write_private(self._timeline_path, text.encode())
        if self._file is not None:
            self._file.close()
            self._file = None

    def forget(self) -> None:
        """Drop lines of a run that crashed before its first checkpoint: its events are handled again."""
        if self._metrics_path is not None:
            self._metrics_path.unlink(missing_ok=True)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        traffic = {
            name: {
                "frames": {kind.__name__: n for kind, n in sent.frames.items()},
                "bytes": {kind.__name__: n for kind, n in sent.bytes.items()},
            }
            for name, sent in self.traffic.items()
        }
        return {
            "metrics": self.metrics,
            "timeline": self.timeline,
            "intervals": self._intervals,
            "traffic": traffic,
            "wall_seconds": self.wall_seconds(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Become the recorder of a checkpoint; lines written after it are dropped from the file."""
        self.metrics = list(state["metrics"])
        self._notes = sum("note" in line and line["loss"] is None and line["metric"] is None for line in self.metrics)
        self.timeline = list(state["timeline"])
        self._intervals = dict(state["intervals"])
        self._wall_before = state["wall_seconds"]
        self._wall_start = time.perf_counter()
        for name, saved in state["traffic"].items():
            self.traffic_of(name).restore(saved["frames"], saved["bytes"])
        if self._metrics_path is not None:
            text = "".join(map(_as_json, self.metrics))
            write_private(self._metrics_path, text.encode())


def _as_json(line: dict[str, Any]) -> str:
    """A line of metrics. JSON has no NaN and no infinity, which a training that diverges has: they become null."""
    loss, metric = line["loss"], line["metric"]
    if metric is not None:
        metric = {name: _finite(value) for name, value in metric.items()}
    written = {**line, "loss": _finite(loss), "metric": metric}
    if loss is not None and written["loss"] is None:
        written.setdefault("note", "The loss was not a finite number: the training has diverged.")
    return json.dumps(written) + "\n"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
