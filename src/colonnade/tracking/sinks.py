"""What a sink is, and how one is found by its name or its import path.

A sink is made before the run, with the text that its setting has. It works in a thread of its own, one call after the
other. What it raises ends its part of the run, in one warning; the training never notices.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Protocol

from colonnade.errors import SettingsError
from colonnade.tracking.run import TrackedRun
from colonnade.tracking.settings import Track
from colonnade.tracking.to_mlflow import MlflowSink
from colonnade.tracking.to_tensorboard import TensorboardSink
from colonnade.tracking.to_wandb import WandbSink


class Sink(Protocol):
    """Another program that keeps runs. Made with one text: where, in its own words."""

    def began(self, run: TrackedRun) -> str:
        """A run begins, or goes on. Returns by what this sink will know it, if it goes on later; "": by nothing."""

    def lines(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Lines of metrics.jsonl, those that have come since the last call. A run that went back repeats some."""

    def ended(self, summary: Mapping[str, Any]) -> None:
        """The run is over: summary.json, or `{"status": "failed"}` alone."""


Make = Callable[[str], Sink]
_MAKERS: dict[str, Make] = {"mlflow": MlflowSink, "tensorboard": TensorboardSink, "wandb": WandbSink}


def sinks_of(track: Track) -> dict[str, Sink]:
    """Every sink that is asked for, by name; SettingsError, if one cannot be had."""
    return {name: _made(name, where) for name, where in track.sinks.items()}


def _made(name: str, where: str) -> Sink:
    if name not in _MAKERS:
        return _made_by_path(name, where)
    if find_spec(name) is None:
        raise SettingsError(f"track.{name} needs a package that is not installed: pip install 'colonnade[{name}]'.")
    return _MAKERS[name](where)


def _made_by_path(path: str, where: str) -> Sink:
    module, _, cls = path.partition(":")
    try:
        sink = getattr(importlib.import_module(module), cls)(where)
    except Exception as error:  # whatever the code of somebody else does when it is loaded
        why = f"{type(error).__name__}: {error}"
        raise SettingsError(
            f"The sink {path} of [track] cannot be made: {why}. Its class must be importable here and take one text."
        ) from None
    missing = [one for one in ("began", "lines", "ended") if not callable(getattr(sink, one, None))]
    if missing:
        raise SettingsError(
            f"{path} of [track] is no sink: it has no {' and no '.join(missing)}. See docs/how-to/track.md."
        )
    return sink  # type: ignore[no-any-return]  # checked just above
