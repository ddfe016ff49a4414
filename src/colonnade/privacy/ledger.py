"""What has been released: every privacy event is written here before its value is sent.

One line an event in ledger.jsonl, and per kind of event the number of releases and the most that touched one row.
A crash between the line and the sending costs budget, never privacy.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from colonnade.privacy.events import PrivacyEvent


@dataclass
class _Kind:
    """Everything released by one party with one mechanism and one noise."""

    party: str
    event: PrivacyEvent
    releases: int = 0
    per_row: np.ndarray[Any, np.dtype[np.int64]] = field(default_factory=lambda: np.zeros(0, np.int64))


class Ledger:
    """Counts privacy events, and writes them down if it was given a file."""

    def __init__(self, path: Path | None = None, resume_at: int | None = None) -> None:
        self._kinds: dict[tuple[Any, ...], _Kind] = {}
        self._file: TextIO | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(0o600)
            self._file = path.open("r+", encoding="utf-8")
            self._file.truncate(resume_at or 0)
            self._file.seek(resume_at or 0)

    def spend(self, party: str, event: PrivacyEvent) -> bool:
        """Write an event down. False would forbid the release; without a budget every release is allowed."""
        key = (party, event.mechanism, event.sensitivity, event.noise, event.protects, event.viewers)
        kind = self._kinds.setdefault(key, _Kind(party, event))
        kind.releases += 1
        if event.row_ids is not None:
            needed = int(event.row_ids.max()) + 1 if event.row_ids.size else 0
            if needed > kind.per_row.size:
                kind.per_row = np.concatenate([kind.per_row, np.zeros(needed - kind.per_row.size, np.int64)])
            np.add.at(kind.per_row, event.row_ids, 1)
        if self._file is not None:
            self._file.write(json.dumps(_line(party, event)) + "\n")
            self._file.flush()
        return True

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

    def position(self) -> int:
        """Where the file stands, for a checkpoint."""
        return 0 if self._file is None else self._file.tell()

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        kinds = [
            {**_line(kind.party, kind.event), "releases": kind.releases, "per_row": kind.per_row.tolist()}
            for kind in self._kinds.values()
        ]
        return {"position": self.position(), "kinds": kinds}

    def restore(self, state: dict[str, Any]) -> None:
        """Become the ledger of a checkpoint."""
        self._kinds.clear()
        for saved in state["kinds"]:
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
            per_row = np.array(saved["per_row"], np.int64)
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
