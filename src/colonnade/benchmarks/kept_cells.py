"""Figures of a long benchmark in a file, each as it is measured: stopped, the benchmark goes on where it was.

The file is JSON, {algorithm: {data set: figure}}, null for a run that failed. Whoever changed an algorithm removes its
figures from the file; the rest is not measured again.
"""

import json
from pathlib import Path

from colonnade.errors import SettingsError
from colonnade.files import json_of, read_whole, write_atomically

Figures = dict[tuple[str, str], float | None]  # (data set, algorithm) → figure


class KeptCells:
    """What is in the file, and what is added to it."""

    def __init__(self, path: Path | None) -> None:
        """None: nothing is kept."""
        self._path = path
        self.figures: Figures = {}
        if path is not None and path.exists():
            self.figures = figures_in(path)

    def add(self, data: str, algorithm: str, figure: float | None) -> None:
        self.figures[data, algorithm] = figure
        if self._path is None:
            return
        nested: dict[str, dict[str, float | None]] = {}
        for (one, name), found in self.figures.items():
            nested.setdefault(name, {})[one] = found
        write_atomically(self._path, (json.dumps(nested, indent=2) + "\n").encode(), mode=None)


def figures_in(path: Path) -> Figures:
    """SettingsError if the file holds something else."""
    figures: Figures = {}
    try:
        for algorithm, row in dict(json_of(read_whole(path))).items():
            for data, figure in dict(row).items():
                figures[data, algorithm] = None if figure is None else float(figure)
    except (ValueError, TypeError):
        raise SettingsError(f"{path} does not hold the figures of a benchmark. Give another file to --keep.") from None
    return figures
