"""A sink that parties in processes of their own are given: what it is told goes into a file, as JSON."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from colonnade.tracking import TrackedRun


class KeptLines:
    def __init__(self, where: str) -> None:
        self._path = Path(where)

    def began(self, run: TrackedRun) -> str:
        self._keep({"party": run.party})
        return ""

    def lines(self, lines: Sequence[Mapping[str, Any]]) -> None:
        for line in lines:
            self._keep(line)

    def ended(self, summary: Mapping[str, Any]) -> None:
        self._keep(summary)

    def _keep(self, what: Mapping[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(what) + "\n")
