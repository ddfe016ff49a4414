"""What a run left behind, everybody's records together: the same for every runtime.

Where parties live in processes or actors of their own, it is gathered from their last checkpoints.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade.errors import RunError
from colonnade.files import read_private, write_atomically
from colonnade.party import Party
from colonnade.privacy.accounting import SEED
from colonnade.privacy.ledger import Ledger
from colonnade.runtimes.checkpoint import numbers_of, read_checkpoint
from colonnade.runtimes.recorder import Recorder, by_kind
from colonnade.state import State

Times = dict[str, float]
"""A party's seconds (busy, idle, away), and how often it was started again or connected anew."""


@dataclass
class RunRecord:
    """A run's end: what was counted, sent, released, and how long it took."""

    runtime: str
    finished: bool
    recorder: Recorder
    counts: dict[str, dict[str, Any]]  # of each party that this process has seen the end of: its own
    exchanges: Mapping[str, int]  # replies that each feature party got
    times: dict[str, Times]
    privacy_events: list[dict[str, Any]]
    released: list[dict[str, Any]]  # as `privacy_events`, counted row by row
    wall_seconds: float
    virtual_seconds: float | None = None
    retransmitted_bytes: int = 0
    expelled: Mapping[str, str] = field(default_factory=dict)  # who was put out of a network run, and why
    randomness: str = SEED  # of the noise (privacy/accounting.py)

    @property
    def status(self) -> str:
        return "finished" if self.finished else "stopped"

    def bytes_by_sender(self) -> dict[str, dict[str, int]]:
        """Bytes of each party, by kind of message."""
        return {party: by_kind(sent.bytes) for party, sent in self.recorder.traffic.items()}

    def frames_by_sender(self) -> dict[str, dict[str, int]]:
        return {party: by_kind(sent.frames) for party, sent in self.recorder.traffic.items()}


def counts_of(parties: Mapping[str, Party]) -> dict[str, dict[str, Any]]:
    return {name: party.counts() for name, party in parties.items()}


def exchanges_of(counts: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    return {name: counted["exchanges"] for name, counted in counts.items()}


def gather(runtime: str, parties: Mapping[str, Party], label_party: str, directory: Path, finished: bool) -> RunRecord:
    """Read every party's last checkpoint: its state into the party, its records into one."""
    recorder = Recorder(label_party, virtual=False)
    times: dict[str, Times] = {}
    events: list[dict[str, Any]] = []
    released: list[dict[str, Any]] = []
    wall = 0.0
    for name, party in parties.items():
        saved = _last_checkpoint(directory / "checkpoints", name)
        if saved is None:
            if finished:
                raise RunError(f"The party {name} has left no whole checkpoint in {directory / 'checkpoints'}.")
            times[name] = {"busy_seconds": 0.0, "idle_seconds": 0.0, "restarts": 0}
            continue  # it was stopped before it had begun
        party.restore(saved.part("party"))
        station = saved.values["station"]
        wall = max(wall, station["now"])
        times[name] = {
            "busy_seconds": station["busy_seconds"],
            "idle_seconds": max(0.0, station["now"] - station["busy_seconds"]),
            "restarts": station["restarts"],
        }
        recorded = station["recorder"]
        recorder.timeline += recorded["timeline"]
        if name == label_party:
            recorder.metrics = recorded["metrics"]
        counted = recorded["traffic"].get(name, {})
        recorder.traffic_of(name).restore(counted.get("frames", {}), counted.get("bytes", {}))
        ledger = Ledger()
        ledger.restore(saved.part("ledger"))
        events += ledger.summary()
        released += ledger.by_row()
    recorder.timeline.sort(key=lambda line: line["start"])
    _write_together(directory, [*parties], recorder)
    counts = counts_of(parties)
    return RunRecord(runtime, finished, recorder, counts, exchanges_of(counts), times, events, released, wall)


def _last_checkpoint(folder: Path, name: str) -> State | None:
    for number in reversed(numbers_of(folder, name)):
        saved = read_checkpoint(folder, name, number)
        if saved is not None:
            return saved
    return None


def _write_together(directory: Path, parties: list[str], recorder: Recorder) -> None:
    """Everybody's ledgers and timelines in one file each, as a simulation writes them."""
    ledgers = [directory / "ledger" / f"{name}.jsonl" for name in parties]
    write_atomically(directory / "ledger.jsonl", b"".join(read_private(path) for path in ledgers if path.exists()))
    lines = "".join(json.dumps(line) + "\n" for line in recorder.timeline)
    write_atomically(directory / "timeline.jsonl", lines.encode())
