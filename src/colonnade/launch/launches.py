"""The way to carry a run out that its settings ask for, and the directory that it is given."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from colonnade.errors import SettingsError
from colonnade.launch.processes import ProcessesLaunch
from colonnade.launch.run_directory import disk_errors, opened
from colonnade.launch.run_options import Launch, RunOptions
from colonnade.launch.runnable import Runnable
from colonnade.launch.simulation import SimulationLaunch
from colonnade.runtimes.processes.settings import Processes
from colonnade.runtimes.ray.settings import Ray
from colonnade.runtimes.simulate.settings import Simulate


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
        yield options
