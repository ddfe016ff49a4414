"""Independent runs side by side, one process per core, one thread per process.

Results come back in the order of the jobs, whoever finishes first. When the caller stops, by Ctrl-C or by an error, so
do the processes; when it is killed, they notice and end.
"""

import multiprocessing
import multiprocessing.forkserver
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.context import BaseContext
from typing import Any, TypeVar

from colonnade.errors import RunError, SettingsError
from colonnade.runtimes.processes.fork_server import THREADS
from colonnade.threads import compute_with

Job = TypeVar("Job")
Result = TypeVar("Result")

MOST_WORKERS = 8
"""Each holds the data set and an embedding table of its own, so memory is what bounds them."""


def run_each(
    work: Callable[[Job], Result],
    jobs: Sequence[Job],
    finished: Callable[[Job, Result], None] = lambda job, result: None,
    workers: int | None = None,
) -> list[Result]:
    """`[work(job) for job in jobs]`, in processes; `finished` is called here as each comes in.

    `work` is a function of a module, and jobs and results can be pickled.
    """
    if not jobs:
        return []
    before = multiprocessing.active_children()
    count = min(len(jobs), MOST_WORKERS, workers or os.cpu_count() or 1)
    with _interrupts_ignored():  # inherited by the workers: a Ctrl-C is for this process to act on
        executor = ProcessPoolExecutor(count, _start_method(work.__module__), _begin, ({**os.environ},))
    try:
        with _interrupts_ignored():
            futures: dict[Future[Result], Job] = {executor.submit(work, job): job for job in jobs}
        for future in as_completed(futures):
            finished(futures[future], future.result())
    except BrokenProcessPool:
        raise RunError(
            "A worker process was killed, most likely because the machine ran out of memory. Close other programs and "
            "start again."
        ) from None
    except BaseException:
        for child in multiprocessing.active_children():
            if child not in before:
                child.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)
    return [future.result() for future in futures]


def on_cluster(address: str) -> Callable[..., list[Any]]:
    """`run_each` on the Ray cluster there."""
    try:
        # In here, since Ray takes a second to load and is an extra.
        from colonnade.runtimes.ray.cluster import run_each_on_ray
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise SettingsError("Running on a cluster needs Ray: pip install 'colonnade[ray]'.") from None
    return partial(run_each_on_ray, address=address)


def cell_runner(workers: int | None, address: str | None) -> Callable[..., list[Any]]:
    """`run_each` with so many processes, or on a cluster."""
    return partial(run_each, workers=workers) if address is None else on_cluster(address)


def _start_method(module: str) -> BaseContext:
    """Workers are forked from a process that has loaded what they need and does nothing: loading takes seconds.

    Not from this one: a process forked after torch has used threads can hang. That process is started once, with the
    environment of that moment and with one thread.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "colonnade.launch.experiment", module])  # most jobs are trainings
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(THREADS)
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return context


def _begin(environment: Mapping[str, str]) -> None:
    """In a new worker, which is told what the environment is by now."""
    os.environ.update(environment)
    compute_with(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed cannot end its workers."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if (
        threading.current_thread() is not threading.main_thread()
    ):  # only the main thread may set this, or be interrupted
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
