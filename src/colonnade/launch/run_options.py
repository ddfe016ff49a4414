"""How a run is asked for, whatever carries it: where it is written, whether it goes on, who looks on, who may stop it.

`Launch` is what every runtime answers to: it is made from what is to be run, made ready, and run with these options.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypedDict

from colonnade.errors import SettingsError
from colonnade.launch.run_record import RunRecord
from colonnade.prediction.joint_model import JointModel
from colonnade.tracking.settings import Track, track_of

Watch = Callable[[dict[str, Any]], None]
"""Is given every line of metrics."""
Report = Callable[[str, dict[str, Any]], None]
"""Is given a party's name and what its process or actor says of itself."""


class RunKeywords(TypedDict, total=False):
    """The fields of `RunOptions`, as keywords of `train`."""

    out: str | Path | None
    resume: bool
    trace: bool
    watch: Watch | None
    report: Report | None
    stop_requested: Callable[[], bool]
    checkpoint_seconds: float
    threads: int
    settings: dict[str, Any] | None
    start: JointModel | str | Path | None
    accept_if_better: bool
    track: Mapping[str, str] | Track | None
    name: str
    progress: bool


@dataclass(frozen=True)
class RunOptions:
    """How a run is asked for, besides its plan and its data."""

    out: str | Path | None = None  # the run directory; None = nothing is kept
    resume: bool = False
    trace: bool = False
    watch: Watch | None = None
    report: Report | None = None
    stop_requested: Callable[[], bool] = lambda: False
    checkpoint_seconds: float = 30.0
    threads: int = 1  # of PyTorch
    settings: dict[str, Any] | None = None  # what the run directory keeps as its federation.toml
    start: JointModel | str | Path | None = None  # the model to begin with, or where it lies; None: fresh weights
    accept_if_better: bool = False  # leave a model that is worse than the one to begin with out of the run directory
    track: Mapping[str, str] | Track | None = None  # other programs that are told of the run, and where they keep it
    name: str = ""  # by which these know it; "": its directory's
    progress: bool = False  # show a bar: in a notebook, on a terminal, or lines elsewhere

    def __post_init__(self) -> None:
        if self.trace and self.out is None:
            raise SettingsError("A trace is written into the run directory: give out=… as well.")
        if self.resume and self.out is None:
            raise SettingsError("To resume, say which run: give its directory as out=….")

    @property
    def sinks(self) -> Track:
        return track_of(self.track)

    @property
    def directory(self) -> Path | None:
        return None if self.out is None else Path(self.out)

    def pass_on(self, party: str, said: dict[str, Any]) -> None:
        """Give what a party's process or actor said to whoever wants it: a line of metrics, or how far it is."""
        if "line" in said:
            if self.watch is not None:
                self.watch(said["line"])
        elif self.report is not None:
            self.report(party, said)


class Launch(Protocol):
    """One way to carry out a run. It is made from what is to be run."""

    runtime: str
    needs_directory: bool  # also where the user wants none: what processes keep must lie somewhere

    def ready(self) -> AbstractContextManager[None]:
        """All that can be wrong is found, and what is needed stands, before a run directory is made."""

    def run(self, options: RunOptions) -> RunRecord:
        """Run to the end, or until it is stopped; the run directory is open, and this process's alone."""
