"""Results of reproductions that were run and written down: small JSON files, with when and on what.

docs/reproduction.md is made from them. `colonnade reproduce NAME --record` writes one into this package's folder, in a
checkout of the sources.
"""

import json
import os
import platform
import subprocess
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any

from colonnade.errors import RunError
from colonnade.files import SHARED, json_of, make_folder, write_atomically
from colonnade.reports.summary import versions
from colonnade.reproductions.reproduction import Shown

FOLDER = files("colonnade.reproductions").joinpath("recorded")


MOST_POINTS = 60
"""Of a curve that is written down: enough to draw it."""


def as_values(shown: Shown) -> dict[str, Any]:
    """Rows, panels and remark as JSON has them: numbers of four digits in curves, none for nan and infinity."""
    panels = [asdict(panel) for panel in shown.panels]
    for panel in panels:
        panel["bars"] = list(panel["bars"])
        panel["curves"] = [_thinned(curve) for curve in panel["curves"]]
    return {"rows": [_finite(asdict(row)) for row in shown.rows], "panels": panels, "remark": shown.remark}


def _thinned(curve: dict[str, Any]) -> dict[str, Any]:
    points = [(x, y) for x, y in zip(curve["x"], curve["y"], strict=True) if isfinite(x) and isfinite(y)]
    if len(points) > MOST_POINTS:
        points = [points[round(place * (len(points) - 1) / (MOST_POINTS - 1))] for place in range(MOST_POINTS)]
    return {**curve, "x": [float(f"{x:.4g}") for x, _ in points], "y": [float(f"{y:.4g}") for _, y in points]}


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and not isfinite(value) else value for key, value in values.items()}


def recorded_result(name: str, quick: bool) -> dict[str, Any] | None:
    """What was written down of a reproduction, if it was."""
    place = FOLDER.joinpath(_file_name(name, quick))
    found: dict[str, Any] | None = json_of(place.read_bytes()) if place.is_file() else None
    return found


def keep(result: dict[str, Any], folder: Path | None = None) -> Path:
    """Write a result down, in place of an earlier one: in a folder, or among those that the page is made from."""
    folder = folder or Path(str(FOLDER))
    path = folder / _file_name(result["name"], result["quick"])
    try:
        make_folder(folder, mode=SHARED)
        write_atomically(path, (json.dumps(result, indent=1, ensure_ascii=False) + "\n").encode(), SHARED)
    except OSError as error:
        raise RunError(
            f"{path} could not be written: {error.strerror}. Choose a folder of yours with --out; --record is for a "
            "checkout of the sources."
        ) from None
    return path


def circumstances() -> dict[str, Any]:
    """When, on what machine, with which versions and, in a checkout, of which commit."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": versions(),
        "commit": _commit(),
    }


def _commit() -> str | None:
    """None outside a checkout, or where there is no git."""
    here = Path(__file__).parent
    try:
        said = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"], cwd=here, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip()


def _file_name(name: str, quick: bool) -> str:
    return f"{name}-{'quick' if quick else 'full'}.json"
