"""What has been released: every privacy event is written here before its value is sent, and never unwritten.

One line an event in ledger.jsonl, in the operating system's hands before the value leaves; and in memory, per kind of
event, how often each row was released. A crash between the line and the sending costs a line too many, never one too
few. A party that is rebuilt after a crash spends the same events again: they meet their lines and are counted once.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from colonnade.party import State
from colonnade.privacy.events import PrivacyEvent


@dataclass
class _Kind:
    """Everything released by one party with one mechanism and one noise."""

    party: str
    event: PrivacyEvent
    releases: int = 0
    per_row: np.ndarray[Any, np.dtype[np.int32]] = field(default_factory=lambda: np.zeros(0, np.int32))


class Ledger:
    """Counts privacy events, and writes them down if it was given a file."""

    def __init__(self, path: Path | None = None, resume_at: int | None = None) -> None:
        """`resume_at`: where a checkpoint left the file. Lines after it belong to events that will be spent again."""
        self._kinds: dict[tuple[Any, ...], _Kind] = {}
        self._file: BinaryIO | None = None
        self._written_ahead = 0  # lines of events that are going to be spent again
        self._position = 0
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(0o600)
            self._file = path.open("r+b", buffering=0)
            self._position = resume_at or 0
            self._file.seek(self._position)
            after = self._file.read()
            whole = after[: after.rfind(b"\n") + 1]  # a line torn by a crash was never followed by its value
            self._written_ahead = whole.count(b"\n")
            self._ahead = [len(line) + 1 for line in whole.split(b"\n")[:-1]]
            self._file.truncate(self._position + len(whole))
            self._file.seek(0, 2)

    def spend(self, party: str, event: PrivacyEvent) -> bool:
        """Write an event down; True: its value may leave. Budgets are kept by the party itself (parts/budget.py)."""
        key = (party, event.mechanism, event.sensitivity, event.noise, event.protects, event.viewers)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(party, event)
        kind.releases += 1
        if event.row_ids is not None and event.row_ids.size:
            needed = int(event.row_ids.max()) + 1
            if needed > kind.per_row.size:  # twice as many, so that growing stays cheap
                more = np.zeros(max(needed, 2 * kind.per_row.size) - kind.per_row.size, np.int32)
                kind.per_row = np.concatenate([kind.per_row, more])
            np.add.at(kind.per_row, event.row_ids, 1)
        if self._file is not None:
            if self._written_ahead:
                self._position += self._ahead[-self._written_ahead]
                self._written_ahead -= 1
                return True
            line = json.dumps(_line(party, event)).encode() + b"\n"
            self._file.write(line)
            self._position += len(line)
        return True

    def settle(self) -> None:
        """A rebuilt party has spent everything again that it had: lines that are left had no value sent after them."""
        if self._written_ahead:
            self._position += sum(self._ahead[-self._written_ahead :])
            self._written_ahead = 0

    def summary(self) -> list[dict[str, Any]]:
        """Exactly which events occurred, per party and mechanism."""
        return [
            {
                "party": kind.party,
                "mechanism": kind.event.mechanism,
                "sensitivity": _number(kind.event.sensitivity),
                "noise": kind.event.noise,
                "releases": kind.releases,
                "rows": int((kind.per_row > 0).sum()),
                "max_releases_per_row": int(kind.per_row.max(initial=0)),
                "protects": kind.event.protects,
                "viewers": list(kind.event.viewers),
            }
            for kind in self._kinds.values()
        ]

    def by_row(self) -> list[dict[str, Any]]:
        """As `summary`, with how often each row was released: for accounting, at its owner's."""
        return [
            {**_line(kind.party, kind.event), "releases": kind.releases, "per_row": kind.per_row}
            for kind in self._kinds.values()
        ]

    # --- checkpoints ---

    def state(self) -> State:
        """What a checkpoint keeps."""
        kinds = [{**_line(kind.party, kind.event), "releases": kind.releases} for kind in self._kinds.values()]
        rows = {str(place): torch.from_numpy(kind.per_row.copy()) for place, kind in enumerate(self._kinds.values())}
        return State(rows, {"position": self._position, "kinds": kinds})

    def restore(self, state: State) -> None:
        """Become the ledger of a checkpoint."""
        self._kinds.clear()
        for place, saved in enumerate(state.values["kinds"]):
            sensitivity = float("inf") if saved["sensitivity"] is None else saved["sensitivity"]
            event = PrivacyEvent(
                mechanism=saved["mechanism"],
                sensitivity=sensitivity,
                noise=saved["noise"],
                rows=saved["rows"],
                row_ids=None,
                protects=saved["protects"],
                viewers=tuple(saved["viewers"]),
            )
            key = (saved["party"], event.mechanism, sensitivity, event.noise, event.protects, event.viewers)
            per_row = state.tensors[str(place)].numpy().astype(np.int32)
            self._kinds[key] = _Kind(saved["party"], event, saved["releases"], per_row)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _line(party: str, event: PrivacyEvent) -> dict[str, Any]:
    return {
        "party": party,
        "mechanism": event.mechanism,
        "sensitivity": _number(event.sensitivity),
        "noise": event.noise,
        "rows": event.rows,
        "protects": event.protects,
        "viewers": list(event.viewers),
    }


def _number(value: float) -> float | None:
    """JSON has no infinity; None means unbounded."""
    return None if value == float("inf") else value
