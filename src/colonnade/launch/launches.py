"""The way to carry a run out that its settings ask for, and the directory that it is given."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from colonnade.errors import ColonnadeError, SettingsError
from colonnade.launch.processes import ProcessesLaunch
from colonnade.launch.run_directory import disk_errors, opened
from colonnade.launch.run_options import Launch, RunOptions
from colonnade.launch.runnable import Runnable
from colonnade.launch.simulation import SimulationLaunch
from colonnade.runtimes.live_files import RunLog
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.ray.settings import Ray
from colonnade.runtimes.simulate.settings import Simulate
from colonnade.runtimes.steering import Steering


def launch_of(run: Runnable, runtime: Simulate | Processes | Ray) -> Launch:
    """By the runtime whose settings these are."""
    if isinstance(runtime, Simulate):
        return SimulationLaunch(run, runtime)
    if isinstance(runtime, Processes):
        return ProcessesLaunch(run, runtime)
    try:
        # In here, since Ray takes a second to load and is an extra; before it connects, which ray:// insists on.
        from colonnade.launch.ray import RayLaunch
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise SettingsError("The runtime 'ray' needs Ray: pip install 'colonnade[ray]'.") from None
    return RayLaunch(run, runtime)


@contextmanager
def placed(launch: Launch, digests: Callable[[], Mapping[str, str]], options: RunOptions) -> Iterator[RunOptions]:
    """The options with a run directory that is open; without one, a place for what processes keep, gone afterwards.

    `digests`: asked for what tells whether a resumed run sees the same data, where a directory keeps it.
    """
    with ExitStack() as stack:
        if options.out is None and launch.needs_directory:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="colonnade-run-"))
            options = replace(options, out=Path(folder) / "run")
        if options.directory is not None:
            settings = options.settings or {}
            stack.enter_context(disk_errors(options.directory))
            stack.enter_context(opened(options.directory, launch.runtime, settings, digests(), options.resume))
            options = stack.enter_context(_seen(launch, options, options.directory))
        yield options


@contextmanager
def _seen(launch: Launch, options: RunOptions, directory: Path) -> Iterator[RunOptions]:
    """The options of a run whose owner may look on and ask it to stop; a simulation asks for itself.

    A run that goes on says so with its first word: where that is refused, its directory stays as it was.
    """
    run_log = RunLog(directory)
    steering = Steering(directory)
    steering.begin()
    own_stop, own_report = options.stop_requested, options.report
    begun = False

    def begin() -> None:
        nonlocal begun
        if not begun:
            begun = True
            run_log.say(f"The run {'goes on' if options.resume else 'begins'} ({launch.runtime}).", event="began")

    def report(party: str, said: dict[str, Any]) -> None:
        begin()
        if "note" in said:
            run_log.say(said["note"], "warning", party)
        if own_report is not None:
            own_report(party, said)

    options = replace(options, report=report)
    if launch.needs_directory:
        options = replace(options, stop_requested=lambda: own_stop() or steering.stop_requested())
    if not options.resume:
        begin()
    try:
        yield options
    except BaseException as error:
        said = str(error) if isinstance(error, ColonnadeError) else type(error).__name__
        if begun:
            run_log.say(said, "error", event="failed")
        raise
    begin()
    run_log.say("The run has ended.", event="ended")
