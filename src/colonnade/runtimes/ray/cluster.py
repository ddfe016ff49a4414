"""Connections to Ray clusters: one that runs, or one of our own that ends with the command.

Independent jobs run on one as tasks. What is handed to Ray are plain values: it packs them with pickle and trusts its
whole cluster.
"""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import ceil
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError

from colonnade.errors import RunError, SettingsError

NAMESPACE = "colonnade"
"""Where Ray keeps the names of our actors."""
_PROBE_SECONDS = 5.0
"""Ray itself tries for minutes to reach a cluster that is not there."""

Job = TypeVar("Job")
Result = TypeVar("Result")


@contextmanager
def cluster(address: str, needs: Sequence[Mapping[str, float]] = ()) -> Iterator[None]:
    """While this holds, Ray is connected. A connection that the caller has already made is used, and stays.

    The cluster of the address `local` has what the needs add up to, so that everybody finds a place.
    """
    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"address": address, "namespace": NAMESPACE, "log_to_driver": False}
    if address == "local":
        sums: dict[str, float] = {}
        for one in needs:
            for what, amount in one.items():
                sums[what] = sums.get(what, 0.0) + amount
        cpus = max(os.cpu_count() or 1, ceil(sums.pop("CPU", 0.0)))
        sums.pop("memory", None)
        options |= {"num_cpus": cpus, "num_gpus": ceil(sums.pop("GPU", 0.0)) or None, "resources": sums}
        options |= {"include_dashboard": False}
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report to its makers
    else:
        _probe(os.environ.get("RAY_ADDRESS", "") if address == "auto" else address)
    try:
        with _own_signals():
            ray.init(**options, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
        raise SettingsError(
            f"There is no Ray cluster at the address {address!r}: {first_line(error)} Begin one with `ray start "
            "--head`, give the address of one that runs, or write local for one that ends with this command."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _probe(address: str) -> None:
    """Refuse an address at which nobody listens. Who listens, Ray finds out."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    bare = host.strip("[]")
    if not bare or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        return  # Ray knows other kinds of addresses, and says what is wrong with one that is none
    try:
        socket.create_connection((bare, int(port)), _PROBE_SECONDS).close()
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or (
            f"no answer within {_PROBE_SECONDS:g} seconds" if isinstance(error, TimeoutError) else "it is not a host"
        )
        raise SettingsError(
            f"There is no Ray cluster at the address {address!r}: {why}. Begin one there with `ray start --head`, give "
            "the address of one that runs (with its port, open from here), or write local for one that ends with this "
            "command."
        ) from None


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM when it begins; it stays with whoever had it, who wants to save first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_each_on_ray(
    work: Callable[[Job], Result],
    jobs: Sequence[Job],
    finished: Callable[[Job, Result], None] = lambda job, result: None,
    address: str = "auto",
) -> list[Result]:
    """`[work(job) for job in jobs]`, as tasks on a cluster, one CPU each; `finished` is called here as each comes in.

    `work` is a function of a module, and jobs and results are plain values. Ray repeats a task whose node is lost.
    """
    with cluster(address):
        task = ray.remote(work).options(num_cpus=1, max_retries=3)
        order = {task.remote(job): place for place, job in enumerate(jobs)}
        results: dict[int, Result] = {}
        left = [*order]
        try:
            while left:
                done, left = ray.wait(left)
                for one in done:
                    result: Result = ray.get(one)
                    results[order[one]] = result
                    finished(jobs[order[one]], result)
        except RayError as error:
            raise RunError(f"The cluster failed: {first_line(error)} What has finished is kept.") from error
        finally:
            for one in left:
                with suppress(RayError, ValueError):
                    ray.cancel(one, force=True)
        return [results[place] for place in range(len(jobs))]


def first_line(error: Exception) -> str:
    """The first line of what an error says, as a sentence."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__).strip()
    return line if line.endswith(".") else f"{line}."
