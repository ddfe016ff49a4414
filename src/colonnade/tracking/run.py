"""A run as sinks are told of it, and its figures by flat names: no more than metrics.jsonl and summary.json hold."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SHARED = ("federation", "data", "algorithm", "training", "privacy", "bottom", "top", "simulate")
"""Sections that describe a training. Those that say where a party's files lie are left out."""
_OF_A_LINE = ("loss", "epoch", "step", "wall_seconds", "virtual_seconds", "bytes_up", "bytes_down", "rate")
_OF_A_SUMMARY = (
    *("exchanges", "steps", "epochs", "wall_seconds", "virtual_seconds", "bytes_up", "bytes_down", "bytes_sent"),
    *("evaluation_bytes", "retransmitted_bytes", "train_loss", "test", "validation", "staleness", "parties"),
)


@dataclass(frozen=True)
class TrackedRun:
    """What a sink is told when a run begins."""

    name: str
    party: str  # whose view it is; "": everybody's, in one place
    settings: Mapping[str, str] = field(default_factory=dict)  # "training.epochs": "20"
    directory: Path | None = None  # None: nothing of it is kept
    before: str = ""  # what this sink's `began` returned when the run began that goes on now; "": a new run


def figures_of_line(line: Mapping[str, Any]) -> dict[str, float]:
    """
    >>> figures_of_line({"exchange": 5, "loss": 0.5, "metric": {"accuracy": 0.9}, "bytes_up": None})
    {'loss': 0.5, 'test/accuracy': 0.9}
    """
    named = {name: line.get(name) for name in _OF_A_LINE}
    return dict(_flat({**named, "test": line.get("metric"), "validation": line.get("validation")}))


def figures_of_summary(summary: Mapping[str, Any]) -> dict[str, float]:
    """Under names of their own: the last line of metrics is not the run as a whole."""
    return dict(_flat({"summary": {name: summary.get(name) for name in _OF_A_SUMMARY}}))


def settings_of(values: Mapping[str, Any]) -> dict[str, str]:
    """The settings that describe a training, by their names on the command line."""

    def of(table: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
        for name, value in table.items():
            if isinstance(value, Mapping):
                yield from of(value, f"{above}{name}.")
            else:
                yield f"{above}{name}", str(value)

    return dict(of({name: values[name] for name in _SHARED if name in values}, ""))


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield f"{above}{name}", value
