"""How tests run here: Hypothesis without deadlines, PyTorch with one thread, no waiting for the disk.

How long an example takes says nothing about the code. The order of additions is part of a result, and runs are made
with one thread: so must be what they are compared with. Two tests at a time on two cores are no slower for it. The same
for NumPy and SciPy, whose threads would wait for one another longer than a matrix of four columns takes.
"""

import os
from collections.abc import Iterator

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when they are loaded: before all other imports

import pytest
import torch
from hypothesis import settings

from colonnade.runtimes.processes.fork_server import ForkServer

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
torch.set_num_threads(1)


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
