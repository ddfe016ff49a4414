"""How tests run here: Hypothesis without deadlines, PyTorch with one thread, no waiting for a disk; who waits, first.

How long an example takes says nothing about the code. The order of additions is part of a result, and runs are made
with one thread: so must be what they are compared with. Two tests at a time on two cores are no slower for it. The same
for NumPy and SciPy, whose threads would wait for one another longer than a matrix of four columns takes.
"""

import gc
import os
import tempfile
from collections.abc import Iterator, Sequence

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when they are loaded: before all other imports

import pytest
import torch
from hypothesis import settings

from colonnade.runtimes.processes.fork_server import ForkServer

MEMORY = "/dev/shm"
"""Where files are kept in memory, on Linux. A small run makes some sixty, which a disk's journal takes longer for."""


def _keep_files_in_memory() -> None:
    """Temporary files of tests, and of processes that they start; not where there is little room, or no permission."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK | os.X_OK):
        return
    found = os.statvfs(MEMORY)
    if found.f_bavail * found.f_frsize >= 4 << 30 and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = MEMORY
        tempfile.tempdir = None  # pytest has asked before


_keep_files_in_memory()
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
torch.set_num_threads(1)
gc.disable()  # until all tests are collected: nothing that is made meanwhile goes away

WAITING = (
    *("runtimes/test_ray.py", "network/test_chaos.py", "network/test_every_algorithm.py", "network/test_identity.py"),
    *("network/test_private_crashes.py", "network/test_join_verb.py", "network/test_hosts_of_their_own.py"),
    "network",
)
"""Files of tests that mostly wait, for processes and for pauses, the longest first; then the rest of a folder.

All that start parties stay together: every worker that starts one loads everything once more for its fork server.
"""
LONG = (
    *("cli/test_verbs.py::test_the_demo", "algorithms/test_paper_claims.py", "algorithms/test_scale_free_steps.py"),
    *(
        "reports/test_page.py",
        "cli/test_sweep_verb.py",
        "agreement/test_examples.py",
        "agreement/test_contributing.py",
        "properties/test_any_schedule.py",
    ),
    *("properties/test_stop_and_resume.py", "algorithms/test_linear_memory.py", "recorded", "estimators"),
    *("algorithms/test_linear_stability.py", "runtimes/test_processes.py", "reproductions/test_reproductions.py"),
)
"""Tests that compute longest, or files with such."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Half of the workers begin with the files that wait, while the others compute, what takes longest first.

    With `--dist worksteal` each worker is given a stretch of the list, and who is done takes from the end of another's.
    A long wait or a long test there would leave the cores idle.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return
    waiters = workers // 2
    left_over = dict.fromkeys(items)
    first = [
        *([*_taken_from(left_over, WAITING[worker::waiters])] for worker in range(waiters)),
        *([*_taken_from(left_over, LONG[worker :: workers - waiters])] for worker in range(workers - waiters)),
    ]
    rest = [*left_over]
    stretches, left = [], len(items)
    for worker, own in enumerate(first):
        length = max(left // (workers - worker) - len(own), 0)
        stretches += [*own, *rest[:length]]
        left -= len(own) + length
        del rest[:length]
    items[:] = stretches


def _taken_from(items: dict[pytest.Item, None], places: Sequence[str]) -> Iterator[pytest.Item]:
    """The tests of these files, of these folders or of these names, in the order of the places; they are taken out."""
    for place in places:
        start = f"tests/{place}"
        found = [one for one in items if one.nodeid == start or one.nodeid.startswith((f"{start}::", f"{start}/"))]
        for item in found:
            del items[item]
            yield item


def pytest_collection_finish() -> None:
    """What is there now stays to the end: from here on it is not looked through for garbage; the rest not so often.

    Looking as often as Python does by itself takes a twenty-fifth of a training's time, and finds next to nothing.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Processes die in tests, not machines: what the operating system has is safe. Tests of lost power bring a disk.

    A small run waits for the disk some thirty times, longer than it computes.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Has everything loaded and starts commands in processes of their own, for all tests that ask for it."""
    from parties import start_fork_server

    one = start_fork_server()
    yield one
    one.close()
